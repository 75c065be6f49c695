// SPDX-License-Identifier: Apache-2.0
/* mmap, munmap, mprotect, brk, mremap, madvise and faults as a program sees them. */
#include "tests/syscalls/harness.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define PG 4096UL

static sigjmp_buf jmp;
static siginfo_t last;

static void on_sig(int sig, siginfo_t *si, void *uc)
{
	(void)uc;
	last = *si;
	siglongjmp(jmp, sig);
}

/* Signal number of an access, 0 if it works. */
static int touch(volatile char *p, int write)
{
	struct sigaction sa = { .sa_sigaction = on_sig, .sa_flags = SA_SIGINFO | SA_NODEFER };
	int sig;

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	sig = sigsetjmp(jmp, 1);
	if (sig)
		return sig;
	if (write)
		*p = 1;
	else
		(void)*p;
	return 0;
}

static char *anon(size_t len, int prot)
{
	char *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static int tmpfile_of(const char *data, size_t len)
{
	char name[] = "/tmp/mm_map.XXXXXX";
	int fd = mkstemp(name);

	CHECK(fd >= 0);
	unlink(name);
	CHECK(write(fd, data, len) == (ssize_t)len);
	return fd;
}

TEST(mmap_refuses_bad_arguments)
{
	CHECK_ERRNO(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERRNO(mmap(NULL, PG, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERRNO(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, 999, 0), EBADF);
	CHECK_ERRNO(syscall(SYS_mmap, 0, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1), EINVAL);
	CHECK_ERRNO(mmap((void *)1, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		    EINVAL);
	CHECK_ERRNO(mmap(NULL, 1UL << 50, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
	CHECK_ERRNO(munmap((void *)1, PG), EINVAL);
	CHECK_ERRNO(munmap((void *)PG, 0), EINVAL);
	char *p = anon(PG, PROT_READ);
	CHECK_ERRNO(mmap(p, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
		    EEXIST);
}

TEST(faults_have_the_right_codes)
{
	char *p = anon(3 * PG, PROT_READ | PROT_WRITE);

	CHECK(touch(p, 1) == 0);
	munmap(p + PG, PG);
	CHECK(touch(p + PG, 0) == SIGSEGV && last.si_code == SEGV_MAPERR && last.si_addr == p + PG);
	CHECK(mprotect(p, PG, PROT_READ) == 0);
	CHECK(touch(p, 0) == 0);
	CHECK(touch(p + 8, 1) == SIGSEGV && last.si_code == SEGV_ACCERR && last.si_addr == p + 8);
	CHECK(mprotect(p, PG, PROT_NONE) == 0);
	CHECK(touch(p, 0) == SIGSEGV && last.si_code == SEGV_ACCERR);
	CHECK_ERRNO(mprotect(p, 3 * PG, PROT_READ), ENOMEM);
	CHECK(touch(p, 0) == 0);
}

TEST(private_file_mapping_is_copy_on_write)
{
	char data[2 * PG];
	char b;

	memset(data, 'a', sizeof(data));
	int fd = tmpfile_of(data, sizeof(data));
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED && p[0] == 'a' && p[PG] == 'a');
	p[0] = 'b';
	CHECK(pread(fd, &b, 1, 0) == 1 && b == 'a');
	CHECK(pwrite(fd, "c", 1, PG) == 1 && p[PG + 1] == 'a');
	CHECK(madvise(p, PG, MADV_DONTNEED) == 0 && p[0] == 'a');
}

TEST(shared_file_mapping_writes_through)
{
	int fd = tmpfile_of("hello", 5);
	char b[5];
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED && memcmp(p, "hello", 6) == 0);
	p[0] = 'J';
	CHECK(pread(fd, b, 5, 0) == 5 && memcmp(b, "Jello", 5) == 0);
	CHECK(pwrite(fd, "y", 1, 4) == 1 && p[4] == 'y');
	CHECK(msync(p, PG, MS_SYNC) == 0);
	CHECK_ERRNO(msync(p, PG, MS_SYNC | MS_ASYNC), EINVAL);
}

TEST(access_past_end_of_file_is_sigbus)
{
	int fd = tmpfile_of("x", 1);
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	CHECK(touch(p, 0) == 0);
	CHECK(touch(p + PG, 0) == SIGBUS && last.si_code == BUS_ADRERR && last.si_addr == p + PG);
	CHECK(ftruncate(fd, 2 * PG) == 0);
	CHECK(touch(p + PG, 1) == 0);
	CHECK(ftruncate(fd, 0) == 0);
	CHECK(touch(p, 0) == SIGBUS);
	CHECK_ERRNO(write(1, p, 1), EFAULT);
}

TEST(fork_copies_private_and_shares_shared)
{
	char *priv = anon(64 * PG, PROT_READ | PROT_WRITE);
	char *sh = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;

	memset(priv, 1, 64 * PG);
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < 64 * PG; i++)
			if (priv[i] != 1)
				_exit(1);
		memset(priv, 2, 64 * PG);
		sh[0] = 7;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(sh[0] == 7);
	for (size_t i = 0; i < 64 * PG; i++)
		CHECK(priv[i] == 1);
	priv[5] = 3;
	CHECK(priv[5] == 3 && priv[6] == 1);
}

TEST(fork_advice_is_obeyed)
{
	char *wipe = anon(PG, PROT_READ | PROT_WRITE), *gone = anon(PG, PROT_READ | PROT_WRITE);
	int status;

	wipe[0] = gone[0] = 1;
	CHECK(madvise(wipe, PG, MADV_WIPEONFORK) == 0);
	CHECK(madvise(gone, PG, MADV_DONTFORK) == 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(wipe[0] == 0 && touch(gone, 0) == SIGSEGV ? 0 : 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(wipe[0] == 1);
	CHECK_ERRNO(madvise(wipe, PG, 12345), EINVAL);
	CHECK_ERRNO(madvise(wipe + 1, PG, MADV_NORMAL), EINVAL);
}

TEST(brk_grows_and_shrinks)
{
	char *base = sbrk(0);

	CHECK(sbrk(100000) == base);
	memset(base, 5, 100000);
	CHECK(brk(base) == 0);
	CHECK(sbrk(100000) == base);
	CHECK(base[8192] == 0);
	struct rlimit rl = { 1 << 20, RLIM_INFINITY };
	CHECK(setrlimit(RLIMIT_DATA, &rl) == 0);
	CHECK_ERRNO((long)sbrk(64 << 20), ENOMEM);
}

TEST(mremap_grows_moves_and_duplicates)
{
	char *p = anon(4 * PG, PROT_READ | PROT_WRITE), *q;

	p[0] = 1;
	p[3 * PG] = 4;
	q = mremap(p, 4 * PG, 2048 * PG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && q[0] == 1 && q[3 * PG] == 4 && q[2047 * PG] == 0);
	CHECK(mremap(q, 2048 * PG, PG, 0) == q);
	CHECK(touch(q + PG, 0) == SIGSEGV);
	CHECK_ERRNO((long)mremap(q, PG, PG, 0x100), EINVAL);
	CHECK_ERRNO((long)mremap(q, 0, PG, MREMAP_MAYMOVE), EINVAL);
	char *sh = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *dup = mremap(sh, 0, PG, MREMAP_MAYMOVE);
	CHECK(dup != MAP_FAILED && dup != sh);
	sh[1] = 9;
	CHECK(dup[1] == 9);
}

static int recurse(int depth)
{
	volatile char frame[4096];

	frame[0] = (char)depth;
	return depth ? recurse(depth - 1) + frame[0] : 0;
}

TEST(stack_grows)
{
	volatile int r = recurse(1500);

	(void)r;
}

TEST(mincore_and_mlock)
{
	char *p = anon(4 * PG, PROT_READ | PROT_WRITE);
	unsigned char vec[4];

	p[PG] = 1;
	CHECK(mincore(p, 4 * PG, vec) == 0);
	CHECK(!(vec[0] & 1) && (vec[1] & 1));
	CHECK_ERRNO(mincore(p + 1, PG, vec), EINVAL);
	CHECK(mlock(p, 4 * PG) == 0);
	CHECK_ERRNO(madvise(p, PG, MADV_DONTNEED), EINVAL);
	CHECK(munlock(p, 4 * PG) == 0);
	munmap(p, 4 * PG);
	CHECK_ERRNO(mincore(p, PG, vec), ENOMEM);
	CHECK_ERRNO(mlock(p, PG), ENOMEM);
}

TEST(huge_reservations_are_cheap)
{
	char *p = mmap(NULL, 8UL << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED);
	CHECK(mprotect(p + (3UL << 40), 1 << 20, PROT_READ | PROT_WRITE) == 0);
	p[3UL << 40] = 1;
	CHECK(touch(p, 0) == SIGSEGV);
	CHECK(munmap(p, 8UL << 40) == 0);
}

TEST(process_vm_moves_memory)
{
	char *p = anon(PG, PROT_READ | PROT_WRITE), buf[8] = "";
	int status, pfd[2];

	strcpy(p, "parent");
	CHECK(pipe(pfd) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		char c;

		strcpy(p, "child");
		if (write(pfd[1], "x", 1) != 1 || read(pfd[0], &c, 0) != 0)
			_exit(1);
		pause();
		_exit(0);
	}
	char c;
	CHECK(read(pfd[0], &c, 1) == 1);
	struct iovec l = { buf, 6 }, r = { p, 6 };
	CHECK(process_vm_readv(pid, &l, 1, &r, 1, 0) == 6 && strcmp(buf, "child") == 0);
	CHECK_ERRNO(process_vm_readv(pid, &l, 1, &r, 1, 1), EINVAL);
	r.iov_base = (void *)8;
	CHECK_ERRNO(process_vm_readv(pid, &l, 1, &r, 1, 0), EFAULT);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK_ERRNO(process_vm_readv(pid, &l, 1, &r, 1, 0), ESRCH);
}

TEST(maps_shows_what_is_mapped)
{
	char want[64], line[512];
	char *p = anon(16 * PG, PROT_READ);
	FILE *f = fopen("/proc/self/maps", "r");
	int found = 0, stack = 0, vdso = 0;

	CHECK(f);
	CHECK(mprotect(p + PG, PG, PROT_READ | PROT_WRITE) == 0);
	snprintf(want, sizeof(want), "%lx-%lx rw-p 00000000 00:00 0", (long)p + PG, (long)p + 2 * PG);
	while (fgets(line, sizeof(line), f)) {
		found += strncmp(line, want, strlen(want)) == 0;
		stack += strstr(line, "[stack]") != NULL;
		vdso += strstr(line, "[vdso]") != NULL;
	}
	CHECK(found == 1 && stack == 1 && vdso == 1);
}

TEST_MAIN
