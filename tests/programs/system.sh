#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Being root in a Debian system: packages, users, services, terminals.
. "$TOP/tests/programs/lib.sh"

works packages_from_a_file_repository '
	set -e; mkdir -p /tmp/pkg/DEBIAN /tmp/pkg/usr/bin /tmp/repo
	printf "Package: hello-test\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t>\nDescription: test\n" >/tmp/pkg/DEBIAN/control
	printf "#!/bin/sh\necho hello from a package\n" >/tmp/pkg/usr/bin/hello-test; chmod 755 /tmp/pkg/usr/bin/hello-test
	printf "#!/bin/sh\necho configured >/var/lib/hello-test\n" >/tmp/pkg/DEBIAN/postinst; chmod 755 /tmp/pkg/DEBIAN/postinst
	dpkg-deb -b /tmp/pkg /tmp/repo/hello-test_1.0_all.deb >/dev/null; dpkg -i /tmp/repo/hello-test_1.0_all.deb; [ "$(hello-test)" = "hello from a package" ]
	grep -q configured /var/lib/hello-test; dpkg -r hello-test; ! command -v hello-test
	cd /tmp/repo && dpkg-scanpackages . >Packages 2>/dev/null; rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
	echo "deb [trusted=yes] file:/tmp/repo ./" >/etc/apt/sources.list; apt-get update; apt-get install -y hello-test; hello-test; dpkg -V hello-test'

works users_and_setuid_programs '
	set -e; useradd -m -s /bin/bash joe; id joe; [ "$(su joe -c "id -un")" = joe ]; su joe -c "touch /home/joe/f"; [ "$(stat -c %U /home/joe/f)" = joe ]
	! su joe -c "touch /etc/nope" 2>/dev/null; ! su joe -c "cat /etc/shadow" 2>/dev/null
	cp /usr/bin/id /tmp/sid; chmod 4755 /tmp/sid; [ "$(su joe -c "/tmp/sid -u")" = 0 ]; cp /usr/bin/id /tmp/sgid; chgrp 42 /tmp/sgid; chmod 2755 /tmp/sgid; [ "$(su joe -c "/tmp/sgid -g")" = 42 ]
	echo "joe ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/joe; [ "$(su joe -c "sudo -n id -u")" = 0 ]
	groupadd devs; usermod -aG devs joe; su joe -c "id -Gn" | grep -q devs; echo joe:secret | chpasswd; userdel -r joe; ! id joe 2>/dev/null'

works redis_over_a_unix_socket '
	set -e; redis-server --port 0 --unixsocket /tmp/r.sock --daemonize no --save "" >/tmp/log 2>&1 & for i in $(seq 100); do [ -S /tmp/r.sock ] && break; sleep 0.1; done
	r="redis-cli -s /tmp/r.sock"; [ "$($r set a 1)" = OK ]; [ "$($r incr a)" = 2 ]; for i in $(seq 1000); do echo "set k$i $i"; done | $r >/dev/null; [ "$($r dbsize)" = 1001 ]
	redis-benchmark -s /tmp/r.sock -n 5000 -q -t set,get; $r bgsave; sleep 1; $r shutdown nosave; wait'

works tmux_with_send_keys '
	set -e; export TERM=xterm; tmux -f /dev/null new-session -d -x 80 -y 24 "PS1=prompt; export PS1; exec bash --norc"; sleep 0.5
	tmux send-keys "echo \$((6*7)); tput cols" Enter; sleep 0.7; tmux capture-pane -p | grep -qx 42; tmux capture-pane -p | grep -qx 80
	tmux split-window -h "exec cat"; tmux send-keys "typed" Enter; sleep 0.5; [ "$(tmux capture-pane -p | grep -c typed)" = 2 ]; tmux send-keys C-c; sleep 0.5; [ "$(tmux list-panes | wc -l)" = 1 ]
	tmux send-keys "sleep 100" Enter; sleep 0.3; tmux send-keys C-z; sleep 0.5; tmux capture-pane -p | grep -q Stopped; tmux kill-server'

works expect_and_vim '
	set -e; cat >/tmp/e <<"END"
set timeout 10
spawn bash --norc
expect "*# "
send "stty size; echo a\177b\r"
expect "b\r\n"
send "cat\r"; send "line\r"; expect "line\r\nline"; send "\004"; expect "# "
send "exit 7\r"
expect eof
set r [wait]
exit [expr [lindex $r 3] != 7]
END
	expect /tmp/e; printf "one\ntwo\n" >/tmp/v; TERM=xterm vim.tiny -es -c "%s/two/2/" -c wq /tmp/v; grep -qx 2 /tmp/v'

same two_hundred_processes '
	for i in $(seq 200); do sleep 3 & done; sleep 0.2; ls -d /proc/[0-9]*/ | wc -l | awk "{print (\$1 >= 200)}"; pgrep -c sleep; wait; echo done'
finish
