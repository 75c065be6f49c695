// SPDX-License-Identifier: Apache-2.0
/* Processes and what belongs to them: registers, signals, timers, clocks, the tree, identity, System V IPC. */
#include <fcntl.h>
#include <grp.h>
#include <immintrin.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "tests/state/guest.h"

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* A child that runs @fn with @ev to wait on, then exits with its result. */
static pid_t spawn(int (*fn)(int ev), int *ret_ev)
{
	pid_t p;

	*ret_ev = eventfd(0, 0);
	NEED(*ret_ev >= 0);
	p = fork();
	NEED(p >= 0);
	if (p == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(fn(*ret_ev));
	}
	return p;
}

static void wait_event(int ev)
{
	uint64_t v;

	while (read(ev, &v, sizeof(v)) != sizeof(v))
		;
}

static void fire(int ev)
{
	uint64_t one = 1;

	(void)!write(ev, &one, sizeof(one));
}

static int exit_code(pid_t p)
{
	int st = -1;

	return waitpid(p, &st, 0) == p && WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

/* ---- registers and vector state of a thread that makes no call ---- */

static _Atomic int spin_on = 1;
static _Atomic uint64_t spin_rounds;
static _Atomic int spin_bad;
static pthread_t spinner;

static void *spin(void *arg)
{
	double a[2] = { 1.5, -2.25 }, b[2];
	uint64_t x = 0x0123456789abcdefULL;
	uint64_t y = x;

	(void)arg;
	while (spin_on) {
		__asm__ __volatile__("movupd %2, %%xmm7\n\t"
				     "mov %3, %%r12\n\t"
				     "mov $2000, %%rcx\n"
				     "1: dec %%rcx\n\t"
				     "jnz 1b\n\t"
				     "movupd %%xmm7, %0\n\t"
				     "mov %%r12, %1\n\t"
				     : "=m"(b), "=m"(y)
				     : "m"(a), "m"(x)
				     : "rcx", "r12", "xmm7", "cc");
		if (memcmp(a, b, sizeof(a)) || x != y)
			spin_bad++;
		spin_rounds++;
	}
	return NULL;
}

static void registers_setup(void)
{
	sigset_t all, old;

	sigfillset(&all); /* the signals of the other items are for the first thread */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	NEED(pthread_create(&spinner, NULL, spin, NULL) == 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	while (!spin_rounds)
		;
}

static void registers_check(void)
{
	uint64_t before = spin_rounds;

	for (int i = 0; i < 1000 && spin_rounds < before + 100; i++)
		usleep(1000);
	CHECK(spin_rounds >= before + 100);
	spin_on = 0;
	pthread_join(spinner, NULL);
	CHECK(spin_bad == 0);
}

static unsigned mxcsr_before;
static volatile double third;

static void rounding_setup(void)
{
	mxcsr_before = (_mm_getcsr() & ~0x6000u) | 0x4000; /* towards plus infinity */
	_mm_setcsr(mxcsr_before);
	third = 1.0;
	third /= 3.0;
}

static void rounding_check(void)
{
	volatile double again = 1.0;

	again /= 3.0;
	CHECK((_mm_getcsr() & 0x6000) == 0x4000 && again == third);
	_mm_setcsr(0x1f80);
}

/* ---- signals ---- */

static sigset_t three;
static volatile sig_atomic_t handled;
static char alt_stack[65536];

static void on_usr2(int sig)
{
	char here;

	(void)sig;
	handled = &here > alt_stack && &here < alt_stack + sizeof(alt_stack) ? 1 : -1;
}

static void signals_setup(void)
{
	stack_t st = { .ss_sp = alt_stack, .ss_size = sizeof(alt_stack) };
	struct sigaction sa = { .sa_handler = on_usr2, .sa_flags = SA_ONSTACK | SA_RESTART };

	sigemptyset(&three);
	sigaddset(&three, SIGUSR1);
	sigaddset(&three, SIGRTMIN + 1);
	NEED(sigprocmask(SIG_BLOCK, &three, NULL) == 0 && sigaltstack(&st, NULL) == 0);
	NEED(sigaction(SIGUSR2, &sa, NULL) == 0);
	for (int i = 0; i < 3; i++)
		NEED(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = 10 + i }) == 0);
	NEED(kill(getpid(), SIGUSR1) == 0);
	NEED(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1) == 0); /* the thread's own */
}

