// SPDX-License-Identifier: Apache-2.0
/*
 * /dev/kmsg: the guest's kernel log (Linux: Documentation/ABI/testing/dev-kmsg). A ring of records; a
 * read returns one record, and fails with EPIPE once when the reader was overtaken. Guests may write
 * lines of their own (systemd does); nothing of the host's log is in here.
 *
 * Lock: kmsg.mu (RANK_NS), a leaf but for the wait queue.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "sentry/fs/dev/chrdev.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

#define KMSG_RECORDS 128
#define KMSG_LINE_MAX 1024

struct kmsg_record {
	uint64_t seq;
	int64_t ts_us;
	int prio;
	char *text;
};

static struct {
	struct mutex mu;
	struct waitq wq;
	struct kmsg_record rec[KMSG_RECORDS]; /* (mu) at seq % KMSG_RECORDS */
	uint64_t first, next;                 /* (mu) sequence numbers kept: [first, next) */
} kmsg;

struct kmsg_file {
	uint64_t seq; /* (kmsg.mu) next record to read */
};

static void kmsg_append(int prio, char *text)
{
	struct kmsg_record *r;

	mutex_lock(&kmsg.mu);
	r = &kmsg.rec[kmsg.next % KMSG_RECORDS];
	free(r->text);
	r->seq = kmsg.next++;
	r->ts_us = clock_monotonic_ns() / 1000;
	r->prio = prio;
	r->text = text;
	if (kmsg.next - kmsg.first > KMSG_RECORDS)
		kmsg.first = kmsg.next - KMSG_RECORDS;
	mutex_unlock(&kmsg.mu);
	waitq_wake(&kmsg.wq, EPOLLIN | EPOLLRDNORM);
}

void kmsg_add(int prio, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	kmsg_append(prio, kstrdup(line));
}

static bool kmsg_ready(struct kmsg_file *kf)
{
	AUTO_LOCK(&kmsg.mu);
	return kf->seq < kmsg.next;
}

/* Text of the next record for @kf: heap, NULL when there is none, -EPIPE when it was overtaken. */
static char *kmsg_next(struct kmsg_file *kf)
{
	AUTO_LOCK(&kmsg.mu);
	struct kmsg_record *r;

	if (kf->seq < kmsg.first) {
		kf->seq = kmsg.first;
		return err_ptr(-EPIPE);
	}
	if (kf->seq == kmsg.next)
		return NULL;
	r = &kmsg.rec[kf->seq++ % KMSG_RECORDS];
	return kasprintf("%d,%lu,%ld,-;%s\n", r->prio, (unsigned long)r->seq, (long)r->ts_us,
			 r->text);
}

static ssize_t kmsg_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct kmsg_file *kf = f->priv;
	AUTO_FREE char *line = NULL;
	char *r;
	long w;

	(void)pos;
	while (!(r = kmsg_next(kf))) {
		if (!t || (f->flags & O_NONBLOCK))
			return -EAGAIN;
		w = wait_event(t, &kmsg.wq, EPOLLIN, DEADLINE_NONE, kmsg_ready(kf));
		if (w < 0)
			return w;
	}
	if (is_err(r))
		return ptr_err(r);
	line = r;
	if (it->left < strlen(line))
		return -EINVAL;
	return iter_copy_to(it, line, strlen(line));
}

/* A line, with an optional "<prio>" in front. */
static ssize_t kmsg_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	AUTO_FREE char *buf = NULL;
	size_t len = it->left;
	char *text, *end;
	int prio = 12; /* LOG_USER | LOG_WARNING */
	ssize_t n;

	(void)t, (void)f, (void)pos;
	if (len > KMSG_LINE_MAX)
		return -EINVAL;
	buf = kzalloc(len + 1);
	n = iter_copy_from(it, buf, len);
	if (n < 0)
		return n;
	buf[n] = '\0';
	text = buf;
	if (text[0] == '<') {
		long p = strtol(text + 1, &end, 10);

		if (*end == '>' && p >= 0 && p < 1024) {
			prio = (int)p;
			text = end + 1;
		}
	}
	for (char *p = text; *p; p++)
		if (*p == '\n')
			*p = p[1] ? ' ' : '\0';
	kmsg_append(prio, kstrdup(text));
	return n;
}

