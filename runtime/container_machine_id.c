// SPDX-License-Identifier: Apache-2.0
/*
 * /etc/machine-id (machine-id(5)) of a branch or a restored sandbox that is to be another machine: written
 * before anything of it runs. Its launcher says so in an annotation, which the image then has, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/errno_text.h"
#include "runtime/restore.h"
#include "sentry/kernel/cred.h"
#include "sentry/mm/usermem.h"

#define ID_PATH "/etc/machine-id"

static int write_file(const struct path *at, const char *text)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	AUTO_FREE char *copy = kstrdup(text);
	AUTO_FILE struct file *f = NULL;
	int64_t pos = 0;
	struct iter it;
	ssize_t n;
	int r;

	if (!S_ISREG(dentry_inode(at->dentry)->mode))
		return -EINVAL;
	f = file_open_path(NULL, at, O_WRONLY, root);
	if (is_err(f))
		return (int)ptr_err(f);
	r = file_truncate(NULL, f, 0);
	if (r)
		return r;
	iter_init_kernel(&it, copy, strlen(copy));
	n = f->ops->write(NULL, f, &it, &pos);
	return n < 0 ? (int)n : n == (ssize_t)strlen(text) ? 0 : -ENOSPC;
}

int container_machine_id(struct container *c, const json_t *was_annotations, char **ret_why)
{
	const char *was = json_string_value(json_object_get(was_annotations, MACHINE_ID_ANNOTATION));
	const char *now = json_string_value(json_object_get(c->boot->spec->annotations, MACHINE_ID_ANNOTATION));
	AUTO_FREE char *text = now ? kasprintf("%s\n", now) : NULL;
	struct path at;
	int r;

	if (!now || (was && !strcmp(was, now)))
		return 0;
	r = container_mountpoint(c, ID_PATH, true, &at);
	if (!r) {
		r = write_file(&at, text);
		path_put(&at);
	}
	if (r)
		*ret_why = kasprintf("cannot write " ID_PATH ": %s", errno_text(-r));
	return r ? -1 : 0;
}
