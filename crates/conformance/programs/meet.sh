#!/bin/sh
# meet.sh [-k] [-s LIBRARY] TRANSOM PORT SERVER... -- CLIENT...
#
# Runs a server, and its client when the server listens on a port, by TCP or by rdma_cm; at once if the port is 0. It
# succeeds if both do. With -k the server does not end by itself: it is ended when its client has. With -s both have
# this library preloaded.
set -u
stays='' preload=${LD_PRELOAD-}
while getopts ks: option; do
    case $option in
    k) stays=yes ;;
    s) preload=$OPTARG:$preload ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
transom=$1 port=$2
shift 2
server=
while [ "$1" != -- ]; do
    server="$server $1"
    shift
done
shift

LD_PRELOAD=$preload $server &
pid=$!
listens() {
    hex=$(printf ':%04X 0' "$port")
    [ "$port" = 0 ] ||
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "^ *[0-9]*: [0-9A-F]*$hex.* 0A " ||
        "$transom" devices --json | grep -q ":$port\""
}
until listens; do
    # A server that has ended is waited for below.
    kill -0 $pid 2>/dev/null || break
    sleep 0.02
done
LD_PRELOAD=$preload "$@" &
other=$!
# When one of them fails, the other may wait for it for ever.
while kill -0 $pid 2>/dev/null && kill -0 $other 2>/dev/null; do
    sleep 0.02
done
if kill -0 $other 2>/dev/null; then
    wait $pid || kill $other
else
    wait $other || kill $pid 2>/dev/null
    [ "$stays" ] && kill $pid 2>/dev/null
fi
wait $other
client=$?
wait $pid
server=$?
echo "exit status of the client: $client, of the server: $server"
# 143 is that of a signal that ends a program.
[ "$stays" ] && [ $server = 143 ] && server=0
[ $client = 0 ] && [ $server = 0 ]
