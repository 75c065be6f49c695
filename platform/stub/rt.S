/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run-time text of a stub: one page, the only place from which its filter lets guest threads
 * make system calls. The routine that carries out mapping operations is in mapper.S.
 *
 * No routine uses a stack, or trusts memory that a guest thread of the same process can write, for
 * its control flow: everything is in registers, which the sentry sets. So a guest can't divert or hang a
 * thread that works for the sentry.
 *
 * Every routine ends at RT_STOP, where an int3 hands over to the tracer.
 */
#include "platform/stub/layout.h"

#define FRAME_RIP 0xb0 /* in the kernel's struct rt_sigframe */

	.section .rt, "ax", @progbits
	.globl	stub_rt
stub_rt:

	.globl	rt_stop, trap_start
	.hidden	rt_stop, trap_start
	.org	RT_STOP, 0xcc
rt_stop: int3
	jmp	rt_stop

/* A new host thread in this process. The parent stops with its id in %rax; the child parks. */
	.org	RT_CLONE, 0xcc
	mov	$56, %eax			/* clone */
	mov	$STUB_THREAD_FLAGS, %edi
	xor	%esi, %esi			/* same stack pointer: neither uses it */
	xor	%edx, %edx
	xor	%r10d, %r10d
	xor	%r8d, %r8d
	syscall
	test	%eax, %eax
	jnz	rt_stop
	jmp	park

/* Sleeps until a sentry thread seizes this one. */
	.org	RT_PARK, 0xcc
park:	mov	$34, %eax			/* pause */
	syscall
	jmp	park

	.org	RT_EXIT, 0xcc
	mov	$60, %eax			/* exit: this thread only */
	xor	%edi, %edi
	syscall
	ud2

/*
 * Where the first thread of a new stub comes out of the zygote. Takes the zygote's text away, then
 * waits on its socket rather than in pause(), so that a spare stub ends when the sentry does.
 */
	.org	RT_FIRST_PARK, 0xcc
	mov	$11, %eax			/* munmap */
	movabs	$STUB_BASE + STUB_CODE_SIZE, %rdi
	mov	$STUB_TEXT_SIZE - STUB_CODE_SIZE, %esi
	syscall
	jmp	1f
	.org	RT_FIRST_READY, 0xcc
1:	lea	recv_msg(%rip), %rsi
	mov	$47, %eax			/* recvmsg */
	xor	%edi, %edi
	xor	%edx, %edx
	syscall
	cmp	$-4, %eax			/* EINTR */
	je	1b
	mov	$60, %eax
	xor	%edi, %edi
	syscall
	ud2

/*
 * ---- the trap platform ----
 *
 * %r14 is the thread's context. Here a stack is used: the thread's signal stack, which the guest can
 * write, as it can the shared page. It may crash itself that way, or make calls that the filter allows
 * anyway.
 */

/* A new thread. Announces its signal stack, lets signals in, and hands over by a first one. */
	.org	RT_TRAP_START, 0xcc
trap_start:
	lea	STUB_CTX_SIZE(%r14), %rsp
	push	$(STUB_CTX_SIZE - STUB_CTX_PAGE)
	push	$0
	lea	STUB_CTX_PAGE(%r14), %rax
	push	%rax
	mov	$131, %eax			/* sigaltstack */
	mov	%rsp, %rdi
	xor	%esi, %esi
	syscall
	push	$0
	mov	$14, %eax			/* rt_sigprocmask */
	mov	$2, %edi			/* SIG_SETMASK */
	mov	%rsp, %rsi
	xor	%edx, %edx
	mov	$8, %r10d
	syscall
	xor	%esp, %esp
	mov	$39, %eax			/* getpid: refused, so the handler runs */
	syscall
	ud2

/*
 * All signals come here, with all signals blocked: %rsp is the frame, which the sentry reads and
 * changes in place. No vector register is touched.
 */
	.org	RT_TRAP_HANDLER, 0xcc
	mov	%rsp, %r14
	and	$-STUB_CTX_SIZE, %r14
	mov	FRAME_RIP(%rsp), %rax
	lea	shim_passed(%rip), %rcx
	sub	%rcx, %rax
	cmp	$(RT_SHIM_ANSWERED - RT_SHIM_PASSED), %rax
	jb	late
frame:	mov	%rsp, TC_FRAME(%r14)
	movl	$KIND_FRAME, TC_KIND(%r14)
	rdfsbase %rax
	mov	%rax, TC_FS_BASE(%r14)
	rdgsbase %rax
	mov	%rax, TC_GS_BASE(%r14)
ring:	mov	$TURN_SENTRY, %eax
	xchg	%eax, TC_TURN(%r14)		/* a full barrier, too */
	cmpl	$0, TC_SENTRY_WAITS(%r14)
	jne	wake_sentry
wait:	mov	TC_SPIN(%r14), %ecx
	jmp	2f
1:	pause
2:	cmpl	$TURN_SENTRY, TC_TURN(%r14)
	jne	answer
	sub	$1, %ecx
	jg	1b
	mov	$1, %eax
	xchg	%eax, TC_STUB_WAITS(%r14)
3:	cmpl	$TURN_SENTRY, TC_TURN(%r14)
	jne	4f
	mov	$202, %eax			/* futex */
	lea	TC_TURN(%r14), %rdi
	xor	%esi, %esi			/* FUTEX_WAIT */
	mov	$TURN_SENTRY, %edx
	xor	%r10d, %r10d
	syscall
	jmp	3b
4:	movl	$0, TC_STUB_WAITS(%r14)
answer:	mov	TC_CMD(%r14), %eax
	test	%eax, %eax
	jnz	command
	cmpl	$0, TC_SET_BASES(%r14)
	je	1f
	mov	TC_FS_BASE(%r14), %rax
	wrfsbase %rax
	mov	TC_GS_BASE(%r14), %rax
	wrgsbase %rax
1:	add	$8, %rsp			/* as after the handler's ret */
	mov	$15, %eax			/* rt_sigreturn */
	syscall
	ud2

/* In the shim, which has passed the turn. While it isn't back the signal is for a stay in the guest
 * that is over. */
late:	cmpl	$TURN_SENTRY, TC_TURN(%r14)
	jne	frame
	jmp	1b

wake_sentry:
	mov	$202, %eax			/* futex */
	lea	TC_TURN(%r14), %rdi
	mov	$1, %esi			/* FUTEX_WAKE */
	mov	$1, %edx
	syscall
	jmp	wait

command:
	mov	TC_ARG(%r14), %r12
	cmp	$CMD_CLONE, %eax
	je	2f
	mov	$60, %eax			/* exit: this thread only; the host passes the turn */
	xor	%edi, %edi
	syscall
	ud2
2:	mov	$56, %eax			/* clone */
	mov	$STUB_TRAP_FLAGS, %edi
	xor	%esi, %esi
	xor	%edx, %edx
	lea	TC_TURN(%r12), %r10
	xor	%r8d, %r8d
	syscall
	test	%eax, %eax
	jnz	3f
	mov	%r12, %r14
	jmp	trap_start
3:	mov	%rax, TC_RES(%r14)
	jmp	ring

	.org	RT_TRAP_RESTORE, 0xcc
	ud2

#include "platform/stub/shim.S"

	.org	STUB_RT_SIZE, 0xcc

	.section .start, "ax", @progbits
	.globl	_start
_start:
	mov	%rsp, %rdi
	movabs	$zygote_stack_top, %rsp
	xor	%ebp, %ebp
	movabs	$zygote_main, %rax
	call	*%rax
	ud2

	.section .note.GNU-stack, "", @progbits
