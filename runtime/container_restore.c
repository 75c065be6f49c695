// SPDX-License-Identifier: Apache-2.0
/*
 * A container from an image, or from a live sandbox that is being branched. The order of checks: the file's
 * own checksums, what it was made by and needs, whether this sandbox has the same bind mounts, its memory,
 * its objects. The first that fails is the message, and the sentry ends; nothing has run by then.
 *
 * The guest stands still until container_start(): whoever restores has told everybody who wants to know
 * before the first instruction.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "runtime/container_state.h"
#include "runtime/image_meta.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/hostfd/hostfd.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel_state.h"
#include "sentry/kernel/ns.h"
#include "sentry/state/checkpoint.h"
#include "sentry/state/image.h"

/* Ends with its process: nobody waits for a loaded session. */
static void *session_main(void *arg)
{
	struct session *s = arg;

	(void)tgroup_wait_exit(s->leader->tg); /* its status is nobody's */
	world_enter();
	session_free(s);
	world_leave();
	return NULL;
}

static int revive_session(struct session *s, int hostfd, char **ret_why)
{
	pthread_t th;

	if (s->console && !console_revive(s->console, hostfd)) {
		*ret_why = kstrdup("cannot start a terminal");
		return -1;
	}
	if (s == s->container->init)
		return 0;
	if (pthread_create(&th, NULL, session_main, s)) {
		*ret_why = kstrdup("cannot start a thread");
		return -1;
	}
	pthread_detach(th);
	return 0;
}

static int revive(struct container *c, char **ret_why)
{
	struct session *s, *next;
	int r = kernel_resume_loaded();

	if (r < 0) {
		*ret_why = kasprintf("cannot start threads: %s", strerror(-r));
		return -1;
	}
	if (revive_session(c->init, c->boot->console, ret_why))
		return -1;
	list_for_each_safe(s, next, &c->sessions, node)
		if (revive_session(s, -1, ret_why))
			return -1;
	return container_watch(c, ret_why);
}

static struct state_pages *load_pages(const struct restore_input *in, const struct image *img,
				      const struct image_meta *m, char **ret_why)
{
	AUTO_FREE uint8_t(*ids)[IMAGE_ID_LEN] = NULL;
	struct state_pages *p;

	if (!in->fork && in->nfds != m->nparents + 1) {
		*ret_why = kasprintf("it needs %u page files, and %u were given", m->nparents + 1,
				     in->nfds);
		return NULL;
	}
	if (!in->fork) {
		ids = kcalloc(in->nfds, sizeof(*ids));
		memcpy(ids[0], img->id, IMAGE_ID_LEN);
		memcpy(ids[1], m->parents, m->nparents * sizeof(*ids));
	}
	p = pages_loader(img->section[IMAGE_PAGES].buf, img->section[IMAGE_PAGES].len, in->fds,
			 in->nfds, (const uint8_t(*)[IMAGE_ID_LEN])ids, ret_why);
	return is_err(p) ? NULL : p;
}

/* The first process's standard descriptors are those of whoever restores; others' lead nowhere. */
static const struct boot *stdio_of;

static int give_stdio(unsigned session, unsigned slot)
{
	if (session != 0 || slot > 2 || stdio_of->stdio[slot] < 0)
		return -1;
	return fcntl(stdio_of->stdio[slot], F_DUPFD_CLOEXEC, 3); /* host: fcntl */
}

/* Whoever restores asks for another hostname with a specification that has one. */
static void rename_host(struct container *c, const struct image_meta *m)
{
	const char *was = json_string_value(json_object_get(json_object_get(m->json, "config"), "hostname"));
	const char *now = c->boot->spec->hostname;
	struct utsns *uts = c->ns->uts;

	if (!now || (was && !strcmp(was, now)))
		return;
	AUTO_LOCK(&uts->mu);
	memset(uts->nodename, 0, UTS_LEN);
	memcpy(uts->nodename, now, strnlen(now, UTS_LEN - 1));
}

static int load(struct container *c, const struct image *img, char **ret_why)
{
	const struct restore_input *in = c->boot->restore;
	AUTO(image_meta_free) struct image_meta *m = image_meta_parse(&img->section[IMAGE_META], ret_why);
	struct state_pages *pages;
	unsigned *attaches, nattaches;

	if (!m || image_meta_check(m, c->boot, ret_why))
		return -1;
	attaches = image_meta_attaches(m, c->boot, &nattaches, ret_why);
	if (!attaches)
		return -1;
	gofer_client_set_attaches(c->gofer, attaches, nattaches);
	pages = load_pages(in, img, m, ret_why);
	if (!pages)
		return -1;
	container_load_into(c);
	gofer_client_set_index(c->gofer, 0);
	stdio_of = c->boot;
	hostfd_set_restore(give_stdio);
	kernel_load_begin(c);
	if (!checkpoint_load(m->purpose, img->section[IMAGE_OBJECTS].buf,
			     img->section[IMAGE_OBJECTS].len, pages, ret_why))
		return -1;
	hostfd_set_restore(NULL);
	rename_host(c, m);
	if (container_mount_new(c, json_object_get(json_object_get(m->json, "config"), "mounts"), ret_why))
		return -1;
	if (container_machine_id(c, json_object_get(json_object_get(m->json, "config"), "annotations"), ret_why))
		return -1;
	for (int i = 0; i < 3; i++)
		if (c->boot->stdio[i] >= 0)
			close(c->boot->stdio[i]); /* the guest's have copies */
	container_load_into(NULL);
	return 0;
}

int container_restore(const struct boot *b, struct gofer_client *gofer, struct container **ret,
		      char **ret_why)
{
	struct container *c = container_new(b, gofer);
	AUTO_FREE char *why = NULL;
	struct image img;
	size_t len = 0;
	AUTO_FREE void *buf = NULL;
	void *slurped = image_slurp(b->restore->state, &len);

	close(b->restore->state);
	if (is_err(slurped)) {
		*ret_why = kasprintf("cannot read the image: %s", strerror((int)-ptr_err(slurped)));
		return -1;
	}
	buf = slurped;
	c->frozen = true;
	if (image_parse(buf, len, &img, &why) || load(c, &img, &why) || revive(c, &why)) {
		*ret_why = kasprintf("cannot restore from the image: %s", why);
		return -1;
	}
	*ret = c;
	return 0;
}
