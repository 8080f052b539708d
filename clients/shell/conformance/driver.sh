# The driver of the shell client for the conformance suite (clients/CONFORMANCE.md).
# shellcheck shell=sh
LC_ALL=C
export LC_ALL
. ./bccn.sh

# Seconds between looks at events other than messages.
slice=0.05
format=plain separator=/ queue='' address='' events='' held='' opened=''
BCCN_ON_NOTICE=note

note() {
    case $1 in *connected) events="$events $1" ;; esac
}

# Sets $raw to a word of the script as %b reads it.
decode() {
    raw=$1
    case $1 in
        %) raw='' ;;
        *[%\\]*)
            raw=$(printf '%s\n' "$1" | awk '
                BEGIN { for (c = 0; c < 256; c++) octal[sprintf("%02X", c)] = sprintf("\\0%03o", c) }
                {
                    gsub(/\\/, "%5C")
                    n = split($0, part, "%")
                    printf "%s", part[1]
                    for (i = 2; i <= n; i++) printf "%s%s", octal[substr(part[i], 1, 2)], substr(part[i], 3)
                }')
            ;;
    esac
}

# Sets $word to a word of the script from one that is as %b reads it.
encode() {
    word=$1
    case $1 in
        '') word=% ;;
        *[!!-~]* | *[%\\]*)
            word=$(printf '%b' "$1" | od -An -v -to1 | awk '
                BEGIN {
                    for (c = 0; c < 256; c++)
                        t[sprintf("%03o", c)] = c < 33 || c > 126 || c == 37 ? sprintf("%%%02X", c) : sprintf("%c", c)
                }
                { for (i = 1; i <= NF; i++) printf "%s", t[$i] }')
            ;;
    esac
}

# Prints ok and words that are as %b reads them.
say() {
    line=ok
    for raw; do
        encode "$raw"
        line="$line $word"
    done
    printf '%s\n' "$line"
}

failed() {
    encode "$BCCN_TEXT"
    printf 'error %s %s\n' "$BCCN_ERROR" "$word"
}

connect() {
    bccn_open -f "$format" -s "$separator" ${queue:+-q "$queue"} ${address:+"$address"}
}

receive() {
    _until=$(awk -v s="$1" -v i="$slice" 'BEGIN { print int(s / i) + 1 }')
    while :; do
        if [ -n "$events" ]; then
            events=${events# }
            say "${events%% *}"
            case $events in *' '*) events=" ${events#* }" ;; *) events='' ;; esac
            return
        fi
        if [ -z "$held" ]; then
            _until=$((_until - 1))
            if [ $_until = 0 ]; then wait=0; else wait=$slice; fi
            if bccn_recv $wait; then
                held=1
            elif [ "$BCCN_ERROR" != timeout ]; then
                failed
                return
            elif [ $_until -le 0 ] && [ -z "$events" ]; then
                say timeout
                return
            else
                continue
            fi
        fi
        if [ "$BCCN_LOST" != 0 ]; then
            say lost "$BCCN_LOST"
            BCCN_LOST=0
            return
        fi
        held=''
        if [ -n "$BCCN_SRC" ]; then
            say msg "$BCCN_CHANNEL" "$BCCN_RAW" "$BCCN_SRC" "$BCCN_SEQ" "$BCCN_PEER" "$BCCN_VERDICT"
        else
            say msg "$BCCN_CHANNEL" "$BCCN_RAW"
        fi
        return
    done
}

count() {
    received=0 lost=0 last=''
    while [ $received -lt "$1" ] && bccn_recv "$2"; do
        received=$((received + 1)) lost=$((lost + BCCN_LOST)) last=$BCCN_RAW
    done
    events=''
    say $received $lost "$last"
}

