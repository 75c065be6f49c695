// SPDX-License-Identifier: Apache-2.0
/* SOL_SOCKET options (man 7 socket). What a family has beyond them goes to its own functions. */
#include <linux/capability.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "sentry/kernel/cred.h"
#include "sentry/kernel/ns.h"
#include "sentry/socket/netns.h"
#include "sentry/socket/socket.h"
#include "sentry/time/clock.h"

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif

static const struct {
	int name;
	unsigned flag;
} bool_opts[] = {
	{ SO_REUSEADDR, SOCKF_REUSEADDR },       { SO_REUSEPORT, SOCKF_REUSEPORT },
	{ SO_KEEPALIVE, SOCKF_KEEPALIVE },       { SO_BROADCAST, SOCKF_BROADCAST },
	{ SO_PASSCRED, SOCKF_PASSCRED },         { SO_PASSSEC, SOCKF_PASSSEC },
	{ SO_OOBINLINE, SOCKF_OOBINLINE },       { SO_TIMESTAMP, SOCKF_TIMESTAMP },
	{ SO_TIMESTAMPNS, SOCKF_TIMESTAMPNS },   { SO_DONTROUTE, SOCKF_DONTROUTE },
	{ SO_DEBUG, SOCKF_DEBUG },               { SO_RXQ_OVFL, SOCKF_RXQ_OVFL },
	{ SO_PASSPIDFD, SOCKF_PASSPIDFD },       { SO_NOFCS, SOCKF_NOFCS },
	{ SO_ZEROCOPY, SOCKF_ZEROCOPY },
};

static unsigned bool_flag(int name)
{
	for (size_t i = 0; i < ARRAY_SIZE(bool_opts); i++)
		if (bool_opts[i].name == name)
			return bool_opts[i].flag;
	return 0;
}

static bool net_admin(struct task *t, const struct socket *s)
{
	return cred_capable_in(task_cred(t), netns_userns(s->net), CAP_NET_ADMIN);
}

/* The kernel doubles the value, for its own overhead. */
static void set_bufsize(_Atomic uint32_t *buf, int v, uint32_t max, uint32_t min)
{
	uint32_t n = v < 0 ? max : MIN((uint32_t)v, max);

	*buf = MAX(n * 2, min);
}

static int set_timeo(_Atomic int64_t *timeo, const void *val, unsigned len)
{
	struct l_timeval tv;

	if (len < sizeof(tv))
		return -EINVAL;
	memcpy(&tv, val, sizeof(tv));
	if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
		return -EDOM;
	if (tv.tv_sec < 0)
		*timeo = 0; /* don't wait */
	else if (tv.tv_sec == 0 && tv.tv_usec == 0)
		*timeo = DEADLINE_NONE;
	else if (tv.tv_sec >= INT64_MAX / NSEC_PER_SEC - 1)
		*timeo = DEADLINE_NONE;
	else
		*timeo = tv.tv_sec * NSEC_PER_SEC + tv.tv_usec * 1000;
	return 0;
}

static int set_linger(struct socket *s, const void *val, unsigned len)
{
	struct linger l;

	if (len < sizeof(l))
		return -EINVAL;
	memcpy(&l, val, sizeof(l));
	s->linger_on = l.l_onoff != 0;
	s->linger_s = l.l_linger;
	return 0;
}

static int set_int(struct task *t, struct socket *s, int name, int v)
{
	switch (name) {
	case SO_SNDBUF:
		set_bufsize(&s->sndbuf, v, SOCK_BUF_MAX, SOCK_SNDBUF_MIN);
		sock_wake(s, 0x4 /* EPOLLOUT */);
		return 0;
	case SO_RCVBUF:
		set_bufsize(&s->rcvbuf, v, SOCK_BUF_MAX, SOCK_RCVBUF_MIN);
		return 0;
	case SO_SNDBUFFORCE:
	case SO_RCVBUFFORCE:
		if (!net_admin(t, s))
			return -EPERM;
		if (name == SO_SNDBUFFORCE)
			set_bufsize(&s->sndbuf, MAX(v, 0), SOCK_BUF_FORCE_MAX, SOCK_SNDBUF_MIN);
		else
			set_bufsize(&s->rcvbuf, MAX(v, 0), SOCK_BUF_FORCE_MAX, SOCK_RCVBUF_MIN);
		return 0;
	case SO_RCVLOWAT:
		s->rcvlowat = v <= 0 ? (v ? INT32_MAX : 1) : v;
		return 0;
	case SO_PRIORITY:
		if ((v < 0 || v > 6) && !net_admin(t, s))
			return -EPERM;
		s->priority = v;
		return 0;
	case SO_MARK:
		if (!net_admin(t, s))
			return -EPERM;
		s->mark = v;
		return 0;
	case SO_PEEK_OFF:
		if (s->family != AF_UNIX)
			return -EOPNOTSUPP;
		if (v < -1)
			return -EINVAL;
		s->peek_off = v;
		return 0;
	case SO_BUSY_POLL:
		s->busy_poll = v;
		return v < 0 ? -EINVAL : 0;
	case SO_INCOMING_CPU:
		s->incoming_cpu = v;
		return 0;
	case SO_TYPE:
	case SO_PROTOCOL:
	case SO_DOMAIN:
	case SO_ERROR:
	case SO_ACCEPTCONN:
		return -ENOPROTOOPT;
	}
	return -ENOPROTOOPT;
}

