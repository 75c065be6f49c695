// SPDX-License-Identifier: Apache-2.0
/* Memory in all its forms: private, copy-on-write, shared between processes, of files, executable, sparse. */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/state/guest.h"

#define PAGE 4096UL
#define BIG (16UL << 20)

static void *map(size_t len, int flags, int fd)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	NEED(p != MAP_FAILED);
	return p;
}

static int put(const char *path, size_t len, int c)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	char buf[PAGE];

	NEED(fd >= 0);
	memset(buf, c, sizeof(buf));
	for (size_t i = 0; i < len; i += PAGE)
		NEED(write(fd, buf, PAGE) == (ssize_t)PAGE);
	return fd;
}

static bool all(const char *p, size_t len, int c)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != (char)c)
			return false;
	return true;
}

/* ---- private anonymous: data, holes, zeroes that were written, rights ---- */

static unsigned char *anon, *ro, *wiped;
static char *brk_at;

static void anonymous_setup(void)
{
	anon = map(BIG, MAP_PRIVATE, -1);
	for (size_t i = 0; i < BIG; i += 3 * PAGE)
		anon[i] = (unsigned char)(i / PAGE % 251 + 1);
	memset(anon + 4 * PAGE, 0, PAGE); /* zeroes by hand */
	ro = map(4 * PAGE, MAP_PRIVATE, -1);
	memset(ro, 'r', 4 * PAGE);
	NEED(mprotect(ro, 4 * PAGE, PROT_READ) == 0);
	wiped = map(4 * PAGE, MAP_PRIVATE, -1);
	memset(wiped, 'w', 4 * PAGE);
	NEED(madvise(wiped + PAGE, PAGE, MADV_DONTNEED) == 0);
	brk_at = sbrk(3 * PAGE);
	NEED(brk_at != (void *)-1);
	memset(brk_at, 'b', 3 * PAGE);
}

static void anonymous_check(void)
{
	bool ok = true;

	for (size_t i = 0; i < BIG; i += PAGE)
		ok = ok && anon[i] == (i / PAGE % 3 ? 0 : (unsigned char)(i / PAGE % 251 + 1));
	CHECK(ok);
	memset(anon, 'x', BIG); /* copies all of it */
	CHECK(all((char *)anon, BIG, 'x'));
	CHECK(all((char *)ro, 4 * PAGE, 'r'));
	CHECK(mprotect(ro, PAGE, PROT_READ | PROT_WRITE) == 0);
	ro[0] = 'R';
	CHECK(ro[0] == 'R' && ro[1] == 'r');
	CHECK(all((char *)wiped, PAGE, 'w') && all((char *)wiped + PAGE, PAGE, 0));
	CHECK(madvise(wiped, PAGE, MADV_DONTNEED) == 0 && all((char *)wiped, PAGE, 0));
	CHECK(all(brk_at, 3 * PAGE, 'b'));
	CHECK(sbrk(0) == brk_at + 3 * PAGE);
	CHECK(sbrk(PAGE) == brk_at + 3 * PAGE && all(brk_at + 3 * PAGE, PAGE, 0));
}

/* ---- a forked child shares pages with us ---- */

static char *cow;
static pid_t cow_child;

static void fork_cow_setup(void)
{
	cow = map(64 * PAGE, MAP_PRIVATE, -1);
	memset(cow, 'p', 64 * PAGE);
	cow_child = fork();
	NEED(cow_child >= 0);
	if (cow_child == 0) {
		memset(cow + PAGE, 'c', PAGE);
		wait_go();
		_exit(all(cow, PAGE, 'p') && all(cow + PAGE, PAGE, 'c') &&
		      all(cow + 2 * PAGE, 62 * PAGE, 'p') ? 0 : 1);
	}
	memset(cow + 3 * PAGE, 'q', PAGE);
}

static void fork_cow_check(void)
{
	int status = -1;

	memset(cow, 'z', PAGE);
	CHECK(waitpid(cow_child, &status, 0) == cow_child && status == 0);
	CHECK(all(cow, PAGE, 'z') && all(cow + PAGE, 2 * PAGE, 'p') && all(cow + 3 * PAGE, PAGE, 'q'));
}

/* ---- shared: both sides see each other's writes afterwards ---- */

static char *shm, *file_shm, *mem_shm, *sysv;
static int shm_fd, mem_fd, sysv_id;
static pid_t shm_child;

/* Waits until *p is @from, makes it @to. */
static void turn(char *p, char from, char to)
{
	while (__atomic_load_n(p, __ATOMIC_SEQ_CST) != from)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	__atomic_store_n(p, to, __ATOMIC_SEQ_CST);
}

