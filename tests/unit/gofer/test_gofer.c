// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer and its client: the server runs in a forked child over a socket pair against a temporary
 * directory; hostile frames go to gofer_handle_message() directly. Needs root (chown).
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "gofer/gofer.h"
#include "sentry/fs/gofer/client.h"

struct fixture {
	char dir[64];
	int dirfd;
	pid_t pid;
	struct gofer_client *c;
	uint64_t root;
};

static struct fixture fx;

static void put_file(const char *name, const char *text)
{
	int fd = openat(fx.dirfd, name, O_CREAT | O_TRUNC | O_WRONLY, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void start(bool readonly, bool confine)
{
	struct gofer_attr a;
	int sv[2];

	strcpy(fx.dir, "/tmp/gofer-test-XXXXXX");
	assert_non_null(mkdtemp(fx.dir));
	fx.dirfd = open(fx.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	put_file("hello", "hello world");
	assert_int_equal(mkdirat(fx.dirfd, "sub", 0755), 0);
	put_file("sub/deep", "deep");
	assert_int_equal(symlinkat("/etc/passwd", fx.dirfd, "link"), 0);
	assert_int_equal(mkfifoat(fx.dirfd, "fifo", 0644), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	fx.pid = fork();
	if (fx.pid == 0) {
		struct gofer_attach at = { .dirfd = fx.dirfd, .readonly = readonly,
					   .file_ro = -1, .file_rw = -1 };
		struct gofer_conf conf = { .sock = sv[1], .nattach = 1, .attach = &at,
					   .memdirfd = open("/dev/shm", O_PATH | O_DIRECTORY),
					   .diskdirfd = -1 };

		close(sv[0]);
		if (confine && gofer_confine() < 0)
			_exit(3);
		_exit(gofer_serve(&conf) == 0 ? 0 : 1);
	}
	close(sv[1]);
	fx.c = gofer_client_create(sv[0]);
	assert_false(is_err(fx.c));
	fx.root = gofer_root(fx.c, 0, &a);
	assert_true(S_ISDIR(a.mode));
}

/* The sanitizers' own calls at exit aren't in the filter. */
#ifdef HF_SANITIZE
#define CONFINE false
#else
#define CONFINE true
#endif

static int setup(void **state)
{
	(void)state;
	start(false, CONFINE);
	return 0;
}

static int setup_ro(void **state)
{
	(void)state;
	start(true, CONFINE);
	return 0;
}

static int teardown(void **state)
{
	char cmd[96];
	int status;

	(void)state;
	gofer_client_put(fx.c);
	waitpid(fx.pid, &status, 0);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", fx.dir);
	if (system(cmd))
		return -1;
	close(fx.dirfd);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static uint64_t find(const char *name, struct gofer_attr *ret)
{
	struct gofer_walked w;

	assert_int_equal(gofer_walk1(fx.c, fx.root, name, &w), 0);
	free(w.target);
	if (ret)
		*ret = w.attr;
	return w.node;
}

static void walk_resolves_whole_path(void **state)
{
	struct gofer_walked w[3];
	const char *names[] = { "sub", "deep", "nothing" };
	unsigned n;

	(void)state;
	assert_int_equal(gofer_walk(fx.c, fx.root, names, 2, w, &n), 0);
	assert_int_equal(n, 2);
	assert_true(S_ISDIR(w[0].attr.mode));
	assert_int_equal(w[1].attr.size, 4);
	assert_int_equal(gofer_walk(fx.c, fx.root, names, 3, w, &n), -ENOTDIR);
	assert_int_equal(n, 2);
	assert_int_equal(gofer_walk1(fx.c, fx.root, "nothing", w), -ENOENT);
}

static void walk_stops_at_symlink(void **state)
{
	struct gofer_walked w[2];
	const char *names[] = { "link", "x" };
	unsigned n;

	(void)state;
	assert_int_equal(gofer_walk(fx.c, fx.root, names, 2, w, &n), 0);
	assert_int_equal(n, 1);
	assert_string_equal(w[0].target, "/etc/passwd");
	char *t = gofer_readlink(fx.c, w[0].node);
	assert_string_equal(t, "/etc/passwd");
	free(t);
	free(w[0].target);
}

static void dotdot_and_slashes_are_refused(void **state)
{
	struct gofer_walked w;

	(void)state;
	assert_int_equal(gofer_walk1(fx.c, fx.root, "..", &w), -EINVAL);
	assert_int_equal(gofer_walk1(fx.c, fx.root, ".", &w), -EINVAL);
	assert_int_equal(gofer_walk1(fx.c, fx.root, "sub/deep", &w), -EINVAL);
	assert_int_equal(gofer_walk1(fx.c, fx.root, "", &w), -EINVAL);
}

static void open_donates_descriptor(void **state)
{
	char buf[16];
	struct gofer_attr a;
	uint64_t node = find("hello", NULL);
	int fd = gofer_open(fx.c, node, 0, &a);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(a.size, 11);
	assert_int_equal(pread(fd, buf, sizeof(buf), 0), 11);
	assert_int_equal(write(fd, "x", 1), -1);
	close(fd);
	fd = gofer_open(fx.c, node, GOFER_O_WRITE, NULL);
	assert_int_equal(pwrite(fd, "J", 1, 0), 1);
	close(fd);
	assert_int_equal(gofer_open(fx.c, find("fifo", NULL), 0, NULL), -ENXIO);
	assert_int_equal(gofer_open(fx.c, find("sub", NULL), 0, NULL), -EISDIR);
}

static void swapped_name_is_stale(void **state)
{
	uint64_t node = find("hello", NULL), dir = find("sub", NULL);
	struct gofer_walked w;

	(void)state;
	assert_int_equal(unlinkat(fx.dirfd, "hello", 0), 0);
	assert_int_equal(symlinkat("/etc/shadow", fx.dirfd, "hello"), 0);
	assert_int_equal(gofer_open(fx.c, node, 0, NULL), -ESTALE);
	/* A directory that becomes a symlink leads nowhere. */
	assert_int_equal(renameat(fx.dirfd, "sub", fx.dirfd, "sub2"), 0);
	assert_int_equal(symlinkat("/etc", fx.dirfd, "sub"), 0);
	assert_int_equal(gofer_walk1(fx.c, dir, "passwd", &w), -ESTALE);
}

struct count {
	unsigned n;
	bool saw_deep;
};

static void count_entry(void *arg, const char *name, const struct gofer_attr *a)
{
	struct count *c = arg;

	c->n++;
	c->saw_deep |= strcmp(name, "f1999") == 0 && S_ISREG(a->mode);
}

static void readdir_of_many(void **state)
{
	struct count c = { 0 };
	uint64_t cookie = 0;
	char name[32];
	int more;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "sub/f%d", i);
		put_file(name, "");
	}
	uint64_t dir = find("sub", NULL);
	while ((more = gofer_readdir(fx.c, dir, &cookie, count_entry, &c)) > 0)
		;
	assert_int_equal(more, 0);
	assert_int_equal(c.n, 2001);
	assert_true(c.saw_deep);
}

static void create_and_own(void **state)
{
	struct gofer_attr a;
	uint64_t node;
	int fd = gofer_create(fx.c, fx.root, "new", 04755, 1234, 5678, &node, &a);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(a.mode, S_IFREG | 04755);
	assert_int_equal(a.uid, 1234);
	assert_int_equal(a.gid, 5678);
	assert_int_equal(write(fd, "abc", 3), 3);
	close(fd);
	assert_int_equal(gofer_create(fx.c, fx.root, "new", 0644, 0, 0, &node, &a), -EEXIST);
	assert_int_equal(gofer_mkdir(fx.c, fx.root, "d", 02775, 7, 8, &node, &a), 0);
	assert_int_equal(a.mode, S_IFDIR | 02775);
	assert_int_equal(gofer_mknod(fx.c, node, "p", S_IFIFO | 0640, 7, 8, &node, &a), 0);
	assert_int_equal(a.mode, S_IFIFO | 0640);
	assert_int_equal(gofer_mknod(fx.c, fx.root, "c", S_IFCHR | 0640, 7, 8, &node, &a), -EPERM);
	assert_int_equal(gofer_symlink(fx.c, fx.root, "s", "target", 7, 8, &node, &a), 0);
	assert_int_equal(a.uid, 7);
}

static void rename_moves_node(void **state)
{
	uint64_t dir = find("sub", NULL), node = find("hello", NULL);
	struct gofer_attr a;

	(void)state;
	assert_int_equal(gofer_rename(fx.c, fx.root, "hello", dir, "moved", 0, node, 0), 0);
	int fd = gofer_open(fx.c, node, 0, NULL);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(gofer_link(fx.c, node, fx.root, "hard", &a), 0);
	assert_int_equal(a.nlink, 2);
	assert_int_equal(gofer_unlink(fx.c, dir, "moved", false, node), 0);
	assert_int_equal(gofer_getattr(fx.c, node, &a), 0);
	assert_int_equal(a.nlink, 1);
	assert_int_equal(gofer_unlink(fx.c, fx.root, "sub", false, 0), -EISDIR);
	assert_int_equal(gofer_unlink(fx.c, fx.root, "sub", true, 0), -ENOTEMPTY);
}

static void setattr_and_xattr(void **state)
{
	uint64_t node = find("hello", NULL);
	struct gofer_setattr s = { .valid = GOFER_SET_ALL, .mode = 0600, .uid = 11, .gid = 12,
				   .size = 5, .atime_ns = 1500000000, .mtime_ns = -1 };
	struct gofer_attr a;
	char buf[64];

	(void)state;
	assert_int_equal(gofer_setattr(fx.c, node, &s, &a), 0);
	assert_int_equal(a.mode, S_IFREG | 0600);
	assert_int_equal(a.uid, 11);
	assert_int_equal(a.size, 5);
	assert_int_equal(a.atime_ns, 1500000000);
	assert_int_equal(a.mtime_ns, -1);
	assert_int_equal(gofer_getxattr(fx.c, node, "system.posix_acl_access", buf, 64),
			 -EOPNOTSUPP);
	int err = gofer_setxattr(fx.c, node, "user.a", "xyz", 3, 0);
	if (err == -EOPNOTSUPP)
		return; /* this file system has none */
	assert_int_equal(err, 0);
	assert_int_equal(gofer_getxattr(fx.c, node, "user.a", buf, 0), 3);
	assert_int_equal(gofer_getxattr(fx.c, node, "user.a", buf, 2), -ERANGE);
	assert_int_equal(gofer_getxattr(fx.c, node, "user.a", buf, 64), 3);
	assert_int_equal(gofer_listxattr(fx.c, node, buf, 64), 7);
	assert_int_equal(gofer_removexattr(fx.c, node, "user.a"), 0);
}

static void memory_files_come_in_pairs(void **state)
{
	struct stat a, b;
	int fds[2];

	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(gofer_mkmem(fx.c, fds), 0);
		assert_int_equal(fstat(fds[0], &a), 0);
		assert_int_equal(fstat(fds[1], &b), 0);
		assert_int_equal(a.st_ino, b.st_ino);
		assert_int_equal(a.st_nlink, 0);
		assert_int_equal(write(fds[0], "x", 1), 1);
		assert_int_equal(write(fds[1], "x", 1), -1);
		close(fds[0]);
		close(fds[1]);
	}
}

static void tmpfile_gets_a_name(void **state)
{
	struct gofer_attr a;
	uint64_t node;
	int fd = gofer_create(fx.c, fx.root, NULL, 0640, 3, 4, &node, &a);

	(void)state;
	if (fd == -EOPNOTSUPP)
		return;
	assert_true(fd >= 0);
	assert_int_equal(a.nlink, 0);
	assert_int_equal(write(fd, "t", 1), 1);
	close(fd);
	assert_int_equal(gofer_link(fx.c, node, fx.root, "named", &a), 0);
	find("named", &a);
	assert_int_equal(a.size, 1);
}

static void readonly_refuses_every_change(void **state)
{
	uint64_t node, hello = find("hello", NULL);
	struct gofer_attr a;
	struct gofer_setattr s = { .valid = GOFER_SET_MODE, .mode = 0 };

	(void)state;
	assert_int_equal(gofer_open(fx.c, hello, GOFER_O_WRITE, NULL), -EROFS);
	assert_int_equal(gofer_open(fx.c, hello, GOFER_O_TRUNC, NULL), -EROFS);
	assert_int_equal(gofer_create(fx.c, fx.root, "n", 0644, 0, 0, &node, &a), -EROFS);
	assert_int_equal(gofer_create(fx.c, fx.root, NULL, 0644, 0, 0, &node, &a), -EROFS);
	assert_int_equal(gofer_mkdir(fx.c, fx.root, "n", 0644, 0, 0, &node, &a), -EROFS);
	assert_int_equal(gofer_symlink(fx.c, fx.root, "n", "t", 0, 0, &node, &a), -EROFS);
	assert_int_equal(gofer_mknod(fx.c, fx.root, "n", S_IFIFO, 0, 0, &node, &a), -EROFS);
	assert_int_equal(gofer_link(fx.c, hello, fx.root, "n", &a), -EROFS);
	assert_int_equal(gofer_unlink(fx.c, fx.root, "hello", false, 0), -EROFS);
	assert_int_equal(gofer_rename(fx.c, fx.root, "hello", fx.root, "n", 0, 0, 0), -EROFS);
	assert_int_equal(gofer_setattr(fx.c, hello, &s, &a), -EROFS);
	assert_int_equal(gofer_setxattr(fx.c, hello, "user.a", "x", 1, 0), -EROFS);
	assert_int_equal(gofer_removexattr(fx.c, hello, "user.a"), -EROFS);
	int fd = gofer_open(fx.c, hello, 0, NULL);
	assert_true(fd >= 0);
	close(fd);
}

static void *hammer(void *arg)
{
	struct gofer_walked w;

	(void)arg;
	for (int i = 0; i < 500; i++) {
		if (gofer_walk1(fx.c, fx.root, "hello", &w) != 0 || w.attr.size != 11)
			return (void *)1;
		int fd = gofer_open(fx.c, w.node, 0, NULL);
		if (fd < 0)
			return (void *)1;
		close(fd);
		gofer_forget(fx.c, w.node);
	}
	return NULL;
}

static void many_threads_share_the_channel(void **state)
{
	pthread_t t[8];
	void *ret;

	(void)state;
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, hammer, NULL);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], &ret);
		assert_null(ret);
	}
}

