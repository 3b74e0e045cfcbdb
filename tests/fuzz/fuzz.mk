# Builds the fuzz targets: every object of the product once more, by clang, with libFuzzer's eyes in it.
CLANG      ?= clang
FUZZ       := $(BUILD)/fuzz
FUZZ_SAN   := -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_NAMES := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
FUZZ_SRC   := $(filter-out coordinator/main.c,$(QUORATE_SRC)) custodian/judge.c custodian/settings.c
FUZZ_CC     = $(CLANG) -std=c17 $(CPPFLAGS) -O1 -g $(FUZZ_SAN) $(WARNINGS) -MMD -MP

# So many seconds for each target, as many targets at a time as there are cores.
fuzz: ## feed everything that reads bytes from outside with what may break it [SECONDS=300] [TARGETS='key json']
	@scripts/install-deps build fuzz
	@$(MAKE) --no-print-directory fuzz-targets
	@$(PYTHON) tests/fuzz/run --build $(FUZZ) --seconds $(if $(findstring command,$(origin SECONDS)),$(SECONDS),300) $(TARGETS)

fuzz-targets: $(FUZZ_NAMES:%=$(FUZZ)/%) ## build the fuzz targets

$(FUZZ)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(if $(V),,@printf '  FUZZ   %s\n' $<)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer-no-link -c -o $@ $<
$(FUZZ)/obj/sql_files.o: $(BUILD)/obj/sql_files.c coordinator/db/sql_files.h
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) -c -o $@ $<

# An archive, so that a target may have functions of its own in place of some of the product's.
$(FUZZ)/product.a: $(FUZZ_SRC:%.c=$(FUZZ)/obj/%.o) $(FUZZ)/obj/sql_files.o
	$(Q)rm -f $@ && ar rcs $@ $^

$(FUZZ)/%: $(FUZZ)/obj/tests/fuzz/%.o $(FUZZ)/product.a
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CLANG) $(FUZZ_SAN) -fsanitize=fuzzer -Wl,-z,muldefs -o $@ $^ $(LDFLAGS) $(LIBS)

.PHONY: fuzz fuzz-targets
