// SPDX-License-Identifier: Apache-2.0
/* Option parsing (GNU style, through getopt_long) and help texts from the same tables. */
#include "runtime/opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"

#define OPTS_MAX 64
#define LONG_ONLY_BASE 256

static bool parse_bool(const char *s, bool *ret)
{
	if (!s || !strcmp(s, "true") || !strcmp(s, "1")) {
		*ret = true;
		return true;
	}
	if (!strcmp(s, "false") || !strcmp(s, "0")) {
		*ret = false;
		return true;
	}
	return false;
}

static bool parse_uint(const char *s, unsigned *ret)
{
	char *end;
	unsigned long v;

	if (s[0] < '0' || s[0] > '9')
		return false;
	errno = 0;
	v = strtoul(s, &end, 10);
	if (errno || *end || v > UINT32_MAX)
		return false;
	*ret = (unsigned)v;
	return true;
}

static void list_append(struct opt_list *l, const char *s)
{
	l->v = krealloc_array(l->v, l->n + 1, sizeof(l->v[0]));
	l->v[l->n++] = s;
}

static int store(const struct opt *o, const char *arg)
{
	bool ok = true;

	switch (o->kind) {
	case OPT_FLAG:
		ok = parse_bool(arg, o->dst);
		break;
	case OPT_STR:
		*(const char **)o->dst = arg;
		break;
	case OPT_UINT:
		ok = parse_uint(arg, o->dst);
		break;
	case OPT_LIST:
		list_append(o->dst, arg);
		break;
	}
	if (ok)
		return 0;
	(void)cli_fail("bad value '%s' for --%s", arg, o->name);
	return -1;
}

/* getopt's two forms of the table. */
static void build(const struct opt *opts, struct option *lo, char *so, bool stop_at_first)
{
	unsigned n = 0;

	*so++ = stop_at_first ? '+' : ':';
	if (stop_at_first)
		*so++ = ':';
	for (; opts && opts[n].name; n++) {
		if (n >= OPTS_MAX - 2)
			abort();
		lo[n] = (struct option){ .name = opts[n].name,
					 .has_arg = opts[n].kind == OPT_FLAG ? optional_argument :
									       required_argument,
					 .val = LONG_ONLY_BASE + (int)n };
		if (opts[n].letter) {
			*so++ = opts[n].letter;
			if (opts[n].kind != OPT_FLAG)
				*so++ = ':';
		}
	}
	lo[n] = (struct option){ .name = "help", .has_arg = no_argument, .val = 'h' };
	lo[n + 1] = (struct option){ 0 };
	*so++ = 'h';
	*so = 0;
}

static const struct opt *by_val(const struct opt *opts, int val)
{
	if (val >= LONG_ONLY_BASE)
		return &opts[val - LONG_ONLY_BASE];
	for (; opts && opts->name; opts++)
		if (opts->letter == val)
			return opts;
	return NULL;
}

/* A long option with one dash, as Go's flag packages take it: containerd says -no-subreaper. */
static void double_dash(const struct option *lo, char **arg)
{
	size_t n = *arg && (*arg)[0] == '-' && (*arg)[1] != '-' ? strcspn(*arg + 1, "=") : 0;

	for (; n > 1 && lo->name; lo++)
		if (strlen(lo->name) == n && !strncmp(lo->name, *arg + 1, n)) {
			*arg = kasprintf("-%s", *arg); /* for as long as the process lives */
			return;
		}
}

int opts_parse(const struct opt *opts, int argc, char **argv, bool stop_at_first)
{
	struct option lo[OPTS_MAX];
	char so[2 * OPTS_MAX + 4];
	AUTO_FREE char **v = kcalloc((size_t)argc + 2, sizeof(*v));
	static char progname[] = "holdfast";
	int c;

	v[0] = progname; /* getopt skips the first */
	for (int i = 0; i < argc; i++)
		v[i + 1] = argv[i];
	build(opts, lo, so, stop_at_first);
	optind = 0;
	opterr = 0;
	for (;;) {
		const struct opt *o;

		double_dash(lo, &v[optind ? optind : 1]);
		c = getopt_long(argc + 1, v, so, lo, NULL);
		if (c == -1)
			break;

		if (c == 'h')
			return -2;
		if (c == ':' || c == '?') {
			(void)cli_fail("%s '%s' (see --help)",
				       c == ':' ? "missing argument of" : "unknown option",
				       v[optind - 1]);
			return -1;
		}
		o = by_val(opts, c);
		if (!o || store(o, optarg))
			return -1;
	}
	for (int i = optind; i <= argc; i++)
		argv[i - optind] = v[i];
	argv[argc + 1 - optind] = NULL;
	return argc + 1 - optind;
}

void opts_print(const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		char left[48];

		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", opts->letter ? '-' : ' ',
			 opts->letter ? opts->letter : ' ', opts->letter ? ", " : "  ",
			 opts->name, opts->arg ? " " : "", opts->arg ? opts->arg : "");
		printf("  %-28s %s\n", left, opts->help);
	}
	printf("  %-28s %s\n", "-h, --help", "this help");
}

void command_help(const struct command *c)
{
	printf("NAME\n  holdfast %s - %s\n\nSYNOPSIS\n  holdfast [global options] %s %s\n", c->name,
	       c->summary, c->name, c->synopsis);
	if (c->details)
		printf("\nDESCRIPTION\n%s\n", c->details);
	printf("\nOPTIONS\n");
	opts_print(c->opts);
	printf("\n  Global options stand before the command: see holdfast --help.\n");
	printf("\nEXIT STATUS\n%s\n",
	       c->status ? c->status : "  0 on success, 1 after an error, which is told in one line.");
	if (c->examples)
		printf("\nEXAMPLES\n%s\n", c->examples);
}
