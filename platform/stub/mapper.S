/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text from which a stub changes its mappings. Under ptrace the tracer runs the batch routine in a
 * stopped guest thread. Under trap a thread of its own does nothing else: the mapper, the only thread
 * of the process that holds descriptors and whose filter lets mapping calls through. Guest threads share its
 * memory, so it must not depend on anything that they can write:
 *
 *   control flow   registers, this text, and the STUB_OPS pages, which only the sentry can write
 *   signals        all blocked: a fault here ends the process
 *   recvmsg        its message header is below, in text. The host reads it, installs the descriptor, and
 *                  then fails with EFAULT when it writes the header back; that result is ignored, and so is
 *                  the control data. The sentry knows the descriptor's number, since the lowest free one
 *                  is taken, and has the mapping that needs it in the same batch: if the descriptor
 *                  didn't come, that fails with EBADF and the process is killed
 *   waking         a guest thread may wake the mapper (it looks at the number of batches again), or sleep on
 *                  the same word (the sentry wakes all)
 *   completion     is told over the socket, of which no guest thread has a descriptor
 *
 * A failed operation ends the process, with errno as its status.
 */
#include "platform/stub/layout.h"

	.section .mapper, "ax", @progbits
	.set	at, STUB_MAPPER - STUB_BASE	/* what RT_* of this page are relative to */

/* Runs the operations in [%rbx, %rbp), and goes on at %r13 with %rax = 0, or -errno and %rbx at the
 * failed one. */
	.org	RT_BATCH - at, 0xcc
batch:	cmp	%rbp, %rbx
	jae	9f
	mov	(%rbx), %eax
	cmp	$OP_RECV_FD, %eax
	je	4f
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
	jmp	batch
4:	mov	$47, %eax			/* recvmsg */
	xor	%edi, %edi			/* STUB_SOCK_FD */
	lea	recv_msg(%rip), %rsi
	mov	$0x40000040, %edx		/* MSG_CMSG_CLOEXEC | MSG_DONTWAIT */
	syscall
	jmp	2b
5:	testl	$OP_OPTIONAL, 4(%rbx)
	jnz	2b
	jmp	*%r13
9:	xor	%eax, %eax
	jmp	*%r13

	.balign	8
	.globl	recv_msg
	.hidden	recv_msg
recv_msg:					/* struct msghdr: no name, no payload */
	.quad	0, 0, 0, 0, STUB_CMSG, STUB_CMSG_SIZE, 0

/*
 * A new stub of the trap platform: with all signals blocked, the socket as its only descriptor, the
 * zygote's stack. %r12, %r13: struct sock_fprog for guest threads and the mapper, not in the zygote's
 * text; %r14: the first context. Tells the sentry the mapper's thread id, and becomes the first guest thread.
 */
	.org	RT_TRAP_FIRST - at, 0xcc
	mov	$56, %eax			/* clone */
	mov	$STUB_MAPPER_FLAGS, %edi
	xor	%esi, %esi			/* same stack pointer: the mapper doesn't use it */
	xor	%edx, %edx
	xor	%r10d, %r10d
	xor	%r8d, %r8d
	syscall
	test	%rax, %rax
	jz	mapper
	js	1f
	push	%rax
	mov	$44, %eax			/* sendto */
	xor	%edi, %edi			/* STUB_SOCK_FD */
	mov	%rsp, %rsi
	mov	$8, %edx
	mov	$0x4000, %r10d			/* MSG_NOSIGNAL */
	xor	%r8d, %r8d
	xor	%r9d, %r9d
	syscall
	mov	$3, %eax			/* close */
	xor	%edi, %edi
	syscall
	mov	$218, %eax			/* set_tid_address */
	lea	TC_TURN(%r14), %rdi
	syscall
	mov	$317, %eax			/* seccomp */
	mov	$1, %edi			/* SECCOMP_SET_MODE_FILTER */
	xor	%esi, %esi
	mov	%r12, %rdx
	syscall
	test	%rax, %rax
	jz	trap_start
1:	ud2					/* blocked: ends the process */

	.org	RT_MAPPER - at, 0xcc
mapper:	mov	$317, %eax			/* seccomp */
	mov	$1, %edi			/* SECCOMP_SET_MODE_FILTER */
	xor	%esi, %esi
	mov	%r13, %rdx
	syscall
	test	%rax, %rax
	jnz	9f
	mov	$11, %eax			/* munmap: nobody is in the zygote's text any more */
	movabs	$STUB_BASE + STUB_CODE_SIZE, %rdi
	mov	$STUB_TEXT_SIZE - STUB_CODE_SIZE, %esi
	syscall
	test	%rax, %rax
	jnz	9f
	movabs	$STUB_CTL, %r14
	xor	%r12d, %r12d			/* batches done */
	jmp	3f				/* tells that the filter is installed */
1:	cmp	%r12d, (%r14)
	jne	2f
	mov	$202, %eax			/* futex */
	mov	%r14, %rdi
	xor	%esi, %esi			/* FUTEX_WAIT */
	mov	%r12d, %edx
	xor	%r10d, %r10d
	syscall
	jmp	1b
2:	inc	%r12d
	mov	4(%r14), %ebp
	shl	$6, %rbp
	movabs	$STUB_OPS, %rbx
	add	%rbx, %rbp
	lea	3f(%rip), %r13
	jmp	batch
3:	test	%rax, %rax
	jnz	9f
	mov	$44, %eax			/* sendto */
	xor	%edi, %edi			/* STUB_SOCK_FD */
	lea	recv_msg(%rip), %rsi		/* any byte */
	mov	$1, %edx
	mov	$0x4000, %r10d			/* MSG_NOSIGNAL */
	xor	%r8d, %r8d
	xor	%r9d, %r9d
	syscall
	cmp	$1, %rax
	je	1b
9:	mov	%eax, %edi
	neg	%edi
	mov	$231, %eax			/* exit_group */
	syscall
	ud2

	.org	STUB_CODE_SIZE - at, 0xcc

	.section .note.GNU-stack, "", @progbits
