// SPDX-License-Identifier: Apache-2.0
/*
 * sysfs: CPUs, the loopback interface, huge page settings, and empty directories where programs look for
 * devices and find that there are none. Mount points: fs/cgroup, kernel/debug, kernel/security, fs/bpf.
 *
 * All read-only but what root may write on Linux and we have no use for; those refuse with EACCES by their
 * mode. Block devices and buses don't exist. Interfaces other than lo are the network session's: it lists
 * them through netlink.
 */
#include "sentry/fs/sys/sysfs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/pseudo/pseudofs.h"
#include "sentry/state/state.h"
#include "sentry/kernel/kernel.h"

#define SYSFS_MAGIC 0x62656572
#define SYSFS_ROOT_INO 1

static int show_text(struct pfs_inode *pi, struct seqbuf *out)
{
	const char *s = pi->node->data;

	seq_write(out, s, strlen(s));
	return 0;
}

#define DIR(n, ch) { .name = (n), .mode = S_IFDIR | 0755, .children = (ch) }
#define EMPTY(n) { .name = (n), .mode = S_IFDIR | 0755 }
#define TEXT(n, text) { .name = (n), .mode = S_IFREG | 0444, .show = show_text, .data = (text) }
#define FILE_SHOW(n, fn) { .name = (n), .mode = S_IFREG | 0444, .show = (fn) }
#define LINK(n, to) { .name = (n), .mode = S_IFLNK | 0777, .data = (to) }
#define END { .name = NULL }

static unsigned ncpus(void)
{
	return kernel.limits.ncpus ? kernel.limits.ncpus : 1;
}

/* ---- devices/system/cpu ---- */

static int show_cpu_range(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	if (ncpus() == 1)
		seq_printf(out, "0\n");
	else
		seq_printf(out, "0-%u\n", ncpus() - 1);
	return 0;
}

static int show_cpu_num(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%ld\n", (long)pi->num);
	return 0;
}

static int show_cpu_mask(struct pfs_inode *pi, struct seqbuf *out)
{
	uint64_t m = pi->num < 64 ? 1ULL << pi->num : 0;

	if (ncpus() > 32)
		seq_printf(out, "%08x,%08x\n", (unsigned)(m >> 32), (unsigned)m);
	else
		seq_printf(out, "%x\n", (unsigned)m);
	return 0;
}

static int show_all_mask(struct pfs_inode *pi, struct seqbuf *out)
{
	uint64_t m = ncpus() >= 64 ? ~0ULL : (1ULL << ncpus()) - 1;

	(void)pi;
	if (ncpus() > 32)
		seq_printf(out, "%08x,%08x\n", (unsigned)(m >> 32), (unsigned)m);
	else
		seq_printf(out, "%x\n", (unsigned)m);
	return 0;
}

static int show_kernel_max(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%u\n", ncpus() - 1);
	return 0;
}

static const struct pfs_node topology_nodes[] = {
	FILE_SHOW("core_cpus", show_cpu_mask),
	FILE_SHOW("core_cpus_list", show_cpu_num),
	FILE_SHOW("core_id", show_cpu_num),
	FILE_SHOW("core_siblings", show_all_mask),
	FILE_SHOW("core_siblings_list", show_cpu_range),
	TEXT("die_id", "0\n"),
	FILE_SHOW("package_cpus", show_all_mask),
	FILE_SHOW("package_cpus_list", show_cpu_range),
	TEXT("physical_package_id", "0\n"),
	FILE_SHOW("thread_siblings", show_cpu_mask),
	FILE_SHOW("thread_siblings_list", show_cpu_num),
	END,
};

#define CACHE(id, lvl, kind, kb, map, list)                                              \
	static const struct pfs_node cache_##id[] = {                                    \
		TEXT("coherency_line_size", "64\n"), TEXT("level", lvl "\n"),            \
		FILE_SHOW("shared_cpu_list", list), FILE_SHOW("shared_cpu_map", map),    \
		TEXT("size", kb "K\n"), TEXT("type", kind "\n"), END,                    \
	}
CACHE(0, "1", "Data", "32", show_cpu_mask, show_cpu_num);
CACHE(1, "1", "Instruction", "32", show_cpu_mask, show_cpu_num);
CACHE(2, "2", "Unified", "1024", show_cpu_mask, show_cpu_num);
CACHE(3, "3", "Unified", "8192", show_all_mask, show_cpu_range);

static const struct pfs_node cache_nodes[] = {
	DIR("index0", cache_0), DIR("index1", cache_1), DIR("index2", cache_2), DIR("index3", cache_3),
	END,
};

