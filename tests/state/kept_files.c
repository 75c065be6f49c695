// SPDX-License-Identifier: Apache-2.0
/* The kept image: files of all kinds, IPC objects with names, a terminal, a bind mount. See kept_guest.c. */
#include <mqueue.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include <asm/ioctls.h>
#include <asm/termbits.h>

#include "tests/state/kept.h"

/* ---- files: of the writable layer, deleted ones, the image's, a tmpfs, memfds, locks, notification ---- */

static int deleted, memfd, from_image, watch, uts;
static struct stat one;

void files_setup(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = 1, .l_len = 2 };

	make("/run/file", "a file\n");
	sys2(SYS_link, "/run/file", "/run/hard");
	sys2(SYS_symlink, "file", "/run/soft");
	sys5(SYS_setxattr, "/run/file", "user.kept", "value", 5, 0);
	deleted = make("/run/deleted", "deleted\n");
	sys3(SYS_fcntl, deleted, F_SETLK, &lock);
	sys2(SYS_flock, deleted, LOCK_EX);
	sys1(SYS_unlink, "/run/deleted");
	memfd = (int)sys2(SYS_memfd_create, "kept", MFD_ALLOW_SEALING);
	sys3(SYS_write, memfd, "memfd\n", 6);
	sys3(SYS_fcntl, memfd, F_ADD_SEALS, F_SEAL_WRITE);
	from_image = (int)sys2(SYS_open, "/image/open", O_RDONLY | O_CLOEXEC);
	make("/image/changed", "and more\n");
	sys1(SYS_unlink, "/image/removed");
	sys5(SYS_mount, "tmpfs", "/mnt", "tmpfs", 0, "size=1m");
	make("/mnt/file", "on a tmpfs\n");
	sys3(SYS_fcntl, sys2(SYS_open, "/mnt", O_RDONLY), F_NOTIFY,
	     DN_DELETE | DN_MULTISHOT);
	sys2(SYS_stat, "/image/one", &one);
	watch = (int)sys1(SYS_inotify_init1, IN_NONBLOCK);
	sys3(SYS_inotify_add_watch, watch, "/mnt", IN_CREATE);
	make("/mnt/noticed", "");
	sys2(SYS_sethostname, "kept-name", 9);
	uts = (int)sys2(SYS_open, "/proc/self/ns/uts", O_RDONLY);
}

void files_check(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	union {
		struct inotify_event e;
		char room[512];
	} got = { 0 };
	char value[16], names[6][65];
	struct stat st = { 0 };

	CHECK(file_holds("/run/soft", "a file\n") && file_holds("/run/hard", "a file\n"));
	CHECK(sys2(SYS_stat, "/run/hard", &st) == 0 && st.st_nlink == 2 &&
	      (st.st_mode & 07777) == 0640);
	CHECK(sys4(SYS_getxattr, "/run/file", "user.kept", value, 16) == 5 &&
	      same(value, "value", 5));
	CHECK(holds(deleted, "deleted\n") && sys2(SYS_fstat, deleted, &st) == 0 &&
	      st.st_nlink == 0);
	CHECK(sys3(SYS_fcntl, deleted, 36 /* F_OFD_GETLK */, &lock) == 0);
	CHECK(lock.l_type == F_WRLCK && lock.l_start == 1 && lock.l_len == 2 &&
	      lock.l_pid == sys0(SYS_getpid));
	CHECK(holds(memfd, "memfd\n") &&
	      sys3(SYS_write, memfd, "x", 1) == -1 /* EPERM */);
	CHECK(holds(from_image, "open\n") && file_holds("/image/open", "open\n"));
	CHECK(file_holds("/image/changed", "changed\nand more\n"));
	CHECK(sys2(SYS_stat, "/image/removed", &st) == -2 &&
	      file_holds("/image/unseen", "unseen\n"));
	CHECK(file_holds("/mnt/file", "on a tmpfs\n"));
	CHECK(sys3(SYS_read, watch, &got, sizeof(got)) >= 16 && got.e.mask == IN_CREATE &&
	      same(got.e.name, "noticed", 8));
	CHECK(sys1(SYS_uname, names) == 0);
	CHECK(same(names[1], "kept-name", 10));
	CHECK(sys2(SYS_stat, "/image/two", &st) == 0 && st.st_ino == one.st_ino &&
	      st.st_nlink == 2);
	CHECK(sys2(SYS_setns, uts, CLONE_NEWUTS) == 0);
}

/* ---- System V and POSIX IPC ---- */

static int shm, sems, msgs, mq;
static volatile char *segment;

