// SPDX-License-Identifier: Apache-2.0
/* Asking a running sandbox for an image or a branch of itself (control_save.c answers); see image_dir.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/image_dir.h"

#define BRANCH_FILES_MAX 65536

/* The images that it may refer to: what to tell the sentry, and where they are for whoever restores. */
static int vouch(const struct sandbox_save *s, json_t *have, json_t *where, char **ret_why)
{
	char hex[2 * IMAGE_ID_LEN + 1];

	for (unsigned i = 0; i < s->nparents; i++) {
		AUTO(image_close) struct image_source *img = image_open(s->parents[i], false, ret_why);
		AUTO_FREE char *path = realpath(s->parents[i], NULL);

		if (!img || !path) {
			if (!*ret_why)
				*ret_why = kasprintf("%s: %s", s->parents[i], errno_text(errno));
			return -1;
		}
		image_id_hex(img->id, hex);
		json_array_append_new(have, json_string(hex));
		json_object_set_new(where, hex, json_string(path));
	}
	return 0;
}

/* What whoever restores without a bundle needs to know, beside what the caller has to say. */
static json_t *extra_of(struct statedir *dir, json_t *from)
{
	json_t *extra = from ? json_deep_copy(from) : json_object();
	json_t *st = statedir_load(dir, "state.json");

	json_object_set(extra, "bundle", json_object_get(st, "bundle"));
	json_decref(st);
	return extra;
}

static json_t *request(struct statedir *dir, const struct sandbox_save *s, char **ret_why)
{
	json_t *extra = extra_of(dir, s->extra);
	json_t *have = json_array(), *where = json_object(), *req;

	if (vouch(s, have, where, ret_why)) {
		json_decref(extra);
		json_decref(have);
		json_decref(where);
		return NULL;
	}
	if (json_object_size(where))
		json_object_set(extra, "parents", where);
	req = json_pack("{s:s, s:s, s:b, s:o, s:o}", "op", "save", "kind", "image", "stay", s->stay, "have",
			have, "extra", extra);
	json_decref(where);
	return req;
}

static void log_report(const struct statedir *dir, const json_t *rep)
{
	log_debug("%s: saved %lld objects, %lld bytes of pages (%lld more are in earlier images); it stood still "
		  "for %lld us", dir->id, (long long)json_integer_value(json_object_get(rep, "objects")),
		  (long long)json_integer_value(json_object_get(rep, "bytes")),
		  (long long)json_integer_value(json_object_get(rep, "inherited")),
		  (long long)json_integer_value(json_object_get(rep, "pause_ns")) / 1000);
}

/* The answer, or NULL with *ret_why. */
static json_t *call(int sock, json_t *req, const int *fds, unsigned nfds, char **ret_why)
{
	json_t *rep = sock < 0 ? NULL : control_call(sock, req, fds, nfds);
	const char *error = json_string_value(json_object_get(rep, "error"));

	if (rep && !error)
		return rep;
	*ret_why = kstrdup(error ? error : "container not running");
	json_decref(rep);
	return NULL;
}

/* Where the draft goes, if that is a name in s->path which is known only now. */
static void name_by_number(struct image_draft *d, const struct sandbox_save *s, const json_t *rep)
{
	const char *number = json_string_value(json_object_get(rep, "id"));

	if (!s->by_number || !number)
		return;
	free(d->path);
	d->path = kasprintf("%s/%s", s->path, number);
}

int sandbox_save(struct statedir *dir, struct sandbox_save *s, char **ret_why)
{
	AUTO_FREE char *place = s->by_number ? kasprintf("%s/new", s->path) : kstrdup(s->path);
	json_t *req = request(dir, s, ret_why), *rep = NULL;
	struct image_draft d;
	int r = -1;

	s->sock = -1;
	s->report = NULL;
	if (!req)
		return -1;
	if (image_draft_open(&d, place, ret_why)) {
		json_decref(req);
		return -1;
	}
	AUTO_CLOSE int sock = control_connect(dir->fd);
	rep = call(sock, req, (int[]){ d.state, d.pages }, 2, ret_why);
	json_decref(req);
	if (rep) {
		name_by_number(&d, s, rep);
		r = image_draft_publish(&d, ret_why);
	}
	image_draft_close(&d);
	if (r) {
		json_decref(rep);
		return -1;
	}
	log_report(dir, rep);
	s->report = rep;
	if (s->stay)
		s->sock = steal_fd(&sock);
	return 0;
}

/* ---- a branch ---- */

/* Collects @n descriptors into @fds, some of which come with each message. */
static bool collect(int sock, int *fds, unsigned n)
{
	for (unsigned got = 0; got < n;) {
		int more[CONTROL_MAX_FDS];
		unsigned k = CONTROL_MAX_FDS;
		json_t *msg = control_recv(sock, more, &k);

		json_decref(msg);
		if (!msg || k == 0 || k > n - got) {
			for (unsigned i = 0; msg && i < k; i++)
				close(more[i]);
			while (got)
				close(fds[--got]);
			return false;
		}
		memcpy(fds + got, more, k * sizeof(int));
		got += k;
	}
	return true;
}

struct image_source *sandbox_branch(struct statedir *dir, char **ret_why)
{
	AUTO_CLOSE int state = memfd_create("state", MFD_CLOEXEC);
	AUTO_CLOSE int sock = control_connect(dir->fd);
	json_t *req = json_pack("{s:s, s:s, s:o}", "op", "save", "kind", "fork", "extra",
				extra_of(dir, NULL));
	json_t *rep = call(sock, req, &state, 1, ret_why);
	json_int_t n = json_integer_value(json_object_get(rep, "files"));
	AUTO_FREE int *fds = NULL;

	json_decref(req);
	if (!rep)
		return NULL;
	log_report(dir, rep);
	json_decref(rep);
	if (n >= 0 && n <= BRANCH_FILES_MAX)
		fds = kcalloc((size_t)n + 1, sizeof(int));
	if (!fds || !collect(sock, fds, (unsigned)n)) {
		*ret_why = kstrdup("the sandbox ended while it was branched");
		return NULL;
	}
	return image_of_branch(steal_fd(&state), steal_ptr(&fds), (unsigned)n, ret_why);
}
