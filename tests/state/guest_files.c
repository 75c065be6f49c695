// SPDX-License-Identifier: Apache-2.0
/* What a file system has to bring back: names, bytes, attributes, open files, locks, mounts. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "tests/state/guest.h"

static int put(const char *path, const char *text)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	NEED(fd >= 0);
	NEED(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static bool has(const char *path, const char *text)
{
	char buf[256] = "";
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	close(fd);
	return n == (ssize_t)strlen(text) && memcmp(buf, text, strlen(text)) == 0;
}

/* ---- positions, flags, descriptors that share ---- */

static int off_fd, off_dup, append_fd;

static void offsets_setup(void)
{
	off_fd = put(DIR_STATE "/offsets", "0123456789abcdef");
	NEED(lseek(off_fd, 5, SEEK_SET) == 5);
	off_dup = fcntl(off_fd, F_DUPFD_CLOEXEC, 100);
	append_fd = open(DIR_STATE "/offsets", O_WRONLY | O_APPEND | O_NONBLOCK);
	NEED(off_dup >= 100 && append_fd >= 0);
}

static void offsets_check(void)
{
	char c = 0;

	CHECK(read(off_dup, &c, 1) == 1 && c == '5');
	CHECK(lseek(off_fd, 0, SEEK_CUR) == 6);
	CHECK(fcntl(off_dup, F_GETFD) == FD_CLOEXEC && fcntl(off_fd, F_GETFD) == 0);
	CHECK((fcntl(append_fd, F_GETFL) & (O_APPEND | O_NONBLOCK | O_ACCMODE)) ==
	      (O_APPEND | O_NONBLOCK | O_WRONLY));
	CHECK(write(append_fd, "X", 1) == 1);
	CHECK(has(DIR_STATE "/offsets", "0123456789abcdefX"));
}

/* ---- bytes: several pages, a hole, what was written by mmap ---- */

static int big_fd;
static char *big_map;

static void bytes_setup(void)
{
	big_fd = put(DIR_STATE "/big", "start");
	NEED(pwrite(big_fd, "middle", 6, 300000) == 6);
	NEED(pwrite(big_fd, "end", 3, 5000000) == 3);
	big_map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, big_fd, 0);
	NEED(big_map != MAP_FAILED);
	strcpy(big_map + 4096, "mapped");
}

static void bytes_check(void)
{
	char buf[16] = "";
	struct stat st;

	CHECK(fstat(big_fd, &st) == 0 && st.st_size == 5000003);
	CHECK(pread(big_fd, buf, 6, 300000) == 6 && memcmp(buf, "middle", 6) == 0);
	CHECK(pread(big_fd, buf, 6, 4096) == 6 && memcmp(buf, "mapped", 6) == 0);
	CHECK(pread(big_fd, buf, 4, 1000000) == 4 && memcmp(buf, "\0\0\0\0", 4) == 0);
	CHECK(strcmp(big_map + 4096, "mapped") == 0 && memcmp(big_map, "start", 5) == 0);
	strcpy(big_map + 4096, "again.");
	CHECK(pread(big_fd, buf, 6, 4096) == 6 && memcmp(buf, "again.", 6) == 0);
	CHECK(pwrite(big_fd, "MIDDLE", 6, 300000) == 6);
	CHECK(pread(big_fd, buf, 6, 300000) == 6 && memcmp(buf, "MIDDLE", 6) == 0);
}

/* ---- deleted, linked, renamed, attributes ---- */

static int deleted_fd, tmpfile_fd;
static struct stat linked_st;

