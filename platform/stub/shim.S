/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shim: where a patched call site ends up. Included by rt.S, so it is part of the run-time text.
 *
 * Comes from a trampoline (platform/trap/trap_patch.h) with %rax as the call has it, and in %r11 the
 * address behind the trampoline's own syscall instruction. Keeps everything but %rax, %rcx and %r11,
 * uses no stack of the guest's, no vector register, and no memory but the context's page, which
 * %gs leads to. A thread whose %gs does not lead there makes the call by that instruction instead, as a
 * signal. Until the flags are saved nothing may touch them.
 *
 * The borders RT_SHIM_* are known to the sentry: a signal may stop the thread anywhere in here, and
 * from where it stopped the sentry knows whether the call has yet to be made, or is over
 * (shim_fix_event in platform/trap/trap_shim.c).
 */

/* The call is to be made; the frame has all but %rcx. */
	.org	RT_SHIM, 0xcc
	rdgsbase %rcx
	rorx	$26, %rcx, %rcx
	mov	%ecx, %ecx
	lea	-(STUB_CTX >> 26)(%rcx), %ecx
	jrcxz	1f
	lea	-2(%r11), %rcx
	jmp	*%rcx
1:	mov	%r11, %gs:TC_AFTER
	mov	%rsp, %gs:TC_RSP

/* The same, but %r11 and %rsp are in the page. */
	.org	RT_SHIM_SAVED, 0x90
	rdgsbase %rsp
	lea	TC_SCRATCH(%rsp), %rsp
	pushfq
	movzbl	%al, %ecx
	mov	%gs:TC_KEYS(,%rcx,4), %ecx
	lea	(%rcx,%rax), %ecx
	jrcxz	2f
	jmp	3f
2:	jmp	shim_hit
3:	mov	%rax, %gs:TC_RAX
	mov	%rdi, %gs:TC_RDI
	mov	%rsi, %gs:TC_RSI
	mov	%rdx, %gs:TC_RDX
	mov	%r10, %gs:TC_R10
	mov	%r8, %gs:TC_R8
	mov	%r9, %gs:TC_R9
	mov	%rbx, %gs:TC_RBX
	mov	%rbp, %gs:TC_RBP
	mov	%r12, %gs:TC_R12
	mov	%r13, %gs:TC_R13
	mov	%r14, %gs:TC_R14
	mov	%r15, %gs:TC_R15

/* The flags are in the page, too. */
	.org	RT_SHIM_FLAGS, 0x90
	rdfsbase %rcx
	cmp	%rcx, %gs:TC_FS_BASE		/* not written, not fetched by the other side */
	je	4f
	mov	%rcx, %gs:TC_FS_BASE
4:	movl	$KIND_SHIM, %gs:TC_KIND
	mov	$TURN_SENTRY, %ecx
	.org	RT_SHIM_PASSED - 8, 0x90	/* so that the border is right behind it */
	xchg	%ecx, %gs:TC_TURN

/* The sentry has it. Here the handler goes back at once while the turn is the sentry's. */
	.org	RT_SHIM_PASSED, 0x90
shim_passed:
	cmpl	$0, %gs:TC_SENTRY_WAITS
	jne	5f
1:	mov	%gs:TC_SPIN, %ecx
	jmp	3f
2:	pause
3:	cmpl	$TURN_SENTRY, %gs:TC_TURN
	jne	shim_answered
	sub	$1, %ecx
	jg	2b
	rdgsbase %rdi
	mov	$1, %eax
	xchg	%eax, TC_STUB_WAITS(%rdi)
4:	cmpl	$TURN_SENTRY, TC_TURN(%rdi)
	jne	6f
	mov	$202, %eax			/* futex */
	xor	%esi, %esi			/* FUTEX_WAIT */
	mov	$TURN_SENTRY, %edx
	xor	%r10d, %r10d
	syscall
	jmp	4b
5:	mov	$202, %eax
	rdgsbase %rdi
	mov	$1, %esi			/* FUTEX_WAKE */
	mov	$1, %edx
	syscall
	jmp	1b
6:	movl	$0, TC_STUB_WAITS(%rdi)

/* The call is over: what the registers are to be is the sentry's last word. */
	.org	RT_SHIM_ANSWERED, 0x90
shim_answered:
	cmpl	$ANSWER_FRAME, %gs:TC_A_CMD
	je	1f
	rdgsbase %rsp
	lea	TC_A_FLAGS(%rsp), %rsp
	mov	%gs:TC_RDI, %rdi
	mov	%gs:TC_RSI, %rsi
	mov	%gs:TC_RDX, %rdx
	mov	%gs:TC_R10, %r10
	mov	%gs:TC_A_RAX, %rax
	mov	%gs:TC_A_RCX, %rcx
	mov	%gs:TC_A_R11, %r11
	popfq
	mov	%gs:TC_RSP, %rsp
	jmp	*%gs:TC_A_RIP
1:	ud2					/* makes a signal frame */

/* Answered from the page. As behind RT_SHIM_SAVED ... */
	.org	RT_SHIM_HIT, 0x90
shim_hit:
	pop	%r11
	mov	%gs:TC_RSP, %rsp
	movzbl	%al, %ecx
	.org	RT_SHIM_OVER - 8, 0x90
	mov	%gs:TC_VALUES(,%rcx,4), %eax
/* ... and from here on the call is over, with what is in %rax. */
	.org	RT_SHIM_OVER, 0x90
	mov	%gs:TC_AFTER, %rcx
	lea	SLOT_OVER_OFF(%rcx), %rcx
	jmp	*%rcx
	.org	RT_SHIM_END, 0xcc
