// SPDX-License-Identifier: Apache-2.0
/*
 * See snapshot_request.h. Nothing of this is in an image: who asked finds out by its own record
 * (sentry/fs/proc/proc_holdfast.c) whether it goes on in the image that it had asked for.
 *
 * A guest may not keep its sandbox standing still: requests are PAUSE_NS apart.
 *
 * Lock: request.mu (RANK_PIPE), with nothing taken under it.
 */
#include "sentry/kernel/snapshot_request.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/mutex.h"
#include "sentry/kernel/waitq.h"
#include "sentry/time/clock.h"

#define PAUSE_NS 500000000LL

static struct {
	struct mutex mu;
	struct waitq wq;
	void (*notify)(void);
	bool closed;
	int64_t nr;     /* of the last one */
	bool pending, taken;
	int err;        /* of the last one, when it isn't pending */
	int64_t end_ns; /* CLOCK_MONOTONIC; 0: there was none */
	char name[SNAPSHOT_NAME_MAX + 1];
} request;

void snapshot_request_init(void)
{
	mutex_init(&request.mu, RANK_PIPE);
	waitq_init(&request.wq);
}

void snapshot_request_allow(void (*notify)(void))
{
	request.notify = notify;
}

bool snapshot_request_allowed(void)
{
	return request.notify != NULL;
}

static int64_t post(const char *name)
{
	AUTO_LOCK(&request.mu);
	if (request.closed)
		return -EIO;
	if (request.pending)
		return -EBUSY;
	if (request.end_ns && clock_monotonic_ns() - request.end_ns < PAUSE_NS)
		return -EAGAIN;
	request.pending = true;
	request.taken = false;
	memset(request.name, 0, sizeof(request.name));
	memcpy(request.name, name, strnlen(name, SNAPSHOT_NAME_MAX));
	return ++request.nr;
}

int64_t snapshot_request_post(const char *name)
{
	int64_t nr = request.notify ? post(name) : -EPERM;

	if (nr > 0)
		request.notify();
	return nr;
}

int snapshot_request_result(int64_t nr)
{
	AUTO_LOCK(&request.mu);
	if (nr != request.nr)
		return -EIDRM;
	return request.pending ? -EINPROGRESS : request.err;
}

bool snapshot_request_is_taken(int64_t nr)
{
	AUTO_LOCK(&request.mu);
	return nr == request.nr && request.pending && request.taken;
}

struct waitq *snapshot_request_waitq(void)
{
	return &request.wq;
}

int64_t snapshot_request_get(char name[SNAPSHOT_NAME_MAX + 1])
{
	AUTO_LOCK(&request.mu);
	memcpy(name, request.name, sizeof(request.name));
	return request.pending ? request.nr : 0;
}

void snapshot_request_take(int64_t nr)
{
	AUTO_LOCK(&request.mu);
	request.taken = nr == request.nr && request.pending;
}

static void end(int64_t nr, int err)
{
	AUTO_LOCK(&request.mu);
	if (nr != request.nr || !request.pending)
		return;
	request.pending = request.taken = false;
	request.err = err;
	request.end_ns = clock_monotonic_ns();
}

void snapshot_request_end(int64_t nr, int err)
{
	end(nr, err);
	waitq_wake(&request.wq, EPOLLOUT);
}

void snapshot_request_close(void)
{
	int64_t nr;

	mutex_lock(&request.mu);
	request.closed = true;
	nr = request.nr;
	mutex_unlock(&request.mu);
	snapshot_request_end(nr, -EIO);
}
