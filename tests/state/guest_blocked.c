// SPDX-License-Identifier: Apache-2.0
/*
 * A thread in each call that can sleep. After the restore each is woken and must report what it would have
 * without one: no EINTR, nothing twice, timeouts counted from when the call was made (on CLOCK_MONOTONIC the
 * time as an image doesn't count).
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/state/guest.h"

#define TIMEOUT_MS 3000 /* of calls that time out: longer than setting up, saving and restoring */
#define LATE_MS 3000    /* slack for a busy machine */

static int64_t clock_ms(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t now_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC);
}

struct call {
	const char *name;
	long (*fn)(void);
	void (*wake)(void); /* NULL: it times out by itself */
	long want;
	int want_errno;
	clockid_t clock; /* that the timeout is measured on */
};

/* Made by a thread of its own: what it returned, when. */
struct made {
	const struct call *c;
	pthread_t thread;
	_Atomic pid_t tid;
	long ret;
	int err;
	int64_t took_ms;
	_Atomic bool done;
};

static void *call_main(void *arg)
{
	struct made *m = arg;
	int64_t start = clock_ms(m->c->clock);

	m->tid = (pid_t)syscall(SYS_gettid);
	errno = 0;
	m->ret = m->c->fn();
	m->err = errno;
	m->took_ms = clock_ms(m->c->clock) - start;
	m->done = true;
	return NULL;
}

/* ---- what they sleep on ---- */

static int ep_fd, evt[32], n_evt, pipe_r[2], pipe_w[2], pair_r[2], pair_t[2], listener, backlog_fd;
static int lock_fd, lock2_fd, sem_id, msg_id, msgfull_id, tfd, sfd, ino, splice_p[2], waitall[2], tee_a[2], tee_b[2], ptm, pts;
static mqd_t mq_r, mq_w;
static pid_t child, vfork_child;
static uint32_t futex_a, futex_b, futex_c;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, cond_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool cond_set;
static int pipe_b[2], pair_b[2];
static char big[1 << 16], huge[1 << 20];

static int new_event(void)
{
	return evt[n_evt++] = eventfd(0, 0);
}

static void fire(int fd)
{
	uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one));
}

/* ---- calls that end with a timeout ---- */

static long t_epoll(void)
{
	struct epoll_event ev;

	return epoll_wait(epoll_create1(0), &ev, 1, TIMEOUT_MS);
}

static long t_epoll_pwait(void)
{
	struct epoll_event ev;
	sigset_t set;

	sigfillset(&set);
	return epoll_pwait(epoll_create1(0), &ev, 1, TIMEOUT_MS, &set);
}

static long t_poll(void)
{
	return poll(NULL, 0, TIMEOUT_MS);
}

static long t_ppoll(void)
{
	struct timespec ts = { TIMEOUT_MS / 1000, 0 };
	sigset_t set;

	sigfillset(&set);
	return ppoll(NULL, 0, &ts, &set);
}

static long t_select(void)
{
	struct timeval tv = { TIMEOUT_MS / 1000, 0 };

	return select(0, NULL, NULL, NULL, &tv);
}

static long t_nanosleep(void)
{
	struct timespec ts = { TIMEOUT_MS / 1000, 0 };

	return nanosleep(&ts, NULL);
}

