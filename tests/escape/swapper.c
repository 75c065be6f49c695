// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's half of tests/runtime/guest_files.py, which checks from outside. usage: swapper DIR SECONDS.
 * In DIR, a bind mount of a writable host directory, one process swaps a directory, a symbolic link
 * and a file for one another, and others work through that name. Without arguments (run by tests/run.py)
 * it tests itself on a directory of its own.
 */
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include "tests/syscalls/harness.h"

#define AWAY "../../../../../../../../../../../../../outside"

static void swap_names(void)
{
	for (;;) {
		(void)renameat2(AT_FDCWD, "d", AT_FDCWD, "link", 2 /* RENAME_EXCHANGE */);
		(void)!symlink("/etc", "tmplink");
		(void)rename("tmplink", "link2");
		(void)rename("link", "link3");
		(void)!symlink(AWAY, "link");
		(void)rename("link3", "link4");
		(void)mkdir("d", 0755);
		(void)!link("d/file", "hard");
		(void)unlink("hard");
		(void)unlink("link4");
	}
}

/* Everything by the names that change underway. */
static void work(unsigned n)
{
	static const char *const names[] = { "d", "link", "link2" };
	char path[256], other[256];

	for (;;) {
		const char *name = names[n++ % 3];
		int fd;

		snprintf(path, sizeof(path), "%s/escaped-%u", name, n % 4);
		snprintf(other, sizeof(other), "%s/escaped-renamed-%u", name, n % 4);
		fd = open(path, O_RDWR | O_CREAT, 0666);
		if (fd >= 0) {
			(void)!write(fd, "x", 1);
			close(fd);
		}
		(void)mkdir(other, 0777);
		(void)rename(path, other);
		(void)!symlink("x", path);
		(void)unlink(path);
		(void)rmdir(other);
		(void)chmod(name, 0700 + n % 8);
		(void)!truncate(path, 3);
		(void)!lchown(name, n % 100, 0);
		(void)!chown(path, 0, n % 100);
		(void)setxattr(name, "user.x", "1", 1, 0);
		(void)mknod(path, S_IFIFO | 0600, 0);
		(void)utimensat(AT_FDCWD, path, NULL, 0);
	}
}

static void race(const char *dir, unsigned seconds)
{
	pid_t pids[4];

	CHECK(chdir(dir) == 0);
	(void)mkdir("d", 0755);
	(void)!symlink(AWAY, "link");
	for (unsigned i = 0; i < 4; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			if (i == 0)
				swap_names();
			work(i);
		}
	}
	sleep(seconds);
	for (unsigned i = 0; i < 4; i++) {
		kill(pids[i], SIGKILL);
		CHECK(waitpid(pids[i], NULL, 0) == pids[i]);
	}
}

TEST(swapped_names_on_our_own_files)
{
	(void)mkdir("/tmp/swap", 0755);
	race("/tmp/swap", 1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return run_tests(argc, argv);
	race(argv[1], (unsigned)strtoul(argv[2], NULL, 10));
	return 0;
}
