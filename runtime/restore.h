// SPDX-License-Identifier: Apache-2.0
/* New sandboxes from images and branches: what the commands share. */
#ifndef RUNTIME_RESTORE_H
#define RUNTIME_RESTORE_H

#include "runtime/cmd_run.h"
#include "runtime/image_dir.h"

/* Fills in @b for a sandbox @id that goes on from @src (both borrowed): the specification of @bundle, or
 * where that is NULL the one that it had. Terminal: not yet. 0, or 1 after a message. */
int restore_prepare(struct boot_request *b, const char *id, const char *bundle,
		    const struct image_source *src);
/* Another hostname than the one that it had; NULL: the same. 0, or 1 after a message. */
int restore_rename(struct boot_request *b, const char *hostname);
/* Another /etc/machine-id: 32 hexadecimal digits, or "random"; NULL: the one that its files have. 0, or 1 after a
 * message. Kept as an annotation, by which the sentry writes it. */
#define MACHINE_ID_ANNOTATION "org.holdfast.machine-id"
int restore_machine_id(struct boot_request *b, const char *id);
/* A descriptor at which nobody sits, for b->console_fd. */
int restore_no_console(void);

#endif
