// SPDX-License-Identifier: Apache-2.0
/*
 * Memory files: see mfile.h. The range allocator is in mfile_runs.c.
 *
 * An allocating mfile gets its full, sparse size once, at creation, so it never has to grow; what
 * isn't touched takes no memory. Freed pages are punched out before their range may be handed out
 * again, which happens with the lock dropped (a punch of gigabytes takes a while): meanwhile the
 * range is neither allocated nor free (RUN_DYING).
 *
 * The sentry's view is a two-level table of chunk addresses. A slot is filled once, by a compare and
 * exchange, and never changes until the mfile dies, so readers need no lock: an acquire load of the
 * pointer orders everything that they read through it (nothing but the mapping itself).
 *
 * Locks: mfile.mu (RANK_MFILE) guards the runs only.
 */
#include "sentry/mm/mfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "base/size.h"
#include "base/stats.h"
#include "sentry/mm/mfile_priv.h"
#include "sentry/mm/safecopy.h"

#define ST_NOEXEC_G       8 /* statfs.f_flags */
#define LEAF_SHIFT        9
#define LEAF_SLOTS        (1UL << LEAF_SHIFT)
#define TOP_SLOTS         512UL
/* 16 TiB of offsets; what an allocating file gets if its file system lets it. */
#define MFILE_SPAN        (TOP_SLOTS * LEAF_SLOTS * MFILE_CHUNK_SIZE)
/* Below this a file system can't carry a guest. */
#define MFILE_SPAN_MIN    (64UL << 30)
/* Reserved (not used!) bytes of all mfiles together: the size of an x86-64 user address space. */
#define MFILE_RESERVE_MAX (1UL << 47)
#define EMPTY_MIN         (1UL << 20) /* less isn't worth a host call */

struct leaf {
	_Atomic(void *) chunk[LEAF_SLOTS];
};

/* (c) constant after creation, (m) mu, (a) atomic */
struct mfile {
	struct ref ref;
	uint64_t id;      /* (c) never reused */
	int rwfd, rofd;   /* (c) owned; may be the same number */
	bool host, image, disk, noexec; /* (c) */
	void *origin;     /* whoever saves; owned */
	_Atomic unsigned kept; /* (a) by how many sets of branches it is used; changed with mu held. Not punched then */
	const char *name; /* (c) literal */
	uint64_t span;    /* (c) offsets end here */
	struct mutex mu;
	struct runs runs;      /* (m) unused by host files */
	_Atomic uint64_t live; /* (a) bytes allocated */
	_Atomic(struct leaf *) top[TOP_SLOTS];
};

static mfile_provider_fn provider, disk_provider;
static _Atomic uint64_t next_id = 1;
static _Atomic uint64_t total_reserved;
static _Atomic int space_fd = -1; /* a file of the file system that they are all on */

void mfile_set_provider(mfile_provider_fn fn)
{
	provider = fn;
}

void mfile_set_disk_provider(mfile_provider_fn fn)
{
	disk_provider = fn;
}

bool mfile_disk_provided(void)
{
	return disk_provider != NULL;
}

static struct mfile *mfile_new(int rwfd, int rofd, bool host, const char *name)
{
	struct mfile *mf = kzalloc(sizeof(*mf));

	ref_init(&mf->ref);
	mf->id = atomic_fetch_add(&next_id, 1);
	mf->rwfd = rwfd;
	mf->rofd = rofd;
	mf->host = host;
	mf->name = name;
	mf->span = MFILE_SPAN;
	mutex_init(&mf->mu, RANK_MFILE);
	return mf;
}

/* Makes the file as large as its file system allows. The size, or 0. */
static uint64_t set_span(int fd)
{
	for (uint64_t span = MFILE_SPAN; span >= MFILE_SPAN_MIN; span /= 2) {
		if (ftruncate(fd, (off_t)span) == 0) /* host: ftruncate */
			return span;
		if (errno != EFBIG && errno != EINVAL)
			return 0;
	}
	return 0;
}

