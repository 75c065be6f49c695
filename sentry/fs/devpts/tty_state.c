// SPDX-License-Identifier: Apache-2.0
/*
 * Saving terminals: the pair with its modes, what is typed ahead, what nobody has read yet, and whose it is;
 * then the open files of both sides. Open slaves are counted again; the place in devpts is saved there.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/pid.h"
#include "sentry/vfs/vfs_state.h"

#define INDEX_MAX 4095

static void *tty_state_alloc(struct state *s)
{
	(void)s;
	return tty_alloc();
}

static void input_fields(struct state *s, struct n_tty *in)
{
	state_bytes(s, in->buf, sizeof(in->buf));
	state_bytes(s, in->delim, sizeof(in->delim));
	state_bytes(s, in->eof, sizeof(in->eof));
	state_u32(s, &in->head);
	state_u32(s, &in->tail);
	state_u32(s, &in->canon_head);
	state_bool(s, &in->lnext);
	state_bool(s, &in->erasing);
	if (in->head - in->tail > TTY_INPUT_SIZE || in->canon_head - in->tail > in->head - in->tail)
		state_fail(s, "impossible input of a terminal");
}

/* What is in the ring goes to its start. */
static void output_fields(struct state *s, struct tty *tty)
{
	uint32_t n = state_count(s, tty->out_head - tty->out_tail, TTY_OUT_SIZE);

	for (uint32_t i = 0; i < n; i++)
		state_u8(s, &tty->out[(tty->out_tail + i) % TTY_OUT_SIZE]);
	if (state_loading(s))
		tty->out_head = n;
}

static void mode_fields(struct state *s, struct tty *tty)
{
	state_bytes(s, &tty->termios, sizeof(tty->termios));
	state_bytes(s, &tty->ws, sizeof(tty->ws));
	state_u32(s, &tty->column);
	state_u32(s, &tty->canon_column);
	state_bool(s, &tty->stopped);
	state_bool(s, &tty->tco_stopped);
	state_bool(s, &tty->master_open);
	state_bool(s, &tty->other_closed);
	state_bool(s, &tty->locked);
	state_bool(s, &tty->exclusive);
	state_bool(s, &tty->packet);
	state_u8(s, &tty->pkt_status);
	state_u32(s, &tty->hangup_gen);
}

static void tty_fields(struct state *s, void *obj)
{
	struct tty *tty = obj;
	int64_t index = tty->index;

	state_range_i64(s, &index, 0, INDEX_MAX);
	tty->index = (int)index;
	state_ref(s, &state_super_devpts, &tty->sb);
	state_u32(s, &tty->uid);
	state_u32(s, &tty->gid);
	state_u32(s, &tty->mode);
	state_i64(s, &tty->ctime_ns);
	mode_fields(s, tty);
	input_fields(s, &tty->in);
	output_fields(s, tty);
	state_ref(s, &state_pid, &tty->pgrp);
	state_ref(s, &state_pid, &tty->session);
	if (!tty->sb)
		state_fail(s, "terminal on no devpts");
}

static void *get(void *obj)
{
	return tty_get(obj);
}

static void put(void *obj)
{
	tty_put(obj);
}

const struct state_type state_tty = {
	.id = STATE_TTY,
	.version = 1,
	.name = "terminal",
	.alloc = tty_state_alloc,
	.fields = tty_fields,
	.get = get,
	.put = put,
	.phase = 2,
};

/* ---- open files ---- */

static void master_fields(struct state *s, struct file *f)
{
	struct tty *tty = state_loading(s) ? NULL : f->priv;

	state_ref(s, &state_tty, &tty);
	f->priv = tty;
}

static void master_finish(struct state *s, struct file *f)
{
	struct tty *tty = f->priv;

	if (!tty || tty->master || !tty->master_open) {
		state_fail(s, "master of no terminal");
		return;
	}
	tty->master = f;
}

const struct file_state file_state_tty_master = {
	.id = FILE_TTY_MASTER,
	.ops = &tty_master_fops,
	.fields = master_fields,
	.finish = master_finish,
};

static void slave_fields(struct state *s, struct file *f)
{
	struct tty_file *tf = state_loading(s) ? kzalloc(sizeof(*tf)) : f->priv;

	if (state_loading(s)) {
		f->priv = tf;
		tf->file = f;
		list_init(&tf->node);
	}
	state_ref(s, &state_tty, &tf->tty);
	state_u32(s, &tf->gen);
}

static void slave_finish(struct state *s, struct file *f)
{
	struct tty_file *tf = f->priv;

	if (!tf->tty) {
		state_fail(s, "slave of no terminal");
		return;
	}
	list_add_tail(&tf->tty->files, &tf->node);
	if (!tty_file_hung(tf))
		tf->tty->slave_count++;
}

const struct file_state file_state_tty_slave = {
	.id = FILE_TTY_SLAVE,
	.ops = &tty_slave_fops,
	.fields = slave_fields,
	.finish = slave_finish,
};
