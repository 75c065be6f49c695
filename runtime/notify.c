// SPDX-License-Identifier: Apache-2.0
/* See notify.h. */
#include "runtime/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/cli.h"

bool notify_wanted(void)
{
	const char *path = getenv("NOTIFY_SOCKET");

	return path && (path[0] == '/' || path[0] == '@');
}

void notify_prepare(struct spec *spec)
{
	json_t *process = json_object_get(spec->json, "process");
	json_t *env = json_object_get(process, "env");

	if (!json_is_array(env)) {
		env = json_array();
		json_object_set_new(process, "env", env);
	}
	json_array_append_new(env, json_string("NOTIFY_SOCKET=" NOTIFY_INSIDE));
}

static void tell(const char *path, const char *text)
{
	AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	ssize_t n = -1;

	if (len < sizeof(un.sun_path)) {
		memcpy(un.sun_path, path, len + 1);
		if (path[0] == '@')
			un.sun_path[0] = 0;
		n = sendto(sock, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&un,
			   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (path[0] != '@')));
	}
	if (n < 0)
		log_warn("cannot tell %s that the container is ready: %s", path, strerror(errno));
}

void notify_wait(struct statedir *s)
{
	json_t *req = json_pack("{s:s}", "op", "notify"), *rep, *saved;
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *text = NULL;

	rep = notify_wanted() ? cli_request(s, req, &why) : NULL;
	if (json_is_true(json_object_get(rep, "ready"))) {
		saved = statedir_load(s, "state.json");
		text = kasprintf("MAINPID=%d\nREADY=1\n", (int)json_integer_value(json_object_get(saved, "pid")));
		json_decref(saved);
		tell(getenv("NOTIFY_SOCKET"), text);
	}
	json_decref(rep);
	json_decref(req);
}

void notify_wait_aside(struct statedir *s)
{
	if (!notify_wanted())
		return;
	fflush(NULL);
	if (fork() != 0)
		return; /* where there is no process for it nobody is told */
	notify_wait(s);
	_exit(0);
}
