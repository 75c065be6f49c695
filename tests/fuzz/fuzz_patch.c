// SPDX-License-Identifier: Apache-2.0
/* Patched call sites: whatever the text, a plan that is accepted keeps its promises (trap_patch.h). The
 * first 8 bytes are the address. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "platform/stub/layout.h"
#include "platform/trap/trap_patch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(c)                  \
	do {                     \
		if (!(c))        \
			abort(); \
	} while (0)

static void check_slot(struct patch_plan *p, uint64_t slot)
{
	uint8_t buf[SLOT_MAX], jmp[PATCH_JMP_LEN];
	int n = patch_emit(p, slot, STUB_BASE + RT_SHIM, buf);

	if (n < 0)
		return;
	MUST(n > SLOT_AFTER && n <= SLOT_MAX && p->tail + 5 == n);
	MUST(buf[SLOT_SYSCALL] == 0x0f && buf[SLOT_SYSCALL + 1] == 0x05);
	patch_jump(p->addr, slot, jmp);
	for (unsigned off = 0; off < p->len; off++) {
		int to = patch_to_slot(p, off);

		MUST(to < 0 || (to >= SLOT_AFTER && to < p->tail));
		MUST(to < 0 || patch_to_site(p, (unsigned)to) == (int)off);
	}
	MUST(patch_to_slot(p, 2) == SLOT_AFTER && patch_to_slot(p, 1) < 0);
	MUST(patch_to_site(p, p->tail) == p->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct patch_plan p;
	uint64_t addr, lo, hi;
	unsigned sum = 2;

	if (size < 8 || !patch_decoder_init())
		return 0;
	memcpy(&addr, data, sizeof(addr));
	addr %= GUEST_TASK_SIZE;
	if (patch_plan(addr, data + 8, (unsigned)(size - 8), &p))
		return 0;
	MUST(p.n >= 1 && p.n <= PATCH_INSNS_MAX && p.len >= PATCH_JMP_LEN && p.len <= 4 + 15);
	for (unsigned i = 0; i < p.n; i++) {
		MUST(p.insn[i].at == sum && p.insn[i].len >= 1 && p.insn[i].len <= 15);
		MUST(!memcmp(p.insn[i].bytes, data + 8 + sum, p.insn[i].len));
		sum += p.insn[i].len;
	}
	MUST(sum == p.len && sum <= size - 8);
	for (unsigned i = 0; patch_area_window(addr, i, &lo, &hi); i++) {
		uint64_t at = lo < hi ? patch_next_slot(addr, lo, hi) : 0;

		MUST(!at || (at >= lo && at < hi));
		if (at)
			check_slot(&p, at);
	}
	return 0;
}