static void signals_check(void)
{
	struct timespec zero = { 0, 0 };
	siginfo_t si;
	stack_t st;
	sigset_t now;

	for (int i = 0; i < 2; i++)
		CHECK(sigtimedwait(&three, &si, &zero) == SIGUSR1 && si.si_pid == getpid());
	for (int i = 0; i < 3; i++) {
		CHECK(sigtimedwait(&three, &si, &zero) == SIGRTMIN + 1);
		CHECK(si.si_code == SI_QUEUE && si.si_value.sival_int == 10 + i);
	}
	CHECK(sigtimedwait(&three, &si, &zero) == -1 && errno == EAGAIN);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
	CHECK(sigaltstack(NULL, &st) == 0 && st.ss_sp == alt_stack);
	raise(SIGUSR2);
	CHECK(handled == 1);
}

/* ---- timers ---- */

static volatile sig_atomic_t alarms;
static timer_t periodic, passed, far_off, cpu;
static int64_t cpu_before;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void make_timer(clockid_t clock, int n, timer_t *ret)
{
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2,
			       .sigev_value.sival_int = n };

	NEED(timer_create(clock, &ev, ret) == 0);
}

static void timers_setup(void)
{
	struct itimerval itv = { .it_value.tv_sec = 1, .it_interval.tv_usec = 50000 };
	struct itimerspec its = { .it_value.tv_nsec = 50000000, .it_interval.tv_nsec = 50000000 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	NEED(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	signal(SIGALRM, on_alarm);
	NEED(setitimer(ITIMER_REAL, &itv, NULL) == 0);
	make_timer(CLOCK_MONOTONIC, 1, &periodic);
	NEED(timer_settime(periodic, 0, &its, NULL) == 0);
	make_timer(CLOCK_REALTIME, 2, &passed);
	make_timer(CLOCK_MONOTONIC, 3, &far_off);
	its = (struct itimerspec){ .it_value.tv_sec = 3600 };
	NEED(timer_settime(far_off, 0, &its, NULL) == 0);
	clock_gettime(CLOCK_REALTIME, &its.it_value);
	its.it_value.tv_sec += 1;
	NEED(timer_settime(passed, TIMER_ABSTIME, &its, NULL) == 0);
	make_timer(CLOCK_PROCESS_CPUTIME_ID, 4, &cpu);
	its = (struct itimerspec){ .it_value.tv_sec = 3600 };
	NEED(timer_settime(cpu, 0, &its, NULL) == 0);
	cpu_before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void timers_check(void)
{
	struct timespec second = { 2, 0 };
	struct itimerspec its;
	unsigned seen = 0;
	siginfo_t si;
	sigset_t set;
	int overrun = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	for (int64_t end = clock_ns(CLOCK_MONOTONIC) + 10000000000LL;
	     seen != 3 && clock_ns(CLOCK_MONOTONIC) < end;) {
		if (sigtimedwait(&set, &si, &second) != SIGRTMIN + 2)
			continue;
		seen |= si.si_value.sival_int == 1;
		seen |= (si.si_value.sival_int == 2) << 1;
		CHECK(si.si_value.sival_int == 1 || si.si_value.sival_int == 2);
		overrun += si.si_overrun;
	}
	CHECK(seen == 3);
	CHECK(overrun > 0); /* it was pending all the time of the setup */
	CHECK(timer_gettime(far_off, &its) == 0 && its.it_value.tv_sec > 3500);
	CHECK(timer_gettime(cpu, &its) == 0 && its.it_value.tv_sec > 3500);
	for (int i = 0; i < 300 && alarms < 3; i++)
		usleep(10000);
	CHECK(alarms >= 3);
	CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) >= cpu_before);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
}

/* ---- clocks ---- */

static int64_t mono_before, boot_before, real_before, thread_cpu_before;

static void clocks_setup(void)
{
	mono_before = clock_ns(CLOCK_MONOTONIC);
	boot_before = clock_ns(CLOCK_BOOTTIME);
	real_before = clock_ns(CLOCK_REALTIME);
	thread_cpu_before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* CLOCK_BOOTTIME goes with the real time, CLOCK_MONOTONIC not faster; by the vDSO and by calls alike. */
static void clocks_check(void)
{
	int64_t mono = clock_ns(CLOCK_MONOTONIC) - mono_before;
	int64_t boot = clock_ns(CLOCK_BOOTTIME) - boot_before;
	int64_t real = clock_ns(CLOCK_REALTIME) - real_before, called;
	struct timespec ts;

	CHECK(mono >= 0 && mono <= boot + 20000000);
	CHECK(boot - real < 100000000 && real - boot < 100000000);
	CHECK(syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &ts) == 0);
	called = ts.tv_sec * 1000000000LL + ts.tv_nsec - boot_before;
	CHECK(called >= boot && called - boot < 1000000000);
	CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) >= thread_cpu_before);
}

