// SPDX-License-Identifier: Apache-2.0
/*
 * File locks: flock(2), POSIX record locks and open file description locks (man 2 fcntl).
 *
 * One lock, locks_mu, guards all lists: locks are short-lived and few, and looking for deadlocks needs
 * all of them anyway. An inode gets a context with its first lock and keeps it.
 *
 * A blocked request isn't queued on the lock that it waits for: it waits on the inode's queue and tries
 * again at each release. While it waits it is listed in `blocked`, which is what the search for
 * deadlocks walks (POSIX locks only, as in Linux: OFD and flock owners aren't tracked).
 *
 * Left out: mandatory locks (gone from Linux, too), leases (refused).
 *
 * Lock order: locks_mu (RANK_FILE_LOCKS) > waitq.mu.
 */
#include "sentry/vfs/locks.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

#define LOCKS_MAX 65536         /* in the whole sandbox: ENOLCK */
#define DEADLOCK_STEPS_MAX 1024 /* longer chains are taken as no deadlock */
#define OFFSET_MAX INT64_MAX

enum lock_kind { LOCK_FLOCK, LOCK_POSIX, LOCK_OFD };

struct file_lock {
	struct list node;
	enum lock_kind kind;
	short type;        /* F_RDLCK, F_WRLCK */
	const void *owner; /* struct files (POSIX) or struct file; compared only */
	struct pid *pid;   /* reference; who is shown */
	int64_t start, end; /* inclusive */
};

struct file_lock_ctx {
	struct list flock; /* of file_lock */
	struct list range; /* POSIX and OFD, by owner and start */
	struct waitq wq;
	struct inode *inode; /* borrowed: the inode owns us */
	struct list node;    /* of all contexts, for /proc/locks */
};

struct blocked_lock { /* on the stack of who waits */
	struct list node;
	const void *owner, *waits_for;
};

static struct mutex locks_mu;
static struct list contexts = LIST_INIT(contexts);
static struct list blocked = LIST_INIT(blocked);
static unsigned nlocks;

void locks_init(void)
{
	mutex_init(&locks_mu, RANK_FILE_LOCKS);
}

static struct file_lock_ctx *ctx_get(struct inode *inode)
{
	struct file_lock_ctx *ctx = atomic_load_explicit(&inode->locks, memory_order_acquire);

	if (ctx)
		return ctx;
	AUTO_LOCK(&locks_mu);
	ctx = atomic_load(&inode->locks);
	if (ctx)
		return ctx;
	ctx = kzalloc(sizeof(*ctx));
	list_init(&ctx->flock);
	list_init(&ctx->range);
	waitq_init(&ctx->wq);
	ctx->inode = inode;
	list_add_tail(&contexts, &ctx->node);
	atomic_store_explicit(&inode->locks, ctx, memory_order_release);
	return ctx;
}

static void lock_free_locked(struct file_lock *l)
{
	list_del(&l->node);
	pid_put(l->pid);
	free(l);
	nlocks--;
}

void locks_inode_fini(struct inode *inode)
{
	struct file_lock_ctx *ctx = atomic_load(&inode->locks);
	struct file_lock *l, *tmp;

	if (!ctx)
		return;
	mutex_lock(&locks_mu);
	list_del(&ctx->node);
	list_for_each_safe(l, tmp, &ctx->flock, node)
		lock_free_locked(l);
	list_for_each_safe(l, tmp, &ctx->range, node)
		lock_free_locked(l);
	mutex_unlock(&locks_mu);
	waitq_fini(&ctx->wq);
	free(ctx);
	atomic_store(&inode->locks, NULL);
}

static struct file_lock *lock_new_locked(const struct file_lock *from)
{
	struct file_lock *l = kzalloc(sizeof(*l));

	*l = *from;
	list_init(&l->node);
	if (l->pid)
		pid_get(l->pid);
	nlocks++;
	return l;
}

/* ---------------------------------------------------------------- flock */

