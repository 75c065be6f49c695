// SPDX-License-Identifier: Apache-2.0
/* inotify(7): which events come, in which order, with which names. */
#include <sys/inotify.h>
#include <sys/ioctl.h>

#include "tests/syscalls/tmpdir.h"

static int in;
static char buf[8192];
static ssize_t len, off;

static const struct inotify_event *next(void)
{
	if (off >= len) {
		off = 0;
		len = read(in, buf, sizeof(buf));
		if (len <= 0) {
			len = 0;
			return NULL;
		}
	}
	const struct inotify_event *e = (void *)(buf + off);
	off += (ssize_t)(sizeof(*e) + e->len);
	return e;
}

static void expect_at(int line, uint32_t mask, const char *name)
{
	const struct inotify_event *e = next();

	if (!e)
		FAIL("line %d: no event, wanted %x", line, mask);
	if (e->mask != mask || strcmp(e->len ? e->name : "", name) != 0)
		FAIL("line %d: got %x '%s', wanted %x '%s'", line, e->mask, e->len ? e->name : "", mask, name);
}
#define EXPECT(mask, name) expect_at(__LINE__, mask, name)

static int start(const char *path, uint32_t mask)
{
	in = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	CHECK(in >= 0);
	int wd = inotify_add_watch(in, path, mask);
	CHECK(wd == 1);
	return wd;
}

TEST(directory_hears_of_its_children)
{
	enter_tmpdir();
	start(".", IN_ALL_EVENTS & ~IN_ACCESS);
	int fd = open("f", O_CREAT | O_RDWR, 0600);
	CHECK(write(fd, "a", 1) == 1 && write(fd, "b", 1) == 1);
	CHECK(ftruncate(fd, 0) == 0 && fchmod(fd, 0644) == 0);
	close(fd);
	CHECK(mkdir("d", 0700) == 0 && rmdir("d") == 0);
	CHECK(unlink("f") == 0);
	EXPECT(IN_CREATE, "f");
	EXPECT(IN_OPEN, "f");
	EXPECT(IN_MODIFY, "f"); /* three of them, coalesced */
	EXPECT(IN_ATTRIB, "f");
	EXPECT(IN_CLOSE_WRITE, "f");
	EXPECT(IN_CREATE | IN_ISDIR, "d");
	EXPECT(IN_DELETE | IN_ISDIR, "d");
	EXPECT(IN_DELETE, "f");
	CHECK(!next() && errno == EAGAIN);
}

TEST(o_trunc_modifies)
{
	enter_tmpdir();
	close(make_file("f", "text"));
	start("f", IN_MODIFY | IN_OPEN);
	close(open("f", O_WRONLY | O_TRUNC));
	/* In this order since Linux 6.8. */
	EXPECT(IN_OPEN, "");
	EXPECT(IN_MODIFY, "");
}

TEST(rename_halves_share_a_cookie)
{
	enter_tmpdir();
	close(make_file("a", ""));
	start(".", IN_MOVE);
	CHECK(rename("a", "b") == 0);
	const struct inotify_event *e = next();
	CHECK(e && e->mask == IN_MOVED_FROM && !strcmp(e->name, "a") && e->cookie);
	uint32_t cookie = e->cookie;
	e = next();
	CHECK(e && e->mask == IN_MOVED_TO && !strcmp(e->name, "b") && e->cookie == cookie);
}

TEST(self_events)
{
	enter_tmpdir();
	close(make_file("f", ""));
	start("f", IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB);
	CHECK(rename("f", "g") == 0 && link("g", "h") == 0 && unlink("g") == 0 && unlink("h") == 0);
	EXPECT(IN_MOVE_SELF, "");
	EXPECT(IN_ATTRIB, ""); /* link, unlink, unlink: coalesced */
	EXPECT(IN_DELETE_SELF, "");
	EXPECT(IN_IGNORED, "");
	CHECK(!next());
}

TEST(delete_self_waits_for_the_last_close)
{
	enter_tmpdir();
	int fd = make_file("f", "");
	start("f", IN_DELETE_SELF);
	CHECK(unlink("f") == 0);
	CHECK(!next());
	close(fd);
	EXPECT(IN_DELETE_SELF, "");
	EXPECT(IN_IGNORED, "");
}

TEST(oneshot_and_remove)
{
	enter_tmpdir();
	int fd = make_file("f", "");
	int wd = start("f", IN_MODIFY | IN_ONESHOT);
	CHECK(write(fd, "x", 1) == 1 && write(fd, "y", 1) == 1);
	EXPECT(IN_MODIFY, "");
	EXPECT(IN_IGNORED, "");
	CHECK(!next());
	CHECK_ERRNO(inotify_rm_watch(in, wd), EINVAL);
	wd = inotify_add_watch(in, "f", IN_MODIFY);
	CHECK(wd == 2);
	CHECK(inotify_add_watch(in, "f", IN_OPEN | IN_MASK_ADD) == 2);
	CHECK_ERRNO(inotify_add_watch(in, "f", IN_OPEN | IN_MASK_CREATE), EEXIST);
	CHECK(inotify_rm_watch(in, 2) == 0);
	EXPECT(IN_IGNORED, "");
}

TEST(arguments)
{
	int n = -1;
	char small[8];

	enter_tmpdir();
	int fd = make_file("f", "");
	start(".", IN_CREATE);
	CHECK_ERRNO(inotify_init1(1), EINVAL);
	CHECK_ERRNO(inotify_add_watch(in, "f", 0), EINVAL);
	CHECK_ERRNO(inotify_add_watch(in, "f", IN_OPEN | IN_ONLYDIR), ENOTDIR);
	CHECK_ERRNO(inotify_add_watch(in, "nope", IN_OPEN), ENOENT);
	CHECK_ERRNO(inotify_add_watch(fd, "f", IN_OPEN), EINVAL);
	CHECK_ERRNO(inotify_add_watch(99, "f", IN_OPEN), EBADF);
	CHECK_ERRNO(inotify_add_watch(in, "f", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE), EINVAL);
	CHECK(ioctl(in, FIONREAD, &n) == 0 && n == 0);
	close(make_file("g", ""));
	CHECK(ioctl(in, FIONREAD, &n) == 0 && n == 32);
	CHECK_ERRNO(read(in, small, sizeof(small)), EINVAL);
	EXPECT(IN_CREATE, "g");
}

TEST(self_events_of_a_directory_lack_isdir)
{
	enter_tmpdir();
	CHECK(mkdir("d", 0700) == 0);
	start("d", IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB);
	CHECK(rename("d", "e") == 0);
	CHECK(chmod("e", 0711) == 0);
	CHECK(rmdir("e") == 0);
	EXPECT(IN_MOVE_SELF, "");
	EXPECT(IN_ATTRIB | IN_ISDIR, "");
	EXPECT(IN_DELETE_SELF, "");
	EXPECT(IN_IGNORED, "");
}

TEST_MAIN
