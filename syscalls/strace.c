// SPDX-License-Identifier: Apache-2.0
/*
 * --strace: one decoded line for each call of the guest. The argument kinds of table.def say how
 * each argument is shown. Guest memory is read after the call and only to be shown, so a guest that
 * changes it meanwhile deceives the log, never the sentry.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/log.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

#define SHOW_BYTES 32
#define SHOW_PATH 256
#define SHOW_ARGV 8

static const char *const kinds_of[SYSCALL_MAX] = {
#define SYSCALL(nr, name, kinds) [nr] = (kinds),
#define NOSYS(nr, name)
#include "syscalls/table.def"
#undef SYSCALL
#undef NOSYS
};

struct flag_name {
	uint64_t bit;
	const char *name;
};

#define F(x) { (uint64_t)(x), #x }
static const struct flag_name open_flags[] = {
	F(O_WRONLY), F(O_RDWR), F(O_CREAT), F(O_EXCL), F(O_NOCTTY), F(O_TRUNC), F(O_APPEND),
	F(O_NONBLOCK), F(O_DIRECTORY), F(O_NOFOLLOW), F(O_CLOEXEC), F(O_PATH), F(O_DIRECT), { 0 },
};
static const struct flag_name prot_flags[] = { F(PROT_READ), F(PROT_WRITE), F(PROT_EXEC), { 0 } };
static const struct flag_name map_flags[] = {
	F(MAP_SHARED), F(MAP_PRIVATE), F(MAP_FIXED), F(MAP_ANONYMOUS), F(MAP_GROWSDOWN),
	F(MAP_NORESERVE), F(MAP_POPULATE), F(MAP_STACK), F(MAP_FIXED_NOREPLACE), { 0 },
};
static const struct flag_name clone_flags[] = {
	F(CLONE_VM), F(CLONE_FS), F(CLONE_FILES), F(CLONE_SIGHAND), F(CLONE_VFORK),
	F(CLONE_PARENT), F(CLONE_THREAD), F(CLONE_NEWNS), F(CLONE_SYSVSEM), F(CLONE_SETTLS),
	F(CLONE_PARENT_SETTID), F(CLONE_CHILD_CLEARTID), F(CLONE_CHILD_SETTID), F(CLONE_NEWUTS),
	F(CLONE_NEWIPC), F(CLONE_NEWUSER), F(CLONE_NEWPID), F(CLONE_NEWNET), { 0 },
};
#undef F

static void show_flags(struct seqbuf *s, uint64_t v, const struct flag_name *names)
{
	const char *sep = "";

	for (; names->name; names++)
		if ((v & names->bit) == names->bit && names->bit) {
			seq_printf(s, "%s%s", sep, names->name);
			v &= ~names->bit;
			sep = "|";
		}
	if (v || !*sep)
		seq_printf(s, "%s0x%lx", sep, v);
}

static void show_quoted(struct seqbuf *s, const char *p, size_t n, bool cut)
{
	seq_putc(s, '"');
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];

		if (c == '\n')
			seq_printf(s, "\\n");
		else if (c == '"' || c == '\\')
			seq_printf(s, "\\%c", c);
		else if (c < 32 || c > 126)
			seq_printf(s, "\\x%02x", c);
		else
			seq_putc(s, (char)c);
	}
	seq_printf(s, cut ? "\"..." : "\"");
}

static void show_str(struct task *t, struct seqbuf *s, gaddr_t a)
{
	char buf[SHOW_PATH];
	ssize_t n;

	if (gaddr_is_null(a)) {
		seq_printf(s, "NULL");
		return;
	}
	n = t->mm ? copyin_str(t, buf, a, sizeof(buf), -ENAMETOOLONG) : -EFAULT;
	if (n >= 0)
		show_quoted(s, buf, (size_t)n, false);
	else
		seq_printf(s, "0x%lx", gaddr_u64(a));
}

static void show_buf(struct task *t, struct seqbuf *s, gaddr_t a, uint64_t len)
{
	char buf[SHOW_BYTES];
	size_t n = MIN(len, sizeof(buf));

	if (gaddr_is_null(a) || !t->mm || copyin(t, buf, a, n))
		seq_printf(s, "0x%lx", gaddr_u64(a));
	else
		show_quoted(s, buf, n, len > n);
}

static void show_argv(struct task *t, struct seqbuf *s, gaddr_t a)
{
	uint64_t p;

	/* After a successful exec the old image is gone: only the address is left. */
	if (gaddr_is_null(a) || !t->mm || copyin_obj(t, &p, a)) {
		seq_printf(s, "0x%lx", gaddr_u64(a));
		return;
	}
	seq_putc(s, '[');
	for (unsigned i = 0; i < SHOW_ARGV && p; i++) {
		seq_printf(s, i ? ", " : "");
		show_str(t, s, gaddr(p));
		if (copyin_obj(t, &p, gaddr_off(a, (i + 1) * 8UL)))
			break;
	}
	seq_printf(s, p ? ", ...]" : "]");
}

