#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Language runtimes and C libraries that make calls and use threads, signals and timers in ways of their own:
# their output must be the native one on both platforms. musl and Go programs are static, in a root of their own.
. "$TOP/tests/programs/lib.sh"

ROOT=$WORK/root
mkdir -p "$ROOT"/{tmp,proc,sys,dev,etc,run}

# everywhere NAME PROGRAM: a static program, natively and on each platform
everywhere() {
	NAME=$1
	if [ ! -x "$2" ]; then
		report "$1" 1
		return
	fi
	timeout 60 "$2" >"$WORK/native" 2>&1
	echo "status $?" >>"$WORK/native"
	cp "$2" "$ROOT/program"
	for platform in trap ptrace; do
		timeout 120 "$HOLDFAST" --root "$WORK/state" --platform "$platform" do --rootfs "$ROOT" \
			/program >"$WORK/sandbox" 2>&1 </dev/null
		echo "status $?" >>"$WORK/sandbox"
		diff -u "$WORK/native" "$WORK/sandbox" >"$WORK/diff"
		report "$1.$platform" $? "$WORK/diff"
	done
}

cat >"$WORK/m.c" <<'END'
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t alarms;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static void on_alarm(int s) { (void)s; alarms++; }
static void *work(void *arg)
{
	for (long i = 0; i < 2000; i++) {
		pthread_mutex_lock(&mu);
		sum += (long)arg + (getppid() >= 0);
		pthread_mutex_unlock(&mu);
	}
	return arg;
}
int main(void)
{
	struct itimerval it = { { 0, 500 }, { 0, 500 } };
	pthread_t t[8];
	int st;
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &it, NULL);
	for (long i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, work, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	while (alarms < 20)
		if (close(-1) != -1 || errno != EBADF)
			return 9;
	if (fork() == 0)
		_exit(work((void *)1) != NULL ? 7 : 0);
	while (wait(&st) < 0 && errno == EINTR)
		;
	printf("%ld %d\n", sum, WEXITSTATUS(st));
	return 3;
}
END
musl-gcc -static -O1 -o "$WORK/m" "$WORK/m.c"
everywhere musl_threads_and_timers "$WORK/m"

cat >"$WORK/g.go" <<'END'
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

type node struct {
	l, r *node
}

func tree(n int) *node {
	if n == 0 {
		return &node{}
	}
	return &node{tree(n - 1), tree(n - 1)}
}

func (t *node) count() int {
	if t.l == nil {
		return 1
	}
	return 1 + t.l.count() + t.r.count()
}

func main() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	usr := make(chan os.Signal, 100)
	signal.Notify(usr, syscall.SIGUSR1)
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := 0; k < 20; k++ {
				syscall.Getppid()
				time.Sleep(100 * time.Microsecond)
			}
			n := tree(12).count()
			mu.Lock()
			total += n
			mu.Unlock()
		}()
	}
	/* a loop without calls: only a signal takes it off its thread */
	spin := make(chan int)
	go func() {
		x := 0
		for i := 0; i < 300000000; i++ {
			x ^= i
		}
		spin <- x
	}()
	for i := 0; i < 5; i++ {
		runtime.GC()
	}
	wg.Wait()
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(total, <-spin, <-usr)
	a, _ := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	f := os.NewFile(uintptr(a[0]), "a")
	c, err := net.FileConn(f)
	syscall.Write(a[1], []byte("hello"))
	b := make([]byte, 5)
	n, _ := c.Read(b)
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, late := c.Read(b)
	fmt.Println(err, n, string(b), late != nil)
	defer func() {
		fmt.Println(recover())
		os.Exit(4)
	}()
	var p *node
	fmt.Println(p.l)
}
END
(cd "$WORK" && HOME=$WORK GOFLAGS=-mod=mod CGO_ENABLED=0 go build -o g g.go)
everywhere go_routines_timers_and_gc "$WORK/g"

same python_threads_and_signals '
	python3 - <<"END"
import os, signal, threading, concurrent.futures as f
hits = []
signal.signal(signal.SIGALRM, lambda *a: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def work(n):
    return sum(os.getppid() > -1 for _ in range(2000)) + n
with f.ThreadPoolExecutor(8) as e:
    print(sum(e.map(work, range(40))))
while len(hits) < 20: pass
signal.setitimer(signal.ITIMER_REAL, 0)
with f.ProcessPoolExecutor(3) as e:
    print(list(e.map(pow, range(5), [3] * 5)))
END'

same node_workers_and_timers '
	cat >/tmp/w.js <<"END"
const { Worker, isMainThread, workerData, parentPort } = require("worker_threads");
if (!isMainThread) {
	let n = 0, a = [];
	const t = setInterval(() => {
		for (let i = 0; i < 1000; i++) { n += process.ppid > -1; a[i % 100] = { i, s: "x".repeat(100) }; }
		if (n >= 20000) { clearInterval(t); parentPort.postMessage(n + workerData); }
	}, 1);
} else {
	Promise.all([1, 2, 3, 4].map(w => new Promise(r => new Worker(__filename, { workerData: w }).on("message", r))))
		.then(v => console.log(v, Buffer.concat([require("crypto").pbkdf2Sync("a", "b", 1000, 8, "sha1")])));
}
END
	node /tmp/w.js'

finish
