// SPDX-License-Identifier: Apache-2.0
/*
 * JSON text as the writers of OCI documents make it: Go's unsigned 64-bit numbers (RLIM_INFINITY, masks of
 * seccomp conditions) are beyond what jansson takes for an integer. They become the signed number of the same
 * bits, which is what their readers want anyway.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/errno_text.h"
#include "runtime/spec.h"

#define BIG_DIGITS 19 /* of INT64_MAX */
#define MAX_GROWTH 1  /* "9223372036854775808" gets a sign */

/* The integer at @s, of @n digits, if it needs more than 63 bits and no more than 64. */
static bool big_unsigned(const char *s, size_t n, uint64_t *ret)
{
	char digits[24];

	if (n < BIG_DIGITS || n > BIG_DIGITS + 1)
		return false;
	memcpy(digits, s, n);
	digits[n] = 0;
	errno = 0;
	*ret = strtoull(digits, NULL, 10);
	return !errno && *ret > INT64_MAX;
}

/* Length of the string at @s, quotes included; up to the end for one that has none. */
static size_t string_length(const char *s, const char *end)
{
	const char *p = s + 1;

	while (p < end && *p != '"')
		p += *p == '\\' && p + 1 < end ? 2 : 1;
	return (size_t)(p < end ? p + 1 - s : end - s);
}

/* A copy (heap) with its length in *ret_len. */
static char *sign_integers(const char *text, size_t len, size_t *ret_len)
{
	char *out = kzalloc(len + len / BIG_DIGITS * MAX_GROWTH + 32), *o = out;
	const char *end = text + len;

	for (const char *s = text; s < end;) {
		size_t n = *s == '"' ? string_length(s, end) : 0;
		uint64_t v;

		for (const char *p = s; !n && p < end && *p >= '0' && *p <= '9'; p++)
			if (p + 1 == end || p[1] < '0' || p[1] > '9')
				n = (size_t)(p + 1 - s);
		if (*s != '"' && n && (s == text || (s[-1] != '-' && s[-1] != '.')) &&
		    (s + n == end || !strchr(".eE", s[n])) && big_unsigned(s, n, &v)) {
			o += snprintf(o, 24, "%" PRId64, (int64_t)v);
		} else {
			memcpy(o, s, n ? n : 1);
			o += n ? n : 1;
		}
		s += n ? n : 1;
	}
	*ret_len = (size_t)(o - out);
	return out;
}

json_t *spec_json_parse(const char *text, size_t len, const char *name, char **ret_why)
{
	json_error_t err;
	size_t n;
	AUTO_FREE char *copy = sign_integers(text, len, &n);
	json_t *json = json_loadb(copy, n, JSON_REJECT_DUPLICATES, &err);

	if (!json)
		*ret_why = kasprintf("%s: not valid JSON: line %d: %s", name, err.line, err.text);
	return json;
}

char *spec_json_read(const char *path, size_t *ret_len, char **ret_why)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	AUTO_FREE char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		*ret_why = kasprintf("%s: %s", path, errno_text(errno));
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > SPEC_MAX_BYTES) {
		*ret_why = kasprintf("%s: not a regular file of at most %u bytes", path,
				     SPEC_MAX_BYTES);
		return NULL;
	}
	text = kzalloc((size_t)st.st_size + 1);
	*ret_len = 0;
	while (*ret_len < (size_t)st.st_size) {
		ssize_t n = read(fd, text + *ret_len, (size_t)st.st_size - *ret_len);

		if (n <= 0)
			break;
		*ret_len += (size_t)n;
	}
	return steal_ptr(&text);
}

json_t *spec_json_load(const char *path, char **ret_why)
{
	size_t len;
	AUTO_FREE char *text = spec_json_read(path, &len, ret_why);

	return text ? spec_json_parse(text, len, path, ret_why) : NULL;
}
