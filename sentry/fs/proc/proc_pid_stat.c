// SPDX-License-Identifier: Apache-2.0
/*
 * stat, statm, status, limits, io, sched of a process or thread (man 5 proc_pid_stat and so on).
 *
 * The directory of a process sums its threads up, that of a thread (below task/) shows the one. Addresses
 * in stat are shown only to who may ptrace it, as in Linux; kernel addresses and scheduler
 * internals that have no counterpart here are 0.
 */
#include <string.h>

#include "sentry/fs/devpts/tty.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/mm/mm.h"
#include "sentry/time/clock.h"

#define USER_HZ 100

/* Below /proc/PID num is positive, below /proc/PID/task/TID negative. */
static bool is_process_dir(const struct pfs_inode *pi)
{
	return pi->num > 0;
}

static char state_char(const struct task *t)
{
	switch ((enum task_state)t->state) {
	case TASK_NEW:
	case TASK_RUNNING:
		return 'R';
	case TASK_SLEEPING:
		return 'S';
	case TASK_STOPPED:
		return 'T';
	case TASK_TRACED:
		return 't';
	case TASK_ZOMBIE:
		return 'Z';
	case TASK_DEAD:
		return 'X';
	}
	return 'R';
}

static const char *state_name(char c)
{
	switch (c) {
	case 'R':
		return "R (running)";
	case 'S':
		return "S (sleeping)";
	case 'T':
		return "T (stopped)";
	case 't':
		return "t (tracing stop)";
	case 'Z':
		return "Z (zombie)";
	default:
		return "X (dead)";
	}
}

static long ticks(uint64_t ns)
{
	return (long)(ns / (NSEC_PER_SEC / USER_HZ));
}

struct proc_ids {
	pid_t ppid, pgrp, session, tpgid, tracer;
	dev_t tty;
	unsigned nthreads;
	struct task_usage child;
	int exit_code;
};

static void get_ids(struct pfs_inode *pi, struct task *t, struct proc_ids *r)
{
	struct pidns *ns = proc_pidns(pi);
	struct tgroup *tg = t->tg;
	struct pid *fg = NULL;
	AUTO_LOCK(&kernel.tasks_mu);

	memset(r, 0, sizeof(*r));
	if (tg->parent)
		r->ppid = pid_nr(tg->parent->pid, ns);
	if (tg->pgrp)
		r->pgrp = pid_nr(tg->pgrp, ns);
	if (tg->session)
		r->session = pid_nr(tg->session, ns);
	r->tty = tty_stat_locked(tg, &fg);
	r->tpgid = fg ? pid_nr(fg, ns) : -1;
	if (t->tracer)
		r->tracer = pid_nr(t->tracer->pid, ns);
	r->nthreads = tg->nthreads ? tg->nthreads : 1;
	r->child = tg->child_usage;
	r->exit_code = t->exit_code;
}

struct sigsets {
	sigset_g pending, shared, blocked, ignored, caught;
};

static void get_sigsets(struct task *t, struct sigsets *r)
{
	struct sighand *sh;
	AUTO_LOCK(&kernel.tasks_mu);

	memset(r, 0, sizeof(*r));
	sh = t->sighand;
	if (!sh)
		return;
	mutex_lock(&sh->mu);
	r->pending = t->pending.set;
	r->shared = t->tg->pending.set;
	r->blocked = t->blocked;
	for (int i = 0; i < NSIG_GUEST; i++) {
		if (sh->action[i].handler == 1)
			r->ignored |= SIGBIT(i + 1);
		else if (sh->action[i].handler != 0)
			r->caught |= SIGBIT(i + 1);
	}
	mutex_unlock(&sh->mu);
}

static void get_usage(struct pfs_inode *pi, struct task *t, struct task_usage *u)
{
	if (is_process_dir(pi))
		tgroup_usage_get(t->tg, u);
	else
		task_usage_get(t, u);
}

