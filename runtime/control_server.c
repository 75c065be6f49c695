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
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/signal.h"

#define CONTROL_MAX_CONNECTIONS 256
#define ACCEPT_PAUSE_NS 100000000L

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
static bool conns_enter(struct container *c)
{
	AUTO_LOCK(&conns.mu);
	if (conns.n >= CONTROL_MAX_CONNECTIONS)
		return false;
	conns.n++;
	c->connections++;
	return true;
}

static void conns_leave(struct container *c)
{
	AUTO_LOCK(&conns.mu);
	conns.n--;
	if (--c->connections == 0)
		cond_broadcast(&conns.idle);
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
	return c->stopped	 ? "stopped" :
	       kernel_paused() ? "paused" :
	       c->started	 ? "running" :
				   "created";
}

static void op_state(struct control_request *r)
{
	AUTO_LOCK(&r->c->mu);
	reply(r->sock, json_pack("{s:b, s:s}", "ok", 1, "status", status_name(r->c)));
}

/* Its descriptors: what startContainer hooks read and write, if there are any. */
static void op_start(struct control_request *r)
{
	struct container *c = r->c;
	AUTO_FREE char *why = NULL;

	if (kernel_paused()) {
		reply_error(r->sock, "cannot start a container in the paused state");
	} else if (r->nfds == 3 && container_run_hooks(c, r->fds, &why)) {
		container_signal(c, SIGKILL);
		reply(r->sock, json_pack("{s:s, s:b}", "error", why, "hook", 1));
	} else if (container_start(c)) {
		reply(r->sock, json_pack("{s:b}", "ok", 1));
	} else {
		reply_error(r->sock, c->stopped ? "cannot start a container that has stopped" :
					       "cannot start an already running container");
	}
}

/*
 * A client that waits and speaks: {signal} for the first process, {rows, cols} for its terminal. With "tied" its
 * container is to end with it: its connection closing is its end.
 */
struct wait_listener {
	struct container *c;
	int sock;
	bool tied;
};

static void resize_console(struct container *c, const json_t *req)
{
	struct console *con;

	world_enter();
	mutex_lock(&c->mu);
	con = c->init->console; /* none any more once it has stopped */
	if (con)
		console_resize(con, (unsigned)json_integer_value(json_object_get(req, "rows")),
			       (unsigned)json_integer_value(json_object_get(req, "cols")));
	mutex_unlock(&c->mu);
	world_leave();
}

static void *wait_listen(void *arg)
{
	struct wait_listener *l = arg;
	json_t *req;

	while ((req = control_recv(l->sock, NULL, NULL))) {
		json_int_t sig = json_integer_value(json_object_get(req, "signal"));

		if (sig > 0 && sig <= NSIG_GUEST && !l->c->stopped)
			container_signal(l->c, (int)sig);
		else if (json_object_get(req, "rows"))
			resize_console(l->c, req);
		json_decref(req);
	}
	if (l->tied && !l->c->stopped)
		container_signal(l->c, SIGKILL);
	return NULL;
}

static void op_wait(struct control_request *r)
{
	struct container *c = r->c;
	struct wait_listener l = { c, r->sock, json_is_true(json_object_get(r->json, "tied")) };
	bool listens = l.tied || json_is_true(json_object_get(r->json, "listens"));
	pthread_t th;

	if (listens && pthread_create(&th, NULL, wait_listen, &l)) {
		reply_error(r->sock, "cannot start a thread");
		return;
	}
	mutex_lock(&c->mu);
	while (!c->stopped)
		cond_wait(&c->changed, &c->mu);
	mutex_unlock(&c->mu);
	reply(r->sock, json_pack("{s:b, s:i}", "ok", 1, "status",
			      container_exit_code(c->exit_status)));
	if (listens) {
		shutdown(r->sock, SHUT_RD); /* host: shutdown. Ends the listener */
		pthread_join(th, NULL);
	}
}

static void op_ps(struct control_request *r)
{
	struct container *c = r->c;
	struct pidns *ns = c->ns->pid_for_children;
	json_t *list = json_array();
	pid_t nr = 0;
	struct pid *p;

	world_enter();
	while ((p = pid_next(ns, nr + 1))) {
		char comm[TASK_COMM_LEN] = "";
		struct task *t = NULL;

		nr = pid_nr(p, ns);
		mutex_lock(&kernel.tasks_mu);
		if (p->tgroup && p->tgroup->leader && container_owns(c, p->tgroup))
			t = task_get(p->tgroup->leader);
		mutex_unlock(&kernel.tasks_mu);
		if (t) {
			task_get_comm(t, comm);
			json_array_append_new(list, json_pack("{s:i, s:s}", "pid", nr, "comm", comm));
			task_put(t);
		}
		pid_put(p);
	}
	world_leave();
	reply(r->sock, json_pack("{s:b, s:o}", "ok", 1, "processes", list));
}

