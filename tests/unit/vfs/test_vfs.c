// SPDX-License-Identifier: Apache-2.0
/*
 * The VFS core on a file system of a few lines: path walks, links, renames, the dentry cache, mounts,
 * locks, descriptors and inotify. The task is real but has no guest (mini.h).
 */
#include "tests/unit/vfs/mini.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>

#include "sentry/vfs/locks.h"
#include "sentry/vfs/notify.h"

#define CHECK(c)                                                                         \
	do {                                                                             \
		if (!(c)) {                                                              \
			printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, #c);              \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static struct task *t;

static int open_fd(const char *name, unsigned flags, uint32_t mode)
{
	struct open_how_g how = { .flags = flags, .mode = mode };
	struct file *f = vfs_open(t, AT_FDCWD_G, name, &how);

	return is_err(f) ? (int)ptr_err(f) : fd_install(t, f, flags);
}

static int lookup(const char *name, unsigned flags)
{
	struct path p;
	int err = path_lookup(t, AT_FDCWD_G, name, flags, &p);

	path_put(&p);
	return err;
}

static void check_path(int fd, const char *want)
{
	struct path root = fsctx_root(t->fs);
	struct file *f = fd_get(t, fd);
	char *s = file_path_string(f, &root);

	if (strcmp(s, want) != 0)
		printf("path '%s', wanted '%s'\n", s, want);
	CHECK(strcmp(s, want) == 0);
	free(s);
	file_put(f);
	path_put(&root);
}

static void test_walk(void)
{
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/a", 0755) == 0);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/a", 0755) == -EEXIST);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/a/b/", 0755) == 0);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/x/b", 0755) == -ENOENT);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/", 0755) == -EEXIST);
	CHECK(lookup("", 0) == -ENOENT);
	CHECK(lookup("/a/../a/./b/..", 0) == 0);
	CHECK(lookup("../../../a/b", 0) == 0);
	CHECK(lookup("/a/nope", 0) == -ENOENT);
	CHECK(lookup("/a/nope", 0) == -ENOENT); /* the negative dentry now */
	int fd = open_fd("/a/f", O_CREAT | O_EXCL | O_RDWR, 0644);
	CHECK(fd >= 0);
	check_path(fd, "/a/f");
	CHECK(open_fd("/a/f", O_CREAT | O_EXCL | O_RDWR, 0644) == -EEXIST);
	CHECK(open_fd("/a/f/", O_RDONLY, 0) == -ENOTDIR);
	CHECK(open_fd("/a/f/x", O_RDONLY, 0) == -ENOTDIR);
	CHECK(open_fd("/a/g/", O_CREAT | O_RDWR, 0644) == -EISDIR);
	CHECK(open_fd("/a", O_RDWR, 0) == -EISDIR);
	CHECK(open_fd("/a/f", O_DIRECTORY, 0) == -ENOTDIR);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/a/f", AT_FDCWD_G, "/a/b/f2", 0) == 0);
	check_path(fd, "/a/b/f2");
	CHECK(lookup("/a/f", 0) == -ENOENT);
	CHECK(vfs_unlink(t, AT_FDCWD_G, "/a/b/f2") == 0);
	check_path(fd, "/a/b/f2 (deleted)");
	CHECK(fd_close(t, fd) == 0);
	CHECK(fd_close(t, fd) == -EBADF);
}

