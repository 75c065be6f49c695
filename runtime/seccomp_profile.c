// SPDX-License-Identifier: Apache-2.0
/*
 * Seccomp profiles; see seccomp_profile.h. What a profile means follows runc where the runtime-spec leaves
 * it open: rules with the default action are skipped, names that libseccomp doesn't know are skipped,
 * several conditions on one argument are alternatives, and calls newer than any that the profile names
 * answer ENOSYS rather than the default action, so that libc falls back to older ones.
 *
 * Left out: SCMP_ACT_NOTIFY. Its listener would be handed requests of guest processes, which have no
 * pid or memory on the host for it to look at. The flags say how the host's kernel is to treat a filter and
 * are checked only.
 */
#include "runtime/seccomp_profile.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/spec_reader.h"

#define PROGRAM_MAX BPF_MAXINSNS
#define ENOSYS_PREFIX 4
#define ARGS_MAX 6
#define RULES_MAX 65536

struct name_value {
	const char *name;
	uint32_t value;
};

static const struct name_value actions[] = {
	{ "SCMP_ACT_KILL", SCMP_ACT_KILL_THREAD },
	{ "SCMP_ACT_KILL_THREAD", SCMP_ACT_KILL_THREAD },
	{ "SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS },
	{ "SCMP_ACT_TRAP", SCMP_ACT_TRAP },
	{ "SCMP_ACT_ERRNO", SCMP_ACT_ERRNO(0) },
	{ "SCMP_ACT_TRACE", SCMP_ACT_TRACE(0) },
	{ "SCMP_ACT_ALLOW", SCMP_ACT_ALLOW },
	{ "SCMP_ACT_LOG", SCMP_ACT_LOG },
};

static const struct name_value arches[] = {
	{ "SCMP_ARCH_X86", SCMP_ARCH_X86 },
	{ "SCMP_ARCH_X86_64", SCMP_ARCH_X86_64 },
	{ "SCMP_ARCH_X32", SCMP_ARCH_X32 },
	{ "SCMP_ARCH_ARM", SCMP_ARCH_ARM },
	{ "SCMP_ARCH_AARCH64", SCMP_ARCH_AARCH64 },
	{ "SCMP_ARCH_MIPS", SCMP_ARCH_MIPS },
	{ "SCMP_ARCH_MIPS64", SCMP_ARCH_MIPS64 },
	{ "SCMP_ARCH_MIPS64N32", SCMP_ARCH_MIPS64N32 },
	{ "SCMP_ARCH_MIPSEL", SCMP_ARCH_MIPSEL },
	{ "SCMP_ARCH_MIPSEL64", SCMP_ARCH_MIPSEL64 },
	{ "SCMP_ARCH_MIPSEL64N32", SCMP_ARCH_MIPSEL64N32 },
	{ "SCMP_ARCH_PPC", SCMP_ARCH_PPC },
	{ "SCMP_ARCH_PPC64", SCMP_ARCH_PPC64 },
	{ "SCMP_ARCH_PPC64LE", SCMP_ARCH_PPC64LE },
	{ "SCMP_ARCH_S390", SCMP_ARCH_S390 },
	{ "SCMP_ARCH_S390X", SCMP_ARCH_S390X },
	{ "SCMP_ARCH_RISCV64", SCMP_ARCH_RISCV64 },
};

static const struct name_value operators[] = {
	{ "SCMP_CMP_NE", SCMP_CMP_NE },		{ "SCMP_CMP_LT", SCMP_CMP_LT },
	{ "SCMP_CMP_LE", SCMP_CMP_LE },		{ "SCMP_CMP_EQ", SCMP_CMP_EQ },
	{ "SCMP_CMP_GE", SCMP_CMP_GE },		{ "SCMP_CMP_GT", SCMP_CMP_GT },
	{ "SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ },
};

static const struct name_value flags[] = {
	{ "SECCOMP_FILTER_FLAG_TSYNC", 0 },
	{ "SECCOMP_FILTER_FLAG_LOG", 0 },
	{ "SECCOMP_FILTER_FLAG_SPEC_ALLOW", 0 },
};

static const struct name_value *find(const struct name_value *t, size_t n, const char *name)
{
	for (size_t i = 0; name && i < n; i++)
		if (!strcmp(t[i].name, name))
			return &t[i];
	return NULL;
}

struct compiler {
	struct spec_reader r;
	scmp_filter_ctx ctx;
	uint32_t dflt;
	int newest; /* the largest number of a call that is named */
};

static uint32_t get_action(struct compiler *c, const json_t *o, const char *key, const char *errno_key,
			   const char *field)
{
	const char *name = spec_get_str(&c->r, o, key, field);
	const struct name_value *v = find(actions, ARRAY_SIZE(actions), name);
	uint32_t err = (uint32_t)spec_get_int(&c->r, o, errno_key, "linux.seccomp errnoRet", 0, 4095,
					      EPERM);

	if (name && !strcmp(name, "SCMP_ACT_NOTIFY"))
		spec_complain(&c->r, field,
			      "is SCMP_ACT_NOTIFY, which is not supported: a guest's processes are "
			      "none of the host's");
	else if (!v)
		spec_complain(&c->r, field, "is missing or no action of seccomp");
	if (!v)
		return SCMP_ACT_ALLOW;
	if (v->value == SCMP_ACT_ERRNO(0) || v->value == SCMP_ACT_TRACE(0))
		return v->value | err;
	return v->value;
}

/* One condition of a rule. Values are unsigned 64 bit; jansson has the upper half as reals. */
static uint64_t get_u64(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_real(v))
		return json_real_value(v) >= 0x1p64 ? UINT64_MAX : (uint64_t)json_real_value(v);
	return (uint64_t)json_integer_value(v);
}

static bool get_condition(struct compiler *c, const json_t *o, struct scmp_arg_cmp *ret)
{
	const char *op = spec_get_str(&c->r, o, "op", "linux.seccomp.syscalls[].args[].op");
	const struct name_value *v = find(operators, ARRAY_SIZE(operators), op);
	int64_t i = spec_get_int(&c->r, o, "index", "linux.seccomp.syscalls[].args[].index", 0,
				 ARGS_MAX - 1, 0);

	if (!v) {
		spec_complain(&c->r, "linux.seccomp.syscalls[].args[].op", "is missing or no operator");
		return false;
	}
	*ret = (struct scmp_arg_cmp){ .arg = (unsigned)i,
				      .op = (enum scmp_compare)v->value,
				      .datum_a = get_u64(o, "value"),
				      .datum_b = get_u64(o, "valueTwo") };
	return true;
}

static void add_rule(struct compiler *c, uint32_t action, int nr, const struct scmp_arg_cmp *cmp,
		     unsigned n)
{
	unsigned seen = 0;
	bool alternatives = false;
	int r = 0;

	for (unsigned i = 0; i < n; i++) {
		alternatives |= seen >> cmp[i].arg & 1;
		seen |= 1u << cmp[i].arg;
	}
	if (!alternatives)
		r = seccomp_rule_add_array(c->ctx, action, nr, n, cmp);
	for (unsigned i = 0; alternatives && i < n && (!r || r == -EEXIST); i++)
		r = seccomp_rule_add_array(c->ctx, action, nr, 1, &cmp[i]);
	if (r && r != -EEXIST)
		spec_complain(&c->r, "linux.seccomp.syscalls[]", "has a rule that libseccomp refuses");
}

static void add_rules(struct compiler *c, const json_t *rule)
{
	const json_t *names = spec_get(&c->r, rule, "names", "linux.seccomp.syscalls[].names", JSON_ARRAY);
	const json_t *args = spec_get(&c->r, rule, "args", "linux.seccomp.syscalls[].args", JSON_ARRAY);
	uint32_t action = get_action(c, rule, "action", "errnoRet", "linux.seccomp.syscalls[].action");
	AUTO_FREE struct scmp_arg_cmp *cmp = kcalloc(json_array_size(args) + 1, sizeof(*cmp));
	unsigned n = 0;

	if (!json_array_size(names))
		spec_complain(&c->r, "linux.seccomp.syscalls[].names", "is missing or empty");
	for (size_t i = 0; i < json_array_size(args) && !c->r.why; i++)
		n += get_condition(c, json_array_get(args, i), &cmp[n]);
	for (size_t i = 0; i < json_array_size(names) && !c->r.why; i++) {
		const char *name = json_string_value(json_array_get(names, i));
		int nr = name ? seccomp_syscall_resolve_name(name) : __NR_SCMP_ERROR;

		if (!name)
			spec_complain(&c->r, "linux.seccomp.syscalls[].names",
				      "has an element that is not a string");
		if (nr == __NR_SCMP_ERROR)
			continue; /* a call of a kernel newer than ours */
		c->newest = MAX(c->newest, nr);
		if (action != c->dflt)
			add_rule(c, action, nr, cmp, n);
	}
}

static void check_flags(struct compiler *c, const json_t *profile)
{
	unsigned n;
	AUTO_FREE const char **v = spec_get_strv(&c->r, profile, "flags", "linux.seccomp.flags", &n);

	for (unsigned i = 0; i < n; i++)
		if (!find(flags, ARRAY_SIZE(flags), v[i]))
			spec_complain(&c->r, "linux.seccomp.flags", "has a flag that is not supported");
	if (json_object_get(profile, "listenerPath"))
		spec_complain(&c->r, "linux.seccomp.listenerPath",
			      "is not supported: there is no notification of guests' calls");
}

static void add_arches(struct compiler *c, const json_t *profile)
{
	unsigned n;
	AUTO_FREE const char **v = spec_get_strv(&c->r, profile, "architectures",
						 "linux.seccomp.architectures", &n);

	/* The guest has one architecture: a rule for another would match nothing. */
	for (unsigned i = 0; i < n; i++)
		if (!find(arches, ARRAY_SIZE(arches), v[i]))
			spec_complain(&c->r, "linux.seccomp.architectures", "has an unknown element");
}

static bool restrictive(uint32_t action)
{
	return action != SCMP_ACT_ALLOW && action != SCMP_ACT_LOG &&
	       (action & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_TRACE;
}

static void append(json_t *out, const struct sock_filter *f)
{
	json_array_append_new(out, json_pack("[i,i,i,I]", (int)f->code, (int)f->jt, (int)f->jf,
					     (json_int_t)f->k));
}

/* The filter, with the test for calls that the profile's author can't have known in front. */
static json_t *export(struct compiler *c)
{
	const struct sock_filter newer[ENOSYS_PREFIX] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)c->newest, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1, 0), /* x32: not newer */
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	AUTO_CLOSE int fd = memfd_create("seccomp", MFD_CLOEXEC);
	AUTO_FREE struct sock_filter *prog = kcalloc(PROGRAM_MAX + 1, sizeof(*prog));
	bool prefix = restrictive(c->dflt) && c->newest > 0;
	json_t *out;
	ssize_t n;
	int r = fd < 0 ? -errno : seccomp_export_bpf(c->ctx, fd);

	n = r ? r : pread(fd, prog, (PROGRAM_MAX + 1) * sizeof(*prog), 0);
	if (n < 0 || (size_t)n > (PROGRAM_MAX - ENOSYS_PREFIX) * sizeof(*prog)) {
		spec_complain(&c->r, "linux.seccomp", n < 0 ? "can't be compiled" : "is too large");
		return NULL;
	}
	out = json_array();
	for (unsigned i = 0; prefix && i < ENOSYS_PREFIX; i++)
		append(out, &newer[i]);
	for (size_t i = 0; i < (size_t)n / sizeof(*prog); i++)
		append(out, &prog[i]);
	return out;
}

