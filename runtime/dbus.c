// SPDX-License-Identifier: Apache-2.0
/*
 * A client for D-Bus, point to point (D-Bus specification 0.38: "Authentication Protocol", "Message
 * Protocol"). There is no library for it that can be linked statically, and we make three calls.
 *
 * Little endian only, messages up to 64 KiB, no descriptors, no introspection. The other end is the host's
 * service manager; its messages are read through a cursor all the same.
 */
#include "runtime/dbus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

#define TIMEOUT_S 30
#define HEADER 16 /* up to and including the length of the fields */

enum { FIELD_PATH = 1, FIELD_INTERFACE, FIELD_MEMBER, FIELD_ERROR, FIELD_REPLY_SERIAL, FIELD_DESTINATION,
       FIELD_SENDER, FIELD_SIGNATURE };

struct dbus {
	int sock;
	uint32_t serial;
	uint8_t in[DBUS_MAX_MESSAGE], out[DBUS_MAX_MESSAGE];
};

/* ---- connecting ---- */

static int read_line(int sock, char *buf, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		ssize_t r = recv(sock, buf + n, 1, 0);

		if (r <= 0)
			return r < 0 ? -errno : -ECONNRESET;
		if (buf[n++] == '\n') {
			buf[n] = 0;
			return 0;
		}
	}
	return -EPROTO;
}

static int send_all(int sock, const void *buf, size_t len)
{
	return send(sock, buf, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -(errno ? errno : EPIPE);
}

/*
 * SASL's EXTERNAL: the socket's credentials say who we are, we say it in hexadecimal digits. All in one packet
 * and before the answer: systemd doesn't look at a message that reaches it together with BEGIN until there
 * is more to read, so BEGIN has to be behind it when the first one is sent.
 */
static int authenticate(int sock)
{
	char uid[16], hello[96] = "AUTH EXTERNAL ", line[256];
	int r;

	snprintf(uid, sizeof(uid), "%u", geteuid());
	for (const char *p = uid; *p; p++)
		snprintf(hello + strlen(hello), sizeof(hello) - strlen(hello), "%02x", (unsigned char)*p);
	snprintf(hello + strlen(hello), sizeof(hello) - strlen(hello), "\r\nBEGIN\r\n");
	r = send_all(sock, "", 1); /* a NUL byte carries the credentials */
	if (!r)
		r = send_all(sock, hello, strlen(hello));
	if (!r)
		r = read_line(sock, line, sizeof(line));
	return !r && strncmp(line, "OK ", 3) != 0 ? -EACCES : r;
}

struct dbus *dbus_connect(const char *socket_path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct timeval tv = { .tv_sec = TIMEOUT_S };
	AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct dbus *d;
	int r;

	if (sock < 0 || strlen(socket_path) >= sizeof(a.sun_path))
		return NULL;
	memcpy(a.sun_path, socket_path, strlen(socket_path) + 1);
	if (setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) ||
	    connect(sock, (struct sockaddr *)&a, sizeof(a)))
		return NULL;
	r = authenticate(sock);
	if (r) {
		errno = -r;
		return NULL;
	}
	d = kzalloc(sizeof(*d));
	d->sock = steal_fd(&sock);
	return d;
}

void dbus_close(struct dbus *d)
{
	if (!d)
		return;
	close(d->sock);
	free(d);
}

/* ---- writing ---- */

void dbus_push_align(struct writer *w, size_t n)
{
	while (writer_ok(w) && w->used % n)
		push_u8(w, 0);
}

void dbus_push_u32(struct writer *w, uint32_t v)
{
	dbus_push_align(w, 4);
	push_u32(w, v);
}

void dbus_push_u64(struct writer *w, uint64_t v)
{
	dbus_push_align(w, 8);
	push_u64(w, v);
}

void dbus_push_string(struct writer *w, const char *s)
{
	dbus_push_u32(w, (uint32_t)strlen(s));
	push_bytes(w, s, strlen(s) + 1);
}

void dbus_push_signature(struct writer *w, const char *sig)
{
	push_u8(w, (uint8_t)strlen(sig));
	push_bytes(w, sig, strlen(sig) + 1);
}

static void push_field(struct writer *w, uint8_t code, const char *sig, const char *value)
{
	dbus_push_align(w, 8);
	push_u8(w, code);
	dbus_push_signature(w, sig);
	if (sig[0] == 'g')
		dbus_push_signature(w, value);
	else
		dbus_push_string(w, value);
}

