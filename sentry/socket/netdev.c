// SPDX-License-Identifier: Apache-2.0
/*
 * The network devices as ioctl(2) shows them (man 7 netdevice): only `lo`, up, 127.0.0.1/8. Changes are
 * refused with EPERM; devices of the network stack will be added here.
 */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "sentry/socket/socket.h"

#define LO_INDEX 1
#define LO_MTU 65536

_Static_assert(sizeof(struct ifreq) == 40, "struct ifreq is 40 bytes");
_Static_assert(sizeof(struct ifconf) == 16, "struct ifconf is 16 bytes");

static void put_addr(struct ifreq *r, uint32_t host_order)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(host_order) };

	memcpy(&r->ifr_addr, &in, sizeof(in));
}

static long get_conf(struct task *t, uint64_t arg)
{
	struct {
		int32_t len, pad;
		uint64_t buf;
	} conf;
	struct ifreq r = { .ifr_name = "lo" };

	if (copyin_obj(t, &conf, gaddr(arg)))
		return -EFAULT;
	put_addr(&r, INADDR_LOOPBACK);
	if (conf.buf == 0) {
		conf.len = sizeof(r);
	} else if (conf.len >= (int32_t)sizeof(r)) {
		if (copyout_obj(t, gaddr(conf.buf), &r))
			return -EFAULT;
		conf.len = sizeof(r);
	} else {
		conf.len = 0;
	}
	return copyout_obj(t, gaddr(arg), &conf);
}

/* Fills the answer about lo. */
static long fill(struct ifreq *r, unsigned cmd)
{
	switch (cmd) {
	case SIOCGIFFLAGS:
		r->ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
		return 0;
	case SIOCGIFADDR:
		put_addr(r, INADDR_LOOPBACK);
		return 0;
	case SIOCGIFNETMASK:
		put_addr(r, 0xff000000);
		return 0;
	case SIOCGIFDSTADDR:
		put_addr(r, INADDR_LOOPBACK);
		return 0;
	case SIOCGIFBRDADDR:
		put_addr(r, 0);
		return 0;
	case SIOCGIFMTU:
		r->ifr_mtu = LO_MTU;
		return 0;
	case SIOCGIFMETRIC:
		r->ifr_metric = 0;
		return 0;
	case SIOCGIFHWADDR:
		memset(&r->ifr_hwaddr, 0, sizeof(r->ifr_hwaddr));
		r->ifr_hwaddr.sa_family = ARPHRD_LOOPBACK;
		return 0;
	case SIOCGIFINDEX:
		r->ifr_ifindex = LO_INDEX;
		return 0;
	case SIOCGIFTXQLEN:
		r->ifr_qlen = 1000;
		return 0;
	case SIOCGIFMAP:
		memset(&r->ifr_map, 0, sizeof(r->ifr_map));
		return 0;
	}
	return -ENOIOCTLCMD;
}

static bool is_set_cmd(unsigned cmd)
{
	switch (cmd) {
	case SIOCSIFFLAGS:
	case SIOCSIFADDR:
	case SIOCSIFNETMASK:
	case SIOCSIFDSTADDR:
	case SIOCSIFBRDADDR:
	case SIOCSIFMTU:
	case SIOCSIFMETRIC:
	case SIOCSIFHWADDR:
	case SIOCSIFTXQLEN:
	case SIOCSIFNAME:
		return true;
	}
	return false;
}

long netdev_ioctl(struct task *t, struct socket *s, unsigned cmd, uint64_t arg)
{
	struct ifreq r;
	long err;

	(void)s;
	if (cmd == SIOCGIFCONF)
		return get_conf(t, arg);
	if (cmd < SIOCGIFNAME || cmd > SIOCSIFTXQLEN)
		return -ENOIOCTLCMD;
	if (is_set_cmd(cmd))
		return -EPERM;
	if (copyin_obj(t, &r, gaddr(arg)))
		return -EFAULT;
	if (cmd == SIOCGIFNAME) {
		if (r.ifr_ifindex != LO_INDEX)
			return -ENODEV;
		memcpy(r.ifr_name, "lo", 3);
		return copyout_obj(t, gaddr(arg), &r);
	}
	r.ifr_name[IFNAMSIZ - 1] = '\0';
	if (strcmp(r.ifr_name, "lo") != 0)
		return -ENODEV;
	err = fill(&r, cmd);
	return err ? err : copyout_obj(t, gaddr(arg), &r);
}