static struct mfile *create(mfile_provider_fn provide, const char *name)
{
	int fds[2] = { -1, -1 };
	struct mfile *mf;
	uint64_t span;
	int err;

	if (!provide)
		panic("no provider of memory files");
	err = provide(fds);
	if (err)
		return err_ptr(err);
	span = set_span(fds[0]);
	if (!span) {
		err = -errno;
		close(fds[0]); /* host: close */
		close(fds[1]);
		return err_ptr(err ? err : -EFBIG);
	}
	if (provide == provider && atomic_load(&space_fd) < 0) {
		int none = -1, fd = fcntl(fds[1], F_DUPFD_CLOEXEC, 3); /* host: fcntl */

		if (!atomic_compare_exchange_strong(&space_fd, &none, fd) && fd >= 0)
			close(fd);
	}
	mf = mfile_new(fds[0], fds[1], false, name);
	mf->span = span;
	runs_init(&mf->runs, span);
	return mf;
}

struct mfile *mfile_create(const char *name)
{
	return create(provider, name);
}

static bool on_noexec(int fd)
{
	struct statfs s;

	return fstatfs(fd, &s) == 0 && (s.f_flags & ST_NOEXEC_G); /* host: fstatfs */
}

struct mfile *mfile_create_on_disk(const char *name)
{
	struct mfile *mf = create(disk_provider, name);

	if (is_err(mf))
		return mf;
	mf->disk = true;
	mf->noexec = on_noexec(mf->rofd);
	return mf;
}

bool mfile_is_on_disk(const struct mfile *mf)
{
	return mf->disk;
}

uint64_t mfile_disk_left(const struct mfile *mf)
{
	struct statfs s;

	return fstatfs(mf->rofd, &s) ? 0 : (uint64_t)s.f_bavail * (uint64_t)s.f_bsize; /* host: fstatfs */
}

struct mfile *mfile_wrap_host(int fd, bool writable)
{
	return mfile_new(writable ? fd : -1, fd, true, "host");
}

struct mfile *mfile_wrap_image(int fd)
{
	struct mfile *mf = mfile_new(-1, fd, true, "image");

	mf->image = true;
	mf->noexec = on_noexec(fd);
	return mf;
}

bool mfile_noexec(const struct mfile *mf)
{
	return mf->noexec;
}

void *mfile_origin(const struct mfile *mf)
{
	return mf->origin;
}

void mfile_set_origin(struct mfile *mf, void *origin)
{
	free(mf->origin);
	mf->origin = origin;
}

bool mfile_is_image(const struct mfile *mf)
{
	return mf->image;
}

struct mfile *mfile_get(struct mfile *mf)
{
	ref_get(&mf->ref);
	return mf;
}

static void unmap_chunks(struct mfile *mf)
{
	for (size_t i = 0; i < TOP_SLOTS; i++) {
		struct leaf *l = atomic_load(&mf->top[i]);

		if (!l)
			continue;
		for (size_t j = 0; j < LEAF_SLOTS; j++) {
			void *p =
				atomic_load_explicit(&l->chunk[j], memory_order_relaxed);

			if (p)
				munmap(p, MFILE_CHUNK_SIZE); /* host: munmap */
		}
		free(l);
	}
}

void mfile_put(struct mfile *mf)
{
	if (!mf || !ref_put(&mf->ref))
		return;
	atomic_fetch_sub(&total_reserved, atomic_load(&mf->live));
	unmap_chunks(mf);
	if (mf->rwfd >= 0)
		close(mf->rwfd); /* host: close */
	if (mf->rofd >= 0 && mf->rofd != mf->rwfd)
		close(mf->rofd);
	if (!mf->host)
		runs_fini(&mf->runs);
	mutex_fini(&mf->mu);
	free(mf->origin);
	free(mf);
}

int mfile_rwfd(const struct mfile *mf)
{
	return mf->rwfd;
}

