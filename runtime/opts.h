// SPDX-License-Identifier: Apache-2.0
/* Commands and their options: one table describes parsing and help. */
#ifndef RUNTIME_OPTS_H
#define RUNTIME_OPTS_H

#include <stdbool.h>
#include <stddef.h>

enum opt_kind {
	OPT_FLAG, /* bool *: present or not; --name=false, too */
	OPT_STR,  /* const char **: borrowed from argv */
	OPT_UINT, /* unsigned * */
	OPT_LIST, /* struct opt_list *: may be repeated */
};

struct opt_list {
	const char **v; /* heap */
	unsigned n;
};

struct opt {
	const char *name; /* NULL ends a table */
	char letter;      /* or 0 */
	enum opt_kind kind;
	void *dst;
	const char *arg;  /* placeholder in the help, NULL for flags */
	const char *help;
};

struct command {
	const char *name;
	const char *synopsis; /* behind the name: "[options] ID" */
	const char *summary;  /* one line, for the list of commands */
	const char *details;  /* DESCRIPTION: paragraphs, indented by two, no last newline */
	const char *status;   /* EXIT STATUS, the same way; NULL: 0 and 1 as usual */
	const char *examples; /* EXAMPLES; may be NULL */
	const struct opt *opts;
	int min_args, max_args; /* positional; max -1: any number */
	const unsigned *preserve_fds; /* option that says how many descriptors are the container's, or NULL */
	bool passthrough;       /* stop at the first positional, the rest belongs to the guest */
	int (*run)(int argc, char **argv); /* positionals; returns the exit status */
};

/*
 * Parses argv[0..argc) by @opts. Options may stand between positionals unless @stop_at_first.
 * Returns the number of positionals, moved to the front of @argv (a NULL follows), -1 after an
 * error message on fd 2, or -2 when --help was asked for.
 */
int opts_parse(const struct opt *opts, int argc, char **argv, bool stop_at_first);
void opts_print(const struct opt *opts);
void command_help(const struct command *c);

#endif
