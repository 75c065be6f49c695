// SPDX-License-Identifier: Apache-2.0
/* Handlers, frames, masks, restart, real-time queueing, stops (man 7 signal). */
#include "harness.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

static volatile sig_atomic_t hits, last_code;
static void *volatile last_addr;

static void on_info(int sig, siginfo_t *si, void *uc)
{
	(void)sig;
	(void)uc;
	hits++;
	last_code = si->si_code;
	last_addr = si->si_addr;
}

static void catch(int sig, int flags)
{
	struct sigaction sa = { .sa_sigaction = on_info, .sa_flags = SA_SIGINFO | flags };

	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static void block(int sig)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, sig);
	CHECK(sigprocmask(SIG_BLOCK, &s, NULL) == 0);
}

TEST(signal_kill_self_runs_handler)
{
	catch(SIGUSR1, 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(hits == 1 && last_code == SI_USER);
	raise(SIGUSR1);
	CHECK(hits == 2 && last_code == SI_TKILL);
}

static void skip_insn(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;

	(void)sig;
	hits++;
	last_code = si->si_code;
	last_addr = si->si_addr;
	uc->uc_mcontext.gregs[REG_RIP] = uc->uc_mcontext.gregs[REG_RBX];
}

TEST(signal_segv_frame_can_be_changed)
{
	struct sigaction sa = { .sa_sigaction = skip_insn, .sa_flags = SA_SIGINFO };
	double x = 1.5;

	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	__asm__ volatile("leaq 1f(%%rip), %%rbx; movl $1, 8; 1:" ::: "rbx", "memory");
	CHECK(hits == 1 && last_code == SEGV_MAPERR && last_addr == (void *)8);
	CHECK(x * 2 == 3.0);
	char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	__asm__ volatile("leaq 1f(%%rip), %%rbx; movl $1, (%0); 1:" ::"r"(p) : "rbx", "memory");
	CHECK(hits == 2 && last_code == SEGV_ACCERR && last_addr == p);
}

static volatile bool on_alt;
static char altstack[65536];

static void check_alt(int sig)
{
	char here;

	(void)sig;
	on_alt = &here >= altstack && &here < altstack + sizeof(altstack);
}

TEST(signal_altstack)
{
	stack_t ss = { .ss_sp = altstack, .ss_size = sizeof(altstack) }, old;
	struct sigaction sa = { .sa_handler = check_alt, .sa_flags = SA_ONSTACK };

	CHECK(sigaltstack(&ss, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	raise(SIGUSR1);
	CHECK(on_alt);
	CHECK(sigaltstack(NULL, &old) == 0 && old.ss_flags == 0);
	ss.ss_size = 100;
	CHECK_ERRNO(sigaltstack(&ss, NULL), ENOMEM);
}

TEST(signal_restart_of_read)
{
	struct itimerval it = { .it_value.tv_usec = 50000 };
	int p[2];
	char c;

	CHECK(pipe(p) == 0);
	catch(SIGALRM, 0);
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	CHECK_ERRNO(read(p[0], &c, 1), EINTR);
	catch(SIGALRM, SA_RESTART);
	if (fork() == 0) {
		usleep(200000);
		_exit(write(p[1], "x", 1) != 1);
	}
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	CHECK(read(p[0], &c, 1) == 1 && hits == 2);
}

TEST(signal_realtime_queue_in_order)
{
	union sigval v;
	siginfo_t si;
	sigset_t s;

	block(SIGRTMIN);
	block(SIGUSR1);
	for (int i = 0; i < 3; i++) {
		v.sival_int = i;
		CHECK(sigqueue(getpid(), SIGRTMIN, v) == 0);
		CHECK(kill(getpid(), SIGUSR1) == 0);
	}
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	for (int i = 0; i < 3; i++)
		CHECK(sigwaitinfo(&s, &si) == SIGRTMIN && si.si_value.sival_int == i);
	sigaddset(&s, SIGUSR1);
	struct timespec zero = { 0, 0 };

	CHECK(sigtimedwait(&s, &si, &zero) == SIGUSR1);
	CHECK_ERRNO(sigtimedwait(&s, &si, &zero), EAGAIN);
}

TEST(signal_sigsuspend_restores_mask)
{
	sigset_t none, now;

	catch(SIGUSR1, 0);
	block(SIGUSR1);
	raise(SIGUSR1);
	sigemptyset(&none);
	CHECK_ERRNO(sigsuspend(&none), EINTR);
	CHECK(hits == 1);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
}

TEST(signal_stop_and_continue_are_reported)
{
	int st;
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	CHECK(kill(pid, SIGSTOP) == 0);
	CHECK(waitpid(pid, &st, WUNTRACED) == pid && WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(waitpid(pid, &st, WCONTINUED) == pid && WIFCONTINUED(st));
	CHECK(kill(pid, SIGTERM) == 0);
	CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);
}

TEST(signal_fd)
{
	struct signalfd_siginfo si;
	struct pollfd pfd;
	sigset_t s;

	block(SIGUSR2);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	pfd.fd = signalfd(-1, &s, SFD_NONBLOCK);
	pfd.events = POLLIN;
	CHECK(pfd.fd >= 0);
	CHECK_ERRNO(read(pfd.fd, &si, sizeof(si)), EAGAIN);
	CHECK(kill(getpid(), SIGUSR2) == 0);
	CHECK(poll(&pfd, 1, 1000) == 1);
	CHECK(read(pfd.fd, &si, sizeof(si)) == sizeof(si));
	CHECK(si.ssi_signo == SIGUSR2 && si.ssi_pid == (uint32_t)getpid());
}

TEST(signal_errors)
{
	struct sigaction sa = { .sa_handler = SIG_IGN };

	CHECK_ERRNO(sigaction(SIGKILL, &sa, NULL), EINVAL);
	CHECK_ERRNO(kill(getpid(), 65), EINVAL);
	CHECK_ERRNO(kill(0x3ffffff, 0), ESRCH);
	CHECK_ERRNO(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4), EINVAL);
}

TEST_MAIN
