// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks and thread groups.
 *
 * A task is a guest thread; a thread group is a process. Each task has a sentry thread of its own, which
 * loops in task_main(): act on pending signals and stops, run the guest through the platform, serve
 * what it did. A call that blocks blocks this thread (sentry/kernel/waitq.h).
 *
 * Life of a task: task_create (clone) -> task_start -> task_main ... -> task_exit: drops mm, files and
 * so on, becomes a zombie, tells tracer and parent -> task_release (reaped, or at once for threads and
 * ignored children) -> last put frees it.
 *
 * Field key:
 *   (t) only the task's own thread writes; others read only where said
 *   (T) kernel.tasks_mu       (s) sighand.mu      (m) task.mu     (a) atomic     (c) const after start
 */
#ifndef SENTRY_KERNEL_TASK_H
#define SENTRY_KERNEL_TASK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/gaddr.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "platform/platform.h"
#include "sentry/kernel/cred.h"
#include "sentry/kernel/pid.h"
#include "sentry/kernel/signal.h"
#include "sentry/kernel/waitq.h"

struct mm;
struct files;
struct fsctx;
struct nsproxy;
struct tty;
struct file;
struct ptrace_link;
struct sem_undo_list;
struct seccomp_filter;
struct posix_timers;
struct cputimers;
struct container;

#define TASK_COMM_LEN 16
#define TASK_STACK_SIZE (256 * 1024) /* sentry thread's own stack */

enum task_state {
	TASK_NEW,
	TASK_RUNNING,  /* guest code, or a handler that isn't blocked */
	TASK_SLEEPING, /* in task_sleep(), interruptible */
	TASK_STOPPED,  /* job control */
	TASK_TRACED,   /* stopped for a tracer */
	TASK_ZOMBIE,
	TASK_DEAD,
};

/* How an interrupted call goes on (sys_restart_syscall). */
enum restart_kind {
	RESTART_NONE,
	RESTART_NANOSLEEP,
	RESTART_FUTEX,
	RESTART_POLL,
	RESTART_KIND_COUNT
};

struct restart_block {
	enum restart_kind kind;
	union {
		struct {
			int clock;
			int64_t deadline_ns;
			gaddr_t rem;
		} nanosleep;
		struct {
			gaddr_t uaddr;
			uint32_t val, bitset;
			int op;
			int64_t deadline_ns;
		} futex;
		struct {
			gaddr_t fds;
			uint64_t nfds;
			int64_t deadline_ns;
		} poll;
	};
};

struct rlimit_g {
	uint64_t cur, max;
};
#define RLIM_INFINITY_G (~0ULL)
#define RLIM_COUNT 16

struct task_usage { /* what getrusage and wait4 report; ns and counts */
	uint64_t utime_ns, stime_ns;
	uint64_t minflt, majflt, inblock, oublock, nvcsw, nivcsw;
	uint64_t maxrss_kb;
};

/* task.answers: to be told anew (other credentials, another context); none; those of keep_answers(). */
enum { ANSWERS_STALE, ANSWERS_NONE, ANSWERS_KEPT };

struct task {
	struct ref ref;
	struct mutex mu; /* RANK_TASK */

	struct pid *pid;             /* (c) thread id; reference */
	struct tgroup *tg;           /* (c) reference */
	struct list tg_node;         /* (T) in tg->threads */
	_Atomic int state;           /* (a) enum task_state */
	char comm[TASK_COMM_LEN];    /* (m) */
	uint64_t start_ns;           /* (c) CLOCK_BOOTTIME */
	pthread_t thread;

	/* guest side */
	struct plat_ctx *ctx;        /* (t) */
	struct regs regs;            /* (t) others only while stopped */
	struct mm *mm;               /* (t) writes under (m); NULL after exit. Others: task_mm_get() */
	uint64_t fault_seq;          /* (t) scratch of the fault handler */

	/* what clone shares or copies; writes under (m), others take references under it */
	struct files *files;
	struct fsctx *fs;
	struct nsproxy *ns;
	struct cred *cred;

	/* signals */
	struct sighand *sighand;     /* (c) until exec/exit: (T) */
	struct sigpending pending;   /* (s) */
	sigset_g blocked;            /* (s) written by own thread only */
	sigset_g saved_blocked;      /* (t) see signal_set_temp_mask */
	bool has_saved_blocked;      /* (t) */
	struct l_stack altstack;     /* (t) */
	_Atomic bool sigpending;     /* (a) something for signal_deliver() to look at */
	_Atomic bool interrupted;    /* (a) task_interrupt(): leave the guest and sleeps */
	bool stop_parked;            /* (s) counted in tg->stopped_threads */
	struct {                     /* (t) of the last fault, for the signal frame */
		uint64_t err, trapno, cr2;
	} trap;

