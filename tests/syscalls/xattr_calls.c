// SPDX-License-Identifier: Apache-2.0
/* Extended attributes: name spaces, sizes, permissions. */
#include <sys/xattr.h>

#include "tests/syscalls/tmpdir.h"

static void need_xattrs(void)
{
	make_file("probe", "");
	if (setxattr("probe", "user.a", "1", 1, 0) < 0 && errno == EOPNOTSUPP)
		SKIP("no user xattrs on this file system");
}

TEST(set_get_list_remove)
{
	char buf[256];

	enter_tmpdir();
	need_xattrs();
	make_file("f", "");
	CHECK(setxattr("f", "user.a", "value", 5, XATTR_CREATE) == 0);
	CHECK_ERRNO(setxattr("f", "user.a", "v", 1, XATTR_CREATE), EEXIST);
	CHECK_ERRNO(setxattr("f", "user.b", "v", 1, XATTR_REPLACE), ENODATA);
	CHECK_ERRNO(setxattr("f", "user.a", "v", 1, 4), EINVAL);
	CHECK(getxattr("f", "user.a", NULL, 0) == 5);
	CHECK(getxattr("f", "user.a", buf, sizeof(buf)) == 5 && !memcmp(buf, "value", 5));
	CHECK_ERRNO(getxattr("f", "user.a", buf, 4), ERANGE);
	CHECK_ERRNO(getxattr("f", "user.b", buf, 4), ENODATA);
	ssize_t n = listxattr("f", buf, sizeof(buf));
	CHECK(n >= 7 && memmem(buf, (size_t)n, "user.a", 7));
	CHECK(removexattr("f", "user.a") == 0);
	CHECK_ERRNO(removexattr("f", "user.a"), ENODATA);
}

TEST(names_and_sizes)
{
	static char big[65537];
	char name[300] = "user.";

	enter_tmpdir();
	need_xattrs();
	make_file("f", "");
	CHECK_ERRNO(setxattr("f", "", "v", 1, 0), ERANGE);
	memset(name + 5, 'x', 251);
	CHECK_ERRNO(setxattr("f", name, "v", 1, 0), ERANGE);
	CHECK_ERRNO(setxattr("f", "user.a", big, sizeof(big), 0), E2BIG);
	CHECK_ERRNO(setxattr("f", "nosuch.a", "v", 1, 0), EOPNOTSUPP);
	CHECK(symlink("f", "l") == 0);
	CHECK_ERRNO(lsetxattr("l", "user.a", "v", 1, 0), EPERM);
	CHECK(setxattr("l", "user.a", "v", 1, 0) == 0 && getxattr("f", "user.a", NULL, 0) == 1);
}

TEST(who_may)
{
	enter_tmpdir();
	need_xattrs();
	make_file("f", "");
	CHECK(chmod(".", 0755) == 0);
	CHECK(setgid(1000) == 0 && setuid(1000) == 0);
	CHECK_ERRNO(setxattr("f", "user.a", "v", 1, 0), EACCES);
	CHECK_ERRNO(setxattr("f", "trusted.a", "v", 1, 0), EPERM);
	CHECK_ERRNO(getxattr("f", "trusted.a", NULL, 0), ENODATA);
}

TEST_MAIN
