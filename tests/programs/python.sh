#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# python3: its concurrency libraries, and modules of its own regression suite.
. "$TOP/tests/programs/lib.sh"

same asyncio_threads_processes '
cat >/tmp/t.py <<"END"
import asyncio, threading, multiprocessing, subprocess, sqlite3, mmap, os, signal, socket, tempfile
async def main():
    p = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    print((await p.communicate())[0])
    async def tick(n):
        await asyncio.sleep(n / 100)
        return n
    print(await asyncio.gather(*[tick(i) for i in range(20)]))
    a, b = socket.socketpair()
    r, w = await asyncio.open_connection(sock=a)
    b.send(b"x" * 1000)
    print(len(await r.readexactly(1000)))
    w.close()
asyncio.run(main())
total = 0
lock = threading.Lock()
def work():
    global total
    for _ in range(1000):
        with lock:
            total += 1
ts = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(total)
with multiprocessing.Pool(4) as pool:
    print(sum(pool.map(abs, range(-500, 500))))
q = multiprocessing.Queue()
p = multiprocessing.Process(target=lambda: q.put("from child"))
p.start(); print(q.get()); p.join(); print(p.exitcode)
print(subprocess.run("cat; exit 3", shell=True, input=b"in", capture_output=True))
db = sqlite3.connect(tempfile.mktemp())
db.execute("create table t(a)"); db.executemany("insert into t values(?)", [(i,) for i in range(1000)]); db.commit()
print(db.execute("select sum(a) from t").fetchone())
with open("/tmp/m", "wb+") as f:
    f.truncate(8192)
    m = mmap.mmap(f.fileno(), 8192)
    if os.fork() == 0:
        m[5000:5005] = b"child"
        os._exit(0)
    os.wait(); f.seek(5000); print(f.read(5), m[5000:5005])
signal.signal(signal.SIGALRM, lambda *a: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.05); signal.pause()
END
python3 /tmp/t.py'

# Modules of the regression suite, all in one sandbox and three at a time (most of what the long ones do is
# sleep), the longest first. A case is left out only if it has no chance yet; each says why.
MODULES="test_multiprocessing_fork test_signal test_io test_subprocess test_selectors test_threading test_fork1
	test_wait3 test_wait4 test_os test_posix test_mmap test_fcntl test_select test_epoll test_tempfile test_shutil
	test_stat test_pty test_resource test_time test_posixpath test_glob test_file test_fileio test_mailbox
	test_pathlib"

# AF_INET sockets, which the sandbox doesn't have yet:
EXCLUDE='
	test.test_os.TestSendfile.*
	*.WakeupFDTests.test_invalid_socket
	*.WakeupFDTests.test_set_wakeup_fd_socket_result
	*.TestCloseFds.test_closefd
	*.TestTimeouts.test_timeout
	*.TestWait.test_wait_socket
	*.TestWait.test_wait_socket_slow
	*TestManagerRestart.test_rapid_restart
	*TestRemoteManager.test_remote
	*TestListener.test_multiple_bind
	*TestListenerClient.test_issue16955
	*TestListenerClient.test_listener_client
	*TestPicklingConnections.test_pickling
'
# Fails natively as well, where the root is a new and empty layer over an image: it wants some space to be used.
EXCLUDE+='
	*.TestMisc.test_disk_usage
'
set -f
skip=
for e in $EXCLUDE; do
	skip+=" -i $e"
done
# Every case of test_epoll wants a pair of AF_INET sockets, and a connect that isn't finished at once: here it
# gets unix ones, and is told that.
LIMIT=600 in_sandbox 'mkdir -p /tmp/site && cat >/tmp/site/sitecustomize.py <<"END"
import errno, socket, sys
if sys.orig_argv[-1].endswith("\"test_epoll\"]"): # the worker for this module
    class Socket(socket.socket):
        def __init__(self, family=socket.AF_UNIX, *args, **kwargs):
            super().__init__(family, *args, **kwargs)
        def connect(self, address):
            super().connect(Socket.server)
            raise OSError(errno.EINPROGRESS, "said to be")
    def create_server(address):
        s = Socket()
        s.bind("")
        s.listen()
        Socket.server = s.getsockname()
        return s
    socket.socket, socket.create_server = Socket, create_server
END
cd /tmp && set -f && PYTHONPATH=/tmp/site python3 -m test -u none -j3 --timeout 400 '"$skip $(echo $MODULES)" \
	>"$WORK/regrtest" 2>&1
set +f
for m in $MODULES; do
	NAME=regrtest_$m
	grep -qE "\] $m passed" "$WORK/regrtest"
	s=$?
	if [ $s -ne 0 ]; then # what it printed, or if it never ran, the end of all
		sed -n "/\] $m /,/^[0-9:]* load avg/p" "$WORK/regrtest" | tail -60 >"$WORK/tail"
		[ -s "$WORK/tail" ] || tail -20 "$WORK/regrtest" >"$WORK/tail"
	fi
	report "$NAME" $s "$WORK/tail"
done
finish
