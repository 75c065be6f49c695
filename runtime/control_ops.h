// SPDX-License-Identifier: Apache-2.0
/*
 * Requests on the control socket that have a file of their own: control_NAME.c. Each answers on r->sock. A
 * handler that keeps descriptors sets r->nfds to 0 (or moves the others to the front).
 */
#ifndef RUNTIME_CONTROL_OPS_H
#define RUNTIME_CONTROL_OPS_H

#include <jansson.h>

struct container;

struct control_request {
	struct container *c;
	int sock;
	json_t *json; /* the request */
	int *fds;     /* what came with it */
	unsigned nfds;
};

/* control_counters.c: counts until the client closes its sending side, then answers. */
void control_counters(struct control_request *r);
/* control_kill.c: a signal for the first process, or all; and one that waits in the container's sigfd. */
void control_kill(struct control_request *r);
void control_host_signal(struct container *c);

/* container_pod.c: another container for the sandbox. */
void control_create(struct control_request *r);

/* control_attach.c: another client for a session's terminal. */
void control_attach(struct control_request *r);

/* control_activity.c: has anything happened? */
void control_activity(struct control_request *r);

/* control_save.c: images and branches. */
void control_save(struct control_request *r);

/* control_snapshots.c: guests' own requests for snapshots. */
void control_snapshots(struct control_request *r);
/* They may ask from now on; once, before anything runs. */
void control_snapshots_allow(void);
/* The container has stopped. */
void control_snapshots_end(void);

/* container_notify.c: waits until it is ready. */
void control_notify(struct control_request *r);

/* control_pause.c */
void control_pause(struct control_request *r);
void control_resume(struct control_request *r);

/* limits.c: new limits. */
void control_limits(struct control_request *r);
/* control_stats.c: what of them is used. */
void control_stats(struct control_request *r);

#endif