/* ---- the tree ---- */

static pid_t zombie, stopped, grandparent, self, group;
static int ev_grand, pipe_grand[2];

static int grand_child(int ev)
{
	pid_t me = getpid(), kid;
	int st;

	setpgid(0, 0);
	kid = fork();
	if (kid == 0) {
		for (;;)
			pause();
	}
	(void)!write(pipe_grand[1], &kid, sizeof(kid));
	wait_event(ev);
	kill(kid, SIGTERM);
	return getpid() == me && waitpid(kid, &st, 0) == kid && WTERMSIG(st) == SIGTERM ? 7 : 1;
}

static int for_ever(int ev)
{
	for (;;)
		wait_event(ev);
	return 0;
}

static pid_t kid;

static void tree_setup(void)
{
	int ev;
	siginfo_t si;

	self = getpid();
	group = getpgrp();
	NEED(pipe(pipe_grand) == 0);
	grandparent = spawn(grand_child, &ev_grand);
	NEED(read(pipe_grand[0], &kid, sizeof(kid)) == sizeof(kid));
	zombie = fork();
	if (zombie == 0)
		_exit(42);
	NEED(waitid(P_PID, (id_t)zombie, &si, WEXITED | WNOWAIT) == 0);
	stopped = spawn(for_ever, &ev);
	NEED(kill(stopped, SIGSTOP) == 0);
	NEED(waitid(P_PID, (id_t)stopped, &si, WSTOPPED | WNOWAIT) == 0);
}

static void tree_check(void)
{
	siginfo_t si = { 0 };
	int st;

	CHECK(getpid() == self && getpgrp() == group && getpgid(grandparent) == grandparent);
	CHECK(kill(kid, 0) == 0 && getpgid(kid) == grandparent);
	fire(ev_grand);
	CHECK(exit_code(grandparent) == 7);
	CHECK(exit_code(zombie) == 42);
	CHECK(waitid(P_PID, (id_t)stopped, &si, WSTOPPED | WNOHANG) == 0);
	CHECK(si.si_pid == stopped && si.si_code == CLD_STOPPED);
	CHECK(kill(stopped, SIGCONT) == 0);
	CHECK(waitid(P_PID, (id_t)stopped, &si, WCONTINUED) == 0 && si.si_code == CLD_CONTINUED);
	CHECK(kill(stopped, SIGKILL) == 0);
	CHECK(waitpid(stopped, &st, 0) == stopped && WIFSIGNALED(st));
}

