/* SPDX-License-Identifier: Apache-2.0 */
/* The stub's ELF image as data of the sentry. STUB_IMAGE comes from stub.mk. */
	.section .rodata
	.globl	stub_image, stub_image_end
	.hidden	stub_image, stub_image_end
	.balign	16
stub_image:
	.incbin	STUB_IMAGE
stub_image_end:
	.byte	0
	.section .note.GNU-stack, "", @progbits