static bool get_mm(struct task *t, struct mm_stat *st, struct mm_layout *l)
{
	struct mm *mm = task_mm_get(t);

	memset(st, 0, sizeof(*st));
	memset(l, 0, sizeof(*l));
	if (!mm)
		return false;
	mm_stat(mm, st);
	mm_get_layout(mm, l);
	mm_put(mm);
	return true;
}

int proc_show_stat(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct task *me = current_task();
	char comm[TASK_COMM_LEN];
	struct task_usage u;
	struct proc_ids id;
	struct mm_layout l;
	struct mm_stat st;
	struct sigsets ss;
	bool see;

	if (!t)
		return -ESRCH;
	see = !me || me->tg == t->tg || task_may_access(me, t, false) == 0;
	task_get_comm(t, comm);
	get_ids(pi, t, &id);
	get_usage(pi, t, &u);
	get_mm(t, &st, &l);
	get_sigsets(t, &ss);
	if (!see)
		memset(&l, 0, sizeof(l));
	seq_printf(out, "%d (%s) %c %d %d %d %d %d %u %lu %lu %lu %lu %ld %ld %ld %ld %d %d %u 0 %ld ",
		   pid_nr(pi->ctx, proc_pidns(pi)), comm, state_char(t), id.ppid, id.pgrp,
		   id.session, (int)id.tty, id.tpgid, 0x400000u, (unsigned long)u.minflt,
		   (unsigned long)id.child.minflt, (unsigned long)u.majflt,
		   (unsigned long)id.child.majflt, ticks(u.utime_ns), ticks(u.stime_ns),
		   ticks(id.child.utime_ns), ticks(id.child.stime_ns), 20 + t->nice, t->nice,
		   id.nthreads, ticks(t->start_ns));
	seq_printf(out, "%lu %lu %lu %lu %lu %lu 0 0 %lu %lu %lu %lu 0 0 0 %d %d %d %d 0 0 0 ",
		   (unsigned long)st.total_vm, (unsigned long)(st.rss / 4096), ~0UL,
		   gaddr_u64(l.start_code), gaddr_u64(l.end_code), gaddr_u64(l.start_stack),
		   (unsigned long)(ss.pending & 0x7fffffff), (unsigned long)(ss.blocked & 0x7fffffff),
		   (unsigned long)(ss.ignored & 0x7fffffff), (unsigned long)(ss.caught & 0x7fffffff),
		   t->exit_signal, 0, t->sched_prio, t->sched_policy);
	seq_printf(out, "%lu %lu %lu %lu %lu %lu %lu %d\n", gaddr_u64(l.start_data),
		   gaddr_u64(l.end_data), gaddr_u64(l.start_brk), gaddr_u64(l.arg_start),
		   gaddr_u64(l.arg_end), gaddr_u64(l.env_start), gaddr_u64(l.env_end),
		   see ? id.exit_code : 0);
	return 0;
}

int proc_show_statm(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct mm_layout l;
	struct mm_stat st;

	if (!t)
		return -ESRCH;
	get_mm(t, &st, &l);
	seq_printf(out, "%lu %lu %lu %lu 0 %lu 0\n", (unsigned long)(st.total_vm / 4096),
		   (unsigned long)(st.rss / 4096),
		   (unsigned long)((st.rss_file + st.rss_shmem) / 4096),
		   (unsigned long)((gaddr_u64(l.end_code) - gaddr_u64(l.start_code) + 4095) / 4096),
		   (unsigned long)((st.data + st.stack) / 4096));
	return 0;
}

static void show_nr_line(struct seqbuf *out, const char *name, const struct pid *p,
			 const struct pidns *ns)
{
	seq_printf(out, "%s", name);
	for (int i = p ? ns->level : 1; p && i <= p->level; i++)
		seq_printf(out, "\t%d", p->nr[i]);
	seq_putc(out, '\n');
}

