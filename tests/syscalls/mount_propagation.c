// SPDX-License-Identifier: Apache-2.0
/* Shared, slave, private and unbindable mounts (man 7 mount_namespaces). */
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "tests/syscalls/harness.h"

/* In a mount namespace of our own: a private tmpfs on /tmp/prop with directories a, b, m. */
static void scene(void)
{
	if (geteuid() != 0)
		SKIP("needs root");
	CHECK(unshare(CLONE_NEWNS) == 0);
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	CHECK(mkdir("/tmp/prop", 0755) == 0 || errno == EEXIST);
	CHECK(mount("t", "/tmp/prop", "tmpfs", 0, NULL) == 0);
	CHECK(chdir("/tmp/prop") == 0);
	CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
	CHECK(mount("a", "a", "tmpfs", 0, NULL) == 0);
	CHECK(mkdir("a/m", 0755) == 0 && mkdir("a/d", 0755) == 0 && mkdir("a/d/m", 0755) == 0);
}

static bool exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

static void mount_with_file(const char *dir, const char *file)
{
	int fd;

	CHECK(mount("x", dir, "tmpfs", 0, NULL) == 0);
	fd = open(file, O_CREAT | O_WRONLY, 0644);
	CHECK(fd >= 0);
	close(fd);
}

TEST(peers_get_mounts_and_unmounts)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0);
	mount_with_file("a/m", "a/m/f");
	CHECK(exists("b/m/f"));
	CHECK(umount("b/m") == 0);
	CHECK(!exists("a/m/f") && !exists("b/m/f"));
	mount_with_file("b/m", "b/m/f");
	CHECK(exists("a/m/f"));
	CHECK(umount2("a/m", MNT_DETACH) == 0);
	CHECK(!exists("b/m/f"));
}

TEST(slaves_get_but_dont_give)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0);
	CHECK(mount(NULL, "b", NULL, MS_SLAVE, NULL) == 0);
	mount_with_file("a/m", "a/m/f");
	CHECK(exists("b/m/f"));
	CHECK(umount("a/m") == 0);
	CHECK(!exists("b/m/f"));
	mount_with_file("b/m", "b/m/f");
	CHECK(!exists("a/m/f"));
}

TEST(private_ones_dont_hear_of_it)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0);
	CHECK(mount(NULL, "b", NULL, MS_PRIVATE, NULL) == 0);
	mount_with_file("a/m", "a/m/f");
	CHECK(!exists("b/m/f"));
}

TEST(a_peer_of_a_part_sees_that_part)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(mount("a/d", "b", NULL, MS_BIND, NULL) == 0);
	mount_with_file("a/d/m", "a/d/m/f");
	CHECK(exists("b/m/f"));
	mount_with_file("a/m", "a/m/g"); /* outside of it */
	CHECK(!exists("b/m/g"));
}

TEST(what_is_mounted_on_shared_is_shared)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0);
	mount_with_file("a/m", "a/m/f");
	CHECK(mkdir("a/m/n", 0755) == 0);
	mount_with_file("b/m/n", "b/m/n/g");
	CHECK(exists("a/m/n/g"));
}

TEST(peers_in_another_namespace)
{
	int to[2], from[2], status;
	char c = 0;
	pid_t pid;

	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(pipe(to) == 0 && pipe(from) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		bool seen;

		if (unshare(CLONE_NEWNS) || write(from[1], "r", 1) != 1 || read(to[0], &c, 1) != 1)
			_exit(2);
		seen = exists("a/m/f");
		_exit(seen ? 0 : 1);
	}
	CHECK(read(from[0], &c, 1) == 1);
	mount_with_file("a/m", "a/m/f");
	CHECK(write(to[1], "g", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(unbindable_ones_cant_be_bound)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_UNBINDABLE, NULL) == 0);
	CHECK(mount("a", "b", NULL, MS_BIND, NULL) == -1 && errno == EINVAL);
}

TEST(the_root_bound_below_itself)
{
	scene();
	CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
	CHECK(mkdir("a/t", 0755) == 0);
	CHECK(mount("a", "a/t", NULL, MS_BIND, NULL) == 0);
	mount_with_file("a/m", "a/m/f");
	CHECK(exists("a/t/m/f"));
}

TEST_MAIN
