# SPDX-License-Identifier: Apache-2.0
"""Commands of holdfast that are driven through a pty of their own."""
import fcntl
import os
import pty
import select
import struct
import termios
import time

from _lib import HOLDFAST, STATE


def set_size(fd, rows, cols):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


class Term:
    """A command on a pty of its own."""

    def __init__(self, *args, rows=30, cols=100):
        self.out = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            set_size(0, rows, cols)
            os.execv(HOLDFAST, [HOLDFAST, "--root", STATE, *args])
        self.before = termios.tcgetattr(self.fd)

    def read(self, timeout):
        if select.select([self.fd], [], [], timeout)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            self.out += data
            return bool(data)
        return False

    def expect(self, text, timeout=15.0):
        """Reads until @text has come; what came up to its end is dropped."""
        end = time.monotonic() + timeout
        while text.encode() not in self.out:
            assert time.monotonic() < end, (text, self.out)
            self.read(0.1)
        before, _, self.out = self.out.partition(text.encode())
        return before.decode(errors="replace")

    def send(self, text):
        os.write(self.fd, text.encode())

    def raw(self):
        return not termios.tcgetattr(self.fd)[3] & termios.ICANON

    def wait(self, timeout=15.0):
        """Exit status (negative: signal)."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pid, st = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(1):  # what is still on its way, up to the end
                    pass
                return os.waitstatus_to_exitcode(st)
            self.read(0.05)
        raise AssertionError(("no end", self.out))

    def close(self):
        os.close(self.fd)
