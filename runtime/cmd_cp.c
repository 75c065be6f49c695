// SPDX-License-Identifier: Apache-2.0
/*
 * cp: files into a container and out of it, with docker cp's rules, as a tar stream between tar(1) on this side and
 * the container's own tar on the other, which `exec` starts: so a suspended container is woken, and what the guest's
 * kernel alone has (tmpfs, the writable layer) is reached.
 *
 * What comes out is hostile. Our tar takes the one member that was asked for, refuses "..", and has been left with no
 * right but to write where the caller may: no device nodes, no owners, no setuid bits (unless --archive asks for
 * owners and modes).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"

#define ARGS_MAX 24

static struct {
	bool archive;
} o;

static const struct opt cp_opts[] = {
	{ "archive", 'a', OPT_FLAG, &o.archive, NULL, "keep owners, modes and special files" },
	{ 0 },
};

/* What to run: a NULL-terminated list that grows. */
struct args {
	const char *v[ARGS_MAX + 1];
	unsigned n;
};

static void add(struct args *a, const char *arg)
{
	if (a->n < ARGS_MAX)
		a->v[a->n++] = arg;
}

/* Both sides of a copy: a directory, and the name in it that is meant. */
struct place {
	char *id; /* NULL: of the host */
	char *dir, *name;
};

static void place_fini(struct place *p)
{
	free(p->id);
	free(p->dir);
	free(p->name);
}

/* ---- processes ---- */

/* tar on this side writes as we may, and does nothing else that root may. */
static void give_up_rights(void)
{
	uint64_t keep = 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_DAC_READ_SEARCH;

	if (o.archive)
		keep |= 1ULL << CAP_CHOWN | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID | 1ULL << CAP_MKNOD;
	for (int c = 0; c < 64; c++)
		if (!(keep >> c & 1) && prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1)
			(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0); /* a plain user has nothing to give up */
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static pid_t start(const struct args *a, int in, int out, bool quiet)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	if (in >= 0)
		dup2(in, 0);
	if (out >= 0)
		dup2(out, 1);
	if (quiet) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		for (int i = 0; i < 3; i++)
			dup2(null, i);
	}
	if (strcmp(a->v[0], "tar") != 0) {
		execv("/proc/self/exe", (char *const *)(uintptr_t)a->v);
	} else {
		give_up_rights();
		execvp("tar", (char *const *)(uintptr_t)a->v);
		fprintf(stderr, "holdfast: cannot run tar: %s\n", strerror(errno));
	}
	_exit(127);
}

