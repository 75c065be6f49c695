// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry's side of the pages that a stub of the trap platform can write: a hand-over by signal frame
 * or by the shim, FP state in and out, and the way back, on pages that say anything. The area has
 * exactly the size of a context, so that the sanitizer sees whoever leaves it.
 *
 * Input: flags, frame offset / 8 (2), offset of the FP state / 64 (2), then what is laid over the shared page
 * (the first 0x180 bytes), the frame and the FP state, as far as it goes.
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "platform/trap/trap_sites.h"

#define HEADER    5
#define PAGE_PART 0x180
#define FP_PART   640

#define F_FRAME_OK 1 /* the page names the frame, the frame the FP state */
#define F_SHIM     2
#define F_SITES    4
#define F_SET_FP   8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *lay(char *to, size_t room, size_t len, const uint8_t *data, const uint8_t *end)
{
	len = MIN(len, room);
	len = MIN(len, (size_t)(end - data));
	memcpy(to, data, len);
	return data + len;
}

static void one_handover(struct plat_ctx *ctx, unsigned flags)
{
	static struct fpstate fp;
	struct plat_trap trap = { 0 };
	struct regs r = { 0 };
	bool found;

	if (flags & F_SHIM) {
		(void)shim_load(ctx, &r, &trap);
		(void)shim_answer(ctx, &r);
		ctx->in_shim = false;
	}
	found = page_find_frame(ctx);
	ctx->as->dead = false; /* as if it had not been killed for that */
	if (!found)
		return;
	(void)page_load_event(ctx, &r, &trap);
	fp.size = 0;
	if (!trap_get_fp(ctx, &fp) && fp.size > FPSTATE_MAX)
		abort();
	if (flags & F_SET_FP)
		(void)trap_set_fp(ctx, &fp);
	else
		(void)trap_init_fp(ctx);
	page_store_regs(ctx, &r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* a process that isn't there */
	struct plat_as as = { .stub = { .pid = INT32_MAX } };
	struct plat_ctx ctx = { .as = &as };
	const uint8_t *end = data + size;
	size_t frame, fp;
	unsigned flags;
	char *area;

	if (size < HEADER)
		return 0;
	log_init(2, LOG_TEXT, LOG_ERROR, "fuzz");
	flags = data[0];
	frame = (size_t)(data[1] | data[2] << 8) % (STUB_CTX_SIZE / 8) * 8;
	fp = (size_t)(data[3] | data[4] << 8) % (STUB_CTX_SIZE / 64) * 64;
	area = aligned_alloc(STUB_CTX_SIZE, STUB_CTX_SIZE);
	if (!area)
		abort();
	memset(area, 0, STUB_CTX_SIZE);
	data = lay(area, STUB_CTX_SIZE, PAGE_PART, data + HEADER, end);
	data = lay(area + frame, STUB_CTX_SIZE - frame, sizeof(struct trap_frame), data, end);
	(void)lay(area + fp, STUB_CTX_SIZE - fp, FP_PART, data, end);
	ctx.page = (struct trap_page *)(void *)area;
	if (flags & F_FRAME_OK) {
		ctx.page->frame = STUB_CTX + frame;
		if (frame + sizeof(struct trap_frame) <= STUB_CTX_SIZE)
			((struct trap_frame *)(void *)(area + frame))->mc.fpstate = STUB_CTX + fp;
	}
	if (flags & F_SITES)
		sites_create(&as);
	one_handover(&ctx, flags);
	one_handover(&ctx, flags); /* on what the first has left */
	sites_destroy(&as);
	free(area);
	return 0;
}
