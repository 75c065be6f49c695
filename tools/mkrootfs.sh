#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes (once) a Debian root file system and prints its path. usage: mkrootfs.sh small|test
# The packages come from the machine's own apt sources; the result is cached by name and package list.
set -eu
kind=${1:-small}
small=(bash coreutils procps util-linux less python3-minimal)
full=(ca-certificates passwd login libpython3.11-testsuite python3 gcc libc6-dev make git sqlite3 perl
	nodejs redis-server redis-tools tmux stress-ng xz-utils gzip tar gdb strace file bc iproute2
	busybox-static expect sudo vim-tiny dpkg-dev psmisc)
case $kind in
small) packages=("${small[@]}") ;;
test) packages=("${small[@]}" "${full[@]}") ;;
*) echo "mkrootfs: unknown kind '$kind'" >&2; exit 1 ;;
esac
list=$(IFS=,; echo "${packages[*]}")
cache=${HOLDFAST_CACHE:-/var/cache/holdfast}
dir=$cache/rootfs-$kind-$(echo "$list" | sha256sum | cut -c1-12)
if [ ! -d "$dir" ]; then
	[ "$(id -u)" -eq 0 ] || { echo "mkrootfs: needs root to make $dir" >&2; exit 1; }
	mkdir -p "$cache"
	echo "making the Debian root file system $dir (once)" >&2
	rm -rf "$dir.partial"
	mmdebstrap --mode=root --variant=minbase --include="$list" bookworm "$dir.partial" >&2 ||
		{ rm -rf "$dir.partial"; exit 1; }
	mv "$dir.partial" "$dir"
fi
echo "$dir"
