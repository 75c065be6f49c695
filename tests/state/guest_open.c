// SPDX-License-Identifier: Apache-2.0
/*
 * Open files that lead to something else: namespaces, memory and mount tables of processes, the kernel's log,
 * netlink; listings that are half read; and below /host, if there is one, files of a bind mount.
 */
#include <dirent.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "tests/state/guest.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static pid_t child_with(int flags)
{
	int ready[2];
	pid_t pid;
	char c;

	NEED(pipe(ready) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(flags) == 0)
			(void)!write(ready[1], "x", 1);
		close(ready[1]);
		close(ready[0]);
		for (;;)
			pause();
	}
	close(ready[1]);
	NEED(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	return pid;
}

static int open_of(pid_t pid, const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return open(path, flags | O_CLOEXEC);
}

/* All of @name, as text. */
static void slurp(pid_t pid, const char *name, char *buf, size_t size)
{
	int fd = open_of(pid, name, O_RDONLY);
	size_t have = 0;
	ssize_t n;

	while (fd >= 0 && have < size - 1 && (n = read(fd, buf + have, size - 1 - have)) > 0)
		have += (size_t)n;
	buf[have] = 0;
	close(fd);
}

static ino_t ino_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* ---- namespaces ---- */

static const char *const ns_names[] = { "ns/mnt", "ns/uts", "ns/ipc", "ns/pid", "ns/pid_for_children",
					"ns/user", "ns/net", "ns/cgroup" };
static int ns_fd[LEN(ns_names)];
static ino_t ns_ino[LEN(ns_names)];

static void namespaces_setup(void)
{
	for (size_t i = 0; i < LEN(ns_names); i++) {
		ns_fd[i] = open_of(getpid(), ns_names[i], O_RDONLY);
		ns_ino[i] = ino_of(ns_fd[i]);
		NEED(ns_fd[i] >= 0 && ns_ino[i]);
	}
}

static void namespaces_check(void)
{
	for (size_t i = 0; i < LEN(ns_names); i++) {
		int fd = open_of(getpid(), ns_names[i], O_RDONLY);

		CHECK(ino_of(ns_fd[i]) == ns_ino[i] && ino_of(fd) == ns_ino[i]);
		close(fd);
	}
	CHECK(setns(ns_fd[1], CLONE_NEWUTS) == 0);
}

/* ---- a child in a user namespace with maps, one in a cgroup namespace ---- */

static pid_t user_child, cgroup_child;
static int user_fd, cgroup_fd;
static ino_t user_ino, cgroup_ino;

