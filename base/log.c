// SPDX-License-Identifier: Apache-2.0
/*
 * Logging: see log.h. The line is built in one buffer on the stack and leaves by one write(2), so
 * lines of several processes that share a descriptor opened with O_APPEND (or a pipe, up to
 * PIPE_BUF) never mix. No lock and no heap: panic() and a child between fork and exec may log.
 *
 * What is logged may hold bytes that a guest chose (names, addresses as text). Control characters are
 * therefore escaped in both formats: nobody can forge a second line or drive a terminal.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024 /* of the message proper; longer ones are cut */
#define LOG_OUT_MAX  (LOG_LINE_MAX * 6 + 256)

/* Set by log_init() before threads exist; read-only afterwards. */
static struct {
	int fd;
	enum log_format format;
	enum log_level max_level;
	const char *role;
} log_state = { -1, LOG_TEXT, LOG_INFO, "holdfast" };

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warning", /* logrus, and so runc, spells it out */
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};
_Static_assert(sizeof(level_names) / sizeof(level_names[0]) == LOG_LEVEL_COUNT,
	       "a name per level");

void log_init(int fd, enum log_format format, enum log_level max_level, const char *role)
{
	log_state.fd = fd;
	log_state.format = format;
	log_state.max_level = max_level;
	log_state.role = role;
}

bool log_enabled(enum log_level level)
{
	if (log_state.fd < 0)
		return level == LOG_ERROR;
	return level <= log_state.max_level;
}

int log_fd(void)
{
	return log_state.fd;
}

struct line {
	char buf[LOG_OUT_MAX];
	size_t len;
};

static void line_add(struct line *l, const char *s, size_t n)
{
	if (n > sizeof(l->buf) - 1 - l->len)
		n = sizeof(l->buf) - 1 - l->len;
	memcpy(l->buf + l->len, s, n);
	l->len += n;
}

static void line_puts(struct line *l, const char *s)
{
	line_add(l, s, strlen(s));
}

static void line_add_escaped(struct line *l, const char *s, bool json)
{
	char esc[8];

	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (json && (c == '"' || c == '\\')) {
			esc[0] = '\\';
			esc[1] = (char)c;
			line_add(l, esc, 2);
		} else if (c < 0x20 || c == 0x7f || (json && c >= 0x80)) {
			int n = snprintf(esc, sizeof(esc), json ? "\\u%04x" : "\\x%02x",
					 c);

			line_add(l, esc, n > 0 ? (size_t)n : 0);
		} else {
			line_add(l, s, 1);
		}
	}
}

/*
 * RFC 3339 in UTC. Not gmtime_r() and strftime(): both read /etc/localtime first, which a confined
 * process must not. The calendar is the usual one of 400-year eras that begin in March.
 */
static void line_add_time(struct line *l)
{
	struct timespec ts = { 0 };
	char buf[64];
	int64_t days, secs, era, doe, yoe, doy, mp, year;
	int n;

	clock_gettime(CLOCK_REALTIME, &ts); /* host: clock_gettime */
	days = ts.tv_sec / 86400 + 719468;
	secs = ts.tv_sec % 86400;
	era = days / 146097;
	doe = days % 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153;
	year = yoe + era * 400 + (mp >= 10);
	n = snprintf(buf, sizeof(buf), "%04ld-%02ld-%02ldT%02ld:%02ld:%02ld.%09ldZ", year,
		     mp < 10 ? mp + 3 : mp - 9, doy - (153 * mp + 2) / 5 + 1, secs / 3600,
		     secs / 60 % 60, secs % 60, ts.tv_nsec);
	line_add(l, buf, n > 0 ? (size_t)n : 0);
}

static void line_write(const struct line *l)
{
	int fd = log_state.fd >= 0 ? log_state.fd : STDERR_FILENO;
	ssize_t n;

	do {
		n = write(fd, l->buf, l->len); /* host: write */
	} while (n < 0 && errno == EINTR);
	/* A log that can't be written has nowhere to complain to. */
}

/* The command line has none: its errors are its callers' messages. */
static void line_add_role(struct line *l, bool json)
{
	if (!log_state.role[0])
		return;
	line_add_escaped(l, log_state.role, json);
	line_puts(l, ": ");
}

static void log_line(enum log_level level, const char *msg)
{
	struct line l __uninitialized; /* 6 KiB, filled front to back */

	l.len = 0;
	if (log_state.fd >= 0 && log_state.format == LOG_JSON) {
		line_puts(&l, "{\"level\":\"");
		line_puts(&l, level_names[level]);
		line_puts(&l, "\",\"msg\":\"");
		line_add_role(&l, true);
		line_add_escaped(&l, msg, true);
		line_puts(&l, "\",\"time\":\"");
		line_add_time(&l);
		line_puts(&l, "\"}\n");
	} else {
		line_add_time(&l);
		line_puts(&l, " ");
		line_puts(&l, level_names[level]);
		line_puts(&l, " ");
		line_add_role(&l, false);
		line_add_escaped(&l, msg, false);
		line_puts(&l, "\n");
	}
	line_write(&l);
}

/* Keeps errno, so that a caller may log before it returns -errno. */
void log_msg(enum log_level level, const char *fmt, ...)
{
	char msg[LOG_LINE_MAX] __uninitialized;
	int saved = errno;
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	if (vsnprintf(msg, sizeof(msg), fmt, ap) < 0)
		snprintf(msg, sizeof(msg), "(bad log format)");
	va_end(ap);
	log_line(level, msg);
	errno = saved;
}

extern const char __executable_start[]; /* linker: first byte of the image */

/*
 * Return addresses along the chain of frame pointers would need -fno-omit-frame-pointer, and unwinding
 * needs tables and a heap in an unknown state. So only the caller's address is printed here, relative
 * to the image, for addr2line; a debugger or the core has the rest.
 */
void panic(const char *fmt, ...)
{
	static _Atomic int nested;
	char msg[LOG_LINE_MAX] __uninitialized;
	char where[64];
	va_list ap;

	if (atomic_fetch_add(&nested, 1) > 1)
		abort();
	va_start(ap, fmt);
	if (vsnprintf(msg, sizeof(msg), fmt, ap) < 0)
		msg[0] = 0;
	va_end(ap);
	snprintf(where, sizeof(where), "panic at image offset 0x%lx: ",
		 (unsigned long)((uintptr_t)__builtin_return_address(0) -
				 (uintptr_t)__executable_start));
	memmove(msg + strlen(where), msg, sizeof(msg) - strlen(where));
	memcpy(msg, where, strlen(where));
	msg[sizeof(msg) - 1] = 0;
	log_line(LOG_ERROR, msg);
	abort();
}
