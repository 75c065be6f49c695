// SPDX-License-Identifier: Apache-2.0
/*
 * Guests' own seccomp filters (man 2 seccomp): strict mode, and classic BPF programs over struct
 * seccomp_data. They protect guests from themselves; the sandbox's own boundary is elsewhere.
 *
 * Filters form a chain to the parent's; a child shares it. The lowest action (most restrictive) wins.
 * User notification and TSYNC of several threads' differing chains aren't there (EINVAL).
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/alloc.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/mm/usermem.h"
#include "sentry/state/state.h"

#define CHAIN_INSNS_MAX  32768 /* MAX_INSNS_PER_PATH */
#define SYS_SECCOMP_CODE 1     /* si_code of SIGSYS */

struct seccomp_filter {
	struct ref ref;
	struct seccomp_filter *prev;
	unsigned total; /* instructions of the whole chain, 4 more for each program */
	unsigned len;
	struct sock_filter *insn; /* heap */
};

static struct seccomp_filter *filter_alloc(unsigned len)
{
	struct seccomp_filter *f = kzalloc(sizeof(*f));

	ref_init(&f->ref);
	f->len = len;
	f->insn = len ? kcalloc(len, sizeof(f->insn[0])) : NULL;
	return f;
}

static void filter_free(struct seccomp_filter *f)
{
	free(f->insn);
	free(f);
}

struct seccomp_filter *seccomp_get(struct seccomp_filter *f)
{
	ref_get(&f->ref);
	return f;
}

void seccomp_put(struct seccomp_filter *f)
{
	while (f && ref_put(&f->ref)) {
		struct seccomp_filter *prev = f->prev;

		filter_free(f);
		f = prev;
	}
}

/* ---- checking ---- */

static bool jump_ok(const struct sock_filter *i, unsigned pc, unsigned len)
{
	if (i->code == (BPF_JMP | BPF_JA))
		return i->k < len - pc - 1;
	return pc + i->jt + 1 < len && pc + i->jf + 1 < len;
}

static bool insn_ok(const struct sock_filter *i, unsigned pc, unsigned len)
{
	switch (i->code) {
	case BPF_LD | BPF_W | BPF_ABS:
		return !(i->k & 3) && i->k < sizeof(struct seccomp_data);
	case BPF_LD | BPF_W | BPF_LEN:
	case BPF_LDX | BPF_W | BPF_LEN:
	case BPF_LD | BPF_IMM:
	case BPF_LDX | BPF_IMM:
	case BPF_MISC | BPF_TAX:
	case BPF_MISC | BPF_TXA:
	case BPF_RET | BPF_K:
	case BPF_RET | BPF_A:
	case BPF_ALU | BPF_NEG:
	case BPF_ALU | BPF_ADD | BPF_K:
	case BPF_ALU | BPF_ADD | BPF_X:
	case BPF_ALU | BPF_SUB | BPF_K:
	case BPF_ALU | BPF_SUB | BPF_X:
	case BPF_ALU | BPF_MUL | BPF_K:
	case BPF_ALU | BPF_MUL | BPF_X:
	case BPF_ALU | BPF_DIV | BPF_X:
	case BPF_ALU | BPF_AND | BPF_K:
	case BPF_ALU | BPF_AND | BPF_X:
	case BPF_ALU | BPF_OR | BPF_K:
	case BPF_ALU | BPF_OR | BPF_X:
	case BPF_ALU | BPF_XOR | BPF_K:
	case BPF_ALU | BPF_XOR | BPF_X:
	case BPF_ALU | BPF_LSH | BPF_X:
	case BPF_ALU | BPF_RSH | BPF_X:
		return true;
	case BPF_ALU | BPF_LSH | BPF_K:
	case BPF_ALU | BPF_RSH | BPF_K:
		return i->k < 32;
	case BPF_ALU | BPF_DIV | BPF_K:
		return i->k != 0;
	case BPF_LD | BPF_MEM:
	case BPF_LDX | BPF_MEM:
	case BPF_ST:
	case BPF_STX:
		return i->k < BPF_MEMWORDS;
	case BPF_JMP | BPF_JA:
	case BPF_JMP | BPF_JEQ | BPF_K:
	case BPF_JMP | BPF_JEQ | BPF_X:
	case BPF_JMP | BPF_JGE | BPF_K:
	case BPF_JMP | BPF_JGE | BPF_X:
	case BPF_JMP | BPF_JGT | BPF_K:
	case BPF_JMP | BPF_JGT | BPF_X:
	case BPF_JMP | BPF_JSET | BPF_K:
	case BPF_JMP | BPF_JSET | BPF_X:
		return jump_ok(i, pc, len);
	default:
		return false;
	}
}

