# shellcheck shell=sh disable=SC2034 # the variables are for the script that sources this file
# bccn.sh: LISTEN/NOTIFY between the programs of a network segment. This is the client of the bccnd bus for POSIX shells.
# A script sources it; results are in variables that begin with BCCN_. It needs socat, awk and Linux. See README.md.
#
# SPDX-License-Identifier: MIT
#
# It takes the DESCRIPTORS 8 AND 9 of the shell from bccn_open to bccn_close, and all names that begin with bccn_, _bccn_
# and BCCN_. A script uses none of them for anything else.
#
# A shell cannot read packets from a socket, so a bridge in the background does:
#
#     script -> $dir/in -> bridge -> daemon
#     script <- queue <- $dir/out <- bridge <- daemon
#
# Rules:
# 1. The bridge holds the connection, and reconnects. It is one process for the life of a client, socat and sh in turn,
#    since the daemon knows the client by its pid. A line of $dir/in is a packet for the daemon, and a line of $dir/out
#    a packet from it. Lines have their bytes as printf %b reads them: \0ooo stands for a byte that does not print, and
#    for the backslash. Every variable called raw is of this form, so it can hold any bytes; \0000 is a NUL.
# 2. Several processes may write lines, so no line written at once is longer than PIPE_BUF. A longer packet goes in by a
#    file, and comes out in parts.
# 3. When a pong arrives, the daemon has processed everything sent before its ping. A function that waits keeps reading,
#    and at most UNREAD bytes go in without a pong: so the bridge can always write, and no two processes wait for each
#    other.
# 4. Messages that arrive during another wait go to the queue, up to BACKLOG messages; the client drops none.
# 5. Each connection is a generation. The bridge drops lines for an older one, and the next barrier reports them as
#    "unconfirmed".
# 6. A subscribe that fails leaves nothing. If its SUB went to the bridge, it is withdrawn: an UNSUB and a ping follow,
#    and until the pong the client drops the messages that came for it alone. So is a watch, by an unwatch.
# 7. A child (of &, of a pipe, of parentheses) only closes its copies of the descriptors of its parent.
# 8. The deadline of a call holds while it connects, too: what is left of a greeting goes on in the next call.
# 9. A packet that cannot be read ends its connection, and the call. Between two connections nothing is a packet.
#
# Internal times are hundredths of a second of uptime; deadlines are arguments, since callbacks may call everything.
# Functions that wait return 3 at the deadline, 1 if the connection broke, and 4 if the call has failed.

# An alarm may outlive the shell, so none sleeps longer than SLEEP.
_bccn_UNREAD=16000 _bccn_BACKLOG=20000 _bccn_SLEEP=1000
_bccn_open='' BCCN_VERSION=0.1.0
_bccn_nl='
'

# --- errors ---
#
# BCCN_ERROR is a word, BCCN_TEXT a line for people. The exit codes are those of the command bccn.

_bccn_fail() {
    BCCN_ERROR=$1 BCCN_TEXT=$2
    case $1 in
        timeout) return 3 ;;
        refused) return 4 ;;
        unavailable | unconfirmed | closed) return 5 ;;
        nobody) return 6 ;;
        invalid | bad-*) return 2 ;;
    esac
    return 1
}

_bccn_notify() { "$_bccn_on_notice" "$@" || :; } # its exit code is its own affair

# The text has the raw form, in which nothing moves the cursor.
_bccn_say() { printf 'bccn: %s\n' "$3" >&2; }

# --- bytes and times ---

# Sets _bccn_raw to $1 as %b reads it, on one line.
_bccn_encode() {
    _bccn_raw=$1
    case $1 in
        *\\* | *"$_bccn_nl"*)
            _bccn_raw=$(printf '%s.' "$1" | LC_ALL=C awk '{ gsub(/\\/, "\\0134"); printf "%s%s", nl, $0; nl = "\\0012" }')
            _bccn_raw=${_bccn_raw%.}
            ;;
    esac
}

# Sets _bccn_text to the bytes of $1, which is as %b reads it. NULs are left out, since no variable can hold them.
_bccn_decode() {
    _bccn_text=$1
    case $1 in
        *\\*) _bccn_text=$(printf '%b.' "$1" | tr -d '\000') && _bccn_text=${_bccn_text%.} ;;
    esac
}

_bccn_clock() {
    IFS=' ' read -r _bccn_now _ </proc/uptime
    _bccn_now=${_bccn_now%.*}${_bccn_now#*.}
}

# Sets _bccn_deadline to the time in $1 seconds; empty, for never, without $1.
_bccn_in() {
    _bccn_deadline=''
    case ${1-} in
        '') return ;;
        *[!0-9.]* | *.*.* | .) _bccn_fail invalid "$1: must be seconds, such as 5 or 0.5" || return ;;
    esac
    _bccn_fraction=${1#"${1%%.*}"}00
    _bccn_fraction=${_bccn_fraction#.} _bccn_whole=${1%%.*}
    _bccn_fraction=${_bccn_fraction%"${_bccn_fraction#??}"}
    _bccn_clock
    _bccn_deadline=$((_bccn_now + ${_bccn_whole:-0} * 100 + 1$_bccn_fraction - 100))
}

# The same for a call that waits for the daemon: it gives up with the request that it is for.
_bccn_in_time() {
    _bccn_in "$_bccn_timeout"
    [ "$_bccn_deadline" -le "${_bccn_ask_until:-$_bccn_deadline}" ] || _bccn_deadline=$_bccn_ask_until
}

# --- the bridge ---

# socat runs this script with the socket as stdin and stdout; $1 is the generation. A second socat only reads, and its
# hex dump shows where packets end. awk writes a line and its end at once: mawk would write what print adds by itself, and
# an alarm might come between. dd sends a file as one packet, where a shell might write in pieces. No open may
# block, since the shell may be gone.
# shellcheck disable=SC2016
_bccn_bridge='
exec 3<&0 4<>in 5<in 6<>out 7>out 4<&- 6<&-
rm -f reader
: >"up$1"
{
    { socat -u -x -b131073 FD:3 OPEN:/dev/null,wronly & echo $! >reader; wait; rm -f "up$1"; } 2>&1 | $bccn_awk '\''
        BEGIN {
            for (c = 0; c < 256; c++)
                t[sprintf("%02x", c)] = c < 32 || c == 127 || c == 92 ? sprintf("\\0%03o", c) : sprintf("%c", c)
        }
        /^ / {
            s = " "; n = length($0)
            if (n > 3 * 131072) n = 0 # it was cut off, and what is left is no packet
            for (i = 2; i <= n; i += 3) {
                s = s t[substr($0, i, 2)]
                if (length(s) > 3000) { printf "%s", "+" s "\n"; fflush(); s = "" }
            }
            printf "%s", s "\n"; fflush()
        }
        END { printf "%s", "E\n" }'\'' >&7
    echo "E$1" 1<>in
} &
reading=$!
exec 3<&-
echo "O$1" >&7
while IFS= read -r line; do
    case $line in
        "$1:"*) printf %b "${line#*:}" ;;
        "$1@"*) dd bs=131072 count=1 <"${line#*@}" && rm "${line#*@}" ;;
        *:*) ;; # this packet and the next are of an older generation
        *@*) rm "${line#*@}" ;;
        "E$1")
            [ -n "$bccn_reconnect" ] || { wait $reading; exit; }
            set -- $(($1 + 1))
            while read -r _ _ _ parent _ </proc/self/stat && [ "$parent" = $$ ] && [ ! -e "up$1" ]; do
                # While socat tries to connect, only this loop notices that the shell has closed the client, or ended.
                [ -e "/proc/$bccn_shell/exe" ] && [ -p in ] || kill -KILL $$
                sleep 0.5
            done </dev/null >/dev/null 5<&- 7>&- &
            exec c/* "$bccn_peer,type=5,forever,interval=0.05" "EXEC:$(echo s/*) bridge $1,nofork"
            ;;
        Q) break ;;
    esac
done <&5
until [ -s reader ]; do sleep 0.01; done
kill "$(cat reader)"
wait $reading # it must not write after the folder is removed'

# Starts the bridge to $_bccn_address. It writes O when it is connected, and X with the reason when it is not.
_bccn_launch() {
    _bccn_dir=$(mktemp -d "${TMPDIR:-/tmp}/bccn.XXXXXX") && mkfifo "$_bccn_dir/in" "$_bccn_dir/out" ||
        _bccn_fail unavailable "cannot make a folder for the bridge in ${TMPDIR:-/tmp}" || return
    exec 8<>"$_bccn_dir/in" 9<>"$_bccn_dir/out"
    _bccn_alarm='' _bccn_part='' _bccn_ready='' _bccn_up=''
    (
        {
            set +efu
            trap '' HUP INT QUIT TERM PIPE
            cd "$_bccn_dir" || exit
            export LC_ALL=C bccn_awk=awk bccn_peer bccn_shell="$_bccn_open" bccn_reconnect="$_bccn_reconnect"
            case $(awk -W version) in mawk*) bccn_awk='awk -W interactive' ;; esac
            bccn_peer=$(printf %s "$_bccn_address" | sed 's/[^A-Za-z0-9_./-]/\\&/g; s/^/UNIX-CONNECT:/
                s/^UNIX-CONNECT:\\@/ABSTRACT-CONNECT:/')
            name=$(printf %s "${0##*/}" | tr -c 'A-Za-z0-9_.\n-' _ | cut -c 1-15)
            case $name$(readlink -f "$(command -v sh)") in -* | *busybox*) name='sh' ;; esac
            mkdir c s && ln -s "$(command -v socat)" "c/$name" && ln -s "$(command -v sh)" "s/$name"
            printf '%s\n' "$_bccn_bridge" >bridge
            "c/$name" "$bccn_peer,type=5" "EXEC:s/$name bridge 1,nofork" 2>error 3>&-
            rm -f up*
            sed 's/.*: /X/; s/^[^X]/X&/; q' error 1<>out
            echo X 1<>out
            cd / || exit
            rm -rf "$_bccn_dir" || { sleep 1 && rm -rf "$_bccn_dir"; } # an alarm may have written there meanwhile
        } </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &
    )
}

