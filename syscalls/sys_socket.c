// SPDX-License-Identifier: Apache-2.0
/*
 * Making, naming and connecting sockets, and their options (man 2 socket and kin). The messages are in
 * sys_sockmsg.c.
 */
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/socket/socket.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"
#include "syscalls/sys_socket.h"

struct socket *sockfd_get(struct task *t, int fd, struct file **ret_f)
{
	struct file *f = fd_get(t, fd);
	struct socket *s;

	if (!f)
		return err_ptr(-EBADF);
	s = sock_of_file(f);
	if (!s) {
		file_put(f);
		return err_ptr(-ENOTSOCK);
	}
	*ret_f = f;
	return s;
}

int sockaddr_in(struct task *t, gaddr_t uaddr, uint64_t len, struct sock_addr *ret)
{
	int n = (int)len;

	memset(&ret->ss, 0, sizeof(ret->ss));
	ret->len = 0;
	if (n < 0 || (size_t)n > sizeof(ret->ss))
		return -EINVAL;
	if (n && copyin(t, &ret->ss, uaddr, (size_t)n))
		return -EFAULT;
	ret->len = (unsigned)n;
	return 0;
}

int sockaddr_out(struct task *t, gaddr_t uaddr, gaddr_t ulen, const struct sock_addr *addr)
{
	uint32_t full = addr->len;
	int32_t room;

	if (copyin_obj(t, &room, ulen))
		return -EFAULT;
	if (room < 0)
		return -EINVAL;
	if (addr->len && room &&
	    copyout(t, uaddr, &addr->ss, MIN((size_t)room, (size_t)addr->len)))
		return -EFAULT;
	/* The whole length, even if it didn't fit: the caller sees the truncation. */
	return copyout_obj(t, ulen, &full);
}

static unsigned file_flags(int type)
{
	return type & SOCK_NONBLOCK ? O_NONBLOCK : 0;
}

static unsigned fd_flags(int type)
{
	return type & SOCK_CLOEXEC ? O_CLOEXEC : 0;
}

/* Splits the flags off a type argument. */
static int split_type(int arg, int *ret_type)
{
	if (arg & ~(0xf | SOCK_CLOEXEC | SOCK_NONBLOCK))
		return -EINVAL;
	*ret_type = arg & 0xf;
	return 0;
}

long sys_socket(struct task *t, const struct sysargs *a)
{
	struct socket *s;
	struct file *f;
	int type, err = split_type(arg_int(a, 1), &type);

	if (!err)
		err = sock_create(t, arg_int(a, 0), type, arg_int(a, 2), &s);
	if (err)
		return err;
	f = sock_create_file(t, s, file_flags(arg_int(a, 1)));
	if (is_err(f))
		return ptr_err(f);
	return fd_install(t, f, fd_flags(arg_int(a, 1)));
}

/* Connects the two and makes files. */
static int make_pair(struct task *t, struct socket *s[2], int type, struct file *f[2])
{
	int err = s[0]->ops->socketpair ? s[0]->ops->socketpair(t, s[0], s[1]) : -EOPNOTSUPP;

	f[0] = sock_create_file(t, s[0], file_flags(type));
	f[1] = sock_create_file(t, s[1], file_flags(type));
	if (!err && is_err(f[0]))
		err = (int)ptr_err(f[0]);
	if (!err && is_err(f[1]))
		err = (int)ptr_err(f[1]);
	if (err) {
		cleanup_file_put(&f[0]);
		cleanup_file_put(&f[1]);
	}
	return err;
}

long sys_socketpair(struct task *t, const struct sysargs *a)
{
	int arg_type = arg_int(a, 1), type, fds[2];
	struct socket *s[2];
	struct file *f[2];
	int err = split_type(arg_type, &type);

	if (!err)
		err = sock_create(t, arg_int(a, 0), type, arg_int(a, 2), &s[0]);
	if (err)
		return err;
	err = sock_create(t, arg_int(a, 0), type, arg_int(a, 2), &s[1]);
	if (err) {
		s[0]->ops->release(s[0]);
		socket_put(s[0]);
		return err;
	}
	err = make_pair(t, s, arg_type, f);
	if (err)
		return err;
	fds[0] = fd_install(t, f[0], fd_flags(arg_type));
	if (fds[0] < 0) {
		file_put(f[1]);
		return fds[0];
	}
	fds[1] = fd_install(t, f[1], fd_flags(arg_type));
	err = fds[1] < 0 ? fds[1] : 0;
	if (!err && copyout(t, arg_gaddr(a, 3), fds, sizeof(fds))) {
		fd_close(t, fds[1]);
		err = -EFAULT;
	}
	if (err)
		fd_close(t, fds[0]);
	return err;
}