	/* sleeping */
	_Atomic uint32_t park;       /* futex word of task_sleep() */
	uint32_t park_spin;          /* (t) how long task_sleep() spins before it sleeps; adapts */

	/* thread life */
	gaddr_t clear_child_tid;     /* (t) */
	gaddr_t robust_list;         /* (t) */
	uint64_t robust_len;
	int exit_code;               /* (T) wait status form, set at exit */
	int exit_signal;             /* (c) to the parent; -1 for non-leader threads */
	struct task *vfork_waiter;   /* (T) task that waits until we exec or exit; see task_vfork_done */
	_Atomic bool vfork_done;
	_Atomic bool exiting;        /* (a) thread must leave task_main's loop */
	bool doomed;                 /* (m) killed, and mm knows: task_doom() */

	/* tracing: kernel/ptrace.c. All (T) */
	struct task *tracer;         /* borrowed; tracer's exit detaches */
	struct list tracees;         /* of task.tracee_node */
	struct list tracee_node;
	struct ptrace_state *ptrace; /* NULL unless traced */
	int ptrace_resume_sig;       /* (T) what the tracer resumed or detached it with */

	/* syscall being served */
	bool in_syscall;
	long sysno;
	struct restart_block restart;
	struct {                     /* kernel/freeze.c */
		_Atomic bool asked;  /* (a) a freeze has interrupted the task since it last parked */
		bool redo;           /* (t) the call about to be made is one that a freeze has ended */
		int64_t deadline_ns; /* (t) of that call; see task_call_deadline() */
		size_t progress;     /* (t) bytes that it had moved; see task_call_progress() */
		_Atomic bool counted; /* (a) see freeze_hand_over() */
		_Atomic bool want_fp; /* (a) the freezer waits for the task to fill in @fp */
		struct fpstate *fp;  /* (t) while frozen: FP state; others read it then */
	} freeze;
	pid_t vfork_nr;              /* (t) not 0: the call waits for this child, which shares our memory */
	struct ptrace_rejoin *rejoin; /* (t) from an image, and stopped for a tracer; heap */
	bool loaded;                 /* (t) from an image: goes on in the middle, see task_main() */
	bool need_spare;             /* (a load's lock) no host thread was asked for yet */

	/* accounting and attributes */
	struct task_usage usage;     /* (t) others read racily */
	int nice;                    /* (m) */
	int sched_policy, sched_prio;
	bool sched_reset_on_fork;    /* (m) SCHED_RESET_ON_FORK */
	uint64_t cpumask;            /* (m) of cpus shown, up to 64; all ones: not bound */
	int mempolicy;               /* (t) set_mempolicy: MPOL_* mode and flags; inherited */
	uint64_t timer_slack_ns, timer_slack_default_ns;
	bool no_new_privs;           /* (t) */
	int pdeath_signal;           /* (t) */
	uint32_t personality;
	uint32_t ioprio;
	struct seccomp_filter *seccomp; /* (t) guest's own filters */
	int seccomp_mode;
	gaddr_t rseq;
	uint32_t rseq_len, rseq_sig;
	struct sem_undo_list *sem_undo; /* sysv semaphores */

	/* kernel/task_*.c only */
	_Atomic bool in_guest;       /* (a) about to be, or in, ctx_switch(); see task_interrupt() */
	uint8_t answers;             /* (t) ANSWERS_*: which calls the platform answers itself */
	struct fpstate *start_fp;    /* (t) FP state to begin with; NULL: fresh */
	gaddr_t set_child_tid;       /* (t) CLONE_CHILD_SETTID, written by the new thread itself */
	clockid_t host_cpu_clock;    /* (m) CPU clock of the sentry thread; valid with host_clock_ok */
	bool host_clock_ok;          /* (m) */
	uint64_t utime_base_ns;      /* (m) of contexts that exec has left behind */
	uint64_t stime_base_ns;      /* (m) before the image that we were loaded from */
	struct list all_node;        /* (T) in kernel.all_tasks */
	_Atomic uint32_t kill_word;  /* (a) futex word of task_wait_killable() */
	_Atomic bool kill_waiting;   /* (a) the task is in there; task_interrupt() wakes it, too */
	bool killed_by_exec;         /* (T) a thread that its sibling's exec removes: no report */
};

