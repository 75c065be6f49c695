# SPDX-License-Identifier: Apache-2.0
# holdfast: one make process, no recursion. Objects mirror the sources under build/$(VARIANT)/.
#   make VARIANT=release|debug|asan|tsan      V=1 shows the commands

MAKEFLAGS += --no-builtin-rules --no-builtin-variables
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
SHELL := /bin/bash

VARIANT ?= release
O := build/$(VARIANT)
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

CC := gcc
LD := ld
PREFIX ?= /usr/local

ifneq ($(shell uname -m),x86_64)
$(error holdfast runs on x86-64 only)
endif

WARN := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wformat-signedness \
	-Wstrict-prototypes -Wold-style-definition -Wmissing-prototypes -Wmissing-declarations \
	-Wredundant-decls -Wnested-externs -Woverride-init -Wswitch-enum -Wimplicit-fallthrough=5 \
	-Wjump-misses-init -Wvla -Walloca -Wuse-after-free=3 -Wdangling-pointer=2 -Wlogical-op \
	-Wduplicated-cond -Wduplicated-branches -Wcast-qual -Wwrite-strings -Wpointer-arith -Wundef \
	-Wdate-time -Wtrampolines -Wno-missing-field-initializers
WERROR ?= -Werror

HARDEN_release := -fstack-protector-strong -fstack-clash-protection -fcf-protection=full \
	-ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr -U_FORTIFY_SOURCE \
	-D_FORTIFY_SOURCE=3 -fwrapv
HARDEN_debug := -fstack-protector-strong -ftrivial-auto-var-init=pattern -fwrapv

VFLAGS_release := -O2 -g $(HARDEN_release)
VFLAGS_debug := -O1 -g -DHF_DEBUG=1 $(HARDEN_debug)
VFLAGS_asan := -O1 -g -DHF_DEBUG=1 -DHF_SANITIZE=1 -fsanitize=address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
# -Wno-tsan: it does not model the fences of the clock's sequence counter
VFLAGS_tsan := -O1 -g -DHF_DEBUG=1 -DHF_SANITIZE=1 -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
VFLAGS := $(VFLAGS_$(VARIANT))
$(if $(VFLAGS),,$(error unknown VARIANT '$(VARIANT)'))

LINK_release := -static-pie
LINK_debug := -static-pie
LINK_asan := -pie
LINK_tsan := -pie

ALL_CFLAGS = -std=gnu17 -D_GNU_SOURCE -I. -I$(O)/gen -fPIE -pthread -fno-common \
	-fvisibility=hidden -fno-strict-aliasing -fno-delete-null-pointer-checks $(WARN) $(WERROR) \
	$(VFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(LINK_$(VARIANT)) -pthread -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code \
	$(VFLAGS) $(LDFLAGS)
LIBS := -lseccomp -ljansson -lcap -l:libcapstone.a -lxxhash -lzstd

# Code that runs on the guest's side: %fs is the guest's there, and nothing else is mapped.
STUB_CFLAGS := -std=gnu17 -D_GNU_SOURCE -I. -O2 -ffreestanding -fno-builtin -mgeneral-regs-only \
	-fno-stack-protector -fno-stack-clash-protection -fcf-protection=none -fno-pic -fno-pie \
	-mcmodel=large -fno-asynchronous-unwind-tables -U_FORTIFY_SOURCE -Wall -Wextra $(WERROR)

srcs = $(sort $(foreach d,$(1),$(wildcard $(d)/*.c)))
BASE_DIRS := base
PLATFORM_DIRS := platform platform/ptrace platform/trap
SENTRY_DIRS := sentry $(sort $(patsubst %/,%,$(wildcard sentry/*/ sentry/fs/*/ sentry/socket/*/)))
BASE_SRCS := $(call srcs,$(BASE_DIRS))
PLATFORM_SRCS := $(call srcs,$(PLATFORM_DIRS))
SENTRY_SRCS := $(call srcs,$(SENTRY_DIRS))
SYSCALL_SRCS := $(call srcs,syscalls)
GOFER_SRCS := $(call srcs,gofer)
RUNTIME_SRCS := $(call srcs,runtime)
LIB_SRCS := $(BASE_SRCS) $(PLATFORM_SRCS) $(SENTRY_SRCS) $(SYSCALL_SRCS) $(GOFER_SRCS) \
	$(filter-out runtime/main.c,$(RUNTIME_SRCS))
ASM_SRCS := $(wildcard base/*.S platform/*.S platform/ptrace/*.S sentry/*/*.S)
LIB_OBJS := $(LIB_SRCS:%.c=$(O)/%.o) $(ASM_SRCS:%.S=$(O)/%.o)
MAIN_OBJ := $(O)/runtime/main.o

all: $(O)/holdfast ## build the binary (build/VARIANT/holdfast)

$(O)/holdfast: $(LIB_OBJS) $(MAIN_OBJ) $(O)/flags
	$(call say,LD,$@)$(CC) -o $@ $(MAIN_OBJ) $(LIB_OBJS) $(ALL_LDFLAGS) $(LIBS)

# Rewritten only when the flags change, so that everything is rebuilt then and only then.
$(O)/flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cmp -s - $@ || \
		echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' > $@

$(O)/%.o: %.c $(O)/flags
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(O)/%.o: %.S $(O)/flags
	$(call say,AS,$<)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

include $(wildcard platform/stub/stub.mk sentry/loader/vdso.mk tests/tests.mk tools/tools.mk)

-include $(LIB_OBJS:.o=.d) $(MAIN_OBJ:.o=.d)

clean: ## remove build/
	rm -rf build

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

FORCE:
.PHONY: all clean help FORCE
