// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/config.gz: which of Linux's build options this kernel answers to.
 *
 * Programs (and the Linux Test Project) look here before they use an optional part of the kernel, so every
 * line says what a call really does here: =y where the part works, "is not set" where its calls answer as a
 * kernel built without it. What a reader can't ask a call about (compilers, drivers) is left out.
 * The list changes together with what it describes.
 *
 * The file must be in gzip format, not small: the text goes into one stored block (RFC 1951, 3.2.4), which
 * needs no compressor. A stored block holds at most 64 KiB.
 */
#include <stdint.h>
#include <string.h>

#include "sentry/fs/proc/proc_priv.h"

#define YES(name) "CONFIG_" name "=y\n"
#define NO(name) "# CONFIG_" name " is not set\n"

static const char config_text[] =
	"#\n# holdfast: what is here of Linux's options\n#\n"
	YES("64BIT") YES("X86_64") YES("X86") YES("SMP") YES("MMU") YES("MULTIUSER")
	YES("SYSVIPC") YES("SYSVIPC_SYSCTL") YES("POSIX_MQUEUE") YES("POSIX_MQUEUE_SYSCTL")
	YES("CROSS_MEMORY_ATTACH") NO("BSD_PROCESS_ACCT") NO("TASKSTATS") NO("AUDIT")
	YES("IKCONFIG") YES("IKCONFIG_PROC")
	/* control groups and namespaces */
	YES("CGROUPS") YES("MEMCG") YES("CPUSETS") YES("CGROUP_PIDS") NO("CGROUP_BPF")
	YES("NAMESPACES") YES("UTS_NS") NO("TIME_NS") YES("IPC_NS") YES("USER_NS") YES("PID_NS")
	YES("NET_NS") NO("CHECKPOINT_RESTORE")
	/* calls */
	YES("POSIX_TIMERS") YES("FUTEX") YES("FUTEX_PI") YES("EPOLL") YES("SIGNALFD") YES("TIMERFD")
	YES("EVENTFD") YES("SHMEM") YES("ADVISE_SYSCALLS") NO("MEMBARRIER") YES("KCMP") YES("RSEQ")
	YES("MEMFD_CREATE") YES("FILE_LOCKING") NO("FHANDLE") YES("HIGH_RES_TIMERS")
	YES("SECCOMP") YES("SECCOMP_FILTER") NO("ELF_CORE")
	NO("AIO") NO("IO_URING") NO("USERFAULTFD") NO("BPF_SYSCALL") NO("PERF_EVENTS")
	NO("KEYS") NO("MODULES") NO("KEXEC") NO("KEXEC_FILE") NO("SWAP") NO("NUMA")
	NO("MODIFY_LDT_SYSCALL") NO("UID16") NO("SYSFS_SYSCALL") NO("X86_IOPL_IOPERM")
	NO("SECURITY_LANDLOCK") NO("SECRETMEM") NO("CACHESTAT_SYSCALL") NO("IA32_EMULATION")
	NO("X86_X32_ABI") NO("KPROBES") NO("FTRACE") NO("MEMORY_FAILURE") NO("HUGETLBFS")
	NO("KSM")
	/* programs */
	YES("BINFMT_ELF") YES("BINFMT_SCRIPT") NO("BINFMT_MISC") NO("COREDUMP")
	/* file systems and devices */
	YES("PROC_FS") YES("PROC_SYSCTL") YES("PROC_CHILDREN") YES("SYSFS") YES("TMPFS")
	YES("TMPFS_XATTR") NO("TMPFS_POSIX_ACL") NO("TMPFS_QUOTA") YES("OVERLAY_FS")
	YES("DEVTMPFS") YES("TTY") YES("UNIX98_PTYS") NO("LEGACY_PTYS") YES("INOTIFY_USER")
	YES("DNOTIFY") NO("FANOTIFY") NO("QUOTA") NO("BLK_DEV_LOOP") NO("BLK_DEV_RAM") NO("FUSE_FS")
	NO("FS_VERITY") NO("FS_ENCRYPTION")
	/* network */
	YES("NET") YES("UNIX") NO("INET") NO("IPV6") NO("PACKET") NO("NETFILTER") NO("TUN") NO("VETH");

_Static_assert(sizeof(config_text) - 1 <= UINT16_MAX, "one stored block");

/* CRC-32 of RFC 1952, bit by bit: the text is short and rarely read. */
static uint32_t crc32(const unsigned char *p, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ ((crc & 1) ? 0xedb88320U : 0);
	}
	return ~crc;
}

static void put_le(struct seqbuf *out, uint32_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		seq_putc(out, (char)(v >> (8 * i)));
}

int proc_show_config(struct pfs_inode *pi, struct seqbuf *out)
{
	/* magic, deflate, no flags, no time, no hint, from Unix */
	static const char head[10] = { 0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3 };
	uint32_t len = sizeof(config_text) - 1;

	(void)pi;
	seq_write(out, head, sizeof(head));
	put_le(out, 1, 1); /* last block, stored */
	put_le(out, len, 2);
	put_le(out, ~len, 2);
	seq_write(out, config_text, len);
	put_le(out, crc32((const unsigned char *)config_text, len), 4);
	put_le(out, len, 4);
	return 0;
}
