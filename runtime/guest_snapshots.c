// SPDX-License-Identifier: Apache-2.0
/* See guest_snapshots.h. The names that come are the guest's: hostile. */
#include "runtime/guest_snapshots.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/cli.h"
#include "runtime/control.h"
#include "runtime/image_store.h"

int guest_snapshots_connect(struct statedir *s)
{
	int sock = control_connect(s->fd);
	json_t *req = json_pack("{s:s}", "op", "snapshots");
	int r = sock < 0 ? sock : control_send(sock, req, NULL, 0);

	json_decref(req);
	if (!r)
		return sock;
	log_warn("no snapshots for guests of %s: %s", s->id, strerror(-r));
	if (sock >= 0)
		close(sock);
	return -1;
}

/* Has the store room for the name? */
static bool has_room(struct statedir *s, const char *name, long max)
{
	AUTO(store_list_free) struct store_list *l = store_list(s);
	long n = 0;

	for (unsigned i = 0; i < l->n; i++) {
		AUTO_FREE char *names = kstrdup(l->v[i].names);
		char *save = NULL;

		for (char *p = strtok_r(names, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
			if (!strcmp(p, name))
				return true; /* it is replaced */
			n += strncmp(p, GUEST_SNAPSHOT_PREFIX, strlen(GUEST_SNAPSHOT_PREFIX)) == 0;
		}
	}
	return n < max;
}

static int tell(int sock, json_int_t nr, const char *key, json_t *value)
{
	json_t *msg = json_pack("{s:I, s:o}", "nr", nr, key, value);
	int r = control_send(sock, msg, NULL, 0);

	json_decref(msg);
	return r;
}

/* 0 or an errno. Context: the store is locked. */
static int make(struct statedir *s, int sock, json_int_t nr, const char *name, long max)
{
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = NULL;
	unsigned long long bytes;

	if (store_check_name(name))
		return EINVAL;
	if (!has_room(s, name, max))
		return ENOSPC;
	if (strcmp(cli_status(s), "running") != 0 || tell(sock, nr, "take", json_true()))
		return EIO;
	number = store_save(s, false, NULL, &why);
	if (!number || store_name(s, name, number, &why)) {
		log_warn("snapshot %s of %s: %s", name, s->id, why);
		return EIO;
	}
	(void)store_prune(s, &bytes); /* the one that had the name */
	return 0;
}

int guest_snapshots_serve(struct statedir *s, int sock, long max)
{
	json_t *msg = control_recv(sock, NULL, NULL);
	json_int_t nr = json_integer_value(json_object_get(msg, "nr"));
	const char *asked = json_string_value(json_object_get(msg, "name"));
	AUTO_FREE char *name = kasprintf(GUEST_SNAPSHOT_PREFIX "%s", asked ? asked : "");
	int err = EIO;

	bool none = !asked;

	json_decref(msg);
	if (none)
		return -1;
	if (!store_lock(s)) {
		err = make(s, sock, nr, name, max);
		store_unlock(s);
	}
	return tell(sock, nr, "errno", json_integer(err)) ? -1 : 0;
}
