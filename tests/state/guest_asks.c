// SPDX-License-Identifier: Apache-2.0
/* A guest that asks for a snapshot of its own sandbox, and says in which of the two it finds itself. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int generation(void)
{
	char buf[32] = "";
	int fd = open("/proc/holdfast/generation", O_RDONLY);

	if (fd < 0 || read(fd, buf, sizeof(buf) - 1) <= 0)
		return -1;
	close(fd);
	return atoi(buf);
}

/* 0 or an errno. */
static int ask(int fd, const char *name)
{
	return write(fd, name, strlen(name)) == (ssize_t)strlen(name) ? 0 : errno;
}

/* As ask(), again while it is too soon. */
static int ask_patiently(int fd, const char *name)
{
	int err;

	while ((err = ask(fd, name)) == EAGAIN)
		usleep(50000);
	return err;
}

int main(int argc, char **argv)
{
	static const char *const bad[] = { "\n", ".hidden", "-x", "a b", "a/b", "../x", "a\nb" };
	char too_long[67];
	int before = generation(), fd = open("/proc/holdfast/snapshot", O_WRONLY);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (fd < 0) {
		printf("open: %s\n", strerror(errno));
		return errno == EPERM ? 7 : 1;
	}
	memset(too_long, 'x', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (ask(fd, bad[i]) != EINVAL)
			printf("accepted: %s\n", bad[i]);
	if (ask(fd, too_long) != EINVAL)
		printf("accepted a long one\n");
	for (int i = 1; i < argc; i++) {
		int err = ask_patiently(fd, argv[i]);

		if (generation() != before) {
			printf("came back from %s: %s\n", argv[i], err ? strerror(err) : "ok");
			before = generation();
		} else {
			printf("asked for %s: %s\n", argv[i], err ? strerror(err) : "ok");
		}
	}
	printf("done\n");
	pause();
	return 0;
}