long sys_bind(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	struct sock_addr addr;
	int err;

	if (is_err(s))
		return ptr_err(s);
	err = sockaddr_in(t, arg_gaddr(a, 1), arg_u32(a, 2), &addr);
	if (err)
		return err;
	return s->ops->bind ? s->ops->bind(t, s, &addr) : -EOPNOTSUPP;
}

long sys_listen(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);

	if (is_err(s))
		return ptr_err(s);
	return s->ops->listen ? s->ops->listen(t, s, arg_int(a, 1)) : -EOPNOTSUPP;
}

long sys_connect(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	struct sock_addr addr;
	int err;

	if (is_err(s))
		return ptr_err(s);
	err = sockaddr_in(t, arg_gaddr(a, 1), arg_u32(a, 2), &addr);
	if (err)
		return err;
	if (addr.len < sizeof(sa_family_t))
		return -EINVAL;
	return s->ops->connect ? s->ops->connect(t, s, &addr, f->flags & O_NONBLOCK) : -EOPNOTSUPP;
}

static long do_accept(struct task *t, int fd, gaddr_t uaddr, gaddr_t ulen, int flags)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s, *c;
	struct file *cf;
	struct sock_addr addr = { .len = 0 };
	int err;

	if (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
		return -EINVAL;
	s = sockfd_get(t, fd, &f);
	if (is_err(s))
		return ptr_err(s);
	if (!s->ops->accept)
		return -EOPNOTSUPP;
	c = s->ops->accept(t, s, f->flags & O_NONBLOCK);
	if (is_err(c))
		return ptr_err(c);
	cf = sock_create_file(t, c, file_flags(flags));
	if (is_err(cf))
		return ptr_err(cf);
	if (!gaddr_is_null(uaddr)) {
		err = c->ops->getname(c, true, &addr);
		if (err == 0)
			err = sockaddr_out(t, uaddr, ulen, &addr);
		else
			err = -ECONNABORTED;
		if (err) {
			file_put(cf);
			return err;
		}
	}
	return fd_install(t, cf, fd_flags(flags));
}

long sys_accept(struct task *t, const struct sysargs *a)
{
	return do_accept(t, arg_int(a, 0), arg_gaddr(a, 1), arg_gaddr(a, 2), 0);
}

long sys_accept4(struct task *t, const struct sysargs *a)
{
	return do_accept(t, arg_int(a, 0), arg_gaddr(a, 1), arg_gaddr(a, 2), arg_int(a, 3));
}

static long do_getname(struct task *t, const struct sysargs *a, bool peer)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	struct sock_addr addr = { .len = 0 };
	int err;

	if (is_err(s))
		return ptr_err(s);
	err = s->ops->getname(s, peer, &addr);
	return err ? err : sockaddr_out(t, arg_gaddr(a, 1), arg_gaddr(a, 2), &addr);
}

long sys_getsockname(struct task *t, const struct sysargs *a)
{
	return do_getname(t, a, false);
}

long sys_getpeername(struct task *t, const struct sysargs *a)
{
	return do_getname(t, a, true);
}

long sys_shutdown(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	int how = arg_int(a, 1);

	if (is_err(s))
		return ptr_err(s);
	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	return s->ops->shutdown ? s->ops->shutdown(s, how) : -EOPNOTSUPP;
}

long sys_setsockopt(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	void AUTO_FREE *val = NULL;
	int len = arg_int(a, 4);

	if (is_err(s))
		return ptr_err(s);
	if (len < 0 || len > (int)SOCK_OPT_MAX)
		return -EINVAL;
	val = kmalloc_guest((size_t)len + 1);
	if (!val)
		return -ENOMEM;
	if (len && copyin(t, val, arg_gaddr(a, 3), (size_t)len))
		return -EFAULT;
	return sock_setsockopt(t, s, arg_int(a, 1), arg_int(a, 2), val, (unsigned)len);
}

long sys_getsockopt(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	struct socket *s = sockfd_get(t, arg_int(a, 0), &f);
	void AUTO_FREE *val = NULL;
	gaddr_t ulen = arg_gaddr(a, 4);
	unsigned n;
	int len, err;

	if (is_err(s))
		return ptr_err(s);
	if (copyin_obj(t, &len, ulen))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	n = MIN((unsigned)len, NGROUPS_LIMIT * (unsigned)sizeof(gid_t));
	val = kmalloc_guest((size_t)n + 1);
	if (!val)
		return -ENOMEM;
	err = sock_getsockopt(t, s, arg_int(a, 1), arg_int(a, 2), val, &n);
	if (err == 0 && n && copyout(t, arg_gaddr(a, 3), val, n))
		return -EFAULT;
	if ((err == 0 || err == -ERANGE) && copyout_obj(t, ulen, &n))
		return -EFAULT;
	return err;
}