static long t_clock_abs(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_sec += TIMEOUT_MS / 1000;
	return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static long t_futex(void)
{
	struct timespec ts = { TIMEOUT_MS / 1000, 0 };

	return syscall(SYS_futex, &futex_a, FUTEX_WAIT, 0, &ts, NULL, 0);
}

static long t_semop(void)
{
	struct timespec ts = { TIMEOUT_MS / 1000, 0 };
	struct sembuf op = { 1, -1, 0 };

	return semtimedop(sem_id, &op, 1, &ts);
}

static long t_sigwait(void)
{
	struct timespec ts = { TIMEOUT_MS / 1000, 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 5);
	return sigtimedwait(&set, NULL, &ts);
}

static long t_recv(void)
{
	struct timeval tv = { TIMEOUT_MS / 1000, 0 };
	char c;

	setsockopt(pair_t[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return recv(pair_t[0], &c, 1, 0);
}

static long t_mq(void)
{
	struct timespec ts;
	char buf[64];

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += TIMEOUT_MS / 1000;
	return mq_timedreceive(mq_r, buf, sizeof(buf), NULL, &ts);
}

/* ---- calls that somebody ends ---- */

static long c_epoll(void)
{
	struct epoll_event ev;

	return epoll_wait(ep_fd, &ev, 1, -1);
}

static void w_epoll(void)
{
	fire(evt[0]);
}

static long c_poll(void)
{
	struct pollfd p = { evt[1], POLLIN, 0 };

	return poll(&p, 1, -1);
}

static void w_poll(void)
{
	fire(evt[1]);
}

static long c_pselect(void)
{
	fd_set r;

	FD_ZERO(&r);
	FD_SET(evt[2], &r);
	return pselect(evt[2] + 1, &r, NULL, NULL, NULL, NULL);
}

static void w_pselect(void)
{
	fire(evt[2]);
}

static long c_eventfd(void)
{
	uint64_t v;

	return read(evt[3], &v, sizeof(v));
}

static void w_eventfd(void)
{
	fire(evt[3]);
}

static long c_futex(void)
{
	return syscall(SYS_futex, &futex_b, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

/* Woken with the word unchanged: only a waiter that is queued gets that. */
static void w_futex(void)
{
	while (syscall(SYS_futex, &futex_b, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0)
		usleep(1000);
}

static long c_futex_bitset(void)
{
	return syscall(SYS_futex, &futex_c, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 4);
}

static void w_futex_bitset(void)
{
	while (syscall(SYS_futex, &futex_c, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 4) == 0)
		usleep(1000);
}

static long c_mutex(void)
{
	return pthread_mutex_lock(&mutex);
}

static void w_mutex(void)
{
	pthread_mutex_unlock(&mutex);
}

static long c_cond(void)
{
	long r = 0;

	pthread_mutex_lock(&cond_mutex);
	while (!cond_set && !r)
		r = pthread_cond_wait(&cond, &cond_mutex);
	pthread_mutex_unlock(&cond_mutex);
	return r;
}

static void w_cond(void)
{
	pthread_mutex_lock(&cond_mutex);
	cond_set = true;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&cond_mutex);
}

static long c_semop(void)
{
	struct sembuf op = { 0, -2, 0 };

	return semop(sem_id, &op, 1);
}

static void w_semop(void)
{
	struct sembuf op = { 0, 2, 0 };

	CHECK(semop(sem_id, &op, 1) == 0);
}

static long c_msgrcv(void)
{
	struct {
		long type;
		char text[16];
	} m;

	return msgrcv(msg_id, &m, sizeof(m.text), 7, 0);
}

static void w_msgrcv(void)
{
	struct {
		long type;
		char text[16];
	} m = { 7, "hello" };

	CHECK(msgsnd(msg_id, &m, 5, 0) == 0);
}

static long c_msgsnd(void)
{
	struct {
		long type;
		char text[4096];
	} m = { .type = 1 };

	return msgsnd(msgfull_id, &m, sizeof(m.text), 0);
}

static void w_msgsnd(void)
{
	struct {
		long type;
		char text[4096];
	} m;

	CHECK(msgrcv(msgfull_id, &m, sizeof(m.text), 0, 0) == 4096);
}

static long c_sigwait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 6);
	return sigwaitinfo(&set, NULL);
}

static void w_sigwait(void)
{
	kill(getpid(), SIGRTMIN + 6);
}

static long c_pipe_read(void)
{
	char buf[8];

	return read(pipe_r[0], buf, sizeof(buf));
}

static void w_pipe_read(void)
{
	CHECK(write(pipe_r[1], "abc", 3) == 3);
}

static long c_pipe_write(void)
{
	return write(pipe_w[1], "xyz", 3);
}

static void w_pipe_write(void)
{
	CHECK(read(pipe_w[0], big, sizeof(big)) > 0);
}

static long c_recv(void)
{
	char buf[8];

	return recv(pair_r[0], buf, sizeof(buf), 0);
}

static void w_recv(void)
{
	CHECK(send(pair_r[1], "four", 4, 0) == 4);
}

static long c_accept(void)
{
	return accept(listener, NULL, NULL) >= 0;
}

static void unix_addr(struct sockaddr_un *a, const char *name)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path, sizeof(a->sun_path), DIR_STATE "/%s", name);
}

static void w_accept(void)
{
	struct sockaddr_un a;

	unix_addr(&a, "listen");
	CHECK(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof(a)) == 0);
}

