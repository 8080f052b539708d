#!/bin/sh
# A worker: replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
# somebody sends it "stop".
#
#     sh examples/worker.sh &
#     bccn req jobs/upper 'hello there'
set -eu

# shellcheck source=bccn.sh
. "${0%/*}/../bccn.sh"

done=0 reported=0 stopped=''

work() {
    done=$((done + 1))
    bccn_reply -b "$(printf %s "$BCCN_RAW" | tr '[:lower:]' '[:upper:]')" # the raw form keeps NULs
}

obey() {
    if [ "$BCCN_PAYLOAD" = stop ]; then stopped=1; fi
}

bccn_open -f full -w 10 ${1+"$1"} || { # the format full shows who asks
    printf '%s\n' "$BCCN_TEXT" >&2
    exit 1
}
bccn_serve jobs/upper work
bccn_listen obey
bccn_heartbeat 5 ready
printf '%s is ready\n' "$BCCN_NAME"

while [ -z "$stopped" ]; do
    bccn_dispatch 60
    if [ $reported -lt $done ]; then
        reported=$done
        bccn_heartbeat 5 "$reported done"
    fi
done
bccn_barrier # everything has arrived
printf '%s done\n' $done
