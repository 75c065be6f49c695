// SPDX-License-Identifier: Apache-2.0
/*
 * The control request "save": an image of the sandbox into files that the client has opened, or a branch of
 * it into a new sandbox that the client is about to make.
 *
 *   {op: save, kind: image, stay, have: [ids], extra: any}  with the files `state` and `pages`
 *   {op: save, kind: fork, extra: any}                      with a file for the state
 *
 * The answer: {ok, id, parents, bytes, inherited, objects, pause_ns, files}; of a fork followed by {files: n}
 * with n descriptors each, until there were `files`. With `stay` the sandbox is still frozen then, and goes on
 * when the connection ends: a client that has put the image in its place kills it first.
 *
 * The client syncs and publishes. A failure leaves the sandbox running.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "runtime/image_meta.h"
#include "sentry/kernel/kernel.h"
#include "sentry/state/checkpoint.h"

struct save {
	struct control_request *req;
	struct checkpoint cp;
	struct image img;
	struct pages_written written;
	bool fork, stay;
	int *files; /* of a fork; heap, descriptors borrowed */
	unsigned nfiles;
};

static void reply_error(int sock, const char *why)
{
	json_t *json = json_pack("{s:s}", "error", why);

	(void)control_send(sock, json, NULL, 0); /* a client that has gone needs no answer */
	json_decref(json);
}

static struct state_pages *saver(json_t *req)
{
	struct state_pages *p = pages_saver();
	uint8_t id[IMAGE_ID_LEN];
	json_t *e;
	size_t i;

	json_array_foreach(json_object_get(req, "have"), i, e)
		if (image_id_parse(json_string_value(e), id))
			pages_may_inherit(p, id);
	return p;
}

static int write_pages(struct save *s, char **ret_why)
{
	int r;

	if (s->fork) {
		s->nfiles = pages_share(s->cp.pages, &s->files);
		return 0;
	}
	r = pages_write(s->cp.pages, s->req->fds[1], s->img.id, &s->written);
	if (r < 0)
		*ret_why = kasprintf("cannot write the pages: %s", strerror(-r));
	return r;
}

static int write_state(struct save *s, char **ret_why)
{
	enum state_purpose purpose = s->fork ? STATE_FORK : STATE_WAKE;
	json_t *meta = image_meta_make(s->req->c->boot, purpose, s->cp.pages, &s->written,
				       json_object_get(s->req->json, "extra"));
	AUTO_FREE char *text = json_dumps(meta, JSON_COMPACT);
	size_t len;
	AUTO_FREE void *table = pages_table(s->cp.pages, &len);
	int r;

	json_decref(meta);
	s->img.section[IMAGE_META] = (struct image_section){ text, strlen(text) };
	s->img.section[IMAGE_PAGES] = (struct image_section){ table, len };
	s->img.section[IMAGE_OBJECTS] =
		(struct image_section){ s->cp.objects, s->cp.objects_len };
	r = image_write(s->req->fds[0], &s->img);
	if (r < 0)
		*ret_why = kasprintf("cannot write the state: %s", strerror(-r));
	return r;
}

static int send_files(struct save *s)
{
	for (unsigned at = 0; at < s->nfiles;) {
		unsigned n = MIN(s->nfiles - at, (unsigned)CONTROL_MAX_FDS);
		json_t *json = json_pack("{s:i}", "files", (int)n);
		int r = control_send(s->req->sock, json, s->files + at, n);

		json_decref(json);
		if (r)
			return r;
		at += n;
	}
	return 0;
}

static json_t *report(struct save *s)
{
	const uint8_t (*ids)[IMAGE_ID_LEN];
	unsigned n = pages_parents(s->cp.pages, &ids);
	char hex[2 * IMAGE_ID_LEN + 1];
	json_t *parents = json_array();

	for (unsigned i = 0; i < n; i++) {
		image_id_hex(ids[i], hex);
		json_array_append_new(parents, json_string(hex));
	}
	image_id_hex(s->img.id, hex);
	return json_pack("{s:b, s:s, s:o, s:I, s:I, s:i, s:I, s:i}", "ok", 1, "id", hex, "parents",
			 parents, "bytes", (json_int_t)s->written.bytes, "inherited",
			 (json_int_t)s->written.inherited, "objects", (int)s->cp.nobjects, "pause_ns",
			 (json_int_t)s->cp.pause_ns, "files", (int)s->nfiles);
}

/* The client has everything; a frozen sandbox waits until it has gone. */
static void finish(struct save *s)
{
	json_t *json = report(s);
	int r = control_send(s->req->sock, json, NULL, 0);
	char c;

	json_decref(json);
	if (!r && !s->fork)
		pages_published(s->cp.pages);
	if (!r && s->fork)
		r = send_files(s);
	while (s->stay && !r && recv(s->req->sock, &c, 1, 0) > 0) /* host: recvfrom */
		;
}

static bool parse(struct save *s, char **ret_why)
{
	const char *kind = json_string_value(json_object_get(s->req->json, "kind"));

	s->fork = kind && !strcmp(kind, "fork");
	s->stay = json_is_true(json_object_get(s->req->json, "stay"));
	if (!kind || (!s->fork && strcmp(kind, "image") != 0) || s->req->nfds != (s->fork ? 1u : 2u))
		*ret_why = kstrdup("malformed request");
	else if (s->req->c->stopped)
		*ret_why = kstrdup("container not running");
	else if (s->req->c->sandbox || container_count_members(s->req->c))
		*ret_why = kstrdup("a sandbox with several containers can't be saved: an image holds one container, "
				   "with its terminal and its host files");
	return !*ret_why;
}

void control_save(struct control_request *r)
{
	struct save s = { .req = r };
	AUTO_FREE char *why = NULL;
	int err;

	if (!parse(&s, &why)) {
		reply_error(r->sock, why);
		return;
	}
	kernel_random(s.img.id, sizeof(s.img.id));
	err = checkpoint_take(&s.cp, s.fork ? STATE_FORK : STATE_WAKE, r->c, s.stay, saver(r->json), &why);
	if (err) {
		reply_error(r->sock, why);
		checkpoint_fini(&s.cp);
		return;
	}
	if (!write_pages(&s, &why) && !write_state(&s, &why))
		finish(&s);
	else
		reply_error(r->sock, why);
	if (s.stay)
		checkpoint_thaw(&s.cp);
	checkpoint_fini(&s.cp);
	free(s.files);
}