# Sets _bccn_line to a line of the bridge with all its parts.
_bccn_read() {
    while :; do
        if [ -n "${1-}" ] && [ "${_bccn_alarm:-$(($1 + 1))}" -gt "$1" ]; then _bccn_wake_at "$1"; fi
        IFS= read -r _bccn_line <&9 || return
        case $_bccn_line in
            +*) _bccn_part=$_bccn_part${_bccn_line#+} ;;
            A*)
                [ "$_bccn_line" = "A$_bccn_alarms" ] || continue
                _bccn_alarm=''
                _bccn_clock
                [ -z "${1-}" ] || [ "$_bccn_now" -lt "$1" ] || return 3
                ;;
            *)
                _bccn_line=$_bccn_part$_bccn_line _bccn_part=''
                return 0
                ;;
        esac
    done
}

# Interrupts the wait for a line of the bridge at $1 or earlier.
_bccn_wake_at() {
    _bccn_clock
    _bccn_alarms=$((_bccn_alarms + 1)) _bccn_alarm=$1
    if [ "$1" -le "$_bccn_now" ]; then
        echo "A$_bccn_alarms" >&9
        return
    fi
    [ $(($1 - _bccn_now)) -le $_bccn_SLEEP ] || _bccn_alarm=$((_bccn_now + _bccn_SLEEP))
    _bccn_nap=$((_bccn_alarm - _bccn_now + 100))
    ({
        sleep "$((_bccn_nap / 100 - 1)).${_bccn_nap#"${_bccn_nap%??}"}"
        [ ! -p "$_bccn_dir/out" ] || echo "A$_bccn_alarms" 1<>"$_bccn_dir/out"
    } </dev/null >/dev/null 2>&1 8>&- 9>&- &)
}

# Hands the bridge the packet $1, which is as %b reads it.
_bccn_put() {
    _bccn_unread=$((_bccn_unread + ${#1}))
    case $1 in
        *\\0012*) ;; # a shell may write only as far as a line feed at once
        *) if [ ${#1} -le 900 ]; then printf '%s:%s\n' "$_bccn_up" "$1" >&8 && return; fi ;;
    esac
    _bccn_files=$((_bccn_files + 1))
    printf %b "$1" >"$_bccn_dir/p$_bccn_files" && printf '%s@p%s\n' "$_bccn_up" "$_bccn_files" >&8
}

# --- packets of the daemon ---

# Reads and handles a line of the bridge.
_bccn_handle() {
    _bccn_read "${1-}" || return
    case $_bccn_line in
        ' '*) [ -z "$_bccn_up" ] || _bccn_take ;;
        O*) _bccn_up=${_bccn_line#O} _bccn_reached=1 _bccn_unread=0 ;;
        E*) _bccn_lose ;;
        X*)
            _bccn_reason=${_bccn_line#X}
            _bccn_lose
            _bccn_dir=''
            ;;
    esac
}

_bccn_take() {
    case $_bccn_line in
        ' CMSG '*\\0000*) _bccn_control "${_bccn_line#' CMSG '}" ;;
        ' MSG '*\\0000*) _bccn_add ;;
        ' RECV '*' '*' '*\\0000*)
            _bccn_head=${_bccn_line%%\\0000*}
            _bccn_value=${_bccn_head#' RECV '*' '}
            case $_bccn_value in *' '*) _bccn_value=${_bccn_value%%' '*} ;; *) _bccn_value='' ;; esac
            case $_bccn_value in
                '' | *[!0-9]* | ?????????????????????*) _bccn_refuse ;;
                *) _bccn_add ;;
            esac
            ;;
        *) _bccn_refuse ;;
    esac
}

# Ends the connection: the bridge makes another.
_bccn_refuse() {
    IFS= read -r _bccn_value <"$_bccn_dir/reader" && kill "$_bccn_value" 2>/dev/null
    _bccn_lose 'the daemon sent a packet that is not of this protocol'
    _bccn_fail protocol 'the daemon sent a packet that is not of this protocol'
    return 4
}

_bccn_lose() {
    [ -n "$_bccn_up" ] || return 0
    _bccn_doubt=$((_bccn_doubt + _bccn_published - _bccn_confirmed))
    _bccn_confirmed=$_bccn_published _bccn_up='' _bccn_ready='' _bccn_greeting=''
    _bccn_withdrawn='' # a new connection knows nothing of them
    _bccn_notify disconnected $_bccn_doubt "${1:-the daemon went away}"
}

