// SPDX-License-Identifier: Apache-2.0
/*
 * Operations that change a tree. Each starts with the check for a read-only attach point.
 *
 * New files are made as root and then given to their owner, by descriptor wherever one
 * can be had; a name is only ever used together with "don't follow symlinks".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gofer/priv.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#define MODE_BITS 07777u

struct owner {
	uint32_t mode, uid, gid;
};

/* Directory to change, name, and its descriptor. */
static int change_dir(struct req *r, struct node **dir, char name[GOFER_NAME_MAX + 1])
{
	int err = pull_dir_name(r, dir, name);

	if (err)
		return err;
	return node_readonly(r->g, *dir) ? -EROFS : node_fd(r->g, *dir);
}

static struct owner pull_owner(struct req *r)
{
	struct owner o = { .mode = pull_u32(r->in) };

	o.uid = pull_u32(r->in);
	o.gid = pull_u32(r->in);
	return o;
}

/* Node and attributes of a file just made. */
static int reply_new(struct req *r, struct node *dir, int dfd, const char *name)
{
	struct gofer_attr a;
	struct node *n;
	int err = stat_at(r->g, dir->attach, dfd, name, &a);

	if (err)
		return err;
	err = node_create(r->g, dir, name, -1, &a, &n);
	if (err)
		return err;
	push_u64(r->out, node_id(n));
	gofer_push_attr(r->out, &a);
	return 0;
}

/* Owner first: chown drops setuid and setgid bits. */
static int set_owner(int fd, const struct owner *o)
{
	if (fchown(fd, o->uid, o->gid) < 0)                /* host: fchown */
		return -errno;
	if (fchmod(fd, o->mode & MODE_BITS) < 0)           /* host: fchmod */
		return -errno;
	return 0;
}