static void show_sockaddr(struct task *t, struct seqbuf *s, gaddr_t a)
{
	struct sockaddr sa;

	if (gaddr_is_null(a) || !t->mm || copyin_obj(t, &sa, a))
		seq_printf(s, "0x%lx", gaddr_u64(a));
	else if (sa.sa_family == AF_UNIX) {
		seq_printf(s, "{AF_UNIX, ");
		show_str(t, s, gaddr_off(a, 2));
		seq_putc(s, '}');
	} else {
		seq_printf(s, "{family %u}", sa.sa_family);
	}
}

static void show_timespec(struct task *t, struct seqbuf *s, gaddr_t a)
{
	struct l_timespec ts;

	if (gaddr_is_null(a))
		seq_printf(s, "NULL");
	else if (!t->mm || copyin_obj(t, &ts, a))
		seq_printf(s, "0x%lx", gaddr_u64(a));
	else
		seq_printf(s, "{%ld.%09ld}", ts.tv_sec, ts.tv_nsec);
}

static void show_signal(struct seqbuf *s, uint64_t v)
{
	const char *name = v < NSIG_GUEST ? sigabbrev_np((int)v) : NULL;

	if (name)
		seq_printf(s, "SIG%s", name);
	else
		seq_printf(s, "%d", (int)v);
}

/* Does @kind (up to a space) equal @name? */
static bool is(const char *kind, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(kind, name, n) && (kind[n] == ' ' || kind[n] == 0);
}

static void show_memory_arg(struct task *t, struct seqbuf *s, const char *kind, gaddr_t a,
			    uint64_t next, long ret)
{
	if (is(kind, "path") || is(kind, "str"))
		show_str(t, s, a);
	else if (is(kind, "buf"))
		show_buf(t, s, a, next);
	else if (is(kind, "outbuf"))
		show_buf(t, s, a, ret > 0 ? (uint64_t)ret : 0);
	else if (is(kind, "argv"))
		show_argv(t, s, a);
	else if (is(kind, "sockaddr"))
		show_sockaddr(t, s, a);
	else if (is(kind, "timespec"))
		show_timespec(t, s, a);
	else
		seq_printf(s, gaddr_is_null(a) ? "NULL" : "0x%lx", gaddr_u64(a));
}

static void show_arg(struct task *t, struct seqbuf *s, const char *kind, const struct sysargs *a,
		     int i, long ret)
{
	uint64_t v = a->v[i];

	if (is(kind, "fd") || is(kind, "int"))
		seq_printf(s, "%d", (int)v);
	else if (is(kind, "uint"))
		seq_printf(s, "%u", (unsigned)v);
	else if (is(kind, "size"))
		seq_printf(s, "%lu", v);
	else if (is(kind, "long"))
		seq_printf(s, "%ld", (long)v);
	else if (is(kind, "hex") || is(kind, "ioctl") || is(kind, "fcntl") || is(kind, "futexop") ||
		 is(kind, "whence"))
		seq_printf(s, "0x%lx", v);
	else if (is(kind, "mode"))
		seq_printf(s, "0%o", (unsigned)v);
	else if (is(kind, "dirfd"))
		seq_printf(s, (int)v == AT_FDCWD ? "AT_FDCWD" : "%d", (int)v);
	else if (is(kind, "oflags"))
		show_flags(s, v, open_flags);
	else if (is(kind, "prot"))
		show_flags(s, v, prot_flags);
	else if (is(kind, "mapflags"))
		show_flags(s, v, map_flags);
	else if (is(kind, "cloneflags"))
		show_flags(s, v, clone_flags);
	else if (is(kind, "sig"))
		show_signal(s, v);
	else
		show_memory_arg(t, s, kind, gaddr(v), i < 5 ? a->v[i + 1] : 0, ret);
}

static void show_result(struct seqbuf *s, long ret)
{
	const char *name = ret < 0 && ret >= -MAX_ERRNO ? strerrorname_np((int)-ret) : NULL;

	if (name)
		seq_printf(s, ") = -1 %s", name);
	else if (ret <= -ERESTARTSYS && ret >= -ERESTART_RESTARTBLOCK)
		seq_printf(s, ") = ? (interrupted)");
	else if (ret > 0x100000)
		seq_printf(s, ") = 0x%lx", (unsigned long)ret);
	else
		seq_printf(s, ") = %ld", ret);
}

void strace_call(struct task *t, long nr, const struct sysargs *a, long ret)
{
	const char *kind = nr >= 0 && nr < SYSCALL_MAX ? kinds_of[nr] : NULL;
	const char *name = syscall_name(nr);
	struct seqbuf s;

	seq_init(&s);
	if (name)
		seq_printf(&s, "[%d] %s(", task_tid(t), name);
	else
		seq_printf(&s, "[%d] syscall_%ld(", task_tid(t), nr);
	for (int i = 0; kind && *kind && i < 6; i++) {
		seq_printf(&s, i ? ", " : "");
		show_arg(t, &s, kind, a, i, ret);
		kind = strchr(kind, ' ');
		kind = kind ? kind + 1 : NULL;
	}
	show_result(&s, ret);
	seq_putc(&s, 0);
	log_msg(LOG_INFO, "strace: %s", s.buf);
	seq_fini(&s);
}
