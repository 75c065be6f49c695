// SPDX-License-Identifier: Apache-2.0
/* Making images and putting them in place; see image_dir.h. */
#include "runtime/image_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/errno_text.h"
#include "sentry/kernel/kernel.h"

#define RENAME_EXCHANGE_G 2u
#define DRAFT_DIGITS 16 /* of a draft's name: .NAME.DIGITS.new */

static const char *const names[] = { "state", "pages" };

/* The directory that holds the last component of @path, and that component. -errno. */
static int open_parent(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *dir = NULL;
	int fd;

	*ret_name = slash ? slash + 1 : path;
	dir = !slash ? kstrdup(".") : slash == path ? kstrdup("/") : kstrndup(path, (size_t)(slash - path));
	fd = open(dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Nothing but what an image consists of: so nobody's directory is replaced by mistake. */
static bool replaceable(int parentfd, const char *name)
{
	int fd = openat(parentfd, name, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool ok = true;
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return errno == ENOENT;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return false;
	}
	while (ok && (e = readdir(d)))
		ok = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		     !strcmp(e->d_name, names[0]) || !strcmp(e->d_name, names[1]);
	closedir(d);
	return ok;
}

static void remove_image(int parentfd, const char *name)
{
	AUTO_CLOSE int fd = openat(parentfd, name, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(names); i++)
		(void)unlinkat(fd, names[i], 0); /* best effort: it is in nobody's way */
	(void)unlinkat(parentfd, name, AT_REMOVEDIR);
}

/* Drafts of savers that were killed. A living one holds a lock on its own. */
static void sweep(int parentfd, const char *name)
{
	AUTO_FREE char *prefix = kasprintf(".%.200s.", name);
	int fd = openat(parentfd, ".", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d && fd >= 0)
		close(fd);
	while (d && (e = readdir(d))) {
		size_t len = strlen(e->d_name), n = strlen(prefix);

		if (len != n + DRAFT_DIGITS + 4 || strncmp(e->d_name, prefix, n) != 0 ||
		    strcmp(e->d_name + len - 4, ".new") != 0)
			continue;
		AUTO_CLOSE int draft = openat(parentfd, e->d_name,
					      O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (draft >= 0 && flock(draft, LOCK_EX | LOCK_NB) == 0)
			remove_image(parentfd, e->d_name);
	}
	if (d)
		closedir(d);
}

static int create(struct image_draft *d, const char *name)
{
	uint8_t id[IMAGE_ID_LEN];
	char hex[2 * IMAGE_ID_LEN + 1];
	int *fds[] = { &d->state, &d->pages };

	sweep(d->parentfd, name);
	kernel_random(id, sizeof(id));
	image_id_hex(id, hex);
	d->tmp = kasprintf(".%.200s.%.*s.new", name, DRAFT_DIGITS, hex);
	if (mkdirat(d->parentfd, d->tmp, 0700))
		return -errno;
	d->dirfd = openat(d->parentfd, d->tmp, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (d->dirfd < 0 || flock(d->dirfd, LOCK_EX | LOCK_NB))
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		*fds[i] = openat(d->dirfd, names[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (*fds[i] < 0)
			return -errno;
	}
	return 0;
}

int image_draft_open(struct image_draft *d, const char *path, char **ret_why)
{
	const char *name;
	int r = 0;

	*d = (struct image_draft){ .parentfd = -1, .dirfd = -1, .state = -1, .pages = -1 };
	d->path = kstrdup(path);
	for (size_t n = strlen(d->path); n > 1 && d->path[n - 1] == '/'; n--)
		d->path[n - 1] = 0;
	d->parentfd = open_parent(d->path, &name);
	if (d->parentfd < 0)
		r = d->parentfd;
	else if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		r = -EINVAL;
	else if (!replaceable(d->parentfd, name))
		r = -EEXIST;
	else
		r = create(d, name);
	if (r == 0)
		return 0;
	*ret_why = r == -EEXIST ? kasprintf("%s exists and is not an image", path) :
				  kasprintf("cannot make an image at %s: %s", path, errno_text(-r));
	image_draft_close(d);
	return -1;
}

static int sync_all(const struct image_draft *d)
{
	return fsync(d->pages) || fsync(d->state) || fsync(d->dirfd) ? -errno : 0;
}

/* Puts the draft in place of what is there, which then has the draft's name. */
static int put_in_place(struct image_draft *d, const char *name)
{
	if (renameat(d->parentfd, d->tmp, d->parentfd, name) == 0) {
		free(steal_ptr(&d->tmp)); /* nothing was there, or an empty directory */
		return 0;
	}
	if (errno != EEXIST && errno != ENOTEMPTY)
		return -errno;
	if (syscall(SYS_renameat2, d->parentfd, d->tmp, d->parentfd, name, RENAME_EXCHANGE_G))
		return -errno;
	return 0; /* image_draft_close() removes the old one */
}

int image_draft_publish(struct image_draft *d, char **ret_why)
{
	const char *slash = strrchr(d->path, '/');
	int r = sync_all(d);

	if (r == 0)
		r = put_in_place(d, slash ? slash + 1 : d->path);
	if (r == 0)
		r = fsync(d->parentfd) ? -errno : 0;
	if (r == 0)
		return 0;
	*ret_why = kasprintf("cannot write the image %s: %s", d->path, errno_text(-r));
	return -1;
}

void image_draft_close(struct image_draft *d)
{
	if (d->tmp && d->parentfd >= 0)
		remove_image(d->parentfd, d->tmp);
	if (d->state >= 0)
		close(d->state);
	if (d->pages >= 0)
		close(d->pages);
	if (d->dirfd >= 0)
		close(d->dirfd);
	if (d->parentfd >= 0)
		close(d->parentfd);
	free(d->path);
	free(d->tmp);
	*d = (struct image_draft){ .parentfd = -1, .dirfd = -1, .state = -1, .pages = -1 };
}
