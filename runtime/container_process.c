// SPDX-License-Identifier: Apache-2.0
/* Processes started from outside: identity, limits, descriptors and terminal as the spec says. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/errno_text.h"
#include "sentry/fs/devpts/devpts.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/fs/hostfd/hostfd.h"
#include "sentry/socket/host/host_sock.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"

#define DEFAULT_UMASK 022

/* What a fresh init process of Linux has, where the spec says nothing. */
static void default_rlimits(struct rlimit_g *l)
{
	for (int i = 0; i < RLIM_COUNT; i++)
		l[i] = (struct rlimit_g){ RLIM_INFINITY_G, RLIM_INFINITY_G };
	l[RLIMIT_STACK].cur = 8 << 20;
	l[RLIMIT_CORE].cur = 0;
	l[RLIMIT_NOFILE] = (struct rlimit_g){ 1024, 1048576 };
	l[RLIMIT_NPROC] = (struct rlimit_g){ kernel.limits.max_tasks, kernel.limits.max_tasks };
	l[RLIMIT_MEMLOCK] = (struct rlimit_g){ 8 << 20, 8 << 20 };
	l[RLIMIT_SIGPENDING] = (struct rlimit_g){ 63304, 63304 };
	l[RLIMIT_MSGQUEUE] = (struct rlimit_g){ 819200, 819200 };
	l[RLIMIT_NICE] = (struct rlimit_g){ 0, 0 };
	l[RLIMIT_RTPRIO] = (struct rlimit_g){ 0, 0 };
}

static void spec_rlimits(const struct spec_process *p, struct rlimit_g *l)
{
	default_rlimits(l);
	for (unsigned i = 0; i < p->nrlimits; i++)
		l[p->rlimits[i].resource] =
			(struct rlimit_g){ p->rlimits[i].soft, p->rlimits[i].hard };
}

static int by_gid(const void *a, const void *b)
{
	gid_t x = *(const gid_t *)a, y = *(const gid_t *)b;

	return (x > y) - (x < y);
}

static struct cred *spec_cred(const struct container *cont, const struct spec_process *p)
{
	struct cred *c = cred_create_root(CAP_FULL_SET);

	userns_put(c->userns);
	c->userns = userns_get(cont->userns);
	c->uid = c->euid = c->suid = c->fsuid = container_kuid(cont, p->uid);
	c->gid = c->egid = c->sgid = c->fsgid = container_kgid(cont, p->gid);
	free(c->groups);
	c->ngroups = p->nadditional_gids;
	c->groups = kcalloc(p->nadditional_gids + 1, sizeof(gid_t));
	for (unsigned i = 0; i < c->ngroups; i++)
		c->groups[i] = container_kgid(cont, p->additional_gids[i]);
	qsort(c->groups, c->ngroups, sizeof(gid_t), by_gid);
	if (p->has_caps) {
		c->bounding = p->caps_bounding & CAP_FULL_SET;
		c->permitted = p->caps_permitted & CAP_FULL_SET;
		c->effective = p->caps_effective & c->permitted;
		c->inheritable = p->caps_inheritable & CAP_FULL_SET;
		c->ambient = p->caps_ambient & c->permitted & c->inheritable;
	} else if (p->uid != 0) {
		c->permitted = c->effective = c->inheritable = c->ambient = 0;
	} else {
		c->inheritable = c->ambient = 0;
	}
	return c;
}

static char **copy_strv(const char **v, unsigned n)
{
	char **out = kcalloc(n + 1, sizeof(*out));

	for (unsigned i = 0; i < n; i++)
		out[i] = kstrdup(v[i]);
	return out;
}

/* The spec's environment and, where it has no HOME, the user's: as runc does it. */
static char **make_env(struct container *c, const struct spec_process *p)
{
	char **env = kcalloc(p->nenv + 2, sizeof(*env));
	unsigned n = 0;
	bool has_home = false;

	for (unsigned i = 0; i < p->nenv; i++) {
		bool home = !strncmp(p->env[i], "HOME=", 5);

		if (home && !p->env[i][5])
			continue;
		has_home |= home;
		env[n++] = kstrdup(p->env[i]);
	}
	if (!has_home) {
		AUTO_FREE char *home = container_home(c, p->uid);

		env[n] = kasprintf("HOME=%s", home);
	}
	return env;
}