static long c_connect(void)
{
	struct sockaddr_un a;

	unix_addr(&a, "backlog");
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof(a));
}

static void w_connect(void)
{
	CHECK(accept(backlog_fd, NULL, NULL) >= 0);
}

static long c_flock(void)
{
	int fd = open(DIR_STATE "/flock", O_RDWR);

	return flock(fd, LOCK_EX);
}

static void w_flock(void)
{
	CHECK(flock(lock_fd, LOCK_UN) == 0);
}

/* Open file description locks, as POSIX locks of one process don't exclude each other. */
static long c_setlkw(void)
{
	struct flock fl = { .l_type = F_WRLCK };
	int fd = open(DIR_STATE "/ofd", O_RDWR);

	return fcntl(fd, F_OFD_SETLKW, &fl);
}

static void w_setlkw(void)
{
	struct flock fl = { .l_type = F_UNLCK };

	CHECK(fcntl(lock2_fd, F_OFD_SETLK, &fl) == 0);
}

static long c_wait4(void)
{
	int st;
	pid_t p = wait4(child, &st, 0, NULL);

	return p == child && WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL;
}

static void w_wait4(void)
{
	kill(child, SIGKILL);
}

static long c_mq_send(void)
{
	return mq_send(mq_w, "two", 3, 0);
}

static void w_mq_send(void)
{
	char buf[64];

	CHECK(mq_receive(mq_w, buf, sizeof(buf), NULL) == 3);
}

static long c_timerfd(void)
{
	uint64_t v;

	return read(tfd, &v, sizeof(v));
}

static void w_timerfd(void)
{
	struct itimerspec its = { .it_value.tv_nsec = 1000000 };

	CHECK(timerfd_settime(tfd, 0, &its, NULL) == 0);
}

static long c_signalfd(void)
{
	struct signalfd_siginfo si;

	return read(sfd, &si, sizeof(si)) == sizeof(si) ? (long)si.ssi_signo : -1;
}

static void w_signalfd(void)
{
	kill(getpid(), SIGRTMIN + 7);
}

static long c_inotify(void)
{
	char buf[4096];

	return read(ino, buf, sizeof(buf)) > 0;
}

static void w_inotify(void)
{
	CHECK(creat(DIR_STATE "/watched/x", 0600) >= 0);
}

/* Half of it is there before the sandbox is saved. */
static long c_waitall(void)
{
	char buf[8] = "";
	ssize_t n = recv(waitall[0], buf, 6, MSG_WAITALL);

	return n == 6 && !strcmp(buf, "abcdef") ? n : -n;
}

static void w_waitall(void)
{
	CHECK(write(waitall[1], "def", 3) == 3);
}

static long c_splice(void)
{
	return splice(splice_p[0], NULL, open("/dev/null", O_WRONLY), NULL, 4096, 0);
}

static void w_splice(void)
{
	CHECK(write(splice_p[1], "12345", 5) == 5);
}

static long c_tee(void)
{
	return tee(tee_a[0], tee_b[1], 4096, 0);
}

static void w_tee(void)
{
	CHECK(write(tee_a[1], "123456", 6) == 6);
}

static long c_tty(void)
{
	char buf[64];

	return read(pts, buf, sizeof(buf));
}

static void w_tty(void)
{
	CHECK(write(ptm, "line\n", 5) == 5);
}

static long c_fifo(void)
{
	return open(DIR_STATE "/fifo2", O_RDONLY) >= 0;
}

