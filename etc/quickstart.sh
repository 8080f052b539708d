#!/bin/sh
# A first run on this machine alone: no root, nothing outside the loopback interface, nothing left but .venv.
#
#   sh etc/quickstart.sh
#   sh etc/quickstart.sh --report DIR    record the traffic too, and have Spark report its losses (needs Java 17)
#
# PYTHON=/path/to/python3.11 chooses the interpreter for .venv.
set -eu

step() { printf '\n%s\n' "$*"; }
show() { sed 's/^/    /'; }
die() { printf '\n%s\n' "quickstart: $*" >&2; exit 1; }

report=
case "$#${1-}" in
    0) ;;
    2--report) report=$2 ;;
    *) die "usage: sh etc/quickstart.sh [--report DIR]" ;;
esac
if [ -n "$report" ]; then
    mkdir -p "$report"
    report=$(cd "$report" && pwd)
    [ -z "$(ls -A "$report")" ] || die "$report is not empty; the report needs an empty directory"
    java -version >/dev/null 2>&1 || die "the report needs Java 17 (on Debian: apt-get install openjdk-17-jre-headless)"
fi
cd "$(dirname "$0")/.."

folder=$(mktemp -d "${TMPDIR:-/tmp}/bccnd-quickstart.XXXXXX")
daemon= subscriber= recorder=
leave() {
    code=$?
    trap - EXIT
    for pid in $subscriber $recorder $daemon; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$folder"
    exit "$code"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits until the given command succeeds, at most ten seconds, and only while the daemon runs.
await() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        kill -0 "$daemon" 2>/dev/null || { show <"$folder/daemon.log"; die "the daemon left"; }
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { show <"$folder/daemon.log"; die "waited ten seconds without success for: $*"; }
        sleep 0.1
    done
}

echo "bccnd, a first run. Everything stays on this machine's loopback interface."

# --- install ---
export PYTHONDONTWRITEBYTECODE=1  # without it, running from the checkout leaves __pycache__ there
if ! .venv/bin/bccn --version >/dev/null 2>&1; then
    step "Installing into .venv (once; a minute or so)"
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11} ''; do
        [ -n "$python" ] || die "needs Python 3.11 or later; set PYTHON=/path/to/python3.11"
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    done
    if [ ! -x .venv/bin/python ]; then
        "$python" -m venv .venv || { rm -rf .venv; die "no venv module (on Debian: apt-get install python3-venv)"; }
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ./clients/python -e .
fi
if [ -n "$report" ] && ! .venv/bin/python -c 'import pyspark, jinja2' 2>/dev/null; then
    step "Installing Spark into .venv (once; a minute or two)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ./clients/python -e '.[record,spark]'
fi
PATH=$PWD/.venv/bin:$PATH
BCCN_SOCKET=$folder/bus.sock
export PATH BCCN_SOCKET

# --- run ---
port=$(python -c 'import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(("", 0)); print(s.getsockname()[1])')

step "1. A daemon. On a real segment it needs no flags: port 5400, address 255.255.255.255."
echo "bccnd --broadcast 127.255.255.255 --port $port --socket \$BCCN_SOCKET" | show
bccnd --broadcast 127.255.255.255 --port "$port" --socket "$BCCN_SOCKET" 2>"$folder/daemon.log" &
daemon=$!
await bccn status
if [ -n "$report" ]; then
    step "   A recorder: each datagram that the host sends or receives becomes a row in Parquet files."
    echo "bccnd-record --output $report/recorded" | show
    bccnd-record --output "$report/recorded" 2>"$folder/recorder.log" &
    recorder=$!
    await grep -q recording "$folder/recorder.log"
fi

step "2. A program subscribes to everything below demo/ and waits for two messages."
echo "bccn sub -v -C 2 -W 10 'demo/>'" | show
bccn sub -v -C 2 -W 10 'demo/>' >"$folder/heard" 2>"$folder/notices" &
subscriber=$!
await sh -c 'bccn status --json | grep -q "\"subscriptions\": *1"'

step "3. A second program publishes, through the daemon."
echo "bccn pub demo/greeting 'hello from a second program'" | show
bccn pub demo/greeting 'hello from a second program'

step "4. A third program uses no daemon: it sends a UDP datagram to the segment."
cat >"$folder/raw.py" <<'PYTHON'
import socket, sys

udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
body = b"raw/sender/1:1:demo/raw|hello from plain UDP"  # source:number:channel|payload
udp.sendto(b"BCCN1[%d]%s" % (len(body), body), ("127.255.255.255", int(sys.argv[1])))
PYTHON
show <"$folder/raw.py"
python "$folder/raw.py" "$port"

wait "$subscriber" || die "the subscriber heard only: $(cat "$folder/heard" "$folder/notices")"
subscriber=
step "5. What the subscriber heard, channel and payload:"
show <"$folder/heard"

if [ -n "$report" ]; then
    step "   A hundred more datagrams of the third program; every tenth is lost on the way."
    python - "$port" <<'PYTHON'
import socket, sys, time

udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for number in range(2, 102):
    if number % 10:
        body = b"raw/sender/1:%d:demo/raw|%d" % (number, number)
        udp.sendto(b"BCCN1[%d]%s" % (len(body), body), ("127.255.255.255", int(sys.argv[1])))
    time.sleep(0.03)
PYTHON
    kill "$recorder"
    wait "$recorder" || { show <"$folder/recorder.log"; die "the recorder left with code $?"; }
    recorder=
fi

step "6. The daemon ends on SIGTERM and removes its socket."
kill "$daemon"
wait "$daemon" || die "the daemon left with code $?"
daemon=
[ ! -e "$BCCN_SOCKET" ] || die "the daemon left its socket behind"
if [ -n "$report" ]; then
    step "7. Spark ingests and analyses the recording, on this machine's cores. On a cluster the command is the same."
    echo "bccnd-pipeline run --input $report/recorded --output $report" | show
    bccnd-pipeline run --input "$report/recorded" --output "$report" 2>"$folder/pipeline.log" >"$folder/findings" ||
        { show <"$folder/pipeline.log"; die "the pipeline left with code $?"; }
    show <"$folder/findings"
    echo "The page: $report/report.html" | show
fi
echo "done: nothing is left but .venv${report:+ and $report}" | show
printf '\n%s\n' "Next: README.md; . .venv/bin/activate gives you bccnd and bccn."