static bool program_ok(const struct seccomp_filter *f)
{
	for (unsigned pc = 0; pc < f->len; pc++)
		if (!insn_ok(&f->insn[pc], pc, f->len))
			return false;
	return BPF_CLASS(f->insn[f->len - 1].code) == BPF_RET;
}

/* ---- running ---- */

struct bpf {
	uint32_t a, x, mem[BPF_MEMWORDS];
};

static uint32_t alu(uint16_t code, uint32_t a, uint32_t v)
{
	switch (BPF_OP(code)) {
	case BPF_ADD:
		return a + v;
	case BPF_SUB:
		return a - v;
	case BPF_MUL:
		return a * v;
	case BPF_DIV:
		return v ? a / v : 0;
	case BPF_AND:
		return a & v;
	case BPF_OR:
		return a | v;
	case BPF_XOR:
		return a ^ v;
	case BPF_LSH:
		return v < 32 ? a << v : 0;
	case BPF_RSH:
		return v < 32 ? a >> v : 0;
	default: /* BPF_NEG */
		return -a;
	}
}

static bool jump_taken(uint16_t code, uint32_t a, uint32_t v)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ:
		return a == v;
	case BPF_JGT:
		return a > v;
	case BPF_JGE:
		return a >= v;
	default: /* BPF_JSET */
		return a & v;
	}
}

static uint32_t load(const struct sock_filter *i, const struct bpf *m,
		     const uint8_t *data)
{
	uint32_t v;

	switch (BPF_MODE(i->code)) {
	case BPF_ABS:
		memcpy(&v, data + i->k, sizeof(v));
		return v;
	case BPF_LEN:
		return sizeof(struct seccomp_data);
	case BPF_MEM:
		return m->mem[i->k];
	default: /* BPF_IMM */
		return i->k;
	}
}

