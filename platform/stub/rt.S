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
	jmp	stop
9:	xor	%eax, %eax
	jmp	stop

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
	jmp	stop

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
	jmp	1f
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
