// SPDX-License-Identifier: Apache-2.0
/*
 * Mounts, as far as they need the host: see launch_priv.h. Paths below the rootfs are resolved by the kernel
 * within it (openat2, RESOLVE_IN_ROOT), whatever symbolic links an image has.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/launch_priv.h"
#include "runtime/mount_options.h"

static int open_in(int root, const char *path, uint64_t flags)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* mkdir -p and, with @file, an empty file. */
static void make_missing(int root, const char *dest, bool file)
{
	AUTO_FREE char *path = kstrdup(dest);
	AUTO_CLOSE int at = open_in(root, ".", O_PATH | O_DIRECTORY);
	char *save = NULL;

	for (char *name = strtok_r(path, "/", &save); name && at >= 0;) {
		char *next = strtok_r(NULL, "/", &save);
		size_t done = (size_t)(name - path) + strlen(name);
		AUTO_FREE char *upto = kasprintf("%.*s", (int)done, dest);
		int fd = open_in(root, upto, O_PATH);

		if (fd < 0 && errno == ENOENT) {
			if (!next && file) {
				fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
					    0644);
			} else if (!mkdirat(at, name, 0755)) {
				fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			}
		}
		close(at);
		at = fd;
		name = next;
	}
}

int launch_attach_below(int root, const char *dest, int tree)
{
	AUTO_CLOSE int at = open_in(root, dest, O_PATH);
	struct stat st;

	if (at < 0 && errno == ENOENT && !fstat(tree, &st)) {
		make_missing(root, dest, !S_ISDIR(st.st_mode));
		at = open_in(root, dest, O_PATH);
	}
	if (at < 0 || move_mount(tree, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return -errno;
	return 0;
}

/* Is @dest below an earlier mount, so that its mount point is not in the rootfs? */
static bool covered(const struct spec *s, unsigned index)
{
	const char *dest = s->mounts[index].destination;

	for (unsigned i = 0; i < index; i++) {
		size_t n = strlen(s->mounts[i].destination);

		if (!strncmp(dest, s->mounts[i].destination, n) && dest[n] == '/')
			return true;
	}
	return false;
}

void launch_make_mountpoints(const struct launch *l, const char *rootfs)
{
	const struct spec *s = l->spec;
	AUTO_CLOSE int root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (l->overlay != OVERLAY_NONE || !s->root_readonly || root < 0)
		return;
	for (unsigned i = 0; i < s->nmounts; i++) {
		const struct spec_mount *m = &s->mounts[i];
		AUTO_FREE char *src = m->source && m->source[0] != '/' ?
					      kasprintf("%s/%s", l->bundle, m->source) :
					      kstrdup(m->source ? m->source : "");
		struct stat st;
		bool file = mount_is_bind(m) && !stat(src, &st) && !S_ISDIR(st.st_mode);

		if (!covered(s, i))
			make_missing(root, m->destination, file);
	}
	make_missing(root, "dev", false);
	if (s->process.cwd)
		make_missing(root, s->process.cwd, false);
}

bool launch_add_device(json_t *devices, const char *path, unsigned index)
{
	struct stat st;

	if (stat(path, &st) || (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode)))
		return false;
	json_array_append_new(devices, json_pack("{s:i, s:[i,i,i]}", "mount", (int)index, "device",
						 (int)st.st_mode, (int)major(st.st_rdev),
						 (int)minor(st.st_rdev)));
	return true;
}