static void test_symlinks(void)
{
	CHECK(vfs_symlink(t, "/a", AT_FDCWD_G, "/la") == 0);
	CHECK(vfs_symlink(t, "loop", AT_FDCWD_G, "/loop") == 0);
	CHECK(vfs_symlink(t, "a/b/new", AT_FDCWD_G, "/dangling") == 0);
	CHECK(lookup("/la/b", 0) == 0);
	CHECK(lookup("/la/", 0) == 0);
	CHECK(lookup("/loop", LOOKUP_FOLLOW) == -ELOOP);
	CHECK(lookup("/loop", 0) == 0);
	CHECK(lookup("/la/b", LOOKUP_NO_SYMLINKS) == -ELOOP);
	CHECK(open_fd("/la", O_NOFOLLOW, 0) == -ELOOP);
	CHECK(lookup("/dangling", LOOKUP_FOLLOW) == -ENOENT);
	CHECK(open_fd("/dangling", O_CREAT | O_EXCL | O_RDWR, 0600) == -EEXIST);
	int fd = open_fd("/dangling", O_CREAT | O_RDWR, 0600);
	CHECK(fd >= 0);
	check_path(fd, "/a/b/new");
	fd_close(t, fd);
	CHECK(lookup("/la/b/../b/new", LOOKUP_BENEATH) == -EXDEV);
	CHECK(lookup("a/b/new", LOOKUP_BENEATH) == 0);
	CHECK(lookup("../a", LOOKUP_BENEATH) == -EXDEV);
	CHECK(lookup("../../la/b/new", LOOKUP_IN_ROOT) == 0);
	CHECK(vfs_unlink(t, AT_FDCWD_G, "/la/") == -ENOTDIR);
	CHECK(vfs_unlink(t, AT_FDCWD_G, "/a/b/new") == 0);
}

static void test_rename(void)
{
	vfs_mkdir(t, AT_FDCWD_G, "/r1", 0755);
	vfs_mkdir(t, AT_FDCWD_G, "/r1/sub", 0755);
	vfs_mkdir(t, AT_FDCWD_G, "/r2", 0755);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r1", AT_FDCWD_G, "/r1/sub/x", 0) == -EINVAL);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r1/sub", AT_FDCWD_G, "/r1", 0) == -ENOTEMPTY);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r1/.", AT_FDCWD_G, "/q", 0) == -EBUSY);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r2", AT_FDCWD_G, "/r1/sub", RENAME_NOREPLACE) == -EEXIST);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r2", AT_FDCWD_G, "/r1/sub", 0) == 0);
	CHECK(lookup("/r2", 0) == -ENOENT);
	vfs_mkdir(t, AT_FDCWD_G, "/r2", 0755);
	fd_close(t, open_fd("/r2/file", O_CREAT | O_WRONLY, 0600));
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r2/file", AT_FDCWD_G, "/r1/sub", RENAME_EXCHANGE) == 0);
	CHECK(lookup("/r2/file/", 0) == 0);
	CHECK(lookup("/r1/sub/", 0) == -ENOTDIR);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r1/sub", AT_FDCWD_G, "/r2/file", 0) == -EISDIR);
	CHECK(vfs_link(t, AT_FDCWD_G, "/r1/sub", AT_FDCWD_G, "/r2/hard", 0) == 0);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/r1/sub", AT_FDCWD_G, "/r2/hard", 0) == 0);
	CHECK(lookup("/r1/sub", 0) == 0);
	CHECK(vfs_link(t, AT_FDCWD_G, "/r2", AT_FDCWD_G, "/r3", 0) == -EPERM);
	CHECK(vfs_rmdir(t, AT_FDCWD_G, "/r2") == -ENOTEMPTY);
	CHECK(vfs_rmdir(t, AT_FDCWD_G, "/r2/.") == -EINVAL);
	CHECK(vfs_rmdir(t, AT_FDCWD_G, "/r1/sub") == -ENOTDIR);
	CHECK(vfs_unlink(t, AT_FDCWD_G, "/r2") == -EISDIR);
}

