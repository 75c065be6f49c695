// SPDX-License-Identifier: Apache-2.0
/*
 * The kept image: processes that are stopped, traced, filtered or in namespaces of their own, files of proc, netlink.
 * See kept_guest.c.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "tests/state/kept.h"

#define ENDED(status, with) ((status) == (with) << 8)

static int ends_with(long pid)
{
	int status = -1;

	return sys4(SYS_wait4, pid, &status, __WALL, 0) == pid ? status : -1;
}

/* ---- children that job control has stopped in calls with a timeout; a traced one; a filtered one ---- */

static long poller, sleeper, tracee, filtered;

static void wait_in_poll(void)
{
	sys1(SYS_exit_group, sys3(SYS_poll, 0, 0, 700) == 0 ? 11 : 1);
}

static void wait_in_timed_futex(void)
{
	struct timespec ts = { 0, 700000000 };

	sys1(SYS_exit_group,
	     sys4(SYS_futex, &shared[9], FUTEX_WAIT, 0, &ts) == -110 /* ETIMEDOUT */ ? 12
										     : 1);
}

static void be_traced(void)
{
	sys4(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
	sys2(SYS_kill, sys0(SYS_getpid), SIGUSR1);
	sys1(SYS_exit_group, 13);
}

static void be_filtered(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 42),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 4, code };

	sys5(SYS_prctl, 38 /* PR_SET_NO_NEW_PRIVS */, 1, 0, 0, 0);
	sys3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
	shared[3] = 1;
	while (!shared[0])
		nap(20);
	sys1(SYS_exit_group, sys0(SYS_getppid) == -42 ? 14 : 1);
}

static long child_that(void (*does)(void))
{
	long pid = sys0(SYS_fork);

	if (pid == 0)
		does();
	return pid;
}

void stopped_setup(void)
{
	struct itimerval far = { .it_value = { 1000000, 0 } };

	poller = child_that(wait_in_poll);
	sleeper = child_that(wait_in_timed_futex);
	nap(50); /* they are in their calls */
	sys2(SYS_kill, poller, SIGSTOP);
	sys2(SYS_kill, sleeper, SIGSTOP);
	tracee = child_that(be_traced);
	sys4(SYS_wait4, tracee, 0, 0, 0);
	filtered = child_that(be_filtered);
	while (!shared[3])
		nap(5);
	sys3(SYS_setitimer, ITIMER_REAL, &far, 0);
}

/* Context: shared[0] is set. */
void stopped_check(void)
{
	struct itimerval left = { 0 };
	struct user_regs_struct regs = { 0 };

	CHECK(sys2(SYS_kill, poller, SIGCONT) == 0 &&
	      sys2(SYS_kill, sleeper, SIGCONT) == 0);
	CHECK(ENDED(ends_with(poller), 11));
	CHECK(ENDED(ends_with(sleeper), 12));
	CHECK(sys4(SYS_ptrace, PTRACE_GETREGS, tracee, 0, &regs) == 0 &&
	      regs.orig_rax == SYS_kill);
	CHECK(sys4(SYS_ptrace, PTRACE_CONT, tracee, 0, 0) == 0 &&
	      ENDED(ends_with(tracee), 13));
	CHECK(ENDED(ends_with(filtered), 14));
	CHECK(sys2(SYS_getitimer, ITIMER_REAL, &left) == 0 &&
	      left.it_value.tv_sec > 900000);
}

/* ---- a thread with storage of its own, in a futex ---- */

#define TLS_VALUE 0x7151a77c0ffee000
static char thread_stack[16384] __attribute__((aligned(16)));
static uint64_t thread_storage[2];
static volatile int thread_goes, thread_saw, thread_tid;

__attribute__((used)) static void thread(void)
{
	uint64_t v = 0;

	while (!thread_goes)
		sys4(SYS_futex, &thread_goes, FUTEX_WAIT_PRIVATE, 0, 0);
	__asm__ volatile("mov %%fs:8, %0" : "=r"(v));
	thread_saw = v == TLS_VALUE && sys0(SYS_gettid) == thread_tid ? 1 : 2;
	sys1(SYS_exit, 0);
}

