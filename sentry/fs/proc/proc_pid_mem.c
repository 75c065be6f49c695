// SPDX-License-Identifier: Apache-2.0
/*
 * What /proc/PID shows of an address space: maps, smaps, cmdline, environ, auxv, mem, pagemap.
 *
 * All but cmdline need the right to ptrace (man 5 proc_pid_maps). mem and pagemap pin the address space
 * at open, so an exec in between leaves them at the old one; reads of a dead one give 0 bytes.
 * pagemap is all zeroes: physical addresses are the host's business, and zero ("not present") is what
 * an unprivileged reader of the frame numbers has to cope with anyway.
 */
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs_state.h"

#define ARGS_SHOWN_MAX (2UL << 20) /* of cmdline and environ; the limit of exec is below it */
#define AUXV_WORDS_MAX 64

/* The address space after an access check: reference; NULL when there is none (zombie). err_ptr. */
static struct mm *mm_access(struct pfs_inode *pi, bool attach)
{
	AUTO_TASK struct task *t = proc_task_access(pi, attach);

	return is_err(t) ? err_ptr(ptr_err(t)) : task_mm_get(t);
}

static int show_maps(struct pfs_inode *pi, struct seqbuf *out, bool smaps)
{
	struct mm *mm = mm_access(pi, false);

	if (is_err(mm))
		return (int)ptr_err(mm);
	if (mm) {
		mm_show_maps(mm, out, smaps);
		mm_put(mm);
	}
	return 0;
}

int proc_show_maps(struct pfs_inode *pi, struct seqbuf *out)
{
	return show_maps(pi, out, false);
}

int proc_show_smaps(struct pfs_inode *pi, struct seqbuf *out)
{
	return show_maps(pi, out, true);
}

int proc_show_smaps_rollup(struct pfs_inode *pi, struct seqbuf *out)
{
	struct mm *mm = mm_access(pi, false);
	struct mm_stat st;

	if (is_err(mm))
		return (int)ptr_err(mm);
	if (!mm)
		return -ESRCH;
	mm_stat(mm, &st);
	mm_put(mm);
	seq_printf(out, "%08lx-%08lx ---p 00000000 00:00 0%*s[rollup]\n", MMAP_MIN_ADDR,
		   (unsigned long)GUEST_TASK_SIZE, 26, "");
	seq_printf(out, "Rss:            %8lu kB\nPss:            %8lu kB\n"
			"Pss_Anon:       %8lu kB\nPss_File:       %8lu kB\nPss_Shmem:      %8lu kB\n",
		   (unsigned long)st.rss / 1024, (unsigned long)st.rss / 1024,
		   (unsigned long)st.rss_anon / 1024, (unsigned long)st.rss_file / 1024,
		   (unsigned long)st.rss_shmem / 1024);
	seq_printf(out, "Shared_Clean:   %8lu kB\nShared_Dirty:   %8lu kB\n"
			"Private_Clean:  %8u kB\nPrivate_Dirty:  %8lu kB\nReferenced:     %8lu kB\n"
			"Anonymous:      %8lu kB\nSwap:           %8u kB\nSwapPss:        %8u kB\n"
			"Locked:         %8lu kB\n",
		   (unsigned long)st.rss_file / 1024, (unsigned long)st.rss_shmem / 1024, 0u,
		   (unsigned long)st.rss_anon / 1024, (unsigned long)st.rss / 1024,
		   (unsigned long)st.rss_anon / 1024, 0u, 0u, (unsigned long)st.locked / 1024);
	return 0;
}

/* Appends guest memory [from, to). */
static void show_range(struct mm *mm, gaddr_t from, uint64_t len, struct seqbuf *out)
{
	char buf[512];

	len = MIN(len, ARGS_SHOWN_MAX);
	while (len) {
		ssize_t n = mm_read(mm, from, buf, MIN(len, sizeof(buf)), true);

		if (n <= 0)
			return;
		seq_write(out, buf, (size_t)n);
		from = gaddr_off(from, (uint64_t)n);
		len -= (uint64_t)n;
	}
}

/*
 * Arguments as the process has them now. A program that wrote over the final NUL has made itself a
 * title that goes on into the environment (setproctitle): then it ends at the first NUL.
 */
int proc_show_cmdline(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct mm_layout l;
	uint64_t start, end;
	struct mm *mm;
	char last = 0;

	if (!t)
		return -ESRCH;
	mm = task_mm_get(t);
	if (!mm)
		return 0;
	mm_get_layout(mm, &l);
	start = gaddr_u64(l.arg_start);
	end = gaddr_u64(l.arg_end);
	if (end > start && mm_read(mm, gaddr(end - 1), &last, 1, true) == 1) {
		show_range(mm, l.arg_start, end - start, out);
		if (last) {
			size_t n;

			if (gaddr_u64(l.env_end) > end)
				show_range(mm, l.arg_end, gaddr_u64(l.env_end) - end, out);
			n = strnlen(out->buf, out->len);
			out->len = MIN(n + 1, out->len);
		}
	}
	mm_put(mm);
	return 0;
}

