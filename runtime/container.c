// SPDX-License-Identifier: Apache-2.0
/* Building a container inside the sentry and watching its end. */
#include "runtime/container.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/errno_text.h"
#include "runtime/seccomp_profile.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer.h"
#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/time/clock.h"

static struct super *root_super(const struct boot *b, struct gofer_client *gofer)
{
	const char *mode = json_string_value(json_object_get(b->json, "overlay"));

	if (mode && !strcmp(mode, "none"))
		return gofer_create_super(gofer, 0, 0, false);
	return overlay_create_super(gofer, 0, 0, (uint64_t)json_integer_value(json_object_get(b->json, "layer_size")));
}

int container_exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/*
 * Until the first process has ended. One that waits for `start` ends with its sandbox only if it has a thread that
 * can: it gets one when somebody has doomed it.
 */
static int wait_first(struct container *c)
{
	struct tgroup *tg = c->init->leader->tg;

	mutex_lock(&kernel.tasks_mu);
	while (c->sandbox && !tg->zombie && !tg->group_exit)
		cond_wait(&kernel.tasks_cond, &kernel.tasks_mu);
	mutex_unlock(&kernel.tasks_mu);
	if (c->sandbox)
		(void)container_start(c); /* it mostly runs already */
	return tgroup_wait_exit(tg);
}

/* The exit status goes where it survives us: a file of the state directory. */
static void record_exit(struct container *c, int status)
{
	char buf[128];
	int n = snprintf(buf, sizeof(buf), "{\"status\":%d,\"time_ns\":%lld}\n",
			 container_exit_code(status), (long long)clock_realtime_ns());

	/* host: pwrite64 */
	if (pwrite(c->boot->exitfd, buf, (size_t)n, 0) != n)
		log_error("cannot record the exit status: %s", errno_text(errno));
}

static void *watch_init(void *arg)
{
	struct container *c = arg;
	int status = wait_first(c);
	struct console *con;

	world_enter();
	mutex_lock(&c->mu);
	if (c->killed_by && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		status = c->killed_by;
	con = steal_ptr(&c->init->console);
	mutex_unlock(&c->mu);
	record_exit(c, status);
	console_bind(c, NULL);
	if (con)
		console_finish(con);
	world_leave();
	if (c->shares_pidns)
		container_end_others(c);
	AUTO_LOCK(&c->mu);
	c->exit_status = status;
	c->stopped = true;
	cond_broadcast(&c->changed);
	if (c->sandbox)
		(void)shutdown(c->boot->listener, SHUT_RDWR); /* host: shutdown. Ends control_serve_member() */
	return NULL;
}

static int load_seccomp(struct container *c, char **ret_why)
{
	const json_t *program = json_object_get(c->boot->json, "seccomp");
	unsigned n;
	AUTO_FREE struct sock_filter *f = seccomp_profile_load(program, &n);

	if (!json_is_array(program))
		return 0;
	c->seccomp = f ? seccomp_create(f, n) : NULL;
	if (c->seccomp)
		return 0;
	*ret_why = kstrdup("linux.seccomp: not a program");
	return -1;
}

struct container *container_new(const struct boot *b, struct gofer_client *gofer)
{
	struct container *c = kzalloc(sizeof(*c));

	c->boot = b;
	c->gofer = gofer;
	mutex_init(&c->mu, RANK_CONTROL);
	cond_init(&c->changed);
	list_init(&c->sessions);
	list_init(&c->members);
	list_init(&c->binds);
	list_init(&c->member);
	return c;
}

int container_watch(struct container *c, char **ret_why)
{
	if (!pthread_create(&c->watcher, NULL, watch_init, c))
		return 0;
	*ret_why = kstrdup("cannot start a thread");
	return -1;
}

int container_build(struct container *c, char **ret_why)
{
	const struct boot *b = c->boot;
	struct super *sb = root_super(b, c->gofer);
	struct mntns *mnt;

	if (is_err(sb)) {
		*ret_why = kasprintf("rootfs: %s", errno_text((int)-ptr_err(sb)));
		return -1;
	}
	c->userns = container_userns(c);
	c->uid0 = container_kuid(c, 0);
	c->gid0 = container_kgid(c, 0);
	mnt = mntns_create(sb, 0, c->userns); /* read-only once the mounts are there */
	super_put(sb);
	c->ns = container_namespaces(c, mnt);
	c->root = mntns_root(mnt);
	if (load_seccomp(c, ret_why))
		return -1;
	if (container_mount_all(c, mnt, ret_why) || container_notify(c, mnt, ret_why) ||
	    container_sysctls(c, ret_why))
		return -1;
	b->spec->process.extra_fds = b->extra_fds;
	b->spec->process.nextra_fds = b->nextra_fds;
	c->handed = true;
	c->init = container_spawn(c, &b->spec->process, true, b->stdio, b->console, b->rows, b->cols,
				  ret_why);
	return c->init ? container_watch(c, ret_why) : -1;
}

int container_create(const struct boot *b, struct gofer_client *gofer, struct container **ret,
		     char **ret_why)
{
	struct container *c = container_new(b, gofer);

	if (container_build(c, ret_why))
		return -1;
	*ret = c;
	return 0;
}

/* A restored sandbox is frozen still, and its first process has started long ago. */
static bool let_go(struct container *c)
{
	bool frozen;

	mutex_lock(&c->mu);
	frozen = c->frozen;
	c->frozen = false;
	mutex_unlock(&c->mu);
	if (frozen)
		kernel_thaw();
	return frozen;
}

bool container_start(struct container *c)
{
	bool restored = let_go(c), first;

	world_enter();
	mutex_lock(&c->mu);
	first = !c->started;
	c->started = true;
	if (first)
		task_start(c->init->leader);
	mutex_unlock(&c->mu);
	world_leave();
	return first || restored;
}