static long start_thread(long flags)
{
	register void *child_tid __asm__("r10") = (void *)&thread_tid;
	register void *tls __asm__("r8") = thread_storage;
	long tid;

	__asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\tcall thread\n1:"
			 : "=a"(tid)
			 : "a"(SYS_clone), "D"(flags), "S"(thread_stack + sizeof(thread_stack)),
			   "d"(&thread_tid), "r"(child_tid), "r"(tls)
			 : "rcx", "r11", "memory");
	return tid;
}

/* It leaves signals to the first thread. */
void thread_setup(void)
{
	uint64_t all = ~0ULL, was = 0;

	sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &was, 8);
	thread_storage[1] = TLS_VALUE;
	CHECK(start_thread(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			   CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
			   CLONE_CHILD_CLEARTID) > 0);
	sys4(SYS_rt_sigprocmask, SIG_SETMASK, &was, 0, 8);
}

void thread_check(void)
{
	struct timespec ts = { 10, 0 };
	int tid = thread_tid;

	CHECK(tid > 0 && !thread_saw);
	thread_goes = 1;
	sys3(SYS_futex, &thread_goes, FUTEX_WAKE_PRIVATE, 1);
	while (thread_tid && sys4(SYS_futex, &thread_tid, FUTEX_WAIT, tid, &ts) != -110 /* ETIMEDOUT */)
		;
	CHECK(thread_tid == 0 && thread_saw == 1);
}

/* ---- namespaces: open ones, and children in new ones ---- */

static const char *const names[] = { "/proc/self/ns/mnt", "/proc/self/ns/ipc",
				     "/proc/self/ns/pid", "/proc/self/ns/user",
				     "/proc/self/ns/net", "/proc/self/ns/cgroup" };
static int ns[6], cgroup_ns, pidfd;
static ino_t ns_ino[6], cgroup_ino;
static long in_user, in_cgroup;

static ino_t ino_of(int fd)
{
	struct stat st = { 0 };

	return sys2(SYS_fstat, fd, &st) == 0 ? st.st_ino : 0;
}

static void in_new_user(void)
{
	sys1(SYS_unshare, CLONE_NEWUSER);
	make("/proc/self/uid_map", "7 0 1\n");
	make("/proc/self/setgroups", "deny");
	make("/proc/self/gid_map", "8 0 1\n");
	shared[4] = 1;
	while (!shared[0])
		nap(20);
	sys1(SYS_exit_group, sys0(SYS_getuid) == 7 && sys0(SYS_getgid) == 8 ? 15 : 1);
}

static void in_new_cgroup(void)
{
	sys1(SYS_unshare, CLONE_NEWCGROUP);
	cgroup_ns = (int)sys2(SYS_open, "/proc/self/ns/cgroup", O_RDONLY);
	cgroup_ino = ino_of(cgroup_ns);
	shared[5] = 1;
	while (!shared[0])
		nap(20);
	sys1(SYS_exit_group, cgroup_ino && ino_of(cgroup_ns) == cgroup_ino ? 16 : 1);
}

void nested_setup(void)
{
	for (int i = 0; i < 6; i++) {
		ns[i] = (int)sys2(SYS_open, names[i], O_RDONLY);
		ns_ino[i] = ino_of(ns[i]);
	}
	in_user = child_that(in_new_user);
	in_cgroup = child_that(in_new_cgroup);
	while (!shared[4] || !shared[5])
		nap(5);
	pidfd = (int)sys2(SYS_pidfd_open, in_user, 0);
}

/* Context: shared[0] is set. */
void nested_check(void)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	for (int i = 0; i < 6; i++) {
		int fd = (int)sys2(SYS_open, names[i], O_RDONLY);

		CHECK(ns_ino[i] && ino_of(ns[i]) == ns_ino[i] && ino_of(fd) == ns_ino[i]);
		sys1(SYS_close, fd);
	}
	CHECK(sys3(SYS_poll, &p, 1, 10000) == 1 && p.revents == POLLIN);
	CHECK(ENDED(ends_with(in_user), 15) && ENDED(ends_with(in_cgroup), 16));
}

