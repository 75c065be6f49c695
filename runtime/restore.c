// SPDX-License-Identifier: Apache-2.0
/* See restore.h. */
#include "runtime/restore.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/errno_text.h"
#include "runtime/image_meta.h"
#include "sentry/kernel/kernel.h"

#define HOSTNAME_MAX 64

static struct spec *own_spec(const struct image_source *src, char **ret_why)
{
	AUTO_FREE char *text = json_dumps(json_object_get(src->meta->json, "config"), JSON_COMPACT);

	return spec_parse(text ? text : "", text ? strlen(text) : 0, "config of the image", ret_why);
}

int restore_prepare(struct boot_request *b, const char *id, const char *bundle,
		    const struct image_source *src)
{
	const json_t *meta = src->meta->json;
	const char *overlay = json_string_value(json_object_get(meta, "overlay"));
	const char *was = json_string_value(
		json_object_get(json_object_get(meta, "extra"), "bundle"));
	AUTO_FREE char *why = NULL;
	uint64_t size;

	memset(b, 0, sizeof(*b));
	b->id = id;
	b->cgroup = true;
	b->console_fd = -1;
	if (!overlay || !overlay_parse(overlay, &b->overlay, &size))
		b->overlay = OVERLAY_MEMORY;
	b->restore = &src->from;
	b->bundle = bundle ? realpath(bundle, NULL) : kstrdup(was ? was : "/");
	if (!b->bundle)
		return cli_fail("bundle %s: %s", bundle, errno_text(errno));
	b->spec = bundle ? spec_load(b->bundle, &why) : own_spec(src, &why);
	if (!b->spec)
		return cli_fail("%s", why);
	return 0;
}

int restore_rename(struct boot_request *b, const char *hostname)
{
	if (!hostname)
		return 0;
	if (!*hostname || strlen(hostname) > HOSTNAME_MAX)
		return cli_fail("a hostname has 1 to %d bytes", HOSTNAME_MAX);
	if (json_object_set_new(b->spec->json, "hostname", json_string(hostname)))
		return cli_fail("a hostname is UTF-8 text");
	b->spec->hostname = json_string_value(json_object_get(b->spec->json, "hostname"));
	return 0;
}

int restore_machine_id(struct boot_request *b, const char *id)
{
	uint8_t bytes[IMAGE_ID_LEN];
	char hex[2 * IMAGE_ID_LEN + 1];

	if (!id)
		return 0;
	if (b->overlay == OVERLAY_NONE)
		return cli_fail("--machine-id: writes go through to the root file system, which others may use");
	if (!strcmp(id, "random"))
		kernel_random(bytes, sizeof(bytes));
	else if (!image_id_parse(id, bytes))
		return cli_fail("a machine id has 32 hexadecimal digits, or is random");
	image_id_hex(bytes, hex);
	spec_annotate(b->spec, MACHINE_ID_ANNOTATION, hex);
	return 0;
}

int restore_no_console(void)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -1;
	close(sv[1]);
	return sv[0];
}