int proc_show_environ(struct pfs_inode *pi, struct seqbuf *out)
{
	struct mm *mm = mm_access(pi, false);
	struct mm_layout l;

	if (is_err(mm))
		return (int)ptr_err(mm);
	if (!mm)
		return 0;
	mm_get_layout(mm, &l);
	if (gaddr_u64(l.env_end) > gaddr_u64(l.env_start))
		show_range(mm, l.env_start, gaddr_u64(l.env_end) - gaddr_u64(l.env_start), out);
	mm_put(mm);
	return 0;
}

int proc_show_auxv(struct pfs_inode *pi, struct seqbuf *out)
{
	struct mm *mm = mm_access(pi, false);
	uint64_t words[AUXV_WORDS_MAX];
	unsigned n;

	if (is_err(mm))
		return (int)ptr_err(mm);
	if (!mm)
		return 0;
	n = mm_auxv(mm, words, AUXV_WORDS_MAX);
	seq_write(out, words, MIN(n, (unsigned)AUXV_WORDS_MAX) * sizeof(words[0]));
	mm_put(mm);
	return 0;
}

/* ---- mem, pagemap: f->priv is the mm, NULL for a process without one ---- */

int proc_mem_open(struct pfs_inode *pi, struct file *f)
{
	struct mm *mm = mm_access(pi, true);

	if (is_err(mm))
		return (int)ptr_err(mm);
	f->priv = mm;
	return 0;
}

static void mem_release(struct file *f)
{
	if (f->priv)
		mm_put(f->priv);
}

static ssize_t mem_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	AUTO_FREE uint8_t *buf = NULL;
	ssize_t done = 0;

	(void)t;
	if (!f->priv)
		return 0;
	buf = kzalloc(PAGE_SIZE);
	while (it->left) {
		size_t want = MIN(it->left, PAGE_SIZE);
		ssize_t n = mm_read(f->priv, gaddr((uint64_t)*pos), buf, want, true);

		if (n <= 0)
			return done ? done : -EIO;
		n = iter_copy_to(it, buf, (size_t)n);
		if (n < 0)
			return done ? done : n;
		done += n;
		*pos += n;
		if ((size_t)n < want)
			break;
	}
	return done;
}

static ssize_t mem_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	AUTO_FREE uint8_t *buf = NULL;
	ssize_t done = 0;

	(void)t;
	if (!f->priv)
		return 0;
	buf = kzalloc(PAGE_SIZE);
	while (it->left) {
		ssize_t n = iter_copy_from(it, buf, MIN(it->left, PAGE_SIZE));
		ssize_t w;

		if (n < 0)
			return done ? done : n;
		w = mm_write(f->priv, gaddr((uint64_t)*pos), buf, (size_t)n, true);
		if (w < n)
			iter_revert(it, (size_t)(n - MAX(w, (ssize_t)0)));
		if (w <= 0)
			return done ? done : -EIO;
		done += w;
		*pos += w;
		if (w < n)
			break;
	}
	return done;
}

/* Addresses above INT64_MAX don't exist for a guest, so a plain signed position does. */
static int64_t mem_llseek(struct file *f, int64_t off, int whence)
{
	if (whence == SEEK_CUR) {
		if (__builtin_add_overflow(f->pos, off, &off))
			return -EINVAL;
	} else if (whence != SEEK_SET) {
		return -EINVAL;
	}
	return f->pos = off;
}

static ssize_t pagemap_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	uint64_t end = GUEST_TASK_SIZE / PAGE_SIZE * 8;
	ssize_t n;

	(void)t;
	if (*pos % 8 || it->left % 8)
		return -EINVAL;
	if (!f->priv || (uint64_t)*pos >= end)
		return 0;
	n = iter_zero(it, MIN(it->left, end - (uint64_t)*pos));
	if (n > 0)
		*pos += n;
	return n;
}

const struct file_ops proc_mem_fops = {
	.name = "mem",
	.release = mem_release,
	.read = mem_read,
	.write = mem_write,
	.llseek = mem_llseek,
	.state = &file_state_proc_mem,
};

const struct file_ops proc_pagemap_fops = {
	.name = "pagemap",
	.release = mem_release,
	.read = pagemap_read,
	.llseek = mem_llseek,
	.state = &file_state_proc_pagemap,
};

/* ---- saving ---- */

static void mem_fields(struct state *s, struct file *f)
{
	struct mm *mm = state_loading(s) ? NULL : f->priv;

	state_ref(s, &state_mm, &mm);
	f->priv = mm;
}

const struct file_state file_state_proc_mem = {
	.id = FILE_PROC_MEM,
	.ops = &proc_mem_fops,
	.fields = mem_fields,
};
const struct file_state file_state_proc_pagemap = {
	.id = FILE_PROC_PAGEMAP,
	.ops = &proc_pagemap_fops,
	.fields = mem_fields,
};
