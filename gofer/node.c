// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes: the files that the sentry holds ids of.
 *
 * An image has more files than a process may have descriptors, so a node is only a
 * (parent, name) pair with the identity (dev, ino) that it had when it was found; its
 * O_PATH descriptor is opened on demand, kept in LRU order, and closed between requests
 * when there are too many. Every component is opened beneath its parent with no symlink
 * followed, and its identity compared, so nobody who renames or replaces things on the
 * host can lead us elsewhere: the worst is ESTALE.
 *
 * A deleted file has no name to find it by: its descriptor is pinned while the sentry
 * holds the node.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gofer/priv.h"

#ifndef AT_NO_AUTOMOUNT
#define AT_NO_AUTOMOUNT 0x800
#endif

/* Opens the single component @name of @dirfd. Descriptor or -errno. */
int open_beneath(const struct gofer *g, unsigned attach, int dirfd, const char *name, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_NOFOLLOW | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	/* An O_PATH|O_NOFOLLOW descriptor of a symlink is wanted, and harmless: NO_SYMLINKS
	 * would refuse it only if it were followed. */
	if (!g->attach[attach].xdev)
		how.resolve |= RESOLVE_NO_XDEV;
	long fd = syscall(SYS_openat2, dirfd, name, &how, sizeof(how)); /* host: openat2 */
	return fd < 0 ? -errno : (int)fd;
}

static int64_t ts_ns(const struct statx_timestamp *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + (int64_t)ts->tv_nsec;
}

static uint64_t make_dev(uint32_t major, uint32_t minor)
{
	return (uint64_t)(minor & 0xff) | ((uint64_t)major << 8) | ((uint64_t)(minor & ~0xffu) << 12);
}

/* statx of @name in @dirfd, or of @dirfd itself when @name is "". -EXDEV behind a foreign
 * mount. */
int stat_at(const struct gofer *g, unsigned attach, int dirfd, const char *name,
	    struct gofer_attr *ret)
{
	const struct attach_state *at = &g->attach[attach];
	struct statx st;

	/* host: statx */
	if (statx(dirfd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		  STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, &st) < 0)
		return -errno;
	if (!at->xdev && at->root && (st.stx_mask & STATX_MNT_ID) && st.stx_mnt_id != at->mnt_id)
		return -EXDEV;
	*ret = (struct gofer_attr){
		.dev = make_dev(st.stx_dev_major, st.stx_dev_minor),
		.ino = st.stx_ino,
		.rdev = make_dev(st.stx_rdev_major, st.stx_rdev_minor),
		.size = st.stx_size,
		.blocks = st.stx_blocks,
		.mode = st.stx_mode,
		.nlink = st.stx_nlink,
		.uid = st.stx_uid,
		.gid = st.stx_gid,
		.blksize = st.stx_blksize,
		.atime_ns = ts_ns(&st.stx_atime),
		.mtime_ns = ts_ns(&st.stx_mtime),
		.ctime_ns = ts_ns(&st.stx_ctime),
		.btime_ns = (st.stx_mask & STATX_BTIME) ? ts_ns(&st.stx_btime)
							: ts_ns(&st.stx_ctime),
	};
	return 0;
}

uint64_t node_id(const struct node *n)
{
	return (uint64_t)n->gen << 32 | n->slot;
}

/* The node that the sentry calls @id, or NULL. */
struct node *node_find(struct gofer *g, uint64_t id)
{
	uint32_t slot = (uint32_t)id;

	if (slot >= g->nslots)
		return NULL;
	struct node *n = g->slots[slot];
	if (!n->used || !n->held || n->gen != (uint32_t)(id >> 32))
		return NULL;
	return n;
}

static struct node *slot_take(struct gofer *g)
{
	if (g->nnodes >= GOFER_MAX_NODES)
		return NULL;
	for (uint32_t i = g->free_hint; i < g->nslots; i++) {
		if (!g->slots[i]->used) {
			g->free_hint = i + 1;
			return g->slots[i];
		}
	}
	uint32_t old = g->nslots, grown = old ? old * 2 : 64;

