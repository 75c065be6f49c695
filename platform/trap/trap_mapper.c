// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry's side of the mapper, the thread of each stub that carries out mapping operations
 * (platform/stub/mapper.S). A batch is ordered by a counter in the stub's read-only pages, and its end
 * is told over the stub's socket, to which no guest thread has a descriptor: so what is said to be done is
 * done, whatever the guest has made of its own threads. When the process dies, the socket ends.
 *
 * Any thread of ours may order a batch, whether guest threads of that process run or not.
 *
 * The mapper and whoever waits for it never run at the same time, and waking a thread on another, idle
 * CPU is dear (host_pin.c). So the mapper is bound to the CPU where the waiting thread is.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "platform/trap/trap_priv.h"

static ssize_t hear(const struct host_stub *s, void *buf, size_t len)
{
	ssize_t n;

	do {
		n = HOST(RECV, recv(s->sock, buf, len, 0)); /* host: recvfrom */
	} while (n < 0 && errno == EINTR);
	return n;
}

/*
 * Waits until the stub's first thread has told the mapper's id, and the mapper that it has its filter, in
 * either order: no guest code may run before, since the filter's text is in memory that guests can write.
 * 0 or -errno: the stub is dead.
 */
int mapper_ready(struct host_stub *s)
{
	int64_t tid = 0, word;

	for (int i = 0; i < 2; i++) {
		ssize_t n = hear(s, &word, sizeof(word));

		if (n <= 0)
			return -ESRCH;
		if (n == sizeof(word))
			tid = word;
	}
	if (tid <= 0 || tid > INT32_MAX)
		return -ESRCH;
	s->mapper = (int)tid;
	s->mapper_cpu = -1;
	return 0;
}

static void bring_near(struct host_stub *s)
{
	int cpu = sched_getcpu(); /* host: getcpu, mostly by rseq */
	cpu_set_t one;

	if (cpu < 0 || cpu >= CPU_SETSIZE || cpu == s->mapper_cpu)
		return;
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	/* host: sched_setaffinity. Only speed depends on it. */
	(void)HOST(AFFINITY, sched_setaffinity(s->mapper, sizeof(one), &one));
	s->mapper_cpu = cpu;
}

/* Returns when the first @n operations of the ops pages are in force; false: the process is dead.
 * Context: as.mu, of a stub that has an address space. */
bool mapper_run(struct host_stub *s, unsigned n)
{
	char byte;

	bring_near(s);
	WRITE_ONCE(s->ctl->n, n);
	__atomic_store_n(&s->ctl->seq, ++s->batches, __ATOMIC_SEQ_CST);
	/* All, since a guest thread may sleep there to catch it. host: futex */
	(void)HOST(FUTEX, syscall(SYS_futex, &s->ctl->seq, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0));
	return hear(s, &byte, 1) == 1;
}
