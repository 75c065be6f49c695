/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions that may fault on guest memory: see safecopy.c, whose handler knows the two
 * ranges and their landing places. (A file of its own name: object files mirror source names.)
 */
#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

	.text
	.globl	safecopy_start, safecopy_end, safecopy_fixup
	.globl	safe32_start, safe32_end, safe32_fixup
	.hidden	safecopy_start, safecopy_end, safecopy_fixup
	.hidden	safe32_start, safe32_end, safe32_fixup

/* Below this many bytes the start-up cost of rep movsb is more than the copy. */
#define REP_MIN 128

safecopy_start:
/* size_t safecopy(void *dst, const void *src, size_t len): %rcx is what remains, at any time. */
	.globl	safecopy
	.type	safecopy, @function
safecopy:
	_CET_ENDBR
	mov	%rdx, %rcx
	cmp	$REP_MIN, %rcx
	jae	3f
	jmp	2f
1:	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	add	$8, %rsi
	add	$8, %rdi
	sub	$8, %rcx
2:	cmp	$8, %rcx
	jae	1b
3:	rep movsb
	mov	%rcx, %rax
	ret
	.size	safecopy, . - safecopy

/* size_t safezero(void *dst, size_t len) */
	.globl	safezero
	.type	safezero, @function
safezero:
	_CET_ENDBR
	mov	%rsi, %rcx
	xor	%eax, %eax
	rep stosb
	mov	%rcx, %rax
	ret
	.size	safezero, . - safezero
safecopy_end:

safecopy_fixup:
	_CET_ENDBR
	mov	%rcx, %rax
	ret

safe32_start:
/* int safe_load32(const uint32_t *p, uint32_t *ret) */
	.globl	safe_load32
	.type	safe_load32, @function
safe_load32:
	_CET_ENDBR
	mov	(%rdi), %eax
	mov	%eax, (%rsi)
	xor	%eax, %eax
	ret
	.size	safe_load32, . - safe_load32

/* int safe_cmpxchg32(uint32_t *p, uint32_t expect, uint32_t desired, uint32_t *ret_old) */
	.globl	safe_cmpxchg32
	.type	safe_cmpxchg32, @function
safe_cmpxchg32:
	_CET_ENDBR
	mov	%esi, %eax
	lock cmpxchg %edx, (%rdi)
	mov	%eax, (%rcx)
	xor	%eax, %eax
	ret
	.size	safe_cmpxchg32, . - safe_cmpxchg32

/* int safe_swap32(uint32_t *p, uint32_t v, uint32_t *ret_old) */
	.globl	safe_swap32
	.type	safe_swap32, @function
safe_swap32:
	_CET_ENDBR
	xchg	%esi, (%rdi)
	mov	%esi, (%rdx)
	xor	%eax, %eax
	ret
	.size	safe_swap32, . - safe_swap32
safe32_end:

safe32_fixup:
	_CET_ENDBR
	mov	$-14, %eax			/* EFAULT */
	ret

	.section .note.GNU-stack, "", @progbits
