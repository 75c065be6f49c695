// SPDX-License-Identifier: Apache-2.0
/*
 * Which features of this CPU programs may have found and will go on to use: those of unprivileged
 * instructions. Names are those of /proc/cpuinfo. Guests execute cpuid natively, so what the CPU has is
 * what they have seen; what the host's kernel didn't enable (XCR0) they can't use.
 */
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "base/cpuid.h"
#include "sentry/state/image.h"

static const struct feature {
	const char *name;
	uint32_t leaf, sub;
	enum cpuid_reg reg;
	unsigned bit;
} features[] = {
	{ "fpu", 1, 0, EDX, 0 },         { "cx8", 1, 0, EDX, 8 },
	{ "cmov", 1, 0, EDX, 15 },       { "mmx", 1, 0, EDX, 23 },
	{ "fxsr", 1, 0, EDX, 24 },       { "sse", 1, 0, EDX, 25 },
	{ "sse2", 1, 0, EDX, 26 },       { "pni", 1, 0, ECX, 0 },
	{ "pclmulqdq", 1, 0, ECX, 1 },   { "ssse3", 1, 0, ECX, 9 },
	{ "fma", 1, 0, ECX, 12 },        { "cx16", 1, 0, ECX, 13 },
	{ "sse4_1", 1, 0, ECX, 19 },     { "sse4_2", 1, 0, ECX, 20 },
	{ "movbe", 1, 0, ECX, 22 },      { "popcnt", 1, 0, ECX, 23 },
	{ "aes", 1, 0, ECX, 25 },        { "xsave", 1, 0, ECX, 26 },
	{ "avx", 1, 0, ECX, 28 },        { "f16c", 1, 0, ECX, 29 },
	{ "rdrand", 1, 0, ECX, 30 },     { "fsgsbase", 7, 0, EBX, 0 },
	{ "bmi1", 7, 0, EBX, 3 },        { "avx2", 7, 0, EBX, 5 },
	{ "bmi2", 7, 0, EBX, 8 },        { "erms", 7, 0, EBX, 9 },
	{ "rtm", 7, 0, EBX, 11 },        { "avx512f", 7, 0, EBX, 16 },
	{ "avx512dq", 7, 0, EBX, 17 },   { "rdseed", 7, 0, EBX, 18 },
	{ "adx", 7, 0, EBX, 19 },        { "avx512ifma", 7, 0, EBX, 21 },
	{ "clflushopt", 7, 0, EBX, 23 }, { "clwb", 7, 0, EBX, 24 },
	{ "avx512cd", 7, 0, EBX, 28 },   { "sha_ni", 7, 0, EBX, 29 },
	{ "avx512bw", 7, 0, EBX, 30 },   { "avx512vl", 7, 0, EBX, 31 },
	{ "avx512vbmi", 7, 0, ECX, 1 },  { "avx512_vbmi2", 7, 0, ECX, 6 },
	{ "gfni", 7, 0, ECX, 8 },        { "vaes", 7, 0, ECX, 9 },
	{ "vpclmulqdq", 7, 0, ECX, 10 }, { "avx512_vnni", 7, 0, ECX, 11 },
	{ "avx512_bitalg", 7, 0, ECX, 12 }, { "avx512_vpopcntdq", 7, 0, ECX, 14 },
	{ "rdpid", 7, 0, ECX, 22 },      { "movdiri", 7, 0, ECX, 27 },
	{ "movdir64b", 7, 0, ECX, 28 },  { "fsrm", 7, 0, EDX, 4 },
	{ "serialize", 7, 0, EDX, 14 },  { "amx_bf16", 7, 0, EDX, 22 },
	{ "avx512_fp16", 7, 0, EDX, 23 }, { "amx_tile", 7, 0, EDX, 24 },
	{ "amx_int8", 7, 0, EDX, 25 },   { "avx_vnni", 7, 1, EAX, 4 },
	{ "avx512_bf16", 7, 1, EAX, 5 }, { "xsaveopt", 0xd, 1, EAX, 0 },
	{ "xsavec", 0xd, 1, EAX, 1 },    { "lahf_lm", 0x80000001, 0, ECX, 0 },
	{ "abm", 0x80000001, 0, ECX, 5 }, { "sse4a", 0x80000001, 0, ECX, 6 },
	{ "rdtscp", 0x80000001, 0, EDX, 27 },
};

static bool have(const struct feature *f)
{
	return cpuid_bit(f->leaf, f->sub, f->reg, f->bit);
}

static void append(char *buf, size_t size, const char *name, size_t len)
{
	size_t used = strlen(buf);

	if (used + len + 2 > size)
		return;
	if (used)
		buf[used++] = ' ';
	memcpy(buf + used, name, len);
	buf[used + len] = 0;
}

void cpu_features(char *buf, size_t size)
{
	buf[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(features); i++)
		if (have(&features[i]))
			append(buf, size, features[i].name, strlen(features[i].name));
}

/* A name that we don't know counts as lacking. */
static bool have_name(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(features); i++)
		if (strlen(features[i].name) == len && !memcmp(features[i].name, name, len))
			return have(&features[i]);
	return false;
}

unsigned cpu_lacking(const char *need, char *buf, size_t size)
{
	unsigned n = 0;

	buf[0] = 0;
	while (*need) {
		size_t len = strcspn(need, " ");

		if (len && !have_name(need, len)) {
			append(buf, size, need, len);
			n++;
		}
		need += len + (need[len] == ' ');
	}
	return n;
}