_bccn_control() {
    _bccn_value=${1#*\\0000}
    case $1 in
        pong\\*)
            case $_bccn_value in '' | *[!0-9]* | ??????????????????*) return ;; esac
            _bccn_answered=$_bccn_value
            [ -z "$_bccn_withdrawn" ] || _bccn_settle
            if [ "$_bccn_value" = "$_bccn_asked" ]; then
                _bccn_confirmed=$_bccn_asked_at _bccn_unread=0
            elif [ -n "$_bccn_ready" ]; then
                _bccn_complaint='' # the errors until now belong to a request that was given up
            fi
            ;;
        error\\*)
            case ${_bccn_value#* } in
                CMSG\ * | SUB\ * | UNSUB\ *) _bccn_complaint=${_bccn_complaint:-$_bccn_value} ;;
                *)
                    _bccn_rejection=${_bccn_rejection:-$_bccn_value}
                    _bccn_notify rejected 1 "$_bccn_value"
                    ;;
            esac
            ;;
        dropped\\*)
            # Bash carries out commands that stand in what it calculates with.
            case $_bccn_value in '' | *[!0-9]* | 0?* | ??????????????????*) return ;; esac
            _bccn_lost=$((_bccn_lost + _bccn_value)) _bccn_lost_ever=$((_bccn_lost_ever + _bccn_value))
            _bccn_notify lost "$_bccn_value" "$_bccn_value lost: messages came faster than they were read"
            ;;
        wanted\\*)
            set -- "=${_bccn_value#* }" "${_bccn_value%% *}"
            _bccn_without "$1" "$_bccn_news"
            _bccn_news="$_bccn_kept$1 $2$_bccn_nl"
            ;;
        revoked\\*) _bccn_notify revoked 1 "no longer allowed: $_bccn_value" ;;
        closing\\*) _bccn_notify closing 0 "the daemon closes the connection: $_bccn_value" ;;
        *)
            case $1 in
                whoami\\* | name\\*) BCCN_NAME=$_bccn_value ;;
                watch\\*) # what was said of the pattern before belongs to an earlier watch
                    _bccn_without "=$_bccn_value" "$_bccn_news"
                    _bccn_news=$_bccn_kept
                    ;;
            esac
            _bccn_answer=$_bccn_value
            ;;
    esac
}

# Adds a message to the queue, or to the replies that a request waits for.
_bccn_add() {
    if [ -n "$_bccn_requests" ]; then
        _bccn_take_apart "$_bccn_line"
        case $_bccn_chan in
            "$_bccn_requested") ;;
            !*)
                case $_bccn_body in
                    "$_bccn_token$_bccn_requests\\0012"*)
                        _bccn_settled=1 _bccn_r_last=$((_bccn_r_last + 1))
                        eval "_bccn_r$_bccn_r_last=\$_bccn_body"
                        return ;;
                    "$_bccn_token$_bccn_requests"\?*) _bccn_settled=1 && return ;; # a daemon with listeners
                    "$_bccn_token"*) return ;; # late
                    *) [ -n "$_bccn_listening$_bccn_subs" ] || return 0 ;; # any subscription listens, too
                esac
                ;;
        esac
    fi
    if [ -n "$_bccn_overhears" ]; then
        _bccn_take_apart "$_bccn_line"
        ! _bccn_is_unwanted || return 0
    fi
    _bccn_q_last=$((_bccn_q_last + 1))
    eval "_bccn_q$_bccn_q_last=\$_bccn_lost\$_bccn_line"
    _bccn_lost=0
}

# --- subscribes that fail ---
#
# _bccn_withdrawn has a line for each UNSUB that nobody waits for: the number of the ping behind it, =, and the pattern.
# _bccn_overhears is set when a SUB or listen that has failed makes the daemon deliver the messages of !.

# Sends the UNSUB of the pattern $1. The messages behind number $2 of the queue that came for it reach nobody.
_bccn_withdraw() {
    _bccn_withdrawn="${_bccn_withdrawn:+$_bccn_withdrawn$_bccn_nl}$((_bccn_asked + 1)) =$1"
    _bccn_put "UNSUB $1"
    _bccn_ping
    _bccn_sift "$2"
}

# Drops those messages behind number $1 of the queue that came for nothing but what has failed.
_bccn_sift() {
    set -- "$1" "$_bccn_q_last"
    _bccn_q_last=$1 _bccn_overhears=1
    while [ "$1" -lt "$2" ]; do
        set -- $(($1 + 1)) "$2"
        eval "_bccn_line=\$_bccn_q$1; unset _bccn_q$1"
        _bccn_take_apart "$_bccn_line"
        if _bccn_is_unwanted; then
            _bccn_lost=$((_bccn_lost + ${_bccn_line%% *}))
        else
            _bccn_q_last=$((_bccn_q_last + 1))
            eval "_bccn_q$_bccn_q_last=\$_bccn_line"
        fi
    done
}

# Forgets the withdrawals that the daemon has processed.
_bccn_settle() {
    set -- "$_bccn_withdrawn"
    _bccn_withdrawn=''
    while IFS=' ' read -r _bccn_ping _bccn_pattern; do
        [ "$_bccn_ping" -le "$_bccn_answered" ] ||
            _bccn_withdrawn="${_bccn_withdrawn:+$_bccn_withdrawn$_bccn_nl}$_bccn_ping $_bccn_pattern"
    done <<-END
	$1
	END
}

# Whether a message on $_bccn_chan came for nothing but a subscribe that was withdrawn.
_bccn_is_unwanted() {
    case $_bccn_chan in !*) [ -z "$_bccn_listening$_bccn_subs" ]; return ;; esac
    while IFS=' ' read -r _ _bccn_pattern; do
        [ -n "$_bccn_pattern" ] || continue
        bccn_matches "${_bccn_pattern#=}" "$_bccn_chan" "$_bccn_wanted_separator" || continue
        while IFS=' ' read -r _bccn_pattern _; do
            [ -z "$_bccn_pattern" ] ||
                ! bccn_matches "${_bccn_pattern#=}" "$_bccn_chan" "$_bccn_wanted_separator" || return 1
        done <<-END
	$_bccn_subs
	END
        return 0
    done <<-OUTER
	$_bccn_withdrawn
	OUTER
    return 1
}

# --- watches ---
#
# _bccn_watches has a line for each watch: =, the pattern, its function, and what that was told: yes, no, or - for nothing.
# _bccn_news has a line for each pattern of which the daemon has spoken: =, the pattern, and where somebody listens.

# Sets _bccn_kept to the lines of $2 whose first word is not $1.
_bccn_without() {
    _bccn_kept=''
    while IFS=' ' read -r _bccn_word _bccn_rest; do
        [ "${_bccn_word:-$1}" = "$1" ] || _bccn_kept="$_bccn_kept$_bccn_word $_bccn_rest$_bccn_nl"
    done <<-END
	$2
	END
}

