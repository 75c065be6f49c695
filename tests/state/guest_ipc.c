// SPDX-License-Identifier: Apache-2.0
/* Descriptors without a file behind them: pipes, sockets, epolls, and whatever tells of events. */
#include <fcntl.h>
#include <linux/netlink.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/state/guest.h"

static bool reads(int fd, const char *text)
{
	char buf[256];
	ssize_t n = read(fd, buf, sizeof(buf));

	return n == (ssize_t)strlen(text) && memcmp(buf, text, strlen(text)) == 0;
}

static int ready(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, 0) == 1 ? p.revents : 0;
}

/* ---- pipes ---- */

static int pipe_fd[2], packet_fd[2], full_fd[2], fifo_r, fifo_w, halfdead_fd[2];
static size_t full_bytes;

static void pipes_setup(void)
{
	char page[4096];

	NEED(pipe(pipe_fd) == 0 && pipe2(packet_fd, O_DIRECT) == 0 && pipe(halfdead_fd) == 0);
	NEED(write(pipe_fd[1], "in flight", 9) == 9);
	NEED(write(packet_fd[1], "one", 3) == 3 && write(packet_fd[1], "two", 3) == 3);
	NEED(fcntl(pipe_fd[0], F_SETPIPE_SZ, 8192) == 8192);
	NEED(pipe2(full_fd, O_NONBLOCK) == 0);
	for (memset(page, 'f', sizeof(page)); write(full_fd[1], page, sizeof(page)) > 0;)
		full_bytes += sizeof(page);
	NEED(mkfifo(DIR_STATE "/fifo", 0600) == 0);
	fifo_r = open(DIR_STATE "/fifo", O_RDONLY | O_NONBLOCK);
	fifo_w = open(DIR_STATE "/fifo", O_WRONLY);
	NEED(fifo_r >= 0 && fifo_w >= 0 && write(fifo_w, "named", 5) == 5);
	NEED(write(halfdead_fd[1], "last", 4) == 4);
	close(halfdead_fd[1]);
}

static void pipes_check(void)
{
	char buf[65536];
	size_t n = 0;
	ssize_t r;

	CHECK(fcntl(pipe_fd[0], F_GETPIPE_SZ) == 8192);
	CHECK(reads(pipe_fd[0], "in flight") && write(pipe_fd[1], "more", 4) == 4);
	CHECK(reads(pipe_fd[0], "more"));
	CHECK(reads(packet_fd[0], "one") && reads(packet_fd[0], "two"));
	CHECK(write(full_fd[1], "x", 1) < 0 && errno == EAGAIN);
	while ((r = read(full_fd[0], buf, sizeof(buf))) > 0)
		n += (size_t)r;
	CHECK(n == full_bytes && write(full_fd[1], "x", 1) == 1);
	CHECK(reads(fifo_r, "named"));
	CHECK(reads(halfdead_fd[0], "last") && read(halfdead_fd[0], buf, 1) == 0);
	close(fifo_w);
	CHECK(read(fifo_r, buf, 1) == 0);
	signal(SIGPIPE, SIG_IGN);
	close(pipe_fd[0]);
	CHECK(write(pipe_fd[1], "x", 1) < 0 && errno == EPIPE);
}

/* ---- eventfd, signalfd, timerfd ---- */

static int event_fd, sem_fd, signal_fd, timer_fd, alarm_fd, far_fd;

