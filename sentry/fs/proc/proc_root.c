// SPDX-License-Identifier: Apache-2.0
/*
 * The system-wide files of /proc that are computed: memory, CPU time, load, uptime.
 *
 * Memory is the sandbox's: the total is its limit, what is used is what its memory files occupy: anonymous
 * memory, and what is written to tmpfs and to the writable layer, which is shown as shared memory. There is no
 * page cache of its own to show, so Cached is the shared memory alone, and no swap. CPU time is the sum over live processes (what exited and
 * was reaped is in its parent). The load average is the number of runnable tasks now, since nothing ticks
 * in an idle sandbox that could average it.
 */
#include <sys/sysinfo.h>

#include "sentry/fs/proc/proc_priv.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/mm.h"
#include "sentry/time/clock.h"

#define USER_HZ 100
#define MEM_FALLBACK (8ULL << 30) /* when the host doesn't tell */

static uint64_t host_mem;

void proc_mem_init(void)
{
	struct sysinfo si;

	/* host: sysinfo */
	host_mem = sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit : MEM_FALLBACK;
}

uint64_t proc_mem_total(void)
{
	return kernel.limits.max_memory ? kernel.limits.max_memory : host_mem;
}

/* Calls @fn with each process, zombies included. References are held, no lock. */
static void for_each_process(void (*fn)(struct tgroup *tg, void *arg), void *arg)
{
	struct pid *p;
	pid_t nr = 1;

	while ((p = pid_next(kernel.init_pidns, nr))) {
		struct tgroup *tg = NULL;

		nr = pid_nr(p, kernel.init_pidns) + 1;
		mutex_lock(&kernel.tasks_mu);
		if (p->tgroup)
			tg = tgroup_get(p->tgroup);
		mutex_unlock(&kernel.tasks_mu);
		pid_put(p);
		if (!tg)
			continue;
		fn(tg, arg);
		tgroup_put(tg);
	}
}

struct mem_sum {
	uint64_t anon, shmem, file, locked, vm;
};

static void add_mem(struct tgroup *tg, void *arg)
{
	struct mem_sum *s = arg;
	struct task *leader = NULL;
	struct mm_stat st;
	struct mm *mm;

	mutex_lock(&kernel.tasks_mu);
	if (tg->leader)
		leader = task_get(tg->leader);
	mutex_unlock(&kernel.tasks_mu);
	if (!leader)
		return;
	mm = task_mm_get(leader);
	if (mm) {
		mm_stat(mm, &st);
		s->anon += st.rss_anon;
		s->shmem += st.rss_shmem;
		s->file += st.rss_file;
		s->locked += st.locked;
		s->vm += st.data;
		mm_put(mm);
	}
	task_put(leader);
}

static struct mem_sum mem_sum(void)
{
	struct mem_sum s = { 0 };
	uint64_t total, left;

	for_each_process(add_mem, &s);
	if (mfile_space(&total, &left)) {
		/* Pages that a fork shares are counted with each of its users. */
		s.anon = MIN(s.anon, total - left);
		s.shmem = total - left - s.anon;
	}
	return s;
}

static uint64_t free_of(const struct mem_sum *s)
{
	uint64_t used = s->anon + s->shmem, total = proc_mem_total();

	return used < total ? total - used : 0;
}

/* One host call where the host counts (the files' size is the limit); else a walk over all processes. */
uint64_t proc_mem_free(void)
{
	uint64_t total, left;

	if (mfile_space(&total, &left))
		return left;

	struct mem_sum s = mem_sum();

	return free_of(&s);
}

static void mem_line(struct seqbuf *out, const char *name, uint64_t bytes)
{
	seq_printf(out, "%-15s %8lu kB\n", name, (unsigned long)(bytes / 1024));
}

int proc_show_meminfo(struct pfs_inode *pi, struct seqbuf *out)
{
	struct mem_sum s = mem_sum();
	uint64_t total = proc_mem_total(), left = free_of(&s);

	(void)pi;
	mem_line(out, "MemTotal:", total);
	mem_line(out, "MemFree:", left);
	mem_line(out, "MemAvailable:", left);
	mem_line(out, "Buffers:", 0);
	mem_line(out, "Cached:", s.shmem);
	mem_line(out, "SwapCached:", 0);
	mem_line(out, "Active:", s.anon + s.shmem);
	mem_line(out, "Inactive:", 0);
	mem_line(out, "Active(anon):", s.anon + s.shmem);
	mem_line(out, "Inactive(anon):", 0);
	mem_line(out, "Active(file):", 0);
	mem_line(out, "Inactive(file):", 0);
	mem_line(out, "Unevictable:", s.locked);
	mem_line(out, "Mlocked:", s.locked);
	mem_line(out, "SwapTotal:", 0);
	mem_line(out, "SwapFree:", 0);
	mem_line(out, "Dirty:", 0);
	mem_line(out, "Writeback:", 0);
	mem_line(out, "AnonPages:", s.anon);
	mem_line(out, "Mapped:", s.file + s.shmem);
	mem_line(out, "Shmem:", s.shmem);
	mem_line(out, "KReclaimable:", 0);
	mem_line(out, "Slab:", 0);
	mem_line(out, "SReclaimable:", 0);
	mem_line(out, "SUnreclaim:", 0);
	mem_line(out, "KernelStack:", kernel.ntasks * 16384UL);
	mem_line(out, "PageTables:", 0);
	mem_line(out, "CommitLimit:", total / 2);
	mem_line(out, "Committed_AS:", s.vm);
	mem_line(out, "VmallocTotal:", 1UL << 45);
	mem_line(out, "VmallocUsed:", 0);
	mem_line(out, "VmallocChunk:", 0);
	mem_line(out, "AnonHugePages:", 0);
	mem_line(out, "ShmemHugePages:", 0);
	seq_printf(out, "HugePages_Total:       0\nHugePages_Free:        0\n"
			"HugePages_Rsvd:        0\nHugePages_Surp:        0\n"
			"Hugepagesize:       2048 kB\nHugetlb:               0 kB\n");
	return 0;
}

