# SPDX-License-Identifier: Apache-2.0
# Tests: what is built from tests/, and the targets that run it (tests/run.py does the running).

UNIT_SRCS := $(wildcard tests/unit/*/test_*.c)
UNIT_BINS := $(UNIT_SRCS:%.c=$(O)/%)
SYSTEST_SRCS := $(wildcard tests/syscalls/*.c)
SYSTEST_BINS := $(SYSTEST_SRCS:tests/syscalls/%.c=build/tests/syscalls/%)
ESCAPE_SRCS := $(wildcard tests/escape/*.c)
ESCAPE_BINS := $(ESCAPE_SRCS:tests/escape/%.c=build/tests/escape/%)
STATE_SRCS := $(wildcard tests/state/guest_*.c)
STATE_BINS := $(STATE_SRCS:tests/state/%.c=build/tests/state/%)
FUZZ_SRCS := $(filter-out tests/fuzz/replay_main.c,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BINS := $(FUZZ_SRCS:%.c=$(O)/%)

# Guest programs: static, so that they need no root file system around them.
GUEST_CFLAGS := -std=gnu17 -D_GNU_SOURCE -I. -O1 -g -Wall -Wextra -pthread

build/tests/syscalls/%: tests/syscalls/%.c tests/syscalls/harness.h
	$(call say,GUEST,$<)mkdir -p $(@D) && $(CC) $(GUEST_CFLAGS) -static -o $@ $< -lrt
build/tests/escape/%: tests/escape/%.c tests/syscalls/harness.h
	$(call say,GUEST,$<)mkdir -p $(@D) && $(CC) $(GUEST_CFLAGS) -static -o $@ $< -lrt

build/tests/state/%: tests/state/%.c tests/state/guest.h
	$(call say,GUEST,$<)mkdir -p $(@D) && $(CC) $(GUEST_CFLAGS) -static -o $@ $< -lrt

$(O)/tests/unit/%: $(O)/tests/unit/%.o $(LIB_OBJS)
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) -o $@ $< $(LIB_OBJS) $(ALL_LDFLAGS) $(LIBS) -lcmocka
$(O)/tests/fuzz/%: $(O)/tests/fuzz/%.o $(O)/tests/fuzz/replay_main.o $(LIB_OBJS)
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) -o $@ $^ $(ALL_LDFLAGS) $(LIBS)

-include $(UNIT_SRCS:%.c=$(O)/%.d) $(FUZZ_SRCS:%.c=$(O)/%.d)

guest-tests: $(SYSTEST_BINS) $(ESCAPE_BINS) $(STATE_BINS)
unit-tests: $(UNIT_BINS) $(FUZZ_BINS)

RUN := python3 tests/run.py

check: all guest-tests ## quick tests (under 3 minutes)
	$(Q)$(MAKE) --no-print-directory VARIANT=asan unit-tests
	$(Q)$(RUN) quick

test: deps clients ## every test, from a clean clone
	$(Q)$(MAKE) --no-print-directory all guest-tests
	$(Q)$(MAKE) --no-print-directory VARIANT=asan all unit-tests
	$(Q)$(RUN) all

bench: all ## measure against native and runc
	$(Q)python3 tests/bench/bench.py
	$(Q)python3 tests/bench/oci.py
	$(Q)python3 tests/bench/state.py

.PHONY: guest-tests unit-tests check test bench