static int send_call(struct dbus *d, const char *path, const char *iface, const char *member, const char *sig,
		     const struct writer *args)
{
	struct writer w, len;
	size_t end;

	writer_init(&w, d->out, sizeof(d->out));
	push_u8(&w, 'l');
	push_u8(&w, DBUS_CALL);
	push_u8(&w, 0);
	push_u8(&w, 1); /* of the protocol */
	push_u32(&w, args ? (uint32_t)args->used : 0);
	push_u32(&w, ++d->serial);
	push_u32(&w, 0); /* length of the fields: below */
	push_field(&w, FIELD_PATH, "o", path);
	push_field(&w, FIELD_DESTINATION, "s", "org.freedesktop.systemd1");
	push_field(&w, FIELD_INTERFACE, "s", iface);
	push_field(&w, FIELD_MEMBER, "s", member);
	if (sig)
		push_field(&w, FIELD_SIGNATURE, "g", sig);
	end = w.used;
	writer_init(&len, d->out + HEADER - 4, 4);
	push_u32(&len, (uint32_t)(end - HEADER));
	dbus_push_align(&w, 8);
	if (args)
		push_bytes(&w, args->p, args->used);
	if (!writer_ok(&w) || (args && !writer_ok(args)))
		return -EMSGSIZE;
	return send_all(d->sock, d->out, w.used);
}

/* ---- reading ---- */

static int recv_all(struct dbus *d, size_t off, size_t len)
{
	while (len) {
		ssize_t n = recv(d->sock, d->in + off, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static void skip_to(struct cursor *c, const uint8_t *start, size_t n)
{
	while (cursor_ok(c) && c->left && (size_t)(c->p - start) % n)
		(void)pull_u8(c);
}

static bool pull_string(struct cursor *c, const uint8_t *start, char *buf, size_t size)
{
	uint32_t len;
	const char *s;

	skip_to(c, start, 4);
	len = pull_u32(c);
	s = len < DBUS_MAX_MESSAGE ? pull_bytes(c, (size_t)len + 1) : NULL;
	if (!s || len >= size || s[len])
		return false;
	memcpy(buf, s, (size_t)len + 1);
	return true;
}

bool dbus_pull_string(struct dbus_message *m, char *buf, size_t size)
{
	return pull_string(&m->body, m->start, buf, size);
}

uint32_t dbus_pull_u32(struct dbus_message *m)
{
	skip_to(&m->body, m->start, 4);
	return pull_u32(&m->body);
}

/* One header field; what we don't need is passed over. */
static void read_field(struct dbus *d, struct cursor *c, struct dbus_message *m)
{
	char ignored[512], sig;
	uint8_t code;

	skip_to(c, d->in, 8);
	if (!c->left)
		return;
	code = pull_u8(c);
	(void)pull_u8(c); /* the signature is one character long in all fields */
	sig = (char)pull_u8(c);
	(void)pull_u8(c);
	if (sig == 'u') {
		uint32_t v;

		skip_to(c, d->in, 4);
		v = pull_u32(c);
		if (code == FIELD_REPLY_SERIAL)
			m->reply_to = v;
	} else if (sig == 'g') {
		(void)pull_bytes(c, (size_t)pull_u8(c) + 1);
	} else if (code == FIELD_MEMBER) {
		(void)pull_string(c, d->in, m->member, sizeof(m->member)); /* another one then */
	} else if (code == FIELD_ERROR) {
		(void)pull_string(c, d->in, m->error, sizeof(m->error)); /* stays empty */
	} else {
		(void)pull_string(c, d->in, ignored, sizeof(ignored)); /* not of interest */
	}
}

int dbus_read(struct dbus *d, struct dbus_message *m)
{
	uint32_t body, fields;
	size_t head;
	struct cursor c;
	int r = recv_all(d, 0, HEADER);

	if (r)
		return r;
	memset(m, 0, sizeof(*m));
	cursor_init(&c, d->in, HEADER);
	if (pull_u8(&c) != 'l')
		return -EPROTO;
	m->type = pull_u8(&c);
	(void)pull_u16(&c);
	body = pull_u32(&c);
	(void)pull_u32(&c);
	fields = pull_u32(&c);
	if (body > DBUS_MAX_MESSAGE || fields > DBUS_MAX_MESSAGE)
		return -EMSGSIZE;
	head = (HEADER + (size_t)fields + 7) & ~(size_t)7;
	if (head + body > sizeof(d->in))
		return -EMSGSIZE;
	r = recv_all(d, HEADER, head + body - HEADER);
	if (r)
		return r;
	cursor_init(&c, d->in + HEADER, fields);
	while (cursor_ok(&c) && c.left)
		read_field(d, &c, m);
	if (!cursor_ok(&c))
		return -EPROTO;
	m->start = d->in + head;
	cursor_init(&m->body, m->start, body);
	return 0;
}

int dbus_call(struct dbus *d, const char *path, const char *iface, const char *member, const char *sig,
	      const struct writer *args, struct dbus_message *m)
{
	int r = send_call(d, path, iface, member, sig, args);

	while (!r) {
		r = dbus_read(d, m);
		if (!r && m->reply_to == d->serial && m->type == DBUS_REPLY)
			return 0;
		if (!r && m->reply_to == d->serial && m->type == DBUS_ERROR)
			return -EREMOTEIO;
	}
	return r;
}