static uint32_t run_one(const struct seccomp_filter *f, const struct seccomp_data *sd)
{
	const uint8_t *data = (const uint8_t *)sd;
	struct bpf m = { 0 };

	for (unsigned pc = 0; pc < f->len; pc++) {
		const struct sock_filter *i = &f->insn[pc];
		uint32_t v = BPF_SRC(i->code) == BPF_X ? m.x : i->k;

		switch (BPF_CLASS(i->code)) {
		case BPF_LD:
			m.a = load(i, &m, data);
			break;
		case BPF_LDX:
			m.x = load(i, &m, data);
			break;
		case BPF_ST:
			m.mem[i->k] = m.a;
			break;
		case BPF_STX:
			m.mem[i->k] = m.x;
			break;
		case BPF_ALU:
			/* As in Linux, a division by a zero X ends the program with 0. */
			if (BPF_OP(i->code) == BPF_DIV && !v)
				return 0;
			m.a = alu(i->code, m.a, v);
			break;
		case BPF_JMP:
			if (BPF_OP(i->code) == BPF_JA)
				pc += i->k;
			else
				pc += jump_taken(i->code, m.a, v) ? i->jt : i->jf;
			break;
		case BPF_RET:
			return BPF_RVAL(i->code) == BPF_A ? m.a : i->k;
		default: /* BPF_MISC */
			if (BPF_MISCOP(i->code) == BPF_TAX)
				m.x = m.a;
			else
				m.a = m.x;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}

static uint32_t run_all(struct task *t)
{
	struct seccomp_data sd = {
		.nr = (int)t->regs.orig_rax,
		.arch = AUDIT_ARCH_X86_64,
		.instruction_pointer = t->regs.rip,
		.args = { t->regs.rdi, t->regs.rsi, t->regs.rdx, t->regs.r10, t->regs.r8,
			  t->regs.r9 },
	};
	uint32_t ret = SECCOMP_RET_ALLOW;

	for (const struct seccomp_filter *f = t->seccomp; f; f = f->prev) {
		uint32_t r = run_one(f, &sd);

		/* Signed: KILL_PROCESS is the lowest. */
		if ((int32_t)(r & SECCOMP_RET_ACTION_FULL) <
		    (int32_t)(ret & SECCOMP_RET_ACTION_FULL))
			ret = r;
	}
	return ret;
}

static void sigsys_info(struct task *t, uint32_t data, struct l_siginfo *info)
{
	memset(info, 0, sizeof(*info));
	info->si_signo = SIGSYS;
	info->si_code = SYS_SECCOMP_CODE;
	info->si_errno = (int32_t)data;
	info->sys.call_addr = t->regs.rip;
	info->sys.syscall = (int32_t)t->regs.orig_rax;
	info->sys.arch = AUDIT_ARCH_X86_64;
}

static bool act(struct task *t, uint32_t ret)
{
	uint32_t data = ret & SECCOMP_RET_DATA;
	struct l_siginfo info;

	switch (ret & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW:
	case SECCOMP_RET_LOG:
		return true;
	case SECCOMP_RET_ERRNO:
		t->regs.rax = (uint64_t) - (int64_t)MIN(data, 4095u);
		return false;
	case SECCOMP_RET_TRAP:
		sigsys_info(t, data, &info);
		t->regs.rax = t->regs.orig_rax;
		t->regs.orig_rax = (uint64_t)-1;
		signal_force(t, SIGSYS, &info);
		return false;
	case SECCOMP_RET_TRACE:
		return ptrace_seccomp_stop(t, (uint16_t)data);
	case SECCOMP_RET_USER_NOTIF:
		t->regs.rax = (uint64_t)-ENOSYS; /* nobody can listen */
		return false;
	case SECCOMP_RET_KILL_THREAD:
		task_exit_thread(t, SIGSYS);
		if (t->tg->nthreads == 1)
			task_group_exit(t, SIGSYS);
		return false;
	case SECCOMP_RET_KILL_PROCESS:
	default:
		task_group_exit(t, SIGSYS);
		return false;
	}
}

bool seccomp_check(struct task *t)
{
	long nr = (long)t->regs.orig_rax;

	if (t->seccomp_mode == SECCOMP_MODE_STRICT) {
		if (nr == SYS_read || nr == SYS_write || nr == SYS_exit ||
		    nr == SYS_rt_sigreturn)
			return true;
		task_group_exit(t, SIGKILL);
		return false;
	}
	return act(t, run_all(t));
}

/* ---- installing ---- */

struct seccomp_filter *seccomp_create(const struct sock_filter *insn, unsigned len)
{
	struct seccomp_filter *f;

	if (len == 0 || len > BPF_MAXINSNS)
		return NULL;
	f = filter_alloc(len);
	f->total = len + 4;
	memcpy(f->insn, insn, len * sizeof(f->insn[0]));
	if (!program_ok(f)) {
		filter_free(f);
		return NULL;
	}
	return f;
}

long seccomp_set_strict(struct task *t)
{
	if (t->seccomp_mode && t->seccomp_mode != SECCOMP_MODE_STRICT)
		return -EINVAL;
	t->seccomp_mode = SECCOMP_MODE_STRICT;
	return 0;
}

struct l_sock_fprog {
	uint16_t len, pad[3];
	uint64_t filter;
};

/* TSYNC: every sibling takes over the caller's chain and mode. Only possible when each of them has a chain
 * that ours descends from; returns the tid of one that hasn't. */
static long sync_threads(struct task *t, const struct seccomp_filter *old)
{
	struct task *i;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(i, &t->tg->threads, tg_node) {
		const struct seccomp_filter *f = old;

		while (f && f != i->seccomp)
			f = f->prev;
		if (i != t && i->seccomp && f != i->seccomp)
			return task_tid(i);
	}
	return t->tg->nthreads > 1 ? -EINVAL : 0;
}

static struct seccomp_filter *read_program(struct task *t, gaddr_t prog, int *ret_err)
{
	struct seccomp_filter *f;
	struct l_sock_fprog p;

	*ret_err = -EFAULT;
	if (copyin_obj(t, &p, prog))
		return NULL;
	*ret_err = -EINVAL;
	if (p.len == 0 || p.len > BPF_MAXINSNS)
		return NULL;
	f = filter_alloc(p.len);
	if (copyin(t, f->insn, gaddr(p.filter), p.len * sizeof(f->insn[0]))) {
		*ret_err = -EFAULT;
		filter_free(f);
		return NULL;
	}
	if (!program_ok(f)) {
		filter_free(f);
		return NULL;
	}
	*ret_err = 0;
	return f;
}

long seccomp_set_filter(struct task *t, uint64_t flags, gaddr_t prog)
{
	struct seccomp_filter *f;
	long sync;
	int err;

	if (flags & ~(uint64_t)(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG |
				SECCOMP_FILTER_FLAG_SPEC_ALLOW))
		return -EINVAL;
	if (t->seccomp_mode == SECCOMP_MODE_STRICT)
		return -EINVAL;
	f = read_program(t, prog, &err);
	if (!f)
		return err;
	if (!t->no_new_privs &&
	    !cred_capable_in(t->cred, t->cred->userns, CAP_SYS_ADMIN)) {
		filter_free(f);
		return -EACCES;
	}
	f->total = f->len + 4 + (t->seccomp ? t->seccomp->total : 0);
	sync = flags & SECCOMP_FILTER_FLAG_TSYNC ? sync_threads(t, t->seccomp) : 0;
	if (f->total > CHAIN_INSNS_MAX || sync) {
		filter_free(f);
		return sync ? sync : -ENOMEM;
	}
	f->prev = t->seccomp; /* the task's reference moves into the chain */
	t->seccomp = f;
	t->seccomp_mode = SECCOMP_MODE_FILTER;
	return 0;
}

/* ---- saving and loading ---- */

static void *state_alloc(struct state *s)
{
	(void)s;
	return filter_alloc(0);
}

static void state_fields(struct state *s, void *obj)
{
	struct seccomp_filter *f = obj;
	uint32_t n = state_count(s, f->len, BPF_MAXINSNS);

	if (state_loading(s)) {
		f->len = n;
		f->insn = n ? kcalloc(n, sizeof(f->insn[0])) : NULL;
	}
	state_bytes(s, f->insn, n * sizeof(f->insn[0]));
	state_ref(s, &state_seccomp, &f->prev);
	state_u32(s, &f->total);
}

/* Totals that add up also rule out circles. */
static void state_finish(struct state *s, void *obj)
{
	struct seccomp_filter *f = obj;

	if (!f->len || !program_ok(f) || f->total > CHAIN_INSNS_MAX ||
	    f->total != f->len + 4 + (f->prev ? f->prev->total : 0))
		state_fail(s, "not a valid filter");
}

static void *state_get(void *obj)
{
	return seccomp_get(obj);
}

static void state_put(void *obj)
{
	seccomp_put(obj);
}

const struct state_type state_seccomp = {
	.id = STATE_SECCOMP,
	.version = 1,
	.name = "seccomp filter",
	.alloc = state_alloc,
	.fields = state_fields,
	.finish = state_finish,
	.get = state_get,
	.put = state_put,
};