static void w_fifo(void)
{
	CHECK(open(DIR_STATE "/fifo2", O_WRONLY) >= 0);
}

/* More than fits: the freeze comes in the middle, and must not cut it short. */
static long c_big_write(void)
{
	return write(pipe_b[1], huge, sizeof(huge));
}

static void drain(int fd)
{
	size_t got = 0;
	bool same = true;

	while (got < sizeof(huge)) {
		ssize_t n = read(fd, big, sizeof(big));

		if (n <= 0)
			break;
		same = same && memcmp(big, huge + got, (size_t)n) == 0;
		got += (size_t)n;
	}
	CHECK(got == sizeof(huge) && same);
}

static void w_big_write(void)
{
	drain(pipe_b[0]);
}

static long c_big_send(void)
{
	return send(pair_b[0], huge, sizeof(huge), 0);
}

static void w_big_send(void)
{
	drain(pair_b[1]);
}

/* The child of the vfork waits for an event; the parent's thread is in an uninterruptible sleep. */
static long c_vfork(void)
{
	uint64_t v;
	pid_t p = vfork();

	if (p == 0) {
		vfork_child = getpid();
		(void)!read(evt[4], &v, sizeof(v));
		_exit(3);
	}
	int st = 0;

	return p > 0 && waitpid(p, &st, 0) == p && WEXITSTATUS(st) == 3;
}

static void w_vfork(void)
{
	fire(evt[4]);
}

static const struct call calls[] = {
	{ "epoll_wait timeout", t_epoll, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "epoll_pwait timeout", t_epoll_pwait, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "poll timeout", t_poll, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "ppoll timeout", t_ppoll, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "select timeout", t_select, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "nanosleep", t_nanosleep, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "clock_nanosleep absolute", t_clock_abs, NULL, 0, 0, CLOCK_MONOTONIC },
	{ "futex timeout", t_futex, NULL, -1, ETIMEDOUT, CLOCK_MONOTONIC },
	{ "semtimedop timeout", t_semop, NULL, -1, EAGAIN, CLOCK_MONOTONIC },
	{ "sigtimedwait timeout", t_sigwait, NULL, -1, EAGAIN, CLOCK_MONOTONIC },
	{ "recv timeout", t_recv, NULL, -1, EAGAIN, CLOCK_MONOTONIC },
	{ "mq_timedreceive timeout", t_mq, NULL, -1, ETIMEDOUT, CLOCK_REALTIME },
	{ "epoll_wait", c_epoll, w_epoll, 1, 0, CLOCK_MONOTONIC },
	{ "poll", c_poll, w_poll, 1, 0, CLOCK_MONOTONIC },
	{ "pselect", c_pselect, w_pselect, 1, 0, CLOCK_MONOTONIC },
	{ "eventfd read", c_eventfd, w_eventfd, 8, 0, CLOCK_MONOTONIC },
	{ "futex", c_futex, w_futex, 0, 0, CLOCK_MONOTONIC },
	{ "futex bitset", c_futex_bitset, w_futex_bitset, 0, 0, CLOCK_MONOTONIC },
	{ "pthread_mutex_lock", c_mutex, w_mutex, 0, 0, CLOCK_MONOTONIC },
	{ "pthread_cond_wait", c_cond, w_cond, 0, 0, CLOCK_MONOTONIC },
	{ "semop", c_semop, w_semop, 0, 0, CLOCK_MONOTONIC },
	{ "msgrcv", c_msgrcv, w_msgrcv, 5, 0, CLOCK_MONOTONIC },
	{ "msgsnd", c_msgsnd, w_msgsnd, 0, 0, CLOCK_MONOTONIC },
	{ "sigwaitinfo", c_sigwait, w_sigwait, 40, 0, CLOCK_MONOTONIC },
	{ "pipe read", c_pipe_read, w_pipe_read, 3, 0, CLOCK_MONOTONIC },
	{ "big write", c_big_write, w_big_write, sizeof(huge), 0, CLOCK_MONOTONIC },
	{ "big send", c_big_send, w_big_send, sizeof(huge), 0, CLOCK_MONOTONIC },
	{ "pipe write", c_pipe_write, w_pipe_write, 3, 0, CLOCK_MONOTONIC },
	{ "recv", c_recv, w_recv, 4, 0, CLOCK_MONOTONIC },
	{ "accept", c_accept, w_accept, 1, 0, CLOCK_MONOTONIC },
	{ "connect", c_connect, w_connect, 0, 0, CLOCK_MONOTONIC },
	{ "flock", c_flock, w_flock, 0, 0, CLOCK_MONOTONIC },
	{ "fcntl lock", c_setlkw, w_setlkw, 0, 0, CLOCK_MONOTONIC },
	{ "wait4", c_wait4, w_wait4, 1, 0, CLOCK_MONOTONIC },
	{ "mq_send", c_mq_send, w_mq_send, 0, 0, CLOCK_MONOTONIC },
	{ "timerfd read", c_timerfd, w_timerfd, 8, 0, CLOCK_MONOTONIC },
	{ "signalfd read", c_signalfd, w_signalfd, 41, 0, CLOCK_MONOTONIC },
	{ "inotify read", c_inotify, w_inotify, 1, 0, CLOCK_MONOTONIC },
	{ "recv all", c_waitall, w_waitall, 6, 0, CLOCK_MONOTONIC },
	{ "splice", c_splice, w_splice, 5, 0, CLOCK_MONOTONIC },
	{ "tee", c_tee, w_tee, 6, 0, CLOCK_MONOTONIC },
	{ "tty read", c_tty, w_tty, 5, 0, CLOCK_MONOTONIC },
	{ "fifo open", c_fifo, w_fifo, 1, 0, CLOCK_MONOTONIC },
	{ "vfork", c_vfork, w_vfork, 1, 0, CLOCK_MONOTONIC },
};
#define NCALLS (sizeof(calls) / sizeof(calls[0]))
static struct made made[NCALLS];

