// SPDX-License-Identifier: Apache-2.0
/*
 * Signals from outside: `kill`, and those that the host sends to the sentry's own pid, which stands for the
 * container's first process in pid files and so has to take them like it.
 */
#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/signal.h"

/* man 7 signal: the default action ends a process. */
static bool fatal_by_default(int sig)
{
	static const int others[] = { 0,	SIGCHLD, SIGCONT, SIGURG, SIGWINCH,
				      SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };

	for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
		if (others[i] == sig)
			return false;
	return true;
}

static void send_to_init(struct container *c, int sig)
{
	struct l_siginfo info = { .si_signo = sig, .si_code = SI_USER };

	world_enter();
	(void)signal_send_tgroup(c->init->leader->tg, sig, &info); /* it may be gone */
	world_leave();
}

/* Its end by SIGKILL is to look as one by @sig. */
static void end_as(struct container *c, int sig)
{
	mutex_lock(&c->mu);
	c->killed_by = sig;
	mutex_unlock(&c->mu);
	container_signal(c, SIGKILL);
}

void container_signal(struct container *c, int sig)
{
	if (sig == SIGKILL)
		(void)container_start(c); /* so that there is a thread that can die */
	/* What waits for `start` has no handlers yet, and isn't the first process of anything to callers: they
	 * kill it as they would kill runc's. */
	else if (!c->started && fatal_by_default(sig))
		return end_as(c, sig);
	send_to_init(c, sig);
}

/*
 * The first process of a pid namespace doesn't die of signals that it has no handler for (man 7
 * pid_namespaces): right for `kill`, but whoever presses ^C at `do` wants an end.
 */
static bool would_ignore(struct container *c, int sig)
{
	struct tgroup *tg = c->init->leader->tg;
	struct sighand *sh = signal_lock_tgroup(tg);
	bool ret = false;

	if (sh) {
		ret = sh->action[sig - 1].handler == (uint64_t)(uintptr_t)SIG_DFL;
		signal_unlock(sh);
	}
	return ret;
}

void container_signal_all(struct container *c, int sig)
{
	struct pidns *ns = c->ns->pid_for_children;
	struct l_siginfo info = { .si_signo = sig, .si_code = SI_USER };
	pid_t nr = 0;
	struct pid *p;

	world_enter();
	while ((p = pid_next(ns, nr + 1))) {
		nr = pid_nr(p, ns);
		if (p->tgroup && container_owns(c, p->tgroup))
			(void)signal_send_tgroup(p->tgroup, sig, &info);
		pid_put(p);
	}
	world_leave();
}

static const char *deliver(struct container *c, const json_t *req)
{
	int sig = (int)json_integer_value(json_object_get(req, "signal"));
	bool all = json_is_true(json_object_get(req, "all"));

	if (sig < 0 || sig > NSIG_GUEST)
		return "bad signal number";
	if (c->stopped)
		return all ? NULL : "container not running"; /* as runc: then there is nobody to signal */
	if (sig && json_is_true(json_object_get(req, "fatal")) && would_ignore(c, sig))
		end_as(c, sig);
	else if (!all || !c->started)
		container_signal(c, sig);
	else
		container_signal_all(c, sig);
	return NULL;
}

void control_kill(struct control_request *r)
{
	const char *why = deliver(r->c, r->json);
	json_t *rep = why ? json_pack("{s:s}", "error", why) : json_pack("{s:b}", "ok", 1);

	(void)control_send(r->sock, rep, NULL, 0); /* a client that has gone needs no answer */
	json_decref(rep);
}

void control_host_signal(struct container *c)
{
	struct signalfd_siginfo si;

	if (read(c->boot->sigfd, &si, sizeof(si)) != (ssize_t)sizeof(si)) /* host: read */
		return;
	/* Senders outside our pid namespace have no pid in it; nobody inside has a say. */
	if (si.ssi_pid == 0 && !c->stopped)
		container_signal(c, (int)si.ssi_signo);
}
