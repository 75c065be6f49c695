// SPDX-License-Identifier: Apache-2.0
/*
 * Bounds-checked reading and writing of byte buffers that come from, or go to, somebody we don't
 * trust. Both keep a sticky error: after the first overrun every further call fails, so a parser
 * may check once at its end, before it acts on what it read. Little endian, unaligned.
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
	const uint8_t *p;
	size_t left;
	bool bad;
};

void cursor_init(struct cursor *c, const void *buf, size_t len);
/* Each returns 0 (or NULL) once the cursor is bad; check cursor_ok() before use of the values. */
uint8_t pull_u8(struct cursor *c);
uint16_t pull_u16(struct cursor *c);
uint32_t pull_u32(struct cursor *c);
uint64_t pull_u64(struct cursor *c);
/* @len bytes in place (borrowed from the buffer), or NULL. */
const void *pull_bytes(struct cursor *c, size_t len);
/* A u32 length followed by that many bytes; copies at most @size - 1 of them plus NUL into @buf. A
 * longer string, or one with a NUL inside, makes the cursor bad. Returns the length. */
size_t pull_str(struct cursor *c, char *buf, size_t size);
bool cursor_ok(const struct cursor *c);
/* True when everything was consumed without an error. */
bool cursor_done(const struct cursor *c);

struct writer {
	uint8_t *p;
	size_t used, size;
	bool bad;
};

void writer_init(struct writer *w, void *buf, size_t size);
void push_u8(struct writer *w, uint8_t v);
void push_u16(struct writer *w, uint16_t v);
void push_u32(struct writer *w, uint32_t v);
void push_u64(struct writer *w, uint64_t v);
void push_bytes(struct writer *w, const void *buf, size_t len);
void push_str(struct writer *w, const char *s);
bool writer_ok(const struct writer *w);

#endif
