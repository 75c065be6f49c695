// SPDX-License-Identifier: Apache-2.0
/* The command line: global options, commands, and what they share. */
#ifndef RUNTIME_CLI_H
#define RUNTIME_CLI_H

#include <jansson.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "runtime/opts.h"
#include "runtime/spec.h"
#include "runtime/statedir.h"

#define HOLDFAST_VERSION "0.1.0"
#define OCI_SPEC_VERSION "1.2.0"

struct globals {
	const char *root, *log, *log_format, *platform, *network, *rootless;
	bool debug, strace, systemd_cgroup, version;
};
extern struct globals globals;

int cli_main(int argc, char **argv);

/* Prints "holdfast: <message>" to fd 2 and the log, as the last error record. Returns 1. */
int cli_fail(const char *fmt, ...) __printf(1, 2) __cold;

extern const struct command cmd_checkpoint, cmd_restore, cmd_fork, cmd_suspend, cmd_wake, cmd_snapshot, cmd_snapshots,
	cmd_rollback, cmd_prune, cmd_tree, cmd_cp, cmd_attach, cmd_keep,
	cmd_export, cmd_import;
extern const struct command cmd_run, cmd_create, cmd_start, cmd_exec, cmd_state, cmd_list, cmd_ps, cmd_kill,
	cmd_delete, cmd_wait, cmd_spec, cmd_features, cmd_do, cmd_debug, cmd_pause, cmd_resume, cmd_update,
	cmd_events;

/* cli_container.c: shared by commands. */

/* Opens container @id or prints why not (NULL). */
struct statedir *cli_open(const char *id);
/* "creating", "created", "running", "paused", "stopped" or "suspended", from the sentry if it lives. */
const char *cli_status(struct statedir *s);
/* One control request; the reply (new reference) or NULL. *ret_why (heap) says why not. */
json_t *cli_request(struct statedir *s, json_t *req, char **ret_why);
/* Sends a signal to the sentry's host process; false when there is none. */
bool cli_signal_sentry(struct statedir *s, int sig);
/* A pidfd of the sentry that state.json names, if it still is that process, or -1. */
int cli_open_sentry(struct statedir *s);
/* When process @pid started, in clock ticks since boot; 0 when there is none. */
long long cli_start_time(pid_t pid);
/* Ends the processes of a container and removes its control groups. 0 or -1 after a message. */
int cli_end_processes(struct statedir *s);
/* Removes a container whose sentry is gone (or kills it first). 0 or -1 after a message. */
int cli_destroy(struct statedir *s, bool force);
/* The exit status that a stopped container left, 255 when it left none. */
int cli_exit_status(struct statedir *s);

/* attach.c: the user's terminal against a session's byte stream. */
struct attach;
/* The stream between a terminal and a session: its other end, to hand to the sentry, in *ret_fd, the
 * terminal's size in *rows and *cols. NULL when @tty_in is no terminal. The descriptors are borrowed. */
struct attach *attach_begin(int tty_in, int tty_out, int *ret_fd, unsigned *rows, unsigned *cols);
/* In a new process that relays for a terminal of its own (--console-socket): a session with that
 * terminal, and no standard descriptors of the caller's. */
void attach_adopt(struct attach *a);
/* Puts the terminal into raw mode (restored at exit, whatever ends us) and relays until @control (the connection that will carry the exit status) has an answer: new reference, or
 * NULL when the sandbox died. Window size changes are sent on a connection made with @resize. */
json_t *attach_run(struct attach *a, int control, void (*resize)(void *arg, unsigned rows, unsigned cols),
		   void *arg);
/* attach_run() returns NULL when the user presses @key: attach_left(). */
void attach_escape(struct attach *a, int key);
bool attach_left(const struct attach *a);
/* Restores the terminal. */
void attach_end(struct attach *a);
/* For clients without a terminal: signals that the guest's process is to get instead of us, blocked from
 * here on, so that none is lost while the process starts. */
void client_block_signals(void);
/* Waits for the answer on @control (as attach_run); passes signals on meanwhile. */
json_t *client_wait(int control, void (*forward)(void *arg, int sig), void *arg);

#endif
