// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry's side of the control socket: a thread for each connection, one request each. The
 * other end is the operator's CLI, but its bytes are checked all the same.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/signal.h"

#define CONTROL_MAX_CONNECTIONS 256

struct connection {
	struct container *c;
	int sock;
};

/* Connections being served, so that the sentry doesn't exit before the waiters have their answers. */
static struct {
	struct mutex mu; /* RANK_CONTROL */
	struct cond idle;
	unsigned n; /* (mu) */
} conns;

/* Counts one in; false when there are too many. */
static bool conns_enter(void)
{
	AUTO_LOCK(&conns.mu);
	if (conns.n >= CONTROL_MAX_CONNECTIONS)
		return false;
	conns.n++;
	return true;
}

static void conns_leave(void)
{
	AUTO_LOCK(&conns.mu);
	if (--conns.n == 0)
		cond_broadcast(&conns.idle);
}

static int exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void reply(int sock, json_t *json)
{
	(void)control_send(sock, json, NULL, 0); /* a client that has gone needs no answer */
	json_decref(json);
}

static void reply_error(int sock, const char *why)
{
	reply(sock, json_pack("{s:s}", "error", why));
}

static const char *status_name(struct container *c)
{
	return c->stopped ? "stopped" : c->started ? "running" : "created";
}

static void op_state(struct container *c, int sock)
{
	AUTO_LOCK(&c->mu);
	reply(sock, json_pack("{s:b, s:s}", "ok", 1, "status", status_name(c)));
}

static void op_start(struct container *c, int sock)
{
	if (container_start(c))
		reply(sock, json_pack("{s:b}", "ok", 1));
	else
		reply_error(sock, "cannot start a container that has started");
}

static void op_wait(struct container *c, int sock)
{
	mutex_lock(&c->mu);
	while (!c->stopped)
		cond_wait(&c->changed, &c->mu);
	mutex_unlock(&c->mu);
	reply(sock, json_pack("{s:b, s:i}", "ok", 1, "status", exit_code(c->exit_status)));
}

/* SIGKILL works on a container that waits for `start`, too. */
static void op_kill(struct container *c, int sock, json_t *req)
{
	int sig = (int)json_integer_value(json_object_get(req, "signal"));
	struct l_siginfo info = { .si_signo = sig, .si_code = SI_USER };
	bool all = json_is_true(json_object_get(req, "all"));
	pid_t nr = 0;
	struct pid *p;

	if (sig < 0 || sig > NSIG_GUEST) {
		reply_error(sock, "bad signal number");
		return;
	}
	if (c->stopped) {
		reply_error(sock, "container not running");
		return;
	}
	if (sig == SIGKILL)
		(void)container_start(c); /* so that there is a thread that can die */
	if (!all) {
		(void)signal_send_tgroup(c->init->leader->tg, sig, &info);
	} else {
		while ((p = pid_next(kernel.init_pidns, nr + 1))) {
			nr = pid_nr(p, kernel.init_pidns);
			if (p->tgroup)
				(void)signal_send_tgroup(p->tgroup, sig, &info);
			pid_put(p);
		}
	}
	reply(sock, json_pack("{s:b}", "ok", 1));
}

static void op_ps(int sock)
{
	json_t *list = json_array();
	pid_t nr = 0;
	struct pid *p;

	while ((p = pid_next(kernel.init_pidns, nr + 1))) {
		char comm[TASK_COMM_LEN] = "";
		struct task *t = NULL;

		nr = pid_nr(p, kernel.init_pidns);
		mutex_lock(&kernel.tasks_mu);
		if (p->tgroup && p->tgroup->leader)
			t = task_get(p->tgroup->leader);
		mutex_unlock(&kernel.tasks_mu);
		if (t) {
			task_get_comm(t, comm);
			json_array_append_new(list, json_pack("{s:i, s:s}", "pid", nr, "comm", comm));
			task_put(t);
		}
		pid_put(p);
	}
	reply(sock, json_pack("{s:b, s:o}", "ok", 1, "processes", list));
}

static void op_resize(struct container *c, int sock, json_t *req)
{
	struct console *con = c->init->console;

	if (con && !c->stopped)
		console_resize(con, (unsigned)json_integer_value(json_object_get(req, "rows")),
			       (unsigned)json_integer_value(json_object_get(req, "cols")));
	reply(sock, json_pack("{s:b}", "ok", 1));
}

/* Window size changes of an exec'd terminal arrive on the connection while the process runs. */
struct exec_listener {
	struct console *console;
	int sock;
	pthread_t thread;
	bool running;
};

static void *exec_listen(void *arg)
{
	struct exec_listener *l = arg;
	json_t *req;

	while ((req = control_recv(l->sock, NULL, NULL))) {
		console_resize(l->console,
			       (unsigned)json_integer_value(json_object_get(req, "rows")),
			       (unsigned)json_integer_value(json_object_get(req, "cols")));
		json_decref(req);
	}
	return NULL;
}

