// SPDX-License-Identifier: Apache-2.0
/* procfs: what programs read about themselves and the system. */
#include "harness.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/socket.h>

static char *slurp(const char *path)
{
	static char buf[1 << 16];
	int fd = open(path, O_RDONLY);
	size_t got = 0;
	ssize_t n;

	CHECK(fd >= 0);
	while ((n = read(fd, buf + got, sizeof(buf) - 1 - got)) > 0)
		got += (size_t)n;
	CHECK(n == 0);
	buf[got] = '\0';
	close(fd);
	return buf;
}

static char *link_of(const char *path)
{
	static char buf[4096];
	ssize_t n = readlink(path, buf, sizeof(buf) - 1);

	CHECK(n > 0);
	buf[n] = '\0';
	return buf;
}

TEST(self_is_the_reader)
{
	CHECK(atoi(link_of("/proc/self")) == getpid());
	char want[64];

	snprintf(want, sizeof(want), "%d/task/%d", getpid(), getpid());
	CHECK(!strcmp(link_of("/proc/thread-self"), want));
}

TEST(stat_fields)
{
	int pid, ppid;
	char comm[32], state;

	CHECK(sscanf(slurp("/proc/self/stat"), "%d (%31[^)]) %c %d", &pid, comm, &state, &ppid) == 4);
	CHECK(pid == getpid() && ppid == getppid() && state == 'R');
	int fields = 1;
	for (char *p = slurp("/proc/self/stat"); *p; p++)
		fields += *p == ' ';
	CHECK(fields == 52);
}

/* Of a user of its own, so that nobody else's signals count. */
TEST(status_counts_queued_signals)
{
	sigset_t set;

	CHECK(setuid(54321) == 0);
	CHECK(strstr(slurp("/proc/self/status"), "\nSigQ:\t0/"));
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	for (int i = 0; i < 5; i++)
		CHECK(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = i }) == 0);
	CHECK(strstr(slurp("/proc/self/status"), "\nSigQ:\t5/"));
}

TEST(status_has_ids)
{
	char *s = slurp("/proc/self/status"), want[64];

	snprintf(want, sizeof(want), "\nPid:\t%d\n", getpid());
	CHECK(strstr(s, want));
	CHECK(strstr(s, "\nUid:\t") && strstr(s, "\nVmRSS:\t") && strstr(s, "\nSigBlk:\t"));
	CHECK(strstr(s, "\nCpus_allowed_list:\t"));
}

TEST(comm_can_be_set)
{
	int fd = open("/proc/self/comm", O_RDWR);
	char name[16];

	CHECK(fd >= 0 && write(fd, "renamed", 7) == 7);
	CHECK(prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "renamed"));
	CHECK(!strcmp(slurp("/proc/self/comm"), "renamed\n"));
}

TEST(fd_links)
{
	int p[2], s = socket(AF_UNIX, SOCK_STREAM, 0);
	char path[64];

	CHECK(pipe(p) == 0 && s >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
	CHECK(!strncmp(link_of(path), "pipe:[", 6));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s);
	CHECK(!strncmp(link_of(path), "socket:[", 8));
	CHECK_ERRNO(open(path, O_RDONLY), ENXIO);
	close(s);
	char gone[64];
	CHECK_ERRNO(readlink(path, gone, sizeof(gone)), ENOENT);
}

TEST(fd_reopen_of_pipe)
{
	int p[2], w;
	char path[64], b;

	CHECK(pipe(p) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[1]);
	w = open(path, O_WRONLY);
	CHECK(w >= 0 && write(w, "z", 1) == 1);
	CHECK(read(p[0], &b, 1) == 1 && b == 'z');
}

TEST(fd_reopen_of_deleted_file)
{
	char name[] = "/tmp/procXXXXXX", path[64], b[4];
	int fd = mkstemp(name), again;

	CHECK(fd >= 0 && write(fd, "data", 4) == 4 && unlink(name) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(strstr(link_of(path), " (deleted)"));
	again = open(path, O_RDONLY);
	CHECK(again >= 0 && read(again, b, 4) == 4 && !memcmp(b, "data", 4));
}

TEST(fdinfo)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	char *s = slurp(path);
	CHECK(strstr(s, "pos:\t0\n") && strstr(s, "flags:\t02"));
}

TEST(exe_and_cwd)
{
	char cwd[4096];
	struct stat a, b;

	CHECK(getcwd(cwd, sizeof(cwd)) && !strcmp(link_of("/proc/self/cwd"), cwd));
	CHECK(stat("/proc/self/exe", &a) == 0 && S_ISREG(a.st_mode));
	CHECK(stat(link_of("/proc/self/exe"), &b) == 0 && a.st_ino == b.st_ino);
	CHECK(!strcmp(link_of("/proc/self/root"), "/"));
}