struct cpu_sum {
	uint64_t user, sys;
	unsigned running, tasks, blocked;
};

static void add_cpu(struct tgroup *tg, void *arg)
{
	struct cpu_sum *s = arg;
	struct task_usage u;
	struct task *t;

	tgroup_usage_get(tg, &u);
	s->user += u.utime_ns;
	s->sys += u.stime_ns;
	AUTO_LOCK(&kernel.tasks_mu);
	s->user += tg->child_usage.utime_ns;
	s->sys += tg->child_usage.stime_ns;
	list_for_each(t, &tg->threads, tg_node) {
		s->tasks++;
		s->running += t->state == TASK_RUNNING;
	}
}

static struct cpu_sum cpu_sum(void)
{
	struct cpu_sum s = { 0 };

	for_each_process(add_cpu, &s);
	return s;
}

void proc_cpu_total(uint64_t *user_ns, uint64_t *sys_ns)
{
	struct cpu_sum s = cpu_sum();

	*user_ns = s.user;
	*sys_ns = s.sys;
}

static unsigned long ticks(uint64_t ns)
{
	return (unsigned long)(ns / (NSEC_PER_SEC / USER_HZ));
}

static unsigned long idle_ticks(const struct cpu_sum *s, unsigned ncpus)
{
	unsigned long total = ticks((uint64_t)clock_boottime_ns()) * ncpus;
	unsigned long busy = ticks(s->user) + ticks(s->sys);

	return total > busy ? total - busy : 0;
}

/* Which CPU a task ran on isn't known: each line gets an equal share. */
int proc_show_global_stat(struct pfs_inode *pi, struct seqbuf *out)
{
	struct cpu_sum s = cpu_sum();
	unsigned n = kernel.limits.ncpus ? kernel.limits.ncpus : 1;
	unsigned long idle = idle_ticks(&s, n);

	(void)pi;
	seq_printf(out, "cpu  %lu 0 %lu %lu 0 0 0 0 0 0\n", ticks(s.user), ticks(s.sys), idle);
	for (unsigned i = 0; i < n; i++)
		seq_printf(out, "cpu%u %lu 0 %lu %lu 0 0 0 0 0 0\n", i, ticks(s.user) / n,
			   ticks(s.sys) / n, idle / n);
	seq_printf(out, "intr 0\nctxt 0\nbtime %ld\nprocesses %lu\nprocs_running %u\n"
			"procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
		   (long)(kernel.boot_realtime_ns / NSEC_PER_SEC), (unsigned long)kernel.nforks,
		   s.running ? s.running : 1);
	return 0;
}

int proc_show_loadavg(struct pfs_inode *pi, struct seqbuf *out)
{
	struct cpu_sum s = cpu_sum();
	struct pidns *ns = proc_pidns(pi);

	seq_printf(out, "%u.00 %u.00 %u.00 %u/%u %d\n", s.running, s.running, s.running, s.running,
		   s.tasks, ns->last);
	return 0;
}

int proc_show_uptime(struct pfs_inode *pi, struct seqbuf *out)
{
	struct cpu_sum s = cpu_sum();
	int64_t up = clock_boottime_ns() / (NSEC_PER_SEC / USER_HZ);
	unsigned long idle = idle_ticks(&s, kernel.limits.ncpus ? kernel.limits.ncpus : 1);

	(void)pi;
	seq_printf(out, "%ld.%02ld %lu.%02lu\n", (long)(up / USER_HZ), (long)(up % USER_HZ),
		   idle / USER_HZ, idle % USER_HZ);
	return 0;
}

int proc_show_version(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%s version %s (holdfast) %s\n", KERNEL_SYSNAME, KERNEL_RELEASE,
		   KERNEL_VERSION);
	return 0;
}

int proc_show_vmstat(struct pfs_inode *pi, struct seqbuf *out)
{
	struct mem_sum s = mem_sum();

	(void)pi;
	seq_printf(out, "nr_free_pages %lu\nnr_anon_pages %lu\nnr_mapped %lu\nnr_file_pages %lu\n"
			"nr_dirty 0\nnr_writeback 0\nnr_shmem %lu\npgpgin 0\npgpgout 0\npswpin 0\n"
			"pswpout 0\npgfault 0\npgmajfault 0\noom_kill 0\n",
		   (unsigned long)(free_of(&s) / 4096), (unsigned long)(s.anon / 4096),
		   (unsigned long)((s.file + s.shmem) / 4096), (unsigned long)(s.shmem / 4096),
		   (unsigned long)(s.shmem / 4096));
	return 0;
}

static void cpu_heading(struct seqbuf *out)
{
	seq_printf(out, "           ");
	for (unsigned i = 0; i < kernel.limits.ncpus; i++)
		seq_printf(out, "CPU%-8u", i);
	seq_putc(out, '\n');
}

int proc_show_interrupts(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	cpu_heading(out);
	return 0;
}

int proc_show_softirqs(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	cpu_heading(out);
	return 0;
}

int proc_show_key_users(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "    0:     1 1/1 1/1000000 8/25000000\n");
	return 0;
}
