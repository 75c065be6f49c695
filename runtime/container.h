// SPDX-License-Identifier: Apache-2.0
/*
 * A container inside the sentry: its namespaces, mounts and processes as the OCI spec asks for, and
 * how it ended. runtime/container_*.c build it; runtime/control_server.c drives it.
 */
#ifndef RUNTIME_CONTAINER_H
#define RUNTIME_CONTAINER_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/mutex.h"
#include "runtime/control.h"
#include "runtime/spec.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

struct gofer_client;
struct console;
struct state;

/* What the launcher handed over (runtime/launch.c). */
struct boot {
	json_t *json;
	struct spec *spec;
	const char *id;
	int gofer, listener, exitfd;
	int volumes; /* another gofer, for what its pod may share (container_volumes.c), or -1 */
	int sigfd; /* signals that are sent to us on the host */
	int stdio[3];
	int extra_fds[CONTROL_MAX_FDS]; /* the first process's 3, 4 ... */
	unsigned nextra_fds;
	int console; /* -1: no terminal */
	unsigned rows, cols;
	struct restore_input *restore; /* NULL: a fresh sandbox */
};

/* What a sandbox is made from instead of its program: see container_restore.c. */
struct restore_input {
	bool fork;   /* of a live sandbox: @fds are its memory files; else page files of images */
	int state;   /* the file `state` */
	int *fds;    /* heap */
	unsigned nfds;
};

/* One process started from outside: the init process, or one of `exec`. */
struct session {
	struct list node;        /* (container.mu) container.sessions, but for the init process's */
	struct container *container;
	unsigned number;         /* 0: the init process's; never used again for another one */
	struct task *leader;     /* reference */
	struct console *console; /* NULL: no terminal */
};

struct container {
	const struct boot *boot;
	struct gofer_client *gofer;
	struct nsproxy *ns;      /* reference */
	struct path root;        /* references */
	struct userns *userns;   /* reference */
	uid_t uid0;              /* kernel ids of its root */
	gid_t gid0;
	struct super *devpts;    /* reference, or NULL */
	struct seccomp_filter *seccomp; /* reference: the spec's profile; or NULL */
	struct session *init;
	struct list sessions;    /* (mu) of session.node: what `exec` has started */
	_Atomic unsigned sessions_made;

	struct mutex mu;         /* RANK_CONTROL */
	struct cond changed;
	bool started, stopped;
	bool ready;              /* (mu) it has said so: container_notify.c */
	pthread_t watcher;       /* of its first process */

	/* Pods (container_pod.c). */
	struct container *sandbox; /* whose sentry it is in; NULL: its own */
	struct list members;     /* (mu) of member: those that joined this one and live */
	struct list member;
	struct gofer_client *volumes; /* reference while it is built, or NULL */
	struct list binds;       /* (mu of the pod's first container) container_volumes.c */
	bool shares_pidns;
	bool handed;             /* the boot message's descriptors are the first process's */
	unsigned connections;    /* control connections (control_server.c) */
	_Atomic unsigned attended; /* clients that follow a process or sit at a terminal */

	bool frozen;             /* (mu) restored, and nothing of it has run yet */
	int exit_status;         /* wait form, once stopped */
	int killed_by;           /* signal that a tied client died of; 0: none */
};

/* boot.c: what the message @json and the descriptors behind it say, in @b, which takes over both. False with
 * *ret_why (heap) when they are malformed; boot_fini() either way. */
bool boot_read(struct boot *b, json_t *json, const int *fds, unsigned nfds, char **ret_why);
/* Without the descriptors that are still its own: @handed are the first process's. */
void boot_fini(struct boot *b, bool handed);

/* Builds namespaces and mounts and loads the first program. 0, or -1 with *ret_why (heap). */
int container_create(const struct boot *b, struct gofer_client *gofer, struct container **ret,
		     char **ret_why);
/* An empty one, and the thread that watches its first process. 0, or -1 with *ret_why. */
struct container *container_new(const struct boot *b, struct gofer_client *gofer);
int container_watch(struct container *c, char **ret_why);
/* container_restore.c: the same from b->restore. Everything stands still until container_start(). */
int container_restore(const struct boot *b, struct gofer_client *gofer, struct container **ret,
		      char **ret_why);
/* The same for one that container_new() has made. */
int container_build(struct container *c, char **ret_why);
/* Lets the first process run. False when it runs already. */
bool container_start(struct container *c);
/* control_kill.c: a signal for the first process from outside, before it has started, too. */
void container_signal(struct container *c, int sig);
/* What a shell shows as $? for a status in wait form. */
int container_exit_code(int status);

/* container_pod.c: how many containers have joined @c's sandbox; is @tg, which may be of another one, @c's? */
unsigned container_count_members(struct container *c);
bool container_owns(const struct container *c, const struct tgroup *tg);
/* Kills what is left of one that shares its pid namespace, whose end takes the others' along; returns when nothing of
 * it runs. */
