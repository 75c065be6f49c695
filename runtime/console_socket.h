// SPDX-License-Identifier: Apache-2.0
/* --console-socket: the protocol that runc's callers speak. */
#ifndef RUNTIME_CONSOLE_SOCKET_H
#define RUNTIME_CONSOLE_SOCKET_H

#include <sys/types.h>

/* Makes a host pty, sends its master to the unix socket at @path with the slave's name as data, and
 * returns the slave, in raw mode (the guest's own terminal does the line discipline). -1 with *ret_why. */
int console_socket_send(const char *path, char **ret_why);

/* Sends a pidfd of @pid to the unix socket at @path (--pidfd-socket, as runc's). 0, or -1 with *ret_why. */
int pidfd_socket_send(const char *path, pid_t pid, char **ret_why);

#endif
