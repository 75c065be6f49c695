// SPDX-License-Identifier: Apache-2.0
/*
 * How long a branch uses the memory files that it was made of. Each set of branches (those that one fork makes)
 * gets one end of a socket along with the files; all its sandboxes keep that open and never use it. We hold the
 * other end: when it hangs up, the last of them has ended, however it did, and the pages that only they still used
 * are given back.
 *
 * A branch of a branch may use files that its origin has from further up, so it is handed the ends that its origin
 * was given, too.
 *
 * Whoever waits for the hang-up is a thread per set, which sleeps. It touches no objects of the guest, so it doesn't
 * have to stop while the sandbox is frozen, and it isn't part of an image: a restored sandbox uses no such file.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sentry/mm/mfile.h"
#include "sentry/state/pages_priv.h"

/* What a branch was given; constant once it has been loaded. */
static struct {
	int *fds;
	unsigned n;
} given;

struct lease {
	int sock;
	uint32_t nfiles;
	struct mfile *files[]; /* references */
};

static void lease_free(struct lease *l)
{
	for (uint32_t i = 0; i < l->nfiles; i++)
		mfile_put(l->files[i]);
	if (l->sock >= 0)
		close(l->sock); /* host: close */
	free(l);
}

static void *lease_main(void *arg)
{
	struct lease *l = arg;
	char c;

	while (recv(l->sock, &c, 1, 0) < 0 && errno == EINTR) /* host: recvfrom */
		;
	for (uint32_t i = 0; i < l->nfiles; i++)
		mfile_share_end(l->files[i]);
	lease_free(l);
	return NULL;
}

/* The end that the branches get; -1: their files stay as they are until we end. */
static int lease_begin(struct state_pages *p)
{
	struct lease *l = kzalloc(sizeof(*l) + p->nfiles * sizeof(struct mfile *));
	int sv[2] = { -1, -1 };
	pthread_t th;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv)) { /* host: socketpair */
		free(l);
		return -1;
	}
	l->sock = sv[0];
	for (uint32_t i = 0; i < p->nfiles; i++)
		l->files[l->nfiles++] = mfile_get(p->files[i]->mf);
	if (pthread_create(&th, NULL, lease_main, l) == 0) {
		pthread_detach(th);
		return sv[1];
	}
	lease_free(l);
	close(sv[1]);
	return -1;
}

unsigned pages_share(struct state_pages *p, int **ret_fds)
{
	int *fds = kcalloc(p->nfiles + given.n + 1, sizeof(*fds));
	unsigned n = p->nfiles;

	for (uint32_t i = 0; i < p->nfiles; i++) {
		mfile_share_out(p->files[i]->mf);
		fds[i] = mfile_rofd(p->files[i]->mf);
	}
	for (unsigned i = 0; i < given.n; i++)
		fds[n++] = given.fds[i];
	p->lease = lease_begin(p);
	if (p->lease >= 0)
		fds[n++] = p->lease;
	*ret_fds = fds;
	return n;
}

void pages_keep_leases(const int *fds, unsigned n)
{
	given.fds = kcalloc(n ? n : 1, sizeof(*fds));
	if (n)
		memcpy(given.fds, fds, n * sizeof(*fds));
	given.n = n;
}
