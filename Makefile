# Builds build/quorate and build/quorate-custodian, and runs everything that proves them; `make help` lists the targets.
ifeq ($(origin CC),default)
CC       := gcc
endif
PKGS     := libpq libcurl libsodium libmicrohttpd gnutls jansson sqlite3
CPPFLAGS += -D_GNU_SOURCE -Icoordinator $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-format-zero-length -Werror
CFLAGS   ?= -O2 -g
LIBS     := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lev -lm
PREFIX   ?= /usr/local
PYTHON   ?= /usr/bin/python3

# SAN=1: everything under the address and undefined-behaviour sanitizers, in a build folder of its own.
ifeq ($(SAN),1)
BUILD    := build/san
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else
BUILD    := build
SANFLAGS :=
endif
# CRASH=1: a coordinator for tests that can be told to end at named points, see coordinator/base/crash.c.
ifeq ($(CRASH),1)
override BUILD := $(BUILD)/crash
CPPFLAGS += -DQUORATE_CRASH_POINTS
endif

# As many jobs as there are cores, unless -j says otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

# One line a file; `make V=1` shows the commands.
Q        := $(if $(V),,@)
COMPILE  = $(CC) -std=c17 $(CPPFLAGS) $(CFLAGS) $(SANFLAGS) $(WARNINGS) -MMD -MP

