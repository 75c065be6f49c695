#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Load, and guests that want everything.
. "$TOP/tests/programs/lib.sh"

for s in cpu vm pipe fork clone futex signal timer; do
	extra=
	case $s in vm) extra='--vm-bytes 32M' ;; timer) extra='--timer-freq 1000' ;; esac
	works "stress_ng_$s" "cd /tmp && stress-ng --verify --$s 2 $extra --timeout 4 --metrics-brief"
done
works stress_ng_file_system 'cd /tmp && stress-ng --verify --hdd 1 --hdd-bytes 8M --dentry 1 --link 1 --rename 1 --seek 1 --timeout 4'

works fork_bomb_meets_its_limit '
	cat >/tmp/bomb.py <<"END"
import os, errno, signal, time
kids = []
try:
    while len(kids) < 20000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        kids.append(pid)
    raise SystemExit("no limit")
except OSError as e:
    assert e.errno == errno.EAGAIN, e
print(len(kids), "children")
for k in kids:
    os.kill(k, 9)
for k in kids:
    os.waitpid(k, 0)
END
	su -s /bin/bash nobody -c "ulimit -u 300; python3 /tmp/bomb.py" && echo alive && ls / >/dev/null'

works memory_hog_meets_its_limit '
	python3 - <<"END"
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
held = []
try:
    while True:
        held.append(bytearray(1 << 24))
except MemoryError:
    n = len(held)
    held.clear()
    print("stopped after", n, "x 16 MiB")
    assert 20 < n < 64
END
	ls / >/dev/null'
finish
