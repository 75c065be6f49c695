// SPDX-License-Identifier: Apache-2.0
/*
 * FP and vector state, and what an image needs of a CPU.
 *
 * The standard form of an XSAVE area has each component at an offset that CPUID tells and that differs between
 * makes of CPUs. So the components are saved one by one (those that aren't in their initial state), each with
 * its number, and put together again for the CPU at hand.
 *
 * Features are names of bits of CPUID leaves that change what user code may execute. They are all saved, as
 * nobody knows which ones a program has looked for; a CPU that has more is fine.
 */
#include "sentry/kernel/fp_state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpuid.h"
#include "platform/regs.h"
#include "sentry/state/state.h"

#define LEGACY_SIZE 512
#define HEADER_SIZE 64
#define XSTATE_MAX 32 /* components below this number */
#define XSTATE_KEYS 9
#define KEYS_DENIED 0x55555554u
#define XSTATE_LEGACY 3ULL /* x87 and SSE: within the first 512 bytes */

/* ---- features ---- */

static const struct feature {
	const char *name;
	uint32_t leaf, sub;
	enum cpuid_reg reg;
	unsigned bit;
} features[] = {
	{ "sse3", 1, 0, ECX, 0 },          { "pclmulqdq", 1, 0, ECX, 1 },
	{ "ssse3", 1, 0, ECX, 9 },         { "fma", 1, 0, ECX, 12 },
	{ "cx16", 1, 0, ECX, 13 },         { "sse4.1", 1, 0, ECX, 19 },
	{ "sse4.2", 1, 0, ECX, 20 },       { "movbe", 1, 0, ECX, 22 },
	{ "popcnt", 1, 0, ECX, 23 },       { "aes", 1, 0, ECX, 25 },
	{ "xsave", 1, 0, ECX, 26 },        { "avx", 1, 0, ECX, 28 },
	{ "f16c", 1, 0, ECX, 29 },         { "rdrand", 1, 0, ECX, 30 },
	{ "fsgsbase", 7, 0, EBX, 0 },      { "bmi1", 7, 0, EBX, 3 },
	{ "avx2", 7, 0, EBX, 5 },          { "bmi2", 7, 0, EBX, 8 },
	{ "erms", 7, 0, EBX, 9 },          { "rtm", 7, 0, EBX, 11 },
	{ "avx512f", 7, 0, EBX, 16 },      { "avx512dq", 7, 0, EBX, 17 },
	{ "rdseed", 7, 0, EBX, 18 },       { "adx", 7, 0, EBX, 19 },
	{ "avx512ifma", 7, 0, EBX, 21 },   { "clflushopt", 7, 0, EBX, 23 },
	{ "clwb", 7, 0, EBX, 24 },         { "avx512cd", 7, 0, EBX, 28 },
	{ "sha", 7, 0, EBX, 29 },          { "avx512bw", 7, 0, EBX, 30 },
	{ "avx512vl", 7, 0, EBX, 31 },     { "avx512vbmi", 7, 0, ECX, 1 },
	{ "avx512vbmi2", 7, 0, ECX, 6 },   { "gfni", 7, 0, ECX, 8 },
	{ "vaes", 7, 0, ECX, 9 },          { "vpclmulqdq", 7, 0, ECX, 10 },
	{ "avx512vnni", 7, 0, ECX, 11 },   { "avx512bitalg", 7, 0, ECX, 12 },
	{ "avx512vpopcntdq", 7, 0, ECX, 14 }, { "rdpid", 7, 0, ECX, 22 },
	{ "movdiri", 7, 0, ECX, 27 },      { "movdir64b", 7, 0, ECX, 28 },
	{ "fsrm", 7, 0, EDX, 4 },          { "serialize", 7, 0, EDX, 14 },
	{ "amx-bf16", 7, 0, EDX, 22 },     { "avx512fp16", 7, 0, EDX, 23 },
	{ "amx-tile", 7, 0, EDX, 24 },     { "amx-int8", 7, 0, EDX, 25 },
	{ "avx-vnni", 7, 1, EAX, 4 },      { "avx512bf16", 7, 1, EAX, 5 },
	{ "lahf", 0x80000001, 0, ECX, 0 }, { "lzcnt", 0x80000001, 0, ECX, 5 },
	{ "sse4a", 0x80000001, 0, ECX, 6 }, { "prefetchw", 0x80000001, 0, ECX, 8 },
	{ "xop", 0x80000001, 0, ECX, 11 }, { "fma4", 0x80000001, 0, ECX, 16 },
	{ "tbm", 0x80000001, 0, ECX, 21 }, { "rdtscp", 0x80000001, 0, EDX, 27 },
};

static bool cpu_has(const struct feature *f)
{
	return cpuid_bit(f->leaf, f->sub, f->reg, f->bit);
}

/* ---- components ---- */

/* What CPUID says, asked once: in a virtual machine each time takes longer than saving ten objects. */
static struct {
	pthread_once_t once;
	uint32_t off[XSTATE_MAX], size[XSTATE_MAX]; /* of components; size 0: not one that user code may use */
	uint32_t area;                              /* all of them */
	bool has[ARRAY_SIZE(features)];
} cpu = { .once = PTHREAD_ONCE_INIT };

static void ask_components(void)
{
	uint32_t all[4], r[4];

	cpu.area = LEGACY_SIZE;
	if (!cpuid(0xd, 0, all))
		return;
	if (all[EBX] <= FPSTATE_MAX)
		cpu.area = all[EBX];
	for (unsigned i = 2; i < XSTATE_MAX; i++) {
		if (!(all[EAX] & (1u << i)) || !cpuid(0xd, i, r) || r[EAX] + r[EBX] > FPSTATE_MAX)
			continue;
		cpu.size[i] = r[EAX];
		cpu.off[i] = r[EBX];
	}
}

