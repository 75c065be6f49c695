// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/sys (man 5 proc_sys): what programs read there, and the few that they write.
 *
 * Four kinds: constants, which say how this kernel behaves; host and domain name, which live in the UTS
 * namespace; the limits of SysV messages and shared memory, which are obeyed; and stored values, which a
 * privileged guest may set and read back. A stored value acts
 * nowhere but in what is read back: they are kept so that set-up scripts succeed (see README.md). Stored values are the sandbox's, not a namespace's.
 *
 * Locking: stored values are single atomic words.
 */
#include <linux/capability.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/kernel/sysv.h"

struct sysctl {
	_Atomic int64_t *value;
	int64_t min, max;
};

static int show_number(struct pfs_inode *pi, struct seqbuf *out)
{
	const struct sysctl *s = pi->node->data;

	seq_printf(out, "%ld\n", (long)atomic_load(s->value));
	return 0;
}

static ssize_t store_number(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	const struct sysctl *s = pi->node->data;
	int64_t v;

	(void)t;
	if (pfs_parse(buf, s->min, s->max, &v))
		return -EINVAL;
	atomic_store(s->value, v);
	return (ssize_t)len;
}

#define CONST(n, text) PROC_TEXT(n, text "\n")
#define FILE_SHOW(n, fn) PROC_FILE(n, fn)
/* A number that root may write. Its storage is a slot of values[]. */
#define STORED(id, n, lo, hi)                                                            \
	{ .name = (n), .mode = S_IFREG | 0644, .show = show_number, .store = store_number, \
	  .data = &(const struct sysctl){ &values[id], lo, hi } }
#define SYSV_LIMIT(field, hi)                                                               \
	{ .name = #field, .mode = S_IFREG | 0644, .show = show_number, .store = store_number, \
	  .data = &(const struct sysctl){ &sysv_limits.field, 0, hi } }

enum {
	V_CORE_USES_PID, V_PRINTK_RATE, V_RANDOMIZE, V_PID_MAX, V_THREADS_MAX, V_PANIC, V_PANIC_OOPS, V_SYSRQ, V_SCHED_AUTO, V_SCHED_RT,
	V_SCHED_RTP, V_DMESG, V_KPTR, V_PERF, V_BPF, V_PTRACE, V_HUNG, V_OVERCOMMIT, V_OVERRATIO,
	V_MAPCOUNT, V_SWAPPINESS, V_DIRTY, V_DIRTYBG, V_DIRTYEXP, V_DIRTYWB, V_DROP, V_MINFREE, V_VFSCP,
	V_OOMKILLALLOC, V_NRHUGE, V_MMAPMIN, V_COMPACT, V_FILEMAX, V_NROPEN, V_PIPEMAX, V_PIPEHARD,
	V_PIPESOFT, V_INOINST, V_INOWATCH, V_INOQUEUE, V_MQMAX, V_MQSIZE, V_MQQUEUES, V_MQDEF, V_MQSDEF,
	V_PROTHARD, V_PROTSYM, V_PROTFIFO, V_PROTREG, V_EPWATCH, V_AIOMAX, V_LEASE, V_LEASEEN, V_DUMP,
	V_SOMAXCONN, V_RMEMDEF, V_RMEMMAX, V_WMEMDEF, V_WMEMMAX, V_BACKLOG, V_OPTMEM, V_BUSY,
	V_FORWARD, V_SYNCOOKIES, V_FIN, V_KATIME, V_KAPROBES, V_KAINTVL, V_TWREUSE, V_SACK, V_TS, V_WS,
	V_SYNRETR, V_SYNBACKLOG, V_RETR2, V_NONLOCAL, V_UNPRIVPORT, V_ECHOALL, V_FASTOPEN, V_TTL,
	V_MAXORPHAN, V_SLOWIDLE, V_MTUPROBE, V_ECN, V_6DISABLE, V_6FORWARD, V_6BINDV6, V_6DISDEF,
	V_UNIXQ, V_MAXUSERNS, V_MAXPIDNS, V_MAXNETNS, V_MAXMNTNS, V_MAXIPCNS, V_MAXUTSNS, V_MAXCGNS,
	V_MAXTIMENS, V_USERNSCLONE, V_COUNT
};

