/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run-time text of a stub: one page, the only place whose system calls its filter lets through.
 *
 * No routine uses a stack, or trusts memory that a guest thread of the same process can write, for
 * its control flow: everything is in registers, which the sentry sets, and in the STUB_OPS pages,
 * which only the sentry can write. So a guest can't divert or hang a thread that works for the
 * sentry. (The message header of recvmsg is writable, since the kernel writes into it. A guest that
 * scribbles over it spoils its own mapping, is told from the result, and is killed.)
 *
 * Every routine ends at RT_STOP, where an int3 hands over to the tracer.
 */
#include "platform/stub/layout.h"

	.section .rt, "ax", @progbits
	.globl	stub_rt
stub_rt:

/* Runs the operations in [%rbx, %rbp). Stops with %rax = 0, or -errno and %rbx at the failed one. */
	.org	RT_BATCH, 0xcc
1:	cmp	%rbp, %rbx
	jae	9f
	mov	(%rbx), %eax
	cmp	$OP_RECV_FD, %eax
	je	recv_fd
	mov	8(%rbx), %rdi
	mov	16(%rbx), %rsi
	mov	24(%rbx), %rdx
	mov	32(%rbx), %r10
	mov	40(%rbx), %r8
	mov	48(%rbx), %r9
	syscall
	cmp	$-4095, %rax
	jae	5f
2:	add	$OP_SIZE, %rbx
	jmp	1b
5:	testl	$OP_OPTIONAL, 4(%rbx)
	jnz	2b
	jmp	8f
9:	xor	%eax, %eax
8:	test	%r13, %r13			/* trap: where to go on */
	jz	stop
	jmp	*%r13

recv_fd:
	movabs	$STUB_MSG, %rsi
	xor	%eax, %eax
	mov	%rax, 0(%rsi)			/* msg_name, msg_namelen */
	mov	%rax, 8(%rsi)
	movabs	$STUB_IOV, %rdi
	mov	%rdi, 16(%rsi)
	movabs	$STUB_PAYLOAD, %rdx
	mov	%rdx, 0(%rdi)
	movq	$1, 8(%rdi)
	movq	$1, 24(%rsi)			/* msg_iovlen */
	movabs	$STUB_CMSG, %r12
	mov	%rax, 16(%r12)
	mov	%r12, 32(%rsi)
	movq	$24, 40(%rsi)			/* CMSG_SPACE(sizeof(int)) */
	mov	%rax, 48(%rsi)
	mov	$47, %eax			/* recvmsg */
	xor	%edi, %edi			/* STUB_SOCK_FD */
	mov	$0x40000040, %edx		/* MSG_CMSG_CLOEXEC | MSG_DONTWAIT */
	syscall
	cmp	$-4095, %rax
	jae	5b
	mov	16(%r12), %eax			/* the descriptor, behind struct cmsghdr */
	cmp	8(%rbx), %eax
	je	2b
	mov	$-9, %rax			/* EBADF: somebody plays games */
	jmp	8b

	.org	RT_STOP, 0xcc
stop:	int3
	jmp	stop

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
	jnz	stop
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
	movabs	$STUB_BASE + STUB_RT_SIZE, %rdi
	mov	$STUB_TEXT_SIZE - STUB_RT_SIZE, %esi
	syscall
	mov	%r15, %r14			/* trap: its context, else 0 */
	test	%r14, %r14
	jz	1f
	jmp	trap_start
	.org	RT_FIRST_READY, 0xcc
1:	movabs	$STUB_MSG, %rsi
	xor	%eax, %eax
	mov	%rax, 0(%rsi)
	mov	%rax, 8(%rsi)
	mov	%rax, 16(%rsi)
	mov	%rax, 24(%rsi)
	mov	%rax, 32(%rsi)
	mov	%rax, 40(%rsi)
	mov	%rax, 48(%rsi)
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
	jmp	2f
	.org	RT_TRAP_BORN, 0xcc
1:	ud2
2:	xor	%edx, %edx
	mov	$8, %r10d
	syscall
	xor	%esp, %esp
	jmp	1b

/*
 * All signals come here, with all signals blocked: %rsp is the frame, which the sentry reads and
 * changes in place. No vector register is touched.
 */
	.org	RT_TRAP_HANDLER, 0xcc
	mov	%rsp, %r14
	and	$-STUB_CTX_SIZE, %r14
	mov	%rsp, TC_FRAME(%r14)
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

wake_sentry:
	mov	$202, %eax			/* futex */
	lea	TC_TURN(%r14), %rdi
	mov	$1, %esi			/* FUTEX_WAKE */
	mov	$1, %edx
	syscall
	jmp	wait

command:
	mov	TC_ARG(%r14), %r12
	cmp	$CMD_BATCH, %eax
	je	1f
	cmp	$CMD_CLONE, %eax
	je	2f
	mov	$60, %eax			/* exit: this thread only */
	xor	%edi, %edi
	mov	$TURN_SENTRY, %edx		/* from here on the context is free */
	xchg	%edx, TC_TURN(%r14)
	syscall
	ud2
1:	movabs	$STUB_OPS, %rbx
	mov	%r12d, %ebp
	shl	$6, %rbp
	add	%rbx, %rbp
	lea	3f(%rip), %r13
	jmp	stub_rt
2:	mov	$56, %eax			/* clone */
	mov	$STUB_THREAD_FLAGS, %edi
	xor	%esi, %esi
	xor	%edx, %edx
	xor	%r10d, %r10d
	xor	%r8d, %r8d
	syscall
	test	%eax, %eax
	jnz	3f
	mov	%r12, %r14
	jmp	trap_start
3:	mov	%rax, TC_RES(%r14)
	mov	%rbx, TC_RES_AT(%r14)
	jmp	ring

	.org	RT_TRAP_RESTORE, 0xcc
	ud2

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