TEST(maps_show_a_mapping)
{
	char want[64];
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && mprotect(p, 4096, PROT_NONE) == 0);
	CHECK(mmap((char *)p + 4096, 0, 0, 0, -1, 0) == MAP_FAILED);
	CHECK(mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0);
	snprintf(want, sizeof(want), "%lx-", (unsigned long)p);
	CHECK(strstr(slurp("/proc/self/maps"), want));
	CHECK(strstr(slurp("/proc/self/maps"), "[stack]"));
}

TEST(mem_reads_and_writes)
{
	static volatile int word = 1;
	int fd = open("/proc/self/mem", O_RDWR), v = 0;

	CHECK(fd >= 0);
	CHECK(pread(fd, &v, sizeof(v), (off_t)(uintptr_t)&word) == sizeof(v) && v == 1);
	v = 99;
	CHECK(pwrite(fd, &v, sizeof(v), (off_t)(uintptr_t)&word) == sizeof(v) && word == 99);
	CHECK_ERRNO(pread(fd, &v, 4, 0x10), EIO);
}

TEST(missing_process)
{
	CHECK_ERRNO(open("/proc/4194000/stat", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("/proc/nothing", O_RDONLY | O_CREAT, 0600), ENOENT);
}

TEST(dead_process_gives_esrch)
{
	char path[64], b[64];
	int status, fd;
	pid_t pid = fork();

	if (pid == 0)
		pause();
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_ERRNO(read(fd, b, sizeof(b)), ESRCH);
	CHECK_ERRNO(access(path, F_OK), ENOENT);
}

TEST(root_lists_processes)
{
	DIR *d = opendir("/proc");
	bool found = false, meminfo = false;
	struct dirent *e;

	CHECK(d);
	while ((e = readdir(d))) {
		found |= atoi(e->d_name) == getpid();
		meminfo |= !strcmp(e->d_name, "meminfo");
	}
	CHECK(found && meminfo);
}

TEST(task_lists_threads)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", getpid());
	CHECK(access(path, R_OK) == 0);
	CHECK_ERRNO(access("/proc/self/task/1000000000", F_OK), ENOENT);
}

TEST(system_files)
{
	double up;

	CHECK(strstr(slurp("/proc/meminfo"), "MemTotal:"));
	CHECK(strstr(slurp("/proc/cpuinfo"), "processor\t: 0"));
	CHECK(!strncmp(slurp("/proc/stat"), "cpu  ", 5));
	CHECK(strstr(slurp("/proc/stat"), "\nbtime "));
	CHECK(sscanf(slurp("/proc/uptime"), "%lf", &up) == 1 && up > 0);
	CHECK(strchr(slurp("/proc/loadavg"), '/'));
	CHECK(strstr(slurp("/proc/filesystems"), "nodev\tproc\n"));
	CHECK(strstr(slurp("/proc/mounts"), " /proc proc "));
	CHECK(strstr(slurp("/proc/self/mountinfo"), " - proc "));
	CHECK(!strncmp(slurp("/proc/version"), "Linux version ", 14));
}

TEST(sysctl_values)
{
	char host[65];

	CHECK(gethostname(host, sizeof(host)) == 0);
	char *s = slurp("/proc/sys/kernel/hostname");
	CHECK(!strncmp(s, host, strlen(host)));
	CHECK(atoi(slurp("/proc/sys/kernel/pid_max")) > 300);
	CHECK(!strcmp(slurp("/proc/sys/kernel/ngroups_max"), "65536\n"));
	CHECK(strlen(slurp("/proc/sys/kernel/random/uuid")) == 37);
	CHECK(atoi(slurp("/proc/sys/fs/pipe-max-size")) >= 4096);
	CHECK(atoi(slurp("/proc/sys/net/core/somaxconn")) > 0);
}

TEST(oom_score_adj)
{
	int fd = open("/proc/self/oom_score_adj", O_RDWR);

	CHECK(fd >= 0 && write(fd, "500", 3) == 3);
	CHECK(!strcmp(slurp("/proc/self/oom_score_adj"), "500\n"));
	CHECK_ERRNO(write(fd, "1001", 4), EINVAL);
}

TEST(ns_links)
{
	struct stat a, b;

	CHECK(!strncmp(link_of("/proc/self/ns/net"), "net:[", 5));
	CHECK(!strncmp(link_of("/proc/self/ns/pid_for_children"), "pid:[", 5));
	CHECK(stat("/proc/self/ns/mnt", &a) == 0 && stat("/proc/thread-self/ns/mnt", &b) == 0);
	CHECK(a.st_ino == b.st_ino);
}

TEST(limits_and_cmdline)
{
	CHECK(strstr(slurp("/proc/self/limits"), "Max open files"));
	CHECK(slurp("/proc/self/cmdline")[0] != '\0');
	CHECK(!strncmp(slurp("/proc/self/cgroup"), "", 0));
}

TEST(auxv)
{
	int fd = open("/proc/self/auxv", O_RDONLY);
	uint64_t v[64];
	ssize_t n = read(fd, v, sizeof(v));

	CHECK(n > 0 && n % 16 == 0);
	CHECK(v[n / 8 - 2] == 0 && v[n / 8 - 1] == 0);
}

TEST_MAIN
