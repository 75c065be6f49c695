// SPDX-License-Identifier: Apache-2.0
/* spec: a config.json to start from. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"

static const char *bundle;
static bool rootless_spec;

static const char *const default_caps[] = { "CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE" };

static json_t *caps_array(void)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < ARRAY_SIZE(default_caps); i++)
		json_array_append_new(a, json_string(default_caps[i]));
	return a;
}

static json_t *default_mounts(void)
{
	return json_pack(
		"[{s:s,s:s,s:s}, {s:s,s:s,s:s,s:[s,s,s,s]}, {s:s,s:s,s:s,s:[s,s,s,s,s,s]},"
		" {s:s,s:s,s:s,s:[s,s,s,s,s]}, {s:s,s:s,s:s,s:[s,s,s]}, {s:s,s:s,s:s,s:[s,s,s,s]}]",
		"destination", "/proc", "type", "proc", "source", "proc",
		"destination", "/dev", "type", "tmpfs", "source", "tmpfs", "options", "nosuid",
		"strictatime", "mode=755", "size=65536k",
		"destination", "/dev/pts", "type", "devpts", "source", "devpts", "options", "nosuid",
		"noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5",
		"destination", "/dev/shm", "type", "tmpfs", "source", "shm", "options", "nosuid",
		"noexec", "nodev", "mode=1777", "size=65536k",
		"destination", "/dev/mqueue", "type", "mqueue", "source", "mqueue", "options", "nosuid",
		"noexec", "nodev",
		"destination", "/sys", "type", "sysfs", "source", "sysfs", "options", "nosuid",
		"noexec", "nodev", "ro");
}

json_t *spec_default(bool rootless)
{
	json_t *j = json_pack(
		"{s:s, s:{s:b, s:{s:i,s:i}, s:[s], s:[s,s], s:s, s:{s:o,s:o,s:o}, s:[{s:s,s:i,s:i}], s:b},"
		" s:{s:s, s:b}, s:s, s:o, s:{s:[{s:s},{s:s},{s:s},{s:s},{s:s}]}}",
		"ociVersion", OCI_SPEC_VERSION, "process", "terminal", 1, "user", "uid", 0, "gid", 0,
		"args", "sh", "env",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm",
		"cwd", "/", "capabilities", "bounding", caps_array(), "effective", caps_array(),
		"permitted", caps_array(), "rlimits", "type", "RLIMIT_NOFILE", "hard", 1024, "soft",
		1024, "noNewPrivileges", 1, "root", "path", "rootfs", "readonly", 1, "hostname",
		"holdfast", "mounts", default_mounts(), "linux", "namespaces", "type", "pid", "type",
		"network", "type", "ipc", "type", "uts", "type", "mount");

	if (rootless && j) {
		json_t *l = json_object_get(j, "linux");

		json_object_set_new(l, "uidMappings",
				    json_pack("[{s:i,s:i,s:i}]", "containerID", 0, "hostID",
					      (int)geteuid(), "size", 1));
		json_object_set_new(l, "gidMappings",
				    json_pack("[{s:i,s:i,s:i}]", "containerID", 0, "hostID",
					      (int)getegid(), "size", 1));
	}
	return j;
}

static int spec(int argc, char **argv)
{
	AUTO_FREE char *path = kasprintf("%s/config.json", bundle ? bundle : ".");
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	json_t *j = spec_default(rootless_spec);

	(void)argc;
	(void)argv;
	if (fd < 0 || json_dumpfd(j, fd, JSON_INDENT(4)))
		return cli_fail("cannot write %s: %s", path, errno_text(errno));
	json_decref(j);
	return 0;
}

static const struct opt spec_opts[] = {
	{ "bundle", 'b', OPT_STR, &bundle, "DIR", "where config.json goes (default: .)" },
	{ "rootless", 0, OPT_FLAG, &rootless_spec, NULL, "for use by a plain user" },
	{ 0 },
};

const struct command cmd_spec = {
	.name = "spec",
	.synopsis = "[options]",
	.summary = "write a config.json to start from",
	.details = "  A shell as root on a terminal, root file system ./rootfs, read-only. Never overwrites a\n"
		   "  config.json.",
	.opts = spec_opts,
	.max_args = 0,
	.run = spec,
};
