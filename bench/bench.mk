# Builds the benchmark's own programs: a node that keeps its shares in memory, and the bare rate of libcurl on libev.
bench-programs: $(BUILD)/bench-node $(BUILD)/bench-curl-rate ## build the programs of the benchmark

$(BUILD)/bench-node: $(BUILD)/obj/bench/node.o $(BUILD)/obj/custodian/judge.o $(call obj,$(SHARED_SRC))
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CC) $(CFLAGS) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(LIBS)

$(BUILD)/bench-curl-rate: $(BUILD)/obj/bench/curl_rate.o
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CC) $(CFLAGS) $(SANFLAGS) -o $@ $^ $(LDFLAGS) -lcurl -lev

.PHONY: bench-programs