flood() {
    number=1 dots=''
    if [ "${3:-0}" -gt 0 ]; then dots=$(printf "%${3}s" '' | tr ' ' .); fi
    while [ $number -le "$2" ]; do
        text=$number
        if [ ${#number} -lt ${#dots} ]; then text=$number${dots#"$(printf "%${#number}s" '' | tr ' ' '?')"}; fi
        bccn_send "$1" "$text" || return
        number=$((number + 1))
    done
}

ask() {
    if ! bccn_request -b "$1" "$2" "$3"; then
        failed
        return
    fi
    most=${4:-1} rest=$3
    set -- "$BCCN_RAW"
    while [ $# -lt "$most" ] && bccn_next_answer "$rest"; do
        set -- "$@" "$BCCN_RAW"
    done
    say "$@"
}

serve() {
    served=0
    while [ $served -lt "$1" ] && bccn_recv "$2"; do
        bccn_question || continue
        bccn_reply -b "re:$BCCN_QUESTION_RAW" || break
        served=$((served + 1))
    done
    say $served
}

# Forks. The child answers the command and goes on with the script; the parent answers the exit of the child.
fork() {
    (
        if [ "$1" = A ]; then
            bccn_close
            connect || exit
        else
            bccn_get_name || exit
        fi
        say "${BCCN_NAME##*/}" "$BCCN_NAME" # the daemon knows a shell by the pid of its bridge
        obey_all
    )
    say $?
}

done_or_failed() {
    if "$@"; then say; else failed; fi
}

obey() {
    case $1 in
        format | separator | pack | queue | timeout | cancel) ;;
        open | close | exit) ;;
        whoami | name | sub | unsub | listen | heartbeat | pub | pub-to | pub-all | flood | barrier | recv | count | \
            request | serve | fork)
            if [ -z "$opened" ]; then
                echo error closed
                return
            fi
            ;;
        *)
            echo error usage
            return
            ;;
    esac
    command=$1
    shift
    if [ $# -gt 0 ]; then
        decode "$1"
        first=$(printf '%b.' "$raw" | tr -d '\000') && first=${first%.}
    fi
    if [ $# -gt 1 ]; then decode "$2"; fi # $raw stays for the command
    case $command in
        format) format=$first && say ;;
        separator) separator=$first && say ;;
        pack) if [ "$first" = on ]; then echo error unsupported; else say; fi ;;
        queue) queue="$*" && say ;;
        timeout) BCCN_TIMEOUT=$first && say ;;
        cancel) echo error unsupported ;;
        open)
            address=${first-} opened='' events='' held=''
            if connect; then opened=1 && say "$BCCN_NAME"; else failed; fi
            ;;
        close) bccn_close && opened='' && say ;;
        whoami) if bccn_whoami; then say "$BCCN_NAME"; else failed; fi ;;
        name) if bccn_set_name "$first"; then say "$BCCN_NAME"; else failed; fi ;;
        sub) done_or_failed bccn_subscribe "$first" ;;
        unsub) done_or_failed bccn_unsubscribe "$first" ;;
        listen) done_or_failed bccn_listen ! ;;
        heartbeat) done_or_failed bccn_heartbeat_start "$first" "$(printf %b "${2+$raw}")" ;;
        pub) done_or_failed bccn_send -b "$first" "$raw" ;;
        pub-to) done_or_failed bccn_send_to -b "$first" "$raw" ;;
        pub-all) done_or_failed bccn_send_all -b "$raw" ;;
        flood) done_or_failed flood "$first" "$2" "${3-}" ;;
        barrier) done_or_failed bccn_barrier ;;
        recv) receive "$first" ;;
        count) count "$first" "$2" ;;
        request) ask "$first" "$raw" "$3" "${4-}" ;;
        serve) serve "$first" "$2" ;;
        fork) fork "$first" ;;
    esac
}

# read takes a byte at a time: a child goes on reading where its parent stopped, and the other way round.
obey_all() {
    while IFS= read -r command; do
        [ "$command" != exit ] || exit 0
        IFS=' '
        set -f
        # shellcheck disable=SC2086
        set -- $command
        obey "${@:-?}"
    done
}

obey_all
