// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading the objects of a sandbox.
 *
 * Everything that the guest can observe is an object with a state_type. One function of the type, fields(),
 * names the object's fields one after another; it writes them when saving and reads them when loading, so
 * the two can't drift apart. Pointers to other objects are saved as object numbers; an object is saved once,
 * whoever refers to it, and the graph may have cycles.
 *
 * Saving: state_save() starts at the roots and works through a queue (no recursion). The sandbox is frozen
 * (sentry/kernel/freeze.h): every task is at the top of its loop, no service thread is inside, so no locks
 * are needed and none are taken.
 *
 * Loading happens in a sentry that has nothing yet, in three passes over all objects:
 *   alloc()   an empty object with its locks initialised; holds the load's own reference
 *   fields()  reads fields; pointers to other objects are valid, the objects may be empty still
 *   finish()  everything has its fields: insert into tables, compute what wasn't saved, start threads;
 *             in the order of the types' phases
 * Then the load's own references are dropped with put().
 * An image is hostile input. A field out of range, a wrong type behind a pointer, too much or too little
 * in a record: state_fail(), and the whole load is refused; the sentry then says why and exits, so
 * nobody has to undo a half-made load. No field may be trusted before it was checked: indices, counts,
 * enums, flags; finish() checks what relates objects with each other.
 *
 * Never saved: secrets that two branches must not share (RNG state, boot id, sequence secrets).
 *
 * Format, file layout and versions: docs/image-format.md. Type numbers are part of it: never reuse one.
 */
#ifndef SENTRY_STATE_STATE_H
#define SENTRY_STATE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct state;
struct mfile;

/* Blocks of numbers by area; new types go at the end of their block. */
enum state_type_id {
	STATE_NONE = 0,
	/* 1-49 state, kernel */
	STATE_KERNEL = 1,
	STATE_TASK,
	STATE_TGROUP,
	STATE_PID,
	STATE_PIDNS,
	STATE_USERNS,
	STATE_UTSNS,
	STATE_IPCNS,
	STATE_NETNS,
	STATE_CGROUPNS,
	STATE_TIMENS,
	STATE_NSPROXY,
	STATE_CRED,
	STATE_SIGHAND,
	STATE_SECCOMP,
	STATE_SYSV_SEM,
	STATE_SYSV_MSG,
	STATE_SYSV_SHM,
	STATE_SEM_UNDO,
	STATE_CONTAINER,
	STATE_SESSION,
	/* 50-69 mm */
	STATE_MFILE = 50,
	STATE_MM,
	STATE_SHMEM,
	/* 70-129 vfs and file systems */
	STATE_VFS = 70, /* what is there once: counters, file systems without mounts */
	STATE_MNTNS,
	STATE_MOUNT,
	STATE_SUPER_TMPFS,
	STATE_SUPER_GOFER,
	STATE_SUPER_PROC,
	STATE_SUPER_PFS,
	STATE_SUPER_DEVPTS,
	STATE_SUPER_MQUEUE,
	STATE_DENTRY,
	STATE_INODE_TMPFS,
	STATE_INODE_GOFER,
	STATE_INODE_PFS,
	STATE_INODE_DEVPTS,
	STATE_INODE_MQUEUE,
	STATE_INODE_MQROOT,
	STATE_INODE_PSEUDO,
	STATE_INODE_ANON,
	STATE_INODE_NSFS,
	STATE_INODE_HOSTFD,
	STATE_LOWER,
	STATE_FILE,
	STATE_FILES,
	STATE_FSCTX,
	STATE_TTY,
	STATE_EPOLL,
	/* 130-159 sockets */
	STATE_SOCK_UNIX = 130,
	STATE_SOCK_NETLINK,
	STATE_TYPE_END = 160
};

struct state_type {
	uint16_t id;       /* enum state_type_id */
	uint16_t version;  /* of what fields() writes; state_version() tells what is being read */
	const char *name;  /* for messages */
	void *(*alloc)(struct state *s);             /* loading; never NULL, or state_fail() */
	void (*fields)(struct state *s, void *obj);  /* both directions */
	void (*finish)(struct state *s, void *obj);  /* loading; may be NULL */
	void *(*get)(void *obj);                     /* one more reference; NULL: not counted */
	void (*put)(void *obj);
	/* finish() runs phase by phase, 0 first; within one in the order in which objects were met when
	 * saving (what refers comes before what is referred to). */
	uint8_t phase;
};

#define STATE_PHASES 8 /* 0 namespaces, credentials; 2 inodes, sockets; 3 dentries; 4 mounts, files;
			* 5 memory; 6 tasks; 7 what needs all of it (containers, sessions) */

