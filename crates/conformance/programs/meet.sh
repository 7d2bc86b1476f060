#!/bin/sh
# meet.sh TRANSOM PORT SERVER... -- CLIENT...
#
# Runs a server, and its client when the server listens on a port, by TCP or by rdma_cm. It succeeds if both do.
set -u
transom=$1 port=$2
shift 2
server=
while [ "$1" != -- ]; do
    server="$server $1"
    shift
done
shift

$server &
pid=$!
listens() {
    hex=$(printf ':%04X 0' "$port")
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "^ *[0-9]*: [0-9A-F]*$hex.* 0A " ||
        "$transom" devices --json | grep -q ":$port\""
}
until listens; do
    # A server that has ended is waited for below.
    kill -0 $pid 2>/dev/null || break
    sleep 0.02
done
"$@" &
other=$!
# When one of them fails, the other may wait for it for ever.
while kill -0 $pid 2>/dev/null && kill -0 $other 2>/dev/null; do
    sleep 0.02
done
if kill -0 $other 2>/dev/null; then
    wait $pid || kill $other
else
    wait $other || kill $pid 2>/dev/null
fi
wait $other
client=$?
wait $pid
server=$?
echo "exit status of the client: $client, of the server: $server"
[ $client = 0 ] && [ $server = 0 ]
