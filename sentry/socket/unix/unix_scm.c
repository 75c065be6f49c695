// SPDX-License-Identifier: Apache-2.0
/*
 * Ancillary data of unix sockets: SCM_RIGHTS and SCM_CREDENTIALS (man 7 unix).
 *
 * Destroying a message may close the last reference of a socket, whose queue holds messages with more
 * files, and so on: scm_free() works such a chain off iteratively.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/netns.h"
#include "sentry/socket/unix/unix_priv.h"

struct l_ucred {
	int32_t pid;
	uint32_t uid, gid;
};
_Static_assert(sizeof(struct l_ucred) == 12, "struct ucred is 12 bytes");

/* ---------------------------------------------------------------- free */

static __thread bool draining;
static __thread struct list todo; /* while draining */

static void scm_free_one(struct scm *scm)
{
	if (scm->inflight)
		unix_notinflight(scm);
	for (unsigned i = 0; i < scm->nfiles; i++)
		file_put(scm->files[i]);
	unix_cred_put(&scm->cred);
	free(scm);
}

void scm_free(struct scm *scm)
{
	if (!scm)
		return;
	if (draining) { /* we are below a file_put() of the loop underneath */
		list_add_tail(&todo, &scm->node);
		return;
	}
	list_init(&todo);
	list_add_tail(&todo, &scm->node);
	draining = true;
	while (!list_empty(&todo)) {
		struct scm *s = list_first(&todo, struct scm, node);

		list_del(&s->node);
		scm_free_one(s);
	}
	draining = false;
}

bool scm_same_cred(const struct scm *a, const struct scm *b)
{
	bool ha = a && a->has_cred, hb = b && b->has_cred;

	if (!ha || !hb)
		return ha == hb;
	return a->cred.pid == b->cred.pid && a->cred.uid == b->cred.uid &&
	       a->cred.gid == b->cred.gid;
}

/* ---------------------------------------------------------------- send */

static int take_files(struct task *t, struct scm *scm, const uint8_t *data, size_t len)
{
	size_t n = len / sizeof(int);

	if (scm->nfiles + n > UNIX_SCM_MAX_FD)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		struct file *f;
		int fd;

		memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
		f = fd_get_any(t, fd);
		if (!f)
			return -EBADF;
		scm->files[scm->nfiles++] = f;
	}
	return 0;
}

/* Only one's own ids, unless privileged (man 7 unix, SCM_CREDENTIALS). */
static int take_cred(struct task *t, struct unix_sock *u, struct scm *scm, const uint8_t *data,
		     size_t len)
{
	const struct cred *c = task_cred(t);
	struct userns *ns = netns_userns(u->sk.net);
	struct l_ucred uc;
	struct pid *pid;
	uid_t uid;
	gid_t gid;

	if (len != sizeof(uc))
		return -EINVAL;
	memcpy(&uc, data, sizeof(uc));
	uid = userns_map_uid(c->userns, uc.uid);
	gid = userns_map_gid(c->userns, uc.gid);
	if (uid == (uid_t)-1 || gid == (gid_t)-1)
		return -EINVAL;
	if (uc.pid != task_tgid(t) && !cred_capable_in(c, ns, CAP_SYS_ADMIN))
		return -EPERM;
	if (uid != c->uid && uid != c->euid && uid != c->suid && !cred_capable_in(c, ns, CAP_SETUID))
		return -EPERM;
	if (gid != c->gid && gid != c->egid && gid != c->sgid && !cred_capable_in(c, ns, CAP_SETGID))
		return -EPERM;
	pid = pid_find(task_pidns(t), uc.pid);
	if (!pid)
		return -ESRCH;
	unix_cred_put(&scm->cred);
	scm->cred = (struct unix_cred){ pid, uid, gid };
	scm->has_cred = true;
	return 0;
}