int sock_setsockopt(struct task *t, struct socket *s, int level, int name, const void *val,
		    unsigned len)
{
	unsigned flag;
	int v;

	if (level != SOL_SOCKET)
		return s->ops->setsockopt ? s->ops->setsockopt(t, s, level, name, val, len)
					  : -EOPNOTSUPP;
	if (len < sizeof(v))
		return -EINVAL;
	memcpy(&v, val, sizeof(v));
	switch (name) {
	case SO_LINGER:
		return set_linger(s, val, len);
	case SO_RCVTIMEO:
		return set_timeo(&s->rcvtimeo_ns, val, len);
	case SO_SNDTIMEO:
		return set_timeo(&s->sndtimeo_ns, val, len);
	}
	flag = bool_flag(name);
	if (flag) {
		if (name == SO_DEBUG && v && !net_admin(t, s))
			return -EACCES;
		if (v)
			atomic_fetch_or(&s->flags, flag);
		else
			atomic_fetch_and(&s->flags, ~flag);
		return 0;
	}
	v = set_int(t, s, name, v);
	if (v == -ENOPROTOOPT && s->ops->setsockopt)
		return s->ops->setsockopt(t, s, level, name, val, len);
	return v;
}

/* ---------------------------------------------------------------- get */

static int put(void *val, unsigned *len, const void *src, size_t n)
{
	*len = (unsigned)MIN((size_t)*len, n);
	memcpy(val, src, *len);
	return 0;
}

static int get_int(struct socket *s, int name, int *ret)
{
	switch (name) {
	case SO_TYPE:
		*ret = s->type;
		return 0;
	case SO_DOMAIN:
		*ret = s->family;
		return 0;
	case SO_PROTOCOL:
		*ret = s->protocol;
		return 0;
	case SO_ERROR:
		*ret = -sock_take_err(s);
		return 0;
	case SO_SNDBUF:
	case SO_SNDBUFFORCE:
		*ret = (int)s->sndbuf;
		return 0;
	case SO_RCVBUF:
	case SO_RCVBUFFORCE:
		*ret = (int)s->rcvbuf;
		return 0;
	case SO_RCVLOWAT:
		*ret = s->rcvlowat;
		return 0;
	case SO_SNDLOWAT:
		*ret = 1;
		return 0;
	case SO_PRIORITY:
		*ret = s->priority;
		return 0;
	case SO_MARK:
		*ret = s->mark;
		return 0;
	case SO_PEEK_OFF:
		if (s->family != AF_UNIX)
			return -EOPNOTSUPP;
		*ret = s->peek_off;
		return 0;
	case SO_BUSY_POLL:
		*ret = s->busy_poll;
		return 0;
	case SO_INCOMING_CPU:
		*ret = s->incoming_cpu;
		return 0;
	}
	return -ENOPROTOOPT;
}

int sock_getsockopt(struct task *t, struct socket *s, int level, int name, void *val, unsigned *len)
{
	unsigned flag = bool_flag(name);
	struct linger l;
	struct l_timeval tv;
	int64_t timeo;
	int v, err;

	if (level != SOL_SOCKET)
		return s->ops->getsockopt ? s->ops->getsockopt(t, s, level, name, val, len)
					  : -EOPNOTSUPP;
	switch (name) {
	case SO_LINGER:
		l = (struct linger){ s->linger_on, s->linger_s };
		return put(val, len, &l, sizeof(l));
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
		timeo = name == SO_RCVTIMEO ? s->rcvtimeo_ns : s->sndtimeo_ns;
		tv = ns_to_timeval(timeo == DEADLINE_NONE ? 0 : timeo);
		return put(val, len, &tv, sizeof(tv));
	}
	if (flag) {
		v = (s->flags & flag) != 0;
		return put(val, len, &v, sizeof(v));
	}
	err = get_int(s, name, &v);
	if (err == 0)
		return put(val, len, &v, sizeof(v));
	if (err == -ENOPROTOOPT && s->ops->getsockopt)
		return s->ops->getsockopt(t, s, level, name, val, len);
	return err;
}