/* 0, -EAGAIN (somebody else's is in the way), -ENOLCK. A conversion drops the old lock first, so
 * that it may be lost to another waiter: man 2 flock says so. */
static long flock_try(struct file_lock_ctx *ctx, const struct file_lock *want)
{
	struct file_lock *l, *tmp;
	bool dropped = false;
	long err = 0;

	mutex_lock(&locks_mu);
	list_for_each_safe(l, tmp, &ctx->flock, node) {
		if (l->owner != want->owner)
			continue;
		if (l->type == want->type) {
			mutex_unlock(&locks_mu);
			return 0;
		}
		lock_free_locked(l);
		dropped = true;
	}
	if (want->type != F_UNLCK) {
		list_for_each(l, &ctx->flock, node)
			if (l->type == F_WRLCK || want->type == F_WRLCK)
				err = -EAGAIN;
		if (!err && nlocks >= LOCKS_MAX)
			err = -ENOLCK;
		if (!err)
			list_add_tail(&ctx->flock, &lock_new_locked(want)->node);
	}
	mutex_unlock(&locks_mu);
	if (dropped)
		waitq_wake(&ctx->wq, ~0u);
	return err;
}

long locks_flock(struct task *t, struct file *f, int op)
{
	struct file_lock want = { .kind = LOCK_FLOCK, .owner = f, .pid = t->tg->pid, .end = OFFSET_MAX };
	struct file_lock_ctx *ctx;
	long err, sleep;

	switch (op & ~LOCK_NB) {
	case LOCK_SH:
		want.type = F_RDLCK;
		break;
	case LOCK_EX:
		want.type = F_WRLCK;
		break;
	case LOCK_UN:
		want.type = F_UNLCK;
		break;
	default:
		return -EINVAL;
	}
	/* flock doesn't need a descriptor open for the right kind of access, only for some. */
	if (want.type != F_UNLCK && !(f->fmode & (FMODE_READ | FMODE_WRITE)))
		return -EBADF;
	ctx = ctx_get(f->inode);
	err = flock_try(ctx, &want);
	if (err != -EAGAIN || (op & LOCK_NB))
		return err;
	sleep = wait_event(t, &ctx->wq, ~0u, DEADLINE_NONE,
			   (err = flock_try(ctx, &want)) != -EAGAIN);
	return sleep ? sleep : err;
}

/* ---------------------------------------------------------------- ranges */

static bool overlaps(const struct file_lock *a, const struct file_lock *b)
{
	return a->start <= b->end && b->start <= a->end;
}

static const struct file_lock *conflict_locked(struct file_lock_ctx *ctx,
					       const struct file_lock *want)
{
	struct file_lock *l;

	list_for_each(l, &ctx->range, node) {
		if (l->owner == want->owner && l->kind == want->kind)
			continue;
		if (overlaps(l, want) && (l->type == F_WRLCK || want->type == F_WRLCK))
			return l;
	}
	return NULL;
}

/* Would @owner, waiting for @holder, close a circle? */
static bool deadlock_locked(const void *owner, const void *holder)
{
	for (int i = 0; i < DEADLOCK_STEPS_MAX && holder; i++) {
		const struct blocked_lock *b;
		const void *next = NULL;

		if (holder == owner)
			return true;
		list_for_each(b, &blocked, node)
			if (b->owner == holder)
				next = b->waits_for;
		holder = next;
	}
	return false;
}

/* Behind the owner's locks that start before it: F_GETLK tells the first one in the way. */
static void insert_sorted_locked(struct file_lock_ctx *ctx, const struct file_lock *want)
{
	struct list *before = &ctx->range;
	struct file_lock *l;

	list_for_each(l, &ctx->range, node) {
		if (l->owner == want->owner && l->kind == want->kind && l->start > want->start) {
			before = &l->node;
			break;
		}
	}
	list_add_tail(before, &lock_new_locked(want)->node);
}

