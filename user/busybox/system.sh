# What busybox learns of the system through /proc, and two programs that talk over the loopback. Each
# line says what was found; the test knows all lines.
cd /tmp || exit 1
sleep 1000 &
victim=$!
ps | awk -v pid=$victim '$1 == pid { print "ps:", $NF }'
ps | awk 'NR == 1 { print "ps:", $1, $NF }'
pidof sleep | grep -qw $victim && echo "pidof: found"
top -b -n 1 | awk -v pid=$victim '$1 == pid { print "top:", $4, $NF }'
free | awk '$1 == "Mem:" && $2 > 100000 && $2 >= $3 + $4 { print "free: in order" }'
uptime | grep -q 'load average: 0.00' && echo "uptime: in order"
mount | awk '{ print "mount:", $3, $5, $6 }'
df | awk 'NR > 1 { print "df:", $NF }'
read -r word < /proc/$victim/comm; echo "comm: $word"
tr '\0' ' ' < /proc/$victim/cmdline; echo
readlink /proc/self/exe; readlink /proc/self/cwd
readlink /proc/$victim/exe || echo "no authority"
awk '{ print "stat:", ($1 == pid), $2, $3, ($4 == parent), NF }' pid=$victim parent=$$ /proc/$victim/stat
grep -E '^(State|Threads|SigBlk|SigIgn):' /proc/$victim/status
kill $victim; wait $victim; echo "killed $?"
[ -e /proc/$victim ] || echo "gone"
ls /proc | grep -c '^[0-9]*$' | awk '{ print "processes:", ($1 >= 2) }'
cat /proc/sys/kernel/ostype /proc/sys/kernel/hostname
echo x > /proc/uptime || echo "uptime cannot be written"
mkdir /proc/new || echo "nothing can be made"
nproc | awk '{ print "nproc:", ($1 >= 1) }'

# The listener is there when the first attempt succeeds.
(echo "from the server" | nc -l -p 4000 > received) & server=$!
until echo "from the client" | nc 127.0.0.1 4000 > answer; do sleep 0.1; done
wait $server; cat received answer
