// SPDX-License-Identifier: Apache-2.0
/* Where writes to the root file system go: docs/oci.md. */
#ifndef RUNTIME_OVERLAY_H
#define RUNTIME_OVERLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/spec.h"
#include "runtime/statedir.h"

enum overlay_mode {
	OVERLAY_MEMORY, /* they stay in the sandbox, in its memory */
	OVERLAY_DISK,   /* they stay in the sandbox, in unlinked files of a directory */
	OVERLAY_NONE,   /* written through to the bundle's rootfs */
};

/* In a spec, as --overlay and --overlay-dir. */
#define OVERLAY_ANNOTATION "org.holdfast.overlay"
#define OVERLAY_DIR_ANNOTATION "org.holdfast.overlay-dir"

/* "none", "memory", "disk", "disk:SIZE" (bytes, or with k, m, g, t). *ret_size: 0 where none is given. False: another
 * text. */
bool overlay_parse(const char *text, enum overlay_mode *ret, uint64_t *ret_size);
/* The mode's name, without a size. */
const char *overlay_name(enum overlay_mode mode);
/* What @spec's annotation says, or @dflt where there is none. 0, or -1 with *ret_why. */
int overlay_of(const struct spec *spec, enum overlay_mode dflt, enum overlay_mode *ret, char **ret_why);
/*
 * Opens the directory in which the layer of container @s is to lie, and says how large it may get: as the spec's
 * annotations have it; else the state directory, or /var/tmp when that is in memory, and half of what is free there.
 * Descriptor, or -1 with *ret_why.
 */
int overlay_open_dir(const struct spec *spec, const struct statedir *s, uint64_t *ret_size, char **ret_why);

#endif
