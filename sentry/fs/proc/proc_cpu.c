// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/cpuinfo, from CPUID. Guest code runs natively, so what the CPU says is what the guest gets; the
 * flags list has the names that programs look for, in Linux's spelling, for bits that are set.
 */
#include <string.h>

#include "base/cpuid.h"
#include "sentry/fs/proc/proc_priv.h"

static const struct {
	uint32_t leaf, sub;
	enum cpuid_reg reg;
	unsigned bit;
	const char *name;
} flags[] = {
	{ 1, 0, EDX, 0, "fpu" },      { 1, 0, EDX, 1, "vme" },     { 1, 0, EDX, 2, "de" },
	{ 1, 0, EDX, 3, "pse" },      { 1, 0, EDX, 4, "tsc" },     { 1, 0, EDX, 5, "msr" },
	{ 1, 0, EDX, 6, "pae" },      { 1, 0, EDX, 7, "mce" },     { 1, 0, EDX, 8, "cx8" },
	{ 1, 0, EDX, 9, "apic" },     { 1, 0, EDX, 11, "sep" },    { 1, 0, EDX, 12, "mtrr" },
	{ 1, 0, EDX, 13, "pge" },     { 1, 0, EDX, 14, "mca" },    { 1, 0, EDX, 15, "cmov" },
	{ 1, 0, EDX, 16, "pat" },     { 1, 0, EDX, 17, "pse36" },  { 1, 0, EDX, 19, "clflush" },
	{ 1, 0, EDX, 23, "mmx" },     { 1, 0, EDX, 24, "fxsr" },   { 1, 0, EDX, 25, "sse" },
	{ 1, 0, EDX, 26, "sse2" },    { 1, 0, EDX, 27, "ss" },     { 1, 0, EDX, 28, "ht" },
	{ 0x80000001, 0, EDX, 11, "syscall" }, { 0x80000001, 0, EDX, 20, "nx" },
	{ 0x80000001, 0, EDX, 26, "pdpe1gb" }, { 0x80000001, 0, EDX, 27, "rdtscp" },
	{ 0x80000001, 0, EDX, 29, "lm" },
	{ 0x80000007, 0, EDX, 8, "constant_tsc" },
	{ 0x80000007, 0, EDX, 8, "nonstop_tsc" },
	{ 1, 0, ECX, 0, "pni" },      { 1, 0, ECX, 1, "pclmulqdq" }, { 1, 0, ECX, 9, "ssse3" },
	{ 1, 0, ECX, 12, "fma" },     { 1, 0, ECX, 13, "cx16" },   { 1, 0, ECX, 17, "pcid" },
	{ 1, 0, ECX, 19, "sse4_1" },  { 1, 0, ECX, 20, "sse4_2" }, { 1, 0, ECX, 21, "x2apic" },
	{ 1, 0, ECX, 22, "movbe" },   { 1, 0, ECX, 23, "popcnt" }, { 1, 0, ECX, 25, "aes" },
	{ 1, 0, ECX, 26, "xsave" },   { 1, 0, ECX, 28, "avx" },    { 1, 0, ECX, 29, "f16c" },
	{ 1, 0, ECX, 30, "rdrand" },  { 1, 0, ECX, 31, "hypervisor" },
	{ 0x80000001, 0, ECX, 0, "lahf_lm" }, { 0x80000001, 0, ECX, 5, "abm" },
	{ 0x80000001, 0, ECX, 6, "sse4a" }, { 0x80000001, 0, ECX, 8, "3dnowprefetch" },
	{ 7, 0, EBX, 0, "fsgsbase" }, { 7, 0, EBX, 3, "bmi1" },    { 7, 0, EBX, 4, "hle" },
	{ 7, 0, EBX, 5, "avx2" },     { 7, 0, EBX, 7, "smep" },    { 7, 0, EBX, 8, "bmi2" },
	{ 7, 0, EBX, 9, "erms" },     { 7, 0, EBX, 10, "invpcid" }, { 7, 0, EBX, 11, "rtm" },
	{ 7, 0, EBX, 16, "avx512f" }, { 7, 0, EBX, 17, "avx512dq" }, { 7, 0, EBX, 18, "rdseed" },
	{ 7, 0, EBX, 19, "adx" },     { 7, 0, EBX, 20, "smap" },   { 7, 0, EBX, 21, "avx512ifma" },
	{ 7, 0, EBX, 23, "clflushopt" }, { 7, 0, EBX, 24, "clwb" }, { 7, 0, EBX, 28, "avx512cd" },
	{ 7, 0, EBX, 29, "sha_ni" },  { 7, 0, EBX, 30, "avx512bw" }, { 7, 0, EBX, 31, "avx512vl" },
	{ 0xd, 1, EAX, 0, "xsaveopt" }, { 0xd, 1, EAX, 1, "xsavec" }, { 0xd, 1, EAX, 2, "xgetbv1" },
	{ 7, 1, EAX, 4, "avx_vnni" }, { 7, 1, EAX, 5, "avx512_bf16" },
	{ 7, 0, ECX, 1, "avx512vbmi" }, { 7, 0, ECX, 2, "umip" },  { 7, 0, ECX, 6, "avx512_vbmi2" },
	{ 7, 0, ECX, 8, "gfni" },     { 7, 0, ECX, 9, "vaes" },    { 7, 0, ECX, 10, "vpclmulqdq" },
	{ 7, 0, ECX, 11, "avx512_vnni" }, { 7, 0, ECX, 12, "avx512_bitalg" },
	{ 7, 0, ECX, 14, "avx512_vpopcntdq" }, { 7, 0, ECX, 22, "rdpid" },
	{ 7, 0, EDX, 4, "fsrm" },     { 7, 0, EDX, 22, "amx_bf16" }, { 7, 0, EDX, 23, "avx512_fp16" },
	{ 7, 0, EDX, 24, "amx_tile" }, { 7, 0, EDX, 25, "amx_int8" },
};