/* A process. */
struct tgroup {
	struct ref ref;
	struct pid *pid;               /* (c) tgid; reference */
	struct list threads;           /* of task.tg_node: writers hold tasks_mu AND sighand.mu, so that
					* either one is enough to walk it (signals hold only the latter) */
	unsigned nthreads;             /* (T) live ones */
	struct task *leader;           /* (T) reference */
	struct tgroup *parent;         /* (T) reference; NULL for init */
	struct task *parent_task;      /* (T) thread that forked us (pdeath, __WNOTHREAD); may be NULL */
	struct list children;          /* (T) of tgroup.sibling */
	struct list sibling;
	struct pid *pgrp, *session;    /* (T) references */
	struct list pgrp_node;         /* (T) in pgrp->pgrp */
	struct list session_node;      /* (T) in session->session */
	struct tty *tty;               /* (T) controlling terminal; reference */
	struct container *container;   /* (c) which container (OCI) it belongs to */

	struct sighand *sighand;       /* (s) same as each thread's; borrowed. Set at creation, replaced by
					* signal_exec(). Sighands are type-stable: see signal_lock() */
	bool init_killable;            /* (s) pid 1 faulted: no longer protected */
	struct sigpending pending;     /* (s) shared queue */
	struct waitq child_wq;         /* wait4: children changed state */
	struct waitq sig_wq;           /* signalfd: signals arrived for the group or a thread of it */

	/* job control: (s) */
	bool group_stop;               /* stopped, or stopping: threads go to TASK_STOPPED */
	bool stop_reported;            /* parent has waited for the current stop */
	bool continued;                /* WCONTINUED report pending */
	int stop_signal;
	unsigned stopped_threads;
	bool stop_complete;            /* every live thread is parked: what WUNTRACED looks at */
	uint8_t notify;                /* parent is still to be told: SIGNAL_NOTIFY_* of signal.h */

	/* exit: (s) for group_exit; (T) for the rest */
	bool group_exit;
	int group_exit_code;           /* wait status form */
	struct task *exec_task;        /* thread that is killing the others for exec */
	struct mutex exec_mu;
	struct waitq exec_wq;
	bool zombie;                   /* leader and all threads gone, waiting to be reaped */

	struct rlimit_g rlim[RLIM_COUNT]; /* (rlim_mu) */
	struct mutex rlim_mu;          /* RANK_TASK */
	struct task_usage dead_usage;  /* (T) of exited threads */
	struct task_usage child_usage; /* (T) of reaped children */
	struct posix_timers *timers;   /* kernel/posix_timer.c */
	struct itimers *itimers;       /* kernel/itimer.c */
	struct cputimers *_Atomic cputimers; /* time/cputimer.c: timers on CPU time */
	bool child_subreaper;          /* (T) */
	int oom_score_adj;
	bool did_exec;                 /* setpgid refuses after exec */
	unsigned nlive_threads;        /* (T) threads that haven't begun to exit */
	bool released;                 /* (T) reaped: out of all tables */
	struct pid *tty_old_pgrp;      /* (T) reserved for devpts: foreground group when the tty went */
};

struct task *task_get(struct task *t);
void task_put(struct task *t);
struct tgroup *tgroup_get(struct tgroup *tg);
void tgroup_put(struct tgroup *tg);

/* The task of the calling sentry thread, NULL on service threads. */
struct task *current_task(void);

/* Numbers as the task's own pid namespace shows them. */
pid_t task_tid(struct task *t);
pid_t task_tgid(struct task *t);
/* As @viewer's namespace shows them; 0 when invisible. */
pid_t task_tid_for(struct task *t, struct task *viewer);
pid_t tgroup_pid_for(struct tgroup *tg, struct task *viewer);
struct pidns *task_pidns(struct task *t);
/* By number in @viewer's namespace: reference or NULL. Zombies included. */
struct task *task_find(struct task *viewer, pid_t tid);
struct tgroup *tgroup_find(struct task *viewer, pid_t pid);

/* References to another task's parts: NULL when it has exited. */
struct mm *task_mm_get(struct task *t);
struct files *task_files_get(struct task *t);
struct fsctx *task_fs_get(struct task *t);
struct nsproxy *task_ns_get(struct task *t);
void task_get_comm(struct task *t, char comm[TASK_COMM_LEN]);
void task_set_comm(struct task *t, const char *comm);

