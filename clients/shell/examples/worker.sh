#!/bin/sh
# A worker: answers requests on jobs/upper with the text in capitals, tells how many it did on its heartbeat, and stops
# when somebody sends it "stop".
#
#     sh examples/worker.sh &
#     bccn req jobs/upper 'hello there'
set -eu

# shellcheck source=bccn.sh
. "${0%/*}/../bccn.sh"

done=0 told=0 stopped=''

answer() {
    bccn_question || return 0
    done=$((done + 1))
    bccn_reply -b "$(printf %s "$BCCN_QUESTION_RAW" | tr '[:lower:]' '[:upper:]')" # raw: with every NUL
}

obey() {
    if [ "$BCCN_PAYLOAD" = stop ]; then stopped=1; fi
}

bccn_open -f full -w 10 ${1+"$1"} || { # full: to know whom to answer
    printf '%s\n' "$BCCN_TEXT" >&2
    exit 1
}
bccn_listen jobs/upper answer
bccn_listen ! obey
bccn_heartbeat_start 5 ready
printf '%s is ready\n' "$BCCN_NAME"

while [ -z "$stopped" ]; do
    bccn_dispatch
    if [ $told -lt $done ]; then
        told=$done
        bccn_heartbeat_start 5 "$told done"
    fi
done
bccn_barrier # nothing is left on its way
printf '%s done\n' $done