/* A family of types behind one kind of pointer (inodes of all file systems). The pointer is the one to the
 * common part. */
struct state_class {
	const char *name;
	const struct state_type *(*type_of)(const void *obj); /* saving; NULL: can't be saved */
	const struct state_type *const *types;                /* loading: NULL-terminated list */
};

/* ---- what fields() may call ---- */

bool state_loading(const struct state *s);
/* The version of the record being read; when saving the type's own. */
unsigned state_version(const struct state *s);

void state_u8(struct state *s, uint8_t *v);
void state_u16(struct state *s, uint16_t *v);
void state_u32(struct state *s, uint32_t *v);
void state_u64(struct state *s, uint64_t *v);
void state_i32(struct state *s, int32_t *v);
void state_i64(struct state *s, int64_t *v);
void state_bool(struct state *s, bool *v);
/* Loading: anything outside [min, max] is refused. For enums, counts, indices: any integer type by way of a
 * local variable. */
void state_range_i64(struct state *s, int64_t *v, int64_t min, int64_t max);
/* A fixed number of bytes (structures of the guest's ABI, FP state). */
void state_bytes(struct state *s, void *buf, size_t len);
/* A NUL-terminated string in an array of @size. */
void state_str(struct state *s, char *buf, size_t size);
/* A heap string or NULL; when loading allocated with malloc, at most @max long. */
void state_heap_str(struct state *s, char **p, size_t max);
/* A heap buffer with its length; NULL and 0 stay so. At most @max. */
void state_blob(struct state *s, void **p, size_t *len, size_t max);
/* How many elements follow: writes @n, or reads a number that must not exceed @max. Returns it (0 once the
 * load has failed, so loops end). */
uint32_t state_count(struct state *s, uint32_t n, uint32_t max);

/* An owning pointer to an object of exactly this type (or NULL): takes a reference when loading. */
void state_ref(struct state *s, const struct state_type *type, void *pp);
/* A borrowed one: nothing is taken. What it points to must be owned by somebody else that is saved. */
void state_ptr(struct state *s, const struct state_type *type, void *pp);
/* The same for a family. */
void state_ref_in(struct state *s, const struct state_class *cls, void *pp);
void state_ptr_in(struct state *s, const struct state_class *cls, void *pp);
/* Borrowed, and only if it is saved for other reasons: else NULL after loading (back pointers, caches). */
void state_weak(struct state *s, const struct state_type *type, void *pp);
void state_weak_in(struct state *s, const struct state_class *cls, void *pp);

/* An instant of the guest's CLOCK_MONOTONIC in ns. Monotonic time goes on where it was, so deadlines are
 * plain numbers; DEADLINE_NONE included. */
void state_mono(struct state *s, int64_t *ns);

/* Loading: refuses the image. Saving: refuses to save, with what can't be saved and why ("process 12 (gdb)
 * is traced by ..."). Sticky; the first message is kept. */
void state_fail(struct state *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool state_ok(const struct state *s);

/* What a load is for: a branch gets fresh secrets, the same sandbox woken goes on as itself. */
enum state_purpose { STATE_WAKE, STATE_FORK };
enum state_purpose state_purpose(const struct state *s);

/* ---- memory: sentry/state/pages.h; saving and loading as a whole: sentry/state/image.h ---- */

/*
 * Every type. Each is defined where its objects are; the table of them is sentry/state/types.c, in which a
 * type that isn't linked in (unit tests) counts as unknown. To add one: a number above, a line here.
 */
#define STATE_TYPES(X)                                                                   \
	X(kernel) X(task) X(tgroup) X(pid) X(pidns) X(userns) X(utsns) X(ipcns) X(netns)     \
	X(cgroupns) X(timens) X(nsproxy) X(cred) X(sighand) X(seccomp) X(sysv_sem)           \
	X(sysv_msg) X(sysv_shm) X(sem_undo) X(container) X(session) X(mfile) X(mm) X(shmem)  \
	X(vfs) X(mntns) X(mount) X(super_tmpfs) X(super_gofer) X(super_proc) X(super_pfs)    \
	X(super_devpts) X(super_mqueue) X(dentry) X(inode_tmpfs) X(inode_gofer) X(inode_pfs) \
	X(inode_devpts) X(inode_mqueue) X(inode_mqroot) X(inode_pseudo) X(inode_anon)        \
	X(inode_nsfs) X(inode_hostfd) X(lower) X(file) X(files) X(fsctx) X(tty) X(epoll)     \
	X(sock_unix) X(sock_netlink)
#define STATE_DECLARE(name) extern const struct state_type state_##name __weak;
STATE_TYPES(STATE_DECLARE)

#endif
