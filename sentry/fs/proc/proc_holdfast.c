// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/holdfast/snapshot: writing a name asks for a snapshot of the sandbox and returns when it is made; see
 * snapshot_write().
 *
 * /proc/holdfast/generation: how often the sandbox was loaded from an image, plus one. A descriptor is ready
 * for EPOLLPRI (and EPOLLERR, as for /proc/self/mounts) once the number is another than the one it was opened
 * at or last read as, so whoever polls learns of each restore and each branch. See
 * docs/snapshots-in-guests.md.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/kernel/generation.h"
#include "sentry/kernel/snapshot_request.h"
#include "sentry/kernel/waitq.h"
#include "sentry/vfs/vfs_state.h"

struct generation_file {
	struct pfs_file *text;
	_Atomic uint64_t seen;
};

static int show_generation(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%llu\n", (unsigned long long)generation_get());
	return 0;
}

static int generation_open(struct pfs_inode *pi, struct file *f)
{
	struct generation_file *gf = kzalloc(sizeof(*gf));

	(void)pi;
	gf->text = pfs_file_create();
	gf->seen = generation_get();
	f->priv = gf;
	return 0;
}

static void generation_release(struct file *f)
{
	struct generation_file *gf = f->priv;

	pfs_text_free(gf->text);
	free(gf);
}

static ssize_t generation_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct generation_file *gf = f->priv;

	(void)t;
	if (*pos == 0)
		gf->seen = generation_get();
	return pfs_text_read(pfs_of(f->inode), gf->text, it, pos);
}

static uint32_t generation_poll(struct file *f)
{
	struct generation_file *gf = f->priv;
	uint32_t ev = EPOLLIN | EPOLLRDNORM;

	return gf->seen == generation_get() ? ev : ev | EPOLLPRI | EPOLLERR;
}

static struct waitq *generation_file_waitq(struct file *f)
{
	(void)f;
	return generation_waitq();
}

static void generation_fields_of(struct state *s, struct file *f)
{
	struct generation_file *gf = state_loading(s) ? kzalloc(sizeof(*gf)) : f->priv;
	uint64_t seen = gf->seen;

	f->priv = gf;
	state_u64(s, &seen);
	gf->seen = seen;
	pfs_text_fields(s, &gf->text);
}

static void holdfast_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_pfs) && !S_ISREG(f->inode->mode))
		state_fail(s, "a file of /proc/holdfast that is none");
}

static const struct file_ops generation_fops = {
	.name = "generation",
	.release = generation_release,
	.read = generation_read,
	.llseek = pfs_file_llseek,
	.poll = generation_poll,
	.waitq = generation_file_waitq,
	.state = &file_state_proc_generation,
};

const struct file_state file_state_proc_generation = {
	.id = FILE_PROC_GENERATION,
	.ops = &generation_fops,
	.fields = generation_fields_of,
	.finish = holdfast_finish,
};

/* ---- snapshot ---- */

struct snapshot_file {
	_Atomic int64_t asked; /* number of the request that a write was waiting for; 0: none */
	_Atomic bool came_back; /* loaded: the snapshot that was asked for is this image */
};

static int snapshot_open(struct pfs_inode *pi, struct file *f)
{
	(void)pi;
	if (!snapshot_request_allowed())
		return -EPERM;
	f->priv = kzalloc(sizeof(struct snapshot_file));
	f->fmode |= FMODE_STREAM; /* a write sleeps, so it may not hold the position's lock */
	return 0;
}

static void snapshot_release(struct file *f)
{
	free(f->priv);
}

/* The name that is written: letters, digits, '.', '_' and '-', not beginning with '.' or '-'; a newline may follow. */
static int copy_name(struct iter *it, char name[SNAPSHOT_NAME_MAX + 1])
{
	char buf[SNAPSHOT_NAME_MAX + 2] = "";
	size_t len = it->left;

	if (!len || len > SNAPSHOT_NAME_MAX + 1)
		return -EINVAL;
	if (iter_copy_from(it, buf, len) != (ssize_t)len)
		return -EFAULT;
	if (buf[len - 1] == '\n')
		buf[--len] = 0;
	if (!len || len > SNAPSHOT_NAME_MAX || buf[0] == '.' || buf[0] == '-' ||
	    strspn(buf, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != len)
		return -EINVAL;
	memcpy(name, buf, len + 1);
	return 0;
}

/*
 * Making the snapshot interrupts this call, as it does each that sleeps; made again, it finds the request that it
 * was waiting for. In a sandbox that goes on from the snapshot it finds that it has come back, and returns
 * as well. So does one that a signal handler interrupted, if the program writes again.
 */
static ssize_t snapshot_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct snapshot_file *sf = f->priv;
	char name[SNAPSHOT_NAME_MAX + 1] = "";
	ssize_t len = (ssize_t)it->left;
	int64_t nr;
	int r = copy_name(it, name);

	(void)pos;
	if (r)
		return r;
	if (atomic_exchange(&sf->came_back, false))
		return len;
	if (!sf->asked) {
		nr = snapshot_request_post(name);
		if (nr < 0)
			return nr;
		sf->asked = nr;
	}
	if (wait_event(t, snapshot_request_waitq(), EPOLLOUT, DEADLINE_NONE,
		       snapshot_request_result(sf->asked) != -EINPROGRESS) < 0)
		return -ERESTARTSYS;
	r = snapshot_request_result(sf->asked);
	sf->asked = 0;
	return r ? r : len;
}

static void snapshot_fields_of(struct state *s, struct file *f)
{
	struct snapshot_file *sf = state_loading(s) ? kzalloc(sizeof(*sf)) : f->priv;
	bool taken = sf->asked && snapshot_request_is_taken(sf->asked);

	f->priv = sf;
	state_bool(s, &taken);
	sf->came_back = state_loading(s) ? taken : sf->came_back;
}

static const struct file_ops snapshot_fops = {
	.name = "snapshot",
	.release = snapshot_release,
	.write = snapshot_write,
	.state = &file_state_proc_snapshot,
};

const struct file_state file_state_proc_snapshot = {
	.id = FILE_PROC_SNAPSHOT,
	.ops = &snapshot_fops,
	.fields = snapshot_fields_of,
	.finish = holdfast_finish,
};

const struct pfs_node proc_holdfast_nodes[] = {
	{ .name = "generation", .mode = S_IFREG | 0444, .show = show_generation,
	  .fops = &generation_fops, .open = generation_open },
	{ .name = "snapshot", .mode = S_IFREG | 0200,
	  .fops = &snapshot_fops, .open = snapshot_open },
	PROC_END,
};
