// SPDX-License-Identifier: Apache-2.0
/* Ways to files that aren't the guest's: devices, handles, magic links, chroot tricks. Root inside. */
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/syscalls/harness.h"

static ino_t inode_of(const char *path)
{
	struct stat st;

	CHECK(stat(path, &st) == 0);
	return st.st_ino;
}

TEST(device_nodes_of_the_host_cannot_be_opened)
{
	static const struct {
		mode_t type;
		unsigned maj, min;
	} devs[] = {
		{ S_IFCHR, 1, 1 },    /* mem */
		{ S_IFCHR, 1, 2 },    /* kmem */
		{ S_IFCHR, 1, 4 },    /* port */
		{ S_IFCHR, 1, 11 },   /* kmsg */
		{ S_IFCHR, 10, 203 }, /* cuse */
		{ S_IFCHR, 10, 229 }, /* fuse */
		{ S_IFCHR, 10, 232 }, /* kvm */
		{ S_IFCHR, 10, 237 }, /* loop-control */
		{ S_IFCHR, 10, 200 }, /* tun */
		{ S_IFCHR, 4, 1 },    /* tty1 */
		{ S_IFBLK, 8, 0 },    /* sda */
		{ S_IFBLK, 254, 0 },  /* vda */
		{ S_IFBLK, 259, 0 },  /* nvme */
		{ S_IFBLK, 7, 0 },    /* loop0 */
		{ S_IFCHR, 4095, 9 },
	};

	for (unsigned i = 0; i < sizeof(devs) / sizeof(devs[0]); i++) {
		unlink("/tmp/node");
		if (mknod("/tmp/node", devs[i].type | 0666, makedev(devs[i].maj, devs[i].min)))
			continue;
		int fd = open("/tmp/node", O_RDWR | O_NONBLOCK);

		/* a /dev/kmsg or tun of the sandbox's own would be fine; memory and disks are not */
		CHECK(fd < 0 || (devs[i].type == S_IFCHR && devs[i].maj == 1 && devs[i].min == 11) ||
		      (devs[i].maj == 10 && devs[i].min == 200));
	}
}

TEST(root_has_nothing_above)
{
	ino_t root = inode_of("/");

	CHECK(inode_of("/..") == root);
	CHECK(inode_of("/../../../../..") == root);
	CHECK(inode_of("/proc/self/root/..") == root);
	CHECK(inode_of("/proc/1/root") == root);
	CHECK(inode_of("/proc/1/root/../..") == root);
	CHECK(inode_of("/proc/1/cwd/../../..") == root);
	CHECK(chdir("/") == 0 && inode_of("../../..") == root);
}

TEST(chroot_tricks_end_at_our_root)
{
	ino_t root = inode_of("/");
	struct stat st;
	int fd;

	mkdir("/tmp/jail", 0755);
	mkdir("/tmp/jail2", 0755);
	fd = open("/", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && chroot("/tmp/jail") == 0);
	CHECK(fchdir(fd) == 0);
	for (int i = 0; i < 64; i++)
		CHECK(chdir("..") == 0);
	CHECK(stat(".", &st) == 0 && st.st_ino == root);
	CHECK(chroot(".") == 0);
	for (int i = 0; i < 64; i++)
		CHECK(chdir("..") == 0);
	CHECK(stat(".", &st) == 0 && st.st_ino == root);
}

TEST(directory_moved_out_from_under_us)
{
	ino_t root = inode_of("/");
	struct stat st;

	mkdir("/tmp/a", 0755);
	mkdir("/tmp/a/b", 0755);
	mkdir("/tmp/a/b/c", 0755);
	CHECK(chdir("/tmp/a/b/c") == 0);
	CHECK(rename("/tmp/a/b/c", "/tmp/c") == 0);
	for (int i = 0; i < 16; i++)
		CHECK(chdir("..") == 0);
	CHECK(stat(".", &st) == 0 && st.st_ino == root);
}

TEST(handles_open_nothing_of_the_host)
{
	struct {
		struct file_handle h;
		unsigned char data[128];
	} fh;
	int dir = open("/", O_RDONLY | O_DIRECTORY);

	for (unsigned type = 0; type < 256; type++) {
		for (unsigned long ino = 1; ino < 4; ino++) {
			memset(&fh, 0, sizeof(fh));
			fh.h.handle_bytes = 8 + (ino & 1) * 8;
			fh.h.handle_type = (int)type;
			memcpy(fh.h.f_handle, &(unsigned long[]){ ino == 3 ? 2 : ino, 0 }, 16);
			CHECK(open_by_handle_at(dir, &fh.h, O_RDONLY) == -1);
		}
	}
}

TEST(running_program_cannot_be_written)
{
	int fd = open("/proc/self/exe", O_WRONLY);

	CHECK(fd == -1);
	fd = open("/proc/self/exe", O_RDONLY);
	CHECK(fd >= 0);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(open(path, O_RDWR) == -1);
	CHECK(write(fd, "x", 1) == -1);
	/* the first process has been started by the sandbox: its program is the image's */
	CHECK(open("/proc/1/exe", O_WRONLY) == -1);
	CHECK(open("/proc/1/exe", O_RDWR | O_TRUNC) == -1);
}

TEST(descriptors_lead_nowhere_else)
{
	char path[64], link[256];

	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, link, sizeof(link) - 1);

		if (n < 0)
			continue;
		CHECK(fd <= 2 || strstr(link, "/proc") || strstr(link, "pipe") || strstr(link, "/tmp"));
		/* through a descriptor of ours to what is above it: it is no directory */
		snprintf(path, sizeof(path), "/proc/self/fd/%d/../../../../etc/shadow", fd);
		int f = open(path, O_RDONLY);

		CHECK(f == -1 || fd > 2);
	}
}

TEST(mounts_of_host_file_systems_are_refused)
{
	static const char *const types[] = { "ext4", "xfs", "btrfs", "nfs", "fuse", "9p", "debugfs",
					     "securityfs", "tracefs", "binfmt_misc", "efivarfs" };

	mkdir("/tmp/m", 0755);
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		CHECK(mount("/dev/vda", "/tmp/m", types[i], 0, NULL) == -1);
}

TEST_MAIN
