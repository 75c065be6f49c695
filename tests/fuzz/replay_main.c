// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a fuzz target without a fuzzer: over every file of its corpus, and over a fixed number of
 * mutations of each (bytes, lengths, splices; the same ones every time). Under libFuzzer the
 * targets link with clang's own main instead.
 *
 * usage: fuzz_x CORPUS_DIR [MUTATIONS]
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUTATIONS 4000
#define INPUT_MAX (1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t seed = 88172645463325252ULL;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static size_t mutate(uint8_t *buf, size_t len)
{
	static const uint64_t odd[] = { 0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000,
					0xffffffff, 0x7fffffffffffffff, UINT64_MAX - 4095, UINT64_MAX };
	unsigned n = 1 + (unsigned)(next() % 6);

	while (n-- && len) {
		size_t at = next() % len;
		uint64_t v = odd[next() % (sizeof(odd) / sizeof(odd[0]))];

		switch (next() % 5) {
		case 0:
			buf[at] ^= (uint8_t)(1u << (next() % 8));
			break;
		case 1:
			buf[at] = (uint8_t)next();
			break;
		case 2:
			memcpy(buf + at, &v, len - at < 8 ? len - at : 8);
			break;
		case 3:
			len = at; /* truncated */
			break;
		default:
			memmove(buf + at, buf + next() % len, len - at > 16 ? 16 : len - at);
		}
	}
	return len;
}

static int run_file(const char *path, unsigned mutations)
{
	static uint8_t orig[INPUT_MAX], buf[INPUT_MAX + 16];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, orig, sizeof(orig));

	if (n < 0) {
		perror(path);
		return 1;
	}
	close(fd);
	(void)LLVMFuzzerTestOneInput(orig, (size_t)n);
	for (unsigned i = 0; i < mutations; i++) {
		/* A heap copy of the exact size, so that the sanitizer sees overreads. */
		size_t len = (memcpy(buf, orig, (size_t)n), mutate(buf, (size_t)n));
		uint8_t *exact = malloc(len ? len : 1);

		if (!exact)
			return 1;
		memcpy(exact, buf, len);
		(void)LLVMFuzzerTestOneInput(exact, len);
		free(exact);
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned mutations = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : MUTATIONS;
	DIR *d = argc > 1 ? opendir(argv[1]) : NULL;
	struct dirent *e;
	unsigned files = 0;

	if (!d) {
		fprintf(stderr, "usage: %s CORPUS_DIR [MUTATIONS]\n", argv[0]);
		return 2;
	}
	while ((e = readdir(d))) {
		char path[4096];

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
		if (run_file(path, mutations))
			return 1;
		files++;
	}
	closedir(d);
	printf("%u inputs, %u mutations of each\n", files, mutations);
	return files == 0;
}
