// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/holdfast/generation: how often the sandbox was loaded from an image, plus one. A descriptor is ready
 * for EPOLLPRI (and EPOLLERR, as for /proc/self/mounts) once the number is another than the one it was opened
 * at or last read as, so whoever polls learns of each restore and each branch. See
 * docs/snapshots-in-guests.md.
 */
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/kernel/generation.h"
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

static void generation_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_pfs) && !S_ISREG(f->inode->mode))
		state_fail(s, "a generation counter that is no file");
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
	.finish = generation_finish,
};

const struct pfs_node proc_holdfast_nodes[] = {
	{ .name = "generation", .mode = S_IFREG | 0444, .show = show_generation,
	  .fops = &generation_fops, .open = generation_open },
	PROC_END,
};
