// SPDX-License-Identifier: Apache-2.0
/*
 * tmpfs and the overlay root below the VFS: inode and file operations are called directly, with kernel
 * buffers. The overlay's gofer runs in a forked child over a temporary directory.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
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
#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

#define BIG (3u << 20)

static struct super *sb;
static struct inode *root;

/* ---- helpers: what the VFS does around the operations ---- */

static struct inode *lookup(struct inode *dir, const char *name)
{
	mutex_lock(&dir->mu);
	struct inode *i = dir->ops->lookup(dir, name);
	mutex_unlock(&dir->mu);
	return i;
}

static struct inode *create(struct inode *dir, const char *name, uint32_t mode)
{
	mutex_lock(&dir->mu);
	struct inode *i = S_ISDIR(mode) ? dir->ops->mkdir(dir, name, mode & 07777, 0, 0)
					: dir->ops->create(dir, name, mode & 07777, 0, 0);
	mutex_unlock(&dir->mu);
	return i;
}

static struct inode *must(struct inode *i)
{
	assert_non_null(i);
	assert_false(is_err(i));
	return i;
}

static int setsize(struct inode *i, uint64_t size)
{
	struct iattr a = { .valid = ATTR_SIZE, .size = size };

	mutex_lock(&i->mu);
	int err = i->ops->setattr(i, &a);
	mutex_unlock(&i->mu);
	return err;
}

static int remove_name(struct inode *dir, const char *name, bool isdir)
{
	struct inode *i = lookup(dir, name);
	int err;

	if (!i || is_err(i))
		return i ? (int)ptr_err(i) : -ENOENT;
	mutex_lock(&dir->mu);
	mutex_lock_nested(&i->mu);
	err = isdir ? dir->ops->rmdir(dir, name, i) : dir->ops->unlink(dir, name, i);
	mutex_unlock(&i->mu);
	mutex_unlock(&dir->mu);
	inode_put(i);
	return err;
}

static int move(struct inode *from, const char *old, struct inode *to, const char *new,
		unsigned flags)
{
	struct inode *i = lookup(from, old), *victim = lookup(to, new);

	/* The ancestor first; here that is the root, if it takes part. */
	struct inode *first = to == root ? to : from, *second = first == to ? from : to;

	mutex_lock(&first->mu);
	if (to != from)
		mutex_lock_nested(&second->mu);
	int err = from->ops->rename(from, old, must(i), to, new, victim, flags);
	if (to != from)
		mutex_unlock(&to->mu);
	mutex_unlock(&from->mu);
	inode_put(i);
	inode_put(victim);
	return err;
}

static void fake_open(struct file *f, struct inode *i, unsigned flags)
{
	memset(f, 0, sizeof(*f));
	f->inode = i;
	f->ops = i->fops;
	f->fmode = FMODE_READ | FMODE_WRITE;
	atomic_store(&f->flags, flags);
}

static ssize_t pw(struct inode *i, const void *buf, size_t len, int64_t pos)
{
	struct file f;
	struct iter it;

	fake_open(&f, i, O_RDWR);
	iter_init_kernel(&it, (void *)(uintptr_t)buf, len);
	return f.ops->write(NULL, &f, &it, &pos);
}

static ssize_t pr(struct inode *i, void *buf, size_t len, int64_t pos)
{
	struct file f;
	struct iter it;

	fake_open(&f, i, O_RDWR | O_NOATIME);
	iter_init_kernel(&it, buf, len);
	return f.ops->read(NULL, &f, &it, &pos);
}

static void check_zero(struct inode *i, uint64_t off, size_t len)
{
	char *buf = malloc(len);

	assert_int_equal(pr(i, buf, len, (int64_t)off), (ssize_t)len);
	for (size_t k = 0; k < len; k++)
		assert_int_equal(buf[k], 0);
	free(buf);
}

struct names {
	struct dir_ctx ctx;
	unsigned n, max;
	char last[NAME_MAX_G + 1];
	bool seen_x;
};