int mfile_rofd(const struct mfile *mf)
{
	return mf->rofd;
}

bool mfile_is_host(const struct mfile *mf)
{
	return mf->host;
}

uint64_t mfile_id(const struct mfile *mf)
{
	return mf->id;
}

uint64_t mfile_total_reserved(void)
{
	return atomic_load(&total_reserved);
}

/* ---- ranges ---- */

static void check_range(const struct mfile *mf, uint64_t off, uint64_t len)
{
	if (!page_aligned(off | len) || off > mf->span || len > mf->span - off)
		panic("mfile %s: bad range 0x%lx+0x%lx", mf->name, (unsigned long)off,
		      (unsigned long)len);
}

/* Accounts @len bytes; false when the sandbox has reserved too much. */
static bool reserve(struct mfile *mf, uint64_t len)
{
	if (len > MFILE_RESERVE_MAX)
		return false;
	if (atomic_fetch_add(&total_reserved, len) + len > MFILE_RESERVE_MAX) {
		atomic_fetch_sub(&total_reserved, len);
		return false;
	}
	atomic_fetch_add_explicit(&mf->live, len, memory_order_relaxed);
	return true;
}

static void unreserve(struct mfile *mf, uint64_t len)
{
	atomic_fetch_sub_explicit(&mf->live, len, memory_order_relaxed);
	atomic_fetch_sub(&total_reserved, len);
}

int mfile_alloc(struct mfile *mf, uint64_t len, uint64_t *ret_off)
{
	uint64_t off;

	if (mf->host || !len || !page_aligned(len))
		panic("mfile %s: bad allocation of 0x%lx", mf->name, (unsigned long)len);
	if (!reserve(mf, len))
		return -ENOMEM;
	mutex_lock(&mf->mu);
	off = runs_alloc(&mf->runs, len);
	mutex_unlock(&mf->mu);
	if (off == UINT64_MAX) {
		unreserve(mf, len);
		return -ENOMEM;
	}
	*ret_off = off;
	return 0;
}

bool mfile_alloc_at(struct mfile *mf, uint64_t off, uint64_t len)
{
	bool ok;

	if (mf->host || !len || !page_aligned(off | len) || off >= mf->span ||
	    len > mf->span - off)
		return false;
	if (!reserve(mf, len))
		return false;
	mutex_lock(&mf->mu);
	ok = runs_alloc_at(&mf->runs, off, len);
	mutex_unlock(&mf->mu);
	if (!ok)
		unreserve(mf, len);
	return ok;
}

void mfile_range_get(struct mfile *mf, uint64_t off, uint64_t len)
{
	if (mf->host)
		return;
	check_range(mf, off, len);
	mutex_lock(&mf->mu);
	runs_get(&mf->runs, off, len);
	mutex_unlock(&mf->mu);
}

/* A file system without holes: zeroes by hand keep the promise, though not the memory. */
static void zero_by_hand(struct mfile *mf, uint64_t off, uint64_t len)
{
	while (len) {
		uint64_t n = len;
		void *p = mfile_ptr(mf, off, &n);

		if (!p || safezero(p, n))
			panic("mfile %s: can't clear freed memory", mf->name);
		off += n;
		len -= n;
	}
}

static bool punch_hole(struct mfile *mf, uint64_t off, uint64_t len)
{
	int r;

	do {
		r = HOST(FALLOCATE, fallocate(mf->rwfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					      (off_t)off, (off_t)len));
	} while (r < 0 && errno == EINTR);
	return r == 0;
}

static void punch(struct mfile *mf, uint64_t off, uint64_t len)
{
	if (!atomic_load(&mf->kept) && !punch_hole(mf, off, len))
		zero_by_hand(mf, off, len);
}