static _Atomic int64_t values[V_COUNT] = {
	[V_RANDOMIZE] = 2, [V_PRINTK_RATE] = 5, [V_PID_MAX] = PID_MAX_DEFAULT,
	[V_THREADS_MAX] = 127000, [V_SCHED_RT] = 950000, [V_SCHED_RTP] = 1000000, [V_DMESG] = 1,
	[V_KPTR] = 1, [V_PERF] = 3, [V_BPF] = 2, [V_PTRACE] = 0, [V_OVERCOMMIT] = 0, [V_OVERRATIO] = 50,
	[V_MAPCOUNT] = 65530, [V_SWAPPINESS] = 60, [V_DIRTY] = 20, [V_DIRTYBG] = 10,
	[V_DIRTYEXP] = 3000, [V_DIRTYWB] = 500, [V_MINFREE] = 67584, [V_VFSCP] = 100,
	[V_MMAPMIN] = 65536, [V_FILEMAX] = 1048576, [V_NROPEN] = 1048576, [V_PIPEMAX] = 1048576,
	[V_PIPESOFT] = 16384, [V_INOINST] = 128, [V_INOWATCH] = 65536, [V_INOQUEUE] = 16384,
	[V_MQMAX] = 10, [V_MQSIZE] = 8192, [V_MQQUEUES] = 256, [V_MQDEF] = 10, [V_MQSDEF] = 8192,
	[V_PROTHARD] = 1, [V_PROTSYM] = 1, [V_PROTFIFO] = 1, [V_PROTREG] = 2, [V_EPWATCH] = 1000000,
	[V_AIOMAX] = 65536, [V_LEASE] = 45, [V_LEASEEN] = 1, [V_SOMAXCONN] = 4096,
	[V_RMEMDEF] = 212992, [V_RMEMMAX] = 212992, [V_WMEMDEF] = 212992, [V_WMEMMAX] = 212992,
	[V_BACKLOG] = 1000, [V_OPTMEM] = 131072, [V_SYNCOOKIES] = 1, [V_FIN] = 60, [V_KATIME] = 7200,
	[V_KAPROBES] = 9, [V_KAINTVL] = 75, [V_TWREUSE] = 2, [V_SACK] = 1, [V_TS] = 1, [V_WS] = 1,
	[V_SYNRETR] = 6, [V_SYNBACKLOG] = 1024, [V_RETR2] = 15, [V_UNPRIVPORT] = 1024, [V_FASTOPEN] = 0,
	[V_TTL] = 64, [V_MAXORPHAN] = 32768, [V_SLOWIDLE] = 1, [V_ECN] = 2, [V_UNIXQ] = 512,
	[V_MAXUSERNS] = 63000, [V_MAXPIDNS] = 63000, [V_MAXNETNS] = 63000, [V_MAXMNTNS] = 63000,
	[V_MAXIPCNS] = 63000, [V_MAXUTSNS] = 63000, [V_MAXCGNS] = 63000, [V_MAXTIMENS] = 63000,
	[V_USERNSCLONE] = 1,
};

#define I32 INT32_MAX
#define I64 INT64_MAX

/* ---- names of the host ---- */

static struct utsns *uts_get(void)
{
	struct task *t = current_task();

	return t && t->ns ? utsns_get(t->ns->uts) : NULL;
}

static int show_uts(struct seqbuf *out, bool domain)
{
	struct utsns *ns = uts_get();

	if (!ns)
		return -ESRCH;
	mutex_lock(&ns->mu);
	seq_printf(out, "%s\n", domain ? ns->domainname : ns->nodename);
	mutex_unlock(&ns->mu);
	utsns_put(ns);
	return 0;
}

