// SPDX-License-Identifier: Apache-2.0
/*
 * As much of D-Bus as it takes to ask a service manager for something: method calls and signals over the
 * manager's own socket, where no bus daemon is in between. See dbus.c.
 */
#ifndef RUNTIME_DBUS_H
#define RUNTIME_DBUS_H

#include "base/cursor.h"

#define DBUS_MAX_MESSAGE 65536

struct dbus;

struct dbus_message {
	unsigned type; /* DBUS_REPLY ... */
	uint32_t reply_to;
	char member[64], error[128];
	struct cursor body; /* valid until the next message is read */
	const uint8_t *start;
};

enum { DBUS_CALL = 1, DBUS_REPLY, DBUS_ERROR, DBUS_SIGNAL };

/* Connects and authenticates as our user; NULL and errno. */
struct dbus *dbus_connect(const char *socket_path);
void dbus_close(struct dbus *d);

/* Arguments, in the order of the signature. */
void dbus_push_align(struct writer *w, size_t n);
void dbus_push_string(struct writer *w, const char *s);
void dbus_push_u32(struct writer *w, uint32_t v);
void dbus_push_u64(struct writer *w, uint64_t v);
void dbus_push_signature(struct writer *w, const char *sig);
/* A string or object path of a body into @buf; false when there is none that fits. */
bool dbus_pull_string(struct dbus_message *m, char *buf, size_t size);
uint32_t dbus_pull_u32(struct dbus_message *m);

/* A call and its reply: 0, or -errno; -EREMOTEIO: an error reply, with its name and text in *m. */
int dbus_call(struct dbus *d, const char *path, const char *iface, const char *member, const char *sig,
	      const struct writer *args, struct dbus_message *m);
/* The next message. 0 or -errno; -ETIMEDOUT. */
int dbus_read(struct dbus *d, struct dbus_message *m);

#endif