/*
 * What a client says while its process runs: {rows, cols} for its terminal, {signal} for the process. A
 * client with "tied" stands for the process on the host (its pid is in the pid file): it being killed
 * kills the process.
 */
struct exec_listener {
	struct session *session;
	int sock;
	bool tied;
	_Atomic bool over; /* the process has ended */
};

static void *exec_listen(void *arg)
{
	struct exec_listener *l = arg;
	struct tgroup *tg = l->session->leader->tg;
	struct container *c = l->session->container;
	json_t *req;

	c->attended++;
	while ((req = control_recv(l->sock, NULL, NULL))) {
		json_int_t sig = json_integer_value(json_object_get(req, "signal"));

		world_enter();
		if (sig > 0 && sig <= NSIG_GUEST) {
			struct l_siginfo info = { .si_signo = (int)sig, .si_code = SI_USER };

			(void)signal_send_tgroup(tg, (int)sig, &info); /* it may have ended */
		} else if (l->session->console && json_object_get(req, "rows")) {
			console_resize(l->session->console,
				       (unsigned)json_integer_value(json_object_get(req, "rows")),
				       (unsigned)json_integer_value(json_object_get(req, "cols")));
		}
		world_leave();
		json_decref(req);
	}
	c->attended--;
	if (l->tied && !l->over) {
		world_enter();
		signal_kill_tgroup(tg);
		world_leave();
	}
	return NULL;
}

/* The new session takes the request's descriptors over. */
static struct session *exec_spawn(struct control_request *r, char **why)
{
	json_t *proc = json_object_get(r->json, "process");
	const char *user = json_string_value(json_object_get(r->json, "user"));
	AUTO_FREE char *text = json_dumps(proc, JSON_COMPACT);
	AUTO(spec_free) struct spec *spec = NULL;
	struct session *s;
	unsigned nstdio;

	if (r->c->stopped)
		*why = kstrdup("cannot exec in a stopped container");
	else if (kernel_paused() && !json_is_true(json_object_get(r->json, "ignore_paused")))
		*why = kstrdup("cannot exec in a paused container (use --ignore-paused to override)");
	if (*why)
		return NULL;
	spec = spec_parse_process(text ? text : "", text ? strlen(text) : 0, "process", why);
	if (!spec)
		return NULL;
	if (user && container_find_user(r->c, user, &spec->process, why))
		return NULL;
	nstdio = spec->process.terminal ? 1 : 3;
	if (r->nfds < nstdio) {
		*why = kstrdup("exec: wrong number of descriptors");
		return NULL;
	}
	spec->process.extra_fds = r->fds + nstdio;
	spec->process.nextra_fds = r->nfds - nstdio;
	s = container_spawn(r->c, &spec->process, false, r->fds, spec->process.terminal ? r->fds[0] : -1,
			    (unsigned)json_integer_value(json_object_get(r->json, "rows")),
			    (unsigned)json_integer_value(json_object_get(r->json, "cols")), why);
	r->nfds = 0;
	return s;
}

static void op_exec(struct control_request *r)
{
	struct exec_listener l = { .sock = r->sock, .tied = json_is_true(json_object_get(r->json, "tied")) };
	AUTO_FREE char *why = NULL;
	struct session *s;
	pthread_t listener;
	bool listening;
	int status;

	world_enter();
	s = l.session = exec_spawn(r, &why);
	world_leave();
	if (!s) {
		reply_error(r->sock, why);
		return;
	}
	listening = pthread_create(&listener, NULL, exec_listen, &l) == 0;
	reply(r->sock, json_pack("{s:b, s:i, s:i}", "ok", 1, "pid", (int)task_tgid(s->leader), "session",
				 (int)s->number));
	world_enter();
	task_start(s->leader);
	world_leave();
	status = tgroup_wait_exit(s->leader->tg);
	l.over = true;
	if (listening) {
		shutdown(r->sock, SHUT_RD); /* host: shutdown. Ends the listener */
		pthread_join(listener, NULL);
	}
	world_enter();
	session_free(s);
	world_leave();
	reply(r->sock, json_pack("{s:b, s:i}", "ok", 1, "status", container_exit_code(status)));
}