int op_create(struct req *r)
{
	char name[GOFER_NAME_MAX + 1];
	struct node *dir;
	int dfd = change_dir(r, &dir, name);
	struct owner o = pull_owner(r);

	if (dfd < 0)
		return dfd;
	if (!cursor_done(r->in))
		return -EINVAL;
	AUTO_CLOSE int fd = openat(dfd, name,
				   O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int err = set_owner(fd, &o);
	if (!err)
		err = reply_new(r, dir, dfd, name);
	if (err) {
		(void)unlinkat(dfd, name, 0); /* best effort: half-made */
		return err;
	}
	reply_fd(r, steal_fd(&fd));
	return 0;
}

int op_tmpfile(struct req *r)
{
	struct gofer_attr a;
	int err;
	struct node *n, *dir = pull_node(r, &err);
	struct owner o = pull_owner(r);

	if (!dir)
		return err;
	if (!cursor_done(r->in))
		return -EINVAL;
	if (!S_ISDIR(dir->type))
		return -ENOTDIR;
	if (node_readonly(r->g, dir))
		return -EROFS;
	if (r->g->npinned >= GOFER_MAX_PINNED)
		return -ENFILE;
	int dfd = node_fd(r->g, dir);
	if (dfd < 0)
		return dfd;
	AUTO_CLOSE int fd = openat(dfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	err = set_owner(fd, &o);
	if (!err)
		err = stat_at(r->g, dir->attach, fd, "", &a);
	if (err)
		return err;
	AUTO_CLOSE int keep = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* host: fcntl */
	if (keep < 0)
		return -errno;
	/* No name leads to it, so the node keeps a descriptor of its own. */
	err = node_create(r->g, dir, ".", keep, &a, &n);
	if (err)
		return err;
	(void)steal_fd(&keep);
	err = node_pin(r->g, n);
	if (err)
		return err;
	push_u64(r->out, node_id(n));
	gofer_push_attr(r->out, &a);
	reply_fd(r, steal_fd(&fd));
	return 0;
}

int op_mkdir(struct req *r)
{
	char name[GOFER_NAME_MAX + 1];
	struct node *dir;
	int dfd = change_dir(r, &dir, name);
	struct owner o = pull_owner(r);

	if (dfd < 0)
		return dfd;
	if (!cursor_done(r->in))
		return -EINVAL;
	if (mkdirat(dfd, name, 0700) < 0) /* host: mkdirat */
		return -errno;
	AUTO_CLOSE int fd = open_beneath(r->g, dir->attach, dfd, name, O_RDONLY | O_DIRECTORY);
	int err = fd < 0 ? fd : set_owner(fd, &o);
	if (!err)
		err = reply_new(r, dir, dfd, name);
	if (err)
		(void)unlinkat(dfd, name, AT_REMOVEDIR); /* best effort: half-made */
	return err;
}

/* Mode of a node that must not be opened. The name isn't followed; kernels before 6.6
 * can't do that. */
static int chmod_nofollow(int dfd, const char *name, uint32_t mode)
{
	long n = syscall(SYS_fchmodat2, dfd, name, mode & MODE_BITS,
			 AT_SYMLINK_NOFOLLOW); /* host: fchmodat2 */

	if (n == 0)
		return 0;
	return errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

/* FIFOs and sockets: names for the sentry's own objects. Devices are refused. */
int op_mknod(struct req *r)
{
	char name[GOFER_NAME_MAX + 1];
	struct node *dir;
	int dfd = change_dir(r, &dir, name);
	struct owner o = pull_owner(r);
	uint32_t type = o.mode & S_IFMT;

	if (dfd < 0)
		return dfd;
	if (!cursor_done(r->in))
		return -EINVAL;
	if (type != S_IFIFO && type != S_IFSOCK && type != S_IFREG)
		return -EPERM;
	/* umask is 0, so the permission bits are right from the start (mknod(2) keeps all
	 * 12). */
	if (mknodat(dfd, name, o.mode & (S_IFMT | MODE_BITS), 0) < 0) /* host: mknodat */
		return -errno;
	int err = 0;
	if (fchownat(dfd, name, o.uid, o.gid, AT_SYMLINK_NOFOLLOW) < 0) /* host: fchownat */
		err = -errno;
	if (!err)
		err = reply_new(r, dir, dfd, name);
	if (err)
		(void)unlinkat(dfd, name, 0); /* best effort: half-made */
	return err;
}

int op_symlink(struct req *r)
{
	char name[GOFER_NAME_MAX + 1];
	struct node *dir;
	AUTO_FREE char *target = kzalloc(GOFER_PATH_MAX);
	int dfd = change_dir(r, &dir, name);

	if (dfd < 0)
		return dfd;
	pull_str(r->in, target, GOFER_PATH_MAX);
	uint32_t uid = pull_u32(r->in), gid = pull_u32(r->in);
	if (!cursor_done(r->in))
		return -EINVAL;
	if (symlinkat(target, dfd, name) < 0) /* host: symlinkat */
		return -errno;
	int err = 0;
	if (fchownat(dfd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		err = -errno;
	if (!err)
		err = reply_new(r, dir, dfd, name);
	if (err)
		(void)unlinkat(dfd, name, 0); /* best effort: half-made */
	return err;
}

int op_link(struct req *r)
{
	char name[GOFER_NAME_MAX + 1];
	struct gofer_attr a;
	struct node *dir;
	int err;
	struct node *n = pull_node(r, &err);

	if (!n)
		return err;
	int dfd = change_dir(r, &dir, name);
	if (dfd < 0)
		return dfd;
	if (!cursor_done(r->in))
		return -EINVAL;
	if (S_ISDIR(n->type))
		return -EPERM;
	if (n->attach != dir->attach || !n->parent)
		return -EXDEV;
	int fd = node_fd(r->g, n);
	if (fd < 0)
		return fd;
	/* By descriptor (CAP_DAC_READ_SEARCH): what is linked is what was looked up. */
	if (linkat(fd, "", dfd, name, AT_EMPTY_PATH) < 0) { /* host: linkat */
		/* Kernels before 6.10 refuse that in a user namespace (ENOENT): then by
		 * name. */
		if (errno != ENOENT || n->pinned)
			return -errno;
		int pfd = node_fd(r->g, n->parent);
		if (pfd < 0)
			return pfd;
		if (linkat(pfd, n->name, dfd, name, 0) < 0)
			return -errno;
	}
	err = stat_at(r->g, dir->attach, dfd, name, &a);
	if (err)
		return err;
	if (n->pinned && strcmp(n->name, ".") == 0) {
		/* An O_TMPFILE got its name. Stay pinned: harmless, and the id goes on
		 * working. */
		free(n->name);
		n->name = kstrdup(name);
	}
	gofer_push_attr(r->out, &a);
	return 0;
}

/* An optional node id: 0 is none. */
static struct node *pull_opt_node(struct req *r, int *err)
{
	uint64_t id = pull_u64(r->in);

	*err = 0;
	if (!id)
		return NULL;
	struct node *n = node_find(r->g, id);
	if (!n)
		*err = -ESTALE;
	return n;
}

/*
 * The victim's node, if the sentry has one, keeps its descriptor, for a guest that still
 * has the file open. Only a file that loses its last name needs that; failure costs no
 * more than a later ESTALE.
 */
static void pin_victim(struct req *r, struct node *victim)
{
	if (victim)
		(void)node_pin(r->g, victim);
}

int op_unlink(struct req *r)
{
	char name[GOFER_NAME_MAX + 1];
	struct node *dir;
	int err, dfd = change_dir(r, &dir, name);
	uint32_t rmdir_flag = pull_u32(r->in);
	struct node *victim = pull_opt_node(r, &err);

	if (dfd < 0)
		return dfd;
	if (err)
		return err;
	if (!cursor_done(r->in) || rmdir_flag > 1)
		return -EINVAL;
	pin_victim(r, victim);
	return unlinkat(dfd, name, rmdir_flag ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
}

int op_rename(struct req *r)
{
	char oldname[GOFER_NAME_MAX + 1], newname[GOFER_NAME_MAX + 1];
	struct node *olddir, *newdir;
	int err, err2;
	int oldfd = change_dir(r, &olddir, oldname);

	if (oldfd < 0)
		return oldfd;
	int newfd = change_dir(r, &newdir, newname);
	if (newfd < 0)
		return newfd;
	uint32_t flags = pull_u32(r->in);
	struct node *moved = pull_opt_node(r, &err);
	struct node *victim = pull_opt_node(r, &err2);
	if (err || err2)
		return err ? err : err2;
	/* RENAME_WHITEOUT makes a device node. */
	if (!cursor_done(r->in) || (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)))
		return -EINVAL;
	if (olddir->attach != newdir->attach)
		return -EXDEV;
	if (!(flags & RENAME_EXCHANGE))
		pin_victim(r, victim);
	/* Raw: the C library turns flags 0 into renameat(2), which the filter doesn't
	 * know. */
	if (syscall(SYS_renameat2, oldfd, oldname, newfd, newname, flags) < 0) /* host: renameat2 */
		return -errno;
	if (moved && !moved->pinned)
		node_moved(r->g, moved, newdir, newname);
	if ((flags & RENAME_EXCHANGE) && victim && !victim->pinned)
		node_moved(r->g, victim, olddir, oldname);
	return 0;
}

static int set_mode(struct req *r, struct node *n, uint32_t mode)
{
	if (S_ISREG(n->type) || S_ISDIR(n->type)) {
		if (n->pinned && n->fd >= 0 && fchmod(n->fd, mode & MODE_BITS) == 0)
			return 0; /* an O_TMPFILE: the descriptor is a real one */
		AUTO_CLOSE int fd = node_open(r->g, n, O_RDONLY);

		if (fd < 0)
			return fd;
		return fchmod(fd, mode & MODE_BITS) < 0 ? -errno : 0;
	}
	if (S_ISLNK(n->type) || !n->parent)
		return -EOPNOTSUPP;
	int pfd = node_fd(r->g, n->parent);
	return pfd < 0 ? pfd : chmod_nofollow(pfd, n->name, mode);
}

static int set_size(struct req *r, struct node *n, uint64_t size)
{
	if (!S_ISREG(n->type))
		return S_ISDIR(n->type) ? -EISDIR : -EINVAL;
	if (size > INT64_MAX)
		return -EFBIG;
	AUTO_CLOSE int fd = node_open(r->g, n, O_RDWR);
	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static struct timespec to_ts(int64_t ns, bool set)
{
	int64_t sec = ns / 1000000000, rest = ns % 1000000000;

	if (!set)
		return (struct timespec){ .tv_nsec = UTIME_OMIT };
	if (rest < 0) {
		rest += 1000000000;
		sec--;
	}
	return (struct timespec){ .tv_sec = sec, .tv_nsec = rest };
}

static int apply_attr(struct req *r, struct node *n, int fd, const struct gofer_setattr *s)
{
	int err = 0;

	if (s->valid & GOFER_SET_SIZE)
		err = set_size(r, n, s->size);
	if (!err && (s->valid & (GOFER_SET_UID | GOFER_SET_GID))) {
		uid_t uid = (s->valid & GOFER_SET_UID) ? s->uid : (uid_t)-1;
		gid_t gid = (s->valid & GOFER_SET_GID) ? s->gid : (gid_t)-1;

		if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
			err = -errno;
	}
	if (!err && (s->valid & GOFER_SET_MODE))
		err = set_mode(r, n, s->mode);
	if (!err && (s->valid & (GOFER_SET_ATIME | GOFER_SET_MTIME))) {
		struct timespec ts[2] = { to_ts(s->atime_ns, s->valid & GOFER_SET_ATIME),
					  to_ts(s->mtime_ns, s->valid & GOFER_SET_MTIME) };

		if (utimensat(fd, "", ts, AT_EMPTY_PATH) < 0) /* host: utimensat */
			err = -errno;
	}
	return err;
}

int op_setattr(struct req *r)
{
	struct gofer_setattr s;
	struct gofer_attr a;
	int err;
	struct node *n = pull_node(r, &err);

	gofer_pull_setattr(r->in, &s);
	if (!n)
		return err;
	if (!cursor_done(r->in) || (s.valid & ~GOFER_SET_ALL))
		return -EINVAL;
	if (node_readonly(r->g, n))
		return -EROFS;
	int fd = node_fd(r->g, n);
	if (fd < 0)
		return fd;
	err = apply_attr(r, n, fd, &s);
	if (err)
		return err;
	err = stat_at(r->g, n->attach, fd, "", &a);
	if (err)
		return err;
	gofer_push_attr(r->out, &a);
	return 0;
}