SHARED_SRC    := $(wildcard coordinator/base/*.c coordinator/wire/*.c)
QUORATE_SRC   := $(SHARED_SRC) $(wildcard coordinator/*.c coordinator/cli/*.c coordinator/db/*.c coordinator/transport/*.c coordinator/round/*.c)
CUSTODIAN_SRC := $(SHARED_SRC) $(wildcard custodian/*.c)
UNIT_SRC      := $(wildcard tests/unit/test_*.c)
SQL_FILES     := $(sort $(wildcard migrations/*.sql)) $(sort $(wildcard sql/*.sql))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

all: $(BUILD)/quorate $(BUILD)/quorate-custodian ## build the coordinator and the reference custodian (the default)

$(BUILD)/quorate: $(call obj,$(QUORATE_SRC)) $(BUILD)/obj/sql_files.o
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CC) $(CFLAGS) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(LIBS)

$(BUILD)/quorate-custodian: $(call obj,$(CUSTODIAN_SRC))
	$(if $(V),,@printf '  LINK   %s\n' $@)
	$(Q)$(CC) $(CFLAGS) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(LIBS)

$(BUILD)/obj/%.o: %.c | $(BUILD)/.libraries
	@mkdir -p $(@D)
	$(if $(V),,@printf '  CC     %s\n' $<)
	$(Q)$(COMPILE) -c -o $@ $<

# Asked once per build folder, so that what is missing is said in one line instead of a hundred.
$(BUILD)/.libraries:
	@mkdir -p $(@D)
	@pkg-config --print-errors --exists $(PKGS) && echo '#include <ev.h>' | $(CC) -E - >/dev/null || \
	    { echo "A compiler or a library is missing: run scripts/install-deps build" >&2; exit 1; }
	@touch $@

# The SQL files stand in the binary as bytes: sql_files[] of coordinator/db/sql_files.h.
# The folders: a file that is renamed or gone changes nothing else.
$(BUILD)/obj/sql_files.c: scripts/embed-sql $(SQL_FILES) migrations sql
	@mkdir -p $(@D)
	$(if $(V),,@printf '  EMBED  %s\n' $@)
	$(Q)scripts/embed-sql $(SQL_FILES) > $@.new && mv $@.new $@
$(BUILD)/obj/sql_files.o: $(BUILD)/obj/sql_files.c coordinator/db/sql_files.h
	$(if $(V),,@printf '  CC     %s\n' $<)
	$(Q)$(COMPILE) -c -o $@ $<

# A unit test links every object but the program's main().
UNIT_BIN := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(UNIT_SRC))
units: $(UNIT_BIN) ## build the unit tests
$(BUILD)/tests/unit/%: tests/unit/%.c $(filter-out $(BUILD)/obj/coordinator/main.o,$(call obj,$(QUORATE_SRC))) $(BUILD)/obj/sql_files.o
	@mkdir -p $(@D)
	$(if $(V),,@printf '  TEST   %s\n' $@)
	$(Q)$(COMPILE) -o $@ $< $(filter %.o,$^) $(LDFLAGS) -lcmocka $(LIBS)

# Sanitizers see C alone: what only SQL shows is shown once, without them.
SUITES := $(if $(filter 1,$(SAN)),--suite units --suite e2e --of-c)
check: ## build and run all tests [SAN=1: those of C, under sanitizers] [TESTS=pattern: only those]
	@scripts/install-deps build test
	@$(MAKE) --no-print-directory all units demo-programs bench-programs
	@$(MAKE) --no-print-directory CRASH=1 all
	@$(PYTHON) tests/run --build $(BUILD) $(SUITES) $(if $(TESTS),--only '$(TESTS)')

SECONDS := 90
chaos: ## run everything under random faults and check all invariants [SECONDS=90] [SEED=number: that schedule again]
	@scripts/install-deps build test
	@$(MAKE) --no-print-directory all
	@$(PYTHON) tests/chaos/run --build $(BUILD) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
.PHONY: chaos

include demo/demo.mk
include bench/bench.mk
include tests/fuzz/fuzz.mk
demo: ## show the whole of it with a throwaway database, two coordinators and five custodians
	@scripts/install-deps build demo
	@$(MAKE) --no-print-directory all demo-programs
	@demo/run --build $(BUILD)

figures: all ## measure a flood, a lone round and an idle coordinator on this machine
	@$(PYTHON) bench/figures

bench: ## measure everything side by side into bench/results [REPEATS=5] [SMOKE=1: two minutes, judges the ratios]
	@scripts/install-deps build bench
	@$(MAKE) --no-print-directory all bench-programs
	@$(PYTHON) bench/run $(if $(SMOKE),--smoke) $(if $(REPEATS),--repeats $(REPEATS))
.PHONY: bench

model: ## search the model of a round exhaustively with spin, and see that every mutant of it is caught
	@scripts/install-deps model
	@tests/model/run

lint: ## compilers, clang-format, clang-tidy and the rules of this project
	@scripts/install-deps build lint
	@+scripts/lint

# clang-tidy once per file and change, since it takes long; called by scripts/lint.
TIDY_SRC := $(wildcard coordinator/*.c coordinator/*/*.c custodian/*.c demo/*.c bench/*.c tests/unit/*.c tests/fuzz/*.c)
tidy: $(patsubst %.c,$(BUILD)/tidy/%.ok,$(TIDY_SRC))
$(BUILD)/tidy/%.ok: %.c .clang-tidy
	@mkdir -p $(@D)
	@clang-tidy --quiet $< -- -std=c17 $(CPPFLAGS) 2>/dev/null # there it counts the warnings of other people's headers
	@$(CC) -std=c17 $(CPPFLAGS) -MM -MP -MT $@ -MF $(@:.ok=.d) $<
	@touch $@

docker-check: ## build the image and run one round through the composed services
	@scripts/install-deps docker
	@docker/check

schema-dump: all ## write docs/schema.sql, which `make check` compares with what the migrations make
	@$(PYTHON) tests/with-database --build $(BUILD) scripts/dump-schema > docs/schema.sql.new
	@mv docs/schema.sql.new docs/schema.sql

man: all ## write the manual pages of docs/ from --help; `make check` compares them
	@scripts/man $(BUILD) docs

install: all ## install both programs and their manual pages below PREFIX (/usr/local) [DESTDIR=]
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(BUILD)/quorate $(BUILD)/quorate-custodian $(DESTDIR)$(PREFIX)/bin
	install -m 644 docs/quorate.1 docs/quorate-custodian.1 $(DESTDIR)$(PREFIX)/share/man/man1

clean: ## remove what was built
	rm -rf build

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: all units check demo figures model lint tidy docker-check schema-dump man install clean help
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
