// SPDX-License-Identifier: Apache-2.0
/*
 * Micro-benchmarks as one static program: `micro ROW` prints the median time of one operation in
 * nanoseconds. Each row runs in batches until it has used its time. `micro ROW N` waits for a byte, does the operation N times
 * and waits for another one, for whoever counts meanwhile.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 15
#define BUDGET_NS 400000000LL

static char page[4096];
static int zero, null, file, layer, pipes[2][2];
extern char **environ;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void getpid_row(void)
{
	syscall(SYS_getpid);
}

/* A call with no work that nobody but the kernel can answer. */
static void getppid_row(void)
{
	syscall(SYS_getppid);
}

static void umask_row(void)
{
	syscall(SYS_umask, 022);
}

static void clock_row(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
}

static void read_zero(void)
{
	(void)!read(zero, page, 1);
}

static void write_null(void)
{
	(void)!write(null, page, 1);
}

static void pread_root(void)
{
	(void)!pread(file, page, sizeof(page), 0);
}

static void pread_layer(void)
{
	(void)!pread(layer, page, sizeof(page), 0);
}

static void stat_row(void)
{
	struct stat st;

	stat("/bin/sh", &st);
}

static void stat_missing(void)
{
	struct stat st;

	stat("/bin/no-such-file", &st);
}

static void mprotect_row(void)
{
	static char *p;
	static int prot = PROT_READ;

	if (!p)
		p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(p, 65536, prot);
	prot ^= PROT_WRITE;
}

static void open_close(void)
{
	close(open("/bin/sh", O_RDONLY));
}

static void create_unlink(void)
{
	close(open("/tmp/bench-x", O_CREAT | O_WRONLY, 0600));
	unlink("/tmp/bench-x");
}

static void signal_self(void)
{
	raise(SIGUSR1);
}

static void pingpong(void)
{
	(void)!write(pipes[0][1], page, 1);
	(void)!read(pipes[1][0], page, 1);
}

static void mmap_page(void)
{
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	p[0] = 1;
	munmap(p, 4096);
}

static void mmap_mib(void)
{
	char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 1 << 20; i += 4096)
		p[i] = 1;
	munmap(p, 1 << 20);
}

static void fork_wait(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
}

static void fork_exec(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
}

static void spawn_row(void)
{
	char name[] = "true";
	char *argv[] = { name, NULL };
	pid_t pid;

	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0)
		waitpid(pid, NULL, 0);
}

static void *thread_fn(void *arg)
{
	return arg;
}

static void thread_row(void)
{
	pthread_t th;

	pthread_create(&th, NULL, thread_fn, NULL);
	pthread_join(th, NULL);
}

static _Atomic int turn;

static void futex_wait_for(int v)
{
	int cur;

	while ((cur = turn) != v)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, cur, NULL, NULL, 0);
}

static void futex_set(int v)
{
	turn = v;
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *futex_partner(void *arg)
{
	for (;;) {
		futex_wait_for(1);
		futex_set(0);
	}
	return arg;
}

static void futex_pingpong(void)
{
	futex_set(1);
	futex_wait_for(0);
}

static void on_signal(int s)
{
	(void)s;
}

static void echo_process(void)
{
	char c;

	if (pipe(pipes[0]) || pipe(pipes[1]))
		exit(1);
	if (fork() == 0) {
		close(pipes[0][1]);
		while (read(pipes[0][0], &c, 1) == 1)
			(void)!write(pipes[1][1], &c, 1);
		_exit(0);
	}
	close(pipes[0][0]);
}

/* 0.1 ms of work, then a call: with a partner that does the same, two busy threads of 10,000 calls a second each. */
static void busy_row(void)
{
	uint64_t x = (uint64_t)turn + 1;

	for (int i = 0; i < 50000; i++)
		__asm__ volatile("imul $3, %0, %0" : "+r"(x)); /* a chain of 3 cycles each */
	syscall(SYS_getppid);
}

static void *busy_partner(void *arg)
{
	for (;;)
		busy_row();
	return arg;
}

static void busy_setup(void)
{
	pthread_t th;

	pthread_create(&th, NULL, busy_partner, NULL);
}

static void futex_setup(void)
{
	pthread_t th;

	pthread_create(&th, NULL, futex_partner, NULL);
}

static const struct {
	const char *name;
	void (*fn)(void);
	int batch;
	void (*setup)(void);
} rows[] = {
	{ "getpid", getpid_row, 2000, NULL },
	{ "getppid", getppid_row, 2000, NULL },
	{ "umask", umask_row, 2000, NULL },
	{ "clock_gettime", clock_row, 10000, NULL },
	{ "read_zero", read_zero, 1000, NULL },
	{ "write_null", write_null, 1000, NULL },
	{ "pread_rootfs", pread_root, 1000, NULL },
	{ "pread_layer", pread_layer, 1000, NULL },
	{ "stat", stat_row, 1000, NULL },
	{ "stat_missing", stat_missing, 1000, NULL },
	{ "open_close", open_close, 500, NULL },
	{ "create_unlink", create_unlink, 200, NULL },
	{ "signal_self", signal_self, 200, NULL },
	{ "pipe_pingpong", pingpong, 200, echo_process },
	{ "futex_pingpong", futex_pingpong, 200, futex_setup },
	{ "two_busy_threads", busy_row, 200, busy_setup },
	{ "mprotect", mprotect_row, 200, NULL },
	{ "mmap_page", mmap_page, 100, NULL },
	{ "mmap_mib", mmap_mib, 5, NULL },
	{ "thread_create_join", thread_row, 50, NULL },
	{ "fork_exit_wait", fork_wait, 10, NULL },
	{ "fork_exec_wait", fork_exec, 5, NULL },
	{ "posix_spawn", spawn_row, 5, NULL },
};

static int cmp(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void counted(void (*fn)(void), int n)
{
	int64_t start;
	char c;

	puts("ready");
	fflush(stdout);
	(void)!read(0, &c, 1);
	start = now();
	for (int k = 0; k < n; k++)
		fn();
	printf("%.2f done\n", (double)(now() - start) / n);
	fflush(stdout);
	(void)!read(0, &c, 1);
}

int main(int argc, char **argv)
{
	int64_t t[BATCHES], end = now() + BUDGET_NS;
	int n = 0;

	zero = open("/dev/zero", O_RDONLY);
	null = open("/dev/null", O_WRONLY);
	file = open("/bin/sh", O_RDONLY);
	layer = open("/tmp/bench-layer", O_CREAT | O_RDWR, 0600);
	(void)!pwrite(layer, page, sizeof(page), 0);
	signal(SIGUSR1, on_signal);
	for (size_t i = 0; argc > 1 && i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].name, argv[1]) != 0)
			continue;
		if (rows[i].setup)
			rows[i].setup();
		rows[i].fn();
		if (argc > 2) {
			counted(rows[i].fn, atoi(argv[2]));
			_exit(0);
		}
		while (n < BATCHES && (n < 3 || now() < end)) {
			int64_t start = now();

			for (int k = 0; k < rows[i].batch; k++)
				rows[i].fn();
			t[n++] = (now() - start) * 100 / rows[i].batch;
		}
		qsort(t, (size_t)n, sizeof(t[0]), cmp);
		printf("%.2f\n", (double)t[n / 2] / 100);
		fflush(stdout);
		_exit(0);
	}
	for (size_t i = 0; argc == 1 && i < sizeof(rows) / sizeof(rows[0]); i++)
		printf("%s\n", rows[i].name);
	return argc > 1;
}