static const struct pfs_node cpun_nodes[] = {
	DIR("cache", cache_nodes),
	TEXT("online", "1\n"),
	DIR("topology", topology_nodes),
	END,
};

static const struct pfs_node cpun_node = {
	.name = "cpu",
	.mode = S_IFDIR | 0755,
	.children = cpun_nodes,
};

static struct inode *cpu_lookup(struct pfs_inode *dir, const char *name)
{
	int64_t n;

	if (strncmp(name, "cpu", 3) != 0 || name[3] < '0' || name[3] > '9' ||
	    pfs_parse(name + 3, 0, (int64_t)ncpus() - 1, &n))
		return NULL;
	return pfs_inode_create(dir, &cpun_node, name, NULL, NULL, n);
}

static int cpu_iterate(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key)
{
	char name[24];

	for (; key < (int64_t)ncpus(); key++) {
		snprintf(name, sizeof(name), "cpu%ld", (long)key);
		if (!pfs_emit(dir, ctx, name, DT_DIR, key))
			break;
	}
	return 0;
}

static const struct pfs_node cpu_nodes[] = {
	TEXT("isolated", "\n"),
	FILE_SHOW("kernel_max", show_kernel_max),
	TEXT("offline", "\n"),
	FILE_SHOW("online", show_cpu_range),
	FILE_SHOW("possible", show_cpu_range),
	FILE_SHOW("present", show_cpu_range),
	END,
};

static const struct pfs_node node0_nodes[] = {
	FILE_SHOW("cpulist", show_cpu_range),
	FILE_SHOW("cpumap", show_all_mask),
	TEXT("distance", "10\n"),
	END,
};

static const struct pfs_node numa_nodes[] = {
	TEXT("has_cpu", "0\n"), TEXT("has_memory", "0\n"), DIR("node0", node0_nodes),
	TEXT("online", "0\n"), TEXT("possible", "0\n"), END,
};

static const struct pfs_node system_nodes[] = {
	{ .name = "cpu", .mode = S_IFDIR | 0755, .children = cpu_nodes, .lookup = cpu_lookup,
	  .iterate = cpu_iterate },
	DIR("node", numa_nodes),
	END,
};

/* ---- network ---- */

static const struct pfs_node lo_stat_nodes[] = {
	TEXT("rx_bytes", "0\n"), TEXT("rx_dropped", "0\n"), TEXT("rx_errors", "0\n"),
	TEXT("rx_packets", "0\n"), TEXT("tx_bytes", "0\n"), TEXT("tx_dropped", "0\n"),
	TEXT("tx_errors", "0\n"), TEXT("tx_packets", "0\n"), END,
};

static const struct pfs_node lo_nodes[] = {
	TEXT("addr_len", "6\n"), TEXT("address", "00:00:00:00:00:00\n"),
	TEXT("broadcast", "00:00:00:00:00:00\n"), TEXT("carrier", "1\n"), TEXT("dev_id", "0x0\n"),
	TEXT("flags", "0x9\n"), TEXT("ifindex", "1\n"), TEXT("iflink", "1\n"), TEXT("mtu", "65536\n"),
	TEXT("operstate", "unknown\n"), DIR("statistics", lo_stat_nodes),
	TEXT("tx_queue_len", "1000\n"), TEXT("type", "772\n"), TEXT("uevent", "INTERFACE=lo\nIFINDEX=1\n"),
	END,
};

static const struct pfs_node virtual_net_nodes[] = { DIR("lo", lo_nodes), END };

static const struct pfs_node mem_null_nodes[] = {
	TEXT("dev", "1:3\n"),
	TEXT("uevent", "MAJOR=1\nMINOR=3\nDEVNAME=null\nDEVMODE=0666\n"),
	END,
};

static const struct pfs_node virtual_mem_nodes[] = { DIR("null", mem_null_nodes), END };
static const struct pfs_node virtual_nodes[] = {
	DIR("mem", virtual_mem_nodes), DIR("net", virtual_net_nodes), END,
};

static const struct pfs_node devices_nodes[] = {
	DIR("system", system_nodes), DIR("virtual", virtual_nodes), END,
};

static const struct pfs_node class_net_nodes[] = {
	LINK("lo", "../../devices/virtual/net/lo"),
	END,
};
static const struct pfs_node class_mem_nodes[] = {
	LINK("null", "../../devices/virtual/mem/null"),
	END,
};
static const struct pfs_node class_nodes[] = {
	EMPTY("block"), EMPTY("dmi"), EMPTY("hwmon"), DIR("mem", class_mem_nodes),
	DIR("net", class_net_nodes), EMPTY("power_supply"), EMPTY("thermal"), EMPTY("tty"), END,
};

