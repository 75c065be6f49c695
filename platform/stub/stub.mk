# SPDX-License-Identifier: Apache-2.0
# The stub: a freestanding static ELF at a fixed address, embedded into the binary.

STUB_O := $(O)/platform/stub
STUB_OBJS := $(STUB_O)/rt.o $(STUB_O)/mapper.o $(STUB_O)/zygote.o

$(STUB_O)/rt.o: platform/stub/rt.S platform/stub/stub.mk $(O)/flags
	$(call say,STUB,$<)mkdir -p $(@D) && $(CC) $(STUB_CFLAGS) -MMD -MP -c -o $@ $<
$(STUB_O)/mapper.o: platform/stub/mapper.S platform/stub/stub.mk $(O)/flags
	$(call say,STUB,$<)mkdir -p $(@D) && $(CC) $(STUB_CFLAGS) -MMD -MP -c -o $@ $<
$(STUB_O)/zygote.o: platform/stub/zygote.c platform/stub/stub.mk $(O)/flags
	$(call say,STUB,$<)mkdir -p $(@D) && $(CC) $(STUB_CFLAGS) -MMD -MP -c -o $@ $<
$(STUB_O)/stub.lds: platform/stub/stub.lds.S platform/stub/layout.h
	$(call say,CPP,$<)mkdir -p $(@D) && $(CC) -E -P -x assembler-with-cpp -I. -o $@ $<
# Nothing of the guest's thread pointer and no outside symbol may be used on that side.
$(STUB_O)/stub.elf: $(STUB_OBJS) $(STUB_O)/stub.lds
	$(call say,LD,$@)$(LD) -static -nostdlib -z noexecstack -z max-page-size=4096 \
		--build-id=none -T $(STUB_O)/stub.lds -o $@ $(STUB_OBJS)
	$(Q)! objdump -d $@ | grep -q '%fs:' || { echo 'stub uses %fs'; rm -f $@; exit 1; }
$(STUB_O)/image.o: platform/stub/image.S $(STUB_O)/stub.elf $(O)/flags
	$(call say,AS,$<)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) \
		-DSTUB_IMAGE='"$(STUB_O)/stub.elf"' -c -o $@ $<

# Also as a prerequisite: the rule of the binary has been read already.
LIB_OBJS += $(STUB_O)/image.o
$(O)/holdfast: $(STUB_O)/image.o
-include $(STUB_OBJS:.o=.d)
