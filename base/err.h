// SPDX-License-Identifier: Apache-2.0
/*
 * Errors: functions return 0 or a positive result, or -errno. A function that returns a pointer
 * returns err_ptr(-errno) on failure, never NULL unless it says so.
 *
 * The codes above 511 never reach a guest: they tell the task loop how an interrupted call is to be
 * restarted (same meaning as in Linux's include/linux/errno.h).
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define ERESTARTSYS 512           /* restart if SA_RESTART (or no handler), else EINTR */
#define ERESTARTNOINTR 513        /* always restart */
#define ERESTARTNOHAND 514        /* restart if no handler runs, else EINTR */
#define ENOIOCTLCMD 515           /* ioctl not known to this layer: ENOTTY in the end */
#define ERESTART_RESTARTBLOCK 516 /* restart through task->restart, else EINTR */

#define MAX_ERRNO 4095

static inline void *err_ptr(long err)
{
	return (void *)(intptr_t)err;
}

static inline long ptr_err(const void *p)
{
	return (long)(intptr_t)p;
}

static inline bool is_err(const void *p)
{
	return (uintptr_t)p >= (uintptr_t)-MAX_ERRNO;
}

#endif