static void show_status_ids(struct pfs_inode *pi, struct task *t, struct seqbuf *out)
{
	struct pidns *ns = proc_pidns(pi);
	AUTO_LOCK(&kernel.tasks_mu);

	show_nr_line(out, "NStgid:", t->tg->pid, ns);
	show_nr_line(out, "NSpid:", t->pid, ns);
	show_nr_line(out, "NSpgid:", t->tg->pgrp, ns);
	show_nr_line(out, "NSsid:", t->tg->session, ns);
}

static void show_status_cred(struct task *t, struct seqbuf *out)
{
	struct task *me = current_task();
	struct cred *c = task_cred_get(t);
	const struct userns *ns = me ? task_cred(me)->userns : &init_userns;

	seq_printf(out, "Uid:\t%u\t%u\t%u\t%u\n", userns_show_uid(ns, c->uid),
		   userns_show_uid(ns, c->euid), userns_show_uid(ns, c->suid),
		   userns_show_uid(ns, c->fsuid));
	seq_printf(out, "Gid:\t%u\t%u\t%u\t%u\n", userns_show_gid(ns, c->gid),
		   userns_show_gid(ns, c->egid), userns_show_gid(ns, c->sgid),
		   userns_show_gid(ns, c->fsgid));
	cred_put(c);
}

static void show_status_groups(struct task *t, struct seqbuf *out)
{
	struct task *me = current_task();
	struct cred *c = task_cred_get(t);
	const struct userns *ns = me ? task_cred(me)->userns : &init_userns;

	seq_printf(out, "Groups:\t");
	for (unsigned i = 0; i < c->ngroups; i++)
		seq_printf(out, "%u ", userns_show_gid(ns, c->groups[i]));
	seq_putc(out, '\n');
	cred_put(c);
}

static void kb_line(struct seqbuf *out, const char *name, uint64_t bytes)
{
	seq_printf(out, "%s\t%8lu kB\n", name, (unsigned long)(bytes / 1024));
}

static void show_status_mm(struct task *t, struct seqbuf *out)
{
	struct mm_layout l;
	struct mm_stat st;

	if (!get_mm(t, &st, &l))
		return;
	kb_line(out, "VmPeak:", st.peak_vm);
	kb_line(out, "VmSize:", st.total_vm);
	kb_line(out, "VmLck:", st.locked);
	kb_line(out, "VmPin:", 0);
	kb_line(out, "VmHWM:", st.peak_rss);
	kb_line(out, "VmRSS:", st.rss);
	kb_line(out, "RssAnon:", st.rss_anon);
	kb_line(out, "RssFile:", st.rss_file);
	kb_line(out, "RssShmem:", st.rss_shmem);
	kb_line(out, "VmData:", st.data);
	kb_line(out, "VmStk:", st.stack);
	kb_line(out, "VmExe:", gaddr_u64(l.end_code) - gaddr_u64(l.start_code));
	kb_line(out, "VmLib:", st.exec);
	kb_line(out, "VmPTE:", 0);
	kb_line(out, "VmSwap:", 0);
	kb_line(out, "HugetlbPages:", 0);
	seq_printf(out, "CoreDumping:\t0\nTHP_enabled:\t0\n");
}

static void show_status_sigs(struct task *t, unsigned nthreads, struct seqbuf *out)
{
	struct rlimit_g lim;
	struct sigsets ss;

	get_sigsets(t, &ss);
	tgroup_get_rlimit(t->tg, RLIMIT_SIGPENDING, &lim);
	seq_printf(out, "Threads:\t%u\nSigQ:\t%u/%lu\nSigPnd:\t%016lx\nShdPnd:\t%016lx\n"
			"SigBlk:\t%016lx\nSigIgn:\t%016lx\nSigCgt:\t%016lx\n",
		   nthreads, signal_queued_count(t), (unsigned long)lim.cur, (unsigned long)ss.pending,
		   (unsigned long)ss.shared, (unsigned long)ss.blocked, (unsigned long)ss.ignored,
		   (unsigned long)ss.caught);
}

