// SPDX-License-Identifier: Apache-2.0
/*
 * FP and vector state of a guest thread that has handed over: the host has saved it behind the signal
 * frame, as an XSAVE area in the standard format (arch/x86/kernel/fpu/signal.c), and loads it from there
 * on return. So reading and setting it is copying.
 *
 * A state that the CPU refuses would make the return fail and kill the process, so it is checked here
 * first: man 2 sigreturn doesn't say, but xfpustate.c of the host does the same for ptrace.
 */
#include <errno.h>
#include <string.h>

#include "platform/trap/trap_sites.h"

#define XSAVE_LEGACY    512
#define XSAVE_HDR_END   576
#define MXCSR_OFF       24
#define MXCSR_MASK_OFF  28
#define XFEATURE_FP_SSE 3UL

/* The host's note in the legacy area's unused end. */
#define SW_OFF     464
#define SW_MAGIC   0x46505853U
#define SW_SIZE    48

struct sw_bytes {
	uint32_t magic1, extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size;
};

/* The area and its size; NULL when the frame has none that makes sense. */
static uint8_t *find_area(const struct plat_ctx *ctx, uint32_t *ret_size, uint64_t *ret_features)
{
	const struct trap_frame *f = (const void *)ctx->frame;
	uint64_t off = READ_ONCE(f->mc.fpstate) -
		       (STUB_CTX + (uint64_t)ctx->slot * STUB_CTX_SIZE);
	struct sw_bytes sw;
	uint8_t *area;

	if (off < STUB_CTX_PAGE || off > STUB_CTX_SIZE - XSAVE_LEGACY || off % 64)
		return NULL;
	area = (uint8_t *)ctx->page + off;
	memcpy(&sw, area + SW_OFF, sizeof(sw));
	__asm__ volatile("" : : : "memory"); /* what is checked is what is used */
	if (sw.magic1 != SW_MAGIC)
		sw = (struct sw_bytes){ .xfeatures = XFEATURE_FP_SSE, .xstate_size = XSAVE_LEGACY };
	if (sw.xstate_size < XSAVE_LEGACY || sw.xstate_size > FPSTATE_MAX ||
	    sw.xstate_size > STUB_CTX_SIZE - off)
		return NULL;
	*ret_size = sw.xstate_size;
	*ret_features = sw.xfeatures;
	return area;
}

int trap_get_fp(struct plat_ctx *ctx, struct fpstate *fp)
{
	uint64_t features;
	uint8_t *area;

	if (atomic_load(&ctx->as->dead) || !shim_to_frame(ctx))
		return -ESRCH;
	area = find_area(ctx, &fp->size, &features);
	if (!area)
		return -EIO;
	memcpy(fp->data, area, fp->size);
	memset(fp->data + SW_OFF, 0, SW_SIZE);
	return 0;
}

static uint32_t mxcsr_mask(void)
{
	uint8_t fx[512] __aligned(16);
	uint32_t mask;

	__asm__ volatile("fxsave %0" : "=m"(fx));
	memcpy(&mask, fx + MXCSR_MASK_OFF, sizeof(mask));
	return mask ? mask : 0xffbf; /* SDM 1, 11.6.6 */
}

/* Would the CPU take it? */
static bool state_ok(const struct fpstate *fp, uint64_t features)
{
	uint32_t mxcsr;
	uint64_t hdr[8];

	if (fp->size < XSAVE_LEGACY || fp->size > FPSTATE_MAX)
		return false;
	memcpy(&mxcsr, fp->data + MXCSR_OFF, sizeof(mxcsr));
	if (mxcsr & ~mxcsr_mask())
		return false;
	if (fp->size < XSAVE_HDR_END)
		return true;
	memcpy(hdr, fp->data + XSAVE_LEGACY, sizeof(hdr));
	for (unsigned i = 1; i < ARRAY_SIZE(hdr); i++) {
		if (hdr[i])
			return false;
	}
	return !(hdr[0] & ~(features | XFEATURE_FP_SSE));
}

int trap_set_fp(struct plat_ctx *ctx, const struct fpstate *fp)
{
	uint64_t features, bv = XFEATURE_FP_SSE;
	uint32_t size, n;
	uint8_t *area;

	if (atomic_load(&ctx->as->dead) || !shim_to_frame(ctx))
		return -ESRCH;
	area = find_area(ctx, &size, &features);
	if (!area)
		return -EIO;
	if (!state_ok(fp, features))
		return -EINVAL;
	n = MIN(fp->size, size);
	memcpy(area, fp->data, SW_OFF); /* the host's note stays */
	if (size < XSAVE_HDR_END)
		return 0;
	if (n < XSAVE_HDR_END) {
		memset(area + XSAVE_LEGACY, 0, size - XSAVE_LEGACY);
		memcpy(area + XSAVE_LEGACY, &bv, sizeof(bv));
	} else {
		memcpy(area + XSAVE_LEGACY, fp->data + XSAVE_LEGACY, n - XSAVE_LEGACY);
		memset(area + n, 0, size - n);
	}
	return 0;
}

/* What execve() leaves: everything initial, all exceptions masked. */
int trap_init_fp(struct plat_ctx *ctx)
{
	struct fpstate fp __uninitialized; /* 11 KiB; the part that is used is written below */
	const uint16_t fcw = 0x37f;
	const uint32_t mxcsr = 0x1f80;

	memset(fp.data, 0, XSAVE_LEGACY);
	memcpy(fp.data, &fcw, sizeof(fcw));
	memcpy(fp.data + MXCSR_OFF, &mxcsr, sizeof(mxcsr));
	fp.size = XSAVE_LEGACY;
	return trap_set_fp(ctx, &fp);
}
