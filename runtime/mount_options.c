// SPDX-License-Identifier: Apache-2.0
/*
 * Mount options; see mount_options.h. The set is runc's. Recursive attributes (rro, rnosuid ...) are the same
 * as the plain ones here: a bind mount with all that is mounted below it is one mount of the guest. For
 * the same reason a plain "ro" covers those mounts, too, where Linux would leave them writable.
 */
#include "runtime/mount_options.h"

#include <linux/mount.h>
#include <string.h>
#include <sys/mount.h>

#include "base/alloc.h"

#ifndef MS_NOSYMFOLLOW
# define MS_NOSYMFOLLOW 256
#endif

static const struct {
	const char *name;
	unsigned long set, clear;
	bool recursive; /* "r" in front is known, too */
} flag_names[] = {
	{ "acl", MS_POSIXACL, 0, false },
	{ "async", 0, MS_SYNCHRONOUS, false },
	{ "atime", 0, MS_NOATIME, true },
	{ "bind", MS_BIND, 0, false },
	{ "defaults", 0, 0, false },
	{ "dev", 0, MS_NODEV, true },
	{ "diratime", 0, MS_NODIRATIME, true },
	{ "dirsync", MS_DIRSYNC, 0, false },
	{ "exec", 0, MS_NOEXEC, true },
	{ "iversion", 0, 0, false },
	{ "lazytime", MS_LAZYTIME, 0, false },
	{ "loud", 0, MS_SILENT, false },
	{ "mand", 0, 0, false },
	{ "noacl", 0, MS_POSIXACL, false },
	{ "noatime", MS_NOATIME, 0, true },
	{ "nodev", MS_NODEV, 0, true },
	{ "nodiratime", MS_NODIRATIME, 0, true },
	{ "noexec", MS_NOEXEC, 0, true },
	{ "noiversion", 0, 0, false },
	{ "nolazytime", 0, MS_LAZYTIME, false },
	{ "nomand", 0, 0, false },
	{ "norelatime", 0, MS_RELATIME, true },
	{ "nostrictatime", 0, MS_STRICTATIME, true },
	{ "nosuid", MS_NOSUID, 0, true },
	{ "nosymfollow", MS_NOSYMFOLLOW, 0, true },
	{ "rbind", MS_BIND | MS_REC, 0, false },
	{ "relatime", MS_RELATIME, 0, true },
	{ "remount", 0, 0, false },
	{ "ro", MS_RDONLY, 0, true },
	{ "rw", 0, MS_RDONLY, true },
	{ "silent", MS_SILENT, 0, false },
	{ "strictatime", MS_STRICTATIME, 0, true },
	{ "suid", 0, MS_NOSUID, true },
	{ "symfollow", 0, MS_NOSYMFOLLOW, true },
	{ "sync", MS_SYNCHRONOUS, 0, false },
	/* labels of SELinux, which guests haven't */
	{ "z", 0, 0, false },
	{ "Z", 0, 0, false },
};

static const struct {
	const char *name;
	unsigned long flags;
} propagations[] = {
	{ "private", MS_PRIVATE },
	{ "rprivate", MS_PRIVATE | MS_REC },
	{ "rshared", MS_SHARED | MS_REC },
	{ "rslave", MS_SLAVE | MS_REC },
	{ "runbindable", MS_UNBINDABLE | MS_REC },
	{ "shared", MS_SHARED },
	{ "slave", MS_SLAVE },
	{ "unbindable", MS_UNBINDABLE },
};

static bool apply_flag(struct mount_options *o, const char *opt)
{
	for (unsigned k = 0; k < ARRAY_SIZE(flag_names); k++) {
		bool r = flag_names[k].recursive && opt[0] == 'r' && !strcmp(opt + 1, flag_names[k].name);

		if (r || !strcmp(opt, flag_names[k].name)) {
			o->flags = (o->flags | flag_names[k].set) & ~flag_names[k].clear;
			return true;
		}
	}
	return false;
}

static bool apply_propagation(struct mount_options *o, const char *opt)
{
	for (unsigned k = 0; k < ARRAY_SIZE(propagations); k++)
		if (!strcmp(opt, propagations[k].name)) {
			o->propagation = propagations[k].flags;
			return true;
		}
	return false;
}

void mount_options_parse(const struct spec_mount *m, struct mount_options *ret)
{
	*ret = (struct mount_options){ .data = kstrdup("") };
	for (unsigned i = 0; i < m->noptions; i++) {
		const char *opt = m->options[i];
		char *more;

		if (!strcmp(opt, "tmpcopyup")) {
			ret->copy_up = true;
			continue;
		}
		if (apply_flag(ret, opt) || apply_propagation(ret, opt))
			continue;
		more = kasprintf("%s%s%s", ret->data, ret->data[0] ? "," : "", opt);
		free(ret->data);
		ret->data = more;
	}
}

void mount_options_fini(struct mount_options *o)
{
	free(o->data);
}

static bool has_option(const struct spec_mount *m, const char *opt)
{
	for (unsigned i = 0; i < m->noptions; i++)
		if (!strcmp(m->options[i], opt))
			return true;
	return false;
}

bool mount_is_bind(const struct spec_mount *m)
{
	return (m->type && !strcmp(m->type, "bind")) || has_option(m, "bind") ||
	       has_option(m, "rbind");
}

const char *mount_options_refused(const struct spec_mount *m)
{
	static const char *const refused[] = { "idmap", "ridmap" };

	for (unsigned i = 0; i < ARRAY_SIZE(refused); i++)
		if (has_option(m, refused[i]))
			return refused[i];
	return NULL;
}

const char *mount_options_name(unsigned i)
{
	static char recursive[32];

	if (i < ARRAY_SIZE(flag_names))
		return flag_names[i].name;
	i -= (unsigned)ARRAY_SIZE(flag_names);
	if (i < ARRAY_SIZE(propagations))
		return propagations[i].name;
	i -= (unsigned)ARRAY_SIZE(propagations);
	if (i == 0)
		return "tmpcopyup";
	for (unsigned k = 0; k < ARRAY_SIZE(flag_names); k++)
		if (flag_names[k].recursive && --i == 0) {
			recursive[0] = 'r';
			strncpy(recursive + 1, flag_names[k].name, sizeof(recursive) - 2);
			return recursive;
		}
	return NULL;
}