	g->slots = krealloc_array(g->slots, grown, sizeof(*g->slots));
	for (uint32_t i = old; i < grown; i++) {
		g->slots[i] = kzalloc(sizeof(struct node));
		g->slots[i]->slot = i;
		g->slots[i]->gen = 1; /* so that no id is 0 */
		list_init(&g->slots[i]->lru);
	}
	g->nslots = grown;
	g->free_hint = old + 1;
	return g->slots[old];
}

/* A node held by the sentry. @fd (O_PATH, or -1) is taken over on success. -ENFILE,
 * -ENAMETOOLONG. */
int node_create(struct gofer *g, struct node *parent, const char *name, int fd,
		const struct gofer_attr *a, struct node **ret)
{
	if (parent && parent->depth + 1 > GOFER_MAX_DEPTH)
		return -ENAMETOOLONG;
	struct node *n = slot_take(g);
	if (!n)
		return -ENFILE;
	n->used = n->held = true;
	n->pinned = false;
	n->nchildren = 0;
	n->parent = parent;
	n->depth = parent ? parent->depth + 1 : 0;
	n->attach = parent ? parent->attach : 0;
	n->name = name ? kstrdup(name) : NULL;
	n->fd = fd;
	n->file_ro = n->file_rw = -1;
	n->dev = a->dev;
	n->ino = a->ino;
	n->type = a->mode & S_IFMT;
	if (parent)
		parent->nchildren++;
	g->nnodes++;
	if (fd >= 0) {
		g->nfds++;
		list_add_tail(&g->lru, &n->lru);
	}
	*ret = n;
	return 0;
}

static void node_close(struct gofer *g, struct node *n)
{
	if (n->fd < 0)
		return;
	list_del(&n->lru);
	close(n->fd); /* host: close */
	n->fd = -1;
	if (n->pinned)
		g->npinned--;
	else
		g->nfds--;
	n->pinned = false;
}

/* Frees @n and then those ancestors that only it kept alive. */
static void node_release(struct gofer *g, struct node *n)
{
	while (n && !n->held && n->nchildren == 0 && n->parent) {
		struct node *parent = n->parent;

		node_close(g, n);
		free(n->name);
		n->name = NULL;
		n->parent = NULL;
		n->used = false;
		n->gen = n->gen == UINT32_MAX ? 1 : n->gen + 1;
		if (n->slot < g->free_hint)
			g->free_hint = n->slot;
		g->nnodes--;
		parent->nchildren--;
		n = parent;
	}
}

/* The sentry gives the id up. Roots stay. */
void node_forget(struct gofer *g, struct node *n)
{
	if (!n->parent)
		return;
	n->held = false;
	node_release(g, n);
}

static int check_same(const struct gofer *g, const struct node *n, int fd)
{
	struct gofer_attr a;
	int err = stat_at(g, n->attach, fd, "", &a);

	if (err)
		return err;
	if (a.dev != n->dev || a.ino != n->ino || (a.mode & S_IFMT) != n->type)
		return -ESTALE;
	return 0;
}

/* O_PATH descriptor of @n, borrowed until the end of the request. -ESTALE when it isn't
 * there any more. */
int node_fd(struct gofer *g, struct node *n)
{
	if (n->fd >= 0) {
		if (n->parent && !n->pinned) {
			list_del(&n->lru);
			list_add_tail(&g->lru, &n->lru);
		}
		return n->fd;
	}
	if (!n->parent)
		return -ESTALE;
	int pfd = node_fd(g, n->parent); /* depth is bounded by GOFER_MAX_DEPTH */
	if (pfd < 0)
		return pfd;
	AUTO_CLOSE int fd = open_beneath(g, n->attach, pfd, n->name, O_PATH);
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
	int err = check_same(g, n, fd);
	if (err)
		return err;
	n->fd = steal_fd(&fd);
	g->nfds++;
	list_add_tail(&g->lru, &n->lru);
	return n->fd;
}

/* Between requests: closes the descriptors that were used longest ago. */
void node_trim(struct gofer *g)
{
	while (g->nfds > g->max_fds && !list_empty(&g->lru))
		node_close(g, list_first(&g->lru, struct node, lru));
}

/* @n is about to lose its name: keeps its descriptor open. */
int node_pin(struct gofer *g, struct node *n)
{
	if (n->pinned || !n->parent)
		return 0;
	if (g->npinned >= GOFER_MAX_PINNED)
		return -ENFILE;
	int fd = node_fd(g, n);
	if (fd < 0)
		return fd;
	list_del(&n->lru);
	n->pinned = true;
	g->nfds--;
	g->npinned++;
	return 0;
}

