// SPDX-License-Identifier: Apache-2.0
/*
 * pause and resume: the guest's tasks are parked in the sentry (sentry/kernel/freeze.h), which goes on
 * answering. So `state` tells, signals are queued as in a frozen cgroup and act when it is resumed, and
 * whoever kills the sandbox is not kept waiting. The host's freezer isn't used: it would stop the sentry,
 * too.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "runtime/errno_text.h"
#include "sentry/kernel/freeze.h"

static void answer(struct control_request *r, int err, const char *already)
{
	json_t *rep = err == -EALREADY ? json_pack("{s:s}", "error", already) :
		      err	       ? json_pack("{s:s}", "error", errno_text(-err)) :
					 json_pack("{s:b}", "ok", 1);

	(void)control_send(r->sock, rep, NULL, 0); /* a client that has gone needs no answer */
	json_decref(rep);
}

/* The tasks of a sandbox are parked together: its pause and resume are the first container's. */
static bool refuse_member(struct control_request *r)
{
	AUTO_FREE char *why = r->c->sandbox ? kasprintf("the containers of a pod are paused together: "
							"pause its sandbox, %s", r->c->sandbox->boot->id) :
					      NULL;

	if (why)
		answer(r, -EALREADY, why);
	return why != NULL;
}

void control_pause(struct control_request *r)
{
	if (refuse_member(r))
		return;
	if (r->c->stopped)
		answer(r, -EALREADY, "container not running");
	else
		answer(r, kernel_pause(), "container not running"); /* runc's words */
}

void control_resume(struct control_request *r)
{
	if (refuse_member(r))
		return;
	answer(r, r->c->stopped ? -EALREADY : kernel_resume(), "container not paused");
}
