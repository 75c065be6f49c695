// SPDX-License-Identifier: Apache-2.0
/*
 * Containers that join a running sandbox (a pod's): built by the control request "create" on the socket of the
 * sandbox's first container, from the same message that a sentry gets at its start, and taken apart when their
 * first process has ended. Only the operator can send it: the socket is in the sandbox's state directory.
 *
 * Each has its own gofer, control socket, mounts, process tree and end. Shared are the network, IPC and UTS
 * namespaces, /dev/shm (container_mounts.c), and what there is one of in a sandbox: memory, limits, clocks,
 * pause. The first container's end is everybody's: its first process is that of the namespace in
 * which all the others' are.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "runtime/errno_text.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"

unsigned container_count_members(struct container *c)
{
	struct container *m;
	unsigned n = 0;
	AUTO_LOCK(&c->mu);

	list_for_each(m, &c->members, member)
		n++;
	return n;
}

bool container_owns(const struct container *c, const struct tgroup *tg)
{
	return tg->container == c;
}

/* Whether there is anybody left who has to end. */
static bool doom_locked(const struct container *c)
{
	struct task *t;
	bool any = false;

	list_for_each(t, &kernel.all_tasks, all_node)
		if (container_owns(c, t->tg) && atomic_load(&t->state) < TASK_ZOMBIE) {
			tgroup_kill_locked(t->tg, SIGKILL);
			any = true;
		}
	return any;
}

/* Who is born meanwhile has a parent among the doomed, at whose end they are found. */
void container_end_others(struct container *c)
{
	AUTO_LOCK(&kernel.tasks_mu);

	while (doom_locked(c))
		cond_wait(&kernel.tasks_cond, &kernel.tasks_mu);
}

/* Gives back everything of a container of which no process is left. Ends its gofer. */
static void free_member(struct container *c)
{
	struct boot *b = (struct boot *)(uintptr_t)c->boot; /* control_create() made it */

	mutex_lock(&c->sandbox->mu);
	list_del(&c->member);
	mutex_unlock(&c->sandbox->mu);
	world_enter();
	session_free(c->init);
	container_volumes_fini(c);
	super_put(c->devpts);
	path_put(&c->root);
	nsproxy_put(c->ns);
	seccomp_put(c->seccomp);
	userns_put(c->userns);
	gofer_client_put(c->gofer);
	world_leave();
	boot_fini(b, c->handed);
	free(b);
	cond_fini(&c->changed);
	mutex_fini(&c->mu);
	free(c);
}

static void *member_main(void *arg)
{
	struct container *c = arg;

	control_serve_member(c);
	pthread_join(c->watcher, NULL);
	free_member(c);
	return NULL;
}

/* Known to its sandbox before it is built: saving has to see it. False when that has ended. */
static bool add_member(struct container *sandbox, struct container *c)
{
	AUTO_LOCK(&sandbox->mu);

	c->sandbox = sandbox;
	if (sandbox->stopped)
		return false;
	list_add_tail(&sandbox->members, &c->member);
	return true;
}

/* The client of a gofer at @sock (taken over), NULL for -1; false with *ret_why. */
static bool connect_gofer(int sock, struct gofer_client **ret, char **ret_why)
{
	struct gofer_client *g = sock < 0 ? NULL : gofer_client_create(sock);

	if (g && is_err(g)) {
		*ret_why = kasprintf("no gofer: %s", errno_text((int)-ptr_err(g)));
		g = NULL;
	}
	*ret = g;
	return !*ret_why;
}

/* The gofer for volumes is kept by the file systems that use it. */
static int build_with(struct container *c, char **ret_why)
{
	int r = -1;

	world_enter();
	if (connect_gofer(c->boot->volumes, &c->volumes, ret_why))
		r = container_build(c, ret_why);
	gofer_client_put(c->volumes);
	c->volumes = NULL;
	world_leave();
	return r;
}

/* NULL with *ret_why. Takes @b over. */
static struct container *build(struct container *sandbox, struct boot *b, char **ret_why)
{
	struct gofer_client *gofer;
	struct container *c;
	int r = -1;

	if (!connect_gofer(b->gofer, &gofer, ret_why)) {
		if (b->volumes >= 0)
			close(b->volumes);
		boot_fini(b, false);
		free(b);
		return NULL;
	}
	c = container_new(b, gofer);
	if (add_member(sandbox, c)) {
		r = build_with(c, ret_why);
	} else {
		*ret_why = kasprintf("sandbox %s is not running", sandbox->boot->id);
		if (b->volumes >= 0)
			close(b->volumes);
	}
	if (!r)
		return c;
	if (c->init) { /* without a thread that watches it */
		container_signal(c, SIGKILL);
		(void)tgroup_wait_exit(c->init->leader->tg);
	}
	free_member(c);
	return NULL;
}

/* Serves it until its end. False: no thread, it has been ended. */
static bool serve(struct container *c)
{
	pthread_t th;

	if (!pthread_create(&th, NULL, member_main, c)) {
		pthread_detach(th);
		return true;
	}
	container_signal(c, SIGKILL);
	pthread_join(c->watcher, NULL);
	free_member(c);
	return false;
}

static struct container *create(struct control_request *r, char **ret_why)
{
	struct boot *b = kzalloc(sizeof(*b));
	unsigned n = r->nfds;

	if (r->c->sandbox) {
		*ret_why = kstrdup("containers join the first container of a sandbox");
		free(b);
		return NULL;
	}
	r->nfds = 0;
	if (boot_read(b, json_incref(r->json), r->fds, n, ret_why))
		return build(r->c, b, ret_why);
	boot_fini(b, false);
	free(b);
	return NULL;
}

void control_create(struct control_request *r)
{
	AUTO_FREE char *why = NULL;
	struct container *c = create(r, &why);
	json_t *rep;

	if (c && !serve(c)) {
		c = NULL;
		why = kstrdup("cannot start a thread");
	}
	if (!c)
		log_error("%s", why);
	rep = c ? json_pack("{s:b}", "ok", 1) : json_pack("{s:s}", "error", why);
	/* A launcher that has died left its waiter, whose end is the container's. */
	(void)control_send(r->sock, rep, NULL, 0);
	json_decref(rep);
}
