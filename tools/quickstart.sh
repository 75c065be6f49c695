#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shows that a sandbox works: a shell in Debian when there is a terminal, a short demonstration if not.
set -eu
holdfast=$1
rootfs=$(tools/mkrootfs.sh small)
demo='echo "kernel:  $(uname -srv)"
echo "system:  $(. /etc/os-release; echo "$PRETTY_NAME")"
echo "user:    $(id -un), pid $$ of $(ls -d /proc/[0-9]* | wc -l) processes"
echo "memory:  $(awk "/MemTotal/{print \$2/1024\" MiB\"}" /proc/meminfo)"
python3 -c "import sys; print(\"python: \", sys.version.split()[0])"
echo written > /tmp/file && rm -rf /usr/share/doc && echo "the image stays as it is: writes live in the sandbox"'
echo "--- a sandbox over $rootfs"
"$holdfast" do --rootfs "$rootfs" /bin/bash -c "$demo"
[ -d "$rootfs/usr/share/doc" ] && echo "--- outside, /usr/share/doc of the image is still there"
if [ -t 0 ] && [ -t 1 ]; then
	echo "--- a shell in a new sandbox; leave with exit or ^D"
	"$holdfast" do -t --rootfs "$rootfs" /bin/bash || true
fi
