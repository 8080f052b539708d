# The driver of the shell client for the conformance suite (clients/CONFORMANCE.md).
# shellcheck shell=sh
LC_ALL=C
export LC_ALL
. ./bccn.sh

# Seconds between looks at events other than messages.
slice=0.05
format=plain separator=/ queue='' timeout='' echo=on reconnect=on path='' events='' held='' opened=''
name='' wait='' report=off notices=''
nl='
'

# Events are lines to be printed.
note() {
    case $1 in rejected) code=${3%% *} ;; *) code=% ;; esac
    notices="$notices $1 $2 $code"
    case $1 in *connected) events="${events}ok $1$nl" ;; esac
}

called() { add_event call; }

first() { add_event first; }

second() { add_event second; }

add_event() {
    if [ "$BCCN_LOST" != 0 ]; then events="${events}ok lost $BCCN_LOST$nl"; fi
    events=$events$(say_message "$1")$nl
}

told() { events=$events$(say wanted "$1" "$2")$nl; }

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

say_message() {
    if [ -n "$BCCN_SRC" ]; then
        say "$1" "$BCCN_CHANNEL" "$BCCN_RAW" "$BCCN_SRC" "$BCCN_SEQ" "$BCCN_PEER" "$BCCN_VERDICT"
    else
        say "$1" "$BCCN_CHANNEL" "$BCCN_RAW"
    fi
}

failed() {
    encode "$BCCN_TEXT"
    printf 'error %s %s\n' "$BCCN_ERROR" "$word"
}

connect() {
    [ "$echo" = on ] || set -- -E
    [ "$reconnect" = on ] || set -- "$@" -R
    [ "$report" = on ] || set -- "$@" -o note
    bccn_open "$@" -f "$format" -s "$separator" ${name:+-n "$name"} ${wait:+-w "$wait"} ${queue:+-q "$queue"} ${timeout:+-t "$timeout"} ${path:+"$path"}
}

