#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One long bash script, as people write them: shell.sh runs it natively and in a sandbox and compares
# what it prints. So nothing here may print a pid, a time or an inode number.
set -u
shopt -s extglob nullglob lastpipe
work=$(mktemp -d /tmp/long.XXXXXX)
cd "$work" || exit 1
section() { printf '\n== %s\n' "$*"; }
check() { # WHAT EXPECTED GOT
	if [[ $2 == "$3" ]]; then echo "ok: $1"; else echo "wrong: $1: '$3' is not '$2'"; fi
}
# wait_for CONDITION...: up to ten seconds, so that a slow machine changes nothing
wait_for() {
	local i
	for ((i = 0; i < 500; i++)); do
		"$@" && return 0
		sleep 0.02
	done
	echo "never: $*"
	return 1
}
state_of() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
job_stopped() { [[ -n $(jobs -s) ]]; } # and the shell knows it
in_state() { [[ $(state_of "$1") == "$2" ]]; }

section arguments "$#"
printf '<%s>\n' "$@"
set -- one "two words" '' $'tab\there' "new
line"
echo $#
printf '[%q]' "$@" && echo
while getopts 'ab:c' opt -a -b value -c rest; do echo "$opt ${OPTARG-none}"; done

section pipes
seq 1000 | awk '$1 % 3 == 0' | sort -rn | head -5 | paste -sd,
seq 100000 | (read -r first; echo "first $first"; tail -1)
yes no | head -100000 | uniq -c | awk '{print $1, $2}'
yes | head -1 >/dev/null
echo "${PIPESTATUS[*]}"
(exit 3) | (exit 4) | (exit 5)
echo "${PIPESTATUS[*]}"
printf 'c\nb\na\n' | sort | while read -r l; do last=$l; done
echo "lastpipe $last"
head -c 1000000 /dev/zero | tr '\0' x | dd bs=777 2>/dev/null | wc -c
dd if=/dev/zero bs=64k count=64 status=none | tee >(wc -c >tee.count) | md5sum
wait_for test -s tee.count && cat tee.count
diff <(seq 5) <(seq 2 6)
echo "diff says $?"
{ echo to stdout; echo to stderr >&2; } 2>&1 >/dev/null | sed 's/^/only: /'
{ { echo swap out; echo swap err >&2; } 3>&1 1>&2 2>&3 | sed 's/^/piped: /'; } 2>&1 | sort
big=$(head -c 300000 /dev/zero | tr '\0' b)
echo ${#big}
printf '%s' "$big" | wc -c
wc -c <<<"$big"

section here-documents
name=world
cat <<END
hello $name, $((2 ** 10)), $(echo "nested $(echo "quotes")"), \$name, \\
END
cat <<'END'
literal $name $(echo no) \
END
cat <<-END
	tabs go
		all of them
	END
cat <<A; cat <<B
first
A
second
B
tr a-z A-Z <<<"a here string"
while IFS=: read -r user _ uid _; do echo "$user is $uid"; done <<END
root:x:0:0
daemon:x:1:1
END
cat <<END | (cat; cat /dev/fd/3) 3<<END2 | nl
in a pipe
END
on descriptor three
END2
long=$(cat <<END
$(seq 20000)
END
)
echo "${#long}"
bash -s "$name" <<'END'
echo "script on stdin for $1"
read -r line
this line is data, not code
echo "read: $line"
END

section redirections
exec 3>out.log 4<&0
echo to three >&3
exec 5>&3 3>&-
echo to five >&5
exec 5>&-
cat out.log
exec {fd}>auto.log
((fd >= 10)) && echo automatic descriptor
echo x >&"$fd"
exec {fd}>&-
{ echo x >&"$fd"; } 2>/dev/null || echo closed
set -o noclobber
{ echo again >out.log; } 2>/dev/null || echo noclobber refuses
echo again >|out.log && cat out.log
set +o noclobber
echo a >app && echo b >>app && echo c &>>app && cat app
echo 0123456789 >rw && exec 6<>rw && read -rn 3 -u 6 part && echo "$part" && echo -n XX >&6 && exec 6>&- && cat rw
cat <nothere 2>/dev/null || echo no such file
echo x 2>/dev/null >/ || echo is a directory
(ulimit -f 1; head -c 100000 /dev/zero >toobig) 2>/dev/null
echo "file size limit: $(kill -l $?)"
echo full >/dev/full || echo device is full

section traps
trap 'echo "usr1 in main"' USR1
trap 'echo "usr2 with \$? $?"' USR2
kill -USR1 $$
(exit 9)
kill -USR2 $$
(trap 'echo "subshell exit trap, status $?"' EXIT; exit 7)
echo "then $?"
trap -p USR1
(trap - USR1; kill -USR1 "$BASHPID"; echo not reached) 2>/dev/null
echo "default action gives $(kill -l $?)"
trap '' TERM
bash -c 'kill -TERM $$; echo "child inherits ignore"'
trap - TERM
count=0
trap '((count++))' DEBUG
:
:
trap - DEBUG
echo "debug $count"
fails() { trap 'echo "return trap"; trap - RETURN' RETURN; false; return 6; }
fails
echo "status $?"
(trap 'echo "line failed with $?"' ERR; false; (exit 3); true)
(set -e; trap 'echo "bye $?"' EXIT; false; echo not reached)
echo "set -e $?"
# a signal while wait sleeps: wait returns at once, the trap runs
# (sleeps around it: bash sleeps on if a signal comes as wait begins, or together with a SIGCHLD)
sleep 30 &
victim=$!
(sleep 0.5; kill -USR1 $$; sleep 0.5) &
helper=$!
wait "$victim"
echo "wait was interrupted: $(kill -l $?)"
wait "$helper"
kill "$victim"
wait "$victim" 2>/dev/null
echo "victim: $(kill -l $?)"
# a signal for a process that sleeps in read, and one for each of a pipeline's group
mkfifo never
bash -c 'trap "echo caught in read; exit 2" HUP; read -r x <>never' &
reader=$!
wait_for in_state $reader S
sleep 0.2
kill -HUP $reader
wait $reader
echo "reader $?"
for sig in ABRT ALRM BUS FPE HUP ILL KILL PIPE PROF RTMIN+3 SEGV SYS TERM TRAP USR1 VTALRM XCPU; do
	bash -c "ulimit -c 0; kill -$sig \$\$; sleep 5"
	echo -n "$sig:$? "
done 2>/dev/null
echo
trap - USR1 USR2

section background jobs
for i in {1..20}; do (echo "$i" >"job.$i"; exit "$i") & pids[i]=$!; done
sum=0
for i in {20..1}; do wait "${pids[i]}"; ((sum += $?)); done
echo "sum of statuses $sum, files $(cat job.* | sort -n | paste -sd+ | bc)"
wait
echo "nothing left $?"
# (not at once: bash's SIGCHLD handler may reap what ends as wait -n begins, which then waits for the other)
(sleep 0.5; exit 11) & (sleep 20) &
slow=$!
wait -n
echo "first to end $?"
kill $slow
wait $slow 2>/dev/null
for w in 1 2 3 4; do
	(for ((n = w; n <= 400; n += 4)); do echo "w$w $n" >>shared.log; done) &
done
wait
echo "appended $(wc -l <shared.log) lines, $(sort -u shared.log | wc -l) distinct"
exec 9>lock
for w in {1..8}; do
	(for _ in {1..10}; do flock 9; n=$(<counter); echo $((n + 1)) >counter; flock -u 9; done) 9>lock &
	[[ -f counter ]] || echo 0 >counter
done 2>/dev/null
wait
check 'flock keeps the counter' 80 "$(<counter)"
exec 9>&-
(exec -a renamed sleep 30) &
other=$!
wait_for grep -q renamed "/proc/$other/cmdline" && tr '\0' ' ' <"/proc/$other/cmdline" && echo
kill -STOP $other && wait_for in_state $other T && echo stopped
kill -CONT $other && wait_for in_state $other S && echo continued
{ kill -KILL $other; wait $other; } 2>/dev/null
echo "killed $?"
orphan=$(bash -c 'sleep 30 >/dev/null & echo $!')
kill -0 "$orphan" && echo "the orphan lives" && kill "$orphan" && wait_for eval '! kill -0 $orphan 2>/dev/null'

section job control
jobs >/dev/null # what has ended is forgotten, so numbers begin again
set -m
sleep 30 | cat | wc -c &
tail=$!
jobs | sed 's/[0-9]\{3,\}//g; s/  */ /g'
group=$(ps -o pgid= -p $tail | tr -d ' ')
check 'a pipeline is one group' 3 "$(ps -eo pgid= | grep -cw "$group")"
kill -STOP -- "-$group"
wait_for job_stopped
jobs -s %1 >/dev/null && jobs | grep -c Stopped
bg %1 >/dev/null
jobs -r | grep -c Running
# the shell tells of a dead job here or later, as it happens to notice: nobody listens
exec 8>&2 2>/dev/null
kill -TERM -- "-$group"
wait $tail
echo "the job ended with $?"
sleep 0.2 &
fg %% >/dev/null && echo "foreground $?"
bash -c 'kill -STOP $$; exit 12' &
wait_for job_stopped
fg %% >/dev/null
echo "resumed by fg $?"
(sleep 30) & (sleep 30) &
echo "running $(jobs -r | wc -l)"
kill $(jobs -p)
wait
echo "jobs left $(jobs | wc -l)"
set +m
exec 2>&8 8>&-

section coprocesses and fifos
coproc CALC { while read -r expr; do echo $((expr)); done; }
for e in 1+1 '7*6' '1<<20'; do echo "$e" >&"${CALC[1]}"; read -r answer <&"${CALC[0]}"; echo "$e = $answer"; done
calc=$CALC_PID
eval "exec ${CALC[1]}>&-"
wait "$calc" 2>/dev/null
mkfifo there back
(while read -r word <there; do [[ $word == quit ]] && exit 0; echo "${word^^}" >back; done) &
for word in alpha beta gamma; do echo $word >there; cat back; done
echo quit >there
wait $! && echo "server left"
read -rt 0.1 x <>never || echo "read timed out: $(($? > 128))"

section strings, arrays, arithmetic
path=/usr/local/lib/libfoo.so.1.2
echo "${path##*/} ${path%%.*} ${path%/*} ${path/lib/LIB} ${path//[aeiou]/_} ${path:5:5} ${path: -3} ${#path}"
v=
echo "${v:-empty} ${v-set} ${unset_one:=assigned} $unset_one ${v:+no}${path:+yes}"
s=mixedCase
echo "${s^} ${s^^} ${s,,} ${s@Q}"
declare -a list=(5 3 9 1)
list+=(7) && unset 'list[1]'
echo "${#list[@]} ${!list[*]} ${list[*]: -1} $(printf '%s\n' "${list[@]}" | sort -n | xargs)"
declare -A words
for w in the cat the dog the end; do words[$w]=$((${words[$w]-0} + 1)); done
for w in "${!words[@]}"; do echo "$w ${words[$w]}"; done | sort
mapfile -t lines < <(seq 3 3 12) && echo "${lines[@]/#/n}"
declare -i n=017 && n+=1 && echo "$n $((n ** 3 % 7)) $((0x1f ^ 2#1010)) $((n > 5 ? 1 : 0)) $((-7 / 2)) $((~0))"
declare -n ref=path && echo "$ref" && unset -n ref
fib() { (($1 < 2)) && echo "$1" || echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); }
echo "fib $(fib 8)"
case foobar.tar.gz in *.zip) echo zip ;; *.tar.@(gz|xz)) echo tarball ;;& foo*) echo foo ;& never) echo through ;; esac
[[ "key = value" =~ ^([a-z]+)\ *=\ *(.*)$ ]] && echo "${BASH_REMATCH[1]}:${BASH_REMATCH[2]}"
printf '%5.2f|%-6s|%+d|%o|%e|%c|%b\n' 3.14159 ab 5 8 12345.678 xyz 'a\tb'
IFS=, read -ra parts <<<"a,b,,d" && echo "${#parts[@]} ${parts[3]}"
select_all=$(printf 'x\n%.0s' {1..5} | wc -l) && echo "$select_all"

