// SPDX-License-Identifier: Apache-2.0
/*
 * Capstone for x86-64 alone. Its static library has a table of all its architectures, which would pull six
 * megabytes of other CPUs' tables into the binary, with relocations to be made at each start. So their
 * entry points are defined here, as architectures that can't be had.
 *
 * The disassembler is made once, at start, and used under a lock; decoding allocates nothing.
 */
#include <capstone/capstone.h>

#include "base/mutex.h"
#include "platform/trap/trap_patch.h"

#define NO_ARCH(name)                                                                     \
	cs_err name##_global_init(void *ud);                                              \
	cs_err name##_option(void *ud, cs_opt_type type, size_t value);                   \
	cs_err name##_global_init(void *ud __unused)                                      \
	{                                                                                 \
		return CS_ERR_ARCH;                                                       \
	}                                                                                 \
	cs_err name##_option(void *ud __unused, cs_opt_type type __unused,                \
			     size_t value __unused)                                       \
	{                                                                                 \
		return CS_ERR_ARCH;                                                       \
	}

NO_ARCH(AArch64)
NO_ARCH(ARM)
NO_ARCH(EVM)
NO_ARCH(M680X)
NO_ARCH(M68K)
NO_ARCH(Mips)
NO_ARCH(PPC)
NO_ARCH(Sparc)
NO_ARCH(SystemZ)
NO_ARCH(TMS320C64x)
NO_ARCH(XCore)

static struct {
	struct mutex mu;
	csh handle;
	cs_insn *insn;
} dis;

bool patch_decoder_init(void)
{
	if (dis.insn)
		return true;
	mutex_init(&dis.mu, RANK_PLATFORM);
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &dis.handle) ||
	    cs_option(dis.handle, CS_OPT_DETAIL, CS_OPT_ON))
		return false;
	dis.insn = cs_malloc(dis.handle);
	return dis.insn != NULL;
}

const cs_insn *patch_decoder_lock(void)
{
	if (!dis.insn)
		return NULL;
	mutex_lock(&dis.mu);
	return dis.insn;
}

bool patch_decode(const uint8_t **code, size_t *left, uint64_t *addr)
{
	mutex_assert_held(&dis.mu);
	return cs_disasm_iter(dis.handle, code, left, addr, dis.insn);
}

void patch_decoder_unlock(void)
{
	mutex_unlock(&dis.mu);
}
