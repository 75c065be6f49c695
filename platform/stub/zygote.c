// SPDX-License-Identifier: Apache-2.0
/*
 * The zygote: the process that makes stubs. It is started unconfined by the launcher
 * (platform/zygote.c), strips itself to its own image, and then answers one kind of request from the
 * sentry: clone a stub. It never runs guest code and never parses anything that a guest wrote.
 *
 * Freestanding: no libc, no thread pointer, its stack is an array below. Built with STUB_CFLAGS.
 *
 * Stubs are made by clone(CLONE_PARENT), so they are children of the sentry: it can reap them, and
 * Yama's ptrace_scope=1 lets it trace them.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "platform/stub/layout.h"

#define SA_RESTORER_BIT 0x04000000

#define ZYG_SOCK_FD 0
#define ZYG_OPS_FD  1
#define ZYG_CTX_FD  2 /* trap */

extern const char stub_rt[];
void zygote_main(const uintptr_t *sp) __attribute__((noreturn, used));

/* The first bytes of STUB_DATA: STUB_CMSG. */
__attribute__((section(".stubmsg"), used)) static char cmsg_area[0x100];

#define ZYGOTE_STACK 16384
__attribute__((aligned(16), used)) char zygote_stack[ZYGOTE_STACK];
__asm__(".globl zygote_stack_top\n.set zygote_stack_top, zygote_stack + 16384");

static long sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#define SYS3(nr, a, b, c)       sys6((nr), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS5(nr, a, b, c, d, e) sys6((nr), (long)(a), (long)(b), (long)(c), (d), (e), 0)

static void die(int code) __attribute__((noreturn));
static void die(int code)
{
	for (;;)
		SYS3(SYS_exit_group, code, 0, 0);
}

/* ---- filters ----
 *
 * Both look at the architecture, then at where the instruction is, then at the number. A call from
 * anywhere else raises SIGSYS (the tracer sees it, an untraced process dies of it). The stub's list is
 * stacked on the zygote's, and the kernel takes the stricter answer of the two.
 */
#define ARG_LO(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define ARG_HI(n) (ARG_LO(n) + 4)
#define IP_LO     offsetof(struct seccomp_data, instruction_pointer)

#define LOAD(off)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (off))
#define RET(v)       BPF_STMT(BPF_RET | BPF_K, (v))
#define JEQ(v, t, f) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(v), (t), (f))
#define AND(v)       BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)(v))
#define ALLOW_NR(nr) JEQ((nr), 0, 1), RET(SECCOMP_RET_ALLOW)
#define CHECK_ARCH                                                        \
 LOAD(offsetof(struct seccomp_data, arch)), JEQ(AUDIT_ARCH_X86_64, 1, 0), \
	 RET(SECCOMP_RET_KILL_PROCESS)
/* The texts are aligned to their sizes, so one masked compare tells. */
#define CHECK_IP(base, size, refusal)                                    \
 LOAD(IP_LO + 4), JEQ((base) >> 32, 1, 0), RET(refusal), LOAD(IP_LO),    \
	 AND(~((size)-1)), JEQ((uint32_t)(base), 1, 0), RET(refusal)
/* clone with exactly these flags. The number is lost: comes last. */
#define ALLOW_CLONE(flags)                                              \
 LOAD(ARG_HI(0)), JEQ(0, 1, 0), RET(SECCOMP_RET_TRAP), LOAD(ARG_LO(0)), \
	 JEQ((flags), 0, 1), RET(SECCOMP_RET_ALLOW)