static void show_cpus(struct task *t, struct seqbuf *out)
{
	unsigned n = kernel.limits.ncpus ? kernel.limits.ncpus : 1;
	uint64_t mask = t->cpumask;
	bool first = true;

	if (n < 64)
		mask &= (1ULL << n) - 1;
	if (!mask) /* `update` took its CPUs away */
		mask = n < 64 ? (1ULL << n) - 1 : ~0ULL;
	if (n > 32)
		seq_printf(out, "Cpus_allowed:\t%08x,%08x\n", (unsigned)(mask >> 32), (unsigned)mask);
	else
		seq_printf(out, "Cpus_allowed:\t%x\n", (unsigned)mask);
	seq_printf(out, "Cpus_allowed_list:\t");
	for (unsigned i = 0; i < 64; i++) {
		unsigned j = i;

		if (!(mask >> i & 1))
			continue;
		while (j < 63 && (mask >> (j + 1) & 1))
			j++;
		seq_printf(out, first ? "%u" : ",%u", i);
		if (j > i)
			seq_printf(out, "-%u", j);
		first = false;
		i = j;
	}
	seq_printf(out, "\nMems_allowed:\t1\nMems_allowed_list:\t0\n");
}

int proc_show_status(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct pidns *ns = proc_pidns(pi);
	char comm[TASK_COMM_LEN];
	struct task_usage u;
	struct proc_ids id;
	struct fsctx *fs;
	struct files *files;
	struct cred *c;

	if (!t)
		return -ESRCH;
	task_get_comm(t, comm);
	get_ids(pi, t, &id);
	seq_printf(out, "Name:\t");
	seq_escape(out, comm, "\n\\");
	seq_putc(out, '\n');
	fs = task_fs_get(t);
	if (fs) {
		seq_printf(out, "Umask:\t%04o\n", fsctx_umask(fs));
		fsctx_put(fs);
	}
	seq_printf(out, "State:\t%s\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t%d\n",
		   state_name(state_char(t)), pid_nr(t->tg->pid, ns), pid_nr(t->pid, ns), id.ppid,
		   id.tracer);
	show_status_cred(t, out);
	files = task_files_get(t);
	seq_printf(out, "FDSize:\t%u\n", files ? (files_count(files) + 63) / 64 * 64 : 0);
	if (files)
		files_put(files);
	show_status_groups(t, out);
	show_status_ids(pi, t, out);
	seq_printf(out, "Kthread:\t0\n");
	show_status_mm(t, out);
	show_status_sigs(t, id.nthreads, out);
	c = task_cred_get(t);
	seq_printf(out, "CapInh:\t%016lx\nCapPrm:\t%016lx\nCapEff:\t%016lx\nCapBnd:\t%016lx\n"
			"CapAmb:\t%016lx\n",
		   c->inheritable, c->permitted, c->effective, c->bounding, c->ambient);
	cred_put(c);
	seq_printf(out, "NoNewPrivs:\t%d\nSeccomp:\t%d\nSeccomp_filters:\t%d\n"
			"Speculation_Store_Bypass:\tvulnerable\n"
			"SpeculationIndirectBranch:\talways enabled\n",
		   t->no_new_privs, t->seccomp_mode, t->seccomp ? 1 : 0);
	show_cpus(t, out);
	task_usage_get(t, &u);
	seq_printf(out, "voluntary_ctxt_switches:\t%lu\nnonvoluntary_ctxt_switches:\t%lu\n",
		   (unsigned long)u.nvcsw, (unsigned long)u.nivcsw);
	return 0;
}

