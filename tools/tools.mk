# SPDX-License-Identifier: Apache-2.0
# Everything around the build: dependencies, the demonstration, style.

DEPS := gcc make pkg-config python3 libseccomp-dev libjansson-dev libcap-dev libcapstone-dev libcmocka-dev uthash-dev \
	libbsd-dev libxxhash-dev libzstd-dev mmdebstrap busybox-static

# What tests/oci drives holdfast with.
CLIENTS := containerd runc podman conmon docker.io catatonit uidmap iptables iproute2 containernetworking-plugins \
	python3-grpcio skopeo zstd

# Compilers of the programs that tests/programs builds by itself.
RUNTIMES := musl-tools golang-go

C_FILES = $(shell git ls-files '*.c' '*.h')

deps: ## install build and test dependencies with apt
	$(Q)tools/deps.sh $(DEPS)

clients: deps ## install the OCI clients and compilers of the tests with apt
	$(Q)tools/deps.sh $(CLIENTS) $(RUNTIMES)

quickstart: deps ## build, make a Debian root file system, open a shell in a sandbox
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/quickstart.sh $(O)/holdfast

rootfs: ## the Debian root file system that the tests use
	$(Q)tools/mkrootfs.sh test

lint: ## layering, banned calls, guest pointers, formatting of licence heads
	$(Q)python3 tools/lint.py

format: ## rewrite sources in the house style
	clang-format -i $(C_FILES)

docs: ## write docs/syscalls.md from the table
	$(Q)python3 tools/syscalls_doc.py

install: all ## install into $(PREFIX)
	install -D -m 0755 $(O)/holdfast $(DESTDIR)$(PREFIX)/bin/holdfast

.PHONY: deps clients quickstart rootfs lint format docs install
