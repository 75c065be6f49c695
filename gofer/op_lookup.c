// SPDX-License-Identifier: Apache-2.0
/* Operations that change nothing: hello, walk, readdir, open, attributes; and memory
 * files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gofer/priv.h"

#define DENTS_BUF 32768

/* Bytes that one readdir entry takes beside its name. */
#define READDIR_ENTRY_SIZE (8 + 4 + GOFER_ATTR_SIZE)
/* And one component of a walk beside its target. */
#define WALK_ENTRY_SIZE (8 + GOFER_ATTR_SIZE + 4)

int op_hello(struct req *r)
{
	struct gofer *g = r->g;
	uint32_t version = pull_u32(r->in);

	if (!cursor_done(r->in))
		return -EINVAL;
	if (version != GOFER_VERSION)
		return -EPROTONOSUPPORT;
	push_u32(r->out, GOFER_VERSION);
	push_u32(r->out, g->nattach);
	for (unsigned i = 0; i < g->nattach; i++) {
		struct node *n = g->attach[i].root;
		struct gofer_attr a;
		int err = stat_at(g, i, n->fd, "", &a);

		if (err)
			return err;
		push_u64(r->out, node_id(n));
		push_u8(r->out, g->attach[i].readonly);
		gofer_push_attr(r->out, &a);
	}
	g->greeted = true;
	return 0;
}

static int read_link(int dirfd, const char *name, char buf[GOFER_PATH_MAX])
{
	ssize_t n = readlinkat(dirfd, name, buf, GOFER_PATH_MAX); /* host: readlinkat */

	if (n < 0)
		return -errno;
	if (n >= GOFER_PATH_MAX)
		return -ENAMETOOLONG;
	buf[n] = 0;
	return 0;
}

/* One component of a walk: a new node below @dir. The descriptor is left to be opened on
 * demand. */
static int walk_one(struct req *r, struct node *dir, const char *name, struct node **ret)
{
	AUTO_FREE char *target = NULL;
	struct gofer_attr a;

	if (!S_ISDIR(dir->type))
		return -ENOTDIR;
	int dfd = node_fd(r->g, dir);
	if (dfd < 0)
		return dfd;
	int err = stat_at(r->g, dir->attach, dfd, name, &a);
	if (err)
		return err;
	if (S_ISLNK(a.mode)) {
		target = kzalloc(GOFER_PATH_MAX);
		err = read_link(dfd, name, target);
		if (err)
			return err;
	}
	/* Leave room for what follows: the client goes on from where we stop. */
	if (r->out->used + WALK_ENTRY_SIZE + (target ? strlen(target) : 0) > r->out->size)
		return -EMSGSIZE;
	err = node_create(r->g, dir, name, -1, &a, ret);
	if (err)
		return err;
	push_u64(r->out, node_id(*ret));
	gofer_push_attr(r->out, &a);
	push_str(r->out, target ? target : "");
	return 0;
}

static void patch_u32(struct writer *w, size_t at, uint32_t v)
{
	struct writer p;

	writer_init(&p, w->p + at, sizeof(v));
	push_u32(&p, v);
}

int op_walk(struct req *r)
{
	int err;
	char name[GOFER_NAME_MAX + 1];
	struct node *dir = pull_node(r, &err);
	uint32_t n = pull_u32(r->in);

	if (!dir)
		return err;
	if (!cursor_ok(r->in) || n == 0 || n > GOFER_WALK_MAX)
		return -EINVAL;
	size_t head = r->out->used;
	push_u32(r->out, 0);
	push_u32(r->out, 0);
	uint32_t done = 0;
	int stop = 0;
	while (done < n) {
		struct node *child;

		pull_str(r->in, name, sizeof(name));
		if (!cursor_ok(r->in) || !gofer_name_ok(name)) {
			stop = -EINVAL;
			break;
		}
		stop = walk_one(r, dir, name, &child);
		if (stop)
			break;
		done++;
		dir = child;
		if (S_ISLNK(child->type))
			break; /* the client's business */
	}
	patch_u32(r->out, head, done);
	patch_u32(r->out, head + 4, (uint32_t)stop);
	return 0;
}

