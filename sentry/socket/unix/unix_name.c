// SPDX-License-Identifier: Apache-2.0
/*
 * Names of unix sockets: files, abstract names (per network namespace), autobind; /proc/net/unix.
 *
 * Lock order: unix_bind_mu (RANK_SOCK_BIND) is taken with no other lock; the VFS is called without it.
 */
#include <string.h>
#include <stdio.h>

#include "base/alloc.h"
#include "sentry/kernel/cred.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/netns.h"
#include "sentry/socket/unix/unix_priv.h"

#define PATH_OFF offsetof(struct sockaddr_un, sun_path)
#define AUTOBIND_NAMES (1u << 20)

struct mutex unix_bind_mu;

bool unix_is_abstract(const struct sockaddr_un *un, unsigned len)
{
	return len > PATH_OFF && un->sun_path[0] == '\0';
}

/* 0, -EINVAL. Without a name (length of the family alone): *ret_len is PATH_OFF. */
static int check_addr(const struct sock_addr *addr, struct sockaddr_un *un, unsigned *ret_len)
{
	if (addr->len < PATH_OFF || addr->len > sizeof(*un))
		return -EINVAL;
	memset(un, 0, sizeof(*un));
	memcpy(un, &addr->ss, addr->len);
	if (un->sun_family != AF_UNIX)
		return -EINVAL;
	*ret_len = addr->len;
	return 0;
}

/* sun_path need not be terminated. */
static void path_of(const struct sockaddr_un *un, char buf[sizeof(un->sun_path) + 1])
{
	memcpy(buf, un->sun_path, sizeof(un->sun_path));
	buf[sizeof(un->sun_path)] = '\0';
}

static void set_name_locked(struct unix_sock *u, const struct sockaddr_un *un, unsigned len)
{
	struct sockaddr_un *copy = kzalloc(sizeof(*copy));

	memcpy(copy, un, len);
	u->name_len = len;
	u->name = copy; /* last: readers look at it without the lock */
}

/* Each socket type has abstract names of its own, as on Linux. */
static struct unix_sock *abstract_find_locked(struct netns *net, const struct sockaddr_un *un,
					      unsigned len, int type)
{
	struct sockaddr_un key = *un;
	struct unix_sock *u;

	key.sun_family = (sa_family_t)type;
	HASH_FIND(hh, net->abstract, &key, len, u);
	return u;
}

static void abstract_hash_locked(struct unix_sock *u)
{
	u->abs_key = *u->name;
	u->abs_key.sun_family = (sa_family_t)u->sk.type;
	HASH_ADD_KEYPTR(hh, u->sk.net->abstract, &u->abs_key, u->name_len, u);
}

static int abstract_bind_locked(struct unix_sock *u, const struct sockaddr_un *un, unsigned len)
{
	struct netns *net = u->sk.net;

	if (u->name)
		return -EINVAL;
	if (abstract_find_locked(net, un, len, u->sk.type))
		return -EADDRINUSE;
	set_name_locked(u, un, len);
	abstract_hash_locked(u);
	return 0;
}

bool unix_restore_abstract(struct unix_sock *u)
{
	AUTO_LOCK(&unix_bind_mu);
	if (abstract_find_locked(u->sk.net, u->name, u->name_len, u->sk.type))
		return false;
	abstract_hash_locked(u);
	return true;
}

int unix_autobind(struct task *t, struct unix_sock *u)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct netns *net = u->sk.net;
	char digits[8];

	(void)t;
	AUTO_LOCK(&unix_bind_mu);
	if (u->name)
		return 0;
	for (unsigned i = 0; i < AUTOBIND_NAMES; i++) {
		unsigned nr = net->autobind_next++ & (AUTOBIND_NAMES - 1);

		snprintf(digits, sizeof(digits), "%05x", nr);
		memcpy(un.sun_path + 1, digits, 5);
		if (abstract_bind_locked(u, &un, PATH_OFF + 6) == 0)
			return 0;
	}
	return -ENOSPC;
}

static int bind_path(struct task *t, struct unix_sock *u, const struct sockaddr_un *un)
{
	char name[sizeof(un->sun_path) + 1];
	struct path p = { 0 };
	int err;

	path_of(un, name);
	if (u->name)
		return -EINVAL;
	err = vfs_mknod_path(t, AT_FDCWD_G, name, S_IFSOCK | 0777, 0, &p);
	if (err)
		return err == -EEXIST ? -EADDRINUSE : err;
	mutex_lock(&unix_bind_mu);
	if (u->name) {
		err = -EINVAL;
	} else {
		dentry_inode(p.dentry)->sock = u;
		set_name_locked(u, un, (unsigned)(PATH_OFF + strlen(name) + 1));
		u->path = p;
		p = (struct path){ 0 };
	}
	mutex_unlock(&unix_bind_mu);
	path_put(&p);
	return err;
}

