// SPDX-License-Identifier: Apache-2.0
/* State directories on disk; see statedir.h. */
#include "runtime/statedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/errno_text.h"
#include "runtime/userns.h"

#define FILE_MAX_LEN (16 << 20) /* of ours; state.json holds the annotations of a config.json */
#define ID_MAX_LEN 1024 /* runc's limit; NAME_MAX bites earlier on most file systems */

/* Root of a user namespace owns /run if it is a container's root, and doesn't if it is a user's. runc tells them
 * apart by this. */
static bool is_root_by_name(void)
{
	const char *user = getenv("USER");

	return user && !strcmp(user, "root");
}

const char *statedir_default_root(void)
{
	static char buf[512];
	const char *run = getenv("XDG_RUNTIME_DIR");

	if (!run || !run[0] || (geteuid() == 0 && (userns_is_host() || is_root_by_name())))
		return "/run/holdfast";
	snprintf(buf, sizeof(buf), "%s/holdfast", run);
	return buf;
}

const char *statedir_check_id(const char *id)
{
	size_t n = strlen(id);

	if (n == 0)
		return "container id cannot be empty";
	if (n > ID_MAX_LEN || n > NAME_MAX)
		return "container id is too long";
	if (!strcmp(id, ".") || !strcmp(id, ".."))
		return "invalid container id format";
	for (; *id; id++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.", *id))
			return "invalid container id format";
	return NULL;
}

static struct statedir *alloc_dir(const char *root, const char *id)
{
	struct statedir *s = kzalloc(sizeof(*s));

	s->root = kstrdup(root);
	s->id = kstrdup(id);
	s->path = kasprintf("%s/%s", root, id);
	s->fd = -1;
	return s;
}

/* mkdir -p with mode 0700 for what is missing. */
static int make_parents(const char *path)
{
	AUTO_FREE char *p = kstrdup(path);

	for (char *s = p + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = 0;
		if (mkdir(p, 0711) && errno != EEXIST)
			return -errno;
		*s = '/';
	}
	return mkdir(p, 0711) && errno != EEXIST ? -errno : 0;
}

struct statedir *statedir_create(const char *root, const char *id, char **ret_why)
{
	AUTO(statedir_close) struct statedir *s = alloc_dir(root, id);
	const char *bad = statedir_check_id(id);
	int r;

	if (bad) {
		*ret_why = kasprintf("%s: '%s'", bad, id);
		return NULL;
	}
	r = make_parents(root);
	if (r < 0) {
		*ret_why = kasprintf("cannot create state directory %s: %s", root, errno_text(-r));
		return NULL;
	}
	if (mkdir(s->path, 0700)) {
		*ret_why = errno == EEXIST ?
				   kasprintf("container with given ID already exists: %s", id) :
				   kasprintf("cannot create %s: %s", s->path, errno_text(errno));
		return NULL;
	}
	s->fd = open(s->path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (s->fd < 0) {
		*ret_why = kasprintf("cannot open %s: %s", s->path, errno_text(errno));
		(void)rmdir(s->path); /* best effort: the message above is what counts */
		return NULL;
	}
	return steal_ptr(&s);
}

struct statedir *statedir_open(const char *root, const char *id, char **ret_why)
{
	AUTO(statedir_close) struct statedir *s = alloc_dir(root, id);
	const char *bad = statedir_check_id(id);

	if (bad) {
		*ret_why = kasprintf("%s: '%s'", bad, id);
		return NULL;
	}
	s->fd = open(s->path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (s->fd < 0) {
		*ret_why = errno == ENOENT ?
				   kasprintf("container does not exist: %s", id) :
				   kasprintf("cannot open %s: %s", s->path, errno_text(errno));
		return NULL;
	}
	return steal_ptr(&s);
}

void statedir_close(struct statedir *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->root);
	free(s->id);
	free(s->path);
	free(s);
}

/* Everything below @name, without following links; what can't be removed shows when its directory can't. */
static void remove_below(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d && fd >= 0)
		close(fd);
	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    unlinkat(fd, e->d_name, 0) && errno == EISDIR)
			remove_below(fd, e->d_name);
	if (d)
		closedir(d);
	(void)unlinkat(dirfd, name, AT_REMOVEDIR);
}

int statedir_remove(struct statedir *s)
{
	DIR *d;
	struct dirent *e;
	int fd = openat(s->fd, ".", O_DIRECTORY | O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    unlinkat(fd, e->d_name, 0) && errno == EISDIR)
			remove_below(fd, e->d_name); /* images; rmdir below tells if something stays */
	closedir(d);
	return rmdir(s->path) && errno != ENOENT ? -errno : 0;
}

int statedir_save(struct statedir *s, const char *file, json_t *json)
{
	AUTO_FREE char *tmp = kasprintf(".%s.new", file);
	AUTO_CLOSE int fd = openat(s->fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	AUTO_FREE char *text = NULL;

	if (fd < 0)
		return -errno;
	errno = 0;
	text = json_dumps(json, JSON_COMPACT);
	if (!text || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
		int r = errno ? -errno : -EIO;

		(void)unlinkat(s->fd, tmp, 0); /* the write error is what is reported */
		return r;
	}
	return renameat(s->fd, tmp, s->fd, file) ? -errno : 0;
}

/* Not json_loadfd(), which asks the host for one byte at a time. */
json_t *statedir_load(struct statedir *s, const char *file)
{
	AUTO_CLOSE int fd = openat(s->fd, file, O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) || st.st_size > FILE_MAX_LEN)
		return NULL;
	text = kzalloc((size_t)st.st_size + 1);
	n = read(fd, text, (size_t)st.st_size); /* files are replaced, never written to: all or an error */
	return n == st.st_size ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int statedir_each(const char *root, void (*fn)(const char *root, const char *id, void *arg),
		  void *arg)
{
	DIR *d = opendir(root);
	struct dirent *e;
	char **names = NULL;
	size_t n = 0;

	if (!d)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(d)))
		if (!statedir_check_id(e->d_name)) {
			names = krealloc_array(names, n + 1, sizeof(*names));
			names[n++] = kstrdup(e->d_name);
		}
	closedir(d);
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0; i < n; i++) {
		fn(root, names[i], arg);
		free(names[i]);
	}
	free(names);
	return 0;
}