static ssize_t store_uts(struct task *t, const char *buf, size_t len, bool domain)
{
	struct utsns *ns = uts_get();
	size_t n = strcspn(buf, "\n");
	char *to;

	if (!ns)
		return -ESRCH;
	if (!cred_capable_in(task_cred(t), ns->userns, CAP_SYS_ADMIN)) {
		utsns_put(ns);
		return -EPERM;
	}
	n = MIN(n, (size_t)UTS_LEN - 1);
	mutex_lock(&ns->mu);
	to = domain ? ns->domainname : ns->nodename;
	memset(to, 0, UTS_LEN);
	memcpy(to, buf, n);
	mutex_unlock(&ns->mu);
	utsns_put(ns);
	return (ssize_t)len;
}

static int show_hostname(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_uts(out, false);
}

static ssize_t store_hostname(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	(void)pi;
	return store_uts(t, buf, len, false);
}

static int show_domainname(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_uts(out, true);
}

static ssize_t store_domainname(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	(void)pi;
	return store_uts(t, buf, len, true);
}

/* ---- computed ---- */

static int show_uuid(struct pfs_inode *pi, struct seqbuf *out)
{
	uint8_t u[16];

	(void)pi;
	kernel_random(u, sizeof(u));
	u[6] = (uint8_t)((u[6] & 0x0f) | 0x40);
	u[8] = (uint8_t)((u[8] & 0x3f) | 0x80);
	for (unsigned i = 0; i < sizeof(u); i++)
		seq_printf(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", u[i]);
	seq_putc(out, '\n');
	return 0;
}

static int show_boot_id(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%s\n", kernel.boot_id);
	return 0;
}

static int show_ns_last_pid(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%d\n", proc_pidns(pi)->last);
	return 0;
}

/* man 5 proc_sys_kernel: the next number given out in this namespace follows it. */
static ssize_t store_ns_last_pid(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	struct pidns *ns = proc_pidns(pi);
	int64_t v;

	if (t && !cred_capable_in(task_cred(t), ns->userns, CAP_SYS_ADMIN) &&
	    !cred_capable_in(task_cred(t), ns->userns, CAP_CHECKPOINT_RESTORE))
		return -EPERM;
	if (pfs_parse(buf, 0, PID_MAX_DEFAULT, &v))
		return -EINVAL;
	pidns_set_last(ns, (pid_t)v);
	return (ssize_t)len;
}

/* Open descriptions aren't counted; allocated is what the limit says at most. */
static int show_file_nr(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%u\t0\t%ld\n", kernel.ntasks * 4, (long)values[V_FILEMAX]);
	return 0;
}

static char core_pattern[128] = "core";

static int show_core_pattern(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%s\n", core_pattern);
	return 0;
}

/* Cores aren't written, so the pattern only matters to who reads it back. */
static ssize_t store_core_pattern(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	size_t n = strcspn(buf, "\n");

	(void)t, (void)pi;
	if (n >= sizeof(core_pattern))
		return -EINVAL;
	memcpy(core_pattern, buf, n);
	core_pattern[n] = '\0';
	return (ssize_t)len;
}

static const struct pfs_node random_nodes[] = {
	FILE_SHOW("boot_id", show_boot_id),
	CONST("entropy_avail", "256"),
	CONST("poolsize", "256"),
	CONST("urandom_min_reseed_secs", "60"),
	FILE_SHOW("uuid", show_uuid),
	CONST("write_wakeup_threshold", "256"),
	PROC_END,
};

static const struct pfs_node seccomp_nodes[] = {
	CONST("actions_avail", "kill_process kill_thread trap errno user_notif trace log allow"),
	CONST("actions_logged", "kill_process kill_thread trap errno user_notif trace log"),
	PROC_END,
};

static const struct pfs_node yama_nodes[] = {
	STORED(V_PTRACE, "ptrace_scope", 0, 3),
	PROC_END,
};

static const struct pfs_node keys_nodes[] = {
	CONST("gc_delay", "300"), CONST("maxbytes", "20000"), CONST("maxkeys", "200"),
	CONST("root_maxbytes", "25000000"), CONST("root_maxkeys", "1000000"), PROC_END,
};

static const struct pfs_node pty_nodes[] = {
	CONST("max", "4096"), CONST("nr", "0"), CONST("reserve", "1024"), PROC_END,
};

static const struct pfs_node kernel_nodes[] = {
	CONST("acct", "4\t2\t30"),
	CONST("cap_last_cap", "40"),
	{ .name = "core_pattern", .mode = S_IFREG | 0644, .show = show_core_pattern,
	  .store = store_core_pattern },
	STORED(V_CORE_USES_PID, "core_uses_pid", 0, 1),
	STORED(V_DMESG, "dmesg_restrict", 0, 1),
	{ .name = "domainname", .mode = S_IFREG | 0644, .show = show_domainname,
	  .store = store_domainname },
	{ .name = "hostname", .mode = S_IFREG | 0644, .show = show_hostname,
	  .store = store_hostname },
	STORED(V_HUNG, "hung_task_timeout_secs", 0, I32),
	PROC_DIR("keys", keys_nodes),
	STORED(V_KPTR, "kptr_restrict", 0, 2),
	SYSV_LIMIT(msgmax, I32),
	SYSV_LIMIT(msgmnb, I32),
	SYSV_LIMIT(msgmni, 32768),
	CONST("ngroups_max", "65536"),
	{ .name = "ns_last_pid", .mode = S_IFREG | 0666, .show = show_ns_last_pid,
	  .store = store_ns_last_pid },
	CONST("osrelease", KERNEL_RELEASE),
	CONST("ostype", KERNEL_SYSNAME),
	CONST("overflowgid", "65534"),
	CONST("overflowuid", "65534"),
	STORED(V_PANIC, "panic", -1, I32),
	STORED(V_PANIC_OOPS, "panic_on_oops", 0, 1),
	STORED(V_PERF, "perf_event_paranoid", -1, 4),
	STORED(V_PID_MAX, "pid_max", 301, PID_MAX_DEFAULT),
	CONST("printk", "4\t4\t1\t7"),
	STORED(V_PRINTK_RATE, "printk_ratelimit", 0, I32),
	PROC_DIR("pty", pty_nodes),
	PROC_DIR("random", random_nodes),
	STORED(V_RANDOMIZE, "randomize_va_space", 0, 2),
	STORED(V_SCHED_AUTO, "sched_autogroup_enabled", 0, 1),
	CONST("sched_child_runs_first", "0"),
	STORED(V_SCHED_RTP, "sched_rt_period_us", 1, I32),
	STORED(V_SCHED_RT, "sched_rt_runtime_us", -1, I32),
	PROC_DIR("seccomp", seccomp_nodes),
	CONST("sem", "32000\t1024000\t500\t32000"),
	SYSV_LIMIT(shmall, I64),
	SYSV_LIMIT(shmmax, I64),
	SYSV_LIMIT(shmmni, 32768),
	STORED(V_SYSRQ, "sysrq", 0, 511),
	CONST("tainted", "0"),
	STORED(V_THREADS_MAX, "threads-max", 1, I32),
	STORED(V_BPF, "unprivileged_bpf_disabled", 0, 2),
	STORED(V_USERNSCLONE, "unprivileged_userns_clone", 0, 1),
	CONST("version", KERNEL_VERSION),
	PROC_DIR("yama", yama_nodes),
	PROC_END,
};

static const struct pfs_node vm_nodes[] = {
	STORED(V_COMPACT, "compact_memory", 0, 1),
	CONST("dirty_background_bytes", "0"),
	STORED(V_DIRTYBG, "dirty_background_ratio", 0, 100),
	CONST("dirty_bytes", "0"),
	STORED(V_DIRTYEXP, "dirty_expire_centisecs", 0, I32),
	STORED(V_DIRTY, "dirty_ratio", 0, 100),
	STORED(V_DIRTYWB, "dirty_writeback_centisecs", 0, I32),
	STORED(V_DROP, "drop_caches", 0, 4),
	CONST("hugetlb_shm_group", "0"),
	STORED(V_MAPCOUNT, "max_map_count", 0, I32),
	STORED(V_MINFREE, "min_free_kbytes", 0, I32),
	STORED(V_MMAPMIN, "mmap_min_addr", 0, I64),
	CONST("mmap_rnd_bits", "28"),
	STORED(V_NRHUGE, "nr_hugepages", 0, I64),
	CONST("nr_overcommit_hugepages", "0"),
	STORED(V_OOMKILLALLOC, "oom_kill_allocating_task", 0, 1),
	CONST("overcommit_kbytes", "0"),
	STORED(V_OVERCOMMIT, "overcommit_memory", 0, 2),
	STORED(V_OVERRATIO, "overcommit_ratio", 0, I32),
	CONST("page-cluster", "3"),
	CONST("panic_on_oom", "0"),
	STORED(V_SWAPPINESS, "swappiness", 0, 200),
	CONST("unprivileged_userfaultfd", "0"),
	STORED(V_VFSCP, "vfs_cache_pressure", 0, I32),
	CONST("zone_reclaim_mode", "0"),
	PROC_END,
};

static const struct pfs_node inotify_nodes[] = {
	STORED(V_INOQUEUE, "max_queued_events", 0, I32),
	STORED(V_INOINST, "max_user_instances", 0, I32),
	STORED(V_INOWATCH, "max_user_watches", 0, I32),
	PROC_END,
};

static const struct pfs_node fs_mqueue_nodes[] = {
	STORED(V_MQDEF, "msg_default", 1, 65536),   STORED(V_MQMAX, "msg_max", 1, 65536),
	STORED(V_MQSDEF, "msgsize_default", 128, 16777216),
	STORED(V_MQSIZE, "msgsize_max", 128, 16777216),
	STORED(V_MQQUEUES, "queues_max", 0, I32),   PROC_END,
};

static const struct pfs_node epoll_nodes[] = {
	STORED(V_EPWATCH, "max_user_watches", 0, I64),
	PROC_END,
};

static const struct pfs_node fs_nodes[] = {
	STORED(V_AIOMAX, "aio-max-nr", 0, I64),
	CONST("aio-nr", "0"),
	CONST("dentry-state", "0\t0\t45\t0\t0\t0"),
	PROC_DIR("epoll", epoll_nodes),
	STORED(V_FILEMAX, "file-max", 0, I64),
	FILE_SHOW("file-nr", show_file_nr),
	CONST("inode-nr", "0\t0"),
	CONST("inode-state", "0\t0\t0\t0\t0\t0\t0"),
	PROC_DIR("inotify", inotify_nodes),
	STORED(V_LEASE, "lease-break-time", 0, I32),
	STORED(V_LEASEEN, "leases-enable", 0, 1),
	CONST("mount-max", "32768"),
	PROC_DIR("mqueue", fs_mqueue_nodes),
	STORED(V_NROPEN, "nr_open", 64, 2147483584),
	CONST("overflowgid", "65534"),
	CONST("overflowuid", "65534"),
	STORED(V_PIPEMAX, "pipe-max-size", 4096, 1 << 30),
	STORED(V_PIPEHARD, "pipe-user-pages-hard", 0, I64),
	STORED(V_PIPESOFT, "pipe-user-pages-soft", 0, I64),
	STORED(V_PROTFIFO, "protected_fifos", 0, 2),
	STORED(V_PROTHARD, "protected_hardlinks", 0, 1),
	STORED(V_PROTREG, "protected_regular", 0, 2),
	STORED(V_PROTSYM, "protected_symlinks", 0, 1),
	STORED(V_DUMP, "suid_dumpable", 0, 2),
	PROC_END,
};

static const struct pfs_node net_core_nodes[] = {
	STORED(V_BUSY, "busy_poll", 0, I32),
	CONST("default_qdisc", "noqueue"),
	STORED(V_BACKLOG, "netdev_max_backlog", 0, I32),
	STORED(V_OPTMEM, "optmem_max", 0, I32),
	STORED(V_RMEMDEF, "rmem_default", 2304, I32),
	STORED(V_RMEMMAX, "rmem_max", 2304, I32),
	STORED(V_SOMAXCONN, "somaxconn", 0, I32),
	STORED(V_WMEMDEF, "wmem_default", 4608, I32),
	STORED(V_WMEMMAX, "wmem_max", 4608, I32),
	PROC_END,
};

static const struct pfs_node conf4_if_nodes[] = {
	CONST("accept_local", "0"), CONST("accept_redirects", "1"), CONST("arp_filter", "0"),
	STORED(V_FORWARD, "forwarding", 0, 1), CONST("rp_filter", "0"), CONST("send_redirects", "1"),
	CONST("route_localnet", "0"), PROC_END,
};

static const struct pfs_node conf4_nodes[] = {
	PROC_DIR("all", conf4_if_nodes), PROC_DIR("default", conf4_if_nodes),
	PROC_DIR("lo", conf4_if_nodes), PROC_END,
};

static const struct pfs_node ipv4_nodes[] = {
	PROC_DIR("conf", conf4_nodes),
	STORED(V_ECHOALL, "icmp_echo_ignore_all", 0, 1),
	CONST("icmp_echo_ignore_broadcasts", "1"),
	STORED(V_TTL, "ip_default_ttl", 1, 255),
	STORED(V_FORWARD, "ip_forward", 0, 1),
	CONST("ip_local_port_range", "32768\t60999"),
	PROC_TEXT("ip_local_reserved_ports", "\n"),
	STORED(V_NONLOCAL, "ip_nonlocal_bind", 0, 1),
	STORED(V_UNPRIVPORT, "ip_unprivileged_port_start", 0, 65535),
	CONST("ping_group_range", "0\t2147483647"),
	PROC_TEXT("tcp_allowed_congestion_control", "reno cubic\n"),
	PROC_TEXT("tcp_available_congestion_control", "reno cubic\n"),
	CONST("tcp_congestion_control", "cubic"),
	STORED(V_ECN, "tcp_ecn", 0, 2),
	STORED(V_FASTOPEN, "tcp_fastopen", 0, I32),
	STORED(V_FIN, "tcp_fin_timeout", 1, I32),
	STORED(V_KAINTVL, "tcp_keepalive_intvl", 1, I32),
	STORED(V_KAPROBES, "tcp_keepalive_probes", 1, 127),
	STORED(V_KATIME, "tcp_keepalive_time", 1, I32),
	STORED(V_MAXORPHAN, "tcp_max_orphans", 0, I32),
	STORED(V_SYNBACKLOG, "tcp_max_syn_backlog", 1, I32),
	CONST("tcp_max_tw_buckets", "131072"),
	CONST("tcp_mem", "93909\t125214\t187818"),
	STORED(V_MTUPROBE, "tcp_mtu_probing", 0, 2),
	CONST("tcp_retries1", "3"),
	STORED(V_RETR2, "tcp_retries2", 0, 255),
	CONST("tcp_rmem", "4096\t131072\t6291456"),
	STORED(V_SACK, "tcp_sack", 0, 1),
	STORED(V_SLOWIDLE, "tcp_slow_start_after_idle", 0, 1),
	STORED(V_SYNRETR, "tcp_syn_retries", 1, 127),
	STORED(V_SYNCOOKIES, "tcp_syncookies", 0, 2),
	STORED(V_TS, "tcp_timestamps", 0, 2),
	STORED(V_TWREUSE, "tcp_tw_reuse", 0, 2),
	STORED(V_WS, "tcp_window_scaling", 0, 1),
	CONST("tcp_wmem", "4096\t16384\t4194304"),
	CONST("udp_mem", "187818\t250428\t375636"),
	PROC_END,
};

static const struct pfs_node conf6_if_nodes[] = {
	CONST("accept_ra", "1"), STORED(V_6DISABLE, "disable_ipv6", 0, 1),
	STORED(V_6FORWARD, "forwarding", 0, 1), CONST("use_tempaddr", "0"), PROC_END,
};

static const struct pfs_node conf6_nodes[] = {
	PROC_DIR("all", conf6_if_nodes), PROC_DIR("default", conf6_if_nodes),
	PROC_DIR("lo", conf6_if_nodes), PROC_END,
};

static const struct pfs_node ipv6_nodes[] = {
	STORED(V_6BINDV6, "bindv6only", 0, 1),
	PROC_DIR("conf", conf6_nodes),
	PROC_END,
};

static const struct pfs_node net_unix_nodes[] = {
	STORED(V_UNIXQ, "max_dgram_qlen", 0, I32),
	PROC_END,
};

static const struct pfs_node net_nodes[] = {
	PROC_DIR("core", net_core_nodes), PROC_DIR("ipv4", ipv4_nodes), PROC_DIR("ipv6", ipv6_nodes),
	PROC_DIR("unix", net_unix_nodes), PROC_END,
};

static const struct pfs_node user_nodes[] = {
	STORED(V_MAXCGNS, "max_cgroup_namespaces", 0, I32),
	STORED(V_INOINST, "max_inotify_instances", 0, I32),
	STORED(V_INOWATCH, "max_inotify_watches", 0, I32),
	STORED(V_MAXIPCNS, "max_ipc_namespaces", 0, I32),
	STORED(V_MAXMNTNS, "max_mnt_namespaces", 0, I32),
	STORED(V_MAXNETNS, "max_net_namespaces", 0, I32),
	STORED(V_MAXPIDNS, "max_pid_namespaces", 0, I32),
	STORED(V_MAXTIMENS, "max_time_namespaces", 0, I32),
	STORED(V_MAXUSERNS, "max_user_namespaces", 0, I32),
	STORED(V_MAXUTSNS, "max_uts_namespaces", 0, I32),
	PROC_END,
};

static const struct pfs_node dev_tty_nodes[] = {
	CONST("ldisc_autoload", "0"), CONST("legacy_tiocsti", "0"), PROC_END,
};

static const struct pfs_node dev_nodes[] = {
	PROC_DIR("tty", dev_tty_nodes),
	PROC_END,
};

static const struct pfs_node abi_nodes[] = {
	CONST("vsyscall32", "0"),
	PROC_END,
};

const struct pfs_node proc_sys_nodes[] = {
	PROC_DIR("abi", abi_nodes), PROC_DIR("dev", dev_nodes), PROC_DIR("fs", fs_nodes),
	PROC_DIR("kernel", kernel_nodes), PROC_DIR("net", net_nodes), PROC_DIR("user", user_nodes),
	PROC_DIR("vm", vm_nodes), PROC_END,
};

/* ---- from outside ---- */

static const struct pfs_node *find_setting(const char *name)
{
	const struct pfs_node *n = proc_sys_nodes;

	while (n && n->name) {
		size_t len = strlen(n->name);

		if (strncmp(name, n->name, len) != 0 || (name[len] && !strchr("./", name[len]))) {
			n++;
			continue;
		}
		if (!name[len])
			return n->children ? NULL : n;
		name += len + 1;
		n = n->children;
	}
	return NULL;
}

/* The same words, whatever is between them? */
static bool same_words(const char *a, const char *b)
{
	for (;;) {
		size_t n, m;

		a += strspn(a, " \t\n");
		b += strspn(b, " \t\n");
		n = strcspn(a, " \t\n");
		m = strcspn(b, " \t\n");
		if (n != m || strncmp(a, b, n) != 0)
			return false;
		if (!n)
			return true;
		a += n;
		b += n;
	}
}

int proc_sysctl_set(const char *name, const char *value)
{
	const struct pfs_node *n = find_setting(name);
	const struct sysctl *s;
	int64_t v;

	if (!n)
		return -ENOENT;
	if (n->show == proc_show_data)
		return same_words(n->data, value) ? 0 : -EROFS;
	if (n->store != store_number)
		return -EROFS;
	s = n->data;
	AUTO_FREE char *copy = kstrdup(value);
	if (pfs_parse(copy, s->min, s->max, &v))
		return -EINVAL;
	atomic_store(s->value, v);
	return 0;
}