static void range_put(struct mfile *mf, uint64_t off, uint64_t len, bool used)
{
	uint64_t dead, dead_len;

	if (mf->host)
		return;
	check_range(mf, off, len);
	mutex_lock(&mf->mu);
	while (runs_put(&mf->runs, &off, &len, &dead, &dead_len)) {
		mutex_unlock(&mf->mu);
		if (used)
			punch(mf, dead, dead_len);
		unreserve(mf, dead_len);
		mutex_lock(&mf->mu);
		runs_release(&mf->runs, dead, dead_len);
	}
	mutex_unlock(&mf->mu);
}

void mfile_range_put(struct mfile *mf, uint64_t off, uint64_t len)
{
	range_put(mf, off, len, true);
}

void mfile_range_put_unused(struct mfile *mf, uint64_t off, uint64_t len)
{
	range_put(mf, off, len, false);
}

uint64_t mfile_range_exclusive(struct mfile *mf, uint64_t off, uint64_t len)
{
	uint64_t n;

	if (mf->host)
		return 0;
	check_range(mf, off, len);
	mutex_lock(&mf->mu);
	n = runs_exclusive(&mf->runs, off, len);
	mutex_unlock(&mf->mu);
	return n;
}

void mfile_range_discard(struct mfile *mf, uint64_t off, uint64_t len)
{
	if (mf->host || !len)
		return;
	check_range(mf, off, len);
	punch(mf, off, len);
}

void mfile_empty(struct mfile *mf)
{
	if (!mf->host && mfile_held(mf) >= EMPTY_MIN)
		punch(mf, 0, mf->span);
}

void mfile_share_out(struct mfile *mf)
{
	AUTO_LOCK(&mf->mu);

	atomic_fetch_add(&mf->kept, 1);
}

/*
 * What was given up meanwhile is still there. It stays free while it is punched without the lock, as nobody
 * allocates from such a file; ranges that are just dying are punched by both of us.
 */
void mfile_share_end(struct mfile *mf)
{
	uint64_t at = 0, off, len;

	mutex_lock(&mf->mu);
	if (atomic_fetch_sub(&mf->kept, 1) == 1 && !mf->host) {
		while (atomic_load(&mf->kept) == 0 && runs_next_unused(&mf->runs, &at, &off, &len)) {
			mutex_unlock(&mf->mu);
			punch_hole(mf, off, len); /* a failure: it stays until the file goes */
			mutex_lock(&mf->mu);
		}
	}
	mutex_unlock(&mf->mu);
}

/*
 * The descriptor's file position is shared with everybody who was given the descriptor; nobody uses
 * it, and lseek() returns what it found, so callers don't disturb each other.
 */
bool mfile_next_data(struct mfile *mf, uint64_t off, uint64_t end, uint64_t *ret_start,
		     uint64_t *ret_end)
{
	off_t data = HOST(SEEK, lseek(mf->rofd, (off_t)off, SEEK_DATA));
	off_t hole;

	if (data < 0 || (uint64_t)data >= end)
		return false;
	hole = lseek(mf->rofd, data, SEEK_HOLE);
	if (hole <= data)
		return false;
	*ret_start = (uint64_t)data;
	*ret_end = MIN((uint64_t)hole, end);
	return true;
}

uint64_t mfile_range_resident(struct mfile *mf, uint64_t off, uint64_t len)
{
	uint64_t end = off + len, sum = 0, start;

	while (off < end && mfile_next_data(mf, off, end, &start, &off))
		sum += off - start;
	return sum;
}

uint64_t mfile_held(struct mfile *mf)
{
	struct stat st;

	return HOST(STAT, fstat(mf->rofd, &st)) ? 0 : (uint64_t)st.st_blocks * 512;
}

int mfile_commit(struct mfile *mf, uint64_t off, uint64_t len)
{
	int r;

	do {
		r = HOST(FALLOCATE, fallocate(mf->rwfd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len));
	} while (r < 0 && errno == EINTR);
	return r < 0 && errno != EOPNOTSUPP ? -ENOMEM : 0;
}