static int finish(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* `exec` of the container's tar as its root, in @dir. */
static struct args inside(const struct place *p)
{
	struct args a = { .n = 0 };

	add(&a, "holdfast");
	add(&a, "--root");
	add(&a, globals.root);
	add(&a, "exec");
	add(&a, "--user");
	add(&a, "0:0");
	add(&a, "--cwd");
	add(&a, p->dir);
	add(&a, p->id);
	add(&a, "tar");
	return a;
}

static bool is_dir_inside(const char *id, const char *path)
{
	struct place p = { kstrdup(id), kstrdup(path), NULL };
	struct args a = inside(&p);
	int r;

	add(&a, "--help");
	r = finish(start(&a, -1, -1, true));
	place_fini(&p);
	return r == 0;
}

/* ---- places ---- */

static bool is_dir(const struct place *p, const char *path)
{
	struct stat st;

	return p->id ? is_dir_inside(p->id, path) : stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* @path without slashes at its end; "DIR/." means what is in DIR. */
static int split(struct place *p, const char *path)
{
	AUTO_FREE char *copy = p->id && path[0] != '/' ? kasprintf("/%s", path) : kstrdup(path);
	size_t n = strlen(copy);
	char *slash;

	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = 0;
	slash = strrchr(copy, '/');
	p->name = kstrdup(slash ? slash + 1 : copy);
	p->dir = !slash ? kstrdup(".") : slash == copy ? kstrdup("/") : kstrndup(copy, (size_t)(slash - copy));
	if (!strcmp(p->name, ".."))
		return cli_fail("%s: a path can't end in ..", path);
	if (!*p->name) {
		free(p->name);
		p->name = kstrdup(".");
	}
	return 0;
}

/*
 * Where @to leads, and the name there. An existing directory takes the source under its own name; so does "DIR/.", what
 * is in a directory; else the last component is the new name.
 */
static int resolve(struct place *to, const char *path, const struct place *from)
{
	size_t n = strlen(path);
	bool slash = n > 1 && path[n - 1] == '/';

	if (is_dir(to, *path ? path : "/")) {
		to->dir = kstrdup(*path ? path : "/");
		to->name = kstrdup(from->name);
		return 0;
	}
	if (slash)
		return cli_fail("%s: no such directory", path);
	if (split(to, path))
		return 1;
	if (!is_dir(to, to->dir))
		return cli_fail("%s%s%s: no such directory, or no tar in the container", to->id ? to->id : "", to->id ? ":" : "",
				to->dir);
	return 0;
}

/* @s with a backslash before each of @special. */
static char *escape(const char *s, const char *special)
{
	char *ret = kzalloc(2 * strlen(s) + 1), *p = ret;

	for (; *s; s++) {
		if (strchr(special, *s))
			*p++ = '\\';
		*p++ = *s;
	}
	return ret;
}

/* For tar --transform: what begins with name @from begins with @to; targets of symbolic links stay (S). */
static char *transform(const char *from, const char *to)
{
	AUTO_FREE char *pattern = escape(from, ".[]*^$\\");
	AUTO_FREE char *replacement = escape(to, "&\\");

	return kasprintf("s\001^%s\001%s\001S", pattern, replacement);
}

/* ---- copying ---- */

static int both(const struct args *from, int in, const struct args *to, int out)
{
	int p[2], a, b;
	pid_t left, right;

	if (pipe2(p, O_CLOEXEC))
		return cli_fail("pipe: %s", errno_text(errno));
	left = start(from, in, p[1], false);
	right = start(to, p[0], out, false);
	close(p[0]);
	close(p[1]);
	a = finish(left);
	b = finish(right);
	return a || b ? cli_fail("not everything was copied") : 0;
}

static int out_of(const struct place *from, const struct place *to)
{
	AUTO_FREE char *rename = transform(from->name, to->name);
	struct args ours = { .n = 0 }, theirs = inside(from);

	add(&theirs, "-cf");
	add(&theirs, "-");
	add(&theirs, "--");
	add(&theirs, from->name);
	add(&ours, "tar");
	add(&ours, "-xf");
	add(&ours, "-");
	add(&ours, "-C");
	add(&ours, to->dir);
	add(&ours, o.archive ? "--same-owner" : "--no-same-owner");
	add(&ours, o.archive ? "--same-permissions" : "--no-same-permissions");
	add(&ours, "--numeric-owner");
	add(&ours, "--no-wildcards");
	if (strcmp(from->name, to->name) != 0) {
		add(&ours, "--transform");
		add(&ours, rename);
	}
	add(&ours, "--");
	add(&ours, from->name);
	return both(&theirs, -1, &ours, -1);
}

static int into(const struct place *from, const struct place *to)
{
	AUTO_FREE char *rename = transform(from->name, to->name);
	struct args ours = { .n = 0 }, theirs = inside(to);

	add(&theirs, o.archive ? "-xpf" : "-xf");
	add(&theirs, "-");
	add(&ours, "tar");
	add(&ours, "-cf");
	add(&ours, "-");
	add(&ours, "-C");
	add(&ours, from->dir);
	add(&ours, "--numeric-owner");
	if (!o.archive) {
		add(&ours, "--owner=0");
		add(&ours, "--group=0");
	}
	if (strcmp(from->name, to->name) != 0) {
		add(&ours, "--transform");
		add(&ours, rename);
	}
	add(&ours, "--");
	add(&ours, from->name);
	return both(&ours, -1, &theirs, -1);
}

/* "-": the stream itself. */
static int stream_out(const struct place *from)
{
	struct args theirs = inside(from);

	add(&theirs, "-cf");
	add(&theirs, "-");
	add(&theirs, "--");
	add(&theirs, from->name);
	return finish(start(&theirs, -1, -1, false)) ? cli_fail("not everything was copied") : 0;
}

static int stream_in(const char *id, const char *path)
{
	struct place to = { kstrdup(id), kstrdup(*path ? path : "/"), NULL };
	struct args theirs = inside(&to);
	int r;

	add(&theirs, o.archive ? "-xpf" : "-xf");
	add(&theirs, "-");
	r = finish(start(&theirs, -1, -1, false));
	place_fini(&to);
	return r ? cli_fail("not everything was copied") : 0;
}

/* "ID:PATH" in @p->id (heap) and the path; a path with a slash before the colon is the host's. */
static const char *parse(struct place *p, const char *arg)
{
	const char *colon = strchr(arg, ':'), *slash = strchr(arg, '/');

	if (!colon || colon == arg || (slash && slash < colon) || arg[0] == '.')
		return arg;
	p->id = kstrndup(arg, (size_t)(colon - arg));
	return colon + 1;
}

static int copy(struct place *from, const char *src, struct place *to, const char *dst)
{
	if (!from->id && !strcmp(src, "-"))
		return stream_in(to->id, dst);
	if (split(from, *src ? src : "/"))
		return 1;
	if (!to->id && !strcmp(dst, "-"))
		return stream_out(from);
	if (resolve(to, dst, from))
		return 1;
	return from->id ? out_of(from, to) : into(from, to);
}

static int cp(int argc, char **argv)
{
	struct place from = { 0 }, to = { 0 };
	const char *src = parse(&from, argv[0]), *dst = parse(&to, argv[1]);
	AUTO(statedir_close) struct statedir *s = NULL;
	int r = 1;

	(void)argc;
	if (!from.id == !to.id)
		(void)cli_fail("one of the two has to be in a container (ID:PATH)");
	else if ((s = cli_open(from.id ? from.id : to.id)))
		r = copy(&from, src, &to, dst);
	place_fini(&from);
	place_fini(&to);
	return r;
}

const struct command cmd_cp = {
	.name = "cp",
	.synopsis = "[-a] ID:PATH PATH|- | PATH|- ID:PATH",
	.summary = "copy files out of a container, or into it",
	.details =
		"  PATH in container ID begins at its root. A destination that is a directory takes the source\n"
		"  under its name, another one is the new name. SOURCE/. means what is in the directory. With -\n"
		"  the other side is a tar stream on standard output or input.\n"
		"  What is copied belongs to whoever runs this, or to root inside, unless --archive is given:\n"
		"  then out of a container you trust only, since a set-user-ID file stays one.\n"
		"  A suspended container is woken. The container needs a tar of its own.",
	.examples = "  holdfast cp agent:/work/result.json .\n"
		    "  holdfast cp src/. agent:/work\n"
		    "  holdfast cp agent:/etc - | tar tv",
	.opts = cp_opts,
	.min_args = 2,
	.max_args = 2,
	.run = cp,
};
