# SPDX-License-Identifier: Apache-2.0
# For the tests of whole programs: the same script natively (chroot in fresh namespaces) and in a sandbox.
set -u
ROOTFS=$("$TOP/tools/mkrootfs.sh" test)
N=0 FAILED=0
export LC_ALL=C

# in_sandbox SCRIPT: bash -c SCRIPT in a fresh sandbox over the Debian root
in_sandbox() {
	timeout "${LIMIT:-300}" "$HOLDFAST" --root "$WORK/state" do --rootfs "$ROOTFS" --cwd /root \
		-e PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin -e HOME=/root -e LC_ALL=C \
		-e TERM=dumb /bin/bash -c "$1" </dev/null
}

# natively SCRIPT: the same on the host's kernel; writes go to a throw-away overlay
natively() {
	mkdir -p "$WORK/n"
	timeout "${LIMIT:-300}" unshare -mpfiu --mount-proc --propagation private bash -c '
		mount -t tmpfs none "$1" && mkdir "$1/u" "$1/w" "$1/r" &&
		mount -t overlay none -o "lowerdir=$2,upperdir=$1/u,workdir=$1/w" "$1/r" &&
		mount -t proc proc "$1/r/proc" && mount --rbind /dev "$1/r/dev" && mount -t sysfs -o ro sysfs "$1/r/sys" &&
		mount -t tmpfs -o mode=1777 none "$1/r/tmp" && mount -t tmpfs -o mode=755 none "$1/r/run" &&
		exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=dumb \
			chroot "$1/r" /bin/bash -c "cd /root; $3"' _ "$WORK/n" "$ROOTFS" "$1" </dev/null
}

report() { # NAME STATUS [FILE...]: one TAP line, the files as comments if it failed
	N=$((N + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $N - $1"
	else
		FAILED=1
		shift 2 && [ $# -gt 0 ] && head -c 4000 "$@" | sed 's/^/# /'
		echo "not ok $N - $NAME"
	fi
}

# same NAME SCRIPT: output and exit status must be the native ones
same() {
	NAME=$1
	natively "$2" >"$WORK/native" 2>&1
	echo "status $?" >>"$WORK/native"
	in_sandbox "$2" >"$WORK/sandbox" 2>&1
	echo "status $?" >>"$WORK/sandbox"
	diff -u "$WORK/native" "$WORK/sandbox" >"$WORK/diff"
	report "$1" $? "$WORK/diff"
}

# works NAME SCRIPT: must exit 0 in the sandbox
works() {
	NAME=$1
	in_sandbox "$2" >"$WORK/sandbox" 2>&1
	local s=$?
	[ $s -eq 0 ] || echo "exit status $s" >>"$WORK/sandbox"
	[ $s -eq 0 ] || tail -c 3000 "$WORK/sandbox" >"$WORK/tail"
	report "$1" $s "$WORK/tail"
}

finish() {
	echo "1..$N"
	exit $FAILED
}