static void names_setup(void)
{
	deleted_fd = put(DIR_STATE "/deleted", "still here");
	NEED(unlink(DIR_STATE "/deleted") == 0);
	tmpfile_fd = open(DIR_STATE, O_TMPFILE | O_RDWR, 0600);
	NEED(tmpfile_fd >= 0 && write(tmpfile_fd, "nameless", 8) == 8);
	close(put(DIR_STATE "/one", "linked"));
	NEED(link(DIR_STATE "/one", DIR_STATE "/two") == 0);
	NEED(symlink("one", DIR_STATE "/sym") == 0);
	NEED(chmod(DIR_STATE "/one", 04751) == 0);
	NEED(chown(DIR_STATE "/one", 1234, 5678) == 0 || geteuid());
	struct timespec ts[2] = { { 1000000001, 5 }, { 1000000002, 6 } };
	NEED(utimensat(AT_FDCWD, DIR_STATE "/one", ts, 0) == 0);
	NEED(stat(DIR_STATE "/one", &linked_st) == 0);
	NEED(setxattr(DIR_STATE "/two", "user.color", "blue", 4, 0) == 0);
	NEED(mkdir(DIR_STATE "/a", 0700) == 0 && mkdir(DIR_STATE "/a/b", 0711) == 0);
	close(put(DIR_STATE "/a/b/c", "deep"));
	NEED(rename(DIR_STATE "/a/b", DIR_STATE "/moved") == 0);
}

static void names_check(void)
{
	char buf[32] = "";
	struct stat a, b;

	CHECK(pread(deleted_fd, buf, 32, 0) == 10 && memcmp(buf, "still here", 10) == 0);
	CHECK(fstat(deleted_fd, &a) == 0 && a.st_nlink == 0);
	CHECK(access(DIR_STATE "/deleted", F_OK) < 0);
	CHECK(pread(tmpfile_fd, buf, 32, 0) == 8 && memcmp(buf, "nameless", 8) == 0);
	CHECK(stat(DIR_STATE "/one", &a) == 0 && stat(DIR_STATE "/two", &b) == 0);
	CHECK(a.st_ino == b.st_ino && a.st_nlink == 2 && a.st_ino == linked_st.st_ino &&
	      a.st_dev == linked_st.st_dev);
	CHECK(a.st_mode == linked_st.st_mode && a.st_uid == linked_st.st_uid &&
	      a.st_gid == linked_st.st_gid);
	CHECK(a.st_mtim.tv_sec == 1000000002 && a.st_mtim.tv_nsec == 6);
	CHECK(memcmp(&a.st_ctim, &linked_st.st_ctim, sizeof(a.st_ctim)) == 0 ||
	      a.st_ctim.tv_sec >= linked_st.st_ctim.tv_sec); /* setxattr changed it */
	memset(buf, 0, sizeof(buf));
	CHECK(getxattr(DIR_STATE "/one", "user.color", buf, 32) == 4 && !strcmp(buf, "blue"));
	memset(buf, 0, sizeof(buf));
	CHECK(readlink(DIR_STATE "/sym", buf, 32) == 3 && !strcmp(buf, "one"));
	CHECK(has(DIR_STATE "/moved/c", "deep") && access(DIR_STATE "/a/b", F_OK) < 0);
	CHECK(stat(DIR_STATE "/moved", &a) == 0 && (a.st_mode & 07777) == 0711);
	CHECK(unlink(DIR_STATE "/two") == 0 && has(DIR_STATE "/one", "linked"));
}

/* ---- the image below the writable layer: /state-image is made by the test ---- */

static int image_fd, image_dir;
static bool have_image;
static struct stat image_st;

static void image_setup(void)
{
	char c[4];

	have_image = access("/state-image/keep", F_OK) == 0;
	if (!have_image)
		return;
	NEED(unlink("/state-image/remove") == 0);
	NEED(unlink("/state-image/replace") == 0);
	close(put("/state-image/replace", "new"));
	NEED(rename("/state-image/rename", "/state-image/renamed") == 0);
	int fd = open("/state-image/change", O_WRONLY);
	NEED(fd >= 0 && pwrite(fd, "XY", 2, 2) == 2);
	close(fd);
	NEED(mkdir("/state-image/dir/new", 0755) == 0);
	NEED(unlink("/state-image/hard1") == 0);
	fd = open("/state-image/hard2", O_WRONLY | O_APPEND);
	NEED(fd >= 0 && write(fd, "+", 1) == 1);
	close(fd);
	image_fd = open("/state-image/keep", O_RDONLY);
	NEED(image_fd >= 0 && read(image_fd, c, 2) == 2);
	NEED(stat("/state-image/keep", &image_st) == 0);
	image_dir = open("/state-image/dir", O_RDONLY | O_DIRECTORY);
	NEED(image_dir >= 0);
	/* Read whole, so that the directory is known to be complete; what was removed must stay so. */
	DIR *d = opendir("/state-image");
	while (readdir(d))
		;
	closedir(d);
	NEED(unlink("/state-image/late") == 0);
}