/* rlimit of the caller's (or any) group, current soft value. */
uint64_t task_rlimit(struct task *t, int resource);
void tgroup_get_rlimit(struct tgroup *tg, int resource, struct rlimit_g *ret);

/* CPU times and counts up to now: of a thread, and of a whole group (its dead threads included). */
void task_usage_get(struct task *t, struct task_usage *ret);
void tgroup_usage_get(struct tgroup *tg, struct task_usage *ret);
void task_usage_add(struct task_usage *to, const struct task_usage *from);

/* Makes @t leave guest code or task_sleep() soon, to look at its flags. Any thread. */
void task_interrupt(struct task *t);
/*
 * @t runs no guest code any more, as it is being killed. When that is so for all who use its memory, their host
 * process is killed, whether it still listens or not. Any thread; locks: anything above RANK_TASK. The other one:
 * @t leaves its memory, with t->mu held.
 */
void task_doom(struct task *t);
void task_undoom_locked(struct task *t);

/* For who changes what task_wait_killable() waits for (vfork, trace stops). Any lock. */
void task_wake_killable(struct task *t);

/* ---- life cycle: kernel/task_clone.c, task_exec.c, task_exit.c, task_run.c ---- */

struct clone_args {
	uint64_t flags; /* CLONE_*; exit signal not included */
	int exit_signal;
	gaddr_t stack;
	uint64_t stack_size;
	gaddr_t parent_tid, child_tid, pidfd;
	uint64_t tls;
	const pid_t *set_tid;
	unsigned set_tid_size;
	int cgroup_fd;
};
/* clone(2): pid of the child as the caller sees it, or -errno. */
long task_clone(struct task *t, const struct clone_args *a);

struct exec_args {
	struct file *file;   /* already opened for exec; reference kept by the caller */
	const char *path;    /* for comm, AT_EXECFN */
	char **argv, **envp; /* kernel copies, NULL terminated */
};
/* Replaces the program. 0: new regs are in place; the handler must return without setting rax.
 * -errno: nothing changed; after the point of no return errors kill the process. */
long task_exec(struct task *t, const struct exec_args *a);

/* The first process of a container or an exec'd one ("holdfast exec"), in @c's root namespaces.
 * The task isn't started. */
struct spawn_args {
	struct container *container;
	char **argv, **envp;
	const char *program;        /* its path, if that is not argv[0] */
	const char *cwd;
	struct cred *cred;          /* reference taken over */
	struct files *files;        /* reference taken over */
	struct fsctx *fs;           /* reference taken over */
	struct nsproxy *ns;         /* reference taken over */
	struct tty *tty;            /* becomes the controlling terminal if not NULL */
	bool new_pidns_init;        /* becomes pid 1 of ns->pid */
	bool no_new_privs;
	int umask;
	const struct rlimit_g *rlim; /* RLIM_COUNT entries or NULL */
	int oom_score_adj;
	struct seccomp_filter *seccomp; /* borrowed; NULL: none */
	uint32_t personality, ioprio;
	int sched_policy, sched_prio, nice;
	bool sched_reset_on_fork;
	uint64_t cpus;              /* mask; 0: all */
};
/* seccomp.c: a program from outside (a container's profile). A reference, or NULL when Linux wouldn't
 * take it. */
struct sock_filter;
struct seccomp_filter *seccomp_create(const struct sock_filter *insn, unsigned len);
/* err_ptr(-ENOENT, -EACCES, -ENOEXEC ...) when the program can't be loaded. Reference to the leader. */
struct task *task_spawn(const struct spawn_args *a);
void task_start(struct task *t);

/* exit(2) and exit_group(2) of the caller: set flags; the loop does the rest after the handler returns. */
void task_exit_thread(struct task *t, int status);     /* status: wait form (code << 8) */
void task_group_exit(struct task *t, int status);      /* wait form */

/* The sentry thread's loop. */
void *task_main(void *task);

/* Called for each system call of the guest, set by syscalls/ at start. Returns with regs->rax set. */
extern void (*task_syscall_entry)(struct task *t);

/* Waiting for exit from outside (control connection): waits until the group is a zombie, reaps it if it
 * has no parent. Returns the wait status. Called from a service thread. */
int tgroup_wait_exit(struct tgroup *tg);

#endif
