// SPDX-License-Identifier: Apache-2.0
/* The inotify descriptor (man 2 inotify_init, inotify_add_watch; 7 inotify): reading, watches, limits. */
#include "base/alloc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/inotify_priv.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

struct user_count { /* instances of one user */
	UT_hash_handle hh;
	uid_t uid;
	unsigned n;
};

static struct user_count *users; /* notify_mu */

static bool user_charge(uid_t uid)
{
	struct user_count *u;
	AUTO_LOCK(&notify_mu);

	HASH_FIND(hh, users, &uid, sizeof(uid), u);
	if (!u) {
		u = kzalloc(sizeof(*u));
		u->uid = uid;
		HASH_ADD(hh, users, uid, sizeof(u->uid), u);
	}
	if (u->n >= INOTIFY_MAX_INSTANCES)
		return false;
	u->n++;
	return true;
}

static void user_uncharge(uid_t uid)
{
	struct user_count *u;
	AUTO_LOCK(&notify_mu);

	HASH_FIND(hh, users, &uid, sizeof(uid), u);
	if (u && --u->n == 0) {
		HASH_DEL(users, u);
		free(u);
	}
}

struct l_inotify_event {
	int32_t wd;
	uint32_t mask, cookie, len;
};
_Static_assert(sizeof(struct l_inotify_event) == 16, "struct inotify_event is 16 bytes");

/* Takes the first event if it fits into @room. NULL and *ret_err: -EAGAIN empty, -EINVAL no room. */
static struct ievent *take_event(struct inotify *in, size_t room, int *ret_err)
{
	AUTO_LOCK(&notify_mu);
	if (list_empty(&in->events)) {
		*ret_err = -EAGAIN;
		return NULL;
	}
	struct ievent *e = list_first(&in->events, struct ievent, node);
	if (ievent_size(e) > room) {
		*ret_err = -EINVAL;
		return NULL;
	}
	list_del(&e->node);
	in->nevents--;
	in->bytes -= ievent_size(e);
	return e;
}

static ssize_t copy_event(struct iter *it, const struct ievent *e)
{
	char buf[sizeof(struct l_inotify_event) + NAME_MAX_G + 17] = { 0 };
	size_t size = ievent_size(e);
	struct l_inotify_event h = { e->wd, e->mask, e->cookie, (uint32_t)(size - 16) };

	memcpy(buf, &h, sizeof(h));
	memcpy(buf + sizeof(h), e->name, e->len);
	ssize_t n = iter_copy_to(it, buf, size);
	return n == (ssize_t)size ? n : -EFAULT;
}

static bool readable(struct inotify *in)
{
	AUTO_LOCK(&notify_mu);
	return !list_empty(&in->events);
}

static ssize_t inotify_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct inotify *in = f->priv;
	ssize_t done = 0;
	int err = 0;

	(void)pos;
	for (;;) {
		struct ievent *e = take_event(in, it->left, &err);

		if (e) {
			ssize_t n = copy_event(it, e);

			free(e);
			if (n < 0)
				return done ? done : n;
			done += n;
			continue;
		}
		if (done || err != -EAGAIN)
			return done ? done : err;
		if (!t || (atomic_load(&f->flags) & O_NONBLOCK))
			return -EAGAIN;
		long r = wait_event(t, &in->wq, EPOLLIN, DEADLINE_NONE, readable(in));
		if (r)
			return r;
	}
}

static uint32_t inotify_poll(struct file *f)
{
	return readable(f->priv) ? EPOLLIN | EPOLLRDNORM : 0;
}

static struct waitq *inotify_waitq(struct file *f)
{
	struct inotify *in = f->priv;

	return &in->wq;
}

static long inotify_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	struct inotify *in = f->priv;
	int n;

	if (cmd != FIONREAD)
		return -ENOIOCTLCMD;
	mutex_lock(&notify_mu);
	n = (int)in->bytes;
	mutex_unlock(&notify_mu);
	return copyout_obj(t, gaddr(arg), &n);
}

static void inotify_release(struct file *f)
{
	struct inotify *in = f->priv;
	struct ievent *e, *tmp;

	for (;;) {
		struct inode *inode = NULL;

		mutex_lock(&notify_mu);
		in->file = NULL;
		if (in->watches)
			inode = watch_remove_locked(in->watches, false);
		mutex_unlock(&notify_mu);
		if (!inode)
			break;
		inode_put(inode);
	}
	list_for_each_safe(e, tmp, &in->events, node)
		free(e);
	user_uncharge(in->uid);
	waitq_fini(&in->wq);
	free(in);
}

static void inotify_show_fdinfo(struct file *f, struct seqbuf *out)
{
	struct inotify *in = f->priv;
	struct watch *w, *tmp;
	AUTO_LOCK(&notify_mu);

	HASH_ITER(hh, in->watches, w, tmp)
		seq_printf(out, "inotify wd:%x ino:%llx sdev:%llx mask:%x ignored_mask:0\n",
			   (unsigned)w->wd, (unsigned long long)w->inode->ino,
			   (unsigned long long)(w->inode->sb ? w->inode->sb->dev : 0),
			   w->mask & (IN_ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT));
}

static const struct file_ops inotify_fops = {
	.name = "inotify",
	.release = inotify_release,
	.read = inotify_read,
	.poll = inotify_poll,
	.waitq = inotify_waitq,
	.ioctl = inotify_ioctl,
	.show_fdinfo = inotify_show_fdinfo,
	.state = &file_state_inotify,
};

bool file_is_inotify(const struct file *f)
{
	return f->ops == &inotify_fops;
}

static struct inotify *inotify_alloc(struct file *f)
{
	struct inotify *in = kzalloc(sizeof(*in));

