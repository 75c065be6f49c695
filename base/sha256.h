// SPDX-License-Identifier: Apache-2.0
/* SHA-256 (FIPS 180-4), for the names of blobs in OCI layouts. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX_LEN 64

struct sha256 {
	uint32_t h[8];
	uint64_t bytes;
	uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *buf, size_t n);
/* Ends it: 64 hexadecimal digits and NUL. */
void sha256_hex(struct sha256 *s, char hex[SHA256_HEX_LEN + 1]);

#endif
