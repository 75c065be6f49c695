// SPDX-License-Identifier: Apache-2.0
/* See image_store.h. */
#include "runtime/image_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/errno_text.h"

#define LINEAGE "lineage.json"
/* Image and parents that a new image may build on; with more it is written whole, so that old ones can go. */
#define CHAIN_MAX 32

int store_lock(struct statedir *s)
{
	while (flock(s->fd, LOCK_EX))
		if (errno != EINTR)
			return -errno;
	return 0;
}

void store_unlock(struct statedir *s)
{
	(void)flock(s->fd, LOCK_UN); /* processes that we have left hold copies of the descriptor: said aloud */
}

/* ---- lineage ---- */

json_t *store_lineage(struct statedir *s)
{
	json_t *j = statedir_load(s, LINEAGE);

	if (json_is_object(j))
		return j;
	json_decref(j);
	return json_object();
}

int store_set_lineage(struct statedir *s, json_t *lineage, char **ret_why)
{
	int r = statedir_save(s, LINEAGE, lineage);

	if (!r) {
		AUTO_CLOSE int fd = openat(s->fd, LINEAGE, O_RDONLY | O_CLOEXEC);

		r = fd < 0 || fsync(fd) || fsync(s->fd) ? -errno : 0;
	}
	if (r)
		*ret_why = kasprintf("cannot write %s/%s: %s", s->path, LINEAGE, errno_text(-r));
	return r ? -1 : 0;
}

bool store_suspended(struct statedir *s)
{
	json_t *lineage = store_lineage(s), *end = statedir_load(s, "exit.json");
	bool ret = json_is_true(json_object_get(lineage, "suspended")) &&
		   !json_is_integer(json_object_get(end, "status"));

	json_decref(lineage);
	json_decref(end);
	return ret;
}

void store_came_from(struct statedir *s, const char *id, const char *number)
{
	json_t *lineage = store_lineage(s);

	json_object_set_new(lineage, "from", json_pack("{s:s, s:s*, s:I}", "id", id, "image", number, "time",
						       (json_int_t)time(NULL)));
	(void)statedir_save(s, LINEAGE, lineage); /* a tree without this branch is no reason to end it */
	json_decref(lineage);
}

/* ---- finding ---- */

char *store_path(const struct statedir *s, const char *number)
{
	return kasprintf("%s/images/%s", s->path, number);
}

static bool is_number(const char *name)
{
	uint8_t id[IMAGE_ID_LEN];

	return image_id_parse(name, id);
}

const char *store_check_name(const char *name)
{
	const char *bad = statedir_check_id(name);

	if (bad)
		return "a snapshot's name has letters, digits and _+-. only";
	if (name[0] == '.')
		return "a snapshot's name can't begin with a dot";
	if (is_number(name))
		return "a snapshot's name can't look like an image's number";
	return NULL;
}

/* What link images/@name leads to: a number in @buf. */
static bool read_name(const struct statedir *s, const char *name, char buf[STORE_NUMBER_LEN + 1])
{
	AUTO_FREE char *path = store_path(s, name);
	ssize_t n = readlink(path, buf, STORE_NUMBER_LEN + 1);

	if (n != STORE_NUMBER_LEN)
		return false;
	buf[n] = 0;
	return is_number(buf);
}

/* Each entry of images/; @fn says whether to go on. */
static void each_entry(const struct statedir *s, bool (*fn)(const char *name, void *arg), void *arg)
{
	AUTO_FREE char *path = store_path(s, "");
	DIR *d = opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d)) && fn(e->d_name, arg))
		;
	if (d)
		closedir(d);
}

struct lookup {
	const char *prefix;
	char found[STORE_NUMBER_LEN + 1];
	unsigned n;
};

static bool match(const char *name, void *arg)
{
	struct lookup *l = arg;

	if (is_number(name) && !strncmp(name, l->prefix, strlen(l->prefix))) {
		memcpy(l->found, name, sizeof(l->found));
		l->n++;
	}
	return true;
}

