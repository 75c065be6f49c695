// SPDX-License-Identifier: Apache-2.0
/* See overlay.h. */
#include "runtime/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/errno_text.h"

#define DISK_DIR "/var/tmp" /* of files that are large and need not last (hier(7)) */
#define SIZE_MIN (1UL << 20)

static const char *const names[] = { [OVERLAY_MEMORY] = "memory", [OVERLAY_DISK] = "disk", [OVERLAY_NONE] = "none" };

const char *overlay_name(enum overlay_mode mode)
{
	return names[mode];
}

static bool parse_size(const char *s, uint64_t *ret)
{
	static const char units[] = "kmgt";
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	unit = *end ? strchr(units, *end | 0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (errno || *end || *ret > (uint64_t)INT64_MAX >> shift)
		return false;
	*ret <<= shift;
	return *ret >= SIZE_MIN;
}

bool overlay_parse(const char *text, enum overlay_mode *ret, uint64_t *ret_size)
{
	*ret_size = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*ret = (enum overlay_mode)i;
		return true;
	}
	if (strncmp(text, "disk:", 5) != 0)
		return false;
	*ret = OVERLAY_DISK;
	return parse_size(text + 5, ret_size);
}

int overlay_of(const struct spec *spec, enum overlay_mode dflt, enum overlay_mode *ret, char **ret_why)
{
	const char *text = json_string_value(json_object_get(spec->annotations, OVERLAY_ANNOTATION));
	uint64_t size;

	*ret = dflt;
	if (!text || overlay_parse(text, ret, &size))
		return 0;
	*ret_why = kasprintf("unknown overlay mode '%s' (none, memory, disk or disk:SIZE)", text);
	return -1;
}

static bool is_memory(const struct statfs *s)
{
	return s->f_type == TMPFS_MAGIC || s->f_type == RAMFS_MAGIC;
}

int overlay_open_dir(const struct spec *spec, const struct statedir *s, uint64_t *ret_size, char **ret_why)
{
	const char *mode = json_string_value(json_object_get(spec->annotations, OVERLAY_ANNOTATION));
	const char *dir = json_string_value(json_object_get(spec->annotations, OVERLAY_DIR_ANNOTATION));
	enum overlay_mode ignored;
	struct statfs fs;
	int fd;

	*ret_size = 0;
	if (mode)
		(void)overlay_parse(mode, &ignored, ret_size); /* checked by overlay_of() */
	if (!dir)
		dir = fstatfs(s->fd, &fs) == 0 && !is_memory(&fs) ? s->path : DISK_DIR;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstatfs(fd, &fs)) {
		*ret_why = kasprintf("directory of the layer %s: %s", dir, errno_text(errno));
		return -1;
	}
	if (!*ret_size)
		*ret_size = MAX((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / 2, (uint64_t)SIZE_MIN);
	return fd;
}