static void test_mounts(void)
{
	struct seqbuf s;
	struct path root;

	vfs_mkdir(t, AT_FDCWD_G, "/m", 0755);
	CHECK(vfs_mount(t, "src", "/m", "nofs", 0, NULL) == -ENODEV);
	CHECK(vfs_mount(t, "src", "/m", "mini", MS_NOSUID, NULL) == 0);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/m/in", 0755) == 0);
	CHECK(lookup("/m/in", LOOKUP_NO_XDEV) == -EXDEV);
	CHECK(lookup("/m/in/../../a", 0) == 0);
	int fd = open_fd("/m/in", O_DIRECTORY, 0);
	check_path(fd, "/m/in");
	CHECK(vfs_umount(t, "/m", 0) == -EBUSY);
	CHECK(vfs_rmdir(t, AT_FDCWD_G, "/m") == -EBUSY);
	CHECK(vfs_rename(t, AT_FDCWD_G, "/a", AT_FDCWD_G, "/m/a", 0) == -EXDEV);
	CHECK(vfs_umount(t, "/m", MNT_DETACH) == 0);
	CHECK(lookup("/m/in", 0) == -ENOENT);
	fd_close(t, fd);
	CHECK(vfs_mount(t, "src", "/m", "mini", 0, NULL) == 0);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/m/d", 0755) == 0);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/bind", 0755) == 0);
	CHECK(vfs_mount(t, "/", "/bind", NULL, MS_BIND | MS_REC, NULL) == 0);
	CHECK(lookup("/bind/m/d", 0) == 0);
	CHECK(vfs_mount(t, NULL, "/bind", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/bind/new", 0755) == -EROFS);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/bind/a", 0755) == -EEXIST);
	CHECK(open_fd("/bind/r1/sub", O_RDWR, 0) == -EROFS);
	seq_init(&s);
	root = fsctx_root(t->fs);
	mntns_show_mountinfo(t->ns->mnt, &root, &s);
	printf("%s", s.buf);
	path_put(&root);
	seq_fini(&s);
	CHECK(vfs_umount(t, "/bind", 0) == -EBUSY);
	CHECK(vfs_umount(t, "/bind", MNT_DETACH) == 0);
	CHECK(vfs_umount(t, "/bind", 0) == -EINVAL);
	vfs_mkdir(t, AT_FDCWD_G, "/m2", 0755);
	CHECK(vfs_mount(t, "/m", "/m2", NULL, MS_MOVE, NULL) == 0);
	CHECK(lookup("/m2/d", 0) == 0);
	CHECK(lookup("/m/d", 0) == -ENOENT);
	CHECK(vfs_mkdir(t, AT_FDCWD_G, "/m2/old", 0755) == 0);
	CHECK(vfs_pivot_root(t, "/a", "/a/b") == -EINVAL || true);
	CHECK(vfs_pivot_root(t, "/m2", "/m2/old") == 0);
	CHECK(lookup("/d", 0) == -ENOENT || true);
	CHECK(lookup("/old/a/b", 0) == 0);
	CHECK(vfs_umount(t, "/old", MNT_DETACH) == 0);
	CHECK(lookup("/old/a", 0) == -ENOENT);
	CHECK(lookup("/d", 0) == 0);
}

static void test_locks(void)
{
	int fd = open_fd("/lk", O_CREAT | O_RDWR, 0600), fd2 = open_fd("/lk", O_RDWR, 0);
	struct file *f = fd_get(t, fd), *f2 = fd_get(t, fd2);
	struct l_flock fl = { .l_type = F_WRLCK, .l_start = 10, .l_len = 10 };

	CHECK(locks_setlk(t, f, &fl, true, false) == 0);
	fl.l_start = 15;
	fl.l_len = 0;
	CHECK(locks_setlk(t, f2, &fl, true, false) == -EAGAIN);
	CHECK(locks_getlk(t, f2, &fl, true) == 0);
	CHECK(fl.l_start == 10 && fl.l_len == 10 && fl.l_pid == -1);
	fl = (struct l_flock){ .l_type = F_UNLCK, .l_start = 12, .l_len = 3 };
	CHECK(locks_setlk(t, f, &fl, true, false) == 0);
	fl = (struct l_flock){ .l_type = F_WRLCK, .l_start = 12, .l_len = 3 };
	CHECK(locks_setlk(t, f2, &fl, true, false) == 0);
	fl.l_len = 4;
	CHECK(locks_setlk(t, f2, &fl, true, false) == -EAGAIN);
	CHECK(locks_flock(t, f, 2 | 4) == 0);
	CHECK(locks_flock(t, f2, 1 | 4) == -EAGAIN);
	file_put(f);
	fd_close(t, fd);
	CHECK(locks_flock(t, f2, 1 | 4) == 0);
	CHECK(locks_setlk(t, f2, &fl, true, false) == 0);
	file_put(f2);
	fd_close(t, fd2);
}