static void counters_setup(void)
{
	struct itimerspec once = { .it_value.tv_sec = 3600 }, done = { .it_value.tv_nsec = 1 };
	struct itimerspec every = { { 0, 50000000 }, { 0, 50000000 } };
	sigset_t set;

	event_fd = eventfd(7, EFD_NONBLOCK);
	sem_fd = eventfd(3, EFD_SEMAPHORE);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_NONBLOCK);
	NEED(sigqueue(getpid(), SIGUSR2, (union sigval){ .sival_int = 42 }) == 0);
	timer_fd = timerfd_create(CLOCK_MONOTONIC, 0);
	alarm_fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	far_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK);
	NEED(timerfd_settime(timer_fd, 0, &every, NULL) == 0);
	NEED(timerfd_settime(alarm_fd, 0, &done, NULL) == 0);
	NEED(timerfd_settime(far_fd, 0, &once, NULL) == 0);
	NEED(event_fd >= 0 && sem_fd >= 0 && signal_fd >= 0);
}

static void counters_check(void)
{
	struct signalfd_siginfo info;
	struct itimerspec its;
	uint64_t v = 0;

	CHECK(read(event_fd, &v, 8) == 8 && v == 7);
	CHECK(read(event_fd, &v, 8) < 0 && errno == EAGAIN);
	for (int i = 0; i < 3; i++)
		CHECK(read(sem_fd, &v, 8) == 8 && v == 1);
	CHECK(!ready(sem_fd, POLLIN));
	CHECK(read(signal_fd, &info, sizeof(info)) == sizeof(info));
	CHECK(info.ssi_signo == SIGUSR2 && info.ssi_int == 42 && info.ssi_pid == (uint32_t)getpid());
	CHECK(read(signal_fd, &info, sizeof(info)) < 0 && errno == EAGAIN);
	CHECK(read(timer_fd, &v, 8) == 8 && v >= 1);
	CHECK(read(timer_fd, &v, 8) == 8 && v >= 1);
	CHECK(read(alarm_fd, &v, 8) == 8 && v == 1);
	CHECK(read(far_fd, &v, 8) < 0 && timerfd_gettime(far_fd, &its) == 0);
	CHECK(its.it_value.tv_sec > 3500 && its.it_value.tv_sec <= 3600);
}

/* ---- epoll ---- */

static int ep, ep_outer, lt_pipe[2], et_pipe[2], et_seen[2], once_pipe[2], idle_pipe[2];

static void epoll_add(int e, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	NEED(epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev) == 0);
}

static void epolls_setup(void)
{
	struct epoll_event ev[8];

	NEED(pipe(lt_pipe) == 0 && pipe(et_pipe) == 0 && pipe(et_seen) == 0 && pipe(once_pipe) == 0 &&
	     pipe(idle_pipe) == 0);
	ep = epoll_create1(0);
	ep_outer = epoll_create1(0);
	epoll_add(ep_outer, ep, EPOLLIN, 99);
	/* Seen edges aren't told again; a spent one-shot is quiet. */
	epoll_add(ep, et_seen[0], EPOLLIN | EPOLLET, 3);
	epoll_add(ep, once_pipe[0], EPOLLIN | EPOLLONESHOT, 4);
	NEED(write(et_seen[1], "x", 1) == 1 && write(once_pipe[1], "x", 1) == 1);
	NEED(epoll_wait(ep, ev, 8, 0) == 2);
	NEED(epoll_wait(ep, ev, 8, 0) == 0);
	epoll_add(ep, lt_pipe[0], EPOLLIN, 1);
	epoll_add(ep, et_pipe[0], EPOLLIN | EPOLLET, 2);
	epoll_add(ep, idle_pipe[0], EPOLLIN, 5);
	NEED(write(lt_pipe[1], "x", 1) == 1 && write(et_pipe[1], "x", 1) == 1);
}

static unsigned collect(int e)
{
	struct epoll_event ev[8];
	unsigned got = 0;
	int n = epoll_wait(e, ev, 8, 0);

	for (int i = 0; i < n; i++)
		got |= ev[i].data.u64 == 99 ? 1u << 31 : 1u << ev[i].data.u64;
	return got;
}

