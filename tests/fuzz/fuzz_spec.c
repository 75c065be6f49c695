// SPDX-License-Identifier: Apache-2.0
/* config.json: refused with one message or accepted, and freed without a trace either way. */
#include <stdint.h>
#include <stdlib.h>

#include "runtime/mount_options.h"
#include "runtime/seccomp_profile.h"
#include "runtime/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the launcher makes of an accepted document. */
static void look_further(const struct spec *s)
{
	char *why = NULL;
	json_t *program = seccomp_profile_compile(
		json_object_get(json_object_get(s->json, "linux"), "seccomp"), &why);

	if (!program == !why)
		abort();
	json_decref(program);
	free(why);
	for (unsigned i = 0; i < s->nmounts; i++) {
		struct mount_options o;

		mount_options_parse(&s->mounts[i], &o);
		mount_options_fini(&o);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	char *why = NULL;
	struct spec *s = spec_parse(text, size, "config.json", &why);

	if (!s == !why)
		abort();
	if (s && (!s->root_path || !s->process.nargs || !s->process.cwd))
		abort();
	if (s)
		look_further(s);
	spec_free(s);
	free(why);
	return 0;
}
