// SPDX-License-Identifier: Apache-2.0
/*
 * Instances: mount options (man 5 tmpfs), limits, statfs.
 *
 * Known and accepted without effect: huge=, mpol=, inode32/inode64, noswap. Anything else
 * is EINVAL, as the kernel says it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/kernel.h"
#include "sentry/vfs/vfs_state.h"

#define DEFAULT_PAGES (8UL << 30 >> PAGE_SHIFT)   /* when the sandbox has no memory limit */
#define TM_KEEP_DISK (16UL << 20) /* the host's own, and the next writes to mapped pages */
#define OVERLAY_PAGES (64UL << 30 >> PAGE_SHIFT)  /* shown as the size of the root file system */

struct tm_options {
	uint64_t max_pages, max_inodes;
	uint32_t mode;
	uid_t uid;
	gid_t gid;
	bool has_pages, has_inodes, has_mode, has_uid, has_gid;
};

bool tm_charge_pages(struct tm_super *ts, uint64_t n)
{
	uint64_t max = atomic_load(&ts->max_pages), old = atomic_fetch_add(&ts->used_pages, n);

	if (!max || (old + n <= max && old + n >= old))
		return true;
	atomic_fetch_sub(&ts->used_pages, n);
	return false;
}

/*
 * The end of what may be written is before the end of memory: a full disk is an error that programs
 * understand, memory that is full kills them. Asked for each extent, not for each write. What a mapped file
 * gains by being touched isn't asked for; the OOM killer counts it.
 */
static uint64_t room_pages(const struct tm_super *ts)
{
	uint64_t total, left, keep;

	if (ts->on_disk) {
		left = tm_disk_left();
		return (left - MIN(left, (uint64_t)TM_KEEP_DISK)) >> PAGE_SHIFT;
	}
	if (!mfile_space(&total, &left))
		return UINT64_MAX;
	keep = MIN(total / TM_KEEP_SHARE, TM_KEEP_MAX);
	return (left - MIN(left, keep)) >> PAGE_SHIFT;
}

bool tm_room(const struct tm_super *ts, uint64_t npages)
{
	uint64_t room = room_pages(ts);

	return room && npages <= room;
}

void tm_uncharge_pages(struct tm_super *ts, uint64_t n)
{
	if (n)
		atomic_fetch_sub(&ts->used_pages, n);
}

/* ---- options ---- */

static uint64_t memory_pages(void)
{
	uint64_t max = kernel.limits.max_memory;

	return max ? max >> PAGE_SHIFT : 2 * DEFAULT_PAGES;
}

/* A number with a suffix k, m, g, t, p, e; for sizes also %. False: not a number. */
static bool parse_size(const char *s, uint64_t *ret, bool percent)
{
	char *end;
	uint64_t v;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	v = strtoull(s, &end, 0);
	if (errno)
		return false;
	static const char units[] = "kmgtpe";
	const char *u = *end ? strchr(units, *end | 0x20) : NULL;
	if (u) {
		if (__builtin_mul_overflow(v, 1ULL << (10 * (u - units + 1)), &v))
			return false;
		end++;
	} else if (*end == '%' && percent) {
		v = memory_pages() * MIN(v, 100UL) / 100 * PAGE_SIZE;
		end++;
	}
	*ret = v;
	return *end == 0;
}

static int parse_one(struct tm_options *o, char *key)
{
	static const char *const ignored[] = { "huge", "mpol", "inode32", "inode64", "noswap" };
	char *val = strchr(key, '='), *end;
	uint64_t v = 0;

	if (val)
		*val++ = 0;
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		if (strcmp(key, ignored[i]) == 0)
			return 0;
	if (!val || !*val)
		return -EINVAL;
	if (strcmp(key, "size") == 0 || strcmp(key, "nr_blocks") == 0) {
		bool bytes = key[0] == 's';

		if (!parse_size(val, &v, bytes))
			return -EINVAL;
		o->max_pages = bytes ? v / PAGE_SIZE + (v % PAGE_SIZE != 0) : v;
		o->has_pages = true;
	} else if (strcmp(key, "nr_inodes") == 0) {
		o->has_inodes = parse_size(val, &o->max_inodes, false);
		return o->has_inodes ? 0 : -EINVAL;
	} else {
		v = strtoul(val, &end, strcmp(key, "mode") == 0 ? 8 : 10);
		if (*end || v > UINT32_MAX)
			return -EINVAL;
		if (strcmp(key, "mode") == 0) {
			o->mode = (uint32_t)v & 07777;
			o->has_mode = true;
		} else if (strcmp(key, "uid") == 0) {
			o->uid = (uid_t)v;
			o->has_uid = true;
		} else if (strcmp(key, "gid") == 0) {
			o->gid = (gid_t)v;
			o->has_gid = true;
		} else {
			return -EINVAL;
		}
	}
	return 0;
}

static int parse_options(const char *data, struct tm_options *o)
{
	AUTO_FREE char *copy = kstrdup(data ? data : "");
	char *save, *tok;

	memset(o, 0, sizeof(*o));
	for (tok = strtok_r(copy, ",", &save); tok; tok = strtok_r(NULL, ",", &save)) {
		int err = parse_one(o, tok);

		if (err)
			return err;
	}
	return 0;
}

