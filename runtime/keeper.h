// SPDX-License-Identifier: Apache-2.0
/*
 * The keeper: a process beside a sandbox that suspends it when it is idle and keeps a recent image of it.
 * keeper.c tells how.
 */
#ifndef RUNTIME_KEEPER_H
#define RUNTIME_KEEPER_H

#include "runtime/spec.h"
#include "runtime/statedir.h"

/* In a spec, as decimal seconds: what --idle-suspend and --checkpoint-every set. */
#define IDLE_ANNOTATION "org.holdfast.idle-suspend"
#define EVERY_ANNOTATION "org.holdfast.checkpoint-every"

/* Puts an option's value into the spec, where a woken sandbox finds it again; 0: nothing. */
void keeper_option(struct spec *spec, const char *annotation, unsigned seconds);
/* NULL, or what is wrong with the annotations of @spec (static text). */
const char *keeper_check(const struct spec *spec);
/* Leaves a keeper behind for a sandbox that has just been launched, if its spec asks for one. */
void keeper_start(struct statedir *s, const struct spec *spec);

#endif
