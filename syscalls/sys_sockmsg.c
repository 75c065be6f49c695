// SPDX-License-Identifier: Apache-2.0
/* send, recv and kin (man 2 send, 2 recv, 2 sendmmsg, 2 recvmmsg). */
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"
#include "syscalls/sys_socket.h"

struct l_msghdr {
	uint64_t name;
	int32_t namelen, pad0;
	uint64_t iov, iovlen;
	uint64_t control, controllen;
	uint32_t flags, pad1;
};
_Static_assert(sizeof(struct l_msghdr) == 56, "struct msghdr is 56 bytes");

struct l_mmsghdr {
	struct l_msghdr hdr;
	uint32_t len, pad;
};
_Static_assert(sizeof(struct l_mmsghdr) == 64, "struct mmsghdr is 64 bytes");

#define MMSG_MAX 1024
#define MSG_INTERNAL 0x80000000u /* MSG_CMSG_COMPAT: not for x86-64 callers */

void task_sigpipe(struct task *t)
{
	struct l_siginfo info;

	siginfo_user(&info, t, SIGPIPE, SI_USER);
	signal_send_task(t, SIGPIPE, &info);
}

static ssize_t do_send(struct task *t, struct file *f, struct socket *s, struct sock_msg *m, int flags)
{
	ssize_t r;

	if (f->flags & O_NONBLOCK)
		flags |= MSG_DONTWAIT;
	if (!s->ops->sendmsg)
		return -EOPNOTSUPP;
	r = s->ops->sendmsg(t, s, m, flags);
	if (r == -EPIPE && !(flags & MSG_NOSIGNAL) && s->type != SOCK_DGRAM)
		task_sigpipe(t);
	return r;
}

static ssize_t do_recv(struct task *t, struct file *f, struct socket *s, struct sock_msg *m, int flags)
{
	if (f->flags & O_NONBLOCK)
		flags |= MSG_DONTWAIT;
	if (!s->ops->recvmsg)
		return -EOPNOTSUPP;
	return s->ops->recvmsg(t, s, m, flags);
}

long sys_sendto(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	struct sock_msg m = { 0 };
	struct iter it;
	int err;

	if (is_err(s))
		return ptr_err(s);
	if (a->v[4]) {
		err = sockaddr_in(t, arg_gaddr(a, 4), arg_u32(a, 5), &m.addr);
		if (err)
			return err;
	}
	iter_init_user(&it, t, arg_gaddr(a, 1), arg_size(a, 2));
	m.it = &it;
	return do_send(t, f, s, &m, arg_int(a, 3));
}

long sys_recvfrom(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	struct sock_msg m = { .want_addr = a->v[4] != 0 };
	struct iter it;
	ssize_t r;
	int err;

	if (is_err(s))
		return ptr_err(s);
	iter_init_user(&it, t, arg_gaddr(a, 1), arg_size(a, 2));
	m.it = &it;
	r = do_recv(t, f, s, &m, arg_int(a, 3));
	if (r >= 0 && m.want_addr) {
		err = sockaddr_out(t, arg_gaddr(a, 4), arg_gaddr(a, 5), &m.addr);
		if (err)
			return err;
	}
	return r;
}

/* ---------------------------------------------------------------- sendmsg */

static long send_hdr(struct task *t, struct file *f, struct socket *s, const struct l_msghdr *h,
		     int flags)
{
	uint8_t AUTO_FREE *control = NULL;
	struct sock_msg m = { 0 };
	struct iter it;
	long r;

	if (h->name && h->namelen) {
		if (h->namelen < 0)
			return -EINVAL;
		r = sockaddr_in(t, gaddr(h->name),
				MIN((size_t)h->namelen, sizeof(struct sockaddr_storage)), &m.addr);
		if (r)
			return r;
	}
	if (h->controllen > SOCK_CONTROL_MAX)
		return -ENOBUFS;
	if (h->iovlen > UIO_MAXIOV_GUEST)
		return -EMSGSIZE;
	if (h->control && h->controllen) {
		control = kmalloc_guest(h->controllen);
		if (!control)
			return -ENOBUFS;
		if (copyin(t, control, gaddr(h->control), h->controllen))
			return -EFAULT;
		m.control = control;
		m.control_len = h->controllen;
	}
	r = iter_init_uiov(&it, t, gaddr(h->iov), h->iovlen);
	if (r < 0)
		return r;
	m.it = &it;
	r = do_send(t, f, s, &m, flags);
	iter_fini(&it);
	return r;
}

long sys_sendmsg(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s;
	struct l_msghdr h;

	if (arg_u32(a, 2) & MSG_INTERNAL)
		return -EINVAL;
	s = sockfd_get(t, arg_int(a, 0), &f);
	if (is_err(s))
		return ptr_err(s);
	if (copyin_obj(t, &h, arg_gaddr(a, 1)))
		return -EFAULT;
	return send_hdr(t, f, s, &h, arg_int(a, 2));
}

long sys_sendmmsg(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	gaddr_t vec = arg_gaddr(a, 1);
	unsigned n = MIN(arg_u32(a, 2), (uint32_t)MMSG_MAX), i;
	struct socket *s;
	long r = 0;

	if (arg_u32(a, 3) & MSG_INTERNAL)
		return -EINVAL;
	s = sockfd_get(t, arg_int(a, 0), &f);
	if (is_err(s))
		return ptr_err(s);
	for (i = 0; i < n; i++) {
		gaddr_t at = gaddr_off(vec, i * sizeof(struct l_mmsghdr));
		struct l_msghdr h;
		uint32_t sent;

		r = copyin_obj(t, &h, at);
		if (r == 0)
			r = send_hdr(t, f, s, &h, arg_int(a, 3));
		if (r < 0)
			break;
		sent = (uint32_t)r;
		r = copyout_obj(t, gaddr_off(at, offsetof(struct l_mmsghdr, len)), &sent);
		if (r < 0)
			break;
	}
	return i ? (long)i : r;
}

