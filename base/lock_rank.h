// SPDX-License-Identifier: Apache-2.0
/*
 * The global lock order: a thread that holds a mutex may only take one of a higher rank. Debug and
 * sanitizer builds check it at every lock (base/mutex.c). Two locks of the same rank may be held at
 * once only through mutex_lock_nested(), whose caller documents its own order (parent before child,
 * lower address first, ...).
 */
#ifndef BASE_LOCK_RANK_H
#define BASE_LOCK_RANK_H

enum lock_rank {
	RANK_NONE, /* unranked: test code only */

	/* outermost: process-wide structure */
	RANK_CONTROL,      /* control connections, container table */
	RANK_EXEC,         /* tgroup.exec_mu: one exec/clone/exit transition of a group at a time */
	RANK_FILE_POS,     /* file.pos_mu: held across a read or write (of /proc/mounts, too) */
	RANK_SEQ_FILE,     /* text of an open /proc or /sys file, held while it is made */
	RANK_VFS_RENAME,   /* super.rename_mu: serialises cross-directory renames */
	RANK_MNTNS,        /* mount tree of a namespace */
	RANK_SOCK_BIND,    /* unix socket name table */
	RANK_SOCK_GC,      /* unix sockets in flight (SCM_RIGHTS), their garbage collector */
	RANK_EPOLL_TREE,   /* nesting of epoll instances (EPOLL_CTL_ADD of an epoll) */
	RANK_EPOLL,        /* epoll.mu: interest list */
	RANK_TTY,          /* tty.mu: line discipline, pgrp/session of a tty */
	RANK_SOCK,         /* socket.mu */
	RANK_PIPE,         /* pipe.mu */
	RANK_INODE,        /* inode.mu: directory contents, size, attributes (parent before child) */
	RANK_DENTRY,       /* dcache: names, children, negative entries */
	RANK_FILE_LOCKS,   /* flock/POSIX/OFD lock lists of an inode */
	RANK_NOTIFY,       /* inotify marks and queues */
	RANK_FS,           /* a file system's own super block lock (gofer channel, tmpfs usage, ...) */

	RANK_FUTEX_PI,     /* owners of PI futexes: guest words are changed under it */

	/* address spaces: copyin/copyout may be called with anything above held */
	RANK_MM,           /* mm.mu: vmas and pmas */
	RANK_MM_SIDE,      /* who maps an object; pins of guest memory (sentry/mm/objmap.c, iter.c) */
	RANK_PLAT_AS,      /* platform's own address space state */
	RANK_INODE_PAGES,  /* page index of a tmpfs file or shm segment */
	RANK_LOWER,        /* open host files of an image's tree (overlay/lower_file.c) */
	RANK_GOFER_INODES, /* inode table of a gofer file system */
	RANK_MFILE,        /* allocator and chunk table of a memory file */
	RANK_GOFER,        /* channel to a gofer; memory files are made through it */

	/* process tree and signals; no guest memory, no blocking below here */
	RANK_FUTEX,        /* futex hash bucket */
	RANK_FDTABLE,      /* files.mu: descriptor table */
	RANK_FSCTX,        /* fsctx.mu: cwd, root, umask */
	RANK_CPUTIMER,     /* a group's timers on CPU time: callbacks send signals under it */
	RANK_TASKS,        /* kernel.tasks_mu: process tree, groups, sessions, pid tables ("tasklist") */
	RANK_SIGHAND,      /* sighand.mu: actions, pending queues, masks, group state */
	RANK_TIMER,        /* one timer's owner: POSIX timer, itimer, timerfd */
	RANK_TIMER_QUEUE,  /* queue of the timer thread */
	RANK_TASK,         /* task.mu: fields read by others (comm, cred pointer, rlimits) */
	RANK_NS,           /* small namespace objects: uts, ipc ids, pid maps */
	RANK_WAITQ,        /* waitq.mu: wake callbacks run under it */
	RANK_EPOLL_READY,  /* epoll.ready_mu: taken by wake callbacks */
	RANK_FREEZE,       /* who is inside the sandbox (sentry/kernel/freeze.c) */
	RANK_PLATFORM,     /* pool of stubs, host process table */
	RANK_LOG,
	RANK_COUNT
};

#endif