/*
 * Sets @want over whatever its owner had there: what lies inside is replaced, what sticks out stays,
 * and neighbours of the same type grow together.
 */
static void set_range_locked(struct file_lock_ctx *ctx, const struct file_lock *want)
{
	struct file_lock *l, *tmp, merged = *want;

	list_for_each_safe(l, tmp, &ctx->range, node) {
		if (l->owner != want->owner || l->kind != want->kind)
			continue;
		bool touches = merged.start == 0 || l->end >= merged.start - 1;
		touches = touches && (merged.end == OFFSET_MAX || l->start <= merged.end + 1);
		if (l->type == want->type && touches) {
			merged.start = MIN(merged.start, l->start);
			merged.end = MAX(merged.end, l->end);
			lock_free_locked(l);
			continue;
		}
		if (!overlaps(l, want))
			continue;
		if (l->start < want->start && l->end > want->end) {
			struct file_lock *right = lock_new_locked(l);

			right->start = want->end + 1;
			l->end = want->start - 1;
			list_add(&l->node, &right->node);
		} else if (l->start < want->start) {
			l->end = want->start - 1;
		} else if (l->end > want->end) {
			l->start = want->end + 1;
		} else {
			lock_free_locked(l);
		}
	}
	if (want->type != F_UNLCK)
		insert_sorted_locked(ctx, &merged);
}

/* 0, -EAGAIN, -EDEADLK (only when @b: the caller is about to wait), -ENOLCK. */
static long range_try(struct file_lock_ctx *ctx, const struct file_lock *want, struct blocked_lock *b)
{
	const struct file_lock *c;

	mutex_lock(&locks_mu);
	if (b)
		list_del(&b->node);
	c = want->type == F_UNLCK ? NULL : conflict_locked(ctx, want);
	if (c) {
		long err = -EAGAIN;

		if (b && want->kind == LOCK_POSIX && c->kind == LOCK_POSIX) {
			if (deadlock_locked(want->owner, c->owner)) {
				err = -EDEADLK;
			} else {
				b->waits_for = c->owner;
				list_add(&blocked, &b->node);
			}
		}
		mutex_unlock(&locks_mu);
		return err;
	}
	/* A split needs one more lock than there was. */
	if (nlocks + 2 > LOCKS_MAX && want->type != F_UNLCK) {
		mutex_unlock(&locks_mu);
		return -ENOLCK;
	}
	set_range_locked(ctx, want);
	mutex_unlock(&locks_mu);
	waitq_wake(&ctx->wq, ~0u);
	return 0;
}

static int whence_base(struct file *f, int whence, int64_t *ret)
{
	switch (whence) {
	case SEEK_SET:
		*ret = 0;
		return 0;
	case SEEK_CUR:
		mutex_lock(&f->pos_mu);
		*ret = f->pos;
		mutex_unlock(&f->pos_mu);
		return 0;
	case SEEK_END:
		*ret = (int64_t)atomic_load(&f->inode->size);
		return 0;
	default:
		return -EINVAL;
	}
}

/* man 2 fcntl: a negative length means the bytes before the start; 0 means to the end. */
static int fill_range(struct file *f, const struct l_flock *fl, struct file_lock *ret)
{
	int64_t base = 0, start, end;
	int err = whence_base(f, fl->l_whence, &base);

	if (err)
		return err;
	if (__builtin_add_overflow(base, fl->l_start, &start))
		return -EOVERFLOW;
	if (start < 0)
		return -EINVAL;
	if (fl->l_len > 0) {
		if (__builtin_add_overflow(start, fl->l_len - 1, &end))
			return -EOVERFLOW;
	} else if (fl->l_len < 0) {
		end = start - 1;
		if (__builtin_add_overflow(start, fl->l_len, &start) || start < 0)
			return -EINVAL;
	} else {
		end = OFFSET_MAX;
	}
	ret->start = start;
	ret->end = end;
	return 0;
}