static const struct pfs_node dev_char_nodes[] = {
	LINK("1:3", "../../devices/virtual/mem/null"),
	END,
};
static const struct pfs_node dev_nodes[] = { EMPTY("block"), DIR("char", dev_char_nodes), END };

static const struct pfs_node bus_cpu_nodes[] = { EMPTY("devices"), EMPTY("drivers"), END };
static const struct pfs_node bus_nodes[] = {
	DIR("cpu", bus_cpu_nodes), DIR("pci", bus_cpu_nodes), DIR("usb", bus_cpu_nodes), END,
};

/* ---- kernel ---- */

static const struct pfs_node thp_nodes[] = {
	TEXT("defrag", "always defer defer+madvise [madvise] never\n"),
	TEXT("enabled", "always [madvise] never\n"),
	TEXT("hpage_pmd_size", "2097152\n"),
	TEXT("shmem_enabled", "always within_size advise [never] deny force\n"),
	TEXT("use_zero_page", "1\n"),
	END,
};

static const struct pfs_node huge2m_nodes[] = {
	TEXT("free_hugepages", "0\n"), TEXT("nr_hugepages", "0\n"),
	TEXT("nr_overcommit_hugepages", "0\n"), TEXT("resv_hugepages", "0\n"),
	TEXT("surplus_hugepages", "0\n"), END,
};
static const struct pfs_node huge_nodes[] = { DIR("hugepages-2048kB", huge2m_nodes), END };
static const struct pfs_node ksm_nodes[] = { TEXT("run", "0\n"), END };
static const struct pfs_node kmm_nodes[] = {
	DIR("hugepages", huge_nodes), DIR("ksm", ksm_nodes), DIR("transparent_hugepage", thp_nodes), END,
};
static const struct pfs_node cgroup_feat_nodes[] = {
	TEXT("delegate", "cgroup.procs\ncgroup.threads\ncgroup.subtree_control\n"),
	TEXT("features", "nsdelegate\n"),
	END,
};
static const struct pfs_node kernel_nodes[] = {
	DIR("cgroup", cgroup_feat_nodes), EMPTY("config"), EMPTY("debug"), EMPTY("iommu_groups"),
	DIR("mm", kmm_nodes), TEXT("profiling", "0\n"), EMPTY("security"), EMPTY("tracing"),
	TEXT("uevent_helper", "\n"), TEXT("uevent_seqnum", "1\n"), END,
};

static const struct pfs_node fs_nodes[] = {
	EMPTY("bpf"), EMPTY("cgroup"), EMPTY("ext4"), EMPTY("fuse"), EMPTY("selinux"), END,
};
static const struct pfs_node power_nodes[] = { TEXT("state", "\n"), END };

static const struct pfs_node root_nodes[] = {
	EMPTY("block"), DIR("bus", bus_nodes), DIR("class", class_nodes), DIR("dev", dev_nodes),
	DIR("devices", devices_nodes), EMPTY("firmware"), DIR("fs", fs_nodes), EMPTY("hypervisor"),
	DIR("kernel", kernel_nodes), EMPTY("module"), DIR("power", power_nodes), END,
};

static const struct pfs_node root_node = {
	.name = "",
	.mode = S_IFDIR | 0555,
	.children = root_nodes,
};

static struct super *sysfs_mount(struct task *t, const char *source, unsigned long flags,
				 const char *data);

static struct fs_type sysfs_type = {
	.name = "sysfs",
	.nodev = true,
	.userns_ok = true,
	.mount = sysfs_mount,
};

static struct super *sysfs_mount(struct task *t, const char *source, unsigned long flags,
				 const char *data)
{
	struct super *sb = kzalloc(sizeof(*sb));

	(void)t, (void)data;
	super_init(sb, &pfs_super_ops, &sysfs_type, SYSFS_MAGIC, flags);
	sb->source = kstrdup(source ? source : "sysfs");
	pfs_set_root(sb, &root_node, SYSFS_ROOT_INO);
	return sb;
}

static const struct pfs_root saved_roots[] = {
	{ .name = "sys", .node = &root_node, .super = &state_super_pfs },
	{ .name = "cpu", .node = &cpun_node, .super = &state_super_pfs },
};

void sysfs_init(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(saved_roots); i++)
		pfs_register(&saved_roots[i]);
	fs_register(&sysfs_type);
}