static void ask(void)
{
	ask_components();
	for (unsigned i = 0; i < ARRAY_SIZE(features); i++)
		cpu.has[i] = cpu_has(&features[i]);
}

void fp_state_prepare(void)
{
	pthread_once(&cpu.once, ask);
}

static bool component(unsigned i, uint32_t *ret_off, uint32_t *ret_size)
{
	fp_state_prepare();
	*ret_size = cpu.size[i];
	*ret_off = cpu.off[i];
	return cpu.size[i] != 0;
}

static uint32_t area_size(void)
{
	fp_state_prepare();
	return cpu.area;
}

static uint64_t *bitmap(struct fpstate *fp)
{
	return (uint64_t *)(void *)(fp->data + LEGACY_SIZE);
}

static void save_components(struct state *s, struct fpstate *fp)
{
	uint64_t have = fp->size >= LEGACY_SIZE + HEADER_SIZE ? *bitmap(fp) : XSTATE_LEGACY;
	uint32_t off, size;

	state_u64(s, &have);
	state_bytes(s, fp->data, LEGACY_SIZE);
	for (unsigned i = 2; i < XSTATE_MAX; i++) {
		if (!(have & (1ULL << i)))
			continue;
		if (!component(i, &off, &size)) {
			state_fail(s, "unknown vector state %u", i);
			return;
		}
		state_u32(s, &size);
		state_bytes(s, fp->data + off, size);
	}
	if (have >> XSTATE_MAX)
		state_fail(s, "unknown vector state %llx", (unsigned long long)have);
}

static const char *component_name(unsigned i)
{
	static const char *const names[] = {
		[2] = "AVX", [3] = "MPX", [4] = "MPX", [5] = "AVX-512", [6] = "AVX-512",
		[7] = "AVX-512", [9] = "protection keys", [17] = "AMX", [18] = "AMX",
	};

	return i < ARRAY_SIZE(names) && names[i] ? names[i] : "an unknown extension";
}

/*
 * Rights for protection keys are in use everywhere where there are keys: Linux starts programs with all keys but
 * the first denied. Whoever never touched them needs none.
 */
static bool load_untouched_keys(struct state *s, unsigned i, uint32_t len)
{
	uint32_t v[2] = { 0 };

	if (i != XSTATE_KEYS || len != sizeof(v) || cpu.size[i])
		return false;
	state_bytes(s, v, sizeof(v));
	return v[0] == KEYS_DENIED || v[0] == 0;
}

static void load_components(struct state *s, struct fpstate *fp)
{
	uint64_t have = 0;
	uint32_t off, size, len = 0;

	fp->size = area_size();
	state_u64(s, &have);
	state_bytes(s, fp->data, LEGACY_SIZE);
	if (have >> XSTATE_MAX)
		state_fail(s, "unknown vector state %llx", (unsigned long long)have);
	for (unsigned i = 2; i < XSTATE_MAX && state_ok(s); i++) {
		if (!(have & (1ULL << i)))
			continue;
		state_u32(s, &len);
		if (load_untouched_keys(s, i, len)) {
			have &= ~(1ULL << i);
			continue;
		}
		if (!component(i, &off, &size) || size != len || off + size > fp->size)
			state_fail(s, "this CPU has no %s, which a program of the image uses",
				   component_name(i));
		else
			state_bytes(s, fp->data + off, size);
	}
	if (fp->size >= LEGACY_SIZE + HEADER_SIZE)
		*bitmap(fp) = have;
}

void state_fp(struct state *s, struct fpstate **fp)
{
	bool any = *fp && (*fp)->size >= LEGACY_SIZE;

	state_bool(s, &any);
	if (state_loading(s))
		*fp = any ? kzalloc(sizeof(**fp)) : NULL;
	if (!any)
		return;
	if (state_loading(s))
		load_components(s, *fp);
	else
		save_components(s, *fp);
}

/* ---- features, in an image ---- */

#define FEATURE_NAME_MAX 32
#define FEATURES_MAX 1024

static bool cpu_has_name(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(features); i++)
		if (!strcmp(features[i].name, name))
			return cpu.has[i];
	return false; /* one of a later release: we can't know */
}

static void load_features(struct state *s)
{
	char name[FEATURE_NAME_MAX], missing[256] = "";
	uint32_t n = state_count(s, 0, FEATURES_MAX);

	while (n-- && state_ok(s)) {
		state_str(s, name, sizeof(name));
		if (!cpu_has_name(name) && strlen(missing) < sizeof(missing) - sizeof(name) - 2)
			(void)snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing),
				       " %s", name);
	}
	if (missing[0])
		state_fail(s, "this CPU lacks what the image was made with:%s", missing);
}

void state_cpu_features(struct state *s)
{
	char name[FEATURE_NAME_MAX];
	uint32_t n = 0;

	fp_state_prepare();
	if (state_loading(s)) {
		load_features(s);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(features); i++)
		n += cpu.has[i];
	(void)state_count(s, n, FEATURES_MAX);
	for (unsigned i = 0; i < ARRAY_SIZE(features); i++) {
		if (!cpu.has[i])
			continue;
		(void)snprintf(name, sizeof(name), "%s", features[i].name);
		state_str(s, name, sizeof(name));
	}
}
