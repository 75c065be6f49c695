// SPDX-License-Identifier: Apache-2.0
/* mount, umount2, pivot_root in a mount namespace of the test's own. */
#include <sched.h>
#include <sys/mount.h>

#include "tests/syscalls/tmpdir.h"

static void own_namespace(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		SKIP("no mount namespaces");
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	enter_tmpdir();
}

TEST(mount_hides_and_umount_shows)
{
	struct stat st;

	own_namespace();
	CHECK(mkdir("m", 0755) == 0);
	make_file("m/below", "");
	CHECK(mount("none", "m", "tmpfs", MS_NOSUID, "mode=700") == 0);
	CHECK_ERRNO(access("m/below", F_OK), ENOENT);
	CHECK(stat("m", &st) == 0 && (st.st_mode & 07777) == 0700);
	CHECK_ERRNO(rmdir("m"), EBUSY);
	int fd = open("m", O_RDONLY);
	CHECK_ERRNO(umount2("m", 0), EBUSY);
	close(fd);
	CHECK(umount2("m", 0) == 0 && access("m/below", F_OK) == 0);
	CHECK_ERRNO(umount2("m", 0), EINVAL);
	CHECK_ERRNO(umount2("m", 0x100), EINVAL);
	CHECK_ERRNO(mount("none", "m", "nosuchfs", 0, NULL), ENODEV);
	CHECK_ERRNO(mount("none", "nope", "tmpfs", 0, NULL), ENOENT);
}

TEST(read_only_bind)
{
	own_namespace();
	CHECK(mkdir("src", 0755) == 0 && mkdir("dst", 0755) == 0);
	make_file("src/f", "x");
	CHECK(mount("src", "dst", NULL, MS_BIND, NULL) == 0);
	CHECK(access("dst/f", F_OK) == 0);
	CHECK(mount(NULL, "dst", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
	CHECK_ERRNO(open("dst/f", O_RDWR), EROFS);
	CHECK_ERRNO(open("dst/new", O_CREAT | O_RDWR, 0600), EROFS);
	CHECK_ERRNO(mkdir("dst/d", 0755), EROFS);
	CHECK_ERRNO(unlink("dst/f"), EROFS);
	CHECK_ERRNO(chmod("dst/f", 0600), EROFS);
	CHECK_ERRNO(access("dst/f", W_OK), EROFS);
	CHECK(open("src/f", O_RDWR) >= 0);
	CHECK_ERRNO(rename("src/f", "dst/f2"), EXDEV);
	CHECK_ERRNO(mount("src/f", "dst", NULL, MS_BIND, NULL), ENOTDIR);
}

TEST(move_and_recursive_bind)
{
	own_namespace();
	CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("c", 0755) == 0);
	CHECK(mount("none", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/in", 0755) == 0);
	CHECK(mount("none", "a/in", "tmpfs", 0, NULL) == 0);
	make_file("a/in/f", "");
	CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0);
	CHECK_ERRNO(access("b/in/f", F_OK), ENOENT);
	CHECK(umount2("b", 0) == 0 && mount("a", "b", NULL, MS_BIND | MS_REC, NULL) == 0);
	CHECK(access("b/in/f", F_OK) == 0);
	CHECK(mount("a", "c", NULL, MS_MOVE, NULL) == 0);
	CHECK(access("c/in/f", F_OK) == 0);
	CHECK_ERRNO(access("a/in", F_OK), ENOENT);
	CHECK_ERRNO(mount("c", "c/in", NULL, MS_MOVE, NULL), ELOOP);
	CHECK_ERRNO(umount2("b", 0), EBUSY);
	CHECK(umount2("b", MNT_DETACH) == 0 && access("c/in/f", F_OK) == 0);
}

TEST(pivot_root_onto_itself)
{
	own_namespace();
	CHECK(mkdir("new", 0755) == 0);
	CHECK(mount("none", "new", "tmpfs", 0, NULL) == 0);
	CHECK(mkdir("new/sub", 0755) == 0);
	CHECK_ERRNO(syscall(SYS_pivot_root, "new/sub", "new/sub"), EINVAL); /* no mount there */
	make_file("new/here", "");
	CHECK(chdir("new") == 0);
	CHECK(syscall(SYS_pivot_root, ".", ".") == 0);
	CHECK(umount2(".", MNT_DETACH) == 0);
	CHECK(access("/here", F_OK) == 0);
	CHECK_ERRNO(access("/tmp", F_OK), ENOENT);
}

TEST(nodev_and_noexec)
{
	own_namespace();
	CHECK(mkdir("m", 0755) == 0);
	CHECK(mount("none", "m", "tmpfs", MS_NODEV | MS_NOEXEC, NULL) == 0);
	if (mknod("m/null", S_IFCHR | 0666, 0x103) < 0)
		SKIP("no mknod");
	CHECK_ERRNO(open("m/null", O_RDONLY), EACCES);
	close(make_file("m/x", "#!/bin/sh\n"));
	CHECK(chmod("m/x", 0755) == 0);
	CHECK_ERRNO(execl("m/x", "x", NULL), EACCES);
	CHECK_ERRNO(access("m/x", X_OK), EACCES);
}

TEST_MAIN
