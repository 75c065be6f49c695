// SPDX-License-Identifier: Apache-2.0
/*
 * The user namespace that we were started in. Rootless Podman runs its runtime as root of one that has a
 * user's subordinate ids: root there may do what root does, but owns neither /run nor any id above those.
 */
#ifndef RUNTIME_USERNS_H
#define RUNTIME_USERNS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether all ids of the host are mapped, as in the first namespace. */
bool userns_is_host(void);

/* @want if it is mapped according to @map ("uid_map" or "gid_map"); else the highest id that is. */
uint32_t userns_spare_id(const char *map, uint32_t want);

#endif
