// SPDX-License-Identifier: Apache-2.0
/* Bounds-checked readers and writers: see cursor.h. All of them go through take() and room(). */
#include "base/cursor.h"

#include <endian.h>
#include <string.h>

void cursor_init(struct cursor *c, const void *buf, size_t len)
{
	c->p = buf;
	c->left = len;
	c->bad = false;
}

/* The next @n bytes, or NULL and the cursor is bad from now on. */
static const uint8_t *take(struct cursor *c, size_t n)
{
	const uint8_t *p = c->p;

	if (c->bad || n > c->left) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	c->left -= n;
	return p;
}

uint8_t pull_u8(struct cursor *c)
{
	const uint8_t *p = take(c, 1);

	return p ? *p : 0;
}

uint16_t pull_u16(struct cursor *c)
{
	const uint8_t *p = take(c, 2);
	uint16_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

uint32_t pull_u32(struct cursor *c)
{
	const uint8_t *p = take(c, 4);
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

uint64_t pull_u64(struct cursor *c)
{
	const uint8_t *p = take(c, 8);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

const void *pull_bytes(struct cursor *c, size_t len)
{
	return take(c, len);
}

size_t pull_str(struct cursor *c, char *buf, size_t size)
{
	uint32_t len = pull_u32(c);
	const uint8_t *p;

	if (size)
		buf[0] = 0;
	if (len >= size) {
		c->bad = true;
		return 0;
	}
	p = take(c, len);
	if (!p)
		return 0;
	if (memchr(p, 0, len)) {
		c->bad = true;
		return 0;
	}
	memcpy(buf, p, len);
	buf[len] = 0;
	return len;
}

bool cursor_ok(const struct cursor *c)
{
	return !c->bad;
}

bool cursor_done(const struct cursor *c)
{
	return !c->bad && c->left == 0;
}

void writer_init(struct writer *w, void *buf, size_t size)
{
	w->p = buf;
	w->used = 0;
	w->size = size;
	w->bad = false;
}

/* Where the next @n bytes go, or NULL and the writer is bad from now on. */
static uint8_t *room(struct writer *w, size_t n)
{
	uint8_t *p;

	if (w->bad || n > w->size - w->used) {
		w->bad = true;
		return NULL;
	}
	p = w->p + w->used;
	w->used += n;
	return p;
}

void push_u8(struct writer *w, uint8_t v)
{
	push_bytes(w, &v, sizeof(v));
}

void push_u16(struct writer *w, uint16_t v)
{
	v = htole16(v);
	push_bytes(w, &v, sizeof(v));
}

void push_u32(struct writer *w, uint32_t v)
{
	v = htole32(v);
	push_bytes(w, &v, sizeof(v));
}

void push_u64(struct writer *w, uint64_t v)
{
	v = htole64(v);
	push_bytes(w, &v, sizeof(v));
}

void push_bytes(struct writer *w, const void *buf, size_t len)
{
	uint8_t *p = room(w, len);

	if (p && len)
		memcpy(p, buf, len);
}

void push_str(struct writer *w, const char *s)
{
	size_t len = strlen(s);

	if (len > UINT32_MAX) {
		w->bad = true;
		return;
	}
	push_u32(w, (uint32_t)len);
	push_bytes(w, s, len);
}

bool writer_ok(const struct writer *w)
{
	return !w->bad;
}