static void shared_setup(void)
{
	shm = map(1UL << 20, MAP_SHARED, -1);
	shm_fd = put(DIR_STATE "/shared", 16 * PAGE, 'f');
	file_shm = map(16 * PAGE, MAP_SHARED, shm_fd);
	mem_fd = (int)syscall(SYS_memfd_create, "state", 0);
	NEED(mem_fd >= 0 && ftruncate(mem_fd, 16 * PAGE) == 0);
	mem_shm = map(16 * PAGE, MAP_SHARED, mem_fd);
	sysv_id = shmget(IPC_PRIVATE, 16 * PAGE, IPC_CREAT | 0600);
	sysv = shmat(sysv_id, NULL, 0);
	NEED(sysv != (void *)-1);
	char *all_of_them[] = { shm, file_shm, mem_shm, sysv };

	for (int i = 0; i < 4; i++)
		memset(all_of_them[i] + PAGE, 'A' + i, PAGE);
	shm_child = fork();
	NEED(shm_child >= 0);
	if (shm_child)
		return;
	wait_go();
	for (int i = 0; i < 4; i++)
		turn(all_of_them[i] + 5 * PAGE, 'x', 'y');
	_exit(0);
}

static void shared_check(void)
{
	char *all_of_them[] = { shm, file_shm, mem_shm, sysv };
	char c = 0;

	for (int i = 0; i < 4; i++) {
		CHECK(all(all_of_them[i] + PAGE, PAGE, 'A' + i));
		__atomic_store_n(all_of_them[i] + 5 * PAGE, 'x', __ATOMIC_SEQ_CST);
		turn(all_of_them[i] + 5 * PAGE, 'y', 'z');
	}
	/* read(2) and write(2) see what mappings see */
	CHECK(pread(shm_fd, &c, 1, 5 * PAGE) == 1 && c == 'z');
	CHECK(pread(mem_fd, &c, 1, 5 * PAGE) == 1 && c == 'z');
	CHECK(pwrite(shm_fd, "w", 1, 7 * PAGE) == 1 && file_shm[7 * PAGE] == 'w');
	CHECK(pread(shm_fd, &c, 1, 9 * PAGE) == 1 && c == 'f');
	CHECK(waitpid(shm_child, NULL, 0) == shm_child);
	CHECK(shmdt(sysv) == 0 && shmctl(sysv_id, IPC_RMID, NULL) == 0);
}

/* ---- private mappings of files ---- */

static char *priv, *late;
static int priv_fd;

static void private_file_setup(void)
{
	priv_fd = put(DIR_STATE "/private", 16 * PAGE, 'f');
	priv = map(16 * PAGE, MAP_PRIVATE, priv_fd);
	memset(priv + 2 * PAGE, 'm', PAGE);
	memset(priv + 3 * PAGE, 0, PAGE); /* private zeroes over the file */
	late = map(16 * PAGE, MAP_PRIVATE, priv_fd);
	CHECK(late[0] == 'f');
}

static void private_file_check(void)
{
	CHECK(all(priv, 2 * PAGE, 'f') && all(priv + 2 * PAGE, PAGE, 'm'));
	CHECK(all(priv + 3 * PAGE, PAGE, 0) && all(priv + 4 * PAGE, 12 * PAGE, 'f'));
	CHECK(pwrite(priv_fd, "new", 3, 5 * PAGE) == 3);
	CHECK(memcmp(late + 5 * PAGE, "new", 3) == 0); /* not copied yet: follows the file */
	CHECK(pwrite(priv_fd, "old", 3, 2 * PAGE) == 3 && priv[2 * PAGE] == 'm');
	priv[0] = 'P';
	CHECK(late[0] == 'f');
	CHECK(ftruncate(priv_fd, 100) == 0 && lseek(priv_fd, 0, SEEK_END) == 100);
	CHECK(late[50] == 'f' && late[200] == 0);
}

/* ---- a page that is executed ---- */

static int (*code)(void);