receive() {
    _until=$(awk -v s="$1" -v i="$slice" 'BEGIN { print int(s / i) + 1 }')
    while :; do
        if [ -n "$events" ]; then
            printf '%s\n' "${events%%"$nl"*}"
            events=${events#*"$nl"}
            return
        fi
        if [ -z "$held" ]; then
            _until=$((_until - 1))
            if [ $_until = 0 ]; then seconds=0; else seconds=$slice; fi
            if bccn_receive $seconds; then
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
        say_message msg
        return
    done
}

count() {
    received=0 lost=0 last=''
    while [ $received -lt "$1" ] && bccn_receive "$2"; do
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
        bccn_publish "$1" "$text" || return
        number=$((number + 1))
    done
}

ask() {
    if [ -z "$4" ]; then
        if bccn_request -b "$1" "$2" "$3"; then say "$BCCN_RAW"; else failed; fi
        return
    fi
    if ! bccn_request_many -b "$@"; then
        failed
        return
    fi
    set --
    while bccn_next_reply; do
        set -- "$@" "$BCCN_RAW"
    done
    if [ "$BCCN_ERROR" = timeout ]; then say "$@"; else failed; fi
}

serve() {
    served=0 token=''
    if [ -n "$4" ]; then set -- "$1" "$2" "$3" keep; else set -- "$1" "$2" "$3" re; fi
    if [ -n "$3" ] && ! bccn_serve "$3" "$4"; then
        failed
        return
    fi
    before=-1
    while [ $served -lt "$1" ]; do
        if [ -z "$3" ]; then
            bccn_receive "$2" || break
            re "${BCCN_RAW#*\\0012}" || : # no request
        else
            [ $before -lt $served ] || break
            before=$served
            bccn_dispatch "$2"
            if [ -n "$token" ]; then
                BCCN_SRC=$src BCCN_TOKEN=$token
                re "$question"
                token=''
            fi
        fi
    done
    say $served
}

re() {
    bccn_reply -b "re:${1-$BCCN_RAW}" && served=$((served + 1))
}

# Keeps a request: it is replied to when this has returned.
keep() { src=$BCCN_SRC token=$BCCN_TOKEN question=$BCCN_RAW; }

# Forks. The child answers the command and goes on with the script; the parent answers the exit of the child.
fork() {
    (
        if [ "$1" = A ]; then
            bccn_close
            connect || exit
        else
            bccn_name || exit
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
        format | separator | pack | queue | timeout | echo | reconnect | tap | wait | as | report | matches | cancel | open | \
            close | exit | version | stream | take | status | clients | sources | datagram | poll) ;;
        whoami | name | sub | callback | unsub | watch | unwatch | listen | control | notices | dispatch | lost | heartbeat | pub | pub-to | \
            pub-all | flood | barrier | recv | await | origin | count | request | ask | serve | fork)
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
    command=$1 first=''
    shift
    if [ $# -gt 0 ]; then
        decode "$1"
        first=$(printf '%b.' "$raw" | tr -d '\000') && first=${first%.}
    fi
    if [ $# -gt 1 ]; then decode "$2"; fi # $raw stays for the command
    case $command in
        format) format=$first && say ;;
        separator) separator=$first && say ;;
        pack | tap) if [ "$first" = off ]; then say; else echo error unsupported; fi ;;
        queue) queue="$*" && say ;;
        timeout) timeout=$first && say ;;
        echo) echo=$first && say ;;
        reconnect) reconnect=$first && say ;;
        wait) wait=$first && say ;;
        as) name=$first && say ;;
        report) report=$first && say ;;
        matches) if bccn_matches "$first" "$(printf %b "$raw")" "$3"; then say yes; else say no; fi ;;
        cancel | stream | take | status | clients | sources | datagram | poll) echo error unsupported ;;
        version) say "$BCCN_VERSION" ;;
        open)
            path=${first-} opened='' events='' held='' notices=''
            if connect; then opened=1 && say "$BCCN_NAME"; else failed; fi
            ;;
        close) bccn_close && opened='' && say ;;
        whoami) if bccn_name; then say "$BCCN_NAME"; else failed; fi ;;
        name) if bccn_set_name "$first"; then say "$BCCN_NAME"; else failed; fi ;;
        sub) done_or_failed bccn_subscribe "$first" ;;
        callback) done_or_failed bccn_subscribe "$first" called ;;
        unsub) done_or_failed bccn_unsubscribe "$first" ;;
        watch) done_or_failed bccn_watch "$first" told ;;
        unwatch) done_or_failed bccn_unwatch "$first" ;;
        listen) done_or_failed bccn_listen ${first:+"$first"} ;;
        control) if bccn_control "$first" ${2+"$(printf %b "$raw")"}; then say "$BCCN_ANSWER"; else failed; fi ;;
        notices) printf 'ok%s\n' "$notices" && notices='' ;;
        dispatch) done_or_failed bccn_dispatch ;;
        await) if bccn_receive; then say_message msg; else failed; fi ;;
        origin) say "$BCCN_TIME_NS" "$BCCN_DATAGRAM" ;;
        ask) if bccn_request -b "$first" "$raw"; then say "$BCCN_RAW"; else failed; fi ;;
        lost) if bccn_lost; then say "$BCCN_LOST_EVER"; else failed; fi ;;
        heartbeat) done_or_failed bccn_heartbeat "$first" "$(printf %b "${2+$raw}")" ;;
        pub) done_or_failed bccn_publish -b "$first" "$raw" ;;
        pub-to) done_or_failed bccn_publish_to -b "$first" "$raw" ;;
        pub-all) done_or_failed bccn_publish_all -b "$raw" ;;
        flood) done_or_failed flood "$first" "$2" "${3-}" ;;
        barrier) done_or_failed bccn_barrier ;;
        recv) receive "$first" ;;
        count) count "$first" "$2" ;;
        request) ask "$first" "$raw" "$3" "${4-}" ;;
        serve) serve "$first" "$2" "${3-}" "${4-}" ;;
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
