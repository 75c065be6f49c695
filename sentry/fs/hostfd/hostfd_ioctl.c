// SPDX-License-Identifier: Apache-2.0
/*
 * ioctl on host descriptors. A program only wants to know whether it talks to a terminal and how wide it
 * is; everything that changes the caller's terminal, or pushes input into it (TIOCSTI), is refused.
 */
#include "sentry/fs/hostfd/hostfd_ioctl.h"

#include <sys/ioctl.h>

#include "base/err.h"
#include "sentry/mm/usermem.h"

#define L_TERMIOS_SIZE 36 /* the kernel's struct termios, smaller than libc's */

long hostfd_do_ioctl(struct task *t, int fd, bool tty, unsigned cmd, uint64_t arg)
{
	uint8_t termios[64] = { 0 };
	struct winsize ws;
	int n;

	switch (cmd) {
	case TCGETS:
		if (!tty)
			return -ENOTTY;
		if (ioctl(fd, TCGETS, termios) < 0) /* host: ioctl TCGETS */
			return -errno;
		return copyout(t, gaddr(arg), termios, L_TERMIOS_SIZE);
	case TIOCGWINSZ:
		if (!tty)
			return -ENOTTY;
		if (ioctl(fd, TIOCGWINSZ, &ws) < 0) /* host: ioctl TIOCGWINSZ */
			return -errno;
		return copyout_obj(t, gaddr(arg), &ws);
	case FIONREAD:
		if (ioctl(fd, FIONREAD, &n) < 0) /* host: ioctl FIONREAD */
			return -errno;
		return copyout_obj(t, gaddr(arg), &n);
	}
	return -ENOIOCTLCMD;
}