/* ---- identity and attributes ---- */

static pid_t somebody, filtered, elsewhere;
static int ev_somebody, ev_filtered, ev_elsewhere;

static int be_somebody(int ev)
{
	struct rlimit rl = { 333, 444 };
	gid_t groups[] = { 7, 8, 9 }, now[8];
	char name[16] = "";

	if (setgroups(3, groups) || setresgid(12, 12, 12) || setrlimit(RLIMIT_NOFILE, &rl) ||
	    setpriority(PRIO_PROCESS, 0, 5) || setresuid(1234, 1234, 1234))
		return 100;
	prctl(PR_SET_NAME, "some body");
	umask(0137);
	wait_event(ev);
	if (getuid() != 1234 || getegid() != 12 || getgroups(8, now) != 3 || memcmp(groups, now, sizeof(groups)))
		return 1;
	prctl(PR_GET_NAME, name);
	if (strcmp(name, "some body") || umask(0) != 0137 || getpriority(PRIO_PROCESS, 0) != 5)
		return 2;
	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur != 333 || rl.rlim_max != 444)
		return 3;
	return setuid(0) == -1 ? 9 : 4;
}

static int be_filtered(int ev)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 100;
	wait_event(ev);
	errno = 0;
	if (syscall(SYS_getppid) != -1 || errno != 77)
		return 1;
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 9 : 2;
}

static int be_elsewhere(int ev)
{
	struct utsname u;
	pid_t p;

	if (unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) || sethostname("elsewhere", 9))
		return 100;
	p = fork();
	if (p == 0) {
		wait_event(ev);
		uname(&u);
		_exit(getpid() == 1 && !strcmp(u.nodename, "elsewhere") ? 9 : 1);
	}
	return exit_code(p);
}

static void identity_setup(void)
{
	somebody = spawn(be_somebody, &ev_somebody);
	filtered = spawn(be_filtered, &ev_filtered);
	elsewhere = spawn(be_elsewhere, &ev_elsewhere);
	usleep(200000); /* nothing depends on how far they are */
}

static void identity_check(void)
{
	fire(ev_somebody);
	fire(ev_filtered);
	fire(ev_elsewhere);
	CHECK(exit_code(somebody) == 9);
	CHECK(exit_code(filtered) == 9);
	CHECK(exit_code(elsewhere) == 9);
}

/* ---- System V IPC ---- */

static int sem_id, msg_id, shm_id;
static char *shm_at;
static pid_t undoer;
static int ev_undoer;

static int undo_child(int ev)
{
	struct sembuf op = { 1, 5, SEM_UNDO };

	if (semop(sem_id, &op, 1))
		return 1;
	wait_event(ev);
	return 9; /* which takes the five back */
}

static void sysv_setup(void)
{
	struct {
		long type;
		char text[8];
	} m = { 5, "five" };

	sem_id = semget(0x1234, 2, IPC_CREAT | 0600);
	msg_id = msgget(0x1235, IPC_CREAT | 0600);
	shm_id = shmget(0x1236, 100000, IPC_CREAT | 0600);
	NEED(sem_id >= 0 && msg_id >= 0 && shm_id >= 0);
	NEED(semctl(sem_id, 0, SETVAL, 17) == 0);
	undoer = spawn(undo_child, &ev_undoer);
	while (semctl(sem_id, 1, GETVAL) != 5)
		usleep(1000);
	NEED(msgsnd(msg_id, &m, 5, 0) == 0);
	m.type = 6;
	NEED(msgsnd(msg_id, &m, 5, 0) == 0);
	shm_at = shmat(shm_id, NULL, 0);
	NEED(shm_at != (char *)-1);
	strcpy(shm_at + 50000, "shared");
}