static int64_t kmsg_llseek(struct file *f, int64_t off, int whence)
{
	struct kmsg_file *kf = f->priv;

	if (off)
		return -ESPIPE;
	AUTO_LOCK(&kmsg.mu);
	switch (whence) {
	case SEEK_SET:
	case SEEK_DATA: /* after the last SYSLOG_ACTION_CLEAR: there is none */
		kf->seq = kmsg.first;
		return 0;
	case SEEK_END:
		kf->seq = kmsg.next;
		return 0;
	default:
		return -EINVAL;
	}
}

static uint32_t kmsg_poll(struct file *f)
{
	struct kmsg_file *kf = f->priv;
	AUTO_LOCK(&kmsg.mu);

	if (kf->seq < kmsg.first)
		return EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLPRI;
	return kf->seq < kmsg.next ? EPOLLIN | EPOLLRDNORM : 0;
}

static struct waitq *kmsg_waitq(struct file *f)
{
	(void)f;
	return &kmsg.wq;
}

static void kmsg_release(struct file *f)
{
	free(f->priv);
}

static const struct file_ops kmsg_fops = {
	.name = "kmsg",
	.release = kmsg_release,
	.read = kmsg_read,
	.write = kmsg_write,
	.llseek = kmsg_llseek,
	.poll = kmsg_poll,
	.waitq = kmsg_waitq,
	.state = &file_state_kmsg,
};

static int kmsg_open(struct inode *inode, struct file *f)
{
	struct kmsg_file *kf = kzalloc(sizeof(*kf));

	(void)inode;
	mutex_lock(&kmsg.mu);
	kf->seq = kmsg.first;
	mutex_unlock(&kmsg.mu);
	f->priv = kf;
	f->ops = &kmsg_fops;
	return 0;
}

void kmsg_init(void)
{
	mutex_init(&kmsg.mu, RANK_NS);
	waitq_init(&kmsg.wq);
	if (chrdev_register(1, 11, 1, kmsg_open))
		panic("kmsg: device number is taken");
	kmsg_add(5, "%s version %s %s", KERNEL_SYSNAME, KERNEL_RELEASE, KERNEL_VERSION);
}

/* ---- saving ---- */

static void record_fields(struct state *s, struct kmsg_record *r)
{
	if (state_loading(s))
		free(r->text);
	state_u64(s, &r->seq);
	state_i64(s, &r->ts_us);
	state_i32(s, &r->prio);
	state_heap_str(s, &r->text, KMSG_LINE_MAX);
	if (state_ok(s) && !r->text)
		state_fail(s, "line without text");
}

void kmsg_state_globals(struct state *s)
{
	uint32_t n = state_count(s, (uint32_t)(kmsg.next - kmsg.first), KMSG_RECORDS);

	state_u64(s, &kmsg.first);
	kmsg.next = kmsg.first + n;
	for (uint32_t i = 0; i < n && state_ok(s); i++)
		record_fields(s, &kmsg.rec[(kmsg.first + i) % KMSG_RECORDS]);
}

static void kmsg_file_fields(struct state *s, struct file *f)
{
	struct kmsg_file *kf = state_loading(s) ? kzalloc(sizeof(*kf)) : f->priv;

	f->priv = kf;
	state_u64(s, &kf->seq);
}

static void kmsg_file_finish(struct state *s, struct file *f)
{
	if (((struct kmsg_file *)f->priv)->seq > kmsg.next)
		state_fail(s, "reader beyond the end of the log");
}

const struct file_state file_state_kmsg = {
	.id = FILE_KMSG,
	.ops = &kmsg_fops,
	.fields = kmsg_file_fields,
	.finish = kmsg_file_finish,
};