static void free_strv(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

static struct file *extra_file(struct container *c, int fd)
{
	int fl;

	if (host_sock_listens(fd))
		return host_sock_create_file(c->ns->net, fd);
	fl = fcntl(fd, F_GETFL); /* host: fcntl */
	return hostfd_create_file(fd, fl < 0 ? O_RDWR : (unsigned)fl & (O_ACCMODE | O_APPEND));
}

/* Descriptors 3, 4 ... Takes them over, also on failure: 0 or -errno. */
static int install_extra(struct container *c, struct files *files, const struct spec_process *p)
{
	int err = 0;

	for (unsigned i = 0; i < p->nextra_fds; i++) {
		struct file *f = extra_file(c, p->extra_fds[i]);

		if (is_err(f))
			err = (int)ptr_err(f);
		else if (files_install_at(files, 3 + (int)i, f, 0) < 0)
			err = -EMFILE;
	}
	return err;
}

/* Takes over all of @stdio, also on failure: 0 or -errno. */
static int install_stdio(struct files *files, struct file *slave, const int stdio[3], unsigned session)
{
	int err = 0;

	for (int i = 0; i < 3; i++) {
		struct file *f = slave ? file_get(slave) :
					 hostfd_create_file(stdio[i], i ? O_WRONLY : O_RDONLY);

		if (!slave && !is_err(f))
			hostfd_label(f, session, (unsigned)i);
		if (is_err(f))
			err = (int)ptr_err(f);
		else
			(void)files_install_at(files, i, f, 0); /* 0-2 are within any limit */
	}
	return err;
}

/* The working directory as runc has it: made for the first process, a condition for others. */
static int check_cwd(struct container *c, const struct spec_process *p, bool init, char **ret_why)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	struct path at = { 0 };
	int r = path_lookup_from(NULL, root, &c->root, &c->root, p->cwd,
				 LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &at);

	if (r == -ENOENT && init)
		r = vfs_mkdir_p(&c->root, p->cwd, 0755, &at);
	if (r)
		*ret_why = kasprintf("chdir to cwd (\"%s\") set in config.json failed: %s", p->cwd, errno_text(-r));
	path_put(&at);
	return r;
}

struct session *container_spawn(struct container *c, const struct spec_process *p, bool init,
				const int stdio[3], int console_fd, unsigned rows, unsigned cols,
				char **ret_why)
{
	struct session *s;
	struct files *files;
	struct rlimit_g rlim[RLIM_COUNT];
	struct file *slave = NULL;
	struct tty *tty = NULL;
	struct task *leader;

	if (check_cwd(c, p, init, ret_why)) {
		for (int i = 0; i < 3 && console_fd < 0; i++)
			close(stdio[i]);
		if (console_fd >= 0)
			close(console_fd);
		for (unsigned i = 0; i < p->nextra_fds; i++)
			close(p->extra_fds[i]);
		return NULL;
	}
	s = kzalloc(sizeof(*s));
	files = files_create();
	spec_rlimits(p, rlim);
	s->container = c;
	s->number = init ? 0 : atomic_fetch_add(&c->sessions_made, 1) + 1;
	if (p->terminal && console_fd >= 0) {
		s->console = console_start(c->devpts, console_fd, rows ? rows : p->height,
					   cols ? cols : p->width, &slave, &tty);
		if (!s->console) {
			*ret_why = kstrdup("cannot make a terminal");
			files_put(files);
			free(s);
			return NULL;
		}
	}
	if (install_stdio(files, slave, stdio, s->number) || install_extra(c, files, p)) {
		*ret_why = kstrdup("cannot use the descriptors");
		files_put(files);
		free(s);
		return NULL;
	}
	if (slave)
		file_put(slave);
	if (init && tty)
		console_bind(c, tty);
	struct spawn_args a = {
		.container = c,
		.argv = copy_strv(p->args, p->nargs),
		.envp = make_env(c, p),
		.program = p->program,
		.cwd = p->cwd,
		.cred = spec_cred(c, p),
		.files = files,
		.fs = fsctx_create(&c->root, &c->root, p->umask < 0 ? DEFAULT_UMASK : (uint32_t)p->umask),
		.ns = nsproxy_get(c->ns),
		.tty = tty,
		.new_pidns_init = init && !c->shares_pidns,
		.no_new_privs = p->no_new_privs,
		.umask = p->umask,
		.rlim = rlim,
		.oom_score_adj = p->oom_score_adj,
		.seccomp = c->seccomp,
		.personality = c->boot->spec->personality,
		.ioprio = p->ioprio,
		.sched_policy = p->sched_policy,
		.sched_prio = p->sched_prio,
		.sched_reset_on_fork = p->sched_reset_on_fork,
		.nice = p->nice,
		.cpus = init ? 0 : p->exec_cpus,
	};
	leader = task_spawn(&a);
	free_strv(a.argv);
	free_strv(a.envp);
	if (is_err(leader)) {
		int err = (int)-ptr_err(leader);

		*ret_why = kasprintf("exec: \"%s\": %s", p->args[0],
				     err == ENOENT && !strchr(p->args[0], '/') ?
					     "executable file not found in $PATH" :
				     err == ENOENT ? "no such file or directory" :
				     err == EACCES ? "permission denied" :
						     errno_text(err));
		session_free(s);
		return NULL;
	}
	s->leader = leader;
	list_init(&s->node);
	if (!init) {
		mutex_lock(&c->mu);
		list_add(&c->sessions, &s->node);
		mutex_unlock(&c->mu);
	}
	return s;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	if (s->leader) { /* else it was never listed */
		mutex_lock(&s->container->mu);
		list_del(&s->node);
		mutex_unlock(&s->container->mu);
	}
	if (s->console)
		console_finish(s->console);
	task_put(s->leader);
	free(s);
}
