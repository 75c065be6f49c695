// SPDX-License-Identifier: Apache-2.0
/*
 * Saving host descriptors: they can't be. What is saved is which session's stdin, stdout or stderr one was;
 * whoever brings the sandbox back says what stands for it. Its kind may be another one then.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/hostfd/hostfd.h"
#include "sentry/fs/hostfd/hostfd_priv.h"
#include "sentry/vfs/vfs_state.h"

static hostfd_restore_fn restore;

void hostfd_set_restore(hostfd_restore_fn fn)
{
	restore = fn;
}

static struct hostfd *hostfd_of(struct inode *inode)
{
	return container_of(inode, struct hostfd, inode);
}

void hostfd_label(struct file *f, unsigned group, unsigned slot)
{
	struct hostfd *h = hostfd_of(f->inode);

	h->group = group;
	h->slot = slot;
}

static void *inode_alloc(struct state *s)
{
	(void)s;
	return &hostfd_alloc()->inode;
}

static void inode_fields(struct state *s, void *obj)
{
	struct hostfd *h = hostfd_of(obj);
	int fd, err = 0;

	inode_state_fields(s, &h->inode);
	state_u32(s, &h->group);
	state_u32(s, &h->slot);
	if (!state_loading(s) || !state_ok(s))
		return;
	fd = restore ? restore(h->group, h->slot) : -1;
	if (fd >= 0)
		err = hostfd_attach(h, fd);
	if (err)
		state_fail(s, "descriptor %u of session %u: %s", h->slot, h->group, strerror(-err));
}

const struct state_type state_inode_hostfd = {
	.id = STATE_INODE_HOSTFD,
	.version = 1,
	.name = "host descriptor",
	.alloc = inode_alloc,
	.fields = inode_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

static void file_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_hostfd))
		(void)hostfd_open(f->inode, f); /* never fails */
}

const struct file_state file_state_host = {
	.id = FILE_HOST,
	.ops = &hostfd_fops,
	.finish = file_finish,
};
const struct file_state file_state_host_regular = {
	.id = FILE_HOST_REGULAR,
	.ops = &hostfd_regular_fops,
	.finish = file_finish,
};