/* ---- setup ---- */

static int unix_listener(const char *name, int backlog)
{
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un a;

	unix_addr(&a, name);
	unlink(a.sun_path);
	NEED(bind(s, (void *)&a, sizeof(a)) == 0 && listen(s, backlog) == 0);
	return s;
}

static void files_setup(void)
{
	struct flock fl = { .l_type = F_WRLCK };

	lock_fd = open(DIR_STATE "/flock", O_RDWR | O_CREAT, 0600);
	lock2_fd = open(DIR_STATE "/ofd", O_RDWR | O_CREAT, 0600);
	NEED(flock(lock_fd, LOCK_EX) == 0 && fcntl(lock2_fd, F_OFD_SETLK, &fl) == 0);
	mkdir(DIR_STATE "/watched", 0700);
	ino = inotify_init();
	NEED(inotify_add_watch(ino, DIR_STATE "/watched", IN_CREATE) > 0);
	unlink(DIR_STATE "/watched/x");
	unlink(DIR_STATE "/fifo2");
	NEED(mkfifo(DIR_STATE "/fifo2", 0600) == 0);
	ptm = posix_openpt(O_RDWR | O_NOCTTY);
	NEED(ptm >= 0 && grantpt(ptm) == 0 && unlockpt(ptm) == 0);
	pts = open(ptsname(ptm), O_RDWR | O_NOCTTY);
	NEED(pts >= 0);
}

static void ipc_setup(void)
{
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 64 };
	struct {
		long type;
		char text[4096];
	} m = { .type = 1 };

	sem_id = semget(IPC_PRIVATE, 2, 0600);
	msg_id = msgget(IPC_PRIVATE, 0600);
	msgfull_id = msgget(IPC_PRIVATE, 0600);
	NEED(sem_id >= 0 && msg_id >= 0 && msgfull_id >= 0);
	while (msgsnd(msgfull_id, &m, sizeof(m.text), IPC_NOWAIT) == 0)
		;
	mq_unlink("/state-r");
	mq_unlink("/state-w");
	mq_r = mq_open("/state-r", O_RDWR | O_CREAT, 0600, &attr);
	mq_w = mq_open("/state-w", O_RDWR | O_CREAT, 0600, &attr);
	NEED(mq_r >= 0 && mq_w >= 0 && mq_send(mq_w, "one", 3, 0) == 0);
}

