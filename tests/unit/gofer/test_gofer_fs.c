// SPDX-License-Identifier: Apache-2.0
/* The write-through file system below the VFS: coherence with a host that changes the same tree. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/size.h"
#include "gofer/gofer.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

static char dir[64];
static int dirfd_;
static pid_t pid;
static struct gofer_client *client;
static struct super *sb;
static struct inode *root;

static void host_write(const char *name, const char *text)
{
	int fd = openat(dirfd_, name, O_CREAT | O_TRUNC | O_WRONLY, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	usleep(2000); /* beyond the attribute window */
}

static int setup(void **state)
{
	int sv[2];

	(void)state;
	strcpy(dir, "/tmp/gofer-fs-XXXXXX");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	host_write("f", "host");
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	pid = fork();
	if (pid == 0) {
		struct gofer_attach at = { .dirfd = dirfd_, .file_ro = -1, .file_rw = -1 };
		struct gofer_conf conf = { .sock = sv[1], .nattach = 1, .attach = &at,
					   .memdirfd = -1, .diskdirfd = -1 };

		close(sv[0]);
		_exit(gofer_serve(&conf) != 0);
	}
	close(sv[1]);
	client = gofer_client_create(sv[0]);
	assert_false(is_err(client));
	sb = gofer_create_super(client, 0, 0, false);
	assert_false(is_err(sb));
	root = dentry_inode(sb->root);
	return 0;
}

static int teardown(void **state)
{
	char cmd[96];
	int status;

	(void)state;
	dentry_put(sb->root);
	sb->root = NULL;
	super_put(sb);
	gofer_client_put(client);
	waitpid(pid, &status, 0); /* ends only when the last reference is gone */
	close(dirfd_);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return status || system(cmd);
}

static struct inode *lookup(const char *name)
{
	mutex_lock(&root->mu);
	struct inode *i = root->ops->lookup(root, name);
	mutex_unlock(&root->mu);
	return i;
}

static void open_file(struct file *f, struct inode *i, unsigned flags)
{
	memset(f, 0, sizeof(*f));
	f->inode = i;
	f->fmode = FMODE_READ | ((flags & O_ACCMODE) == O_RDWR ? FMODE_WRITE : 0);
	atomic_store(&f->flags, flags);
	assert_int_equal(i->ops->open(i, f), 0);
}

static ssize_t rd(struct file *f, char *buf, size_t len, int64_t pos)
{
	struct iter it;

	iter_init_kernel(&it, buf, len);
	return f->ops->read(NULL, f, &it, &pos);
}

static ssize_t wr(struct file *f, char *buf, size_t len, int64_t *pos)
{
	struct iter it;

	iter_init_kernel(&it, buf, len);
	return f->ops->write(NULL, f, &it, pos);
}

static void host_changes_are_seen(void **state)
{
	char buf[16];
	struct file f;
	struct inode *i = lookup("f");

	(void)state;
	open_file(&f, i, O_RDONLY);
	assert_int_equal(rd(&f, buf, 16, 0), 4);
	host_write("f", "changed!");
	assert_int_equal(rd(&f, buf, 16, 0), 8);
	assert_int_equal(i->ops->getattr(i), 0);
	assert_int_equal(atomic_load(&i->size), 8);
	f.ops->release(&f);
	assert_int_equal(root->ops->revalidate(root, "f", i), 1);
	assert_int_equal(renameat(dirfd_, "f", dirfd_, "g"), 0);
	assert_int_equal(root->ops->revalidate(root, "f", i), 0);
	assert_int_equal(root->ops->revalidate(root, "nothing", NULL), 1);
	host_write("nothing", "");
	assert_int_equal(root->ops->revalidate(root, "nothing", NULL), 0);
	struct inode *g = lookup("g");
	assert_ptr_equal(g, i); /* the same file by another name */
	inode_put(g);
	inode_put(i);
}

