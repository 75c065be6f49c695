// SPDX-License-Identifier: Apache-2.0
/* A growing text buffer for what /proc files show. */
#include "base/alloc.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sentry/vfs/vfs.h"

void seq_init(struct seqbuf *s)
{
	*s = (struct seqbuf){ 0 };
}

void seq_fini(struct seqbuf *s)
{
	free(s->buf);
	seq_init(s);
}

/* Room for @n more bytes and a NUL. */
static void reserve(struct seqbuf *s, size_t n)
{
	size_t want = s->len + n + 1, size = s->size ? s->size : 256;

	if (want <= s->size)
		return;
	while (size < want)
		size *= 2;
	s->buf = krealloc_array(s->buf, size, 1);
	s->size = size;
}

void seq_write(struct seqbuf *s, const void *buf, size_t len)
{
	reserve(s, len);
	if (len)
		memcpy(s->buf + s->len, buf, len); /* @buf may be NULL for nothing */
	s->len += len;
	s->buf[s->len] = '\0';
}

void seq_putc(struct seqbuf *s, char c)
{
	seq_write(s, &c, 1);
}

void seq_printf(struct seqbuf *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		panic("seq_printf: bad format");
	reserve(s, (size_t)n);
	va_start(ap, fmt);
	vsnprintf(s->buf + s->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	s->len += (size_t)n;
}

void seq_escape(struct seqbuf *s, const char *str, const char *esc)
{
	for (; *str; str++) {
		if (strchr(esc, *str))
			seq_printf(s, "\\%03o", (unsigned)(uint8_t)*str);
		else
			seq_putc(s, *str);
	}
}