static void image_check(void)
{
	struct stat st;
	char c[8] = "";

	if (!have_image)
		return;
	CHECK(read(image_fd, c, 8) == 3 && memcmp(c, "ep\n", 3) == 0);
	CHECK(stat("/state-image/keep", &st) == 0 && st.st_ino == image_st.st_ino &&
	      st.st_dev == image_st.st_dev && st.st_mtime == image_st.st_mtime);
	CHECK(access("/state-image/remove", F_OK) < 0 && access("/state-image/late", F_OK) < 0);
	CHECK(has("/state-image/replace", "new"));
	CHECK(has("/state-image/renamed", "rename\n") && access("/state-image/rename", F_OK) < 0);
	CHECK(has("/state-image/change", "chXYge\n"));
	CHECK(has("/state-image/dir/file", "file\n"));
	CHECK(faccessat(image_dir, "new", F_OK, 0) == 0 && faccessat(image_dir, "file", F_OK, 0) == 0);
	CHECK(access("/state-image/hard1", F_OK) < 0 && has("/state-image/hard3", "hard\n+"));
	CHECK(has("/state-image/untouched", "untouched\n"));
	DIR *d = opendir("/state-image");
	for (struct dirent *e; (e = readdir(d));)
		CHECK(strcmp(e->d_name, "remove") && strcmp(e->d_name, "late") &&
		      strcmp(e->d_name, "hard1") && strcmp(e->d_name, "rename"));
	closedir(d);
}

/* ---- a bind mount on /host, where the test has one ---- */

static int host_fd, orphan_fd, orphan_dir;
static char *host_map;
static bool have_host;

static void host_setup(void)
{
	char c[4];

	have_host = access("/host/file", F_OK) == 0;
	if (!have_host)
		return;
	host_fd = open("/host/file", O_RDWR);
	NEED(host_fd >= 0 && read(host_fd, c, 4) == 4);
	host_map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, host_fd, 0);
	NEED(host_map != MAP_FAILED && memcmp(host_map, "host", 4) == 0);
	orphan_fd = put("/host/orphan", "orphan");
	NEED(unlink("/host/orphan") == 0);
	NEED(mkdir("/host/gone", 0755) == 0);
	orphan_dir = open("/host/gone", O_RDONLY | O_DIRECTORY);
	NEED(orphan_dir >= 0 && rmdir("/host/gone") == 0);
}

static void host_check(void)
{
	char buf[32] = "";
	struct stat st;

	if (!have_host)
		return;
	CHECK(read(host_fd, buf, 5) == 5 && memcmp(buf, "file\n", 5) == 0);
	host_map[0] = 'H';
	CHECK(pread(host_fd, buf, 4, 0) == 4 && memcmp(buf, "Host", 4) == 0);
	CHECK(pwrite(host_fd, "h", 1, 0) == 1 && host_map[0] == 'h');
	CHECK(pread(orphan_fd, buf, 32, 0) == 6 && memcmp(buf, "orphan", 6) == 0);
	CHECK(pwrite(orphan_fd, "s", 1, 6) == 1 && fstat(orphan_fd, &st) == 0 && st.st_size == 7 &&
	      st.st_nlink == 0);
	CHECK(ftruncate(orphan_fd, 2) == 0 && fstat(orphan_fd, &st) == 0 && st.st_size == 2);
	CHECK(fstat(orphan_dir, &st) == 0 && st.st_nlink == 0);
	CHECK(openat(orphan_dir, "x", O_RDONLY) < 0 && errno == ENOENT);
	close(put("/host/made", "made"));
	CHECK(has("/host/made", "made"));
}

/* ---- in the middle of a listing ---- */

#define MANY 300
static DIR *listing;
static bool seen[MANY];
static long tell;

static int number(const char *name)
{
	return strncmp(name, "entry", 5) ? -1 : atoi(name + 5);
}

