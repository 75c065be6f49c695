// SPDX-License-Identifier: Apache-2.0
/*
 * NETLINK_ROUTE (man 7 rtnetlink): dumps of links, addresses and routes. There is only lo, so answers
 * are built from constants. Changes are refused: EPERM without CAP_NET_ADMIN, else EOPNOTSUPP.
 */
#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <string.h>

#include "base/err.h"
#include "sentry/kernel/cred.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/netlink/netlink_priv.h"
#include "sentry/socket/netns.h"
#include "sentry/socket/socket.h"

#define LO_INDEX 1

static void attr_u32(struct nl_reply *r, uint16_t type, uint32_t v)
{
	nl_attr(r, type, &v, sizeof(v));
}

static void attr_u8(struct nl_reply *r, uint16_t type, uint8_t v)
{
	nl_attr(r, type, &v, sizeof(v));
}

static void put_link(struct nl_reply *r, uint16_t flags)
{
	const struct ifinfomsg ifi = { .ifi_type = ARPHRD_LOOPBACK,
				       .ifi_index = LO_INDEX,
				       .ifi_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING |
						    0x10000 /* IFF_LOWER_UP */ };
	const struct rtnl_link_stats64 stats = { 0 };
	const uint8_t mac[6] = { 0 };

	nl_begin(r, RTM_NEWLINK, flags, &ifi, sizeof(ifi));
	nl_attr(r, IFLA_IFNAME, "lo", 3);
	attr_u32(r, IFLA_TXQLEN, 1000);
	attr_u8(r, IFLA_OPERSTATE, 0);
	attr_u8(r, IFLA_LINKMODE, 0);
	attr_u32(r, IFLA_MTU, 65536);
	attr_u32(r, IFLA_GROUP, 0);
	attr_u32(r, IFLA_PROMISCUITY, 0);
	attr_u32(r, IFLA_NUM_TX_QUEUES, 1);
	attr_u32(r, IFLA_NUM_RX_QUEUES, 1);
	attr_u8(r, IFLA_CARRIER, 1);
	nl_attr(r, IFLA_QDISC, "noqueue", 8);
	nl_attr(r, IFLA_ADDRESS, mac, sizeof(mac));
	nl_attr(r, IFLA_BROADCAST, mac, sizeof(mac));
	nl_attr(r, IFLA_STATS64, &stats, sizeof(stats));
	nl_end(r);
}

static void put_addr(struct nl_reply *r, uint16_t flags)
{
	const struct ifaddrmsg ifa = { .ifa_family = AF_INET,
				       .ifa_prefixlen = 8,
				       .ifa_flags = IFA_F_PERMANENT,
				       .ifa_scope = RT_SCOPE_HOST,
				       .ifa_index = LO_INDEX };
	const struct ifa_cacheinfo cache = { .ifa_prefered = ~0u, .ifa_valid = ~0u };
	const uint32_t lo = htonl(INADDR_LOOPBACK);

	nl_begin(r, RTM_NEWADDR, flags, &ifa, sizeof(ifa));
	nl_attr(r, IFA_ADDRESS, &lo, sizeof(lo));
	nl_attr(r, IFA_LOCAL, &lo, sizeof(lo));
	nl_attr(r, IFA_LABEL, "lo", 3);
	attr_u32(r, IFA_FLAGS, IFA_F_PERMANENT);
	nl_attr(r, IFA_CACHEINFO, &cache, sizeof(cache));
	nl_end(r);
}

static void put_route(struct nl_reply *r, uint16_t flags, uint32_t dst, uint8_t prefix, uint8_t type,
		      uint8_t scope)
{
	const struct rtmsg rtm = { .rtm_family = AF_INET,
				   .rtm_dst_len = prefix,
				   .rtm_table = RT_TABLE_LOCAL,
				   .rtm_protocol = RTPROT_KERNEL,
				   .rtm_scope = scope,
				   .rtm_type = type };
	const uint32_t to = htonl(dst), src = htonl(INADDR_LOOPBACK);

	nl_begin(r, RTM_NEWROUTE, flags, &rtm, sizeof(rtm));
	attr_u32(r, RTA_TABLE, RT_TABLE_LOCAL);
	nl_attr(r, RTA_DST, &to, sizeof(to));
	nl_attr(r, RTA_PREFSRC, &src, sizeof(src));
	attr_u32(r, RTA_OIF, LO_INDEX);
	nl_end(r);
}