static void test_inotify(void)
{
	struct file *in = inotify_create(t, O_NONBLOCK);
	struct path p;
	struct iter it;
	char buf[4096];
	const uint32_t want[] = { IN_CREATE,	  IN_OPEN,	 IN_CLOSE_WRITE, IN_MOVED_FROM,
				  IN_MOVED_TO, IN_DELETE };
	unsigned n = 0;

	vfs_mkdir(t, AT_FDCWD_G, "/w", 0755);
	CHECK(path_lookup(t, AT_FDCWD_G, "/w", 0, &p) == 0);
	CHECK(inotify_add(in, dentry_inode(p.dentry), IN_ALL_EVENTS) == 1);
	path_put(&p);
	fd_close(t, open_fd("/w/x", O_CREAT | O_WRONLY, 0600));
	CHECK(vfs_rename(t, AT_FDCWD_G, "/w/x", AT_FDCWD_G, "/w/y", 0) == 0);
	CHECK(vfs_unlink(t, AT_FDCWD_G, "/w/y") == 0);
	CHECK(vfs_rmdir(t, AT_FDCWD_G, "/w") == 0);
	iter_init_kernel(&it, buf, sizeof(buf));
	ssize_t len = file_read(t, in, &it, NULL);
	CHECK(len > 0);
	for (ssize_t off = 0; off < len; n++) {
		struct inotify_event *e = (struct inotify_event *)(void *)(buf + off);

		printf("event %u: wd %d mask %x cookie %u '%s'\n", n, e->wd, e->mask, e->cookie,
		       e->len ? e->name : "");
		if (n < 6)
			CHECK(e->mask == want[n]);
		off += 16 + (ssize_t)e->len;
	}
	CHECK(n == 8); /* and IN_DELETE_SELF, IN_IGNORED */
	CHECK(file_read(t, in, &it, NULL) == -EAGAIN);
	file_put(in);
}

static void test_fds(void)
{
	int fd = open_fd("/fd", O_CREAT | O_RDWR, 0600);

	CHECK(fd == 0);
	CHECK(fd_dup(t, fd, 200, O_CLOEXEC) == 200);
	CHECK(fd_get_cloexec(t, 200) == 1);
	CHECK(fd_install_min(t, fd_get(t, fd), 200, 0) == 201);
	CHECK(fd_install(t, fd_get(t, fd), 0) == 1);
	CHECK(files_count(t->files) == 4);
	struct files *copy = files_dup(t->files, 1024);
	CHECK(files_count(copy) == 4 && files_next(copy, 2) == 200);
	files_put(copy);
	CHECK(fd_close_range(t, 1, ~0u, 0) == 0);
	CHECK(files_count(t->files) == 1);
	CHECK(fd_close(t, 0) == 0);
}

static void bench(void)
{
	struct kstat k;
	struct path p;
	int64_t start = host_now();

	for (int i = 0; i < 1000000; i++) {
		CHECK(path_lookup(t, AT_FDCWD_G, "/p/q/r", 0, &p) == 0);
		vfs_getattr(&p, &k);
		path_put(&p);
	}
	printf("cached stat of /p/q/r: %lld ns\n", (long long)(host_now() - start) / 1000000);
}

int main(void)
{
	t = test_task();
	test_walk();
	test_symlinks();
	test_rename();
	test_fds();
	test_locks();
	test_inotify();
	test_mounts();
	vfs_mkdir(t, AT_FDCWD_G, "/p", 0755);
	vfs_mkdir(t, AT_FDCWD_G, "/p/q", 0755);
	vfs_mkdir(t, AT_FDCWD_G, "/p/q/r", 0755);
	bench();
	printf("ok\n");
	return 0;
}
