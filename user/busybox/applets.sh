# More than fifty applets of busybox in pipelines, with files and in loops. What this prints must be
# the same on COPS and under user-mode QEMU on Linux. The argument is a directory for files.
set -u
cd "$1" || exit 1
mkdir -p work/deep/er && cd work || exit 1
export TZ=UTC LC_ALL=C

echo "== text"
seq 1 20 > numbers
printf 'pear 3\napple 1\nfig 2\napple 1\n' > fruit
sort fruit | uniq -c
sort -k2,2nr -k1 fruit | head -n 2
tail -n 3 numbers | tac | rev
cut -d ' ' -f 1 fruit | tr a-z A-Z | paste -s -d , -
sed -n -e 's/\(.*\) \([0-9]\)/\2:\1/p' -e '2q' fruit
awk '{ sum[$1] += $2 } END { for (name in sum) print name, sum[name] }' fruit | sort
awk 'BEGIN { printf "%.3f %5d|%-5s|\n", 3.14159, 42, "ab" }'
grep -c apple fruit; grep -nv apple fruit; grep -Eo '[0-9]+$' fruit | xargs echo
nl -ba fruit | expand | fold -w 12
wc fruit numbers
od -An -tx1 fruit | head -n 1; hexdump -C fruit | tail -n 2; xxd -l 8 fruit
cmp fruit numbers; diff fruit numbers | head -n 3 | tail -n 1
tee copy < fruit | md5sum; sha1sum copy; sha256sum copy; crc32 copy
strings copy | head -n 1
base64 fruit | base64 -d | cmp - fruit && echo "base64 and back"
dd if=numbers bs=7 count=2 2>/dev/null; echo
yes x | head -n 3 | tr -d '\n'; echo
factor 5040 9973; expr 6 \* 7; echo '2^64; scale=5; 22/7' | bc; echo '5 k 2 v p' | dc
date -u -d @86400 '+%Y-%m-%d %H:%M:%S'; cal 2 2024 | head -n 4
basename /a/b.c .c; dirname /a/b.c; realpath . | grep -c work

echo "== files"
cp fruit deep/copied; mv deep/copied deep/er/moved; ln -s er/moved deep/link; ln fruit hard
cat deep/link | head -n 1; readlink deep/link; stat -c '%n %s %F %h' deep/link fruit hard
touch -d '2001-02-03 04:05:06' numbers; stat -c '%Y' numbers; date -r numbers '+%F'
chmod 640 numbers; stat -c '%a %A' numbers
find . -type f | sort; find deep -name 'm*' -exec cat {} \; | wc -l; find . -type d | xargs -n 1 echo | sort
ls -1 deep; ls -ln deep/er | awk '{ print $1, $3, $4, $5, $NF }'
truncate -s 5000 large; wc -c < large; du -a deep | awk '{ print $2 }' | sort
test -L deep/link && [ -f fruit ] && [ ! -e nothing ] && echo "tests are in order"
tar cf all.tar deep fruit; tar tf all.tar | sort; mkdir out; tar xf all.tar -C out; cat out/deep/er/moved
gzip -c numbers | gunzip | md5sum; bzip2 -c numbers | bunzip2 | md5sum; echo "$(gzip -c fruit | zcat | wc -l)"
find fruit numbers | cpio -o -H newc 2>/dev/null | cpio -t 2>/dev/null
rm "$(mktemp -p . name.XXXXXX)"; rm -r out; rmdir out 2>&1; rm hard; ls | cat

echo "== the shell"
for word in one two three; do case $word in t*) echo "$word";; esac; done | sort -r
i=0; while [ $i -lt 5 ]; do i=$((i + 1)); [ $i = 3 ] && continue; printf '%s ' "$i"; done; echo
f() { local x=$1; [ "$x" -gt 0 ] || { echo done; return 3; }; f $((x - 1)); }
f 4; echo "returned $?"
cat << END | tr b B
a here document, $((6 * 7)) and $(echo substituted)
END
(cd deep && pwd | grep -o 'deep$'; exit 5); echo "subshell $?"
false | true; echo "pipeline $?"; ! true; echo "not $?"
sh -c 'echo "$0 $*"' name a b; sh -c 'kill -TERM $$'; echo "killed $?"
sh -c 'trap "echo caught" USR1; kill -USR1 $$; echo after'
{ echo first; sleep 0.1; echo second; } > later & wait $!; cat later
(sleep 100 & child=$!; kill $child; wait $child; echo "waited $?")
read -r one rest < fruit; echo "$rest $one"
printf 'a b\nc\n' | while read -r first rest; do echo "<$first|$rest>"; done
env -i A=1 B=2 env | sort; var=${unset:-default}; echo "$var ${#var} ${var%ult} ${var#de}"
echo 'echo from a script with $# arguments' > script; sh script x y
set -- *r*; echo "$#"; getopt ab: -a -b x y
xargs -n 2 echo < numbers | tail -n 2
seq 1 2000 | awk '{ s += $1 } END { print s }'; seq 1 30000 | sort -rn | head -n 1
echo end