static bool take(struct dir_ctx *ctx, const char *name, size_t len, uint64_t ino, unsigned type,
		 int64_t next)
{
	struct names *n = container_of(ctx, struct names, ctx);

	(void)ino, (void)type, (void)next;
	if (n->n == n->max)
		return false;
	n->n++;
	n->seen_x |= strcmp(name, "x") == 0;
	memcpy(n->last, name, len);
	n->last[len] = 0;
	return true;
}

static unsigned list(struct inode *dir, int64_t *pos, unsigned max, struct names *ret)
{
	struct file f;

	*ret = (struct names){ .ctx.emit = take, .max = max };
	fake_open(&f, dir, O_RDONLY);
	assert_int_equal(f.ops->iterate(&f, &ret->ctx, pos), 0);
	return ret->n;
}

static int setup(void **state)
{
	(void)state;
	sb = tmpfs_create_super(0, "size=16m,nr_inodes=50000");
	assert_false(is_err(sb));
	root = dentry_inode(sb->root);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (sb) { /* what the last umount does */
		dentry_put(sb->root);
		sb->root = NULL;
		super_put(sb);
	}
	return 0;
}

/* ---- tmpfs ---- */

static void write_and_read_back(void **state)
{
	char buf[32];
	struct inode *i = must(create(root, "f", S_IFREG | 0644));

	(void)state;
	assert_int_equal(pw(i, "hello", 5, 0), 5);
	assert_int_equal(pr(i, buf, sizeof(buf), 0), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(pr(i, buf, sizeof(buf), 5), 0);
	assert_int_equal(pw(i, "end", 3, 10000), 3);
	assert_int_equal(atomic_load(&i->size), 10003);
	check_zero(i, 5, 9995);
	assert_int_equal(pr(i, buf, 8, 9998), 5);
	assert_memory_equal(buf, "\0\0end", 5);
	inode_put(i);
}

static void append_obeys_o_append(void **state)
{
	struct inode *i = must(create(root, "f", S_IFREG | 0644));
	struct file f;
	struct iter it;
	int64_t pos = 0;
	char text[] = "xy";

	(void)state;
	assert_int_equal(pw(i, "abc", 3, 0), 3);
	fake_open(&f, i, O_RDWR | O_APPEND);
	iter_init_kernel(&it, text, 2);
	assert_int_equal(f.ops->write(NULL, &f, &it, &pos), 2);
	assert_int_equal(pos, 5);
	inode_put(i);
}

static void many_appends(void **state)
{
	struct inode *i = must(create(root, "f", S_IFREG | 0644));
	struct file f;
	uint32_t v;

	(void)state;
	for (uint32_t k = 0; k < 500000; k++)
		assert_int_equal(pw(i, &k, 4, 4 * (int64_t)k), 4);
	for (uint32_t k = 0; k < 500000; k += 97) {
		assert_int_equal(pr(i, &v, 4, 4 * (int64_t)k), 4);
		assert_int_equal(v, k);
	}
	fake_open(&f, i, O_RDWR);
	f.ops->release(&f);
	i->ops->getattr(i);
	assert_int_equal(i->blocks, page_up(2000000) / 512);
	inode_put(i);
}

static void truncate_zeroes_tail(void **state)
{
	char *buf = malloc(20000);
	struct inode *i = must(create(root, "f", S_IFREG | 0644));

	(void)state;
	memset(buf, 'a', 20000);
	assert_int_equal(pw(i, buf, 20000, 0), 20000);
	assert_int_equal(setsize(i, 5000), 0);
	assert_int_equal(setsize(i, 20000), 0);
	check_zero(i, 5000, 15000);
	assert_int_equal(pr(i, buf, 1, 4999), 1);
	assert_int_equal(buf[0], 'a');
	i->ops->getattr(i);
	assert_int_equal(i->blocks, 16);
	free(buf);
	inode_put(i);
}

static void fallocate_modes_and_seek(void **state)
{
	char *buf = malloc(65536);
	struct inode *i = must(create(root, "f", S_IFREG | 0644));
	struct file f;

	(void)state;
	memset(buf, 'b', 65536);
	assert_int_equal(pw(i, buf, 65536, 0), 65536);
	fake_open(&f, i, O_RDWR);
	assert_int_equal(f.ops->fallocate(&f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000,
					  20000), 0);
	check_zero(i, 5000, 20000);
	assert_int_equal(pr(i, buf, 1, 25000), 1);
	assert_int_equal(buf[0], 'b');
	assert_int_equal(f.ops->llseek(&f, 0, SEEK_HOLE), 8192);
	assert_int_equal(f.ops->llseek(&f, 8192, SEEK_DATA), 24576);
	assert_int_equal(f.ops->llseek(&f, 30000, SEEK_HOLE), 65536);
	assert_int_equal(f.ops->llseek(&f, 65536, SEEK_DATA), -ENXIO);
	assert_int_equal(f.ops->fallocate(&f, 0, 65536, 10), 0);
	assert_int_equal(atomic_load(&i->size), 65546);
	assert_int_equal(f.ops->fallocate(&f, FALLOC_FL_KEEP_SIZE, 100000, 4096), 0);
	assert_int_equal(atomic_load(&i->size), 65546);
	assert_int_equal(f.ops->fallocate(&f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
	assert_int_equal(f.ops->fallocate(&f, FALLOC_FL_ZERO_RANGE, 0, 4096), 0);
	check_zero(i, 0, 4096);
	free(buf);
	inode_put(i);
}

static void size_limit_is_enospc(void **state)
{
	char *buf = calloc(1, BIG);
	struct inode *i = must(create(root, "f", S_IFREG | 0644));
	struct statfs_g st;
	ssize_t n = 0, r;

	(void)state;
	while ((r = pw(i, buf, BIG, n)) > 0)
		n += r;
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(n, 16 << 20);
	assert_int_equal(sb->ops->statfs(sb, &st), 0);
	assert_int_equal(st.f_bfree, 0);
	assert_int_equal(st.f_blocks, 4096);
	assert_int_equal(setsize(i, 0), 0);
	assert_int_equal(sb->ops->statfs(sb, &st), 0);
	assert_int_equal(st.f_bfree, 4096);
	free(buf);
	inode_put(i);
}

static void large_directory_lists_stably(void **state)
{
	char name[32];
	int64_t pos = 0;
	struct names n;
	unsigned total = 0;

	(void)state;
	for (int k = 0; k < 40000; k++) {
		snprintf(name, sizeof(name), "n%d", k);
		inode_put(must(create(root, name, S_IFREG | 0600)));
	}
	while (list(root, &pos, 1000, &n)) {
		total += n.n;
		if (total == 3000) { /* behind the position: no effect; before it: skipped */
			assert_int_equal(remove_name(root, "n5", false), 0);
			assert_int_equal(remove_name(root, "n30000", false), 0);
		}
	}
	assert_int_equal(total, 40001);
	assert_int_equal(root->nlink, 2);
}

static void rename_rules(void **state)
{
	struct inode *a, *b, *f;

	(void)state;
	a = must(create(root, "a", S_IFDIR | 0755));
	b = must(create(root, "b", S_IFDIR | 0755));
	f = must(create(a, "f", S_IFREG | 0644));
	assert_int_equal(root->nlink, 4);
	assert_int_equal(move(root, "a", root, "b", 0), 0); /* b is empty */
	assert_int_equal(b->nlink, 0);
	assert_int_equal(root->nlink, 3);
	assert_int_equal(remove_name(root, "b", true), -ENOTEMPTY);
	inode_put(must(create(root, "c", S_IFREG | 0644)));
	assert_int_equal(move(root, "b", root, "c", RENAME_EXCHANGE), 0);
	struct inode *c = must(lookup(root, "c"));
	assert_ptr_equal(c, a);
	assert_int_equal(move(a, "f", root, "g", RENAME_WHITEOUT), 0);
	struct inode *w = must(lookup(a, "f"));
	assert_true(S_ISCHR(w->mode));
	assert_int_equal(w->rdev, 0);
	inode_put(w);
	inode_put(c);
	inode_put(f);
	inode_put(a);
	inode_put(b);
}

static void deep_tree_is_freed_without_recursion(void **state)
{
	struct inode *dir = inode_get(root);

	(void)state;
	for (int k = 0; k < 30000; k++) {
		struct inode *next = must(create(dir, "d", S_IFDIR | 0755));

		inode_put(dir);
		dir = next;
	}
	inode_put(dir);
}

static void hard_links_and_tmpfile(void **state)
{
	struct inode *i;

	(void)state;
	mutex_lock(&root->mu);
	i = must(root->ops->tmpfile(root, 0644, 0, 0));
	assert_int_equal(i->nlink, 0);
	assert_int_equal(root->ops->link(root, "named", i), 0);
	assert_int_equal(root->ops->link(root, "again", i), 0);
	assert_int_equal(root->ops->link(root, "again", i), -EEXIST);
	mutex_unlock(&root->mu);
	assert_int_equal(i->nlink, 2);
	assert_int_equal(remove_name(root, "named", false), 0);
	assert_int_equal(i->nlink, 1);
	inode_put(i);
}

static void xattrs(void **state)
{
	char buf[64];
	struct inode *i = must(create(root, "f", S_IFREG | 0644));

	(void)state;
	assert_int_equal(i->ops->getxattr(i, "user.a", buf, 64), -ENODATA);
	assert_int_equal(i->ops->setxattr(i, "user.a", "12", 2, 0), 0);
	assert_int_equal(i->ops->setxattr(i, "user.a", "12", 2, 1), -EEXIST);
	assert_int_equal(i->ops->setxattr(i, "user.b", "12", 2, 2), -ENODATA);
	assert_int_equal(i->ops->setxattr(i, "system.posix_acl_access", "1", 1, 0), -EOPNOTSUPP);
	assert_int_equal(i->ops->getxattr(i, "user.a", buf, 1), -ERANGE);
	assert_int_equal(i->ops->getxattr(i, "user.a", buf, 0), 2);
	assert_int_equal(i->ops->listxattr(i, buf, 64), 7);
	assert_int_equal(i->ops->removexattr(i, "user.a"), 0);
	inode_put(i);
}

static void bad_options_are_refused(void **state)
{
	(void)state;
	assert_int_equal(ptr_err(tmpfs_create_super(0, "size=1m,nonsense=1")), -EINVAL);
	assert_int_equal(ptr_err(tmpfs_create_super(0, "size=x")), -EINVAL);
	assert_int_equal(ptr_err(tmpfs_create_super(0, "mode=9")), -EINVAL);
}

/* ---- mapping ---- */

/* What a stub would see at file offset @off: through the mfile that translate() names. */
static void map_read(struct inode *i, uint64_t off, bool write, char *buf, size_t len)
{
	struct mfile *mf;
	uint64_t moff, n = PAGE_SIZE, room = PAGE_SIZE;

	assert_int_equal(i->vmobj->ops->translate(i->vmobj, off, &n, write, &mf, &moff), 0);
	memcpy(buf, mfile_cptr(mf, moff, &room), len);
	mfile_put(mf);
}

static void first_mapping_moves_the_file_out(void **state)
{
	char buf[16];
	struct mfile *a, *b;
	uint64_t off, n = PAGE_SIZE;
	struct inode *i = must(create(root, "f", S_IFREG | 0644));
	struct inode *j = must(create(root, "g", S_IFREG | 0644));

	(void)state;
	assert_int_equal(pw(i, "first", 5, 0), 5);
	assert_int_equal(pw(j, "secret", 6, 0), 6);
	assert_int_equal(i->vmobj->ops->translate(i->vmobj, 4096, &n, false, &a, &off), -EFAULT);
	map_read(i, 0, false, buf, 5);
	assert_memory_equal(buf, "first", 5);
	n = PAGE_SIZE;
	assert_int_equal(i->vmobj->ops->translate(i->vmobj, 0, &n, true, &a, &off), 0);
	n = PAGE_SIZE;
	assert_int_equal(j->vmobj->ops->translate(j->vmobj, 0, &n, true, &b, &off), 0);
	assert_ptr_not_equal(a, b); /* no descriptor reaches two files */
	mfile_put(a);
	mfile_put(b);
	/* Reads, writes and the mapping see the same bytes. */
	assert_int_equal(pw(i, "F", 1, 0), 1);
	map_read(i, 0, false, buf, 5);
	assert_memory_equal(buf, "First", 5);
	inode_put(i);
	inode_put(j);
}

static void *write_pattern(void *arg)
{
	struct inode *i = arg;
	static const char text[] = "0123456789abcdef";

	for (int k = 0; k < 20000; k++)
		if (pw(i, text, 16, 16 * (int64_t)k) != 16)
			return (void *)1;
	return NULL;
}

/* The file moves to another mfile in the middle of writes: none is lost. */
static void moving_loses_no_write(void **state)
{
	char buf[16];
	void *ret;

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct inode *i = must(create(root, "moving", S_IFREG | 0644));
		pthread_t t;

		assert_int_equal(pw(i, "x", 1, 0), 1);
		pthread_create(&t, NULL, write_pattern, i);
		usleep(100 * (unsigned)round);
		map_read(i, 0, true, buf, 1);
		pthread_join(t, &ret);
		assert_null(ret);
		for (int k = 0; k < 20000; k++) {
			assert_int_equal(pr(i, buf, 16, 16 * (int64_t)k), 16);
			assert_memory_equal(buf, "0123456789abcdef", 16);
		}
		assert_int_equal(remove_name(root, "moving", false), 0);
		inode_put(i);
	}
}

/* ---- overlay ---- */

static char lower_dir[64];
static pid_t gofer_pid;
static struct gofer_client *client;

static void lower_file(const char *name, const char *text, size_t len)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", lower_dir, name);
	int fd = open(path, O_CREAT | O_WRONLY, 0640);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	close(fd);
}

static int setup_overlay(void **state)
{
	char big[10000], path[128], path2[128];
	int sv[2];

	(void)state;
	strcpy(lower_dir, "/tmp/overlay-test-XXXXXX");
	assert_non_null(mkdtemp(lower_dir));
	memset(big, 'L', sizeof(big));
	lower_file("x", "lower", 5);
	lower_file("big", big, sizeof(big));
	snprintf(path, sizeof(path), "%s/dir", lower_dir);
	assert_int_equal(mkdir(path, 0755), 0);
	lower_file("dir/inner", "inner", 5);
	snprintf(path, sizeof(path), "%s/x", lower_dir);
	snprintf(path2, sizeof(path2), "%s/hard", lower_dir);
	assert_int_equal(link(path, path2), 0);
	snprintf(path, sizeof(path), "%s/sym", lower_dir);
	assert_int_equal(symlink("target", path), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	gofer_pid = fork();
	if (gofer_pid == 0) {
		struct gofer_attach at = { .dirfd = open(lower_dir, O_PATH), .readonly = true };
		struct gofer_conf conf = { .sock = sv[1], .nattach = 1, .attach = &at,
					   .memdirfd = -1, .diskdirfd = -1 };

		close(sv[0]);
		_exit(gofer_serve(&conf) != 0);
	}
	close(sv[1]);
	client = gofer_client_create(sv[0]);
	assert_false(is_err(client));
	sb = overlay_create_super(client, 0, 0, 0);
	root = dentry_inode(sb->root);
	return 0;
}

static int teardown_overlay(void **state)
{
	char cmd[96];

	int status;

	teardown(state);
	gofer_client_put(client);
	waitpid(gofer_pid, &status, 0); /* ends only when the last reference on the client is gone */
	assert_int_equal(status, 0);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", lower_dir);
	return system(cmd);
}

static void overlay_reads_and_copies_up_pages(void **state)
{
	char buf[16];
	struct inode *i = must(lookup(root, "big"));
	uint64_t ino = i->ino;

	(void)state;
	assert_int_equal(i->mode, S_IFREG | 0640);
	assert_int_equal(pr(i, buf, 4, 9998), 2);
	assert_memory_equal(buf, "LL", 2);
	assert_int_equal(pw(i, "up", 2, 5000), 2);
	assert_int_equal(pr(i, buf, 6, 4998), 6);
	assert_memory_equal(buf, "LLupLL", 6);
	assert_int_equal(pr(i, buf, 2, 0), 2);
	assert_memory_equal(buf, "LL", 2);
	assert_int_equal(i->ino, ino);
	/* Shrinking and growing shows zeroes, not the lower. */
	assert_int_equal(setsize(i, 100), 0);
	assert_int_equal(setsize(i, 10000), 0);
	check_zero(i, 100, 9900);
	assert_int_equal(pr(i, buf, 2, 98), 2);
	assert_memory_equal(buf, "LL", 2);
	inode_put(i);
}

static void overlay_maps_lower_then_upper(void **state)
{
	char buf[8];
	struct inode *i = must(lookup(root, "big"));

	(void)state;
	map_read(i, 4096, false, buf, 2);
	assert_memory_equal(buf, "LL", 2);
	assert_int_equal(pw(i, "up", 2, 4096), 2);
	map_read(i, 4096, false, buf, 4);
	assert_memory_equal(buf, "upLL", 4);
	map_read(i, 0, false, buf, 2);
	assert_memory_equal(buf, "LL", 2);
	map_read(i, 0, true, buf, 2);
	assert_memory_equal(buf, "LL", 2);
	inode_put(i);
}

static void overlay_whiteouts_and_listing(void **state)
{
	int64_t pos = 0;
	struct names n;

	(void)state;
	assert_null(lookup(root, "missing"));
	assert_int_equal(remove_name(root, "x", false), 0);
	assert_null(lookup(root, "x"));
	assert_int_equal(list(root, &pos, 100, &n), 6); /* . .. big dir hard sym */
	assert_false(n.seen_x);
	inode_put(must(create(root, "x", S_IFREG | 0600)));
	pos = 0;
	assert_int_equal(list(root, &pos, 100, &n), 7);
	assert_true(n.seen_x);
	assert_int_equal(remove_name(root, "dir", true), -ENOTEMPTY);
	struct inode *dir = must(lookup(root, "dir"));
	assert_int_equal(remove_name(dir, "inner", false), 0);
	inode_put(dir);
	assert_int_equal(remove_name(root, "dir", true), 0);
}

static void overlay_hard_links_stay(void **state)
{
	char buf[8];
	struct inode *a = must(lookup(root, "x")), *b = must(lookup(root, "hard"));

	(void)state;
	assert_ptr_equal(a, b);
	assert_int_equal(a->nlink, 2);
	assert_int_equal(pw(a, "U", 1, 0), 1);
	assert_int_equal(pr(b, buf, 5, 0), 5);
	assert_memory_equal(buf, "Uower", 5);
	assert_int_equal(remove_name(root, "x", false), 0);
	assert_int_equal(b->nlink, 1);
	inode_put(a);
	inode_put(b);
}

static void overlay_renames_directories(void **state)
{
	char buf[8];
	struct inode *d, *i;
	char *t;

	(void)state;
	assert_int_equal(move(root, "dir", root, "moved", 0), 0);
	assert_null(lookup(root, "dir"));
	d = must(lookup(root, "moved"));
	i = must(lookup(d, "inner"));
	assert_int_equal(pr(i, buf, 8, 0), 5);
	assert_memory_equal(buf, "inner", 5);
	inode_put(i);
	inode_put(d);
	/* A new directory of the old name is empty. */
	d = must(create(root, "dir", S_IFDIR | 0755));
	assert_null(lookup(d, "inner"));
	inode_put(d);
	i = must(lookup(root, "sym"));
	t = i->ops->readlink(i);
	assert_string_equal(t, "target");
	free(t);
	inode_put(i);
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
#define O(f) cmocka_unit_test_setup_teardown(f, setup_overlay, teardown_overlay)
	const struct CMUnitTest tests[] = {
		T(write_and_read_back),
		T(append_obeys_o_append),
		T(many_appends),
		T(truncate_zeroes_tail),
		T(fallocate_modes_and_seek),
		T(size_limit_is_enospc),
		T(large_directory_lists_stably),
		T(rename_rules),
		T(deep_tree_is_freed_without_recursion),
		T(hard_links_and_tmpfile),
		T(xattrs),
		T(bad_options_are_refused),
		T(first_mapping_moves_the_file_out),
		T(moving_loses_no_write),
		O(overlay_reads_and_copies_up_pages),
		O(overlay_maps_lower_then_upper),
		O(overlay_whiteouts_and_listing),
		O(overlay_hard_links_stay),
		O(overlay_renames_directories),
	};

	mfile_set_provider(memfd_provider);
	safecopy_init();
	clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
