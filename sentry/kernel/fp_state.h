// SPDX-License-Identifier: Apache-2.0
/* FP and vector state in images: by component, so that it fits a CPU with another layout of XSAVE areas. */
#ifndef SENTRY_KERNEL_FP_STATE_H
#define SENTRY_KERNEL_FP_STATE_H

struct fpstate;
struct state;

/* Asks this CPU, so that a checkpoint needn't while everything stands still. */
void fp_state_prepare(void);
/* NULL and NULL again: a thread that hasn't begun, with fresh state. Loading: *fp is heap. */
void state_fp(struct state *s, struct fpstate **fp);
/* What programs of the image may have found in this CPU and rely on. Loading: refuses what is missing, by
 * name. */
void state_cpu_features(struct state *s);

#endif
