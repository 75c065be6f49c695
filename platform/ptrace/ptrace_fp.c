// SPDX-License-Identifier: Apache-2.0
/*
 * FP and vector state, as an XSAVE area in the standard format (NT_X86_XSTATE). The host wants the
 * area to be exactly as large as its own, so a smaller one (a guest's legacy FXSAVE frame, an image
 * saved on another machine) is extended, with the missing components in their initial state.
 */
#include <elf.h>
#include <errno.h>
#include <linux/ptrace.h>
#include <string.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "platform/ptrace/ptrace_priv.h"

#define XSAVE_BV_OFF    512 /* XSTATE_BV, first word of the header behind the legacy area */
#define XSAVE_LEGACY    512
#define XSAVE_HDR_END   576
#define XFEATURE_FP_SSE 3UL

static _Atomic uint32_t host_size; /* bytes of the host's area; 0: not asked yet */

static int get_area(const struct plat_ctx *ctx, void *buf, uint32_t *ret_size)
{
	struct iovec iov = { buf, FPSTATE_MAX };

	if (pt_ptrace(PTRACE_GETREGSET, ctx->tid, (void *)NT_X86_XSTATE, &iov))
		return -errno;
	*ret_size = (uint32_t)iov.iov_len;
	atomic_store(&host_size, *ret_size);
	return 0;
}

int pt_get_fp(struct plat_ctx *ctx, struct fpstate *fp)
{
	return get_area(ctx, fp->data, &fp->size);
}

int pt_set_fp(struct plat_ctx *ctx, const struct fpstate *fp)
{
	struct fpstate full
		__uninitialized; /* 11 KiB; the part that is used is written below */
	struct iovec iov = { full.data, 0 };
	uint32_t size = atomic_load(&host_size);
	uint64_t bv = XFEATURE_FP_SSE;
	int err;

	if (!size) {
		err = get_area(ctx, full.data, &size);
		if (err)
			return err;
	}
	if (fp->size < XSAVE_LEGACY || fp->size > FPSTATE_MAX)
		return -EINVAL;
	memset(full.data, 0, size);
	memcpy(full.data, fp->data, MIN(fp->size, size));
	if (fp->size < XSAVE_HDR_END) {
		memset(full.data + XSAVE_LEGACY, 0, XSAVE_HDR_END - XSAVE_LEGACY);
		memcpy(full.data + XSAVE_BV_OFF, &bv, sizeof(bv));
	}
	iov.iov_len = size;
	if (!pt_ptrace(PTRACE_SETREGSET, ctx->tid, (void *)NT_X86_XSTATE, &iov))
		return 0;
	return errno == ESRCH ? -ESRCH : -EINVAL;
}

/* What execve() leaves: everything initial, all exceptions masked. */
int pt_init_fp(struct plat_ctx *ctx)
{
	struct fpstate fp __uninitialized;
	const uint16_t fcw = 0x37f;
	const uint32_t mxcsr = 0x1f80;

	memset(fp.data, 0, XSAVE_LEGACY);
	memcpy(fp.data, &fcw, sizeof(fcw));
	memcpy(fp.data + 24, &mxcsr, sizeof(mxcsr));
	fp.size = XSAVE_LEGACY;
	return pt_set_fp(ctx, &fp);
}
