// SPDX-License-Identifier: Apache-2.0
/*
 * The registry of character devices: (major, minor range) -> open function.
 *
 * A small array, searched linearly: there are a dozen drivers, and a lookup happens only at open.
 * Block devices don't exist in a sandbox: opening one is ENXIO at the file system that holds the node.
 *
 * Locking: none; written at start-up only.
 */
#include "sentry/fs/dev/chrdev.h"

#include <sys/sysmacros.h>

#include "sentry/vfs/vfs.h"

#define CHRDEV_MAX 32
#define CHRDEV_NAMES_MAX 16

struct chrdev {
	unsigned major, first, n;
	chrdev_open_fn open;
};

static struct chrdev chrdevs[CHRDEV_MAX];
static unsigned nchrdevs;

static struct {
	unsigned major;
	const char *name;
} names[CHRDEV_NAMES_MAX];
static unsigned nnames;

static const struct chrdev *chrdev_find(unsigned major, unsigned minor)
{
	for (unsigned i = 0; i < nchrdevs; i++)
		if (chrdevs[i].major == major && minor >= chrdevs[i].first &&
		    minor - chrdevs[i].first < chrdevs[i].n)
			return &chrdevs[i];
	return NULL;
}

int chrdev_register(unsigned major, unsigned minor_first, unsigned n, chrdev_open_fn open)
{
	for (unsigned i = 0; i < nchrdevs; i++)
		if (chrdevs[i].major == major && minor_first < chrdevs[i].first + chrdevs[i].n &&
		    chrdevs[i].first < minor_first + n)
			return -EBUSY;
	if (nchrdevs == CHRDEV_MAX)
		return -ENOSPC;
	chrdevs[nchrdevs++] = (struct chrdev){ major, minor_first, n, open };
	return 0;
}

void chrdev_set_name(unsigned major, const char *name)
{
	if (nnames < CHRDEV_NAMES_MAX) {
		names[nnames].major = major;
		names[nnames++].name = name;
	}
}

int chrdev_open(struct inode *inode, struct file *f)
{
	const struct chrdev *c = chrdev_find(major(inode->rdev), minor(inode->rdev));

	return c ? c->open(inode, f) : -ENXIO;
}

void chrdev_show_devices(struct seqbuf *out)
{
	seq_printf(out, "Character devices:\n");
	for (unsigned i = 0; i < nnames; i++)
		seq_printf(out, "%3u %s\n", names[i].major, names[i].name);
	seq_printf(out, "\nBlock devices:\n");
}
