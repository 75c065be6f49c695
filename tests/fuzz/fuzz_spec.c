// SPDX-License-Identifier: Apache-2.0
/* config.json: refused with one message or accepted, and freed without a trace either way. */
#include <stdint.h>
#include <stdlib.h>

#include "runtime/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	char *why = NULL;
	struct spec *s = spec_parse(text, size, "config.json", &why);

	if (!s == !why)
		abort();
	if (s && (!s->root_path || !s->process.nargs || !s->process.cwd))
		abort();
	spec_free(s);
	free(why);
	return 0;
}