static const struct control_op {
	const char *name;
	void (*fn)(struct control_request *r);
} ops[] = {
	{ "exec", op_exec },
	{ "state", op_state },
	{ "start", op_start },
	{ "wait", op_wait },
	{ "kill", control_kill },
	{ "ps", op_ps },
	{ "counters", control_counters },
	{ "pause", control_pause },
	{ "resume", control_resume },
	{ "save", control_save },
	{ "attach", control_attach },
	{ "activity", control_activity },
	{ "limits", control_limits },
	{ "stats", control_stats },
	{ "create", control_create },
	{ "snapshots", control_snapshots },
	{ "notify", control_notify },
};

static void serve_request(struct control_request *r)
{
	const char *name = json_string_value(json_object_get(r->json, "op"));

	for (size_t i = 0; name && i < ARRAY_SIZE(ops); i++) {
		if (!strcmp(name, ops[i].name)) {
			ops[i].fn(r);
			return;
		}
	}
	reply_error(r->sock, "unknown request");
}

static void handle(struct container *c, int sock)
{
	int fds[CONTROL_MAX_FDS];
	struct control_request r = { .c = c, .sock = sock, .fds = fds, .nfds = CONTROL_MAX_FDS };

	r.json = control_recv(sock, fds, &r.nfds);
	if (!r.json)
		return;
	serve_request(&r);
	while (r.nfds)
		close(fds[--r.nfds]);
	json_decref(r.json);
}

static void *connection_main(void *arg)
{
	struct connection *cn = arg;

	handle(cn->c, cn->sock);
	close(cn->sock);
	conns_leave(cn->c);
	free(cn);
	return NULL;
}

static void accept_one(struct container *c)
{
	struct connection *cn;
	pthread_t th;
	int s = accept4(c->boot->listener, NULL, NULL, SOCK_CLOEXEC); /* host: accept4 */

	if (s < 0) {
		struct timespec pause = { .tv_nsec = ACCEPT_PAUSE_NS };

		/* No descriptor left: it would fail at once again. host: clock_nanosleep */
		(void)nanosleep(&pause, NULL);
		return;
	}
	if (!conns_enter(c)) {
		reply_error(s, "too many control connections");
		close(s);
		return;
	}
	cn = kzalloc(sizeof(*cn));
	cn->c = c;
	cn->sock = s;
	if (pthread_create(&th, NULL, connection_main, cn)) {
		conns_leave(c);
		close(s);
		free(cn);
		return;
	}
	pthread_detach(th);
}

/*
 * Connections, signals that the host sends to our pid (the first container's), and the gofer's end, which only a
 * kill can be. Returns when somebody has shut the listener down.
 */
static void accept_all(struct container *c)
{
	struct pollfd p[3] = { { .fd = c->boot->listener, .events = POLLIN },
			       { .fd = c->boot->sigfd, .events = POLLIN },
			       { .fd = c->boot->gofer } };

	for (;;) {
		if (poll(p, 3, -1) < 0) /* host: poll */
			continue;
		if (p[0].revents & POLLHUP)
			return;
		if (p[0].revents)
			accept_one(c);
		if (p[1].revents)
			control_host_signal(c);
		if (p[2].revents) {
			log_error("the gofer has died: the container ends");
			container_signal(c, SIGKILL);
			p[2].fd = -1;
		}
	}
}

static void *accept_main(void *arg)
{
	accept_all(arg);
	return NULL;
}

void control_serve_member(struct container *c)
{
	accept_all(c);
	AUTO_LOCK(&conns.mu);
	while (c->connections)
		cond_wait(&conns.idle, &conns.mu);
}

#define GRACE_NS 2000000000LL /* for the last answers to leave */
#define DRAIN_NS 5000000000LL /* for terminals' last output */

static int64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void control_serve(struct container *c)
{
	int64_t end;
	pthread_t th;

	mutex_init(&conns.mu, RANK_CONTROL);
	cond_init(&conns.idle);
	if (pthread_create(&th, NULL, accept_main, c))
		panic("cannot start the control thread");
	mutex_lock(&c->mu);
	while (!c->stopped)
		cond_wait(&c->changed, &c->mu);
	mutex_unlock(&c->mu);
	control_snapshots_end();
	end = monotonic_ns() + GRACE_NS;
	mutex_lock(&conns.mu);
	while (conns.n && cond_wait_until(&conns.idle, &conns.mu, end))
		;
	mutex_unlock(&conns.mu);
	console_drain(monotonic_ns() + DRAIN_NS);
}