int unix_bind(struct task *t, struct socket *s, const struct sock_addr *addr)
{
	struct unix_sock *u = unix_of(s);
	struct sockaddr_un un;
	unsigned len;
	int err;

	/* Just the family asks for an automatic name. */
	if (addr->len == PATH_OFF && addr->ss.ss_family == AF_UNIX)
		return unix_autobind(t, u);
	err = check_addr(addr, &un, &len);
	if (err)
		return err;
	if (!unix_is_abstract(&un, len))
		return bind_path(t, u, &un);
	AUTO_LOCK(&unix_bind_mu);
	return abstract_bind_locked(u, &un, len);
}

void unix_unbind(struct unix_sock *u)
{
	struct path p;

	mutex_lock(&unix_bind_mu);
	if (u->name && unix_is_abstract(u->name, u->name_len) && u->hh.tbl) {
		HASH_DEL(u->sk.net->abstract, u);
		u->hh.tbl = NULL;
	}
	p = u->path;
	u->path = (struct path){ 0 };
	if (p.dentry && dentry_inode(p.dentry) && dentry_inode(p.dentry)->sock == u)
		dentry_inode(p.dentry)->sock = NULL;
	mutex_unlock(&unix_bind_mu);
	path_put(&p);
}

static struct unix_sock *find_path(struct task *t, const struct sockaddr_un *un)
{
	char name[sizeof(un->sun_path) + 1];
	struct unix_sock *u = NULL;
	struct inode *inode;
	struct path p;
	int err;

	path_of(un, name);
	err = path_lookup(t, AT_FDCWD_G, name, LOOKUP_FOLLOW, &p);
	if (err)
		return err_ptr(err);
	inode = dentry_inode(p.dentry);
	err = inode_permission(inode, task_cred(t), MAY_WRITE);
	if (!err && !S_ISSOCK(inode->mode))
		err = -ECONNREFUSED;
	if (!err) {
		mutex_lock(&unix_bind_mu);
		u = inode->sock;
		if (u && !ref_get_unless_zero(&u->sk.ref))
			u = NULL;
		mutex_unlock(&unix_bind_mu);
		if (!u)
			err = -ECONNREFUSED;
	}
	path_put(&p);
	return err ? err_ptr(err) : u;
}

struct unix_sock *unix_find(struct task *t, struct netns *net, const struct sock_addr *addr, int type)
{
	struct sockaddr_un un;
	struct unix_sock *u;
	unsigned len;
	int err = check_addr(addr, &un, &len);

	if (err || len <= PATH_OFF)
		return err_ptr(-EINVAL);
	if (unix_is_abstract(&un, len)) {
		mutex_lock(&unix_bind_mu);
		u = abstract_find_locked(net, &un, len, type);
		if (u && !ref_get_unless_zero(&u->sk.ref))
			u = NULL;
		mutex_unlock(&unix_bind_mu);
		if (!u)
			return err_ptr(-ECONNREFUSED);
	} else {
		u = find_path(t, &un);
		if (is_err(u))
			return u;
	}
	if (u->sk.type != type) {
		unix_put(u);
		return err_ptr(-EPROTOTYPE);
	}
	return u;
}

/* ---------------------------------------------------------------- /proc/net/unix */

void unix_show_proc(struct netns *ns, struct seqbuf *out)
{
	struct unix_sock *u;

	seq_printf(out, "Num       RefCount Protocol Flags    Type St Inode Path\n");
	AUTO_LOCK(&unix_bind_mu);
	list_for_each (u, &ns->unix_socks, net_node) {
		int state = u->state;
		unsigned st = state == UNIX_CONNECTED ? 3 : state == UNIX_CONNECTING ? 2 : 1;

		seq_printf(out, "%016x: %08X %08X %08X %04X %02X %5lu", 0u,
			   (unsigned)ref_count(&u->sk.ref), 0u,
			   state == UNIX_LISTEN ? 0x10000u : 0, (unsigned)u->sk.type, st,
			   (unsigned long)u->sk.ino);
		if (u->name) {
			const struct sockaddr_un *un = u->name;
			size_t n = u->name_len - PATH_OFF;

			seq_putc(out, ' ');
			if (!unix_is_abstract(un, u->name_len))
				n = strnlen(un->sun_path, n);
			for (size_t i = 0; i < n; i++)
				seq_putc(out, un->sun_path[i] ? un->sun_path[i] : '@');
		}
		seq_putc(out, '\n');
	}
}