/* SECCOMP_RET_TRAP for the wrong architecture: what that means is up to the stub's own filter. */
static const struct sock_filter zygote_filter[] = {
	LOAD(offsetof(struct seccomp_data, arch)),
	JEQ(AUDIT_ARCH_X86_64, 1, 0),
	RET(SECCOMP_RET_TRAP),
	CHECK_IP(STUB_BASE, STUB_TEXT_SIZE, SECCOMP_RET_TRAP),
	LOAD(offsetof(struct seccomp_data, nr)),
	/* the zygote's own */
	ALLOW_NR(SYS_sendmsg),
	ALLOW_NR(SYS_socketpair),
	ALLOW_NR(SYS_dup2),
	ALLOW_NR(SYS_seccomp),
	ALLOW_NR(SYS_exit_group),
	ALLOW_NR(SYS_rt_sigaction),
	ALLOW_NR(SYS_sendto),
	ALLOW_NR(SYS_set_tid_address),
	/* what stubs need stays allowed here */
	ALLOW_NR(SYS_futex),
	ALLOW_NR(SYS_rt_sigreturn),
	ALLOW_NR(SYS_sigaltstack),
	ALLOW_NR(SYS_rt_sigprocmask),
	ALLOW_NR(SYS_mmap),
	ALLOW_NR(SYS_munmap),
	ALLOW_NR(SYS_mprotect),
	ALLOW_NR(SYS_madvise),
	ALLOW_NR(SYS_recvmsg),
	ALLOW_NR(SYS_close),
	ALLOW_NR(SYS_pause),
	ALLOW_NR(SYS_exit),
	JEQ(SYS_prctl, 0, 4),
	LOAD(ARG_LO(0)),
	JEQ(PR_SET_PDEATHSIG, 1, 0),
	RET(SECCOMP_RET_TRAP),
	RET(SECCOMP_RET_ALLOW),
	JEQ(SYS_clone, 1, 0),
	RET(SECCOMP_RET_TRAP),
	ALLOW_CLONE(STUB_FORK_FLAGS),
	ALLOW_CLONE(STUB_MAPPER_FLAGS),
	ALLOW_CLONE(STUB_TRAP_FLAGS),
	ALLOW_CLONE(STUB_THREAD_FLAGS),
	RET(SECCOMP_RET_TRAP),
};

static const struct sock_filter stub_filter[] = {
	CHECK_ARCH,
	CHECK_IP(STUB_BASE, STUB_CODE_SIZE, SECCOMP_RET_TRAP),
	LOAD(offsetof(struct seccomp_data, nr)),
	ALLOW_NR(SYS_mmap),
	ALLOW_NR(SYS_munmap),
	ALLOW_NR(SYS_mprotect),
	ALLOW_NR(SYS_madvise),
	ALLOW_NR(SYS_recvmsg),
	ALLOW_NR(SYS_close),
	ALLOW_NR(SYS_pause),
	ALLOW_NR(SYS_exit),
	JEQ(SYS_clone, 1, 0),
	RET(SECCOMP_RET_TRAP),
	ALLOW_CLONE(STUB_THREAD_FLAGS),
	RET(SECCOMP_RET_TRAP),
};

/*
 * The trap platform's: each entry's reason is in platform/trap/README.md. In data, not in the zygote's
 * text, since that is gone when the second of the two is installed.
 */
static struct sock_filter mapper_filter[] = {
	CHECK_ARCH,
	CHECK_IP(STUB_MAPPER, STUB_CODE_SIZE - STUB_RT_SIZE, SECCOMP_RET_KILL_PROCESS),
	LOAD(offsetof(struct seccomp_data, nr)),
	ALLOW_NR(SYS_mmap),
	ALLOW_NR(SYS_munmap),
	ALLOW_NR(SYS_mprotect),
	ALLOW_NR(SYS_madvise),
	ALLOW_NR(SYS_recvmsg),
	ALLOW_NR(SYS_close),
	ALLOW_NR(SYS_sendto),
	ALLOW_NR(SYS_exit_group),
	JEQ(SYS_futex, 1, 0),
	RET(SECCOMP_RET_KILL_PROCESS),
	LOAD(ARG_LO(1)),
	JEQ(0, 1, 0), /* FUTEX_WAIT */
	RET(SECCOMP_RET_KILL_PROCESS),
	RET(SECCOMP_RET_ALLOW),
};

