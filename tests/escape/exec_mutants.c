// SPDX-License-Identifier: Apache-2.0
/*
 * Hostile programs: mutations of a good static ELF file and of an interpreter script, executed in a
 * loop. What runs of them may do what it likes; the sentry has to go on.
 */
#include <elf.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "tests/syscalls/harness.h"

#define MUTANTS 250

static unsigned long seed = 88172645463325252UL;

static unsigned long rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* A program that only exits: header, one segment, code. */
static size_t tiny_elf(unsigned char *out)
{
	static const unsigned char code[] = { 0xb8, 0x3c, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05 };
	Elf64_Ehdr e = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			 .e_type = ET_EXEC,
			 .e_machine = EM_X86_64,
			 .e_version = EV_CURRENT,
			 .e_entry = 0x401000,
			 .e_phoff = sizeof(e),
			 .e_ehsize = sizeof(e),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_phnum = 3 };
	Elf64_Phdr p[3] = {
		{ PT_LOAD, PF_R | PF_X, 0x1000, 0x401000, 0x401000, sizeof(code), 0x1000, 0x1000 },
		{ PT_LOAD, PF_R | PF_W, 0x1000, 0x402000, 0x402000, sizeof(code), 0x5000, 0x1000 },
		{ PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16 },
	};

	memset(out, 0, 0x2000);
	memcpy(out, &e, sizeof(e));
	memcpy(out + sizeof(e), p, sizeof(p));
	memcpy(out + 0x1000, code, sizeof(code));
	return 0x2000;
}

static void put(const char *path, const void *data, size_t len)
{
	int fd;

	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
	CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len);
	close(fd);
}

/* Executes @path in a child under limits; its wait status. */
static int try(const char *path)
{
	char *argv[] = { (char *)"x", (char *)"arg", NULL }, *envp[] = { NULL };
	int st;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		struct itimerval soon = { { 0, 0 }, { 0, 200000 } };
		int null = open("/dev/null", O_RDWR);

		dup2(null, 1);
		dup2(null, 2);
		setrlimit(RLIMIT_NPROC, &(struct rlimit){ 32, 32 });
		setitimer(ITIMER_REAL, &soon, NULL);
		execve(path, argv, envp);
		_exit(100);
	}
	CHECK(waitpid(pid, &st, 0) == pid);
	return st;
}

TEST(the_unchanged_one_runs)
{
	static unsigned char img[0x2000];
	size_t n = tiny_elf(img);
	int st;

	put("/tmp/good", img, n);
	st = try("/tmp/good");
	CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

TEST(mutated_headers)
{
	static unsigned char img[0x2000];
	static const unsigned long wild[] = { 0,	  1,	     ~0UL,	 1UL << 63,	 0x7ffff1000000,
					      0x7fffffffe000, 0xfffffff000, 4096 - 1, 1UL << 47, 1UL << 31 };

	for (int i = 0; i < MUTANTS; i++) {
		size_t n = tiny_elf(img);
		size_t hdr = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);

		for (unsigned long k = rnd() % 4 + 1; k; k--) {
			size_t at = rnd() % hdr;

			if (rnd() & 1)
				img[at] = (unsigned char)rnd();
			else
				memcpy(img + (at & ~7UL), &wild[rnd() % 10], 8);
		}
		put("/tmp/mutant", img, rnd() % 8 ? n : rnd() % n);
		(void)try("/tmp/mutant");
	}
	CHECK(WIFEXITED(try("/tmp/good")));
}

TEST(hostile_scripts)
{
	char text[5000];

	for (int i = 0; i < 60; i++) {
		int n = snprintf(text, sizeof(text), "#!%s", i % 3 ? "/tmp/script" : "/tmp/good");

		memset(text + n, i % 2 ? ' ' : 'x', (size_t)(i * 50));
		n += i * 50;
		text[n++] = (char)(i % 5 ? '\n' : rnd());
		put("/tmp/script", text, (size_t)n);
		(void)try("/tmp/script");
	}
	put("/tmp/script", "#!", 2);
	CHECK(try("/tmp/script") != 0);
	put("/tmp/script", "#!\n", 3);
	CHECK(try("/tmp/script") != 0);
	put("/tmp/script", "#!/tmp/script\n", 14); /* itself: ELOOP */
	CHECK(try("/tmp/script") != 0);
}

/* The file changes while it is loaded. */
TEST(program_is_rewritten_while_it_is_executed)
{
	static unsigned char img[0x2000];
	size_t n = tiny_elf(img);
	pid_t writer;

	put("/tmp/racer", img, n);
	writer = fork();
	if (writer == 0) {
		for (;;) {
			int fd = open("/tmp/racer", O_RDWR);

			if (fd < 0)
				continue;
			(void)!pwrite(fd, &(unsigned long){ rnd() }, 8, (off_t)(rnd() % 200));
			(void)!ftruncate(fd, (off_t)(rnd() % n));
			(void)!pwrite(fd, img, n, 0);
			close(fd);
		}
	}
	for (int i = 0; i < 100; i++)
		(void)try("/tmp/racer");
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
}

TEST_MAIN
