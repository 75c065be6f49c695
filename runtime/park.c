// SPDX-License-Identifier: Apache-2.0
/* See park.h. */
#include "runtime/park.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/cli.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/hooks.h"
#include "runtime/image_store.h"
#include "runtime/isolate.h"
#include "runtime/restore.h"

/* What a sandbox's processes leave, so that new ones find their places free. */
static void clear_place(struct statedir *s)
{
	(void)unlinkat(s->fd, "control.sock", 0); /* none there is fine, others show when they are made */
	(void)unlinkat(s->fd, "exit.json", 0);
}

static void run_poststop(struct statedir *s)
{
	json_t *saved = statedir_load(s, "state.json");
	AUTO_FREE char *why = NULL;

	(void)hooks_run_saved(saved, HOOK_POSTSTOP, "stopped", &why); /* these never fail */
	json_decref(saved);
}

int park_suspend(struct statedir *s, bool groups)
{
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = NULL;
	unsigned long long bytes;
	int sock = -1;

	number = store_save(s, true, &sock, &why);
	if (!number)
		return cli_fail("cannot suspend container %s: %s", s->id, why);
	if (groups)
		(void)cli_end_processes(s); /* has said why if a group is left: the next wake removes it */
	else
		(void)cli_signal_sentry(s, SIGKILL);
	close(sock);
	clear_place(s);
	run_poststop(s);
	(void)store_prune(s, &bytes); /* the image before this one is hardly of use to anybody */
	return 0;
}

char *park_image(struct statedir *s)
{
	json_t *lineage = store_lineage(s);
	const char *head = json_string_value(json_object_get(lineage, "head"));
	AUTO_FREE char *why = NULL;
	char *number = NULL;

	if (!strcmp(cli_status(s), "suspended") && head)
		number = kstrdup(head);
	else
		number = store_save(s, false, NULL, &why);
	if (!number)
		(void)cli_fail("cannot save container %s: %s", s->id, why);
	json_decref(lineage);
	return number;
}

/* ---- waking ---- */

static struct image_source *open_number(struct statedir *s, const char *number)
{
	AUTO_FREE char *path = store_path(s, number);
	AUTO_FREE char *why = NULL;
	struct image_source *src = image_open(path, false, &why);

	if (!src)
		(void)cli_fail("%s", why);
	return src;
}

/* The head, or if that can't be read the newest image that can; its number in @number. */
static struct image_source *open_newest(struct statedir *s, char number[STORE_NUMBER_LEN + 1])
{
	json_t *lineage = store_lineage(s);
	const char *head = json_string_value(json_object_get(lineage, "head"));
	struct image_source *src = head && strlen(head) == STORE_NUMBER_LEN ? open_number(s, head) : NULL;

	if (src)
		memcpy(number, head, STORE_NUMBER_LEN + 1);
	json_decref(lineage);
	if (src)
		return src;
	AUTO(store_list_free) struct store_list *l = store_list(s);
	for (unsigned i = l->n; i-- && !src;) {
		src = open_number(s, l->v[i].number);
		memcpy(number, l->v[i].number, STORE_NUMBER_LEN + 1);
	}
	if (!src)
		(void)cli_fail("container %s has no image to go on from", s->id);
	return src;
}

/* Is the image somebody else's, whose configuration must not be asked? */
static bool local_config(struct statedir *s)
{
	json_t *lineage = store_lineage(s);
	bool ret = json_is_true(json_object_get(lineage, "local_config"));

	json_decref(lineage);
	return ret;
}

static int launch(struct statedir *s, const struct image_source *src)
{
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int stdio[3] = { null, null, null };
	json_t *saved = statedir_load(s, "state.json");
	const char *bundle = json_string_value(json_object_get(saved, "bundle"));
	struct statedir *same = NULL;
	AUTO_FREE char *why = NULL;
	struct boot_request b;
	int r;

	isolate_raise_nofile();
	r = restore_prepare(&b, s->id, local_config(s) ? bundle ?: "/" : NULL, src);
	/* Then where writes go isn't the image's to say, either. */
	if (!r && local_config(s) && overlay_of(b.spec, OVERLAY_MEMORY, &b.overlay, &why))
		r = cli_fail("%s", why);
	if (!r && bundle) {
		free(b.bundle);
		b.bundle = kstrdup(bundle);
	}
	json_decref(saved);
	if (r)
		return 1;
	b.stdio = stdio;
	b.woken = s;
	if (b.spec->process.terminal)
		b.console_fd = restore_no_console();
	if (cli_end_processes(s))
		return 1;
	clear_place(s);
	r = container_boot(&b, &same);
	if (b.console_fd >= 0)
		close(b.console_fd);
	return r || container_begin(s);
}

static int set_head(struct statedir *s, const char *number, bool suspended)
{
	json_t *lineage = store_lineage(s);
	AUTO_FREE char *why = NULL;
	int r;

	json_object_set_new(lineage, "head", json_string(number));
	json_object_set_new(lineage, "suspended", json_boolean(suspended));
	r = store_set_lineage(s, lineage, &why);
	json_decref(lineage);
	return r ? cli_fail("%s", why) : 0;
}

static void tell_time(struct statedir *s, const struct image_source *src, bool recovered)
{
	AUTO_FREE char *when =
		store_time(json_integer_value(json_object_get(src->meta->json, "time")));

	if (recovered)
		fprintf(stderr, "holdfast: container %s had ended without being suspended: it goes on as it was at %s\n",
			s->id, when);
	log_debug("%s goes on as it was at %s", s->id, when);
}

int park_wake(struct statedir *s, const char *asked)
{
	bool recovered = !asked && !store_suspended(s);
	char number[STORE_NUMBER_LEN + 1];
	AUTO(image_close) struct image_source *src =
		asked ? open_number(s, asked) : open_newest(s, number);

	if (!src)
		return 1;
	if (asked)
		snprintf(number, sizeof(number), "%s", asked);
	/* Suspended until it runs: if this fails, or we are killed, it can be woken again. */
	if (set_head(s, number, true) || launch(s, src) || set_head(s, number, false))
		return 1;
	tell_time(s, src, recovered);
	return 0;
}

/* ---- on use ---- */

int park_wake_if_suspended(struct statedir *s)
{
	int r = store_lock(s);

	if (r)
		return cli_fail("cannot lock %s: %s", s->path, errno_text(-r));
	r = !strcmp(cli_status(s), "suspended") ? park_wake(s, NULL) : 0;
	store_unlock(s);
	return r;
}

struct statedir *park_open_awake(const char *id)
{
	AUTO(statedir_close) struct statedir *s = cli_open(id);

	if (!s || (store_suspended(s) && park_wake_if_suspended(s)))
		return NULL;
	return steal_ptr(&s);
}

int park_connect(struct statedir *s)
{
	int sock = control_connect(s->fd);

	if (sock >= 0 || !store_suspended(s) || park_wake_if_suspended(s))
		return sock;
	return control_connect(s->fd);
}