static void write_map(pid_t pid, const char *name, const char *text)
{
	int fd = open_of(pid, name, O_WRONLY);

	NEED(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void nested_setup(void)
{
	user_child = child_with(CLONE_NEWUSER);
	write_map(user_child, "uid_map", "0 0 1\n");
	write_map(user_child, "gid_map", "5 0 1\n");
	cgroup_child = child_with(CLONE_NEWCGROUP);
	user_fd = open_of(user_child, "ns/user", O_RDONLY);
	cgroup_fd = open_of(cgroup_child, "ns/cgroup", O_RDONLY);
	user_ino = ino_of(user_fd);
	cgroup_ino = ino_of(cgroup_fd);
	NEED(user_ino && user_ino != ns_ino[5] && cgroup_ino && cgroup_ino != ns_ino[7]);
}

static void nested_check(void)
{
	int fd = open_of(user_child, "ns/user", O_RDONLY);
	unsigned v[3] = { 9, 9, 9 };
	char text[256];

	CHECK(ino_of(user_fd) == user_ino && ino_of(fd) == user_ino);
	CHECK(ino_of(cgroup_fd) == cgroup_ino);
	slurp(user_child, "gid_map", text, sizeof(text));
	CHECK(sscanf(text, "%u %u %u", &v[0], &v[1], &v[2]) == 3 && v[0] == 5 && v[1] == 0 && v[2] == 1);
	CHECK(kill(user_child, SIGKILL) == 0 && kill(cgroup_child, SIGKILL) == 0);
	close(fd);
}

/* ---- files of processes ---- */

static int mem_fd, pagemap_fd, mounts_fd, snapshot_fd;
static char mounts[65536];
static volatile unsigned long word = 0x1234567812345678;

static void proc_setup(void)
{
	char some[10];

	mem_fd = open_of(getpid(), "mem", O_RDWR);
	pagemap_fd = open_of(getpid(), "pagemap", O_RDONLY);
	snapshot_fd = open("/proc/holdfast/snapshot", O_WRONLY | O_CLOEXEC); /* for whom it is allowed */
	slurp(getpid(), "mounts", mounts, sizeof(mounts));
	mounts_fd = open_of(getpid(), "mounts", O_RDONLY);
	NEED(mem_fd >= 0 && pagemap_fd >= 0 && read(mounts_fd, some, sizeof(some)) == sizeof(some));
}

static void proc_check(void)
{
	static char rest[65536];
	unsigned long v = 0, is = 42;
	uint64_t entry;
	ssize_t n = read(mounts_fd, rest, sizeof(rest) - 1);

	CHECK(n == (ssize_t)strlen(mounts) - 10 && memcmp(rest, mounts + 10, (size_t)n) == 0);
	CHECK(pread(mem_fd, &v, sizeof(v), (off_t)(uintptr_t)&word) == sizeof(v) && v == word);
	CHECK(pwrite(mem_fd, &is, sizeof(is), (off_t)(uintptr_t)&word) == sizeof(is) && word == 42);
	CHECK(snapshot_fd < 0 || (fcntl(snapshot_fd, F_GETFL) & O_ACCMODE) == O_WRONLY);
	CHECK(pread(pagemap_fd, &entry, 8, (off_t)((uintptr_t)&word / 4096 * 8)) == 8);
}

/* ---- the kernel's log ---- */

static int kmsg_fd;

static void kmsg_setup(void)
{
	char line[1024];

	NEED(mknod(DIR_STATE "/kmsg", S_IFCHR | 0600, makedev(1, 11)) == 0 || errno == EEXIST);
	kmsg_fd = open(DIR_STATE "/kmsg", O_RDWR | O_NONBLOCK);
	NEED(kmsg_fd >= 0 && lseek(kmsg_fd, 0, SEEK_END) == 0);
	NEED(write(kmsg_fd, "<12>first", 9) == 9 && write(kmsg_fd, "<12>second", 10) == 10);
	for (;;) {
		ssize_t n = read(kmsg_fd, line, sizeof(line) - 1);

		NEED(n > 0);
		line[n] = 0;
		if (strstr(line, ";first\n"))
			return;
	}
}

static void kmsg_check(void)
{
	char line[1024] = "";
	ssize_t n = read(kmsg_fd, line, sizeof(line) - 1);

	CHECK(n > 0 && strstr(line, ";second\n"));
}

/* ---- netlink: an answer that nobody has read ---- */

static int netlink_fd;

static void netlink_setup(void)
{
	struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} q = { .h = { .nlmsg_len = sizeof(q), .nlmsg_type = RTM_GETLINK, .nlmsg_seq = 77,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };

	netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	NEED(netlink_fd >= 0 && send(netlink_fd, &q, sizeof(q), 0) == sizeof(q));
}

static void netlink_check(void)
{
	union {
		struct nlmsghdr h;
		char raw[16384];
	} a;
	ssize_t n = recv(netlink_fd, &a, sizeof(a), MSG_DONTWAIT);

	CHECK(n > (ssize_t)sizeof(a.h) && a.h.nlmsg_seq == 77 && a.h.nlmsg_type == RTM_NEWLINK);
}

/* ---- listings: half of the names before, the others after, each once ---- */

struct listing {
	const char *path;
	int fd;
	unsigned all, before;
};

static struct listing root_listing = { .path = "/bin" }, host_listing = { .path = "/host" };

/* Names of one getdents64 with @size bytes of room; 0 at the end. */
static unsigned some_names(int fd, size_t size)
{
	char buf[4096] __attribute__((aligned(8)));
	long n = syscall(SYS_getdents64, fd, buf, size);
	unsigned names = 0;

	for (long at = 0; at < n; names++)
		at += ((struct dirent64 *)(void *)(buf + at))->d_reclen;
	return names;
}

static unsigned all_names(int fd)
{
	unsigned n, sum = 0;

	while ((n = some_names(fd, 4096)))
		sum += n;
	return sum;
}

static void begin_listing(struct listing *l)
{
	int fd = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	l->all = all_names(fd);
	close(fd);
	l->fd = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	l->before = some_names(l->fd, 100);
	NEED(l->before > 2 && l->before < l->all);
}

static void listing_setup(void)
{
	begin_listing(&root_listing);
}

static void listing_check(void)
{
	CHECK(root_listing.before + all_names(root_listing.fd) == root_listing.all);
}

/* ---- a bind mount ---- */

static int host_fd = -1, deleted_fd = -1;

static void host_setup(void)
{
	if (access("/host/file", F_OK) < 0)
		return;
	host_fd = open("/host/file", O_RDONLY | O_CLOEXEC);
	deleted_fd = open("/host/deleted", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	NEED(host_fd >= 0 && deleted_fd >= 0 && write(deleted_fd, "lost", 4) == 4);
	NEED(unlink("/host/deleted") == 0);
	begin_listing(&host_listing);
}

static void host_check(void)
{
	char buf[16];

	if (host_fd < 0)
		return;
	CHECK(read(host_fd, buf, 9) == 9 && memcmp(buf, "hostfile\n", 9) == 0);
	CHECK(pread(deleted_fd, buf, 16, 0) == 4 && memcmp(buf, "lost", 4) == 0);
	CHECK(host_listing.before + all_names(host_listing.fd) == host_listing.all);
}

/* ---- files of the image with several names ---- */

static struct stat several;

static void several_setup(void)
{
	(void)stat("/several/one", &several); /* there is none: nothing to compare */
}

static void several_check(void)
{
	struct stat st = { 0 };

	CHECK(!several.st_ino || (stat("/several/two", &st) == 0 && st.st_ino == several.st_ino));
}

static const struct item items[] = { ITEM(namespaces), ITEM(nested), ITEM(proc),   ITEM(kmsg),
				     ITEM(netlink),    ITEM(listing), ITEM(host), ITEM(several) };

int main(int argc, char **argv)
{
	return guest_main(argc, argv, items, LEN(items));
}