static void guest_writes_reach_the_host(void **state)
{
	char text[] = "guest", buf[16];
	int64_t pos = 0;
	struct file f;

	(void)state;
	mutex_lock(&root->mu);
	struct inode *i = root->ops->create(root, "new", 0640, 5, 6);
	mutex_unlock(&root->mu);
	assert_false(is_err(i));
	open_file(&f, i, O_RDWR | O_APPEND);
	assert_int_equal(wr(&f, text, 5, &pos), 5);
	int fd = openat(dirfd_, "new", O_RDWR | O_APPEND);
	assert_int_equal(pread(fd, buf, 16, 0), 5);
	assert_memory_equal(buf, "guest", 5);
	assert_int_equal(write(fd, "!!", 2), 2);
	close(fd);
	pos = 0;
	assert_int_equal(wr(&f, text, 5, &pos), 5);
	assert_int_equal(pos, 12);
	struct iattr a = { .valid = ATTR_SIZE | ATTR_MODE, .size = 3, .mode = 0600 };
	mutex_lock(&i->mu);
	assert_int_equal(i->ops->setattr(i, &a), 0);
	mutex_unlock(&i->mu);
	struct stat st;
	assert_int_equal(fstatat(dirfd_, "new", &st, 0), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(st.st_uid, 5);
	f.ops->release(&f);
	inode_put(i);
}

static void deleted_open_file_goes_on(void **state)
{
	char buf[16];
	struct file f;
	struct inode *i = lookup("f");

	(void)state;
	open_file(&f, i, O_RDWR);
	mutex_lock(&root->mu);
	assert_int_equal(root->ops->unlink(root, "f", i), 0);
	mutex_unlock(&root->mu);
	assert_null(lookup("f"));
	assert_int_equal(rd(&f, buf, 16, 0), 4);
	assert_int_equal(i->ops->getattr(i), 0);
	assert_int_equal(i->nlink, 0);
	f.ops->release(&f);
	assert_int_equal(i->ops->getattr(i), 0);
	inode_put(i);
}

static void mapping_is_the_host_file(void **state)
{
	struct inode *i = lookup("f");
	struct mfile *mf;
	uint64_t len = PAGE_SIZE, off;

	(void)state;
	i->vmobj->ops->get(i->vmobj);
	assert_int_equal(i->vmobj->ops->translate(i->vmobj, 0, &len, true, &mf, &off), 0);
	assert_int_equal(off, 0);
	len = PAGE_SIZE;
	memcpy(mfile_ptr(mf, 0, &len), "MAPS", 4);
	mfile_put(mf);
	len = PAGE_SIZE;
	assert_int_equal(i->vmobj->ops->translate(i->vmobj, PAGE_SIZE, &len, false, &mf, &off),
			 -EFAULT);
	i->vmobj->ops->put(i->vmobj);
	char buf[8];
	int fd = openat(dirfd_, "f", O_RDONLY);
	assert_int_equal(read(fd, buf, 8), 4);
	assert_memory_equal(buf, "MAPS", 4);
	close(fd);
	inode_put(i);
}

struct names {
	struct dir_ctx ctx;
	unsigned n;
};

static bool take(struct dir_ctx *ctx, const char *name, size_t len, uint64_t ino, unsigned type,
		 int64_t next)
{
	(void)name, (void)len, (void)ino, (void)type, (void)next;
	container_of(ctx, struct names, ctx)->n++;
	return true;
}

static void listing_is_fresh_at_each_rewind(void **state)
{
	struct names n = { .ctx.emit = take };
	struct file f;
	int64_t pos = 0;

	(void)state;
	open_file(&f, root, O_RDONLY);
	assert_int_equal(f.ops->iterate(&f, &n.ctx, &pos), 0);
	assert_int_equal(n.n, 3);
	host_write("another", "");
	n.n = 0;
	assert_int_equal(f.ops->iterate(&f, &n.ctx, &pos), 0);
	assert_int_equal(n.n, 0);
	pos = 0;
	assert_int_equal(f.ops->iterate(&f, &n.ctx, &pos), 0);
	assert_int_equal(n.n, 4);
	f.ops->release(&f);
}

static int memfd_provider(int fds[2])
{
	char path[64];

	fds[0] = memfd_create("test", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	fds[1] = open(path, O_RDONLY | O_CLOEXEC);
	return 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(host_changes_are_seen),
		T(guest_writes_reach_the_host),
		T(deleted_open_file_goes_on),
		T(mapping_is_the_host_file),
		T(listing_is_fresh_at_each_rewind),
	};

	mfile_set_provider(memfd_provider);
	safecopy_init();
	clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
