// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptor tables. The lowest free number is found through a bitmap and a hint below which nothing
 * is free. A table grows by doubling, up to RLIMIT_NOFILE and FD_TABLE_MAX.
 *
 * Lookup without the lock: while a table has one user, only that user's thread changes it or
 * drops references that the table owns, so it may read its own table as it is. Others that look in
 * (/proc, pidfd_getfd) take a reference on the table first and the lock.
 *
 * A number may be reserved (open bit set, no file) while its file is being opened; it reads as EBADF.
 *
 * Lock: files.mu (RANK_FDTABLE). Files are closed after it is released.
 */
#include "base/alloc.h"
#include "base/log.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <string.h>
#include <sys/resource.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

#define FD_TABLE_MAX 1048576u /* fs.nr_open */
#define FD_TABLE_MIN 64u

struct files {
	struct ref ref;
	struct mutex mu;
	struct file **fd;   /* (m) */
	uint64_t *used;     /* (m) bit: taken or reserved */
	uint64_t *cloexec;  /* (m) */
	unsigned size;      /* (m) multiple of 64 */
	unsigned hint;      /* (m) no free number below */
};

static bool bit_test(const uint64_t *map, unsigned n)
{
	return map[n / 64] >> (n % 64) & 1;
}

static void bit_set(uint64_t *map, unsigned n, bool on)
{
	if (on)
		map[n / 64] |= 1ULL << (n % 64);
	else
		map[n / 64] &= ~(1ULL << (n % 64));
}

static struct files *files_alloc(unsigned size)
{
	struct files *fs = kzalloc(sizeof(*fs));

	ref_init(&fs->ref);
	mutex_init(&fs->mu, RANK_FDTABLE);
	fs->size = size;
	fs->fd = kcalloc(size, sizeof(*fs->fd));
	fs->used = kcalloc(size / 64, sizeof(*fs->used));
	fs->cloexec = kcalloc(size / 64, sizeof(*fs->cloexec));
	return fs;
}

struct files *files_create(void)
{
	return files_alloc(FD_TABLE_MIN);
}

/* Room for number @n. Context: files.mu. */
static void grow_locked(struct files *fs, unsigned n)
{
	unsigned size = fs->size;

	if (n < size)
		return;
	while (size <= n)
		size *= 2;
	struct file **fd = kcalloc(size, sizeof(*fd));
	memcpy(fd, fs->fd, fs->size * sizeof(*fd));
	free(fs->fd);
	fs->fd = fd;
	fs->used = krealloc_array(fs->used, size / 64, sizeof(*fs->used));
	fs->cloexec = krealloc_array(fs->cloexec, size / 64, sizeof(*fs->cloexec));
	memset(fs->used + fs->size / 64, 0, (size - fs->size) / 8);
	memset(fs->cloexec + fs->size / 64, 0, (size - fs->size) / 8);
	fs->size = size;
}

static int highest_locked(const struct files *fs)
{
	for (unsigned w = fs->size / 64; w-- > 0;)
		if (fs->used[w])
			return (int)(w * 64 + 63 - (unsigned)__builtin_clzll(fs->used[w]));
	return -1;
}

/* Copies numbers below @limit. Reserved numbers are free in the copy. */
struct files *files_dup(struct files *old, unsigned limit)
{
	AUTO_LOCK(&old->mu);
	int top = highest_locked(old);
	unsigned n = top < 0 ? 0 : (unsigned)top + 1, size = FD_TABLE_MIN;

	n = MIN(n, limit);
	while (size < n)
		size *= 2;
	struct files *fs = files_alloc(size);
	for (unsigned i = 0; i < n; i++) {
		if (!old->fd[i])
			continue;
		fs->fd[i] = file_get(old->fd[i]);
		bit_set(fs->used, i, true);
		bit_set(fs->cloexec, i, bit_test(old->cloexec, i));
	}
	return fs;
}

struct files *files_get(struct files *fs)
{
	ref_get(&fs->ref);
	return fs;
}

/* A descriptor of @fs is gone: what close(2) does. Takes over the reference. */
static void close_file(struct files *fs, struct file *f)
{
	if (!(f->fmode & FMODE_PATH)) {
		if (f->ops->flush)
			f->ops->flush(f, fs);
		locks_file_closed(f, fs);
		dnotify_file_closed(f, fs);
	}
	file_put(f);
}

void files_put(struct files *fs)
{
	if (!fs || !ref_put(&fs->ref))
		return;
	for (unsigned i = 0; i < fs->size; i++)
		if (fs->fd[i])
			close_file(fs, fs->fd[i]);
	free(fs->fd);
	free(fs->used);
	free(fs->cloexec);
	mutex_fini(&fs->mu);
	free(fs);
}

bool files_private(struct task *t)
{
	return ref_count(&t->files->ref) == 1;
}

struct file *files_lookup(struct files *fs, int fd)
{
	AUTO_LOCK(&fs->mu);
	if (fd < 0 || (unsigned)fd >= fs->size || !fs->fd[fd])
		return NULL;
	return file_get(fs->fd[fd]);
}