/* Random and mutated frames: no crash, no leak of descriptors into the reply, no change outside. */
static void hostile_frames(void **state)
{
	static uint8_t in[GOFER_MSG_MAX], out[GOFER_MSG_MAX];
	struct gofer_attach at = { .dirfd = open(fx.dir, O_PATH | O_DIRECTORY), .readonly = true };
	struct gofer_conf conf = { .sock = -1, .nattach = 1, .attach = &at, .memdirfd = -1, .diskdirfd = -1 };
	struct gofer *g = gofer_server_create(&conf);
	int fds[GOFER_FDS_MAX];
	unsigned nfds;
	struct writer w;

	(void)state;
	srandom(1);
	writer_init(&w, in, sizeof(in));
	push_u32(&w, 7);
	push_u32(&w, GOFER_HELLO);
	push_u32(&w, GOFER_VERSION);
	assert_true(gofer_handle_message(g, in, w.used, out, fds, &nfds) > 8);
	for (int i = 0; i < 100000; i++) {
		writer_init(&w, in, sizeof(in));
		push_u32(&w, (uint32_t)i);
		push_u32(&w, (uint32_t)(random() % (GOFER_OP_COUNT + 2)));
		push_u64(&w, random() % 4 ? 1ULL << 32 : (uint64_t)random());
		for (long n = random() % 12; n > 0; n--) {
			if (random() % 3 == 0)
				push_str(&w, random() % 2 ? "hello" : "../x");
			else
				push_u32(&w, random() % 2 ? (uint32_t)random() % 4
							  : (uint32_t)random() * 2);
		}
		nfds = 0;
		gofer_handle_message(g, in, w.used, out, fds, &nfds);
		for (unsigned k = 0; k < nfds; k++)
			close(fds[k]);
	}
	assert_int_equal(gofer_handle_message(g, in, 5, out, fds, &nfds), 0);
	gofer_server_destroy(g);
	close(at.dirfd);
	struct gofer_attr a;
	find("hello", &a);
	assert_int_equal(a.size, 11);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(walk_resolves_whole_path),
		T(walk_stops_at_symlink),
		T(dotdot_and_slashes_are_refused),
		T(open_donates_descriptor),
		T(swapped_name_is_stale),
		T(readdir_of_many),
		T(create_and_own),
		T(rename_moves_node),
		T(setattr_and_xattr),
		T(memory_files_come_in_pairs),
		T(tmpfile_gets_a_name),
		cmocka_unit_test_setup_teardown(readonly_refuses_every_change, setup_ro, teardown),
		T(many_threads_share_the_channel),
		T(hostile_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