/* ---------------------------------------------------------------- recvmsg */

/* What the call writes into the header: name length, control length, flags. */
static long recv_writeback(struct task *t, gaddr_t uhdr, const struct l_msghdr *h,
			   const struct sock_msg *m, int flags)
{
	uint32_t out = (uint32_t)m->flags_out, namelen = m->addr.len;
	uint64_t controllen = m->cmsg.used;

	if (m->cmsg.truncated)
		out |= MSG_CTRUNC;
	out |= (uint32_t)flags & MSG_CMSG_CLOEXEC;
	if (h->name) {
		size_t n = MIN((size_t)h->namelen, (size_t)m->addr.len);

		if (n && copyout(t, gaddr(h->name), &m->addr.ss, n))
			return -EFAULT;
		if (copyout_obj(t, gaddr_off(uhdr, offsetof(struct l_msghdr, namelen)), &namelen))
			return -EFAULT;
	}
	if (m->cmsg.used && copyout(t, gaddr(h->control), m->cmsg.buf, m->cmsg.used))
		return -EFAULT;
	if (copyout_obj(t, gaddr_off(uhdr, offsetof(struct l_msghdr, flags)), &out))
		return -EFAULT;
	return copyout_obj(t, gaddr_off(uhdr, offsetof(struct l_msghdr, controllen)), &controllen);
}

static long recv_hdr(struct task *t, struct file *f, struct socket *s, gaddr_t uhdr, int flags)
{
	uint8_t AUTO_FREE *control = NULL;
	struct sock_msg m = { 0 };
	struct l_msghdr h;
	struct iter it;
	long r, err;

	if (copyin_obj(t, &h, uhdr))
		return -EFAULT;
	if (h.name && h.namelen < 0)
		return -EINVAL;
	if (h.iovlen > UIO_MAXIOV_GUEST)
		return -EMSGSIZE;
	if (h.control && h.controllen) {
		m.cmsg.size = MIN(h.controllen, (uint64_t)SOCK_CONTROL_MAX);
		control = kmalloc_guest(m.cmsg.size);
		if (!control)
			return -ENOBUFS;
		memset(control, 0, m.cmsg.size);
		m.cmsg.buf = control;
	}
	m.want_addr = h.name != 0;
	r = iter_init_uiov(&it, t, gaddr(h.iov), h.iovlen);
	if (r < 0)
		return r;
	m.it = &it;
	r = do_recv(t, f, s, &m, flags);
	iter_fini(&it);
	if (r < 0)
		return r;
	err = recv_writeback(t, uhdr, &h, &m, flags);
	return err ? err : r;
}

long sys_recvmsg(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s;

	if (arg_u32(a, 2) & MSG_INTERNAL)
		return -EINVAL;
	s = sockfd_get(t, arg_int(a, 0), &f);
	if (is_err(s))
		return ptr_err(s);
	return recv_hdr(t, f, s, arg_gaddr(a, 1), arg_int(a, 2));
}

/* As on Linux the timeout is looked at only after each message (man 2 recvmmsg, BUGS). */
static long recv_many(struct task *t, struct file *f, struct socket *s, gaddr_t vec, unsigned n,
		      int flags, int64_t deadline_ns)
{
	bool for_one = flags & MSG_WAITFORONE;
	unsigned i;
	long r = 0;

	flags &= ~MSG_WAITFORONE;
	r = sock_take_err(s);
	if (r)
		return r;
	for (i = 0; i < n; i++) {
		gaddr_t at = gaddr_off(vec, i * sizeof(struct l_mmsghdr));
		uint32_t got;

		r = recv_hdr(t, f, s, at, flags);
		if (r < 0)
			break;
		got = (uint32_t)r;
		r = copyout_obj(t, gaddr_off(at, offsetof(struct l_mmsghdr, len)), &got);
		if (r < 0)
			break;
		if (for_one)
			flags |= MSG_DONTWAIT;
		if (deadline_ns != DEADLINE_NONE && clock_monotonic_ns() >= deadline_ns) {
			i++;
			break;
		}
	}
	/* An error after the first message is kept for the next call. */
	if (i && r < 0 && r != -EAGAIN && r > -ERESTARTSYS)
		s->err = (int)-r;
	return i ? (long)i : r;
}

long sys_recvmmsg(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	unsigned n = MIN(arg_u32(a, 2), (uint32_t)MMSG_MAX);
	int64_t deadline = DEADLINE_NONE;
	struct l_timespec ts;
	struct socket *s;
	long r;

	if (arg_u32(a, 3) & MSG_INTERNAL)
		return -EINVAL;
	if (a->v[4]) {
		if (copyin_obj(t, &ts, arg_gaddr(a, 4)))
			return -EFAULT;
		if (!timespec_valid(&ts))
			return -EINVAL;
		deadline = deadline_after(clock_monotonic_ns(), timespec_to_ns(&ts));
	}
	s = sockfd_get(t, arg_int(a, 0), &f);
	if (is_err(s))
		return ptr_err(s);
	r = recv_many(t, f, s, arg_gaddr(a, 1), n, arg_int(a, 3), deadline);
	if (a->v[4] && r >= 0) {
		ts = ns_to_timespec(MAX(deadline - clock_monotonic_ns(), (int64_t)0));
		if (copyout_obj(t, arg_gaddr(a, 4), &ts))
			return -EFAULT;
	}
	return r;
}