static int fill_request(struct task *t, struct file *f, const struct l_flock *fl, bool ofd,
			struct file_lock *ret)
{
	*ret = (struct file_lock){ .kind = ofd ? LOCK_OFD : LOCK_POSIX,
				   .type = fl->l_type,
				   .owner = ofd ? (const void *)f : (const void *)t->files,
				   .pid = t->tg->pid };
	if (fl->l_type != F_RDLCK && fl->l_type != F_WRLCK && fl->l_type != F_UNLCK)
		return -EINVAL;
	if (ofd && fl->l_pid != 0)
		return -EINVAL;
	return fill_range(f, fl, ret);
}

long locks_getlk(struct task *t, struct file *f, struct l_flock *fl, bool ofd)
{
	const struct file_lock *c = NULL;
	struct file_lock want;
	struct file_lock_ctx *ctx;
	int err = fill_request(t, f, fl, ofd, &want);

	if (err)
		return err;
	if (want.type == F_UNLCK && !ofd)
		return -EINVAL;
	ctx = ctx_get(f->inode);
	AUTO_LOCK(&locks_mu);
	if (want.type != F_UNLCK)
		c = conflict_locked(ctx, &want);
	if (!c) {
		fl->l_type = F_UNLCK;
		return 0;
	}
	fl->l_type = c->type;
	fl->l_whence = SEEK_SET;
	fl->l_start = c->start;
	fl->l_len = c->end == OFFSET_MAX ? 0 : c->end - c->start + 1;
	fl->l_pid = c->kind == LOCK_OFD ? -1 : pid_nr(c->pid, task_pidns(t));
	return 0;
}

long locks_setlk(struct task *t, struct file *f, const struct l_flock *fl, bool ofd, bool wait)
{
	struct blocked_lock b;
	struct file_lock want;
	struct file_lock_ctx *ctx;
	long err = fill_request(t, f, fl, ofd, &want), sleep;

	if (err)
		return err;
	if (want.type == F_RDLCK && !(f->fmode & FMODE_READ))
		return -EBADF;
	if (want.type == F_WRLCK && !(f->fmode & FMODE_WRITE))
		return -EBADF;
	ctx = ctx_get(f->inode);
	err = range_try(ctx, &want, NULL);
	if (err != -EAGAIN || !wait)
		return err;
	list_init(&b.node);
	b.owner = want.owner;
	sleep = wait_event(t, &ctx->wq, ~0u, DEADLINE_NONE,
			   (err = range_try(ctx, &want, &b)) != -EAGAIN);
	mutex_lock(&locks_mu);
	list_del(&b.node);
	mutex_unlock(&locks_mu);
	return sleep ? sleep : err;
}

long locks_setlease(struct task *t, struct file *f, int arg)
{
	if (arg != F_RDLCK && arg != F_WRLCK && arg != F_UNLCK)
		return -EINVAL;
	if (!S_ISREG(f->inode->mode))
		return -EINVAL;
	if (task_cred(t)->fsuid != f->inode->uid && !task_capable(t, 28 /* CAP_LEASE */))
		return -EACCES;
	return -EAGAIN; /* F_UNLCK without a lease says so, too */
}

/* ---------------------------------------------------------------- release */

static void drop_owned(struct file_lock_ctx *ctx, struct list *head, enum lock_kind kind,
		       const void *owner)
{
	struct file_lock *l, *tmp;
	bool any = false;

	mutex_lock(&locks_mu);
	list_for_each_safe(l, tmp, head, node) {
		if (l->owner != owner || l->kind != kind)
			continue;
		lock_free_locked(l);
		any = true;
	}
	mutex_unlock(&locks_mu);
	if (any)
		waitq_wake(&ctx->wq, ~0u);
}

void locks_file_closed(struct file *f, struct files *owner)
{
	struct file_lock_ctx *ctx = atomic_load_explicit(&f->inode->locks, memory_order_acquire);

	if (unlikely(ctx))
		drop_owned(ctx, &ctx->range, LOCK_POSIX, owner);
}