section files
mkdir -p tree/{a,b}/{1..3} && touch tree/{a,b}/{1..3}/f{1..5}.txt && ln -s ../a tree/b/link
find tree -name 'f[12]*' -type f | wc -l
find tree -type d -empty -o -type l -printf '%p -> %l\n'
find tree -name '*.txt' -print0 | xargs -0 -n 7 -P 4 ls | wc -l
shopt -s globstar
echo tree/**/1/f1.txt tree/a/!(2)/f3*
[[ -d tree && -L tree/b/link && -s out.log && ! -e nothere && -x /bin/sh && out.log -nt /etc/passwd ]] && echo tests
umask 077 && : >private && umask 022 && stat -c %A private
chmod u=rwx,g=rs,o= private && stat -c '%a %A' private
cp -a tree copy && diff -r tree copy && rm -rf tree/a && ls tree/b/link 2>/dev/null || echo dangling
mv copy/a/1/f1.txt copy/moved && ln copy/moved copy/hard && stat -c %h copy/hard && rm copy/moved && cat copy/hard
exec 7<>gone && rm gone && echo unlinked >&7 && cat "/proc/$$/fd/7" && readlink "/proc/$$/fd/7" | sed 's,.*/,,' && exec 7>&-
(cd copy && tar cf - .) | (mkdir into && cd into && tar xf - && find . | sort | md5sum)
split -b 1000 -d <(seq 2000) part. && cat part.* | cmp - <(seq 2000) && ls part.* | wc -l
comm -12 <(seq 1 2 20) <(seq 1 3 20 | sort) 2>/dev/null | xargs
join <(printf '1 a\n2 b\n') <(printf '1 x\n2 y\n')
seq 12 | pr -3t | expand | sed 's/  */ /g'