void ipc_setup(void)
{
	struct {
		long type;
		char text[8];
	} m = { 5, "message" };
	struct sembuf up = { 1, 4, 0 };
	struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 16 };

	shm = (int)sys3(SYS_shmget, IPC_PRIVATE, 8192, IPC_CREAT | 0600);
	segment = (void *)sys3(SYS_shmat, shm, 0, 0);
	segment[5000] = 55;
	sems = (int)sys3(SYS_semget, 0x6b657074, 2, IPC_CREAT | 0600);
	sys3(SYS_semop, sems, &up, 1);
	msgs = (int)sys2(SYS_msgget, IPC_PRIVATE, IPC_CREAT | 0600);
	sys4(SYS_msgsnd, msgs, &m, 8, 0);
	mq = (int)sys4(SYS_mq_open, "kept", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &attr);
	sys5(SYS_mq_timedsend, mq, "low", 3, 1, 0);
	sys5(SYS_mq_timedsend, mq, "high", 4, 9, 0);
}

void ipc_check(void)
{
	struct {
		long type;
		char text[8];
	} m = { 0 };
	char buf[16];
	unsigned prio = 0;

	CHECK(segment[5000] == 55 && segment[0] == 0);
	CHECK(sys4(SYS_semctl, sems, 0, GETVAL, 0) ==
	      3); /* until the child ends that is to undo it */
	CHECK(sys3(SYS_semget, 0x6b657074, 2, 0) == sems &&
	      sys4(SYS_semctl, sems, 1, GETVAL, 0) == 4);
	CHECK(sys5(SYS_msgrcv, msgs, &m, 8, 5, IPC_NOWAIT) == 8 &&
	      same(m.text, "message", 8));
	CHECK(sys5(SYS_mq_timedreceive, mq, buf, 16, &prio, 0) == 4 && prio == 9 &&
	      same(buf, "high", 4));
	CHECK(sys5(SYS_mq_timedreceive, mq, buf, 16, &prio, 0) == 3 && prio == 1);
}

/* ---- a terminal: half a line is typed, something is printed ---- */

static int master, slave;

void terminal_setup(void)
{
	char path[] = "/dev/pts/?";
	struct termios2 t;
	int zero = 0, n = 0;

	master = (int)sys2(SYS_open, "/dev/ptmx", O_RDWR | O_NOCTTY);
	sys3(SYS_ioctl, master, TIOCSPTLCK, &zero);
	sys3(SYS_ioctl, master, TIOCGPTN, &n);
	path[9] = (char)('0' + n);
	slave = (int)sys2(SYS_open, path, O_RDWR | O_NOCTTY);
	sys3(SYS_ioctl, slave, TCGETS2, &t);
	t.c_lflag &= ~(unsigned)ECHO;
	t.c_cc[VERASE] = '#';
	sys3(SYS_ioctl, slave, TCSETS2, &t);
	sys3(SYS_write, master, "half ax", 7);
	sys3(SYS_write, slave, "printed\n", 8);
}

void terminal_check(void)
{
	char buf[64];
	int n = 0;

	CHECK(sys3(SYS_read, master, buf, sizeof(buf)) == 9 &&
	      same(buf, "printed\r\n", 9));
	CHECK(sys3(SYS_ioctl, slave, FIONREAD, &n) == 0 && n == 0);
	CHECK(sys3(SYS_write, master, "# line\n", 7) == 7);
	CHECK(sys3(SYS_read, slave, buf, sizeof(buf)) == 12 &&
	      same(buf, "half a line\n", 12));
}

/* ---- a bind mount: a file, a deleted one ---- */

static int bound, bound_deleted;

void bind_setup(void)
{
	char buf[8];

	bound = (int)sys2(SYS_open, "/bind/file", O_RDONLY);
	sys3(SYS_read, bound, buf, 4);
	bound_deleted = make("/bind/deleted", "gone\n");
	sys1(SYS_unlink, "/bind/deleted");
}

void bind_check(void)
{
	char buf[16];

	CHECK(sys3(SYS_read, bound, buf, sizeof(buf)) == 2 && same(buf, "d\n", 2));
	CHECK(holds(bound_deleted, "gone\n") && make("/bind/new", "x") >= 0);
}

/* ---- listings: some names before, the others after, each once ---- */

static int image_dir, bind_dir;
static int image_names, bind_names;

static int some_names(int fd, size_t size)
{
	char buf[2048] __attribute__((aligned(8)));
	long n = sys3(SYS_getdents64, fd, buf, size);
	int count = 0;

	for (long at = 0; at < n; count++)
		at += *(unsigned short *)(void *)(buf + at + 16);
	return count;
}

void listing_setup(void)
{
	image_dir = (int)sys2(SYS_open, "/image", O_RDONLY | O_DIRECTORY);
	bind_dir = (int)sys2(SYS_open, "/bind", O_RDONLY | O_DIRECTORY);
	image_names = some_names(image_dir, 100);
	bind_names = some_names(bind_dir, 60);
}

void listing_check(void)
{
	CHECK(image_names >= 3 && image_names + some_names(image_dir, 2048) == 7);
	CHECK(bind_names >= 2 && bind_names + some_names(bind_dir, 2048) == 4);
}
