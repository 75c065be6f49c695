// SPDX-License-Identifier: Apache-2.0
/*
 * Logging and the end of the world.
 *
 * Every process of a sandbox logs lines to one descriptor, as text or as JSON records in runc's
 * shape ({"level","msg","time"}), so that callers who parse the last "level":"error" find it.
 * A line is written by one write(2), so lines of several processes never mix.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#include "base/compiler.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVEL_COUNT };
enum log_format { LOG_TEXT, LOG_JSON };

/* Where this process logs. @fd is borrowed; -1 drops everything below LOG_ERROR and sends errors to fd 2.
 * @role stands before each message; "" for none. */
void log_init(int fd, enum log_format format, enum log_level max_level, const char *role);
bool log_enabled(enum log_level level);
int log_fd(void);
void log_msg(enum log_level level, const char *fmt, ...) __printf(2, 3);

#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                   \
	do {                                                                             \
		if (log_enabled(LOG_DEBUG))                                              \
			log_msg(LOG_DEBUG, __VA_ARGS__);                                 \
	} while (0)

/* A broken invariant: logs, prints a stack where it can, and aborts the process (fail closed). */
void panic(const char *fmt, ...) __printf(1, 2) __noreturn __cold;

#endif