static void show_flags(struct seqbuf *out)
{
	seq_printf(out, "flags\t\t:");
	for (unsigned i = 0; i < ARRAY_SIZE(flags); i++)
		if (cpuid_bit(flags[i].leaf, flags[i].sub, flags[i].reg, flags[i].bit))
			seq_printf(out, " %s", flags[i].name);
	seq_putc(out, '\n');
}

static void vendor_string(char out[13])
{
	uint32_t r[4] = { 0 };

	cpuid(0, 0, r);
	memcpy(out, &r[EBX], 4);
	memcpy(out + 4, &r[EDX], 4);
	memcpy(out + 8, &r[ECX], 4);
	out[12] = '\0';
}

static void brand_string(char out[49])
{
	memset(out, 0, 49);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t r[4];

		if (!cpuid(0x80000002 + i, 0, r))
			break;
		memcpy(out + 16 * i, r, 16);
	}
	if (!out[0])
		memcpy(out, "unknown", 8);
}

static void address_sizes(unsigned *phys, unsigned *virt)
{
	uint32_t r[4];

	*phys = 36;
	*virt = 48;
	if (cpuid(0x80000008, 0, r)) {
		*phys = r[EAX] & 0xff;
		*virt = r[EAX] >> 8 & 0xff;
	}
}

struct cpu_model {
	char vendor[13], brand[49];
	unsigned family, model, stepping, phys, virt, clflush, level;
};

static void get_model(struct cpu_model *m)
{
	uint32_t r[4] = { 0 };

	vendor_string(m->vendor);
	brand_string(m->brand);
	cpuid(0, 0, r);
	m->level = r[EAX];
	cpuid(1, 0, r);
	m->family = r[EAX] >> 8 & 0xf;
	m->model = r[EAX] >> 4 & 0xf;
	m->stepping = r[EAX] & 0xf;
	if (m->family == 6 || m->family == 15)
		m->model |= r[EAX] >> 12 & 0xf0;
	if (m->family == 15)
		m->family += r[EAX] >> 20 & 0xff;
	m->clflush = (r[EBX] >> 8 & 0xff) * 8;
	address_sizes(&m->phys, &m->virt);
}

int proc_show_cpuinfo(struct pfs_inode *pi, struct seqbuf *out)
{
	unsigned n = kernel.limits.ncpus ? kernel.limits.ncpus : 1;
	struct cpu_model m = { 0 };

	(void)pi;
	get_model(&m);
	for (unsigned i = 0; i < n; i++) {
		seq_printf(out, "processor\t: %u\nvendor_id\t: %s\ncpu family\t: %u\n"
				"model\t\t: %u\nmodel name\t: %s\nstepping\t: %u\n",
			   i, m.vendor, m.family, m.model, m.brand, m.stepping);
		seq_printf(out, "cpu MHz\t\t: 2000.000\ncache size\t: 8192 KB\nphysical id\t: 0\n"
				"siblings\t: %u\ncore id\t\t: %u\ncpu cores\t: %u\napicid\t\t: %u\n"
				"initial apicid\t: %u\nfpu\t\t: yes\nfpu_exception\t: yes\n"
				"cpuid level\t: %u\nwp\t\t: yes\n",
			   n, i, n, i, i, m.level);
		show_flags(out);
		seq_printf(out, "bugs\t\t:\nbogomips\t: 4000.00\nclflush size\t: %u\n"
				"cache_alignment\t: %u\n"
				"address sizes\t: %u bits physical, %u bits virtual\n"
				"power management:\n\n",
			   m.clflush, m.clflush, m.phys, m.virt);
	}
	return 0;
}
