// SPDX-License-Identifier: Apache-2.0
/*
 * sd_notify(3) inside: a socket at NOTIFY_INSIDE, on a small file system of its own, whose one use is to hear READY=1.
 * Whoever started the container asks for that by the control request "notify" (notify.c) and tells the host: what
 * else the guest says (which process is the main one, that it has stopped) isn't passed on, as with runc.
 *
 *   {op: notify}  ->  {ok, ready}: once it was said, or the container has stopped
 */
#include <errno.h>
#include <string.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "runtime/errno_text.h"
#include "runtime/notify.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/ns.h"
#include "sentry/socket/unix/unix.h"

/* Variables are lines. */
static bool says_ready(const char *msg, size_t len)
{
	static const char ready[] = "READY=1";
	const size_t n = sizeof(ready) - 1;

	for (const char *end = msg + len; msg < end;) {
		const char *nl = memchr(msg, '\n', (size_t)(end - msg));
		size_t line = (size_t)((nl ? nl : end) - msg);

		if (line == n && !memcmp(msg, ready, n))
			return true;
		msg += line + 1;
	}
	return false;
}

static void hear(void *arg, const void *msg, size_t len)
{
	struct container *c = arg;

	if (!says_ready(msg, len))
		return;
	AUTO_LOCK(&c->mu);
	c->ready = true;
	cond_broadcast(&c->changed);
}

/* The socket's file in the root of @sb, which is mounted at @at. */
static int make_socket(struct container *c, struct mntns *mnt, const struct path *at)
{
	struct super *sb = tmpfs_create_super(MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=4k,nr_inodes=4");
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	struct inode *dir, *n;
	struct path file;
	int r;

	if (is_err(sb))
		return (int)ptr_err(sb);
	dir = dentry_inode(sb->root);
	mutex_lock(&dir->mu);
	n = dir->ops->mknod(dir, NOTIFY_NAME, S_IFSOCK | 0777, 0, c->uid0, c->gid0);
	mutex_unlock(&dir->mu);
	r = is_err(n) ? (int)ptr_err(n) : mntns_mount_super(mnt, at, sb, NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC);
	super_put(sb);
	if (is_err(n))
		return r;
	inode_put(n);
	if (!r)
		r = path_lookup_from(NULL, root, &c->root, &c->root, NOTIFY_INSIDE, 0, &file);
	if (r)
		return r;
	r = unix_bind_sink(c->ns->net, &file, hear, c);
	path_put(&file);
	return r;
}

int container_notify(struct container *c, struct mntns *mnt, char **ret_why)
{
	struct path at;
	int r;

	if (!json_is_true(json_object_get(c->boot->json, "notify")))
		return 0;
	r = container_mountpoint(c, NOTIFY_DIR, false, &at);
	if (!r) {
		r = make_socket(c, mnt, &at);
		path_put(&at);
	}
	if (r)
		*ret_why = kasprintf("cannot make " NOTIFY_INSIDE ": %s", errno_text(-r));
	return r ? -1 : 0;
}

void control_notify(struct control_request *r)
{
	struct container *c = r->c;
	bool there = json_is_true(json_object_get(c->boot->json, "notify")) && !c->boot->restore, ready;
	json_t *json;

	mutex_lock(&c->mu);
	while (there && !c->ready && !c->stopped)
		cond_wait(&c->changed, &c->mu);
	ready = c->ready;
	mutex_unlock(&c->mu);
	json = json_pack("{s:b, s:b}", "ok", 1, "ready", ready);
	(void)control_send(r->sock, json, NULL, 0); /* a client that has gone needs no answer */
	json_decref(json);
}
