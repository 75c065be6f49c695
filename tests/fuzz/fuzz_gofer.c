// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer's side of its protocol. The input is a sequence of messages, each with a u16 length in front; they
 * act on one server over a small directory, so that node ids and open files carry over.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "gofer/gofer.h"
#include "gofer/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/tmp/fuzz-gofer-XXXXXX";
static int dirfd_, outside;

static void clean(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s' '%s.out'", dir, dir);
	(void)!system(cmd);
}

static void make_tree(void)
{
	char out[64];
	int fd;

	if (dirfd_)
		return;
	if (!mkdtemp(dir))
		abort();
	atexit(clean);
	snprintf(out, sizeof(out), "%s.out", dir);
	mkdir(out, 0700);
	outside = open(out, O_RDONLY | O_DIRECTORY);
	dirfd_ = open(dir, O_PATH | O_DIRECTORY);
	fd = openat(dirfd_, "file", O_CREAT | O_WRONLY, 0644);
	(void)!write(fd, "content", 7);
	close(fd);
	mkdirat(dirfd_, "sub", 0755);
	(void)!symlinkat(out, dirfd_, "link");
}

/* Nothing may appear next to the attach point, which a link inside it points to. */
static void check_outside(void)
{
	struct stat st;

	if (fstat(outside, &st) || st.st_nlink != 2 || faccessat(outside, "x", F_OK, 0) == 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t reply[GOFER_MSG_MAX];
	struct gofer_attach at = { .file_ro = -1, .file_rw = -1 };
	struct gofer_conf conf = { .sock = -1, .nattach = 1, .attach = &at, .memdirfd = -1, .diskdirfd = -1 };
	int fds[GOFER_FDS_MAX];
	struct gofer *g;

	make_tree();
	at.dirfd = dup(dirfd_);
	g = gofer_server_create(&conf);
	if (is_err(g))
		abort();
	while (size >= 2) {
		size_t len = (size_t)(data[0] | data[1] << 8);
		unsigned n = 0;

		data += 2;
		size -= 2;
		len = len > size ? size : len;
		if (gofer_handle_message(g, data, len, reply, fds, &n) > GOFER_MSG_MAX ||
		    n > GOFER_FDS_MAX)
			abort();
		while (n)
			close(fds[--n]);
		data += len;
		size -= len;
	}
	gofer_server_destroy(g);
	close(at.dirfd);
	check_outside();
	return 0;
}
