// SPDX-License-Identifier: Apache-2.0
/*
 * Scripts (man 2 execve, "Interpreter scripts"): "#!" interpreter [optional-arg]. The line is what fits
 * into the first 256 bytes; everything after the interpreter is one argument; an interpreter may be
 * a script itself, five deep (fs/exec.c exec_binprm(), fs/binfmt_script.c).
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/loader/loader_priv.h"

int program_read_head(struct program *p)
{
	ssize_t n;

	memset(p->head, 0, sizeof(p->head));
	n = file_kread(p->task, p->file, p->head, sizeof(p->head), 0);
	if (n < 0)
		return (int)n;
	p->head_len = (size_t)n;
	return 0;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Splits the line in place. False: no interpreter, or its path may have been cut off. */
static bool parse_line(char *line, size_t len, char **ret_interp, char **ret_arg)
{
	char *end = memchr(line, '\n', len), *p = line + 2, *interp;

	if (!end) {
		/* Cut at 256 bytes: fine only if the path itself surely ended before. */
		char *q = line + 2;

		end = line + strnlen(line, len);
		while (q < end && blank(*q))
			q++;
		while (q < end && !blank(*q))
			q++;
		if (q == end && end == line + len)
			return false;
	}
	while (end > p && blank(end[-1]))
		end--;
	*end = '\0';
	while (blank(*p))
		p++;
	if (!*p)
		return false;
	interp = p;
	while (*p && !blank(*p))
		p++;
	*ret_arg = NULL;
	if (*p) {
		*p++ = '\0';
		while (blank(*p))
			p++;
		if (*p)
			*ret_arg = p;
	}
	*ret_interp = interp;
	return true;
}

/* argv = interpreter [arg] script argv[1..] */
static void rewrite_argv(struct program *p, const char *interp, const char *arg, const char *script)
{
	unsigned add = arg ? 2 : 1, n = 0;
	unsigned rest = p->argc ? p->argc - 1 : 0;
	char **argv = kcalloc(rest + add + 2UL, sizeof(*argv));

	argv[n++] = kstrdup(interp);
	if (arg)
		argv[n++] = kstrdup(arg);
	argv[n++] = kstrdup(script);
	for (unsigned i = 0; i < rest; i++)
		argv[n++] = p->argv[i + 1];
	if (p->argc)
		free(p->argv[0]);
	free(p->argv);
	p->argv = argv;
	p->argc = n;
}

int script_resolve(struct program *p)
{
	AUTO_FREE char *script = kstrdup(p->path);
	int r;

	for (int depth = 0;; depth++) {
		char line[BINPRM_BUF_SIZE + 1] = "", *interp, *arg;
		struct file *f;

		r = program_read_head(p);
		if (r < 0)
			return r;
		if (p->head_len < 2 || p->head[0] != '#' || p->head[1] != '!')
			return 0;
		if (depth == SCRIPT_DEPTH_MAX)
			return -ELOOP;
		memcpy(line, p->head, sizeof(p->head));
		if (!parse_line(line, sizeof(p->head), &interp, &arg))
			return -ENOEXEC;
		f = vfs_open_exec(p->task, AT_FDCWD_G, interp, 0);
		if (is_err(f))
			return (int)ptr_err(f);
		rewrite_argv(p, interp, arg, script);
		file_put(p->file);
		p->file = f;
		free(script);
		script = kstrdup(interp);
	}
}