# Tells the functions of watches what has changed. 1: nothing has.
_bccn_tell() {
    set -- 1
    while [ -n "$_bccn_news" ]; do
        _bccn_rest=${_bccn_news%%"$_bccn_nl"*}
        _bccn_news=${_bccn_news#*"$_bccn_nl"}
        set -- "$1" "${_bccn_rest%% *}" yes # any other word than no means somebody
        [ "${_bccn_rest#* }" != no ] || set -- "$1" "$2" no
        _bccn_rest=$_bccn_nl$_bccn_watches
        case $_bccn_rest in *"$_bccn_nl$2 "*) ;; *) continue ;; esac
        _bccn_rest=${_bccn_rest#*"$_bccn_nl$2 "}
        _bccn_rest=${_bccn_rest%%"$_bccn_nl"*}
        [ "${_bccn_rest#* }" != "$3" ] || continue
        set -- 0 "$2" "$3" "${_bccn_rest%% *}"
        _bccn_without "$2" "$_bccn_watches"
        _bccn_watches="$_bccn_kept$2 $4 $3$_bccn_nl"
        _bccn_decode "${2#=}"
        "$4" "$_bccn_text" "$3" || : # its exit code is its own affair
    done
    return "$1"
}

# Takes apart a line of one of these forms:
#  MSG <chan> NUL <payload>
#  RECV <peer> <ns> <verdict> NUL BCCN1[<envelope>]<src>:<seq>:<chan>|<payload>
_bccn_take_apart() {
    _bccn_head=${1%%\\0000*} _bccn_body=${1#*\\0000} _bccn_from=''
    _bccn_datagram=$_bccn_body
    case ${1#*' '} in
        'MSG '*) _bccn_chan=${_bccn_head#*' MSG '} ;;
        *\\0000BCCN*]*:*:*\|*)
            _bccn_body=${_bccn_body#*]}
            _bccn_from=${_bccn_body%%|*} _bccn_body=${_bccn_body#*|}
            _bccn_chan=${_bccn_from##*:} _bccn_from=${_bccn_from%:*}
            ;;
        *) _bccn_chan='' ;; # only a tap gets such bytes
    esac
}

# --- asking the daemon ---

# Connects and greets if there is no connection; tries until $1.
_bccn_ensure() {
    while [ -z "$_bccn_ready" ] || [ ! -e "$_bccn_dir/up$_bccn_up" ]; do
        [ -z "$_bccn_greeted" ] || [ -n "$_bccn_ready$_bccn_reconnect" ] ||
            _bccn_fail unavailable 'the connection to the daemon has ended' || return
        if [ -z "$_bccn_dir" ]; then
            _bccn_launch || return
        elif [ -n "$_bccn_up" ] && [ -z "$_bccn_ready" ]; then
            _bccn_greet "$1" && continue
            case $? in
                1) ;;
                2) return 2 ;;
                3) _bccn_fail unavailable 'the daemon does not answer' || return ;;
                *) return 1 ;;
            esac
        else
            _bccn_handle "$1" || { [ $? = 3 ] && _bccn_fail unavailable 'the daemon is not back in time'; } || return
            [ -n "$_bccn_dir" ] || _bccn_retry "$1" || return
        fi
    done
}

# The bridge has ended: fails, or waits a little before another try.
_bccn_retry() {
    exec 8>&- 9>&-
    _bccn_text="no daemon at $_bccn_address: ${_bccn_reason:-the bridge has ended}"
    case $_bccn_reached$_bccn_reason in
        'Permission denied') _bccn_fail refused "$_bccn_text" || return ;;
    esac
    _bccn_clock
    [ -n "$_bccn_reached" ] || set -- "$_bccn_patience"
    [ "$_bccn_now" -lt "${1:-$((_bccn_now + 1))}" ] || _bccn_fail unavailable "$_bccn_text" || return
    sleep 0.1
}

# Sends the settings and subscriptions to a new connection, if that has not been done, and waits for the answer until $1.
# 2: the daemon rejected them.
_bccn_greet() {
    if [ -z "$_bccn_greeting" ]; then
        _bccn_complaint=''
        if [ -n "$_bccn_parent" ]; then # the name of a child ends with the pid that the daemon knows
            _bccn_put 'CMSG whoami'
            _bccn_pong "$1" || return
            _bccn_wanted_name=$_bccn_parent/${BCCN_NAME##*/} _bccn_parent=''
        fi
        _bccn_say_wishes
        _bccn_ping
        _bccn_greeting=$_bccn_asked
    fi
    _bccn_await "$_bccn_greeting" "$1" || return
    if [ -n "$_bccn_complaint" ]; then
        [ -n "$_bccn_greeted" ] || _bccn_complain "$_bccn_complaint" || return 2
        _bccn_notify rejected 1 "$_bccn_complaint"
    fi
    _bccn_ready=1
    [ -z "$_bccn_greeted" ] || _bccn_notify reconnected 0 'connected to the daemon again'
    _bccn_greeted=1
}

_bccn_say_wishes() {
    for _bccn_wish in format separator queue name heartbeat; do
        eval "_bccn_value=\$_bccn_wanted_$_bccn_wish"
        [ -z "$_bccn_value" ] || _bccn_put "CMSG $_bccn_wish\\0000$_bccn_value"
    done
    [ "$_bccn_wanted_echo" = on ] || _bccn_put 'CMSG echo/off'
    [ -z "$_bccn_listening$_bccn_requests" ] || _bccn_put 'CMSG listen'
    while IFS=' ' read -r _bccn_value _; do
        [ -z "$_bccn_value" ] || _bccn_put "CMSG watch\\0000${_bccn_value#=}"
    done <<-END
	$_bccn_watches
	END
    while IFS=' ' read -r _bccn_value _; do
        [ -z "$_bccn_value" ] || _bccn_put "SUB ${_bccn_value#=}"
    done <<-END
	$_bccn_subs
	END
    _bccn_put 'CMSG whoami'
}

# Fails with the error "<code> <text>" of the daemon.
_bccn_complain() {
    _bccn_decode "$1"
    _bccn_fail "${_bccn_text%% *}" "${_bccn_text#* } (${_bccn_text%% *})"
}

_bccn_ping() {
    _bccn_asked=$((_bccn_asked + 1)) _bccn_asked_at=$_bccn_published
    _bccn_put "CMSG ping\\0000$_bccn_asked"
}

# Waits until $2 for the pong to ping $1 or to a later one.
_bccn_await() {
    until [ "$_bccn_answered" -ge "$1" ]; do
        _bccn_handle "$2" || { [ $? = 4 ] && return 4; } || return 3
        [ -n "$_bccn_up" ] || return 1
        [ $((_bccn_q_last - _bccn_q_first)) -lt $((2 * _bccn_BACKLOG)) ] ||
            _bccn_fail backlog "$((_bccn_q_last - _bccn_q_first)) messages wait: receive them" || return 4
    done
}

# Waits until the daemon has processed everything sent before.
_bccn_pong() {
    _bccn_ping
    _bccn_await "$_bccn_asked" "$1"
}

# Sends $1 (or nothing), and waits until the daemon has processed it. If the connection breaks, $1 is sent again, unless
# $2 is set: then it is part of the greeting.
_bccn_ask() {
    _bccn_in_time
    set -- "$1" "${2-}" "$_bccn_deadline"
    _bccn_said=''
    while :; do
        _bccn_generation=$_bccn_greeting
        _bccn_ensure "$3" || return
        [ -z "$2" ] || [ "$_bccn_generation" = "$_bccn_greeting" ] || set -- '' '' "$3"
        _bccn_said=''
        [ $((_bccn_q_last - _bccn_q_first)) -lt $_bccn_BACKLOG ] ||
            _bccn_fail backlog "$((_bccn_q_last - _bccn_q_first)) messages wait: receive them" || return
        _bccn_complaint='' _bccn_answer=''
        [ -z "$1" ] || _bccn_put "$1"
        _bccn_said=$_bccn_up
        _bccn_pong "$3" && break
        case $? in
            1) ;;
            3) _bccn_fail timeout 'the daemon does not answer' || return ;;
            *) return 1 ;;
        esac
    done
    _bccn_said=''
    [ -z "$_bccn_complaint" ] || _bccn_complain "$_bccn_complaint"
}