static struct sock_filter trap_filter[] = {
	LOAD(offsetof(struct seccomp_data, arch)),
	JEQ(AUDIT_ARCH_X86_64, 1, 0),
	RET(SECCOMP_RET_TRAP),
	CHECK_IP(STUB_BASE, STUB_RT_SIZE, SECCOMP_RET_TRAP),
	LOAD(offsetof(struct seccomp_data, nr)),
	ALLOW_NR(SYS_rt_sigreturn),
	ALLOW_NR(SYS_sigaltstack),
	ALLOW_NR(SYS_rt_sigprocmask),
	ALLOW_NR(SYS_exit),
	/* FUTEX_WAIT, FUTEX_WAKE */
	JEQ(SYS_futex, 0, 4),
	LOAD(ARG_LO(1)),
	BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 1, 0, 1),
	RET(SECCOMP_RET_TRAP),
	RET(SECCOMP_RET_ALLOW),
	JEQ(SYS_clone, 1, 0),
	RET(SECCOMP_RET_TRAP),
	ALLOW_CLONE(STUB_TRAP_FLAGS),
	RET(SECCOMP_RET_TRAP),
};

#define COUNT(prog)   ((unsigned short)(sizeof(prog) / sizeof((prog)[0])))
#define INSTALL(prog) install((prog), COUNT(prog))

static struct sock_fprog mapper_prog = { COUNT(mapper_filter), mapper_filter };
static struct sock_fprog trap_prog = { COUNT(trap_filter), trap_filter };

