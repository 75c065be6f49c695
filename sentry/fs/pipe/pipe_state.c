// SPDX-License-Identifier: Apache-2.0
/*
 * Saving pipes with the data in flight. A pipe belongs to its inode (also that of a FIFO on any file system)
 * and is saved with it; the open ends find it there, and are counted again.
 */
#include "sentry/fs/pipe/pipe_priv.h"
#include "sentry/vfs/vfs_state.h"

#define SLOTS_MAX (PIPE_MAX_SIZE_PRIV / PAGE_SIZE)

static void page_fields(struct state *s, struct pipe_page *b)
{
	state_u32(s, &b->off);
	state_u32(s, &b->len);
	state_bool(s, &b->packet);
	if (b->off > PAGE_SIZE || b->len > PAGE_SIZE - b->off) {
		state_fail(s, "impossible page of a pipe");
		return;
	}
	if (state_loading(s) && state_ok(s)) {
		b->data = pipe_page_alloc();
		if (!b->data) {
			state_fail(s, "no memory for the data of pipes");
			return;
		}
	}
	if (state_ok(s))
		state_bytes(s, b->data + b->off, b->len);
}

/* Slots: a power of two. */
static uint32_t slots_field(struct state *s, struct pipe *p)
{
	uint32_t slots = state_count(s, p ? p->nslots : 0, SLOTS_MAX);

	if (state_loading(s) && (!slots || (slots & (slots - 1)))) {
		state_fail(s, "pipe of %u pages", slots);
		return 1;
	}
	return slots;
}

static void contents(struct state *s, struct pipe *p)
{
	bool polled = p->polled;
	uint32_t n;

	state_bool(s, &p->anonymous);
	state_bool(s, &polled);
	state_u32(s, &p->r_counter);
	state_u32(s, &p->w_counter);
	p->polled = polled;
	n = state_count(s, pipe_used(p), p->nslots);
	if (state_loading(s))
		p->head = n;
	for (uint32_t i = 0; i < n && state_ok(s); i++)
		page_fields(s, pipe_slot(p, p->tail + i));
}

void pipe_state_fields(struct state *s, struct inode *inode)
{
	bool have = inode->fifo;
	uint32_t slots;

	state_bool(s, &have);
	if (!have)
		return;
	slots = slots_field(s, inode->fifo);
	if (state_loading(s))
		inode->fifo = pipe_alloc_slots(slots);
	contents(s, inode->fifo);
}

static void pipe_file_finish(struct state *s, struct file *f)
{
	struct pipe *p = f->inode->fifo;

	if (!p || !S_ISFIFO(f->inode->mode) || !(f->fmode & (FMODE_READ | FMODE_WRITE))) {
		state_fail(s, "pipe without its data");
		return;
	}
	f->priv = p;
	p->users++;
	if (f->fmode & FMODE_READ)
		p->readers++;
	if (f->fmode & FMODE_WRITE)
		p->writers++;
	if (!p->anonymous)
		return;
	/* For O_ASYNC: the two files that pipe(2) made, not those of /proc/PID/fd. */
	if ((f->fmode & FMODE_READ) && !p->rfile && !f->path.mnt)
		p->rfile = f;
	else if ((f->fmode & FMODE_WRITE) && !p->wfile && !f->path.mnt)
		p->wfile = f;
}

const struct file_state file_state_pipe = {
	.id = FILE_PIPE,
	.ops = &pipe_fops,
	.finish = pipe_file_finish,
};