# Every public function begins here. A child of the script that opened the client becomes a source of its own.
_bccn_enter() {
    [ -n "$_bccn_open" ] || _bccn_fail closed 'there is no open connection' || return
    IFS=' ' read -r _bccn_pid _ </proc/self/stat
    [ "$_bccn_pid" = "$_bccn_open" ] && return
    exec 8>&- 9>&-
    _bccn_parent=$BCCN_NAME
    _bccn_start "$_bccn_pid"
}

# Sets the state of a client that has not connected yet.
_bccn_start() {
    _bccn_open=$1
    _bccn_dir='' _bccn_up='' _bccn_ready='' _bccn_reached='' _bccn_greeted='' _bccn_reason='' BCCN_NAME=''
    _bccn_alarm='' _bccn_alarms=0 _bccn_part='' _bccn_files=0 _bccn_unread=0
    _bccn_asked=0 _bccn_asked_at=0 _bccn_answered=0 _bccn_published=0 _bccn_confirmed=0 _bccn_doubt=0
    _bccn_complaint='' _bccn_rejection='' _bccn_answer='' _bccn_lost=0 _bccn_lost_ever=0
    _bccn_said='' _bccn_greeting='' _bccn_withdrawn='' _bccn_overhears='' _bccn_news='' _bccn_ask_until=''
    _bccn_q_first=0 _bccn_q_last=0 _bccn_r_first=0 _bccn_r_last=0 _bccn_settled='' _bccn_left=0
    [ -z "$_bccn_requests" ] || _bccn_requests=0
    IFS= read -r _bccn_token </proc/sys/kernel/random/uuid && _bccn_token=$_bccn_token.
}

# --- public: a connection ---

