// SPDX-License-Identifier: Apache-2.0
/* `debug --stats`: what the guest's work cost between the request and the end of the client's side. */
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/stats.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "syscalls/sys.h"

struct snapshot {
	uint64_t calls[SYSCALL_MAX];
	uint64_t stats[STAT_COUNT];
};

static void take(struct snapshot *s)
{
	for (long nr = 0; nr < SYSCALL_MAX; nr++)
		s->calls[nr] = syscall_count(nr);
	for (unsigned i = 0; i < STAT_COUNT; i++)
		s->stats[i] = atomic_load(&stats_value[i]);
}

static json_t *difference(const struct snapshot *from, const struct snapshot *to)
{
	json_t *calls = json_object(), *counters = json_object();

	for (long nr = 0; nr < SYSCALL_MAX; nr++)
		if (to->calls[nr] != from->calls[nr])
			json_object_set_new(calls, syscall_name(nr),
					    json_integer((json_int_t)(to->calls[nr] -
								      from->calls[nr])));
	for (unsigned i = 0; i < STAT_COUNT; i++)
		json_object_set_new(counters, stat_name((enum counter)i),
				    json_integer((json_int_t)(to->stats[i] - from->stats[i])));
	return json_pack("{s:b, s:o, s:o}", "ok", 1, "calls", calls, "counters", counters);
}

void control_counters(struct control_request *r)
{
	AUTO_FREE struct snapshot *from = kzalloc(sizeof(*from)), *to = kzalloc(sizeof(*to));
	json_t *started = json_pack("{s:b}", "ok", 1), *rep;
	char c;

	stats_watch();
	take(from);
	(void)control_send(r->sock, started, NULL, 0);
	json_decref(started);
	while (recv(r->sock, &c, 1, 0) > 0) /* host: recvfrom */
		;
	take(to);
	stats_unwatch();
	rep = difference(from, to);
	(void)control_send(r->sock, rep, NULL, 0); /* it may have gone */
	json_decref(rep);
}