/* Would @n become its own ancestor below @dir? The host kernel has refused that, but a
 * stale id may lie. */
static bool is_ancestor(const struct node *n, const struct node *dir)
{
	for (; dir; dir = dir->parent)
		if (dir == n)
			return true;
	return false;
}

/* @n is called @name in @newdir from now on. */
void node_moved(struct gofer *g, struct node *n, struct node *newdir, const char *name)
{
	struct node *old = n->parent;

	if (!old || is_ancestor(n, newdir))
		return;
	free(n->name);
	n->name = kstrdup(name);
	newdir->nchildren++;
	n->parent = newdir;
	n->depth = MIN(newdir->depth + 1, (unsigned)GOFER_MAX_DEPTH);
	old->nchildren--;
	node_release(g, old);
}

bool node_readonly(const struct gofer *g, const struct node *n)
{
	return g->attach[n->attach].readonly;
}

/*
 * A descriptor for I/O on a regular file or a directory: nothing else is ever opened. The
 * type is looked at before (so that no device is opened for being there) and after (so
 * that a swap is noticed).
 */
int node_open(struct gofer *g, struct node *n, int flags)
{
	if (!S_ISREG(n->type) && !S_ISDIR(n->type))
		return -ENXIO;
	if (!n->parent && S_ISREG(n->type)) {
		int src = (flags & O_ACCMODE) == O_RDONLY ? n->file_ro : n->file_rw;
		int dup_fd = src < 0 ? -1 : fcntl(src, F_DUPFD_CLOEXEC, 0); /* host: fcntl */

		return src < 0 ? -EROFS : dup_fd < 0 ? -errno : dup_fd;
	}
	flags |= O_NONBLOCK | O_NOCTTY;
	int fd;
	if (S_ISDIR(n->type)) {
		int dfd = node_fd(g, n);

		if (dfd < 0)
			return dfd;
		fd = openat(dfd, ".", flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); /* host: openat */
		return fd < 0 ? -errno : fd;
	}
	if (n->pinned)
		return -ESTALE; /* deleted: no name to open it by */
	int pfd = node_fd(g, n->parent);
	if (pfd < 0)
		return pfd;
	struct gofer_attr a;
	int err = stat_at(g, n->attach, pfd, n->name, &a);
	if (err)
		return err == -ENOENT ? -ESTALE : err;
	if (a.dev != n->dev || a.ino != n->ino || (a.mode & S_IFMT) != n->type)
		return -ESTALE;
	AUTO_CLOSE int opened = open_beneath(g, n->attach, pfd, n->name, flags);
	if (opened < 0)
		return opened == -ENOENT ? -ESTALE : opened;
	err = check_same(g, n, opened);
	return err ? err : steal_fd(&opened);
}

/* The root of attach point @i. */
int node_root_create(struct gofer *g, unsigned i, const struct gofer_attach *conf)
{
	struct attach_state *at = &g->attach[i];
	struct gofer_attr a;
	struct statx st;

	at->readonly = conf->readonly;
	at->xdev = conf->xdev;
	if (statx(conf->dirfd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
		return -errno;
	at->mnt_id = st.stx_mnt_id;
	int err = stat_at(g, i, conf->dirfd, "", &a);
	if (err)
		return err;
	/* A socket or a device may be bind-mounted, too: it can be looked at, and is
	 * never opened. */
	struct node *n;
	err = node_create(g, NULL, NULL, -1, &a, &n);
	if (err)
		return err;
	n->fd = conf->dirfd; /* not in the LRU list: never closed */
	n->attach = i;
	if (S_ISREG(a.mode)) {
		n->file_ro = conf->file_ro;
		n->file_rw = conf->readonly ? -1 : conf->file_rw;
	}
	at->root = n;
	return 0;
}

void node_destroy_all(struct gofer *g)
{
	for (uint32_t i = 0; i < g->nslots; i++) {
		struct node *n = g->slots[i];

		if (n->used && n->parent && n->fd >= 0)
			close(n->fd);
		free(n->name);
		free(n);
	}
	free(g->slots);
}