struct file *fd_get_any(struct task *t, int fd)
{
	struct files *fs = t->files;

	if (ref_count(&fs->ref) != 1)
		return files_lookup(fs, fd);
	if (fd < 0 || (unsigned)fd >= fs->size || !fs->fd[fd])
		return NULL;
	return file_get(fs->fd[fd]);
}

struct file *fd_get(struct task *t, int fd)
{
	struct file *f = fd_get_any(t, fd);

	if (f && unlikely(f->fmode & FMODE_PATH)) {
		file_put(f);
		return NULL;
	}
	return f;
}

/* Lowest free number >= @min below @limit, marked as used; -EMFILE. Context: files.mu. */
static int take_number_locked(struct files *fs, unsigned min, unsigned limit, bool cloexec)
{
	unsigned n = MAX(min, fs->hint);

	while (n < fs->size) {
		uint64_t free_bits = ~fs->used[n / 64] >> (n % 64);

		if (free_bits) {
			n += (unsigned)__builtin_ctzll(free_bits);
			break;
		}
		n = (n / 64 + 1) * 64;
	}
	if (n >= MIN(limit, FD_TABLE_MAX))
		return -EMFILE;
	grow_locked(fs, n);
	bit_set(fs->used, n, true);
	bit_set(fs->cloexec, n, cloexec);
	if (min <= fs->hint)
		fs->hint = n + 1;
	return (int)n;
}

static void free_number_locked(struct files *fs, unsigned n)
{
	fs->fd[n] = NULL;
	bit_set(fs->used, n, false);
	bit_set(fs->cloexec, n, false);
	if (n < fs->hint)
		fs->hint = n;
}

static unsigned nofile_limit(struct task *t)
{
	uint64_t lim = task_rlimit(t, RLIMIT_NOFILE);

	return lim > FD_TABLE_MAX ? FD_TABLE_MAX : (unsigned)lim;
}

int fd_reserve(struct task *t, unsigned flags)
{
	unsigned limit = nofile_limit(t);
	AUTO_LOCK(&t->files->mu);

	return take_number_locked(t->files, 0, limit, flags & O_CLOEXEC);
}

void fd_commit(struct task *t, int fd, struct file *f)
{
	AUTO_LOCK(&t->files->mu);
	t->files->fd[fd] = f;
}

void fd_unreserve(struct task *t, int fd)
{
	AUTO_LOCK(&t->files->mu);
	free_number_locked(t->files, (unsigned)fd);
}

int fd_install_min(struct task *t, struct file *f, int min, unsigned flags)
{
	unsigned limit = nofile_limit(t);

	mutex_lock(&t->files->mu);
	int fd = take_number_locked(t->files, (unsigned)min, limit, flags & O_CLOEXEC);
	if (fd >= 0)
		t->files->fd[fd] = f;
	mutex_unlock(&t->files->mu);
	if (fd < 0)
		file_put(f);
	return fd;
}

int fd_install(struct task *t, struct file *f, unsigned flags)
{
	return fd_install_min(t, f, 0, flags);
}

/* 0, or -EBUSY when an open() of another thread has just reserved the number, -EBADF out of range. */
int files_install_at(struct files *fs, int fd, struct file *f, unsigned flags)
{
	struct file *old;

	if (fd < 0 || (unsigned)fd >= FD_TABLE_MAX) {
		file_put(f);
		return -EBADF;
	}
	mutex_lock(&fs->mu);
	grow_locked(fs, (unsigned)fd);
	old = fs->fd[fd];
	if (!old && bit_test(fs->used, (unsigned)fd)) {
		mutex_unlock(&fs->mu);
		file_put(f);
		return -EBUSY;
	}
	fs->fd[fd] = f;
	bit_set(fs->used, (unsigned)fd, true);
	bit_set(fs->cloexec, (unsigned)fd, flags & O_CLOEXEC);
	mutex_unlock(&fs->mu);
	if (old)
		close_file(fs, old);
	return 0;
}

int fd_close(struct task *t, int fd)
{
	struct files *fs = t->files;
	struct file *f = NULL;

	mutex_lock(&fs->mu);
	if (fd >= 0 && (unsigned)fd < fs->size)
		f = fs->fd[fd];
	if (f)
		free_number_locked(fs, (unsigned)fd);
	mutex_unlock(&fs->mu);
	if (!f)
		return -EBADF;
	close_file(fs, f);
	return 0;
}

/* Closes [first, last]; a descriptor at a time, so that no lock is held over a close. */
static void close_span(struct files *fs, unsigned first, unsigned last)
{
	for (int fd = (int)MIN(first, FD_TABLE_MAX); (fd = files_next(fs, fd)) >= 0; fd++) {
		struct file *f;

		if ((unsigned)fd > last)
			return;
		mutex_lock(&fs->mu);
		f = fs->fd[fd];
		if (f)
			free_number_locked(fs, (unsigned)fd);
		mutex_unlock(&fs->mu);
		if (f)
			close_file(fs, f);
	}
}