static void listing_setup(void)
{
	char path[64];
	int n = 0;

	NEED(mkdir(DIR_STATE "/list", 0755) == 0);
	for (int i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), DIR_STATE "/list/entry%d", i);
		close(put(path, ""));
	}
	listing = opendir(DIR_STATE "/list");
	while (n < 40) {
		int i = number(readdir(listing)->d_name);

		if (i >= 0)
			seen[i] = true;
		n++;
	}
	tell = telldir(listing);
}

static void listing_check(void)
{
	int n = 0, twice = 0;

	for (struct dirent *e; (e = readdir(listing));) {
		int i = number(e->d_name);

		twice += i >= 0 && seen[i];
		if (i >= 0)
			seen[i] = true;
	}
	for (int i = 0; i < MANY; i++)
		n += seen[i];
	CHECK(n == MANY && twice == 0);
	seekdir(listing, tell);
	CHECK(readdir(listing) != NULL);
}

/* ---- locks ---- */

static int flock_fd, posix_fd, ofd_fd;

static void locks_setup(void)
{
	struct flock fl = { .l_type = F_WRLCK, .l_start = 10, .l_len = 5 };

	flock_fd = put(DIR_STATE "/flock", "");
	NEED(flock(flock_fd, LOCK_EX) == 0);
	posix_fd = put(DIR_STATE "/posix", "");
	NEED(fcntl(posix_fd, F_SETLK, &fl) == 0);
	ofd_fd = put(DIR_STATE "/ofd", "");
	fl.l_start = 20;
	fl.l_pid = 0;
	NEED(fcntl(ofd_fd, F_OFD_SETLK, &fl) == 0);
}

