// SPDX-License-Identifier: Apache-2.0
#ifndef RUNTIME_CONTAINER_STATE_H
#define RUNTIME_CONTAINER_STATE_H

#include "runtime/container.h"

/* The container that an image is going to be loaded into: an empty one. Borrowed. */
void container_load_into(struct container *c);

#endif