long fd_close_range(struct task *t, unsigned first, unsigned last, unsigned flags)
{
	if (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC))
		return -EINVAL;
	if (first > last)
		return -EINVAL;
	if (flags & CLOSE_RANGE_UNSHARE) {
		int err = files_unshare(t);

		if (err)
			return err;
	}
	struct files *fs = t->files;
	if (!(flags & CLOSE_RANGE_CLOEXEC)) {
		close_span(fs, first, last);
		return 0;
	}
	AUTO_LOCK(&fs->mu);
	for (unsigned i = first; i < fs->size && i <= last; i++)
		if (fs->fd[i])
			bit_set(fs->cloexec, i, true);
	return 0;
}

/* dup3(2) without its check of equal numbers. */
long fd_dup(struct task *t, int oldfd, int newfd, unsigned flags)
{
	if (newfd < 0 || (unsigned)newfd >= nofile_limit(t))
		return -EBADF;
	struct file *f = fd_get_any(t, oldfd);
	if (!f)
		return -EBADF;
	int err = files_install_at(t->files, newfd, f, flags);
	return err ? err : newfd;
}

int fd_get_cloexec(struct task *t, int fd)
{
	struct files *fs = t->files;
	AUTO_LOCK(&fs->mu);

	if (fd < 0 || (unsigned)fd >= fs->size || !fs->fd[fd])
		return -EBADF;
	return bit_test(fs->cloexec, (unsigned)fd);
}

int fd_set_cloexec(struct task *t, int fd, bool on)
{
	struct files *fs = t->files;
	AUTO_LOCK(&fs->mu);

	if (fd < 0 || (unsigned)fd >= fs->size || !fs->fd[fd])
		return -EBADF;
	bit_set(fs->cloexec, (unsigned)fd, on);
	return 0;
}

int files_unshare(struct task *t)
{
	if (files_private(t))
		return 0;
	struct files *fs = files_dup(t->files, FD_TABLE_MAX), *old;

	mutex_lock(&t->mu);
	old = t->files;
	t->files = fs;
	mutex_unlock(&t->mu);
	files_put(old);
	return 0;
}

void files_exec(struct task *t)
{
	files_unshare(t);
	struct files *fs = t->files;

	for (int fd = 0; (fd = files_next(fs, fd)) >= 0; fd++)
		if (fd_get_cloexec(t, fd) == 1)
			fd_close(t, fd);
}

int files_next(struct files *fs, int fd)
{
	AUTO_LOCK(&fs->mu);
	for (unsigned n = fd < 0 ? 0 : (unsigned)fd; n < fs->size;) {
		uint64_t bits = fs->used[n / 64] >> (n % 64);

		if (!bits) {
			n = (n / 64 + 1) * 64;
			continue;
		}
		n += (unsigned)__builtin_ctzll(bits);
		if (fs->fd[n])
			return (int)n;
		n++;
	}
	return -1;
}

unsigned files_count(struct files *fs)
{
	unsigned n = 0;
	AUTO_LOCK(&fs->mu);

	for (unsigned i = 0; i < fs->size; i++)
		n += fs->fd[i] != NULL;
	return n;
}

/* ---- saving: open numbers with their files. Nobody is opening meanwhile, so none is reserved ---- */

static void *files_state_alloc(struct state *s)
{
	(void)s;
	return files_create();
}

static void fd_fields(struct state *s, struct files *fs, uint32_t fd)
{
	bool cloexec = !state_loading(s) && bit_test(fs->cloexec, fd);
	struct file *f = state_loading(s) ? NULL : fs->fd[fd];

	state_u32(s, &fd);
	state_bool(s, &cloexec);
	state_ref(s, &state_file, &f);
	if (!state_loading(s) || !state_ok(s))
		return;
	if (fd >= FD_TABLE_MAX || !f || (fd < fs->size && fs->fd[fd])) {
		state_fail(s, "impossible descriptor %u", fd);
		return;
	}
	grow_locked(fs, fd);
	fs->fd[fd] = f;
	bit_set(fs->used, fd, true);
	bit_set(fs->cloexec, fd, cloexec);
}

static void files_fields(struct state *s, void *obj)
{
	struct files *fs = obj;
	uint32_t n = state_count(s, files_count(fs), FD_TABLE_MAX);

	if (state_loading(s)) {
		for (; n && state_ok(s); n--)
			fd_fields(s, fs, 0);
		return;
	}
	for (unsigned fd = 0; fd < fs->size; fd++)
		if (fs->fd[fd])
			fd_fields(s, fs, fd);
}

static void *files_state_get(void *obj)
{
	return files_get(obj);
}

static void files_state_put(void *obj)
{
	files_put(obj);
}

const struct state_type state_files = {
	.id = STATE_FILES,
	.version = 1,
	.name = "descriptors",
	.alloc = files_state_alloc,
	.fields = files_fields,
	.get = files_state_get,
	.put = files_state_put,
	.phase = 4,
};