struct host_dirent { /* struct linux_dirent64 */
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* Adds an entry to the reply: 1, or 0 when it is full. Entries that vanished meanwhile
 * are skipped. */
static int readdir_add(struct req *r, struct node *dir, int dfd, const struct host_dirent *de,
		       uint32_t *count)
{
	struct gofer_attr a;

	if (!gofer_name_ok(de->name))
		return 1; /* "." and "..", and names no guest could use */
	if (r->out->used + READDIR_ENTRY_SIZE + strlen(de->name) > r->out->size)
		return 0;
	if (stat_at(r->g, dir->attach, dfd, de->name, &a))
		return 1;
	push_u64(r->out, (uint64_t)de->off);
	push_str(r->out, de->name);
	gofer_push_attr(r->out, &a);
	(*count)++;
	return 1;
}

/*
 * A batch of entries with their attributes, from a cookie of the host file system on. The
 * directory is opened anew for each batch: d_off cookies stay valid, and no state is left
 * behind.
 */
int op_readdir(struct req *r)
{
	int err;
	struct node *dir = pull_node(r, &err);
	uint64_t cookie = pull_u64(r->in);

	if (!dir)
		return err;
	if (!cursor_done(r->in))
		return -EINVAL;
	if (!S_ISDIR(dir->type))
		return -ENOTDIR;
	AUTO_CLOSE int fd = node_open(r->g, dir, O_RDONLY);
	if (fd < 0)
		return fd;
	if (cookie && lseek(fd, (off_t)cookie, SEEK_SET) < 0) /* host: lseek */
		return -errno;
	size_t head = r->out->used;
	push_u8(r->out, 0);
	push_u32(r->out, 0);
	uint32_t count = 0;
	AUTO_FREE char *buf = kzalloc(DENTS_BUF);
	for (;;) {
		long n = syscall(SYS_getdents64, fd, buf, DENTS_BUF); /* host: getdents64 */

		if (n < 0)
			return -errno;
		if (n == 0) {
			r->out->p[head] = 1; /* end of directory */
			break;
		}
		for (long at = 0; at < n;) {
			const struct host_dirent *de = (const void *)(buf + at);

			if (!readdir_add(r, dir, fd, de, &count))
				goto full;
			at += de->reclen;
		}
	}
full:
	patch_u32(r->out, head + 1, count);
	return 0;
}

int op_open(struct req *r)
{
	int err;
	struct node *n = pull_node(r, &err);
	uint32_t flags = pull_u32(r->in);

	if (!n)
		return err;
	if (!cursor_done(r->in) || (flags & ~(GOFER_O_WRITE | GOFER_O_TRUNC)))
		return -EINVAL;
	if (!S_ISREG(n->type))
		return S_ISDIR(n->type) ? -EISDIR : -ENXIO;
	if (flags && node_readonly(r->g, n))
		return -EROFS;
	/* Writers get O_RDWR, so that the file can be mapped shared. */
	AUTO_CLOSE int fd = node_open(r->g, n, (flags & GOFER_O_WRITE) ? O_RDWR : O_RDONLY);
	if (fd < 0)
		return fd;
	if ((flags & GOFER_O_TRUNC) && ftruncate(fd, 0) < 0) /* host: ftruncate */
		return -errno;
	struct gofer_attr a;
	err = stat_at(r->g, n->attach, fd, "", &a);
	if (err)
		return err;
	gofer_push_attr(r->out, &a);
	reply_fd(r, steal_fd(&fd));
	return 0;
}

int op_readlink(struct req *r)
{
	int err;
	struct node *n = pull_node(r, &err);

	if (!n)
		return err;
	if (!cursor_done(r->in) || !S_ISLNK(n->type))
		return -EINVAL;
	int fd = node_fd(r->g, n);
	if (fd < 0)
		return fd;
	AUTO_FREE char *target = kzalloc(GOFER_PATH_MAX);
	err = read_link(fd, "", target);
	if (err)
		return err;
	push_str(r->out, target);
	return 0;
}

int op_getattr(struct req *r)
{
	struct gofer_attr a;
	int err;
	struct node *n = pull_node(r, &err);

	if (!n)
		return err;
	if (!cursor_done(r->in))
		return -EINVAL;
	int fd = node_fd(r->g, n);
	if (fd < 0)
		return fd;
	err = stat_at(r->g, n->attach, fd, "", &a);
	if (err)
		return err;
	gofer_push_attr(r->out, &a);
	return 0;
}

int op_statfs(struct req *r)
{
	struct statfs st;
	int err;
	struct node *n = pull_node(r, &err);

	if (!n)
		return err;
	if (!cursor_done(r->in))
		return -EINVAL;
	int fd = node_fd(r->g, n);
	if (fd < 0)
		return fd;
	if (fstatfs(fd, &st) < 0) /* host: fstatfs */
		return -errno;
	struct gofer_statfs out = {
		.bsize = (uint64_t)st.f_bsize,   .blocks = st.f_blocks, .bfree = st.f_bfree,
		.bavail = st.f_bavail,           .files = st.f_files,   .ffree = st.f_ffree,
		.namelen = (uint64_t)st.f_namelen, .frsize = (uint64_t)st.f_frsize,
	};
	gofer_push_statfs(r->out, &out);
	return 0;
}

/* Of a directory (or a file that the client has no descriptor of). */
int op_fsync(struct req *r)
{
	int err;
	struct node *n = pull_node(r, &err);

	if (!n)
		return err;
	if (!cursor_done(r->in))
		return -EINVAL;
	AUTO_CLOSE int fd = node_open(r->g, n, O_RDONLY);
	if (fd < 0)
		return fd;
	return fsync(fd) < 0 ? -errno : 0; /* host: fsync */
}

int op_forget(struct req *r)
{
	uint32_t n = pull_u32(r->in);

	if (n > GOFER_FORGET_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t id = pull_u64(r->in);
		struct node *node = cursor_ok(r->in) ? node_find(r->g, id) : NULL;

		if (node)
			node_forget(r->g, node);
	}
	return cursor_done(r->in) ? 0 : -EINVAL;
}

/* Bytes that nobody else has: names in a directory that others use, too. */
static uint64_t own_number(void)
{
	const void *random = (const void *)getauxval(AT_RANDOM); /* 16 bytes, made by execve(2) */
	uint64_t n = 0;

	if (random)
		memcpy(&n, random, sizeof(n));
	return n;
}

/*
 * One memory file: a name is needed for a moment, since a read-only descriptor of the
 * same file comes from a second open.
 */
static int make_mem(struct req *r, int dirfd)
{
	struct gofer *g = r->g;
	char name[64];

	snprintf(name, sizeof(name), "m-%016llx-%llu", (unsigned long long)own_number(),
		 (unsigned long long)g->mem_seq++);
	AUTO_CLOSE int rw = openat(dirfd, name,
				   O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (rw < 0)
		return -errno;
	AUTO_CLOSE int ro = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int err = ro < 0 ? -errno : 0;
	if (unlinkat(dirfd, name, 0) < 0 && !err) /* host: unlinkat */
		err = -errno;
	if (err)
		return err;
	reply_fd(r, steal_fd(&rw));
	reply_fd(r, steal_fd(&ro));
	return 0;
}

int op_mkmem(struct req *r)
{
	uint32_t n = pull_u32(r->in), disk = pull_u32(r->in);
	int dirfd = disk ? r->g->diskdirfd : r->g->memdirfd;

	if (!cursor_done(r->in) || n == 0 || n > GOFER_MEM_MAX || disk > 1)
		return -EINVAL;
	if (dirfd < 0)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < n; i++) {
		int err = make_mem(r, dirfd);

		if (err)
			return err;
	}
	return 0;
}

/* Host unix sockets: a way out of the sandbox that nobody has asked for. */
int op_connect(struct req *r)
{
	int err;
	struct node *n = pull_node(r, &err);

	return n ? -ECONNREFUSED : err;
}