static void sysv_check(void)
{
	struct {
		long type;
		char text[8];
	} m;
	struct shmid_ds ds;
	char *again;

	CHECK(semget(0x1234, 2, 0) == sem_id && semctl(sem_id, 0, GETVAL) == 17);
	CHECK(semctl(sem_id, 1, GETVAL) == 5);
	fire(ev_undoer);
	CHECK(exit_code(undoer) == 9 && semctl(sem_id, 1, GETVAL) == 0);
	CHECK(msgget(0x1235, 0) == msg_id && msgrcv(msg_id, &m, 8, 6, IPC_NOWAIT) == 5 && m.type == 6);
	CHECK(msgrcv(msg_id, &m, 8, 0, IPC_NOWAIT) == 5 && m.type == 5 && !strcmp(m.text, "five"));
	CHECK(shmctl(shm_id, IPC_STAT, &ds) == 0 && ds.shm_nattch >= 1 && ds.shm_segsz == 100000);
	again = shmat(shmget(0x1236, 0, 0), NULL, 0);
	CHECK(again != (char *)-1 && !strcmp(again + 50000, "shared"));
	strcpy(again, "both");
	CHECK(!strcmp(shm_at, "both") && shmdt(again) == 0 && shmdt(shm_at) == 0);
	CHECK(semctl(sem_id, 0, IPC_RMID) == 0 && msgctl(msg_id, IPC_RMID, NULL) == 0 &&
	      shmctl(shm_id, IPC_RMID, NULL) == 0);
}

/* ---- a tracer and its tracee, which sleeps in a call ---- */

static pid_t tracer;
static int ev_tracer, tracer_pipe[2];

static int be_tracer(int ev)
{
	int inner = eventfd(0, 0), st;
	pid_t p = fork();

	if (p == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		wait_event(inner);
		_exit(5);
	}
	if (waitpid(p, &st, 0) != p || !WIFSTOPPED(st) || ptrace(PTRACE_CONT, p, NULL, NULL))
		return 1;
	(void)!write(tracer_pipe[1], "r", 1);
	wait_event(ev);
	if (kill(p, SIGWINCH) || waitpid(p, &st, 0) != p || !WIFSTOPPED(st) || WSTOPSIG(st) != SIGWINCH)
		return 2;
	fire(inner);
	if (ptrace(PTRACE_CONT, p, NULL, NULL))
		return 3;
	return exit_code(p) == 5 ? 9 : 4;
}

/* Tracees that are stopped: for a signal, and in front of a call. */
static pid_t keeper;
static int ev_keeper, keeper_pipe[2];

static pid_t stopped_tracee(void)
{
	pid_t p = fork();
	int st;

	if (p == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGWINCH);
		_exit(syscall(SYS_getppid) == 77 ? 6 : 7);
	}
	if (waitpid(p, &st, 0) != p || !WIFSTOPPED(st) || WSTOPSIG(st) != SIGWINCH)
		_exit(50);
	return p;
}

static int be_keeper(int ev)
{
	pid_t a = stopped_tracee(), b = stopped_tracee();
	struct user_regs_struct r;
	siginfo_t si;
	int st;

	do { /* up to the front of getppid */
		if (ptrace(PTRACE_SYSCALL, b, NULL, NULL) || waitpid(b, &st, 0) != b || !WIFSTOPPED(st) ||
		    ptrace(PTRACE_GETREGS, b, NULL, &r))
			return 51;
	} while (r.orig_rax != SYS_getppid);
	(void)!write(keeper_pipe[1], "r", 1);
	wait_event(ev);
	if (ptrace(PTRACE_GETSIGINFO, a, NULL, &si) || si.si_signo != SIGWINCH)
		return 1;
	if (ptrace(PTRACE_CONT, a, NULL, NULL) || exit_code(a) != 7)
		return 2;
	if (ptrace(PTRACE_GETREGS, b, NULL, &r) || r.orig_rax != SYS_getppid || r.rax != (unsigned long long)-ENOSYS)
		return 3;
	if (ptrace(PTRACE_SYSCALL, b, NULL, NULL) || waitpid(b, &st, 0) != b || !WIFSTOPPED(st) ||
	    ptrace(PTRACE_GETREGS, b, NULL, &r) || r.rax != (unsigned long long)getpid())
		return 4;
	r.rax = 77;
	if (ptrace(PTRACE_SETREGS, b, NULL, &r) || ptrace(PTRACE_CONT, b, NULL, NULL))
		return 5;
	return exit_code(b) == 6 ? 9 : 6;
}