static void sockets_setup(void)
{
	struct sockaddr_un a;

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair_r) == 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair_t) == 0);
	listener = unix_listener("listen", 5);
	backlog_fd = unix_listener("backlog", 0);
	unix_addr(&a, "backlog"); /* one fits beyond the backlog of none */
	NEED(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof(a)) == 0);
}

static void pipes_setup(void)
{
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, waitall) == 0 && write(waitall[1], "abc", 3) == 3);
	NEED(pipe(pipe_r) == 0 && pipe(pipe_w) == 0 && pipe(splice_p) == 0);
	NEED(pipe(tee_a) == 0 && pipe(tee_b) == 0);
	NEED(pipe(pipe_b) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair_b) == 0);
	for (size_t i = 0; i < sizeof(huge); i++)
		huge[i] = (char)(i * 2654435761u >> 13);
	NEED(write(pipe_w[1], big, sizeof(big)) == sizeof(big));
}

/* Asleep in its call, or nearly so: its state says S, and D in the vfork. */
static bool asleep(pid_t tid)
{
	char path[64], buf[512] = "", *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return false;
	p = fgets(buf, sizeof(buf), f) ? strrchr(buf, ')') : NULL;
	fclose(f);
	return p && (p[2] == 'S' || p[2] == 'D');
}

static void blocked_setup(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t set;

	sigemptyset(&set);
	for (int i = 5; i <= 7; i++)
		sigaddset(&set, SIGRTMIN + i);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < 5; i++)
		NEED(new_event() >= 0);
	ep_fd = epoll_create1(0);
	NEED(epoll_ctl(ep_fd, EPOLL_CTL_ADD, evt[0], &ev) == 0);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 7);
	sfd = signalfd(-1, &set, 0);
	tfd = timerfd_create(CLOCK_MONOTONIC, 0);
	files_setup();
	ipc_setup();
	sockets_setup();
	pipes_setup();
	pthread_mutex_lock(&mutex);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	for (size_t i = 0; i < NCALLS; i++) {
		made[i].c = &calls[i];
		NEED(pthread_create(&made[i].thread, NULL, call_main, &made[i]) == 0);
	}
	for (size_t i = 0; i < NCALLS; i++)
		for (int n = 0; n < 500 && !asleep(made[i].tid); n++)
			usleep(2000);
}

/* ---- check ---- */

static bool finishes(struct made *m, int ms)
{
	for (int64_t end = now_ms() + ms; !m->done && now_ms() < end;)
		usleep(2000);
	return m->done;
}

static void fail(const struct made *m, const char *what)
{
	printf("FAIL %s: %s: returned %ld (errno %d) after %lld ms\n", m->c->name, what, m->ret, m->err,
	       (long long)m->took_ms);
	item_failures++;
}

static void check_call(struct made *m)
{
	const struct call *c = m->c;

	if (c->wake && m->done) {
		fail(m, "before it was woken");
		return;
	}
	if (c->wake)
		c->wake();
	if (!finishes(m, TIMEOUT_MS + LATE_MS))
		fail(m, "still asleep");
	else if (m->ret != c->want || (c->want < 0 && m->err != c->want_errno))
		fail(m, "wrong");
	else if (!c->wake && (m->took_ms < TIMEOUT_MS - 20 || m->took_ms > TIMEOUT_MS + LATE_MS))
		fail(m, "too early or too late");
}

/* Those that have to be woken first; the timeouts go on meanwhile. */
static void blocked_check(void)
{
	for (size_t i = 0; i < NCALLS; i++)
		if (calls[i].wake)
			check_call(&made[i]);
	for (size_t i = 0; i < NCALLS; i++)
		if (!calls[i].wake)
			check_call(&made[i]);
}

int main(int argc, char **argv)
{
	static const struct item items[] = { ITEM(blocked) };

	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
