#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of a Debian root file system are saved, branched and moved while they work; what they say is
what they say undisturbed."""
import hashlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, all_rights, debian, delete, hf, main, restore, start, state, test, text, wait_for  # noqa: E402

SCRIPT = r"""
cd /tmp && mkdir p && cd p
for i in $(seq 12); do echo "int f$i(int x) { return x + $i; }" >f$i.c; done
printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n%%.o: %%.c\n\tgcc -O1 -c $<\n' >Makefile
make -j2 >/dev/null; ls *.o | wc -l
seq 100000 | sort -rn | gzip | gunzip | md5sum
python3 -c '
import asyncio, subprocess, threading
said = []
def child(i):
    said.append(subprocess.check_output(["sh", "-c", "sleep 0.05; echo %d" % i]))
threads = [threading.Thread(target=child, args=(i,)) for i in range(12)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(map(int, said)) == list(range(12)))
async def sleepers():
    await asyncio.gather(*[asyncio.sleep(0.1) for _ in range(50)])
    return 7
print(asyncio.run(sleepers()))'
node -e 'let n = 0; const t = setInterval(() => { if (++n == 10) { clearInterval(t); console.log("node", n) } }, 10)'
sqlite3 x.db 'create table t(a); with recursive c(x) as (select 1 union all select x + 1 from c where x < 50000)
insert into t select x from c; select sum(a) from t;'
git init -q r && cd r && seq 1000 >a && git add . && git -c user.name=t -c user.email=t@t commit -qm x && git log --oneline | wc -l
echo DONE
"""


def in_debian(conf):
    all_rights(conf)
    conf["root"]["path"] = debian()


def begin(cid):
    return start(cid, ["/bin/bash", "-c", SCRIPT], "programs", in_debian)


def is_running(cid):
    return state(cid)["status"] == "running"


def expect(said):
    numbers = "".join(f"{n}\n" for n in range(100000, 0, -1)).encode()
    lines = ["12", hashlib.md5(numbers).hexdigest() + "  -", "True", "7", "node 10", "1250025000", "1", "DONE"]
    assert said.splitlines() == lines, said


@test
def saved_again_and_again_while_they_work():
    out, n = begin("p"), 0
    while is_running("p") and n < 40:
        image = f"{IMAGE}-{n}"
        s, _, err = hf("checkpoint", "--leave-running", "--image-path", image, "p")
        assert s == 0 or "not running" in err, err
        n += 1
    assert wait_for(lambda: not is_running("p"), 60)
    assert n > 1, "ended before it was saved twice"
    expect(text(out))
    delete("p")


@test
def moved_again_and_again_while_they_work():
    said, cid, n = "", "c0", 0
    out = begin(cid)
    while n < 6:
        image = f"{IMAGE}-c{n}"
        s, _, err = hf("checkpoint", "--image-path", image, cid)
        if s:
            assert "not running" in err, err
            break
        said += text(out)
        delete(cid)
        n += 1
        cid = f"c{n}"
        out = restore(cid, image=image)
    assert wait_for(lambda: not is_running(cid), 60)
    assert n > 1, "ended before it was moved twice"
    expect(said + text(out))
    delete(cid)


if __name__ == "__main__":
    main()