static void stops_setup(void)
{
	char c;

	NEED(pipe(keeper_pipe) == 0);
	keeper = spawn(be_keeper, &ev_keeper);
	NEED(read(keeper_pipe[0], &c, 1) == 1);
}

static void stops_check(void)
{
	fire(ev_keeper);
	CHECK(exit_code(keeper) == 9);
}

static void tracing_setup(void)
{
	char c;

	NEED(pipe(tracer_pipe) == 0);
	tracer = spawn(be_tracer, &ev_tracer);
	NEED(read(tracer_pipe[0], &c, 1) == 1);
	usleep(100000);
}

static void tracing_check(void)
{
	fire(ev_tracer);
	CHECK(exit_code(tracer) == 9);
}

/* ---- robust mutexes of a process that dies afterwards ---- */

static pthread_mutex_t *robust;
static pid_t holder;
static int ev_holder;

static int hold(int ev)
{
	pthread_mutex_lock(robust);
	wait_event(ev);
	return 9;
}

static void robust_setup(void)
{
	pthread_mutexattr_t a;

	robust = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(robust != MAP_FAILED);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	NEED(pthread_mutex_init(robust, &a) == 0);
	holder = spawn(hold, &ev_holder);
	while (pthread_mutex_trylock(robust) == 0) {
		pthread_mutex_unlock(robust);
		usleep(1000);
	}
}

static void robust_check(void)
{
	fire(ev_holder);
	CHECK(exit_code(holder) == 9);
	CHECK(pthread_mutex_lock(robust) == EOWNERDEAD);
}

/* ---- the generation: who polls learns of a restore, and of nothing else ---- */

static int gen_fd, gen_ep;
static long gen_before;

static long generation(void)
{
	char buf[32] = "";

	return pread(gen_fd, buf, sizeof(buf) - 1, 0) > 0 ? atol(buf) : -1;
}

static void generation_setup(void)
{
	struct epoll_event ev = { .events = EPOLLPRI };

	gen_fd = open("/proc/holdfast/generation", O_RDONLY);
	if (gen_fd < 0) /* not in a sandbox */
		return;
	gen_before = generation();
	gen_ep = epoll_create1(0);
	NEED(gen_before > 0 && epoll_ctl(gen_ep, EPOLL_CTL_ADD, gen_fd, &ev) == 0);
	NEED(epoll_wait(gen_ep, &ev, 1, 0) == 0);
}

static void generation_check(void)
{
	struct pollfd p = { gen_fd, POLLPRI, 0 };
	struct epoll_event ev;
	int told, told_ep;
	long now;

	if (gen_fd < 0)
		return;
	told = poll(&p, 1, 0);
	told_ep = epoll_wait(gen_ep, &ev, 1, 0);
	now = generation();
	CHECK(now >= gen_before);
	CHECK(told == (now != gen_before) && told_ep == told);
	CHECK(poll(&p, 1, 0) == 0 && epoll_wait(gen_ep, &ev, 1, 0) == 0);
}

int main(int argc, char **argv)
{
	static const struct item items[] = {
		ITEM(registers), ITEM(rounding), ITEM(clocks),	 ITEM(signals), ITEM(timers),
		ITEM(tree),	 ITEM(identity), ITEM(sysv),	 ITEM(tracing), ITEM(robust), ITEM(stops),
		ITEM(generation),
	};

	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