static json_t *compile(struct compiler *c, const json_t *profile)
{
	const json_t *rules = spec_get(&c->r, profile, "syscalls", "linux.seccomp.syscalls", JSON_ARRAY);
	json_t *out = NULL;

	c->dflt = get_action(c, profile, "defaultAction", "defaultErrnoRet",
			     "linux.seccomp.defaultAction");
	check_flags(c, profile);
	add_arches(c, profile);
	if (json_array_size(rules) > RULES_MAX)
		spec_complain(&c->r, "linux.seccomp.syscalls", "has too many elements");
	if (c->r.why)
		return NULL;
	c->ctx = seccomp_init(c->dflt);
	if (!c->ctx || seccomp_attr_set(c->ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2)) {
		spec_complain(&c->r, "linux.seccomp", "can't be compiled");
		return NULL;
	}
	for (size_t i = 0; i < json_array_size(rules) && !c->r.why; i++)
		add_rules(c, json_array_get(rules, i));
	if (!c->r.why)
		out = export(c);
	seccomp_release(c->ctx);
	return out;
}

json_t *seccomp_profile_compile(const json_t *profile, char **ret_why)
{
	struct compiler c = { .r = { .file = "config.json" }, .newest = -1 };
	json_t *out;

	if (!json_is_object(profile))
		return json_null();
	out = compile(&c, profile);
	if (out && !c.r.why)
		return out;
	json_decref(out);
	*ret_why = c.r.why ? c.r.why : kstrdup("linux.seccomp can't be compiled");
	return NULL;
}