/* ---- super operations ---- */

static void tm_super_destroy(struct super *sb)
{
	struct tm_super *ts = TM_SB(sb);

	super_fini(sb);
	lower_put(ts->lower);
	free(ts);
}

static int tm_statfs(struct super *sb, struct statfs_g *ret)
{
	struct tm_super *ts = TM_SB(sb);
	uint64_t max = atomic_load(&ts->max_pages), used = atomic_load(&ts->used_pages);
	uint64_t imax = atomic_load(&ts->max_inodes), iused = atomic_load(&ts->used_inodes);

	/* The root must show some size: installers look whether there is room. It shares what there is with
	 * everything else. */
	if (!max && ts->lower) {
		uint64_t room = room_pages(ts);

		max = kernel.limits.max_memory ? memory_pages() : OVERLAY_PAGES;
		if (room != UINT64_MAX)
			used = max - MIN(max, room);
	}
	if (!imax && ts->lower)
		imax = max;
	*ret = (struct statfs_g){
		.f_type = (int64_t)sb->magic,
		.f_bsize = PAGE_SIZE,
		.f_frsize = PAGE_SIZE,
		.f_blocks = max,
		.f_bfree = max > used ? max - used : 0,
		.f_bavail = max > used ? max - used : 0,
		.f_files = imax,
		.f_ffree = imax > iused ? imax - iused : 0,
		.f_namelen = NAME_MAX_G,
	};
	return 0;
}

static int tm_remount(struct super *sb, unsigned long flags, const char *data)
{
	struct tm_super *ts = TM_SB(sb);
	struct tm_options o;

	(void)flags; /* MS_RDONLY is the VFS's */
	int err = parse_options(data, &o);
	if (err)
		return err;
	/* Limits can't go below what is in use. A root made by the overlay has none. */
	if (o.has_pages && o.max_pages && o.max_pages < atomic_load(&ts->used_pages))
		return -EINVAL;
	if (o.has_inodes && o.max_inodes && o.max_inodes < atomic_load(&ts->used_inodes))
		return -EINVAL;
	if (o.has_pages)
		atomic_store(&ts->max_pages, o.max_pages);
	if (o.has_inodes)
		atomic_store(&ts->max_inodes, o.max_inodes);
	return 0;
}

static void tm_show_options(struct super *sb, struct seqbuf *out)
{
	struct tm_super *ts = TM_SB(sb);

	if (ts->lower)
		return;
	uint64_t max = atomic_load(&ts->max_pages), imax = atomic_load(&ts->max_inodes);
	if (max)
		seq_printf(out, ",size=%lluk", (unsigned long long)max << (PAGE_SHIFT - 10));
	if (imax)
		seq_printf(out, ",nr_inodes=%llu", (unsigned long long)imax);
	if (ts->root_mode != 01777)
		seq_printf(out, ",mode=%03o", ts->root_mode);
	if (ts->root_uid)
		seq_printf(out, ",uid=%u", ts->root_uid);
	if (ts->root_gid)
		seq_printf(out, ",gid=%u", ts->root_gid);
	seq_printf(out, ",inode64");
}

const struct super_ops tm_super_ops = {
	.destroy = tm_super_destroy,
	.statfs = tm_statfs,
	.remount = tm_remount,
	.show_options = tm_show_options,
	.state = &state_super_tmpfs,
};

/* Also the overlay's. @lower: root of the image (reference taken over) or NULL. */
struct super *tm_super_create(const struct fs_type *type, uint64_t magic, unsigned long flags,
			      const char *data, struct lower *lower)
{
	struct tm_options o;
	int err = parse_options(data, &o);

	if (err)
		return err_ptr(err);
	struct tm_super *ts = kzalloc(sizeof(*ts));
	super_init(&ts->sb, &tm_super_ops, type, magic, flags);
	ts->lower = lower;
	if (!lower) { /* tmpfs: half of the memory, unless told otherwise */
		atomic_store(&ts->max_pages, o.has_pages ? o.max_pages : memory_pages() / 2);
		atomic_store(&ts->max_inodes, o.has_inodes ? o.max_inodes : memory_pages() / 2);
	}
	ts->root_mode = o.has_mode ? o.mode : 01777;
	ts->root_uid = o.uid;
	ts->root_gid = o.gid;
	struct inode *root = lower ? tm_inode_from_lower(&ts->sb, lower)
				   : tm_inode_create(&ts->sb, S_IFDIR | ts->root_mode, 0,
						     ts->root_uid, ts->root_gid);
	if (is_err(root)) {
		super_put(&ts->sb);
		return (void *)root;
	}
	ts->sb.root = dentry_create_root(root);
	return &ts->sb;
}

static struct super *tmpfs_mount(struct task *t, const char *source, unsigned long flags,
				 const char *data)
{
	(void)t, (void)source;
	return tmpfs_create_super(flags, data);
}

static struct fs_type tmpfs_type = {
	.name = "tmpfs",
	.nodev = true,
	.userns_ok = true,
	.mount = tmpfs_mount,
};

void tmpfs_init(void)
{
	fs_register(&tmpfs_type);
}

struct super *tmpfs_create_super(unsigned long flags, const char *data)
{
	return tm_super_create(&tmpfs_type, TMPFS_MAGIC_G, flags, data, NULL);
}
