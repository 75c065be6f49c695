#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compilers, make, git.
. "$TOP/tests/programs/lib.sh"

same gcc_and_make_of_50_files '
	mkdir /tmp/p && cd /tmp/p
	for i in $(seq 50); do
		printf "#include <stdio.h>\n#include <stdlib.h>\nint f%d(int x) { char b[32]; snprintf(b, sizeof b, \"%%d\", x); return atoi(b) + %d; }\n" $i $i >f$i.c
	done
	{ for i in $(seq 50); do echo "int f$i(int);"; done; echo "#include <stdio.h>"; echo "int main(void) { int s = 0;"
	for i in $(seq 50); do echo "s = f$i(s);"; done; echo "printf(\"%d\\n\", s); return 0; }"; } >main.c
	printf "OBJS := \$(patsubst %%.c,%%.o,\$(wildcard *.c))\nprog: \$(OBJS)\n\tgcc -o \$@ \$(OBJS)\n%%.o: %%.c\n\tgcc -O1 -c \$<\n" >Makefile
	make -j4 >log 2>&1; echo $?; grep -c "gcc -O1" log; ./prog; make | tail -1'

same git_repository '
	export GIT_AUTHOR_DATE="2020-01-01 00:00:00 +0000" GIT_COMMITTER_DATE="2020-01-01 00:00:00 +0000"
	git config --global user.name t; git config --global user.email t@t; git config --global init.defaultBranch main
	mkdir /tmp/r && cd /tmp/r && git init -q . && for i in $(seq 30); do mkdir -p d$((i % 5)); seq $i 200 >d$((i % 5))/f$i; done
	git add . && git commit -qm one && git checkout -qb topic && echo t >>d1/f1 && git commit -qam topic
	git checkout -q main && echo m >>d2/f2 && git commit -qam main && git rebase -q main topic && git log --oneline | cat
	git gc -q && git fsck --full 2>&1 | grep -v notice; git clone -q /tmp/r /tmp/c && cd /tmp/c && git log --format=%H -1 && git status --short
	git worktree add -q /tmp/wt main && ls /tmp/wt | wc -l; git diff HEAD~1 --stat | cat'

same perl_and_sqlite '
	perl -e "my %h; \$h{\$_ % 7} += \$_ for 1..1000; print join(\",\", map {\"\$_=\$h{\$_}\"} sort keys %h), \"\n\"; open(my \$p, \"-|\", \"echo piped\"); print <\$p>; my \$pid = fork; if (!\$pid) { exit 5 } waitpid(\$pid, 0); print \$? >> 8, \"\n\""
	cd /tmp; for mode in delete wal; do
	{ echo "pragma journal_mode=$mode; create table t(a integer primary key, b text); begin;"; for i in $(seq 100000); do echo "insert into t values($i, \"row $i\");"; done; echo "commit; select count(*), sum(a), max(b) from t; pragma integrity_check;"; } | sqlite3 $mode.db
	done; ls *.db'

same node_workers_and_children '
	cat >/tmp/n.js <<"END"
const { Worker, isMainThread, parentPort } = require("worker_threads");
const { execSync, spawn, fork } = require("child_process");
const fs = require("fs");
if (!isMainThread) { parentPort.postMessage([...Array(1000).keys()].reduce((a, b) => a + b)); }
else if (process.argv[2] === "child") { process.send({ pong: true }); process.disconnect(); }
else (async () => {
  console.log(await Promise.all([1, 2, 3].map(() => new Promise(r => new Worker(__filename).on("message", r)))));
  console.log(execSync("echo from a child").toString().trim());
  const c = spawn("cat"); c.stdin.end("through cat\n");
  for await (const d of c.stdout) process.stdout.write(d);
  await new Promise(r => fork(__filename, ["child"]).on("message", m => { console.log(m); r(); }));
  fs.writeFileSync("/tmp/x", "y".repeat(100000)); console.log(fs.readFileSync("/tmp/x").length);
  await new Promise(r => { const w = fs.watch("/tmp/x", () => { w.close(); r(); }); setTimeout(() => fs.appendFileSync("/tmp/x", "z"), 50); });
  console.log("watched", require("crypto").createHash("sha256").update("a").digest("hex"));
})();
END
	node /tmp/n.js'

same debuggers '
	cd /tmp; strace -f -o s bash -c "(echo child) | cat; exit 3"; echo $?; grep -c "exited with" s; grep -c "exited with 3" s
	strace -e trace=write,kill,chdir -qq sh -c "cd /nothere; kill -USR1 \$\$" 2>&1 | sed "s/kill([0-9]*/kill(pid/; s/si_pid=[0-9]*/pid/" | tail -4
	cat >a.c <<"END"
#include <stdio.h>
#include <pthread.h>
static int total;
static int twice(int x) { int y = x * 2; return y; }
static void *thread(void *arg) { total += twice(*(int *)arg); return NULL; }
int main(void) {
	pthread_t t;
	int n = 21;
	pthread_create(&t, NULL, thread, &n);
	pthread_join(t, NULL);
	printf("%d\n", total);
	return *(volatile int *)0;
}
END
	gcc -g -pthread a.c -o a 2>/dev/null && gdb -q -nx -batch -ex "set can-use-hw-watchpoints 0" -ex "break twice" -ex run -ex bt -ex "print x" \
		-ex next -ex "print y" -ex "set var y=7" -ex finish -ex continue -ex "print \$_siginfo.si_signo" -ex kill ./a 2>&1 |
		sed "s/0x[0-9a-f]*/ADDR/g; s/LWP [0-9]*/LWP/; s/process [0-9]*/process/" | grep -v "^warning\|^Download\|debuginfod"'
finish
