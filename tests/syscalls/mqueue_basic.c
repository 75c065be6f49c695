// SPDX-License-Identifier: Apache-2.0
/* POSIX message queues. */
#include "harness.h"

#include <sys/mount.h>
#include <sched.h>
#include <mqueue.h>
#include <poll.h>
#include <time.h>

#define NAME "/holdfast_mq_test"

static mqd_t make(int flags, long maxmsg)
{
	struct mq_attr a = { .mq_maxmsg = maxmsg, .mq_msgsize = 64 };
	mqd_t q;

	mq_unlink(NAME);
	q = mq_open(NAME, O_RDWR | O_CREAT | O_EXCL | flags, 0600, &a);
	if (q == (mqd_t)-1 && errno == ENOSYS)
		SKIP("no message queues");
	CHECK(q != (mqd_t)-1);
	return q;
}

TEST(priority_order)
{
	mqd_t q = make(0, 8);
	unsigned prio;
	char b[64];

	CHECK(mq_send(q, "low", 3, 1) == 0 && mq_send(q, "high", 4, 9) == 0);
	CHECK(mq_send(q, "high2", 5, 9) == 0);
	CHECK(mq_receive(q, b, sizeof(b), &prio) == 4 && prio == 9);
	CHECK(mq_receive(q, b, sizeof(b), &prio) == 5 && !memcmp(b, "high2", 5));
	CHECK(mq_receive(q, b, sizeof(b), NULL) == 3);
	mq_unlink(NAME);
}

TEST(limits_and_errors)
{
	mqd_t q = make(O_NONBLOCK, 2);
	char b[65];

	CHECK_ERRNO(mq_send(q, b, 65, 0), EMSGSIZE);
	CHECK_ERRNO(mq_receive(q, b, 63, NULL), EMSGSIZE);
	CHECK_ERRNO(mq_receive(q, b, 64, NULL), EAGAIN);
	CHECK_ERRNO(mq_send(q, b, 1, 32768), EINVAL);
	CHECK(mq_send(q, b, 0, 0) == 0 && mq_send(q, b, 64, 0) == 0);
	CHECK_ERRNO(mq_send(q, b, 1, 0), EAGAIN);
	CHECK_ERRNO(mq_open(NAME, O_RDWR | O_CREAT | O_EXCL, 0600, NULL), EEXIST);
	CHECK_ERRNO(mq_open("/holdfast_none", O_RDWR), ENOENT);
	mq_unlink(NAME);
	CHECK_ERRNO(mq_unlink(NAME), ENOENT);
}

TEST(timeout)
{
	mqd_t q = make(0, 1);
	struct timespec ts;
	char b[64];

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += 50000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_sec++;
		ts.tv_nsec -= 1000000000;
	}
	CHECK_ERRNO(mq_timedreceive(q, b, sizeof(b), NULL, &ts), ETIMEDOUT);
	ts.tv_nsec = -1;
	CHECK_ERRNO(mq_timedreceive(q, b, sizeof(b), NULL, &ts), EINVAL);
	mq_unlink(NAME);
}

TEST(attributes)
{
	mqd_t q = make(0, 3);
	struct mq_attr a, n = { .mq_flags = O_NONBLOCK };

	CHECK(mq_send(q, "x", 1, 0) == 0);
	CHECK(mq_setattr(q, &n, &a) == 0);
	CHECK(a.mq_flags == 0 && a.mq_maxmsg == 3 && a.mq_msgsize == 64 && a.mq_curmsgs == 1);
	CHECK(mq_getattr(q, &a) == 0 && a.mq_flags == O_NONBLOCK);
	mq_unlink(NAME);
}

TEST(blocked_receiver_wakes)
{
	mqd_t q = make(0, 1);
	char b[64];
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(mq_receive(q, b, sizeof(b), NULL) == 2 ? 0 : 1);
	usleep(50000);
	CHECK(mq_send(q, "go", 2, 0) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	mq_unlink(NAME);
}

TEST(poll_states)
{
	mqd_t q = make(0, 1);
	struct pollfd p = { q, POLLIN | POLLOUT, 0 };

	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	CHECK(mq_send(q, "x", 1, 0) == 0);
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
	mq_unlink(NAME);
}

static volatile int notified;

static void on_notify(int sig, siginfo_t *si, void *uc)
{
	(void)sig, (void)uc;
	notified = si->si_code == SI_MESGQ ? si->si_value.sival_int : -1;
}

TEST(notify_by_signal)
{
	mqd_t q = make(0, 2);
	struct sigaction sa = { .sa_sigaction = on_notify, .sa_flags = SA_SIGINFO };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1,
			       .sigev_value.sival_int = 77 };

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	CHECK(mq_notify(q, &ev) == 0);
	CHECK_ERRNO(mq_notify(q, &ev), EBUSY);
	CHECK(mq_send(q, "x", 1, 0) == 0);
	CHECK(notified == 77);
	notified = 0;
	CHECK(mq_send(q, "x", 1, 0) == 0);
	CHECK(notified == 0);
	CHECK(mq_notify(q, &ev) == 0 && mq_notify(q, NULL) == 0);
	mq_unlink(NAME);
}

/* The queues go with their namespace, also while someone still has one open or the file system mounted. */
TEST(mq_namespace_exit)
{
	for (int i = 0; i < 6; i++) {
		int st;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			struct mq_attr a = { .mq_maxmsg = 1, .mq_msgsize = 1 };

			if (unshare(CLONE_NEWIPC | CLONE_NEWNS) < 0)
				_exit(errno == EPERM ? TEST_SKIPPED : 1);
			CHECK(syscall(SYS_mq_open, "ns_exit", O_RDWR | O_CREAT | O_EXCL, 0600, &a) >= 0);
			if (i & 1)
				CHECK(mount("mqueue", "/tmp", "mqueue", 0, NULL) == 0);
			if (i & 2)
				CHECK(unshare(CLONE_NEWIPC) == 0);
			_exit(0);
		}
		CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st));
		if (WEXITSTATUS(st) == TEST_SKIPPED)
			SKIP("no namespaces here");
		CHECK(WEXITSTATUS(st) == 0);
	}
}

TEST_MAIN
