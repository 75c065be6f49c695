// SPDX-License-Identifier: Apache-2.0
/*
 * The vDSO as something to map: one memory file with the embedded image, shared read-only by all guests.
 * It holds no state: an image loaded by an older release keeps its own copy of the code in its address space and
 * works on as long as the layout of sentry/time/vvar.h stays.
 */
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "sentry/loader/loader.h"
#include "sentry/mm/mfile.h"

extern const uint8_t vdso_image_start[], vdso_image_end[];

static struct {
	struct mfile *mf;
	uint64_t off, len;
} vdso;

/* Context: once, at start, after mfile_set_provider(). */
void vdso_init(void)
{
	size_t size = (size_t)(vdso_image_end - vdso_image_start);
	uint64_t contiguous = 0;
	uint8_t *p;
	int r;

	vdso.len = page_up(size);
	vdso.mf = mfile_create("vdso");
	if (is_err(vdso.mf))
		panic("vdso: no memory file: %s", strerror((int)-ptr_err(vdso.mf)));
	r = mfile_alloc(vdso.mf, vdso.len, &vdso.off);
	if (r < 0)
		panic("vdso: no pages: %s", strerror(-r));
	contiguous = vdso.len;
	p = mfile_ptr(vdso.mf, vdso.off, &contiguous);
	if (!p || contiguous < vdso.len)
		panic("vdso: can't be mapped");
	memcpy(p, vdso_image_start, size);
}

struct mfile *vdso_mfile(uint64_t *ret_off, uint64_t *ret_len)
{
	*ret_off = vdso.off;
	*ret_len = vdso.len;
	return vdso.mf;
}
