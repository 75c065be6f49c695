# SPDX-License-Identifier: Apache-2.0
# The guest's vDSO: a freestanding shared object, embedded by sentry/loader/vdso_blob.S.
VDSO_CFLAGS := -std=gnu17 -I. -O2 -ffreestanding -fno-builtin -fPIC -fvisibility=hidden \
	-mgeneral-regs-only -fno-stack-protector -fno-stack-clash-protection -fcf-protection=none \
	-fasynchronous-unwind-tables -fno-jump-tables -fno-common -U_FORTIFY_SOURCE -Wall -Wextra \
	-Wconversion $(WERROR)
VDSO_SRC := sentry/loader/vdso/vdso_image.c
VDSO_LDS := sentry/loader/vdso/vdso.lds

$(O)/gen/vdso.so: $(VDSO_SRC) $(VDSO_LDS) sentry/time/vvar.h sentry/loader/vdso.mk
	$(call say,VDSO,$@)mkdir -p $(@D) && $(CC) $(VDSO_CFLAGS) -c -o $(O)/gen/vdso_image.o $(VDSO_SRC) && \
		$(LD) -shared -nostdlib -Bsymbolic --hash-style=both --eh-frame-hdr --no-undefined \
		-soname linux-vdso.so.1 -z noexecstack -z max-page-size=4096 --build-id=none \
		-T $(VDSO_LDS) -o $@ $(O)/gen/vdso_image.o && strip --strip-unneeded $@

$(O)/sentry/loader/vdso_blob.o: $(O)/gen/vdso.so