static const struct {
	const char *name, *unit;
} limit_names[RLIM_COUNT] = {
	[RLIMIT_CPU] = { "Max cpu time", "seconds" },
	[RLIMIT_FSIZE] = { "Max file size", "bytes" },
	[RLIMIT_DATA] = { "Max data size", "bytes" },
	[RLIMIT_STACK] = { "Max stack size", "bytes" },
	[RLIMIT_CORE] = { "Max core file size", "bytes" },
	[RLIMIT_RSS] = { "Max resident set", "bytes" },
	[RLIMIT_NPROC] = { "Max processes", "processes" },
	[RLIMIT_NOFILE] = { "Max open files", "files" },
	[RLIMIT_MEMLOCK] = { "Max locked memory", "bytes" },
	[RLIMIT_AS] = { "Max address space", "bytes" },
	[RLIMIT_LOCKS] = { "Max file locks", "locks" },
	[RLIMIT_SIGPENDING] = { "Max pending signals", "signals" },
	[RLIMIT_MSGQUEUE] = { "Max msgqueue size", "bytes" },
	[RLIMIT_NICE] = { "Max nice priority", NULL },
	[RLIMIT_RTPRIO] = { "Max realtime priority", NULL },
	[RLIMIT_RTTIME] = { "Max realtime timeout", "us" },
};

static void show_limit(struct seqbuf *out, uint64_t v)
{
	if (v == RLIM_INFINITY_G)
		seq_printf(out, "%-20s ", "unlimited");
	else
		seq_printf(out, "%-20lu ", (unsigned long)v);
}

int proc_show_limits(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);

	if (!t)
		return -ESRCH;
	seq_printf(out, "%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit", "Units");
	for (int i = 0; i < RLIM_COUNT; i++) {
		struct rlimit_g lim;

		tgroup_get_rlimit(t->tg, i, &lim);
		seq_printf(out, "%-25s ", limit_names[i].name);
		show_limit(out, lim.cur);
		show_limit(out, lim.max);
		if (limit_names[i].unit)
			seq_printf(out, "%-10s\n", limit_names[i].unit);
		else
			seq_putc(out, '\n');
	}
	return 0;
}

int proc_show_io(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task_access(pi, false);
	struct task_usage u;

	if (is_err(t))
		return (int)ptr_err(t);
	get_usage(pi, t, &u);
	seq_printf(out, "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: %lu\n"
			"write_bytes: %lu\ncancelled_write_bytes: 0\n",
		   (unsigned long)u.inblock * 512, (unsigned long)u.oublock * 512);
	return 0;
}

int proc_show_schedstat(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct task_usage u;

	if (!t)
		return -ESRCH;
	task_usage_get(t, &u);
	seq_printf(out, "%lu 0 %lu\n", (unsigned long)(u.utime_ns + u.stime_ns),
		   (unsigned long)(u.nvcsw + u.nivcsw));
	return 0;
}

int proc_show_sched(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	char comm[TASK_COMM_LEN];
	struct task_usage u;

	if (!t)
		return -ESRCH;
	task_get_comm(t, comm);
	task_usage_get(t, &u);
	seq_printf(out, "%s (%d, #threads: %u)\n", comm, pid_nr(t->pid, proc_pidns(pi)),
		   t->tg->nthreads);
	seq_printf(out, "-------------------------------------------------------------------\n");
	seq_printf(out, "%-45s:%21lu.%06lu\n", "se.sum_exec_runtime",
		   (unsigned long)((u.utime_ns + u.stime_ns) / 1000000),
		   (unsigned long)((u.utime_ns + u.stime_ns) % 1000000));
	seq_printf(out, "%-45s:%21lu\n%-45s:%21lu\n", "nr_voluntary_switches",
		   (unsigned long)u.nvcsw, "nr_involuntary_switches", (unsigned long)u.nivcsw);
	seq_printf(out, "%-45s:%21d\n%-45s:%21d\n", "policy", t->sched_policy, "prio", 120 + t->nice);
	return 0;
}