static void epolls_check(void)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 4 };
	unsigned got = collect(ep_outer);

	CHECK(got == 1u << 31);
	got = collect(ep);
	CHECK(got == (1u << 1 | 1u << 2));
	CHECK(collect(ep) == 1u << 1); /* the edge was told */
	CHECK(write(et_seen[1], "y", 1) == 1 && write(idle_pipe[1], "y", 1) == 1);
	got = collect(ep);
	CHECK(got == (1u << 1 | 1u << 3 | 1u << 5));
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, once_pipe[0], &ev) == 0);
	CHECK(collect(ep) & 1u << 4);
	close(lt_pipe[0]);
	close(lt_pipe[1]);
	CHECK(!(collect(ep) & 1u << 1));
	ev.data.u64 = 99;
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, ep_outer, &ev) < 0 && errno == ELOOP);
}

/* ---- inotify, dnotify ---- */

static int in_fd, in_wd, dn_fd;
static volatile sig_atomic_t dn_signals;

static void on_dnotify(int sig)
{
	(void)sig;
	dn_signals++;
}

static void notify_setup(void)
{
	NEED(mkdir(DIR_STATE "/watched", 0755) == 0);
	in_fd = inotify_init1(IN_NONBLOCK);
	in_wd = inotify_add_watch(in_fd, DIR_STATE "/watched", IN_CREATE | IN_DELETE);
	NEED(in_fd >= 0 && in_wd >= 0);
	close(open(DIR_STATE "/watched/before", O_CREAT | O_WRONLY, 0600));
	NEED(mkdir(DIR_STATE "/dwatched", 0755) == 0);
	dn_fd = open(DIR_STATE "/dwatched", O_RDONLY);
	signal(SIGIO, on_dnotify);
	NEED(fcntl(dn_fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT) == 0);
}

static bool event_is(const char *name)
{
	char buf[sizeof(struct inotify_event) + 256] __attribute__((aligned(8)));
	struct inotify_event *e = (struct inotify_event *)buf;

	return read(in_fd, buf, sizeof(struct inotify_event) + 16) > 0 && e->wd == in_wd &&
	       e->mask == IN_CREATE && strcmp(e->name, name) == 0;
}

static void notify_check(void)
{
	CHECK(event_is("before"));
	close(open(DIR_STATE "/watched/after", O_CREAT | O_WRONLY, 0600));
	CHECK(event_is("after"));
	CHECK(inotify_add_watch(in_fd, DIR_STATE "/watched", IN_CREATE) == in_wd);
	CHECK(inotify_rm_watch(in_fd, in_wd) == 0);
	close(open(DIR_STATE "/dwatched/file", O_CREAT | O_WRONLY, 0600));
	CHECK(dn_signals == 1);
}

/* ---- unix sockets ---- */

static int stream_sv[2], dgram_sv[2], seq_sv[2], listener, pending, abstract_l, bound_d, half_sv[2];

