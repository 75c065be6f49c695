/* SPDX-License-Identifier: Apache-2.0 */
/* The vDSO image, built by vdso.mk into build/VARIANT/gen/vdso.so (on the assembler's include path). */
	.section .rodata
	.balign 4096
	.globl vdso_image_start
	.globl vdso_image_end
	.hidden vdso_image_start
	.hidden vdso_image_end
vdso_image_start:
	.incbin "vdso.so"
vdso_image_end:
	.section .note.GNU-stack, "", @progbits