/* ---- files of proc that are half read, memory of a process, the kernel's log, signalfd ---- */

static int comm, mounts, mem, kmsg, generation, snapshot, signals;
static volatile int word = 77;

void proc_setup(void)
{
	uint64_t mask = 1ULL << (SIGHUP - 1);
	char buf[32];

	comm = (int)sys2(SYS_open, "/proc/self/comm", O_RDONLY);
	mounts = (int)sys2(SYS_open, "/proc/self/mounts", O_RDONLY);
	mem = (int)sys2(SYS_open, "/proc/self/mem", O_RDWR);
	generation = (int)sys2(SYS_open, "/proc/holdfast/generation", O_RDONLY);
	snapshot = (int)sys2(SYS_open, "/proc/holdfast/snapshot", O_WRONLY);
	sys3(SYS_read, comm, buf, 2);
	sys3(SYS_read, mounts, buf, 5);
	sys3(SYS_read, generation, buf, sizeof(buf));
	sys3(SYS_mknod, "/run/kmsg", S_IFCHR | 0600, makedev(1, 11));
	kmsg = (int)sys2(SYS_open, "/run/kmsg", O_RDWR | O_NONBLOCK);
	sys3(SYS_lseek, kmsg, 0, SEEK_END);
	sys3(SYS_write, kmsg, "<12>a line", 10);
	sys4(SYS_rt_sigprocmask, SIG_BLOCK, &mask, 0, 8);
	signals = (int)sys4(SYS_signalfd4, -1, &mask, 8, O_NONBLOCK);
	sys2(SYS_kill, sys0(SYS_getpid), SIGHUP);
}

static bool contains(const char *buf, long n, const char *text)
{
	for (long i = 0; i + (long)length(text) <= n; i++)
		if (same(buf + i, text, length(text)))
			return true;
	return false;
}

void proc_check(void)
{
	struct pollfd p = { .fd = generation, .events = POLLPRI };
	static char buf[16384];
	uint32_t info[32] = { 0 };
	int v = 0;

	CHECK(sys3(SYS_read, comm, buf, sizeof(buf)) == 3 && same(buf, "pt\n", 3));
	CHECK(contains(buf, sys3(SYS_read, mounts, buf, sizeof(buf)), " /mnt tmpfs "));
	CHECK(sys4(SYS_pread64, mem, &v, sizeof(v), &word) == sizeof(v) && v == 77);
	CHECK(sys3(SYS_poll, &p, 1, 10000) == 1 && (p.revents & POLLPRI));
	CHECK(sys3(SYS_fcntl, snapshot, F_GETFL, 0) ==
	      (O_WRONLY | 0100000 /* O_LARGEFILE */));
	CHECK(contains(buf, sys3(SYS_read, kmsg, buf, sizeof(buf)), ";a line\n"));
	CHECK(sys3(SYS_read, signals, info, sizeof(info)) == 128 && info[0] == SIGHUP);
}

/* ---- netlink: an answer that nobody has read ---- */

static int netlink;

void netlink_setup(void)
{
	struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} q = { .h = { .nlmsg_len = sizeof(q),
		       .nlmsg_type = RTM_GETLINK,
		       .nlmsg_seq = 77,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };

	netlink = (int)sys3(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	sys6(SYS_sendto, netlink, &q, sizeof(q), 0, 0, 0);
}

void netlink_check(void)
{
	union {
		struct nlmsghdr h;
		char room[8192];
	} a = { 0 };

	CHECK(sys6(SYS_recvfrom, netlink, &a, sizeof(a), MSG_DONTWAIT, 0, 0) >
	      (long)sizeof(a.h));
	CHECK(a.h.nlmsg_seq == 77 && a.h.nlmsg_type == RTM_NEWLINK);
}