section environment and limits
env -i X=1 Y="two words" bash -c 'echo "$X $Y ${HOME-no home}"'
(export LEVEL=1; bash -c 'echo "$LEVEL $((SHLVL > 0))"')
(ulimit -n 32; ulimit -Sn; exec bash -c 'ulimit -n')
nice -n 7 nice
timeout 0.3 sleep 30
echo "timeout $?"
{ timeout -s KILL 0.3 bash -c 'trap "" TERM; sleep 30'; } 2>/dev/null
echo "timeout kill $?"
setsid bash -c 'echo "a session of its own: $(($(ps -o sid= -p $$) == $$))"'
cd / && pwd -P && cd "$OLDPWD" && dirs -l | sed 's,/tmp/long.*,here,'
BASH_ENV=<(echo 'echo from BASH_ENV') bash -c 'echo then the command'
bash -c 'exit 256'; echo $?
bash -c 'not-a-command' 2>/dev/null; echo $?
printf '#!/bin/cat\nshebang\n' >script && chmod +x script && ./script
chmod -x script && ./script 2>/dev/null; echo $?
printf 'no shebang' >plain && chmod +x plain && ./plain 2>/dev/null; echo $?
trap 'echo "leaving with $?"; cd /; rm -rf "$work"' EXIT
exit 42
