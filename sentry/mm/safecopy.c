// SPDX-License-Identifier: Apache-2.0
/*
 * The handler behind safecopy.h. The routines (safecopy_asm.S) are plain copies that know nothing of
 * faults; when one of their instructions raises SIGBUS (file truncated below us, no page left in the
 * cgroup) or SIGSEGV, the handler moves the instruction pointer to an error return. All of them
 * are leaf functions that leave the stack pointer alone, so a return from there is a return from the
 * routine. For copies, %rcx tells how much is left, so progress isn't lost.
 *
 * Neither signal may be blocked in a thread that copies guest memory: the kernel kills a process
 * whose blocked SIGSEGV is raised by a fault.
 */
#include "sentry/mm/safecopy.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "base/log.h"

extern const char __executable_start[]; /* linker: first byte of the image */
extern const char safecopy_start[], safecopy_end[], safecopy_fixup[];
extern const char safe32_start[], safe32_end[], safe32_fixup[];

static void on_fault(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;
	greg_t *rip = &uc->uc_mcontext.gregs[REG_RIP];
	uintptr_t ip = (uintptr_t)*rip;

	/* Only what the hardware raised: a kill(2) from outside has a code of SI_USER or below. */
	if (si->si_code > 0 && ip >= (uintptr_t)safecopy_start &&
	    ip < (uintptr_t)safecopy_end) {
		*rip = (greg_t)(uintptr_t)safecopy_fixup;
		return;
	}
	if (si->si_code > 0 && ip >= (uintptr_t)safe32_start &&
	    ip < (uintptr_t)safe32_end) {
		*rip = (greg_t)(uintptr_t)safe32_fixup;
		return;
	}
	signal(sig, SIG_DFL); /* host: rt_sigaction */
	panic("signal %d (code %d) at image offset 0x%lx, address 0x%lx", sig, si->si_code,
	      (unsigned long)(ip - (uintptr_t)__executable_start),
	      (unsigned long)(uintptr_t)si->si_addr);
}

void safecopy_init(void)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigemptyset(&sa.sa_mask);
	/* host: rt_sigaction, rt_sigreturn */
	if (sigaction(SIGSEGV, &sa, NULL) || sigaction(SIGBUS, &sa, NULL))
		panic("can't install the fault handler");
}
