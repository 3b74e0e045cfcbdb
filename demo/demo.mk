# Builds the demo's two programs, which stand outside the product: the dealer and the MPC kernel.
demo-programs: $(BUILD)/demo-dealer $(BUILD)/demo-kernel ## build the demo's dealer and kernel

$(BUILD)/demo-dealer: $(BUILD)/obj/demo/dealer.o $(BUILD)/obj/demo/cities.o
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CC) $(CFLAGS) $(SANFLAGS) -o $@ $^ $(LDFLAGS) -lgfshare -lsodium

$(BUILD)/demo-kernel: $(BUILD)/obj/demo/kernel.o $(BUILD)/obj/demo/cities.o
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CC) $(CFLAGS) $(SANFLAGS) -o $@ $^ $(LDFLAGS) -lgfshare -lsodium -lsqlite3

.PHONY: demo-programs
