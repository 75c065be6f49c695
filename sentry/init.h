// SPDX-License-Identifier: Apache-2.0
/* Start-up of the parts of the sentry, in the one order that works. */
#ifndef SENTRY_INIT_H
#define SENTRY_INIT_H

/* After kernel_init() and mfile_set_provider(). Starts service threads. */
void sentry_init(void);

#endif