static void executable_setup(void)
{
	static const unsigned char ret42[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
	void *p = map(PAGE, MAP_PRIVATE, -1);

	memcpy(p, ret42, sizeof(ret42));
	NEED(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0);
	memcpy(&code, &p, sizeof(code));
	NEED(code() == 42);
}

static void executable_check(void)
{
	void *p;

	CHECK(code() == 42);
	memcpy(&p, &code, sizeof(p));
	CHECK(mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0);
	((unsigned char *)p)[1] = 43;
	CHECK(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0 && code() == 43);
}

/* ---- text with calls that are made often, one page of it out of reach when it is saved ---- */

static int (*hot[2])(void);

static void hot_text_setup(void)
{
	static const unsigned char getppid_insns[] = { 0xb8, 110,  0,	 0,    0,    0x0f, 0x05, 0x48,
						       0x3d, 0x01, 0xf0, 0xff, 0xff, 0xc3 };

	for (unsigned i = 0; i < 2; i++) {
		void *p = map(PAGE, MAP_PRIVATE, -1);

		memcpy(p, getppid_insns, sizeof(getppid_insns));
		NEED(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0);
		memcpy(&hot[i], &p, sizeof(p));
		for (int k = 0; k < 200; k++)
			NEED(hot[i]() == getppid());
		NEED(i == 0 || mprotect(p, PAGE, PROT_NONE) == 0);
	}
}

static void hot_text_check(void)
{
	void *p;

	memcpy(&p, &hot[1], sizeof(p));
	CHECK(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0);
	for (int k = 0; k < 200; k++)
		CHECK(hot[0]() == getppid() && hot[1]() == getppid());
}

/* ---- terabytes of nothing with something in it ---- */

static char *sparse;
#define SPARSE (1UL << 40)

static void sparse_setup(void)
{
	sparse = mmap(NULL, SPARSE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(sparse != MAP_FAILED);
	sparse[0] = 1;
	sparse[SPARSE / 2 + 12345] = 2;
	sparse[SPARSE - 1] = 3;
}

static void sparse_check(void)
{
	CHECK(sparse[0] == 1 && sparse[SPARSE / 2 + 12345] == 2 && sparse[SPARSE - 1] == 3);
	CHECK(sparse[SPARSE / 4] == 0 && sparse[1] == 0);
	sparse[SPARSE / 4] = 4;
	CHECK(sparse[SPARSE / 4] == 4);
	CHECK(munmap(sparse, SPARSE) == 0);
}

/* ---- a waiter on a shared futex is found by its waker, wherever the page is ---- */

static int *word;
static pid_t waiter;

static void futex_setup(void)
{
	word = map(PAGE, MAP_SHARED, -1);
	waiter = fork();
	NEED(waiter >= 0);
	if (waiter)
		return;
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
		syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
	_exit(*word);
}

static void futex_check(void)
{
	int status = 0;

	usleep(50000); /* it has gone to sleep again */
	__atomic_store_n(word, 9, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	CHECK(waitpid(waiter, &status, 0) == waiter && WEXITSTATUS(status) == 9);
}

/* ---- stacks: deep ones, of threads, below the present end ---- */

static pthread_t thread;
static volatile int thread_sum;

static int deep(int n)
{
	volatile char pad[512];

	memset((void *)(uintptr_t)pad, n, sizeof(pad));
	return n ? deep(n - 1) + (pad[100] == (char)n) : 0;
}

static void *thread_main(void *arg)
{
	char local[PAGE];

	(void)arg;
	memset(local, 't', sizeof(local));
	wait_go();
	thread_sum = all(local, sizeof(local), 't') + deep(300);
	return NULL;
}

static void stacks_setup(void)
{
	NEED(pthread_create(&thread, NULL, thread_main, NULL) == 0);
	NEED(deep(1000) == 1000);
}

static void stacks_check(void)
{
	CHECK(deep(8000) == 8000);
	CHECK(pthread_join(thread, NULL) == 0 && thread_sum == 301);
}

/* ---- bad accesses still fault ---- */

static char *hole;
static volatile sig_atomic_t faults;

static void on_fault(int sig)
{
	(void)sig;
	faults++;
	if (mmap(hole, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		_exit(3);
}

static void faults_setup(void)
{
	hole = map(3 * PAGE, MAP_PRIVATE, -1) ;
	hole += PAGE;
	NEED(munmap(hole, PAGE) == 0);
}

static void faults_check(void)
{
	signal(SIGSEGV, on_fault);
	*(volatile char *)hole = 1;
	CHECK(faults == 1 && *hole == 1);
	signal(SIGSEGV, SIG_DFL);
}

int main(int argc, char **argv)
{
	static const struct item items[] = {
		ITEM(anonymous), ITEM(fork_cow), ITEM(shared),  ITEM(private_file), ITEM(executable),
		ITEM(hot_text),	 ITEM(sparse),	 ITEM(futex),  ITEM(stacks),	   ITEM(faults),
	};

	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
