// SPDX-License-Identifier: Apache-2.0
/* A spec's seccomp profile as the program that the guest's processes get. */
#ifndef RUNTIME_SECCOMP_PROFILE_H
#define RUNTIME_SECCOMP_PROFILE_H

#include <jansson.h>
#include <linux/filter.h>

/*
 * Compiles @profile (linux.seccomp of config.json), in the launcher: libseccomp asks its kernel things that a
 * confined sentry must not. A JSON array of instructions [code, jt, jf, k] (new reference), JSON null
 * for a profile that allows everything, or NULL with *ret_why (heap).
 */
json_t *seccomp_profile_compile(const json_t *profile, char **ret_why);
/* What a profile may have, in no order; NULL behind the last. */
const char *seccomp_profile_action(unsigned i);
const char *seccomp_profile_operator(unsigned i);
const char *seccomp_profile_arch(unsigned i);
const char *seccomp_profile_flag(unsigned i);
/* The instructions of such an array (heap), in the sentry. NULL when it is none. */
struct sock_filter *seccomp_profile_load(const json_t *program, unsigned *ret_n);

#endif
