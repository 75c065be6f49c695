// SPDX-License-Identifier: Apache-2.0
/* The options of the spec's mounts: flags, propagation, and what is left for the file system. */
#ifndef RUNTIME_MOUNT_OPTIONS_H
#define RUNTIME_MOUNT_OPTIONS_H

#include <stdbool.h>

#include "runtime/spec.h"

struct mount_options {
	unsigned long flags;       /* MS_* */
	unsigned long propagation; /* MS_SHARED ..., MS_REC; 0: not given. The last one counts */
	bool copy_up;              /* tmpcopyup */
	char *data;                /* heap: comma-separated */
};

/* Takes the options of @m apart; mount_options_fini() frees. */
void mount_options_parse(const struct spec_mount *m, struct mount_options *ret);
void mount_options_fini(struct mount_options *o);
bool mount_is_bind(const struct spec_mount *m);
/* An option that is known and can't be had ("idmap"), or NULL. */
const char *mount_options_refused(const struct spec_mount *m);
/* All names that mount_options_parse() acts on, for `features`; NULL terminated. */
const char *mount_options_name(unsigned i);

#endif