bool mfile_space(uint64_t *ret_total, uint64_t *ret_left)
{
	int fd = atomic_load_explicit(&space_fd, memory_order_relaxed);
	struct statfs s;

	if (fd < 0 || fstatfs(fd, &s) || s.f_blocks == 0) /* host: fstatfs */
		return false;
	*ret_total = (uint64_t)s.f_blocks * (uint64_t)s.f_bsize;
	*ret_left = (uint64_t)s.f_bfree * (uint64_t)s.f_bsize;
	return true;
}

/* ---- the sentry's view ---- */

static struct leaf *get_leaf(struct mfile *mf, uint64_t chunk)
{
	_Atomic(struct leaf *) *slot = &mf->top[chunk >> LEAF_SHIFT];
	struct leaf *l = atomic_load_explicit(slot, memory_order_acquire);
	struct leaf *fresh;

	if (likely(l))
		return l;
	fresh = kzalloc(sizeof(*fresh));
	if (atomic_compare_exchange_strong(slot, &l, fresh))
		return fresh;
	free(fresh);
	return l;
}

static void *map_chunk(struct mfile *mf, _Atomic(void *) *slot, uint64_t chunk)
{
	int prot = mf->rwfd >= 0 ? PROT_READ | PROT_WRITE : PROT_READ;
	int fd = mf->rwfd >= 0 ? mf->rwfd : mf->rofd;
	void *old = NULL;
	void *p = HOST(MMAP, mmap(NULL, MFILE_CHUNK_SIZE, prot, MAP_SHARED | MAP_NORESERVE, fd,
				  (off_t)(chunk << MFILE_CHUNK_SHIFT))); /* host: mmap */

	if (p == MAP_FAILED)
		return NULL;
	/* Guest memory has no place in a core file of the sentry. Only a hint. */
	(void)madvise(p, MFILE_CHUNK_SIZE, MADV_DONTDUMP); /* host: madvise */
	if (atomic_compare_exchange_strong(slot, &old, p))
		return p;
	munmap(p, MFILE_CHUNK_SIZE); /* host: munmap */
	return old;
}

static void *host_ptr(struct mfile *mf, uint64_t off, uint64_t *ret_len)
{
	uint64_t chunk = off >> MFILE_CHUNK_SHIFT;
	uint64_t in = off & (MFILE_CHUNK_SIZE - 1);
	_Atomic(void *) *slot;
	char *p;

	if (unlikely(off >= mf->span))
		return NULL;
	slot = &get_leaf(mf, chunk)->chunk[chunk & (LEAF_SLOTS - 1)];
	p = atomic_load_explicit(slot, memory_order_acquire);
	if (unlikely(!p)) {
		p = map_chunk(mf, slot, chunk);
		if (!p)
			return NULL;
	}
	*ret_len = MIN(*ret_len, MFILE_CHUNK_SIZE - in);
	return p + in;
}

void *mfile_ptr(struct mfile *mf, uint64_t off, uint64_t *ret_len)
{
	return mf->rwfd >= 0 ? host_ptr(mf, off, ret_len) : NULL;
}

const void *mfile_cptr(struct mfile *mf, uint64_t off, uint64_t *ret_len)
{
	return host_ptr(mf, off, ret_len);
}

static int copy_data(struct mfile *to, uint64_t dst, struct mfile *from, uint64_t src, uint64_t len)
{
	while (len) {
		uint64_t n = len;
		const void *s = mfile_cptr(from, src, &n);
		void *d = mfile_ptr(to, dst, &n); /* cuts n further */

		if (!s || !d || safecopy(d, s, n))
			return -ENOMEM;
		src += n;
		dst += n;
		len -= n;
	}
	return 0;
}

int mfile_copy(struct mfile *to, uint64_t to_off, struct mfile *from, uint64_t from_off, uint64_t len)
{
	uint64_t at = from_off, end = from_off + len, a;
	int err = 0;

	while (!err && at < end && mfile_next_data(from, at, end, &a, &at))
		err = copy_data(to, to_off + (a - from_off), from, a, at - a);
	return err;
}