static void dump_routes(struct nl_reply *r)
{
	put_route(r, NLM_F_MULTI, 0x7f000000, 8, RTN_LOCAL, RT_SCOPE_HOST);
	put_route(r, NLM_F_MULTI, INADDR_LOOPBACK, 32, RTN_LOCAL, RT_SCOPE_HOST);
	put_route(r, NLM_F_MULTI, 0x7fffffff, 32, RTN_BROADCAST, RT_SCOPE_LINK);
}

/* RTM_GETLINK for one device, by index or IFLA_IFNAME. */
static int get_link(const uint8_t *payload, size_t len, struct nl_reply *r)
{
	struct ifinfomsg ifi;
	size_t off = NLMSG_ALIGN(sizeof(ifi));

	if (len < sizeof(ifi))
		return -EINVAL;
	memcpy(&ifi, payload, sizeof(ifi));
	if (ifi.ifi_index > 0) {
		if (ifi.ifi_index != LO_INDEX)
			return -ENODEV;
		put_link(r, 0);
		return 0;
	}
	while (len >= off + sizeof(struct rtattr)) {
		struct rtattr a;

		memcpy(&a, payload + off, sizeof(a));
		if (a.rta_len < sizeof(a) || a.rta_len > len - off)
			return -EINVAL;
		if (a.rta_type == IFLA_IFNAME) {
			if (a.rta_len < sizeof(a) + 2 || memcmp(payload + off + sizeof(a), "lo", 2) != 0)
				return -ENODEV;
			if (a.rta_len > sizeof(a) + 2 && payload[off + sizeof(a) + 2] != '\0')
				return -ENODEV;
			put_link(r, 0);
			return 0;
		}
		off += RTA_ALIGN(a.rta_len);
	}
	return -EINVAL;
}

/* Does a dump of family @fam (first byte of the payload) show IPv4? */
static bool wants_inet(const uint8_t *payload, size_t len)
{
	return len == 0 || payload[0] == AF_UNSPEC || payload[0] == AF_INET;
}

static int dump(uint16_t type, const uint8_t *payload, size_t len, struct nl_reply *r)
{
	switch (type) {
	case RTM_GETLINK:
		put_link(r, NLM_F_MULTI);
		return 0;
	case RTM_GETADDR:
		if (wants_inet(payload, len))
			put_addr(r, NLM_F_MULTI);
		return 0;
	case RTM_GETROUTE:
		if (wants_inet(payload, len))
			dump_routes(r);
		return 0;
	case RTM_GETNEIGH:
	case RTM_GETRULE:
	case RTM_GETQDISC:
	case RTM_GETTCLASS:
	case RTM_GETNEIGHTBL:
		return 0; /* an empty list */
	}
	return -EOPNOTSUPP;
}

int rtnl_request(struct task *t, struct socket *s, const struct nlmsghdr *h, const uint8_t *payload,
		 size_t len, struct nl_reply *r, bool *ret_done)
{
	uint16_t type = h->nlmsg_type;
	int err;

	*ret_done = false;
	if (type < RTM_BASE || type > RTM_MAX)
		return -EOPNOTSUPP;
	/* Each object has four types: new, delete, get, set. */
	if ((type & 3) != 2) {
		if (!cred_capable_in(task_cred(t), netns_userns(s->net), CAP_NET_ADMIN))
			return -EPERM;
		return -EOPNOTSUPP;
	}
	if ((h->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP || (h->nlmsg_flags & NLM_F_ROOT)) {
		err = dump(type, payload, len, r);
		*ret_done = err == 0;
		return err;
	}
	if (type == RTM_GETLINK)
		return get_link(payload, len, r);
	if (type == RTM_GETROUTE)
		return -ENETUNREACH;
	return -EOPNOTSUPP;
}