static void install(const struct sock_filter *f, unsigned n)
{
	struct sock_fprog p = { (unsigned short)n, (struct sock_filter *)(uintptr_t)f };

	if (SYS3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
		die(20);
}

/* ---- shedding what exec left us ---- */

/* True when something above us could not be unmapped. A kernel with sealed system mappings refuses to
 * let its vDSO go, and with it the whole range: then take the rest away in pieces. */
static int unmap_all(void)
{
	const long piece = 1L << 20;

	if (SYS3(SYS_munmap, 0, STUB_BASE, 0))
		die(21);
	if (SYS3(SYS_munmap, STUB_DATA + STUB_DATA_SIZE,
		 STUB_END - (STUB_DATA + STUB_DATA_SIZE), 0))
		die(22);
	if (!SYS3(SYS_munmap, STUB_END, STUB_TASK_END - STUB_END, 0))
		return 0;
	for (long a = STUB_END; a < STUB_TASK_END; a += piece) {
		long end = a + piece < STUB_TASK_END ? a + piece : STUB_TASK_END;

		SYS3(SYS_munmap, a, end - a, 0);
	}
	return 1;
}

/* ---- the trap platform ---- */

struct ksigaction {
	uintptr_t handler;
	unsigned long flags;
	uintptr_t restorer;
	uint64_t mask;
};

/* Every signal that tells of the guest's doing, and the one that calls a thread back: to the handler, or
 * (@handler 0) to their default. */
static int take_signals(uintptr_t handler)
{
	static const int sigs[] = { SIGSYS, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGURG };
	struct ksigaction sa = { handler, SA_SIGINFO | SA_ONSTACK | SA_RESTORER_BIT,
				 STUB_BASE + RT_TRAP_RESTORE, ~0UL };

	for (unsigned i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		if (sys6(SYS_rt_sigaction, sigs[i], (long)&sa, 0, 8, 0, 0))
			return -1;
	}
	return 0;
}

/* ---- serving ---- */

static int trap; /* stubs are those of the trap platform */

/* The trap platform's contexts; and no signals from here on, until a guest thread asks for them. */
static void prepare_trap(const struct zyg_req *req)
{
	uint64_t all = ~0UL;
	long r = sys6(SYS_mmap, STUB_CTX, STUB_CTX_AREA, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_FIXED | MAP_NORESERVE, ZYG_CTX_FD, (long)req->ctx_off);

	/* A stub of the other kind ends when its socket does. */
	if (r != STUB_CTX || SYS5(SYS_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0) ||
	    SYS5(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, 0, 8, 0))
		die(27);
	SYS3(SYS_close, ZYG_CTX_FD, 0, 0);
}

/* Goes on in mapper.S. */
static void start_trap(void) __attribute__((noreturn));
static void start_trap(void)
{
	register struct sock_fprog *guest __asm__("r12") = &trap_prog;
	register struct sock_fprog *mapper __asm__("r13") = &mapper_prog;
	register uintptr_t ctx __asm__("r14") = STUB_CTX;

	__asm__ volatile("jmp *%0"
			 :
			 : "r"((uintptr_t)STUB_BASE + RT_TRAP_FIRST), "r"(guest), "r"(mapper),
			   "r"(ctx)
			 : "memory");
	__builtin_unreachable();
}

/* Becomes a stub: the operations page, the socket as descriptor 0, nothing else; the second filter. */
static void become_stub(const struct zyg_req *req, const int pair[2]) __attribute__((noreturn));
static void become_stub(const struct zyg_req *req, const int pair[2])
{
	long r = sys6(SYS_mmap, STUB_OPS, STUB_OPS_SIZE, PROT_READ,
		      MAP_SHARED | MAP_FIXED, ZYG_OPS_FD, (long)req->ops_off);

	if (r != STUB_OPS || SYS3(SYS_dup2, pair[1], STUB_SOCK_FD, 0) < 0)
		die(23);
	if (trap)
		prepare_trap(req);
	SYS3(SYS_close, ZYG_OPS_FD, 0, 0);
	SYS3(SYS_close, pair[0], 0, 0);
	SYS3(SYS_close, pair[1], 0, 0);
	if (trap)
		start_trap();
	INSTALL(stub_filter);
	__asm__ volatile("jmp *%0" : : "r"((uintptr_t)STUB_BASE + RT_FIRST_PARK));
	__builtin_unreachable();
}

static void reply(int32_t res, uint32_t flags, int fd)
{
	struct {
		struct cmsghdr h;
		int fd;
	} c = { { sizeof(struct cmsghdr) + sizeof(int), SOL_SOCKET, SCM_RIGHTS }, fd };
	struct zyg_rep rep = { res, flags };
	struct iovec iov = { &rep, sizeof(rep) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = &c;
		m.msg_controllen = sizeof(c);
	}
	if (SYS3(SYS_sendmsg, ZYG_SOCK_FD, &m, MSG_NOSIGNAL) < 0)
		die(24);
}

static void make_stub(const struct zyg_req *req, uint32_t flags)
{
	int pair[2];
	long pid = sys6(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
			(long)pair, 0, 0);

	if (pid < 0) {
		reply((int32_t)pid, flags, -1);
		return;
	}
	pid = SYS5(SYS_clone, STUB_FORK_FLAGS, 0, 0, 0, 0);
	if (pid == 0)
		become_stub(req, pair);
	reply((int32_t)pid, flags, pid > 0 ? pair[0] : -1);
	SYS3(SYS_close, pair[0], 0, 0);
	SYS3(SYS_close, pair[1], 0, 0);
}

/* The request's kind, or 0 when the sentry is gone. The descriptor of ZYG_HELLO becomes ZYG_OPS_FD
 * by being the lowest free one, that of ZYG_TRAP ZYG_CTX_FD. */
static uint32_t next_request(struct zyg_req *req)
{
	char control[64] __attribute__((aligned(8)));
	struct iovec iov = { req, sizeof(*req) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	long n = SYS3(SYS_recvmsg, ZYG_SOCK_FD, &m, MSG_CMSG_CLOEXEC);

	if (n == -4) /* EINTR */
		return ~0U;
	return n == sizeof(*req) ? req->kind : 0;
}

/* @sp: the initial stack (argc, argv). argv[0] is "d" when we must stay dumpable, since the launcher
 * could not get a user namespace for us: then that is the only way the sentry may trace stubs. */
void zygote_main(const uintptr_t *sp)
{
	const char *mode = (const char *)sp[1];
	uint32_t flags = 0;
	struct zyg_req req;

	if (mode[0] != 'd' && SYS3(SYS_prctl, PR_SET_DUMPABLE, 0, 0))
		die(26);
	if (unmap_all())
		flags |= ZYG_F_VDSO_LEFT;
	INSTALL(zygote_filter);
	for (;;) {
		uint32_t kind = next_request(&req);

		if (kind == 0)
			die(0);
		if (kind == ZYG_HELLO)
			reply(0, flags, -1);
		else if (kind == ZYG_MAKE)
			make_stub(&req, flags);
		else if (kind == ZYG_TRAP) {
			trap = 1;
			reply(take_signals(STUB_BASE + RT_TRAP_HANDLER), flags, -1);
		} else if (kind == ZYG_PLAIN) {
			trap = 0;
			SYS3(SYS_close, ZYG_CTX_FD, 0, 0);
			reply(take_signals(0), flags, -1);
		}
	}
}
