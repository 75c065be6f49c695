// SPDX-License-Identifier: Apache-2.0
/*
 * The memory devices: null, zero, full, random, urandom (man 4 null, full, random).
 *
 * Reads and writes of null and zero are hot in shell scripts: no lock, no allocation. A private mapping
 * of /dev/zero is anonymous memory; both kinds get a fresh shmem object, which reads as zeroes and, mapped
 * private, is copied on write like any other file, so the guest can't tell.
 *
 * Left out: /dev/mem, /dev/kmem, /dev/port. The random devices never block: the host's generator is
 * seeded before a sandbox can start, and what a guest writes to them isn't mixed in (it couldn't make
 * the generator better, and the entropy count isn't raised by a write in Linux either).
 */
#include <linux/capability.h>
#include <linux/random.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/fs/dev/chrdev.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/shmem.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

#define MEM_MAJOR 1
#define RANDOM_CHUNK 512
#define RANDOM_POOL_BITS 256

/* Objects made for the mappings of one open /dev/zero; they go with the file, or with the last vma. */
struct zero_map {
	struct zero_map *next;
	struct vm_object *obj;
};

static ssize_t null_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	(void)t, (void)f, (void)it, (void)pos;
	return 0;
}

static ssize_t null_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	size_t n = it->left;

	(void)t, (void)f, (void)pos;
	iter_advance(it, n);
	return (ssize_t)n;
}

static int64_t null_llseek(struct file *f, int64_t off, int whence)
{
	(void)off, (void)whence;
	return f->pos = 0;
}

static ssize_t zero_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	(void)t, (void)f, (void)pos;
	return iter_zero(it, it->left);
}

static ssize_t full_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	(void)t, (void)f, (void)it, (void)pos;
	return -ENOSPC;
}

static struct vm_object *zero_mmap(struct task *t, struct file *f, int prot, int flags,
				   uint64_t *off, uint64_t len)
{
	struct zero_map *m;
	struct vm_object *o;

	(void)t, (void)prot, (void)flags;
	o = shmem_object_create(page_up(len));
	if (is_err(o))
		return o;
	*off = 0;
	m = kzalloc(sizeof(*m));
	m->obj = o;
	mutex_lock(&f->own_mu);
	m->next = f->priv;
	f->priv = m;
	mutex_unlock(&f->own_mu);
	return o;
}

static void zero_release(struct file *f)
{
	struct zero_map *m = f->priv;

	while (m) {
		struct zero_map *next = m->next;

		m->obj->ops->put(m->obj);
		free(m);
		m = next;
	}
}

static ssize_t random_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	uint8_t buf[RANDOM_CHUNK];
	ssize_t done = 0;

	(void)f, (void)pos;
	while (it->left) {
		size_t n = MIN(it->left, sizeof(buf));
		ssize_t r;

		kernel_random(buf, n);
		r = iter_copy_to(it, buf, n);
		if (r < 0)
			return done ? done : r;
		done += r;
		if ((size_t)r < n)
			break;
		/* Large requests can be interrupted, after the first page (man 4 random). */
		if (t && (size_t)done % PAGE_SIZE == 0 && signal_pending(t))
			break;
	}
	explicit_bzero(buf, sizeof(buf));
	return done;
}

static long random_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	int bits = RANDOM_POOL_BITS;

	(void)f;
	switch (cmd) {
	case RNDGETENTCNT:
		return copyout_obj(t, gaddr(arg), &bits);
	case RNDADDTOENTCNT:
	case RNDADDENTROPY:
	case RNDZAPENTCNT:
	case RNDCLEARPOOL:
	case RNDRESEEDCRNG:
		return task_capable(t, CAP_SYS_ADMIN) ? 0 : -EPERM;
	default:
		return -ENOIOCTLCMD;
	}
}

static const struct file_ops null_fops = {
	.name = "null",
	.read = null_read,
	.write = null_write,
	.llseek = null_llseek,
	.state = &file_state_null,
};

static const struct file_ops zero_fops = {
	.name = "zero",
	.release = zero_release,
	.read = zero_read,
	.write = null_write,
	.llseek = null_llseek,
	.mmap = zero_mmap,
	.state = &file_state_zero,
};

static const struct file_ops full_fops = {
	.name = "full",
	.read = zero_read,
	.write = full_write,
	.llseek = null_llseek,
	.state = &file_state_full,
};

static const struct file_ops random_fops = {
	.name = "random",
	.read = random_read,
	.write = null_write,
	.llseek = null_llseek,
	.ioctl = random_ioctl,
	.state = &file_state_random,
};

/* What was mapped of /dev/zero belongs to the mappings. */
const struct file_state file_state_null = { .id = FILE_NULL, .ops = &null_fops };
const struct file_state file_state_zero = { .id = FILE_ZERO, .ops = &zero_fops };
const struct file_state file_state_full = { .id = FILE_FULL, .ops = &full_fops };
const struct file_state file_state_random = { .id = FILE_RANDOM, .ops = &random_fops };

static int mem_open(struct inode *inode, struct file *f)
{
	switch (minor(inode->rdev)) {
	case 3:
		f->ops = &null_fops;
		return 0;
	case 5:
		f->ops = &zero_fops;
		return 0;
	case 7:
		f->ops = &full_fops;
		return 0;
	case 8:
	case 9:
		f->ops = &random_fops;
		return 0;
	default:
		return -ENXIO;
	}
}

void dev_init(void)
{
	if (chrdev_register(MEM_MAJOR, 3, 1, mem_open) || chrdev_register(MEM_MAJOR, 5, 1, mem_open) ||
	    chrdev_register(MEM_MAJOR, 7, 3, mem_open))
		panic("dev_init: major %d is taken", MEM_MAJOR);
	chrdev_set_name(MEM_MAJOR, "mem");
	kmsg_init();
}
