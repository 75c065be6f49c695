// SPDX-License-Identifier: Apache-2.0
/* setuid and friends, capabilities. Needs root. */
#include "harness.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

static void get_caps(uint64_t *eff, uint64_t *perm)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	CHECK(syscall(SYS_capget, &h, d) == 0);
	*eff = d[0].effective | (uint64_t)d[1].effective << 32;
	*perm = d[0].permitted | (uint64_t)d[1].permitted << 32;
}

TEST(setresuid_drops_capabilities)
{
	uint64_t eff, perm;
	uid_t r, e, s;

	CHECK(setresuid(1000, 1000, 1000) == 0);
	CHECK(getresuid(&r, &e, &s) == 0 && r == 1000 && e == 1000 && s == 1000);
	get_caps(&eff, &perm);
	CHECK(eff == 0 && perm == 0);
	CHECK_ERRNO(setuid(0), EPERM);
	CHECK_ERRNO(setresuid(0, (uid_t)-1, (uid_t)-1), EPERM);
}

TEST(seteuid_clears_and_restores_effective)
{
	uint64_t eff, perm, perm0, eff0;

	get_caps(&eff0, &perm0);
	CHECK(seteuid(1000) == 0);
	get_caps(&eff, &perm);
	CHECK(eff == 0 && perm == perm0);
	CHECK(seteuid(0) == 0);
	get_caps(&eff, &perm);
	CHECK(eff == perm0);
}

TEST(keepcaps_keeps_permitted)
{
	uint64_t eff, perm, eff0, perm0;

	get_caps(&eff0, &perm0);
	CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
	CHECK(setresuid(1000, 1000, 1000) == 0);
	get_caps(&eff, &perm);
	CHECK(eff == 0 && perm == perm0);
}

TEST(groups)
{
	gid_t in[3] = { 30, 10, 20 }, out[8];

	CHECK(setgroups(3, in) == 0);
	CHECK(getgroups(0, NULL) == 3);
	CHECK_ERRNO(getgroups(2, out), EINVAL);
	CHECK(getgroups(8, out) == 3);
	CHECK(out[0] == 10 && out[1] == 20 && out[2] == 30);
	CHECK(setresuid(1000, 1000, 1000) == 0);
	CHECK_ERRNO(setgroups(0, NULL), EPERM);
}

TEST(setfsuid_returns_the_old_one)
{
	CHECK(setfsuid(1000) == 0);
	CHECK(setfsuid((uid_t)-1) == 1000);
}

TEST(capset_can_only_shrink)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { 0 };

	d[0].permitted = d[0].effective = 1u << CAP_CHOWN;
	CHECK(syscall(SYS_capset, &h, d) == 0);
	d[0].permitted |= 1u << CAP_KILL;
	CHECK_ERRNO(syscall(SYS_capset, &h, d), EPERM);
	h.version = 0;
	CHECK_ERRNO(syscall(SYS_capset, &h, d), EINVAL);
	CHECK(h.version == _LINUX_CAPABILITY_VERSION_3);
}

TEST(ambient_needs_permitted_and_inheritable)
{
	CHECK_ERRNO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0), EPERM);
	CHECK_ERRNO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 100, 0, 0), EINVAL);
	CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0) == 0);
	CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0);
}

TEST(bounding_set)
{
	CHECK(prctl(PR_CAPBSET_READ, CAP_CHOWN) == 1);
	CHECK(prctl(PR_CAPBSET_DROP, CAP_CHOWN) == 0);
	CHECK(prctl(PR_CAPBSET_READ, CAP_CHOWN) == 0);
	CHECK_ERRNO(prctl(PR_CAPBSET_READ, 1000), EINVAL);
}

TEST_MAIN