	list_init(&in->events);
	waitq_init(&in->wq);
	in->file = f;
	if (f)
		f->priv = in;
	return in;
}

struct file *inotify_create(struct task *t, unsigned flags)
{
	struct inotify *in;
	struct file *f;

	if (!user_charge(task_cred(t)->uid))
		return err_ptr(-EMFILE);
	in = inotify_alloc(NULL);
	in->uid = task_cred(t)->uid;
	f = file_create_anon(&inotify_fops, in, O_RDONLY | (flags & O_NONBLOCK), "inotify");
	if (is_err(f)) {
		user_uncharge(in->uid);
		waitq_fini(&in->wq);
		free(in);
		return f;
	}
	/* Linux calls it "anon_inode:inotify", without brackets. */
	in->file = f;
	return f;
}

static struct watch *find_locked(struct inotify *in, struct inode *inode)
{
	struct notify_marks *m = atomic_load(&inode->marks);
	struct watch *w;

	if (!m)
		return NULL;
	list_for_each(w, &m->watches, inode_node)
		if (w->in == in)
			return w;
	return NULL;
}

static int add_locked(struct inotify *in, struct inode *inode, uint32_t mask)
{
	if (atomic_load(&notify_nwatches) >= INOTIFY_MAX_WATCHES)
		return -ENOSPC;
	struct watch *w = kzalloc(sizeof(*w));
	/* As idr_alloc_cyclic: numbers aren't used again soon. */
	w->wd = ++in->last_wd;
	if (in->last_wd == INT32_MAX)
		in->last_wd = 0;
	w->mask = mask;
	w->in = in;
	w->inode = inode_get(inode);
	list_init(&w->oneshot_node);
	list_add_tail(&marks_make_locked(inode)->watches, &w->inode_node);
	HASH_ADD(hh, in->watches, wd, sizeof(w->wd), w);
	atomic_fetch_add(&notify_nwatches, 1);
	return w->wd;
}

int inotify_add(struct file *f, struct inode *inode, uint32_t mask)
{
	uint32_t keep = mask & (IN_ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT);
	struct inotify *in = f->priv;
	AUTO_LOCK(&notify_mu);
	struct watch *w = find_locked(in, inode);

	if (!w)
		return add_locked(in, inode, keep);
	if (mask & IN_MASK_CREATE)
		return -EEXIST;
	w->mask = mask & IN_MASK_ADD ? w->mask | keep : keep;
	return w->wd;
}

int inotify_remove(struct file *f, int wd)
{
	struct inotify *in = f->priv;
	struct inode *inode = NULL;
	struct watch *w;

	mutex_lock(&notify_mu);
	HASH_FIND(hh, in->watches, &wd, sizeof(wd), w);
	if (w)
		inode = watch_remove_locked(w, true);
	mutex_unlock(&notify_mu);
	if (!inode)
		return -EINVAL;
	inode_put(inode);
	return 0;
}

/* ---- saving ---- */

static void event_fields(struct state *s, struct inotify *in, struct ievent *e)
{
	struct ievent head = { 0 };
	char name[NAME_MAX_G + 1] = "";

	if (e) {
		head = *e;
		memcpy(name, e->name, e->len + 1);
	}
	state_i32(s, &head.wd);
	state_u32(s, &head.mask);
	state_u32(s, &head.cookie);
	state_str(s, name, sizeof(name));
	if (!state_loading(s))
		return;
	e = ievent_new(head.wd, head.mask, head.cookie, name);
	list_add_tail(&in->events, &e->node);
	in->nevents++;
	in->bytes += ievent_size(e);
}

static void watch_fields(struct state *s, struct inotify *in, struct watch *w)
{
	struct watch *same = NULL;

	state_i32(s, &w->wd);
	state_u32(s, &w->mask);
	state_ref_in(s, &state_inode_class, &w->inode);
	if (!state_loading(s) || !state_ok(s))
		return;
	HASH_FIND(hh, in->watches, &w->wd, sizeof(w->wd), same);
	if (!w->inode || same) {
		state_fail(s, "impossible watch %d", w->wd);
		return;
	}
	w->in = in;
	list_init(&w->oneshot_node);
	AUTO_LOCK(&notify_mu);
	list_add_tail(&marks_make_locked(w->inode)->watches, &w->inode_node);
	HASH_ADD(hh, in->watches, wd, sizeof(w->wd), w);
	atomic_fetch_add(&notify_nwatches, 1);
}

static void watches_fields(struct state *s, struct inotify *in)
{
	struct watch *w, *tmp;
	uint32_t n = state_count(s, HASH_COUNT(in->watches), INOTIFY_MAX_WATCHES);

	for (; state_loading(s) && n && state_ok(s); n--)
		watch_fields(s, in, kzalloc(sizeof(*w)));
	if (state_loading(s))
		return;
	HASH_ITER(hh, in->watches, w, tmp)
		watch_fields(s, in, w);
}

static void inotify_state_fields(struct state *s, struct file *f)
{
	struct inotify *in = state_loading(s) ? inotify_alloc(f) : f->priv;
	struct ievent *e;
	uint32_t n;

	state_u32(s, &in->uid);
	state_i32(s, &in->last_wd);
	watches_fields(s, in);
	n = state_count(s, in->nevents, INOTIFY_MAX_EVENTS + 1);
	for (; state_loading(s) && n && state_ok(s); n--)
		event_fields(s, in, NULL);
	if (state_loading(s)) {
		if (!user_charge(in->uid))
			state_fail(s, "too many inotify instances of one user");
		return;
	}
	list_for_each(e, &in->events, node)
		event_fields(s, in, e);
}

const struct file_state file_state_inotify = {
	.id = FILE_INOTIFY,
	.ops = &inotify_fops,
	.fields = inotify_state_fields,
};
