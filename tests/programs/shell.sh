#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shells and the small tools around them.
. "$TOP/tests/programs/lib.sh"

same pipelines_and_redirections '
	for i in 1 2 3; do echo "line $i"; done | tac | sed s/line/LINE/ | tee /tmp/t | wc -l; cat /tmp/t
	{ echo out; echo err >&2; } 2>/tmp/e >/tmp/o; cat /tmp/o /tmp/e
	cat <<-END
	here $((6 * 7)) $(echo nested "$(echo deep)")
	END
	exec 3<>/tmp/rw; echo hello >&3; exec 3>&-; cat /tmp/rw; cat < <(echo procsub)
	mkfifo /tmp/f; echo through >/tmp/f & cat /tmp/f; wait; echo ${PIPESTATUS[0]}
	false | true; echo "${PIPESTATUS[@]}"; set -o pipefail; false | true; echo $?'

# bash names pids on stderr, which differ
same traps_and_signals '
	exec 2>/dev/null; trap "echo usr1" USR1; kill -USR1 $$; trap "echo exiting" EXIT
	(trap "echo sub term; exit 3" TERM; kill -TERM $BASHPID; sleep 5); echo $?
	sleep 100 & p=$!; kill $p; wait $p 2>/dev/null; echo $?
	timeout 1 sleep 10; echo $?; bash -c "kill -SEGV \$\$" 2>/dev/null; echo $?
	trap "" INT; bash -c "kill -INT \$\$; echo survived"; trap - INT'

same job_control '
	set -m; sleep 0.3 & jobs | sed s/[0-9]*//g; wait; sleep 100 & kill -STOP %1; sleep 0.2; jobs; kill -CONT %1; kill %1
	wait %1 2>/dev/null; echo $?; (sleep 0.1; echo bg) & fg %% 2>/dev/null; wait; echo done'

same background_jobs_and_wait '
	for i in 5 4 3 2 1; do (sleep $((i * 4 / 10)).$((i * 4 % 10)); echo $i >>/tmp/order) & done; wait; cat /tmp/order
	wait -n 2>/dev/null; echo $?; coproc cat; echo co >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x'

same arrays_arithmetic_globs '
	a=(x y "z z"); echo ${#a[@]} "${a[@]:1}"; declare -A m=([k]=v [l]=w); for k in $(printf "%s\n" "${!m[@]}" | sort); do echo $k=${m[$k]}; done
	mkdir -p /tmp/g/{a,b}/{1..3}; cd /tmp/g; echo */*; shopt -s globstar; echo **/2; touch a/1/f{1..20}; ls a/1 | wc -l
	printf "%05d|%-5s|%x\n" 42 ab 255; echo $((1 << 40)) $((7 % 3)); [[ abc =~ ^a(.)c$ ]] && echo ${BASH_REMATCH[1]}'

same find_sort_checksum 'find /usr /etc /bin /lib -xdev | sort | sha256sum; find /usr -type f -size +100k | wc -l; find /usr -type l | head -2000 | xargs ls -ld | awk "{print \$1,\$NF}" | sha256sum'

same archives '
	cd /tmp; cp -a /usr/share/perl5 . 2>/dev/null; cp -a /usr/lib/python3.11/json /usr/lib/python3.11/asyncio .
	tar cf - json asyncio | tee a.tar | sha256sum | wc -c; mkdir x; tar xf a.tar -C x; diff -r json x/json && diff -r asyncio x/asyncio && echo same
	for z in gzip xz; do $z -k a.tar; done; gzip -dc a.tar.gz | cmp - a.tar && xz -dc a.tar.xz | cmp - a.tar && echo both
	tar czf b.tgz json; tar tzf b.tgz | sort | sha256sum'

same file_attributes '
	cd /tmp; umask 027; touch f; mkdir d; stat -c "%a %U:%G %F" f d; chmod 4755 f; chown 1000:1000 f; stat -c "%a %u:%g" f
	ln f g; stat -c %h f; ln -s f l; readlink l; touch -d 2001-02-03T04:05:06 f; stat -c %Y f; truncate -s 1M s; stat -c "%s %b" s
	dd if=/dev/zero of=s bs=4k seek=10 count=1 conv=notrunc status=none; stat -c "%s %b" s; rm -r d f; ls; df --output=fstype /tmp /proc | tail -1'

same processes '
	ps -o pid= -p $$ | wc -l; echo $PPID >/dev/null; bash -c "echo \$((\$\$ != $$))"; nice -n 5 nice; ulimit -n 500; ulimit -n; ulimit -s
	(ulimit -n 20; for i in {1..30}; do eval "exec $((i + 10))</dev/null" 2>/dev/null || { echo limit at $i; break; }; done)
	env -i A=1 env; id; getent passwd root; printf "a\0b" | od -c | head -1; yes | head -1000 | sha256sum'

# 300 lines of bash: pipes, here-documents, redirections, traps, background jobs, job control, coprocesses
same long_script "cat >/tmp/long.bash <<'END_OF_LONG_SCRIPT'
$(cat "$TOP/tests/programs/long_script.bash")
END_OF_LONG_SCRIPT
bash /tmp/long.bash one 'two words' ''"
finish
