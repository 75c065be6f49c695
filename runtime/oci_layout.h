// SPDX-License-Identifier: Apache-2.0
/* An exported image as an artifact in an OCI image layout, a directory that skopeo(1) copies from and to. */
#ifndef RUNTIME_OCI_LAYOUT_H
#define RUNTIME_OCI_LAYOUT_H

#include <stdint.h>

#include "base/sha256.h"
#include "runtime/image_dir.h"

/* A layout at @dir (made if it isn't there) with @src as its one artifact, called @name. 0, or -1 with *ret_why
 * (heap). */
int oci_layout_write(const char *dir, const struct image_source *src, const char *name, char **ret_why);
/* Opens the artifact's blob in the layout @dir: a descriptor, with its digest; or -1 with *ret_why. */
int oci_layout_open(const char *dir, char digest[SHA256_HEX_LEN + 1], char **ret_why);

#endif