void locks_file_released(struct file *f)
{
	struct file_lock_ctx *ctx = atomic_load_explicit(&f->inode->locks, memory_order_acquire);

	if (likely(!ctx))
		return;
	drop_owned(ctx, &ctx->flock, LOCK_FLOCK, f);
	drop_owned(ctx, &ctx->range, LOCK_OFD, f);
}

static void show_one(struct seqbuf *out, struct pidns *ns, int n, const struct file_lock *l,
		     const struct inode *inode)
{
	static const char *const kinds[] = { [LOCK_FLOCK] = "FLOCK ", [LOCK_POSIX] = "POSIX ",
					     [LOCK_OFD] = "OFDLCK" };
	dev_t dev = inode->sb ? inode->sb->dev : 0;

	seq_printf(out, "%d: %s ADVISORY  %s %d %02x:%02x:%llu %lld ", n, kinds[l->kind],
		   l->type == F_WRLCK ? "WRITE" : "READ ",
		   l->kind == LOCK_OFD ? -1 : pid_nr(l->pid, ns), major(dev), minor(dev),
		   (unsigned long long)inode->ino, (long long)l->start);
	if (l->end == OFFSET_MAX)
		seq_printf(out, "EOF\n");
	else
		seq_printf(out, "%lld\n", (long long)l->end);
}

void locks_show(struct seqbuf *out, struct pidns *ns)
{
	struct file_lock_ctx *ctx;
	struct file_lock *l;
	int n = 0;
	AUTO_LOCK(&locks_mu);

	list_for_each(ctx, &contexts, node) {
		list_for_each(l, &ctx->flock, node)
			show_one(out, ns, ++n, l, ctx->inode);
		list_for_each(l, &ctx->range, node)
			show_one(out, ns, ++n, l, ctx->inode);
	}
}

/* ---- saving: who waits isn't, it asks again ---- */

static void lock_fields(struct state *s, struct file_lock *l)
{
	int64_t kind = l->kind, type = l->type;
	void *owner = (void *)(uintptr_t)l->owner;

	state_range_i64(s, &kind, LOCK_FLOCK, LOCK_OFD);
	state_range_i64(s, &type, MIN(F_RDLCK, F_WRLCK), MAX(F_RDLCK, F_WRLCK));
	state_weak(s, kind == LOCK_POSIX ? &state_files : &state_file, &owner);
	state_ref(s, &state_pid, &l->pid);
	state_i64(s, &l->start);
	state_i64(s, &l->end);
	l->kind = (enum lock_kind)kind;
	l->type = (short)type;
	l->owner = owner;
	if (l->start < 0 || l->end < l->start)
		state_fail(s, "lock of the bytes %lld to %lld", (long long)l->start,
			   (long long)l->end);
}

static void load_lock(struct state *s, struct inode *inode)
{
	struct file_lock *l = kzalloc(sizeof(*l));
	struct file_lock_ctx *ctx = ctx_get(inode);

	list_init(&l->node);
	lock_fields(s, l);
	mutex_lock(&locks_mu);
	nlocks++;
	list_add_tail(l->kind == LOCK_FLOCK ? &ctx->flock : &ctx->range, &l->node);
	if (!l->owner) /* nobody could ever release it */
		lock_free_locked(l);
	mutex_unlock(&locks_mu);
}

void locks_state_fields(struct state *s, struct inode *inode)
{
	struct file_lock_ctx *ctx = atomic_load(&inode->locks);
	struct list *heads[] = { ctx ? &ctx->flock : NULL, ctx ? &ctx->range : NULL };
	struct file_lock *l;
	uint32_t n = 0;

	for (size_t i = 0; ctx && i < ARRAY_SIZE(heads); i++)
		list_for_each(l, heads[i], node)
			n++;
	n = state_count(s, n, LOCKS_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		load_lock(s, inode);
	if (state_loading(s) || !ctx)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each(l, heads[i], node)
			lock_fields(s, l);
}
