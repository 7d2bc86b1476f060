#!/bin/sh
# both.sh PORT SERVER CLIENT: starts a server, and its client when the server listens. It succeeds if both do.
timeout 60 sh -c "exec $2" &
server=$!
trap 'kill $server 2>/dev/null' EXIT    # if the client fails, no server is left

listens() {                             # by TCP, or by rdma_cm
    grep -qs ":$(printf %04X "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 ||
        rdma resource show cm_id | grep -q "LISTEN.*:$1 "
}
until listens "$1"; do
    kill -0 $server || exit 1           # it has ended before
    sleep 0.1
done
timeout 60 sh -c "$3" || exit
wait $server
