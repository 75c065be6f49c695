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

# Excluded cases fail natively in a plain container as well, or need what a sandbox without a network lacks.
for m in test_os test_posix test_subprocess test_signal test_threading test_mmap test_fcntl test_select test_selectors \
	test_epoll test_tempfile test_shutil test_stat test_pty test_resource test_time test_io \
	test_multiprocessing_fork; do
	skip=
	case $m in
	test_os) skip='-i test_getrandom0 -i *Sendfile* -i test_copy_file_range_offset' ;;
	esac
	works "regrtest_$m" "cd /tmp && set -f && python3 -m test -u none --timeout 240 $skip $m"
done
finish