static socklen_t addr_of(struct sockaddr_un *un, const char *name)
{
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	strcpy(un->sun_path + (*name == '@'), *name == '@' ? name + 1 : name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@'));
}

static int bound(int type, const char *name)
{
	struct sockaddr_un un;
	socklen_t len = addr_of(&un, name);
	int fd = socket(AF_UNIX, type, 0);

	NEED(fd >= 0 && bind(fd, (struct sockaddr *)&un, len) == 0);
	return fd;
}

static int connected(int type, const char *name)
{
	struct sockaddr_un un;
	socklen_t len = addr_of(&un, name);
	int fd = socket(AF_UNIX, type, 0);

	if (connect(fd, (struct sockaddr *)&un, len) == 0)
		return fd;
	close(fd);
	return -1;
}

static void send_fd(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { "F", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	NEED(sendmsg(sock, &m, 0) == 1);
}

static int recv_fd(int sock)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(sock, &m, MSG_DONTWAIT) != 1 || !CMSG_FIRSTHDR(&m))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void sockets_setup(void)
{
	int p[2], cycle[2], on = 1;
	struct timeval tv = { 77, 0 };

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, stream_sv) == 0);
	NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram_sv) == 0);
	NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, seq_sv) == 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, half_sv) == 0);
	NEED(write(stream_sv[0], "stream", 6) == 6);
	NEED(write(dgram_sv[0], "first", 5) == 5 && write(dgram_sv[0], "second", 6) == 6);
	NEED(write(seq_sv[0], "record", 6) == 6);
	NEED(pipe(p) == 0 && write(p[1], "passed", 6) == 6);
	send_fd(stream_sv[1], p[0]);
	close(p[0]);
	close(p[1]);
	NEED(shutdown(half_sv[0], SHUT_WR) == 0);
	NEED(setsockopt(half_sv[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
	NEED(setsockopt(half_sv[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
	listener = bound(SOCK_STREAM, DIR_STATE "/sock");
	NEED(listen(listener, 5) == 0);
	pending = connected(SOCK_STREAM, DIR_STATE "/sock");
	NEED(pending >= 0 && write(pending, "early", 5) == 5);
	abstract_l = bound(SOCK_SEQPACKET, "@holdfast-state");
	NEED(listen(abstract_l, 5) == 0);
	bound_d = bound(SOCK_DGRAM, DIR_STATE "/dsock");
	/* Sockets that only their own queues hold. */
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, cycle) == 0);
	send_fd(cycle[0], cycle[1]);
	send_fd(cycle[1], cycle[0]);
	send_fd(dgram_sv[1], cycle[0]);
	close(cycle[0]);
	close(cycle[1]);
}

static void peers_check(void)
{
	struct ucred uc;
	socklen_t len = sizeof(uc);
	struct sockaddr_un un;
	struct timeval tv;

	CHECK(getsockopt(stream_sv[0], SOL_SOCKET, SO_PEERCRED, &uc, &len) == 0);
	CHECK(uc.pid == getpid() && uc.uid == getuid());
	len = sizeof(tv);
	CHECK(getsockopt(half_sv[1], SOL_SOCKET, SO_RCVTIMEO, &tv, &len) == 0 && tv.tv_sec == 77);
	len = sizeof(un);
	CHECK(getpeername(pending, (struct sockaddr *)&un, &len) == 0 &&
	      strcmp(un.sun_path, DIR_STATE "/sock") == 0);
}

static void sockets_check(void)
{
	char c;
	int fd, conn, inner;

	CHECK(reads(stream_sv[1], "stream") && reads(seq_sv[1], "record"));
	CHECK(reads(dgram_sv[1], "first") && reads(dgram_sv[1], "second"));
	fd = recv_fd(stream_sv[0]);
	CHECK(fd >= 0 && reads(fd, "passed") && read(fd, &c, 1) == 0);
	CHECK(read(half_sv[1], &c, 1) == 0 && write(half_sv[1], "back", 4) == 4);
	CHECK(reads(half_sv[0], "back") && send(half_sv[0], "x", 1, MSG_NOSIGNAL) < 0);
	conn = accept(listener, NULL, NULL);
	CHECK(conn >= 0 && reads(conn, "early") && write(conn, "late", 4) == 4);
	CHECK(reads(pending, "late"));
	fd = connected(SOCK_STREAM, DIR_STATE "/sock");
	CHECK(fd >= 0 && accept(listener, NULL, NULL) >= 0);
	CHECK(connected(SOCK_SEQPACKET, "@holdfast-state") >= 0);
	fd = connected(SOCK_DGRAM, DIR_STATE "/dsock");
	CHECK(fd >= 0 && write(fd, "dgram", 5) == 5 && reads(bound_d, "dgram"));
	peers_check();
	/* Out of the circle: one end holds the other, which holds the first. */
	fd = recv_fd(dgram_sv[0]);
	CHECK(fd >= 0);
	inner = recv_fd(fd); /* what cycle[1] sent: cycle[0] itself */
	CHECK(inner >= 0 && write(inner, "round", 5) == 5);
	close(fd);
	close(inner);
	close(stream_sv[0]);
	CHECK(read(stream_sv[1], &c, 1) == 0);
}

/* ---- the rest ---- */

static int nl_fd, pidfd_live, pidfd_dead, ns_fd, owned_sv[2];
static mqd_t mq;
static pid_t sleeper, corpse;
static struct sockaddr_nl nl_name;

static void others_setup(void)
{
	struct mq_attr attr = { .mq_maxmsg = 5, .mq_msgsize = 32 };
	socklen_t len = sizeof(nl_name);

	mq_unlink("/holdfast-state");
	mq = mq_open("/holdfast-state", O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attr);
	NEED(mq >= 0 && mq_send(mq, "low", 3, 1) == 0 && mq_send(mq, "high", 4, 9) == 0);
	nl_fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	nl_name.nl_family = AF_NETLINK;
	NEED(bind(nl_fd, (struct sockaddr *)&nl_name, sizeof(nl_name)) == 0);
	NEED(getsockname(nl_fd, (struct sockaddr *)&nl_name, &len) == 0);
	sleeper = fork();
	if (sleeper == 0) {
		pause();
		_exit(0);
	}
	corpse = fork();
	if (corpse == 0)
		_exit(7);
	pidfd_live = (int)syscall(SYS_pidfd_open, sleeper, 0);
	pidfd_dead = (int)syscall(SYS_pidfd_open, corpse, 0);
	NEED(pidfd_live >= 0 && pidfd_dead >= 0);
	ns_fd = open("/proc/self/ns/uts", O_RDONLY);
	NEED(ns_fd >= 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, owned_sv) == 0);
	NEED(fcntl(owned_sv[0], F_SETOWN, getpid()) == 0 && fcntl(owned_sv[0], F_SETSIG, SIGUSR1) == 0);
}

static void others_check(void)
{
	struct sockaddr_nl name;
	socklen_t len = sizeof(name);
	struct stat a, b;
	unsigned prio = 0;
	char buf[32];
	siginfo_t si;
	int status;

	CHECK(mq_receive(mq, buf, 32, &prio) == 4 && prio == 9 && !memcmp(buf, "high", 4));
	CHECK(mq_receive(mq, buf, 32, &prio) == 3 && prio == 1 && !memcmp(buf, "low", 3));
	CHECK(mq_receive(mq, buf, 32, &prio) < 0 && errno == EAGAIN);
	CHECK(mq_unlink("/holdfast-state") == 0);
	CHECK(getsockname(nl_fd, (struct sockaddr *)&name, &len) == 0 &&
	      name.nl_pid == nl_name.nl_pid);
	struct pollfd dead = { .fd = pidfd_dead, .events = POLLIN };
	CHECK(!ready(pidfd_live, POLLIN) && poll(&dead, 1, 10000) == 1);
	CHECK(waitid((idtype_t)3 /* P_PIDFD */, (id_t)pidfd_dead, &si, WEXITED) == 0 &&
	      si.si_status == 7);
	CHECK(syscall(SYS_pidfd_send_signal, pidfd_live, SIGKILL, NULL, 0) == 0);
	CHECK(waitpid(sleeper, &status, 0) == sleeper && WIFSIGNALED(status));
	CHECK(fstat(ns_fd, &a) == 0 && stat("/proc/self/ns/uts", &b) == 0 && a.st_ino == b.st_ino);
	CHECK(fcntl(owned_sv[0], F_GETOWN) == getpid() && fcntl(owned_sv[0], F_GETSIG) == SIGUSR1);
}

int main(int argc, char **argv)
{
	static const struct item items[] = {
		ITEM(others), /* first: its child must not hold the others' descriptors open */
		ITEM(pipes),  ITEM(counters), ITEM(epolls), ITEM(notify), ITEM(sockets),
	};

	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
