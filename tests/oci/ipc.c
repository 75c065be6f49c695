// SPDX-License-Identifier: Apache-2.0
/*
 * One end of a means of communication each, for containers that share one: ipc KIND get|put NAME [TEXT]. get prints what
 * was put: messages of SysV and POSIX queues, a stream over a unix socket, a word in a mapped file of which the
 * other end is told through a futex.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_MAX 128

struct message {
	long type;
	char text[TEXT_MAX];
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void sysv(int put, const char *name, const char *text)
{
	int q = msgget(atoi(name), IPC_CREAT | 0600);
	struct message m = { .type = 1 };

	if (q < 0)
		fail("msgget");
	if (put) {
		strncpy(m.text, text, TEXT_MAX - 1);
		if (msgsnd(q, &m, TEXT_MAX, 0))
			fail("msgsnd");
		return;
	}
	if (msgrcv(q, &m, TEXT_MAX, 0, 0) < 0)
		fail("msgrcv");
	puts(m.text);
}

static void posix(int put, const char *name, const char *text)
{
	struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = TEXT_MAX };
	mqd_t q = mq_open(name, O_RDWR | O_CREAT, 0600, &attr);
	char buf[TEXT_MAX] = "";

	if (q < 0)
		fail("mq_open");
	if (put) {
		if (mq_send(q, text, strlen(text) + 1, 0))
			fail("mq_send");
		return;
	}
	if (mq_receive(q, buf, sizeof(buf), NULL) < 0)
		fail("mq_receive");
	puts(buf);
}

/* An abstract name, or with a slash a path. */
static void socket_at(int put, const char *name, const char *text)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int is_abstract = !strchr(name, '/');
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	char buf[TEXT_MAX] = "";

	strncpy(a.sun_path + is_abstract, name, sizeof(a.sun_path) - 2);
	if (put) {
		while (connect(s, (struct sockaddr *)&a, len)) {
			if (errno != ECONNREFUSED && errno != ENOENT)
				fail("connect");
			usleep(10000);
		}
		if (write(s, text, strlen(text)) < 0)
			fail("write");
		return;
	}
	if (bind(s, (struct sockaddr *)&a, len) || listen(s, 1))
		fail("bind");
	s = accept(s, NULL, NULL);
	if (s < 0 || read(s, buf, sizeof(buf) - 1) < 0)
		fail("accept");
	puts(buf);
}

static void futex(int put, const char *name, const char *text)
{
	int fd = open(name, O_RDWR | O_CREAT, 0600);
	uint32_t *word;

	if (fd < 0 || ftruncate(fd, 4096))
		fail(name);
	word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (word == MAP_FAILED)
		fail("mmap");
	if (put) {
		strcpy((char *)(word + 1), text);
		__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
		/* until somebody was there who slept */
		while (syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0) != 1)
			usleep(10000);
		return;
	}
	/* sleeps on whatever is there: only the other end's call ends it */
	while (syscall(SYS_futex, word, FUTEX_WAIT, __atomic_load_n(word, __ATOMIC_SEQ_CST), NULL, NULL, 0))
		if (errno != EAGAIN && errno != EINTR)
			fail("futex");
	puts((char *)(word + 1));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(int put, const char *name, const char *text);
	} kinds[] = { { "sysv", sysv }, { "posix", posix }, { "socket", socket_at }, { "futex", futex } };

	for (unsigned i = 0; argc >= 4 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name)) {
			kinds[i].fn(!strcmp(argv[2], "put"), argv[3], argc > 4 ? argv[4] : "");
			return 0;
		}
	fprintf(stderr, "usage: ipc sysv|posix|socket|futex get|put NAME [TEXT]\n");
	return 2;
}
