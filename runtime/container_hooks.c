// SPDX-License-Identifier: Apache-2.0
/*
 * startContainer hooks: processes of the guest, as the spec has it ("in the container namespace"; their
 * paths are the container's). They run as the container's root with its capabilities before the first
 * process does, and end with the sandbox at the latest.
 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/errno_text.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/signal.h"

/* False when its time is up. @timeout: seconds, 0: none. */
static bool wait_hook(struct tgroup *tg, int timeout)
{
	struct timespec now;
	int64_t deadline;

	clock_gettime(CLOCK_MONOTONIC, &now);
	deadline = (now.tv_sec + timeout) * 1000000000LL + now.tv_nsec;
	AUTO_LOCK(&kernel.tasks_mu);
	while (timeout && !tg->zombie)
		if (!cond_wait_until(&kernel.tasks_cond, &kernel.tasks_mu, deadline))
			return tg->zombie;
	return true;
}

static struct session *spawn_hook(struct container *c, const struct spec_hook *h, const int fds[3],
				  char **ret_why)
{
	const char *self[] = { h->path, NULL };
	struct spec_process p = c->boot->spec->process;
	struct session *s;
	int copies[3];

	(void)lseek(fds[0], 0, SEEK_SET); /* host: lseek. Each reads it from its start */
	for (int i = 0; i < 3; i++) {
		copies[i] = dup(fds[i]); /* host: dup */
		if (copies[i] < 0) {
			*ret_why = kasprintf("no descriptor: %s", errno_text(errno));
			while (i--)
				close(copies[i]);
			return NULL;
		}
	}
	p.terminal = false;
	p.nextra_fds = 0;
	p.args = h->nargs ? h->args : self;
	p.nargs = h->nargs ? h->nargs : 1;
	p.program = h->path;
	p.env = h->env;
	p.nenv = h->nenv;
	p.cwd = "/";
	p.uid = p.gid = 0;
	p.nadditional_gids = 0;
	world_enter();
	s = container_spawn(c, &p, false, copies, -1, 0, 0, ret_why);
	if (s)
		task_start(s->leader);
	world_leave();
	return s;
}

static char *run_hook(struct container *c, const struct spec_hook *h, const int fds[3])
{
	char *why = NULL;
	struct session *s = spawn_hook(c, h, fds, &why);
	bool late;
	int status;

	if (!s)
		return why;
	late = !wait_hook(s->leader->tg, h->timeout);
	if (late) {
		world_enter();
		signal_kill_tgroup(s->leader->tg);
		world_leave();
	}
	status = tgroup_wait_exit(s->leader->tg);
	world_enter();
	session_free(s);
	world_leave();
	if (late)
		return kasprintf("hook ran past specified timeout of %d.0s", h->timeout);
	if (WIFSIGNALED(status))
		return kasprintf("signal: %d", WTERMSIG(status));
	return WEXITSTATUS(status) ? kasprintf("exit status %d", WEXITSTATUS(status)) : NULL;
}

int container_run_hooks(struct container *c, const int fds[3], char **ret_why)
{
	const struct spec_hook_list *l = &c->boot->spec->hooks.list[HOOK_START_CONTAINER];
	bool started;

	mutex_lock(&c->mu);
	started = c->started;
	mutex_unlock(&c->mu);
	for (unsigned i = 0; i < l->n && !started; i++) {
		AUTO_FREE char *why = run_hook(c, &l->v[i], fds);

		if (why) {
			*ret_why = kasprintf("error running hook #%u: error running hook: %s", i, why);
			return -1;
		}
	}
	return 0;
}
