// SPDX-License-Identifier: Apache-2.0
/* What a sentry is told of a container: the first one's boot message, and those of containers that join it later. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/container.h"

#define FIXED_FDS 3 /* gofer, listener, exit.json; then that for volumes; the console, or standard descriptors */

bool boot_read(struct boot *b, json_t *json, const int *fds, unsigned nfds, char **ret_why)
{
	bool console = json_is_true(json_object_get(json, "console"));
	bool volumes = json_is_true(json_object_get(json, "volumes"));
	unsigned stdio = FIXED_FDS + (volumes ? 1 : 0), given = stdio + (console ? 1 : 3);
	json_int_t extra = json_integer_value(json_object_get(json, "extra_fds"));
	AUTO_FREE char *text = json_dumps(json_object_get(json, "config"), JSON_COMPACT);

	*b = (struct boot){ .json = json, .sigfd = -1, .console = -1, .stdio = { -1, -1, -1 } };
	b->gofer = b->volumes = b->listener = b->exitfd = -1;
	b->id = json_string_value(json_object_get(json, "id"));
	if (!b->id || nfds < given || nfds - given != extra) {
		for (unsigned i = 0; i < nfds; i++)
			close(fds[i]);
		*ret_why = kstrdup("malformed boot message");
		return false;
	}
	b->gofer = fds[0];
	b->listener = fds[1];
	b->exitfd = fds[2];
	if (volumes)
		b->volumes = fds[FIXED_FDS];
	if (console)
		b->console = fds[stdio];
	else
		memcpy(b->stdio, fds + stdio, sizeof(b->stdio));
	b->nextra_fds = (unsigned)extra;
	memcpy(b->extra_fds, fds + given, b->nextra_fds * sizeof(fds[0]));
	b->rows = (unsigned)json_integer_value(json_object_get(json, "rows"));
	b->cols = (unsigned)json_integer_value(json_object_get(json, "cols"));
	b->spec = spec_parse(text ? text : "", text ? strlen(text) : 0, "config.json", ret_why);
	return b->spec != NULL;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void boot_fini(struct boot *b, bool handed)
{
	close_one(&b->listener);
	close_one(&b->exitfd);
	for (int i = 0; i < 3 && !handed; i++)
		close_one(&b->stdio[i]);
	for (unsigned i = 0; i < b->nextra_fds && !handed; i++)
		close_one(&b->extra_fds[i]);
	if (!handed)
		close_one(&b->console);
	spec_free(b->spec);
	json_decref(b->json);
}
