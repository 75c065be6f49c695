// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer: the one process of a container that can reach files. It serves a sentry that
 * it takes for hostile. The runtime has put it into a chroot, namespaces and
 * capabilities; then it calls gofer_confine() and gofer_serve().
 */
#ifndef GOFER_GOFER_H
#define GOFER_GOFER_H

#include <stdbool.h>
#include <stddef.h>

struct gofer_attach {
	int dirfd;     /* O_PATH descriptor of the tree's root, or of a single file */
	bool readonly; /* refuse every change, whatever the sentry says */
	bool xdev;     /* may enter mounts below the root (rbind); else they are EXDEV */
	/*
	 * Only when dirfd is a regular file, since an O_PATH descriptor can't be opened
	 * again without /proc: the file opened O_RDONLY, and O_RDWR (-1 if readonly).
	 */
	int file_ro, file_rw;
};

struct gofer_conf {
	int sock;         /* SOCK_SEQPACKET, connected to the sentry */
	unsigned nattach;
	const struct gofer_attach *attach;
	int memdirfd;     /* directory on tmpfs for memory files; -1: none are made */
	int diskdirfd;    /* directory for those that lie on disk; -1: likewise */
};

/* Installs the seccomp filter of the gofer. 0 or -errno. */
int gofer_confine(void);
/* Serves until the sentry closes its end: 0; or -errno. Takes over no descriptor but the
 * attach roots. */
int gofer_serve(const struct gofer_conf *conf);

/* For unit tests and the fuzzer: a server without a socket. */
struct gofer;
struct gofer *gofer_server_create(const struct gofer_conf *conf);
void gofer_server_destroy(struct gofer *g);
/*
 * Serves one request. Returns the size of the reply in @reply (GOFER_MSG_MAX bytes), or 0
 * when the message is too damaged to be answered (the connection is to be closed). @fds
 * (GOFER_FDS_MAX) receives descriptors to send along; the caller closes them.
 */
size_t gofer_handle_message(struct gofer *g, const void *req, size_t len, void *reply, int *fds,
			    unsigned *ret_nfds);

#endif
