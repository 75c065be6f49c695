// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/PID/net: of the process's network namespace. The socket families export their tables; a family
 * that isn't linked in has an empty one, with its heading.
 */
#include "sentry/fs/proc/proc_priv.h"

void unix_show_proc(struct netns *ns, struct seqbuf *out) __weak;
void inet_show_proc(struct netns *ns, int family, int proto, struct seqbuf *out) __weak;
void netlink_show_proc(struct netns *ns, struct seqbuf *out) __weak;
void netns_show_dev(struct netns *ns, struct seqbuf *out) __weak;
void netns_show_route(struct netns *ns, struct seqbuf *out) __weak;

static struct netns *netns_of(struct pfs_inode *pi)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct nsproxy *ns = t ? task_ns_get(t) : NULL;
	struct netns *net;

	if (!ns)
		return NULL;
	net = netns_get(ns->net);
	nsproxy_put(ns);
	return net;
}

static int with_net(struct pfs_inode *pi, struct seqbuf *out,
		    void (*show)(struct netns *ns, struct seqbuf *out))
{
	struct netns *ns = netns_of(pi);

	if (!ns)
		return -ESRCH;
	if (show)
		show(ns, out);
	netns_put(ns);
	return 0;
}

static int show_unix(struct pfs_inode *pi, struct seqbuf *out)
{
	if (!unix_show_proc)
		seq_printf(out, "Num       RefCount Protocol Flags    Type St Inode Path\n");
	return with_net(pi, out, unix_show_proc);
}

#define INET_HEADING                                                                     \
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  " \
	"timeout inode"
#define INET6_HEADING                                                                    \
	"  sl  local_address                         remote_address                        st " \
	"tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"

static int show_inet(struct pfs_inode *pi, struct seqbuf *out, int family, int proto)
{
	struct netns *ns = netns_of(pi);

	if (!ns)
		return -ESRCH;
	if (inet_show_proc)
		inet_show_proc(ns, family, proto, out);
	netns_put(ns);
	return 0;
}

static int show_tcp(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%-149s\n", INET_HEADING);
	return show_inet(pi, out, 2, 6);
}

static int show_tcp6(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%s\n", INET6_HEADING);
	return show_inet(pi, out, 10, 6);
}

static int show_udp(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%-127s\n", INET_HEADING " ref pointer drops");
	return show_inet(pi, out, 2, 17);
}

static int show_udp6(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%s\n", INET6_HEADING " ref pointer drops");
	return show_inet(pi, out, 10, 17);
}

static int show_raw(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%s\n", INET_HEADING " ref pointer drops");
	return show_inet(pi, out, 2, 255);
}

static int show_raw6(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%s\n", INET6_HEADING " ref pointer drops");
	return show_inet(pi, out, 10, 255);
}

static int show_netlink(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    "
			"Drops    Inode\n");
	return with_net(pi, out, netlink_show_proc);
}

/* Only loopback, unless the namespace says more. */
static int show_dev(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "Inter-|   Receive                                                |  "
			"Transmit\n"
			" face |bytes    packets errs drop fifo frame compressed multicast|bytes    "
			"packets errs drop fifo colls carrier compressed\n");
	if (!netns_show_dev)
		seq_printf(out, "    lo:       0       0    0    0    0     0          0         0"
				"        0       0    0    0    0     0       0          0\n");
	return with_net(pi, out, netns_show_dev);
}

static int show_route(struct pfs_inode *pi, struct seqbuf *out)
{
	seq_printf(out, "%-127s\n", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\t"
				    "Mask\t\tMTU\tWindow\tIRTT");
	return with_net(pi, out, netns_show_route);
}

const struct pfs_node proc_net_nodes[] = {
	PROC_TEXT("arp", "IP address       HW type     Flags       HW address            Mask     "
			 "Device\n"),
	PROC_FILE("dev", show_dev),
	PROC_TEXT("dev_mcast", ""),
	PROC_TEXT("fib_trie", ""),
	PROC_TEXT("icmp", ""),
	PROC_TEXT("if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n"),
	PROC_TEXT("igmp", "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n"),
	PROC_TEXT("ipv6_route", ""),
	PROC_FILE("netlink", show_netlink),
	PROC_TEXT("netstat", "TcpExt:\nTcpExt:\nIpExt:\nIpExt:\n"),
	PROC_TEXT("packet", "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n"),
	PROC_TEXT("protocols", "protocol  size sockets  memory press maxhdr  slab module     cl co di "
			       "ac io in de sh ss gs se re sp bi br ha uh gp em\n"),
	PROC_TEXT("psched", "000003e8 00000040 000f4240 3b9aca00\n"),
	PROC_TEXT("ptype", "Type Device      Function\n"),
	PROC_FILE("raw", show_raw),
	PROC_FILE("raw6", show_raw6),
	PROC_FILE("route", show_route),
	PROC_TEXT("snmp", "Ip: Forwarding DefaultTTL\nIp: 2 64\n"),
	PROC_TEXT("snmp6", ""),
	PROC_TEXT("sockstat", "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\n"
			      "UDP: inuse 0 mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\n"
			      "FRAG: inuse 0 memory 0\n"),
	PROC_TEXT("sockstat6", "TCP6: inuse 0\nUDP6: inuse 0\nUDPLITE6: inuse 0\nRAW6: inuse 0\n"
			       "FRAG6: inuse 0 memory 0\n"),
	PROC_FILE("tcp", show_tcp),
	PROC_FILE("tcp6", show_tcp6),
	PROC_FILE("udp", show_udp),
	PROC_FILE("udp6", show_udp6),
	PROC_FILE("unix", show_unix),
	PROC_TEXT("wireless", ""),
	PROC_END,
};