char *store_find(struct statedir *s, const char *ref, char **ret_why)
{
	struct lookup l = { .prefix = ref };

	if (!store_check_name(ref) && read_name(s, ref, l.found))
		return kstrdup(l.found);
	if (strlen(ref) >= 8)
		each_entry(s, match, &l);
	if (l.n == 1)
		return kstrdup(l.found);
	*ret_why = kasprintf(l.n ? "container %s has several images %s..." : "container %s has no snapshot %s",
			     s->id, ref);
	return NULL;
}

/* ---- names ---- */

int store_name(struct statedir *s, const char *name, const char *number, char **ret_why)
{
	AUTO_FREE char *path = store_path(s, name);
	AUTO_FREE char *tmp = kasprintf("%s/images/.%s.link", s->path, name);

	(void)unlink(tmp); /* of one who was killed */
	if (symlink(number, tmp) || rename(tmp, path)) {
		*ret_why = kasprintf("cannot name the snapshot %s: %s", name, errno_text(errno));
		(void)unlink(tmp); /* nobody minds it */
		return -1;
	}
	return 0;
}

int store_unname(struct statedir *s, const char *name, char **ret_why)
{
	AUTO_FREE char *path = store_path(s, name);
	char number[STORE_NUMBER_LEN + 1];

	if (!store_check_name(name) && read_name(s, name, number) && unlink(path) == 0)
		return 0;
	*ret_why = kasprintf("container %s has no snapshot %s", s->id, name);
	return -1;
}

/* ---- saving ---- */

/* The head and what it builds on, as far as they are there: paths (heap) in @paths; their number. */
static unsigned chain(const struct statedir *s, const char *head, char **paths)
{
	AUTO_FREE char *path = head ? store_path(s, head) : NULL;
	AUTO_FREE char *why = NULL;
	AUTO(image_close) struct image_source *img = path ? image_open(path, false, &why) : NULL;
	char hex[STORE_NUMBER_LEN + 1];
	unsigned n = 0;

	if (!img || img->meta->nparents + 1 >= CHAIN_MAX)
		return 0;
	paths[n++] = steal_ptr(&path);
	for (unsigned i = 0; i < img->meta->nparents; i++) {
		image_id_hex(img->meta->parents[i], hex);
		paths[n] = store_path(s, hex);
		if (access(paths[n], F_OK) == 0)
			n++; /* or it is an image outside of the store: its pages are written again */
		else
			free(paths[n]);
	}
	return n;
}

/* An image whose lineage isn't written yet is one that nobody names: the next prune removes it. */
char *store_save(struct statedir *s, bool suspend, int *ret_sock, char **ret_why)
{
	json_t *lineage = store_lineage(s);
	const char *head = json_string_value(json_object_get(lineage, "head"));
	AUTO_FREE char *dir = store_path(s, "");
	char *parents[CHAIN_MAX];
	unsigned n = chain(s, head, parents);
	struct sandbox_save save = { .path = dir,
				     .by_number = true,
				     .parents = (const char *const *)parents,
				     .nparents = n,
				     .extra = json_pack("{s:s*}", "previous", head),
				     .stay = suspend };
	char *number = NULL;

	if (mkdir(dir, 0700) && errno != EEXIST)
		*ret_why = kasprintf("cannot make %s: %s", dir, errno_text(errno));
	else if (!sandbox_save(s, &save, ret_why))
		number = kstrdup(json_string_value(json_object_get(save.report, "id")) ?: "");
	if (number) {
		json_object_set_new(lineage, "head", json_string(number));
		json_object_set_new(lineage, "suspended", json_boolean(suspend));
		if (store_set_lineage(s, lineage, ret_why)) {
			free(steal_ptr(&number));
			if (save.sock >= 0)
				close(save.sock); /* it goes on */
		} else if (suspend) {
			*ret_sock = save.sock;
		}
	}
	for (unsigned i = 0; i < n; i++)
		free(parents[i]);
	json_decref(save.report);
	json_decref(save.extra);
	json_decref(lineage);
	return number;
}

char *store_time(long long when)
{
	time_t t = (time_t)when;
	char buf[32];
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(buf, sizeof(buf), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return kstrdup(buf);
}
