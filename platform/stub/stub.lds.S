/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/stub/layout.h"

OUTPUT_FORMAT("elf64-x86-64")
ENTRY(_start)

PHDRS
{
	text PT_LOAD FLAGS(5);
	data PT_LOAD FLAGS(6);
	stack PT_GNU_STACK FLAGS(6);
}

SECTIONS
{
	. = STUB_BASE;
	.rt : { *(.rt) } :text
	. = STUB_MAPPER;
	.mapper : { *(.mapper) } :text
	.text : { *(.start) *(.text .text.*) *(.rodata .rodata.*) } :text
	ASSERT(. <= STUB_BASE + STUB_TEXT_SIZE, "stub text too large")
	. = STUB_DATA;
	.data : { *(.stubmsg) *(.data .data.*) *(.bss .bss.* COMMON) } :data
	ASSERT(. <= STUB_DATA + STUB_DATA_SIZE, "stub data too large")
	ASSERT(SIZEOF(.rt) == STUB_RT_SIZE, "run-time text must be one page")
	ASSERT(SIZEOF(.mapper) == STUB_CODE_SIZE - STUB_RT_SIZE, "the mapper's text must be one page")
	/DISCARD/ : { *(.comment) *(.note*) *(.eh_frame*) }
}