static int parse(struct task *t, struct unix_sock *u, const struct sock_msg *m, struct scm *scm)
{
	size_t off = 0;
	int err = 0;

	while (!err && m->control_len - off >= sizeof(struct cmsghdr)) {
		struct cmsghdr h;
		const uint8_t *data = m->control + off + sizeof(h);
		size_t len;

		memcpy(&h, m->control + off, sizeof(h));
		if (h.cmsg_len < sizeof(h) || h.cmsg_len > m->control_len - off)
			return -EINVAL;
		len = h.cmsg_len - sizeof(h);
		if (h.cmsg_level == SOL_SOCKET) {
			if (h.cmsg_type == SCM_RIGHTS)
				err = take_files(t, scm, data, len);
			else if (h.cmsg_type == SCM_CREDENTIALS)
				err = take_cred(t, u, scm, data, len);
			else
				return -EINVAL;
		}
		off += MIN(CMSG_ALIGN(h.cmsg_len), m->control_len - off);
	}
	return err;
}

/* Does somebody want to know who sends? */
static bool wants_cred(struct unix_sock *u)
{
	struct unix_sock *peer;
	bool want;

	if (u->sk.flags & SOCKF_PASSCRED)
		return true;
	if (u->sk.type == SOCK_DGRAM)
		return true; /* the receiver isn't known yet */
	peer = u->peer;
	want = peer && ((peer->sk.flags & SOCKF_PASSCRED) || !peer->sk.file);
	return want;
}

int scm_send(struct task *t, struct unix_sock *u, const struct sock_msg *m, struct scm **ret)
{
	bool cred = wants_cred(u);
	struct scm *scm;
	size_t room;
	int err = 0;

	*ret = NULL;
	if (!m->control_len && !cred)
		return 0;
	room = MIN(m->control_len / sizeof(int), (size_t)UNIX_SCM_MAX_FD);
	scm = kzalloc(sizeof(*scm) + room * sizeof(scm->files[0]));
	list_init(&scm->node);
	if (m->control_len)
		err = parse(t, u, m, scm);
	if (!err && cred && !scm->has_cred && t) {
		unix_cred_fill(t, &scm->cred);
		scm->has_cred = true;
	}
	if (!err && scm->nfiles)
		err = unix_inflight(t, scm);
	if (err || (!scm->has_cred && !scm->nfiles)) {
		scm_free(scm);
		return err;
	}
	*ret = scm;
	return 0;
}

/* ---------------------------------------------------------------- receive */

static void give_cred(struct task *t, struct sock_msg *m, const struct scm *scm)
{
	struct l_ucred uc = { 0, 65534, 65534 };

	if (scm && scm->has_cred) {
		const struct cred *c = task_cred(t);

		uc.pid = scm->cred.pid ? pid_nr(scm->cred.pid, task_pidns(t)) : 0;
		uc.uid = userns_show_uid(c->userns, scm->cred.uid);
		uc.gid = userns_show_gid(c->userns, scm->cred.gid);
	}
	cmsg_put(&m->cmsg, SOL_SOCKET, SCM_CREDENTIALS, &uc, sizeof(uc));
}

/* Installs as many as the guest has room for; the others are dropped (MSG_CTRUNC). */
static void give_files(struct task *t, struct sock_msg *m, struct scm *scm, int flags)
{
	int fds[UNIX_SCM_MAX_FD];
	size_t room = 0, left = m->cmsg.buf ? m->cmsg.size - m->cmsg.used : 0;
	unsigned n = 0;

	if (left > sizeof(struct cmsghdr))
		room = (left - sizeof(struct cmsghdr)) / sizeof(int);
	while (n < scm->nfiles && n < room) {
		int fd = fd_install(t, file_get(scm->files[n]),
				    flags & MSG_CMSG_CLOEXEC ? O_CLOEXEC : 0);

		if (fd < 0)
			break;
		fds[n++] = fd;
	}
	if (n < scm->nfiles)
		m->cmsg.truncated = true;
	if (n)
		cmsg_put(&m->cmsg, SOL_SOCKET, SCM_RIGHTS, fds, n * sizeof(int));
}

void scm_recv(struct task *t, struct socket *s, struct sock_msg *m, struct scm *scm, int flags,
	      bool peek)
{
	(void)peek; /* files get references of their own either way; the caller frees @scm or not */
	if (!t)
		return;
	if (s->flags & SOCKF_PASSCRED)
		give_cred(t, m, scm);
	if (scm && scm->nfiles)
		give_files(t, m, scm, flags);
}