void container_end_others(struct container *c);
/* control_kill.c: every process of it. */
void container_signal_all(struct container *c, int sig);

/* container_namespaces.c: the container's user namespace (reference), the others, ids of the container as
 * kernel ids. */
struct userns *container_userns(const struct container *c);
struct nsproxy *container_namespaces(struct container *c, struct mntns *mnt);
uid_t container_kuid(const struct container *c, uid_t uid);
gid_t container_kgid(const struct container *c, gid_t gid);

/* container_mounts.c: all mounts of the spec, in order. */
int container_mount_all(struct container *c, struct mntns *mnt, char **ret_why);
/* Of a loaded sandbox: those of the spec whose destinations aren't among @was_mounts, which it had then. 0, or -1 with
 * *ret_why. */
int container_mount_new(struct container *c, const json_t *was_mounts, char **ret_why);
/* The mount point @dest in *ret (references); what is missing of it is made, with @file as an empty file. */
int container_mountpoint(struct container *c, const char *dest, bool file, struct path *ret);
/* container_notify.c: the socket for sd_notify, if its launcher asks for it. 0, or -1 with *ret_why. */
int container_notify(struct container *c, struct mntns *mnt, char **ret_why);
/* container_machine_id.c: of a loaded sandbox whose launcher asks for another one than @was_annotations have. 0, or -1
 * with *ret_why. */
int container_machine_id(struct container *c, const json_t *was_annotations, char **ret_why);
/* container_copyup.c: copies the tree at @from into the directory @to. */
int container_copy_up(const struct path *from, const struct path *to);
/*
 * container_volumes.c: the file system of mount @index, which is a bind: the attach point that the launcher made, or one
 * that the pod has of the same place. *ret_file: it is no directory. err_ptr.
 */
struct super *container_bind_super(struct container *c, unsigned index, bool readonly, bool *ret_file);
/* Gives back what the container has there. */
void container_volumes_fini(struct container *c);
/* container_devices.c: /dev as the runtime-spec has it, and linux.devices. */
int container_devices(struct container *c, struct mntns *mnt, char **ret_why);
/* Binds a device of the guest over @path. */
int container_bind_device(struct container *c, struct mntns *mnt, const char *path, uint32_t mode,
			  dev_t rdev, uid_t uid, gid_t gid, unsigned long flags);
/* container_sysctl.c: linux.sysctl, on the guest's own /proc/sys. */
int container_sysctls(struct container *c, char **ret_why);

/* container_process.c: a process with the spec's identity, limits and directory. Not started.
 * @stdio: host descriptors (taken over); with p->terminal: @console_fd carries the terminal's bytes. */
struct session *container_spawn(struct container *c, const struct spec_process *p, bool init,
				const int stdio[3], int console_fd, unsigned rows, unsigned cols,
				char **ret_why);
/* container_hooks.c: the spec's startContainer hooks, in order, on copies of @fds (state, stdout, stderr), unless
 * the container has started. 0, or -1 with *ret_why. */
int container_run_hooks(struct container *c, const int fds[3], char **ret_why);
/* container_user.c: "NAME[:GROUP]" or numbers, by the container's own files, into @p. 0, or -1 with *ret_why. */
int container_find_user(struct container *c, const char *who, struct spec_process *p, char **ret_why);
/* The home directory (heap) that the container's /etc/passwd has for @uid; "/" when it has none. */
char *container_home(struct container *c, uid_t uid);
void session_free(struct session *s);

/* console.c: relays between a pty's master and a host descriptor (taken over). */
struct console *console_start(struct super *devpts, int hostfd, unsigned rows, unsigned cols,
			      struct file **ret_slave, struct tty **ret_tty);
/* Saving and loading of a console, in an owner's fields(); NULL stays so. Loading: without a client. */
void console_fields(struct state *s, struct console **c);
/* Loaded: its thread starts. @hostfd (taken over) carries the terminal's bytes; -1: nobody looks. False: no
 * thread. */
bool console_revive(struct console *c, int hostfd);
struct tty *console_tty(const struct console *c);
/* References on it, for who isn't its session. */
struct console *console_get(struct console *c);
void console_put(struct console *c);
/* @hostfd (taken over) carries the terminal's bytes from now on, beginning with the last 64 KiB that it has output;
 * who sat there before is shut out. */
void console_attach(struct console *c, int hostfd);
/* Does somebody sit at it? */
bool console_attended(const struct console *c);
void console_resize(struct console *c, unsigned rows, unsigned cols);
/* The session is over: lets the last output out and closes. */
void console_finish(struct console *c);
/* Waits until the finished ones have let it out, or for CLOCK_MONOTONIC's @deadline_ns: a client that
 * doesn't read must not keep the sandbox. */
void console_drain(int64_t deadline_ns);

/* control_server.c: serves the control socket; returns when the container has stopped and its waiters
 * know. */
void control_serve(struct container *c);
/* The same for one that has joined a sandbox: returns when it has stopped and nobody asks any more. */
void control_serve_member(struct container *c);

#endif
