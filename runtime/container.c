// SPDX-License-Identifier: Apache-2.0
/* Building a container inside the sentry and watching its end. */
#include "runtime/container.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer.h"
#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/time/clock.h"

static struct super *root_super(const struct boot *b, struct gofer_client *gofer)
{
	const char *mode = json_string_value(json_object_get(b->json, "overlay"));

	if (mode && !strcmp(mode, "none"))
		return gofer_create_super(gofer, 0, 0, false);
	return overlay_create_super(gofer, 0, 0);
}

static struct nsproxy *make_namespaces(const struct spec *s, struct mntns *mnt)
{
	struct utsns *uts = utsns_create(s->hostname ? s->hostname : "holdfast",
					 s->domainname ? s->domainname : "(none)", &init_userns);

	return nsproxy_create(uts, ipcns_create(&init_userns), mnt, pidns_get(kernel.init_pidns),
			      netns_create(&init_userns));
}

int container_exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The exit status goes where it survives us: a file of the state directory. */
static void record_exit(struct container *c, int status)
{
	char buf[128];
	int n = snprintf(buf, sizeof(buf), "{\"status\":%d,\"time_ns\":%lld}\n",
			 container_exit_code(status), (long long)clock_realtime_ns());

	/* host: pwrite64 */
	if (pwrite(c->boot->exitfd, buf, (size_t)n, 0) != n)
		log_error("cannot record the exit status: %s", strerror(errno));
}

static void *watch_init(void *arg)
{
	struct container *c = arg;
	int status = tgroup_wait_exit(c->init->leader->tg);
	struct console *con;

	mutex_lock(&c->mu);
	if (c->killed_by && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		status = c->killed_by;
	con = steal_ptr(&c->init->console);
	mutex_unlock(&c->mu);
	record_exit(c, status);
	console_bind(c, NULL);
	if (con)
		console_finish(con);
	AUTO_LOCK(&c->mu);
	c->exit_status = status;
	c->stopped = true;
	cond_broadcast(&c->changed);
	return NULL;
}

int container_create(const struct boot *b, struct gofer_client *gofer, struct container **ret,
		     char **ret_why)
{
	struct container *c = kzalloc(sizeof(*c));
	struct super *sb = root_super(b, gofer);
	struct mntns *mnt;
	pthread_t th;

	if (is_err(sb)) {
		*ret_why = kasprintf("rootfs: %s", strerror((int)-ptr_err(sb)));
		free(c);
		return -1;
	}
	c->boot = b;
	c->gofer = gofer;
	mutex_init(&c->mu, RANK_CONTROL);
	cond_init(&c->changed);
	mnt = mntns_create(sb, b->spec->root_readonly ? MS_RDONLY : 0, &init_userns);
	super_put(sb);
	c->ns = make_namespaces(b->spec, mnt);
	c->root = mntns_root(mnt);
	if (container_mount_all(c, mnt, ret_why))
		return -1;
	c->init = container_spawn(c, &b->spec->process, true, b->stdio, b->console, b->rows, b->cols,
				  ret_why);
	if (!c->init)
		return -1;
	if (pthread_create(&th, NULL, watch_init, c)) {
		*ret_why = kstrdup("cannot start a thread");
		return -1;
	}
	pthread_detach(th);
	*ret = c;
	return 0;
}

bool container_start(struct container *c)
{
	AUTO_LOCK(&c->mu);
	if (c->started)
		return false;
	c->started = true;
	task_start(c->init->leader);
	return true;
}