/* As another process sees them. */
static int locks_child(void)
{
	struct flock fl = { .l_type = F_WRLCK };
	int a = open(DIR_STATE "/flock", O_RDWR), b = open(DIR_STATE "/posix", O_RDWR);
	int c = open(DIR_STATE "/ofd", O_RDWR);

	if (flock(a, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return 1;
	if (fcntl(b, F_GETLK, &fl) || fl.l_type != F_WRLCK || fl.l_start != 10 || fl.l_len != 5 ||
	    fl.l_pid != getppid())
		return 2;
	fl = (struct flock){ .l_type = F_RDLCK, .l_start = 22, .l_len = 1 };
	if (fcntl(c, F_OFD_SETLK, &fl) == 0)
		return 3;
	fl.l_start = 0;
	return fcntl(c, F_OFD_SETLK, &fl) == 0 ? 0 : 4;
}

static void locks_check(void)
{
	struct flock fl = { .l_type = F_UNLCK };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(locks_child());
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(flock(flock_fd, LOCK_UN) == 0 && fcntl(posix_fd, F_SETLK, &fl) == 0);
	close(ofd_fd);
}

/* ---- memfd ---- */

static int memfd;

static void memfd_setup(void)
{
	memfd = memfd_create("state", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	NEED(memfd >= 0 && write(memfd, "sealed", 6) == 6);
	NEED(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
}

static void memfd_check(void)
{
	char buf[64] = "", path[64];

	CHECK(pread(memfd, buf, 6, 0) == 6 && !strcmp(buf, "sealed"));
	CHECK(fcntl(memfd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW));
	CHECK(ftruncate(memfd, 3) < 0 && errno == EPERM);
	CHECK(pwrite(memfd, "SEALED", 6, 0) == 6);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
	memset(buf, 0, sizeof(buf));
	CHECK(readlink(path, buf, sizeof(buf) - 1) > 0 && strstr(buf, "memfd:state"));
}

/* ---- mounts and directories of the process, in a namespace of a child ---- */

static int mount_pipe[2];
static pid_t mount_child;

static int in_namespace(void)
{
	char cwd[256];
	struct stat st;

	if (!has("/tmp/state/mnt/inside", "inside"))
		return 1;
	if (!getcwd(cwd, sizeof(cwd)) || strcmp(cwd, "/tmp/state/mnt/sub"))
		return 2;
	if (stat("/tmp/state/bind/inside", &st) || st.st_size != 6)
		return 3;
	if (mkdir("/tmp/state/ro/x", 0700) == 0 || errno != EROFS)
		return 4;
	int fd = open("made", O_CREAT | O_WRONLY, 0666);
	if (fd < 0 || fstat(fd, &st) || (st.st_mode & 0777) != 0640)
		return 5;
	if (umount("/tmp/state/bind"))
		return 6;
	return 0;
}

static void mounts_setup(void)
{
	char c;

	NEED(pipe(mount_pipe) == 0);
	mount_child = fork();
	if (mount_child == 0) {
		NEED(unshare(CLONE_NEWNS) == 0);
		NEED(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
		NEED(mkdir(DIR_STATE "/mnt", 0755) == 0 && mkdir(DIR_STATE "/bind", 0755) == 0 &&
		     mkdir(DIR_STATE "/ro", 0755) == 0);
		NEED(mount("none", DIR_STATE "/mnt", "tmpfs", MS_NOSUID, "size=1m,mode=711") == 0);
		close(put(DIR_STATE "/mnt/inside", "inside"));
		NEED(mkdir(DIR_STATE "/mnt/sub", 0755) == 0);
		NEED(mount(DIR_STATE "/mnt", DIR_STATE "/bind", NULL, MS_BIND, NULL) == 0);
		NEED(mount(DIR_STATE "/mnt", DIR_STATE "/ro", NULL, MS_BIND, NULL) == 0);
		NEED(mount(NULL, DIR_STATE "/ro", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
		NEED(chdir(DIR_STATE "/mnt/sub") == 0);
		umask(027);
		NEED(write(mount_pipe[1], "r", 1) == 1);
		wait_go();
		_exit(in_namespace());
	}
	NEED(read(mount_pipe[0], &c, 1) == 1 && c == 'r');
}

static void mounts_check(void)
{
	int status = -1;

	close(open(DIR_STATE "/go", O_CREAT | O_WRONLY, 0644));
	CHECK(waitpid(mount_child, &status, 0) == mount_child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	if (status)
		printf("FAIL mounts: the child says %d\n", WEXITSTATUS(status));
	CHECK(access(DIR_STATE "/mnt/inside", F_OK) < 0);
}

/* ---- O_PATH, deleted directories, devices, files of /proc ---- */

static int path_fd, gone_fd, null_fd, status_fd, proc_dir, maps_fd;
static char status_head[16];

static void odd_setup(void)
{
	path_fd = open(DIR_STATE "/sym", O_PATH | O_NOFOLLOW);
	NEED(mkdir(DIR_STATE "/gone", 0755) == 0);
	gone_fd = open(DIR_STATE "/gone", O_RDONLY | O_DIRECTORY);
	NEED(rmdir(DIR_STATE "/gone") == 0);
	null_fd = open("/dev/null", O_RDWR);
	status_fd = open("/proc/self/status", O_RDONLY);
	NEED(status_fd >= 0 && read(status_fd, status_head, 6) == 6);
	maps_fd = open("/proc/self/maps", O_RDONLY);
	proc_dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	NEED(path_fd >= 0 && gone_fd >= 0 && null_fd >= 0 && maps_fd >= 0 && proc_dir >= 0);
}

static void odd_check(void)
{
	char buf[4096] = "";
	struct stat st;

	CHECK(readlinkat(path_fd, "", buf, sizeof(buf)) == 3 && !memcmp(buf, "one", 3));
	CHECK(fstat(gone_fd, &st) == 0 && st.st_nlink == 0);
	CHECK(openat(gone_fd, "x", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT);
	CHECK(write(null_fd, "x", 1) == 1 && read(null_fd, buf, 1) == 0);
	CHECK(memcmp(status_head, "Name:\t", 6) == 0);
	memset(buf, 0, sizeof(buf));
	CHECK(read(status_fd, buf, 100) > 0 && strstr(buf, "\nUmask:"));
	CHECK(read(maps_fd, buf, sizeof(buf)) > 0);
	snprintf(buf, sizeof(buf), "%d", null_fd);
	CHECK(faccessat(proc_dir, buf, F_OK, 0) == 0);
}

int main(int argc, char **argv)
{
	static const struct item items[] = {
		ITEM(offsets), ITEM(bytes), ITEM(names),  ITEM(image), ITEM(host), ITEM(listing),
		ITEM(locks),   ITEM(memfd), ITEM(mounts), ITEM(odd),
	};

	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