# bccn_open [OPTIONS] [PATH]: connects. The options are those of clients/PROTOCOL.md, "The functions of a client":
#   -f FORMAT   plain, or full: messages have their sender
#   -n NAME     the own name
#   -s SEP      the separator of tokens in patterns: / or .
#   -q QUEUE    what may wait in the daemon: 'packets=N bytes=N policy=P', or a part of it
#   -E          no own messages
#   -R          do not reconnect: calls fail with unavailable once the connection has ended
#   -t SECONDS  how long a call waits for the daemon (5)
#   -w SECONDS  how long to keep trying for the first connection (0)
#   -o FUNCTION gets notices, as kind, number and text; it must not call the bus. By default each is a line on stderr
bccn_open() {
    bccn_close
    _bccn_wanted_format=plain _bccn_wanted_name='' _bccn_wanted_separator=/ _bccn_wanted_queue='' _bccn_wanted_heartbeat=''
    _bccn_wanted_echo=on _bccn_watches='' _bccn_subs='' _bccn_listening='' _bccn_listener='' _bccn_requests='' _bccn_parent=''
    _bccn_timeout=5 _bccn_patience=0 _bccn_reconnect=1 _bccn_on_notice=_bccn_say
    OPTIND=1
    while getopts :f:n:s:q:ERt:w:o: _bccn_option; do
        case $_bccn_option in
            f) _bccn_wanted_format=$OPTARG ;;
            n) _bccn_wanted_name=$OPTARG ;;
            s) _bccn_wanted_separator=$OPTARG ;;
            q) _bccn_wanted_queue=$OPTARG ;;
            E) _bccn_wanted_echo=off ;;
            R) _bccn_reconnect='' ;;
            t) _bccn_timeout=$OPTARG ;;
            w) _bccn_patience=$OPTARG ;;
            o) _bccn_on_notice=$OPTARG ;;
            *) _bccn_fail invalid "bccn_open: no option -$OPTARG, or nothing behind it" || return ;;
        esac
    done
    shift $((OPTIND - 1))
    _bccn_check || return
    _bccn_address=${1:-${BCCN_SOCKET:-/run/bccnd/bus.sock}}
    [ -n "${1:-${BCCN_SOCKET-}}" ] || [ -e "$_bccn_address" ] || [ ! -e "${XDG_RUNTIME_DIR-}/bccnd/bus.sock" ] ||
        _bccn_address=$XDG_RUNTIME_DIR/bccnd/bus.sock
    case $_bccn_address in /* | @*) ;; *) _bccn_address=$PWD/$_bccn_address ;; esac
    [ ${#_bccn_address} -le 107 ] || _bccn_fail invalid "$_bccn_address: too long for a socket" || return
    _bccn_in "$_bccn_patience"
    _bccn_patience=$_bccn_deadline
    IFS=' ' read -r _bccn_pid _ </proc/self/stat
    _bccn_start "$_bccn_pid"
    _bccn_in "$_bccn_timeout" # the bridge may write nothing
    [ "$_bccn_deadline" -gt "$_bccn_patience" ] || _bccn_deadline=$_bccn_patience
    _bccn_ensure "$_bccn_deadline" && return
    set -- $?
    bccn_close
    return "$1"
}

# Fails if an option has a value that cannot be. Names and policies are the daemon's to judge.
_bccn_check() {
    command -v socat >/dev/null || _bccn_fail unavailable 'bccn.sh needs socat, which is not here' || return
    case $_bccn_wanted_format in
        plain | full) ;;
        *) _bccn_fail invalid "format $_bccn_wanted_format: plain or full" || return ;;
    esac
    case $_bccn_wanted_separator in
        / | .) ;;
        *) _bccn_fail invalid "separator $_bccn_wanted_separator: / or ." || return ;;
    esac
    for _bccn_value in "$_bccn_timeout" "$_bccn_patience"; do
        _bccn_in "${_bccn_value:-?}" || return
    done
    command -v "$_bccn_on_notice" >/dev/null || _bccn_fail invalid "$_bccn_on_notice: no such function" || return
    set -- "$_bccn_wanted_queue"
    while [ -n "$1" ]; do
        case ${1%% *} in
            packets= | bytes= | packets=*[!0-9]* | bytes=*[!0-9]*) ;;
            packets=* | bytes=* | policy=?* | '')
                set -- "${1#"${1%% *}"}"
                set -- "${1# }"
                continue
                ;;
        esac
        _bccn_fail invalid "queue ${1%% *}: packets=N, bytes=N or policy=P" || return
    done
}

# Sets BCCN_FILENO to the descriptor that is readable when something has arrived; call bccn_dispatch then.
bccn_fileno() { _bccn_enter && BCCN_FILENO=9; }

# Closes the connection at once; call bccn_barrier first to be sure that everything has arrived.
bccn_close() {
    [ -n "$_bccn_open" ] || return 0
    IFS=' ' read -r _bccn_pid _ </proc/self/stat
    if [ "$_bccn_pid" = "$_bccn_open" ] && [ -n "$_bccn_dir" ]; then
        echo Q >&8
        rm -f "$_bccn_dir/in"
    fi
    exec 8>&- 9>&-
    _bccn_open=''
}

# Sets BCCN_NAME to the name of the client.
bccn_name() {
    _bccn_enter && _bccn_in "$_bccn_timeout" && _bccn_ensure "$_bccn_deadline"
}

bccn_set_name() {
    bccn_control name "$1" && _bccn_wanted_name=$BCCN_NAME
}

# bccn_heartbeat SECONDS [TEXT]: makes the daemon publish heartbeats on heartbeat/<name>; 0 ends them.
bccn_heartbeat() {
    set -- "$1${2:+ $2}"
    case $1 in
        *[!0.]*) bccn_control heartbeat "$1" ;;
        *) bccn_control heartbeat off && set -- '' ;;
    esac || return
    _bccn_encode "$1"
    _bccn_wanted_heartbeat=$_bccn_raw
}

# bccn_control KEY [VALUE]: sends any control request of the protocol, and sets BCCN_ANSWER, as %b reads it.
bccn_control() {
    _bccn_enter || return
    case $1 in
        '' | *[!!-~]*) _bccn_fail invalid "control key '$1': must be ASCII without white space" || return ;;
    esac
    _bccn_encode "${2-}"
    _bccn_ask "CMSG $1${2+\\0000$_bccn_raw}" && BCCN_ANSWER=$_bccn_answer
}

# Sets BCCN_LOST_EVER to how many messages the daemon has dropped in all, because this script read too slowly.
bccn_lost() { _bccn_enter && BCCN_LOST_EVER=$_bccn_lost_ever; }

# --- public: publishing ---
#
# With -b the payload is as printf %b reads it: \0000 is a NUL.

# bccn_publish [-b] CHANNEL [PAYLOAD]: hands a message to the daemon. What it rejects is a notice, and the error of the
# next barrier.
bccn_publish() {
    _bccn_enter || return
    if [ "$1" = -b ]; then
        shift
        _bccn_raw=${2-}
    else
        _bccn_encode "${2-}"
    fi
    _bccn_packet=$_bccn_raw
    _bccn_encode "$1"
    _bccn_packet="MSG $_bccn_raw\\0000$_bccn_packet"
    if [ ${#_bccn_packet} -gt 16000 ] && [ "$(printf %b "$_bccn_packet" | wc -c)" -gt 131072 ]; then
        _bccn_fail too-large 'a packet has at most 131072 bytes' || return
    fi
    if [ "$_bccn_unread" -gt 0 ] && [ $((_bccn_unread + ${#_bccn_packet})) -gt $_bccn_UNREAD ]; then
        _bccn_ask '' || return
    fi
    _bccn_in_time
    _bccn_ensure "$_bccn_deadline" && _bccn_put "$_bccn_packet" && _bccn_published=$((_bccn_published + 1))
}

# bccn_publish_all [-b] PAYLOAD: publishes to every listening program of the segment.
bccn_publish_all() {
    if [ "$1" = -b ]; then bccn_publish -b ! "$2"; else bccn_publish ! "$1"; fi
}

# bccn_publish_to [-b] TARGET [PAYLOAD]: publishes to the program of that name, or to all below it.
bccn_publish_to() {
    if [ "$1" = -b ]; then bccn_publish -b "!$2" "${3-}"; else bccn_publish "!$1" "${2-}"; fi
}

# Waits until the daemon has processed everything sent before. Fails with the first error that it reported about a
# message.
bccn_barrier() {
    _bccn_enter && _bccn_ask '' || return
    set -- "$_bccn_rejection" "$_bccn_doubt"
    _bccn_rejection='' _bccn_doubt=0
    if [ -n "$1" ]; then _bccn_complain "$1"; return; fi
    [ "$2" = 0 ] || _bccn_fail unconfirmed "the daemon went away: up to $2 messages may not have been published"
}

# --- public: receiving ---

# bccn_subscribe PATTERN [FUNCTION]: subscribes; after a failure there is no subscription. The messages go to the function
# or to the stream, which bccn_receive reads.
bccn_subscribe() {
    _bccn_enter && _bccn_check_pattern "$1" || return
    _bccn_encode "$1"
    set -- "$_bccn_raw" "${2-}" "$_bccn_q_last"
    _bccn_ask "SUB $1" && _bccn_subs="${_bccn_subs:+$_bccn_subs$_bccn_nl}=$1 $2" && return
    set -- "$1" "$3" $?
    ! _bccn_is_owed || _bccn_withdraw "$1" "$2"
    return "$3"
}

_bccn_check_pattern() {
    case $1 in
        *[!!-~]*) _bccn_fail invalid "pattern $1: must be ASCII without white space" ;;
    esac
}

# bccn_listen [FUNCTION]: has messages to all and to this program delivered, to the function or to the stream. Any
# subscription does so, too, to the stream if there is no function. The last call counts.
bccn_listen() {
    _bccn_enter || return
    set -- "${1-}" "$_bccn_q_last"
    _bccn_ask 'CMSG listen' && _bccn_listening=1 _bccn_listener=$1 && return
    set -- "$2" $?
    ! _bccn_is_owed || _bccn_sift "$1"
    return "$2"
}

# Whether a request that has failed has left on this connection, without an answer.
_bccn_is_owed() { [ -n "$_bccn_said" ] && [ "$_bccn_said" = "$_bccn_up" ]; }

# bccn_unsubscribe PATTERN: takes back the last subscription to it, even if the daemon does not answer.
bccn_unsubscribe() {
    _bccn_enter || return
    _bccn_encode "$1"
    _bccn_kept=$(printf '%s\n' "$_bccn_subs" | LC_ALL=C wanted="=$_bccn_raw" awk '
        { line[NR] = $0; if ($1 == ENVIRON["wanted"]) last = NR }
        END { if (!last) exit 1; for (i = 1; i <= NR; i++) if (i != last) print line[i] }') ||
        _bccn_fail invalid "pattern $1: not subscribed" || return
    _bccn_subs=$_bccn_kept
    set -- "$_bccn_raw"
    _bccn_ask "UNSUB $1" 1 && return
    set -- "$1" $?
    [ -n "$_bccn_said" ] || [ -z "$_bccn_greeting" ] || _bccn_withdraw "$1" "$_bccn_q_last"
    return "$2"
}

# bccn_watch PATTERN FUNCTION: has bccn_receive and bccn_dispatch call the function with the pattern and yes or no: whether
# anybody else listens to its channels, here or on another host, as soon as that is known and at each change. Another
# call for the pattern replaces the function. After a failure there is no watch.
bccn_watch() {
    _bccn_enter && _bccn_check_pattern "$1" || return
    command -v "${2:-?}" >/dev/null || _bccn_fail invalid "watch $1: ${2:-nothing} is no function" || return
    _bccn_encode "$1"
    set -- "=$_bccn_raw" "$2"
    _bccn_ask "CMSG watch\\0000$_bccn_raw" || {
        set -- "$1" $?
        case $_bccn_nl$_bccn_watches in
            *"$_bccn_nl$1 "*) ;; # the one that was there stays
            *) ! _bccn_is_owed || { _bccn_put "CMSG unwatch\\0000${1#=}" && _bccn_ping; } ;;
        esac
        return "$2"
    }
    _bccn_without "$1" "$_bccn_watches"
    _bccn_watches="$_bccn_kept$1 $2 -$_bccn_nl"
}

# bccn_unwatch PATTERN: ends that, even if the daemon does not answer. There need be no watch.
bccn_unwatch() {
    _bccn_enter && _bccn_check_pattern "$1" || return
    _bccn_encode "$1"
    set -- "$_bccn_raw"
    _bccn_without "=$1" "$_bccn_watches"
    _bccn_watches=$_bccn_kept
    _bccn_ask "CMSG unwatch\\0000$1" || {
        set -- "$1" $?
        [ -n "$_bccn_said" ] || [ -z "$_bccn_greeting" ] || { _bccn_put "CMSG unwatch\\0000$1" && _bccn_ping; }
        return "$2"
    }
    _bccn_without "=$1" "$_bccn_news"
    _bccn_news=$_bccn_kept
}

# bccn_receive [SECONDS]: waits for the next message of the stream, and calls functions meanwhile; 3: none in time. Sets
# BCCN_CHANNEL; BCCN_PAYLOAD, without NULs, and BCCN_RAW, as %b reads it; BCCN_LOST, how many messages the daemon dropped
# before this one; in the format full also BCCN_SRC, BCCN_SEQ, BCCN_PEER, BCCN_TIME_NS, BCCN_VERDICT and, as %b reads
# it, BCCN_DATAGRAM.
bccn_receive() {
    _bccn_enter && _bccn_in "${1-}" || return
    set -- "$_bccn_deadline"
    while :; do
        _bccn_tell || :
        if _bccn_next; then
            _bccn_call || return 0
        else
            _bccn_more "$1" || return
        fi
    done
}

# bccn_dispatch [SECONDS]: calls the functions of all messages that wait, and of watches. With SECONDS it waits so long for
# the first of them, since a script has no select. Messages of the stream are dropped, and a notice says so.
bccn_dispatch() {
    _bccn_enter && _bccn_in "${1:-0}" || return
    set -- "$_bccn_deadline" 0
    until _bccn_tell || [ "$_bccn_q_first" -lt "$_bccn_q_last" ]; do
        _bccn_more "$1" && continue
        set -- $?
        [ "$1" != 3 ] || return 0
        return "$1"
    done
    while :; do
        _bccn_tell || :
        if _bccn_next; then
            _bccn_call || set -- "$1" $(($2 + 1))
        else
            _bccn_more 0 || break
        fi
    done
    [ "$2" = 0 ] || _bccn_notify unclaimed "$2" "$2 messages without a function dropped: bccn_receive returns them"
}

# Waits for a line of the bridge until $1.
_bccn_more() {
    if [ -n "$_bccn_ready" ]; then
        _bccn_handle "$1" && return
        [ $? != 4 ] || return 1
    else
        _bccn_ensure "$1" && return
        set -- $?
        [ "$BCCN_ERROR$_bccn_reconnect" = unavailable1 ] || return "$1"
    fi
    _bccn_fail timeout 'nothing came in time'
}

# Sets the public variables to the oldest message of the queue.
_bccn_next() {
    [ "$_bccn_q_first" -lt "$_bccn_q_last" ] || return
    _bccn_q_first=$((_bccn_q_first + 1))
    eval "_bccn_line=\$_bccn_q$_bccn_q_first; unset _bccn_q$_bccn_q_first"
    _bccn_take_apart "$_bccn_line"
    BCCN_LOST=${_bccn_line%% *} BCCN_CHANNEL=$_bccn_chan BCCN_RAW=$_bccn_body
    BCCN_SRC=${_bccn_from%:*} BCCN_SEQ=${_bccn_from##*:} BCCN_PEER='' BCCN_TIME_NS='' BCCN_VERDICT='' BCCN_DATAGRAM=''
    BCCN_TOKEN=''
    if [ "$_bccn_head" != "${_bccn_head#*' RECV '}" ]; then
        BCCN_DATAGRAM=$_bccn_datagram
        IFS=' ' read -r _ _ BCCN_PEER BCCN_TIME_NS BCCN_VERDICT <<-END
	$_bccn_head
	END
    fi
    _bccn_decode "$BCCN_RAW"
    BCCN_PAYLOAD=$_bccn_text
}

# Calls the functions of the message; @ stands before one that serves. 1: bccn_receive returns the message, too.
_bccn_call() {
    case "$_bccn_subs$_bccn_nl $_bccn_listener" in *' '[!"$_bccn_nl"]*) ;; *) return 1 ;; esac
    _bccn_unclaimed='' _bccn_functions=''
    case $BCCN_CHANNEL in
        !*) if [ -n "$_bccn_listener" ]; then _bccn_functions=$_bccn_listener; else _bccn_unclaimed=1; fi ;;
        *)
            while IFS=' ' read -r _bccn_pattern _bccn_function; do
                bccn_matches "${_bccn_pattern#=}" "$BCCN_CHANNEL" "$_bccn_wanted_separator" || continue
                _bccn_functions="$_bccn_functions $_bccn_function"
                [ -n "$_bccn_function" ] || _bccn_unclaimed=1
            done <<-END
	$_bccn_subs
	END
            ;;
    esac
    set -- "$_bccn_unclaimed" "$_bccn_functions"
    while [ -n "${2# }" ]; do
        set -- "$1" "${2# }"
        case $2 in
            @*)
                _bccn_line=${2#@}
                _bccn_handle_request "${_bccn_line%% *}"
                ;;
            *) "${2%% *}" || : ;; # its exit code is its own affair
        esac
        case $2 in *' '*) set -- "$1" "${2#* }" ;; *) set -- "$1" '' ;; esac
    done
    [ -z "$1" ]
}

# bccn_matches PATTERN CHANNEL [SEPARATOR]: whether a subscription to the pattern brings messages of the channel
# (clients/PROTOCOL.md, "Channels and patterns"). The separator is / by default.
bccn_matches() {
    case $2 in !*) return 1 ;; esac
    _bccn_separator=${3:-/}
    set -- "$1$_bccn_separator" "$2$_bccn_separator"
    while [ -n "$1" ]; do
        case $1 in
            ">$_bccn_separator") [ "$2" != "$_bccn_separator" ] && [ -n "$2" ]; return ;;
            "$_bccn_separator") return 0 ;; # a trailing separator matches anything
        esac
        _bccn_token_wanted=${1%%"$_bccn_separator"*}
        case $_bccn_token_wanted in
            *\*)
                _bccn_token_wanted=${_bccn_token_wanted%?} # not inside the case: bash 5.2 fails there if it is empty
                case ${2%%"$_bccn_separator"*} in "$_bccn_token_wanted"*) ;; *) return 1 ;; esac
                ;;
            *) [ "$_bccn_token_wanted" = "${2%%"$_bccn_separator"*}" ] || return 1 ;;
        esac
        set -- "${1#*"$_bccn_separator"}" "${2#*"$_bccn_separator"}"
        [ -n "$1$2" ] || return 0
        [ -n "$1" ] && [ -n "$2" ] || return 1
    done
}

# --- public: requests ---
#
# The payload of a request is a token, a line feed, and what is asked. A reply goes to !<asker> and begins with the same
# line (clients/PROTOCOL.md, "Request and reply").

# bccn_request [-b] CHANNEL PAYLOAD [SECONDS]: publishes a request, and sets BCCN_PAYLOAD and BCCN_RAW to the first reply.
# It waits for the timeout of bccn_open by default. 3: there is none in time; 6: nobody listens.
bccn_request() {
    bccn_request_many "$@" && bccn_next_reply || return
    _bccn_left=0
}

# bccn_request_many [-b] CHANNEL PAYLOAD [SECONDS [COUNT]]: publishes a request that has several replies, which
# bccn_next_reply gives. A further request ends it.
bccn_request_many() {
    _bccn_enter || return
    if [ "$1" = -b ]; then
        shift
        _bccn_raw=${2-}
    else
        _bccn_encode "${2-}"
    fi
    case ${4-} in *[!0-9]*) _bccn_fail invalid "count $4: must be a number" || return ;; esac
    _bccn_in "${3:-$_bccn_timeout}" || return
    set -- "$1" "$_bccn_raw" "$_bccn_deadline" "${4:-99999999999}"
    _bccn_left=0 _bccn_ends=$3 _bccn_ask_until=$3
    _bccn_publish_request "$@" || _bccn_unless_late
    set -- $?
    _bccn_ask_until=''
    return "$1"
}

# 0: the time of a request is over while the daemon is asked, which ends the replies. Otherwise the last exit code.
_bccn_unless_late() {
    set -- $?
    _bccn_clock
    [ "$BCCN_ERROR" != timeout ] || [ "$_bccn_now" -lt "$_bccn_ends" ] || return 0
    return "$1"
}

# Publishes the payload $2 as a request on $1, of which COUNT $4 replies are wanted.
_bccn_publish_request() {
    if [ -z "$_bccn_listening$_bccn_requests" ]; then
        _bccn_overhears=1 # also if it fails
        _bccn_ask 'CMSG listen' || return
    elif [ "$_bccn_published" -gt "$_bccn_confirmed" ]; then # any later rejection is about this request
        _bccn_ask '' || return
    fi
    _bccn_encode "$1"
    _bccn_requested=$_bccn_raw _bccn_requests=$((_bccn_requests + 1)) _bccn_r_first=$_bccn_r_last _bccn_settled=''
    _bccn_rejected_before=$_bccn_rejection _bccn_rejection=''
    { bccn_publish -b "$1" "$_bccn_token$_bccn_requests\\0012$2" && _bccn_listeners "$_bccn_requested"; } || {
        set -- $?
        _bccn_rejection=${_bccn_rejected_before:-$_bccn_rejection}
        return "$1"
    }
    [ "$_bccn_answer" = 0 ] || _bccn_settled=1
    set -- "$_bccn_rejection" "$4"
    _bccn_rejection=$_bccn_rejected_before
    [ -z "$1" ] || _bccn_complain "$1" || return
    _bccn_clock
    _bccn_left=$2 _bccn_questions=3
    _bccn_ask_at=$((_bccn_now + 2)) # so that a reply at once costs the segment nothing
}

# bccn_next_reply: waits for another reply to the last request, and sets BCCN_PAYLOAD and BCCN_RAW to it. 3: the time is
# over, or there were COUNT; 6: nobody listens.
bccn_next_reply() {
    _bccn_enter || return
    while [ "$_bccn_left" -gt 0 ]; do
        set -- "$_bccn_ask_at"
        if [ -n "$_bccn_settled" ] || [ "$1" -gt "$_bccn_ends" ]; then set -- "$_bccn_ends"; fi
        _bccn_take_reply "$1" && return
        set -- "$1" $?
        [ "$2" = 3 ] || return "$2"
        [ "$1" != "$_bccn_ends" ] || break
        [ -n "$_bccn_settled" ] || _bccn_ask_others || return
    done
    _bccn_fail timeout 'no reply came in time'
}

_bccn_take_reply() {
    until [ "$_bccn_r_first" -lt "$_bccn_r_last" ]; do
        _bccn_more "$1" || return
    done
    _bccn_r_first=$((_bccn_r_first + 1)) _bccn_left=$((_bccn_left - 1))
    eval "BCCN_RAW=\$_bccn_r$_bccn_r_first; unset _bccn_r$_bccn_r_first"
    BCCN_RAW=${BCCN_RAW#*\\0012}
    _bccn_decode "$BCCN_RAW"
    BCCN_PAYLOAD=$_bccn_text
}

# Asks the other hosts whether anybody listens to the request; or nobody does, if they have been asked often enough.
_bccn_ask_others() {
    _bccn_answer=0
    if [ "$_bccn_questions" -gt 0 ]; then
        _bccn_questions=$((_bccn_questions - 1))
        _bccn_ask_until=$_bccn_ends
        _bccn_listeners "$_bccn_requested $_bccn_token$_bccn_requests?" || _bccn_unless_late
        set -- $?
        _bccn_ask_until=''
        [ "$1" = 0 ] || return "$1"
    fi
    case $_bccn_answer in
        0)
            _bccn_left=0
            _bccn_fail nobody "nobody listens to $_bccn_requested" || return
            ;;
        '0 asked') ;;
        *) _bccn_settled=1 ;;
    esac
    _bccn_clock
    _bccn_ask_at=$((_bccn_now + 10))
}

# Sets _bccn_answer to how many listen on this host, and the result of asking the others; empty: the daemon does not
# know the request.
_bccn_listeners() {
    _bccn_ask "CMSG listeners\\0000$1" || [ "$BCCN_ERROR" = unknown-key ]
}

# bccn_serve PATTERN FUNCTION: subscribes, and calls the function for each request, with what is asked in BCCN_PAYLOAD and
# BCCN_RAW. The function calls bccn_reply. Other messages are ignored. Needs the format full.
bccn_serve() {
    [ "$_bccn_open" = '' ] || [ "$_bccn_wanted_format" = full ] ||
        _bccn_fail invalid 'serving needs the format full, which shows who asks' || return
    bccn_subscribe "$1" "@$2"
}

# Calls the function $1, if the message is a request that can be replied to.
_bccn_handle_request() {
    # A last value was replied to when it was new.
    [ "$BCCN_VERDICT" = ok ] || return 0
    _bccn_find_token || return 0
    set -- "$1" "$BCCN_RAW" "$BCCN_PAYLOAD"
    BCCN_TOKEN=$_bccn_first_line BCCN_RAW=${BCCN_RAW#*\\0012}
    _bccn_decode "$BCCN_RAW"
    BCCN_PAYLOAD=$_bccn_text
    "$1" || : # its exit code is its own affair
    BCCN_TOKEN='' BCCN_RAW=$2 BCCN_PAYLOAD=$3
}

# Sets _bccn_first_line to the token of the message, as %b reads it; 1: it is not a request, or nobody knows of whom.
_bccn_find_token() {
    case ${BCCN_SRC:-?} in *[?*]*) return 1 ;; esac
    _bccn_first_line=${BCCN_TOKEN-}
    [ -z "$_bccn_first_line" ] || return 0
    case $BCCN_RAW in ?*\\0012*) ;; *) return 1 ;; esac
    _bccn_first_line=${BCCN_RAW%%\\0012*}
    case $_bccn_first_line in
        *\\*) [ "$(printf %b "$_bccn_first_line" | wc -c)" -le 128 ] ;;
        *) [ ${#_bccn_first_line} -le 128 ] ;;
    esac
}

# bccn_reply [-b] PAYLOAD: replies to the request that the function of bccn_serve got, or to the last message, if that is
# a request. Needs the format full. A script that replies later keeps BCCN_SRC and BCCN_TOKEN until then.
bccn_reply() {
    if [ "$1" = -b ]; then _bccn_raw=$2; else _bccn_encode "$1"; fi
    set -- "$_bccn_raw"
    _bccn_find_token || _bccn_fail invalid 'not a request with a known sender, which needs the format full' || return
    bccn_publish_to -b "$BCCN_SRC" "$_bccn_first_line\\0012$1"
}
