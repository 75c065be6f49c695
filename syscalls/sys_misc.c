// SPDX-License-Identifier: Apache-2.0
/* The machine as a whole: uname, names, sysinfo, random numbers, and what a container may not do. */
#include <linux/capability.h>
#include <linux/random.h>
#include <linux/reboot.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mfile.h"
#include "sentry/time/clock.h"
#include "syscalls/sys.h"

struct l_utsname {
	char sysname[UTS_LEN], nodename[UTS_LEN], release[UTS_LEN], version[UTS_LEN];
	char machine[UTS_LEN], domainname[UTS_LEN];
};
_Static_assert(sizeof(struct l_utsname) == 390, "struct new_utsname is 390 bytes");

#define PER_UNAME26 0x0020000
#define PER_MASK_G 0xffu
#define PER_LINUX32_G 8u

long sys_uname(struct task *t, const struct sysargs *a)
{
	struct utsns *u = t->ns->uts;
	struct l_utsname n = { .sysname = KERNEL_SYSNAME, .machine = KERNEL_MACHINE };

	strncpy(n.release, t->personality & PER_UNAME26 ? "2.6.72" : kernel.release,
		UTS_LEN - 1);
	strncpy(n.version, kernel.version, UTS_LEN - 1);
	if ((t->personality & PER_MASK_G) == PER_LINUX32_G) /* for builds that ask what they run on */
		memcpy(n.machine, "i686", sizeof("i686"));
	mutex_lock(&u->mu);
	memcpy(n.nodename, u->nodename, UTS_LEN);
	memcpy(n.domainname, u->domainname, UTS_LEN);
	mutex_unlock(&u->mu);
	return copyout_obj(t, arg_gaddr(a, 0), &n);
}

static long set_name(struct task *t, const struct sysargs *a, bool domain)
{
	struct utsns *u = t->ns->uts;
	char buf[UTS_LEN] = { 0 };
	int len = arg_int(a, 1);

	if (!cred_capable_in(t->cred, u->userns, CAP_SYS_ADMIN))
		return -EPERM;
	if (len < 0 || len > UTS_LEN - 1)
		return -EINVAL;
	if (copyin(t, buf, arg_gaddr(a, 0), (size_t)len))
		return -EFAULT;
	mutex_lock(&u->mu);
	memcpy(domain ? u->domainname : u->nodename, buf, UTS_LEN);
	mutex_unlock(&u->mu);
	return 0;
}

long sys_sethostname(struct task *t, const struct sysargs *a)
{
	return set_name(t, a, false);
}

long sys_setdomainname(struct task *t, const struct sysargs *a)
{
	return set_name(t, a, true);
}

struct l_sysinfo {
	int64_t uptime;
	uint64_t loads[3], totalram, freeram, sharedram, bufferram, totalswap, freeswap;
	uint16_t procs, pad;
	uint32_t pad2;
	uint64_t totalhigh, freehigh;
	uint32_t mem_unit, pad3;
};
_Static_assert(sizeof(struct l_sysinfo) == 112, "struct sysinfo is 112 bytes");

long sys_sysinfo(struct task *t, const struct sysargs *a)
{
	uint64_t total = proc_mem_total(); /* as /proc/meminfo has it */
	struct l_sysinfo s = {
		.uptime = clock_boottime_ns() / NSEC_PER_SEC,
		.totalram = total,
		.freeram = proc_mem_free(),
		.procs = (uint16_t)MIN(atomic_load(&kernel.ntasks), 65535u),
		.mem_unit = 1,
	};

	return copyout_obj(t, arg_gaddr(a, 0), &s);
}

#define RANDOM_CHUNK 4096

long sys_getrandom(struct task *t, const struct sysargs *a)
{
	size_t len = MIN(arg_size(a, 1), (size_t)INT32_MAX), done = 0;
	uint8_t buf[RANDOM_CHUNK];
	unsigned flags = arg_u32(a, 2);

	if (flags & ~(unsigned)(GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE))
		return -EINVAL;
	if ((flags & (GRND_RANDOM | GRND_INSECURE)) == (GRND_RANDOM | GRND_INSECURE))
		return -EINVAL;
	while (done < len) {
		size_t n = MIN(len - done, sizeof(buf));

		kernel_random(buf, n);
		if (copyout(t, gaddr_off(arg_gaddr(a, 0), done), buf, n))
			return done ? (long)done : -EFAULT;
		done += n;
		if (done < len && signal_pending(t))
			break;
	}
	explicit_bzero(buf, sizeof(buf));
	return (long)done;
}

/* The kernel's log: empty, and reading it needs what it needs with dmesg_restrict. */
long sys_syslog(struct task *t, const struct sysargs *a)
{
	int type = arg_int(a, 0);

	if (type < 0 || type > 10)
		return -EINVAL;
	if (type != 3 && type != 10 && !task_capable(t, CAP_SYSLOG))
		return -EPERM;
	if (type >= 2 && type <= 4 &&
	    (gaddr_is_null(arg_gaddr(a, 1)) || arg_int(a, 2) < 0))
		return -EINVAL;
	if (type == 8 && (arg_int(a, 2) < 1 || arg_int(a, 2) > 8))
		return -EINVAL;
	return 0;
}

/* Restartable sequences: as a kernel without CONFIG_RSEQ. glibc copes. */
long sys_rseq(struct task *t, const struct sysargs *a)
{
	(void)t;
	(void)a;
	return -ENOSYS;
}

long sys_iopl(struct task *t, const struct sysargs *a)
{
	(void)t;
	return arg_u32(a, 0) > 3 ? -EINVAL : arg_u32(a, 0) == 0 ? 0 : -EPERM;
}

long sys_ioperm(struct task *t, const struct sysargs *a)
{
	uint64_t from = arg_u64(a, 0), n = arg_u64(a, 1), end;

	(void)t;
	if (__builtin_add_overflow(from, n, &end) || end <= from || end > 65536)
		return -EINVAL;
	return arg_int(a, 2) ? -EPERM : 0;
}

/* man 2 reboot, "Behavior inside PID namespaces": the namespace's init dies of SIGHUP or SIGINT. */
long sys_reboot(struct task *t, const struct sysargs *a)
{
	uint32_t m2 = arg_u32(a, 1), cmd = arg_u32(a, 2);
	struct pidns *ns = task_pidns(t);
	int status;

	if (!cred_capable_in(t->cred, ns->userns, CAP_SYS_BOOT))
		return -EPERM;
	if (arg_u32(a, 0) != LINUX_REBOOT_MAGIC1 ||
	    (m2 != LINUX_REBOOT_MAGIC2 && m2 != LINUX_REBOOT_MAGIC2A &&
	     m2 != LINUX_REBOOT_MAGIC2B && m2 != LINUX_REBOOT_MAGIC2C))
		return -EINVAL;
	switch (cmd) {
	case LINUX_REBOOT_CMD_RESTART:
	case LINUX_REBOOT_CMD_RESTART2:
		status = SIGHUP;
		break;
	case LINUX_REBOOT_CMD_HALT:
	case LINUX_REBOOT_CMD_POWER_OFF:
		status = SIGINT;
		break;
	case LINUX_REBOOT_CMD_CAD_ON:
	case LINUX_REBOOT_CMD_CAD_OFF:
	default:
		return -EINVAL;
	}
	mutex_lock(&kernel.tasks_mu);
	if (ns->init)
		tgroup_kill_locked(ns->init->tg, status);
	mutex_unlock(&kernel.tasks_mu);
	return 0;
}