static struct session *exec_spawn(struct container *c, json_t *req, int *fds, unsigned nfds,
				  char **why)
{
	json_t *proc = json_object_get(req, "process");
	AUTO_FREE char *text = json_dumps(proc, JSON_COMPACT);
	AUTO(spec_free) struct spec *spec = NULL;
	struct session *s;
	bool tty;

	if (!c->started || c->stopped) {
		*why = kstrdup("cannot exec in a container that is not running");
		return NULL;
	}
	spec = spec_parse_process(text ? text : "", text ? strlen(text) : 0, "process", why);
	if (!spec)
		return NULL;
	tty = spec->process.terminal;
	if (nfds != (tty ? 1u : 3u)) {
		*why = kstrdup("exec: wrong number of descriptors");
		return NULL;
	}
	s = container_spawn(c, &spec->process, false, fds, tty ? fds[0] : -1,
			    (unsigned)json_integer_value(json_object_get(req, "rows")),
			    (unsigned)json_integer_value(json_object_get(req, "cols")), why);
	for (unsigned i = 0; i < nfds; i++)
		fds[i] = -1; /* now the session's */
	return s;
}

static void op_exec(struct container *c, int sock, json_t *req, int *fds, unsigned nfds)
{
	AUTO_FREE char *why = NULL;
	struct session *s = exec_spawn(c, req, fds, nfds, &why);
	struct exec_listener l = { .sock = sock };
	int status;

	if (!s) {
		for (unsigned i = 0; i < nfds; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		reply_error(sock, why);
		return;
	}
	l.console = s->console;
	if (s->console)
		l.running = pthread_create(&l.thread, NULL, exec_listen, &l) == 0;
	reply(sock, json_pack("{s:b, s:i}", "ok", 1, "pid", (int)task_tgid(s->leader)));
	task_start(s->leader);
	status = tgroup_wait_exit(s->leader->tg);
	if (l.running) {
		shutdown(sock, SHUT_RD); /* host: shutdown. Ends the listener */
		pthread_join(l.thread, NULL);
	}
	session_free(s);
	reply(sock, json_pack("{s:b, s:i}", "ok", 1, "status", exit_code(status)));
}

static void handle(struct container *c, int sock)
{
	int fds[CONTROL_MAX_FDS];
	unsigned nfds = CONTROL_MAX_FDS;
	json_t *req = control_recv(sock, fds, &nfds);
	const char *op = json_string_value(json_object_get(req, "op"));

	if (!req || !op)
		return;
	if (!strcmp(op, "exec")) {
		op_exec(c, sock, req, fds, nfds);
		nfds = 0;
	} else if (!strcmp(op, "state")) {
		op_state(c, sock);
	} else if (!strcmp(op, "start")) {
		op_start(c, sock);
	} else if (!strcmp(op, "wait")) {
		op_wait(c, sock);
	} else if (!strcmp(op, "kill")) {
		op_kill(c, sock, req);
	} else if (!strcmp(op, "ps")) {
		op_ps(sock);
	} else if (!strcmp(op, "resize")) {
		op_resize(c, sock, req);
	} else {
		reply_error(sock, "unknown request");
	}
	while (nfds)
		close(fds[--nfds]);
	json_decref(req);
}

static void *connection_main(void *arg)
{
	struct connection *cn = arg;

	handle(cn->c, cn->sock);
	close(cn->sock);
	free(cn);
	conns_leave();
	return NULL;
}

static void accept_one(struct container *c)
{
	struct connection *cn;
	pthread_t th;
	int s = accept4(c->boot->listener, NULL, NULL, SOCK_CLOEXEC); /* host: accept4 */

	if (s < 0)
		return;
	if (!conns_enter()) {
		reply_error(s, "too many control connections");
		close(s);
		return;
	}
	cn = kzalloc(sizeof(*cn));
	cn->c = c;
	cn->sock = s;
	if (pthread_create(&th, NULL, connection_main, cn)) {
		conns_leave();
		close(s);
		free(cn);
		return;
	}
	pthread_detach(th);
}

static void *accept_main(void *arg)
{
	for (;;)
		accept_one(arg);
	return NULL;
}

#define GRACE_NS 2000000000LL /* for the last answers to leave */

void control_serve(struct container *c)
{
	struct timespec now;
	pthread_t th;

	mutex_init(&conns.mu, RANK_CONTROL);
	cond_init(&conns.idle);
	if (pthread_create(&th, NULL, accept_main, c))
		panic("cannot start the control thread");
	mutex_lock(&c->mu);
	while (!c->stopped)
		cond_wait(&c->changed, &c->mu);
	mutex_unlock(&c->mu);
	clock_gettime(CLOCK_MONOTONIC, &now);
	mutex_lock(&conns.mu);
	while (conns.n && cond_wait_until(&conns.idle, &conns.mu,
					  now.tv_sec * 1000000000LL + now.tv_nsec + GRACE_NS))
		;
	mutex_unlock(&conns.mu);
}
