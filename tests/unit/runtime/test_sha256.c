// SPDX-License-Identifier: Apache-2.0
/* base/sha256: the examples of FIPS 180-4, in one piece and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/sha256.h"

static const struct {
	const char *text, *digest;
} examples[] = {
	{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
	{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
};

static void known_digests(void **state)
{
	char hex[SHA256_HEX_LEN + 1];
	struct sha256 s;

	(void)state;
	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		sha256_init(&s);
		sha256_update(&s, examples[i].text, strlen(examples[i].text));
		sha256_hex(&s, hex);
		assert_string_equal(hex, examples[i].digest);
		sha256_init(&s);
		for (const char *p = examples[i].text; *p; p++)
			sha256_update(&s, p, 1);
		sha256_hex(&s, hex);
		assert_string_equal(hex, examples[i].digest);
	}
}

static void a_million_letters(void **state)
{
	char hex[SHA256_HEX_LEN + 1], block[1000];
	struct sha256 s;

	(void)state;
	memset(block, 'a', sizeof(block));
	sha256_init(&s);
	for (int i = 0; i < 1000; i++)
		sha256_update(&s, block, sizeof(block));
	sha256_hex(&s, hex);
	assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_digests),
		cmocka_unit_test(a_million_letters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
