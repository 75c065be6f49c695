// SPDX-License-Identifier: Apache-2.0
/* Bind mounts and write-through roots: host trees that stay shared and coherent with the
 * host. */
#ifndef SENTRY_FS_GOFER_GOFER_H
#define SENTRY_FS_GOFER_GOFER_H

#include <stdbool.h>

struct gofer_client;
struct super;

/* A file system over attach point @attach. @single_file: the attach point is a regular
 * file. err_ptr. */
struct super *gofer_create_super(struct gofer_client *c, unsigned attach, unsigned long flags,
				 bool single_file);

#endif