struct sock_filter *seccomp_profile_load(const json_t *program, unsigned *ret_n)
{
	size_t n = json_array_size(program);
	struct sock_filter *f = n && n <= PROGRAM_MAX ? kcalloc(n, sizeof(*f)) : NULL;

	for (size_t i = 0; f && i < n; i++) {
		const json_t *o = json_array_get(program, i);

		f[i].code = (uint16_t)json_integer_value(json_array_get(o, 0));
		f[i].jt = (uint8_t)json_integer_value(json_array_get(o, 1));
		f[i].jf = (uint8_t)json_integer_value(json_array_get(o, 2));
		f[i].k = (uint32_t)json_integer_value(json_array_get(o, 3));
	}
	*ret_n = f ? (unsigned)n : 0;
	return f;
}

const char *seccomp_profile_action(unsigned i)
{
	return i < ARRAY_SIZE(actions) ? actions[i].name : NULL;
}

const char *seccomp_profile_operator(unsigned i)
{
	return i < ARRAY_SIZE(operators) ? operators[i].name : NULL;
}

const char *seccomp_profile_arch(unsigned i)
{
	return i < ARRAY_SIZE(arches) ? arches[i].name : NULL;
}

const char *seccomp_profile_flag(unsigned i)
{
	return i < ARRAY_SIZE(flags) ? flags[i].name : NULL;
}
