// SPDX-License-Identifier: Apache-2.0
/* Inside of a pipe: shared by pipe.c (data), pipe_file.c (descriptors), pipe_splice.c. */
#ifndef SENTRY_FS_PIPE_PIPE_PRIV_H
#define SENTRY_FS_PIPE_PIPE_PRIV_H

#include "base/mutex.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/kernel/waitq.h"
#include "sentry/vfs/vfs.h"

#define PIPE_SPARE 2

/*
 * Lock order: pipe.mu (RANK_PIPE) > waitq.mu. Guest memory is copied with pipe.mu held. Two pipes: lower
 * address first. inode.mu is never held together with pipe.mu.
 * Field key: (m) mu   (i) inode.mu of the FIFO or pipefs inode   (c) const   (a) atomic
 */
struct pipe {
	struct mutex mu;
	struct pipe_page *ring;     /* (m) nslots entries */
	unsigned nslots;            /* (m) power of two */
	unsigned head, tail;        /* (m) free running: next to fill, next to read */
	unsigned readers, writers;  /* (m) open ends */
	unsigned r_counter, w_counter; /* (m) opens so far: who waits for a partner compares them */
	bool rd_claimed, wr_claimed;   /* (m) by a splice */
	_Atomic bool polled;        /* (a) poll was used: edge-triggered users want every write */
	uint8_t *spare[PIPE_SPARE]; /* (m) pages kept for reuse */
	bool anonymous;             /* (c) made by pipe(2): opening never waits */
	unsigned users;             /* (i) open files */
	struct file *rfile, *wfile; /* (m) of an anonymous pipe: for O_ASYNC; borrowed */
	struct waitq wq;
};

static inline unsigned pipe_used(const struct pipe *p)
{
	return p->head - p->tail;
}

static inline bool pipe_empty(const struct pipe *p)
{
	return p->head == p->tail;
}

static inline bool pipe_full(const struct pipe *p)
{
	return pipe_used(p) >= p->nslots;
}

static inline struct pipe_page *pipe_slot(struct pipe *p, unsigned i)
{
	return &p->ring[i & (p->nslots - 1)];
}

/* An empty pipe of so many slots, without ends. */
struct pipe *pipe_alloc_slots(unsigned slots);
extern const struct file_ops pipe_fops;
/* Frees the page of the tail slot (or keeps it as a spare) and moves on. Context: mu. */
void pipe_drop_tail_locked(struct pipe *p);
/* Tells readers and writers; after mu was dropped. */
void pipe_wake_readers(struct pipe *p);
void pipe_wake_writers(struct pipe *p);

ssize_t pipe_read(struct task *t, struct file *f, struct iter *it, int64_t *pos);
ssize_t pipe_write(struct task *t, struct file *f, struct iter *it, int64_t *pos);

#endif
