"""The shell client beyond the conformance suite: its worker, its vectors, and behaviour that only a shell has."""

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, mortal
from tests.golden import VECTORS
from tests.packet_client import PATIENCE, PacketClient, wait_until

FOLDER = CLIENTS / "shell"
SCRIPTS = ("bccn.sh", "conformance/driver.sh", "examples/worker.sh")
# A block of the README, and what it prints.
EXAMPLES = re.findall(
    r"```sh\n(.*?)```\n\n((?: {4}[^\n]*\n)*)", (FOLDER / "README.md").read_text(), re.DOTALL
)
(FIRST, _), *_ = EXAMPLES
(SERVER,) = [code for code, _ in EXAMPLES if "bccn_serve " in code]
PRINTING = [(code, dedent(printed)) for code, printed in EXAMPLES if printed]
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)] or ["sh"]

pytestmark = pytest.mark.needs("sh", "awk", "socat")
each_shell = pytest.mark.parametrize("shell", SHELLS)


def run(
    shell: str,
    script: str,
    *arguments: str,
    code: int = 0,
    stdin: str | None = None,
    seconds: float = PATIENCE,
    **environ: str,
) -> str:
    """Runs a script that has read bccn.sh. Its output; stderr must stay empty."""
    result = subprocess.run(
        [shell, "-euc", f". ./bccn.sh\n{script}", "script", *arguments],
        cwd=FOLDER,
        env={**os.environ, **environ},
        input=stdin.encode() if stdin else None,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    assert (result.returncode, result.stderr.decode()) == (code, ""), result.stdout
    return result.stdout.decode("latin-1")


def escaped(data: bytes) -> str:
    """Bytes as printf's %b reads them."""
    return "".join(f"\\0{byte:03o}" for byte in data)


def bridges(folder: Path) -> list[Path]:
    return list(folder.glob("bccn.*"))


def test_the_first_program_of_the_readme_works(daemon: DaemonProcess) -> None:
    program = (
        FIRST.replace("while bccn_receive", "if bccn_receive").replace("done", "fi").replace("do\n", "then\n")
    )
    assert run("sh", program, BCCN_SOCKET=str(daemon.socket)) == "sensors/kitchen/temperature 21.5\n"


@pytest.mark.parametrize(
    ("code", "printed"), PRINTING, ids=[printed.split("\n")[0] for _, printed in PRINTING]
)
def test_the_examples_of_the_readme_work(
    daemon: DaemonProcess, tmp_path: Path, code: str, printed: str
) -> None:
    with ExitStack() as stack:
        if "bccn_request " in code:
            command = ["sh", "-c", f". ./bccn.sh\nBCCN_SOCKET={daemon.socket}\n{SERVER}"]
            stack.enter_context(workers.running(command, FOLDER, tmp_path / "stderr"))
            wait_until(lambda: listeners(daemon, "text/upper") == 1, "the server")
        waiting = re.sub(r"\b10\b", str(PATIENCE), code)  # the ten seconds of the README
        script = f"bccn_open -t {PATIENCE} -o :\n{waiting}"
        assert run("sh", script, BCCN_SOCKET=str(daemon.socket)) == printed


def listeners(daemon: DaemonProcess, channel: str) -> int:
    with PacketClient(daemon.socket) as client:
        return int(client.request("listeners", channel))


def test_the_worker_serves_beats_and_survives_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with workers.running(["sh", "examples/worker.sh", daemon.socket], FOLDER, log) as worker:
        assert worker.stdout
        ready = worker.stdout.readline().decode()
        name = ready.split(" ")[0]
        assert name.startswith("here/worker.sh/")
        assert ready == f"{name} is ready\n"
        assert workers.output_over_a_restart(daemon, name, worker) == "2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("bccn: ")


@each_shell
def test_a_watch_is_told_where_functions_are_called(daemon: DaemonProcess, shell: str) -> None:
    """Also what another call has read; a message in the stream does not hold it up."""
    script = f"""
        first() {{ printf 'first %s %s\\n' "$@"; return 1; }}
        second() {{ printf 'second %s %s\\n' "$@"; bccn_unwatch "$1"; }}
        bccn_open -t {PATIENCE}
        bccn_watch ! first || printf '%s %s\\n' $? "$BCCN_ERROR"
        bccn_watch 'a/>' no_such || printf '%s %s\\n' $? "$BCCN_ERROR"
        bccn_unwatch 'a/>'
        bccn_watch 'a/>' first
        bccn_dispatch {PATIENCE}
        bccn_watch 'a/>' second
        bccn_subscribe stream
        until [ -n "$_bccn_news" ]; do bccn_barrier; done
        bccn_publish stream message
        bccn_receive {PATIENCE}
        printf '%s\\n' "$BCCN_PAYLOAD$_bccn_watches"
        """
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("a/b")
        said = run(shell, script, BCCN_SOCKET=str(daemon.socket))
    assert said.splitlines() == ["2 bad-pattern", "2 invalid", "first a/> yes", "second a/> yes", "message"]


@each_shell
def test_the_stream_goes_on_behind_messages_of_functions(daemon: DaemonProcess, shell: str) -> None:
    """Also when all of them have been read by another call, and nothing more comes."""
    script = f"""
        called() {{ printf 'called %s\\n' "$BCCN_PAYLOAD"; }}
        bccn_open -t {PATIENCE}
        bccn_subscribe a called
        bccn_subscribe b
        for number in 1 2; do bccn_publish a "$number"; done
        bccn_publish b 3
        bccn_barrier
        bccn_receive 0
        printf 'received %s\\n' "$BCCN_PAYLOAD"
        """
    said = run(shell, script, BCCN_SOCKET=str(daemon.socket))
    assert said.splitlines() == ["called 1", "called 2", "received 3"]


@each_shell
def test_a_notice_does_not_move_the_cursor(daemon: DaemonProcess, shell: str) -> None:
    script = r"""
        . ./bccn.sh
        bccn_open "$1"
        bccn_publish "$(printf 'a\033[31mb')" "$(printf %2000d 7)"
        bccn_barrier || printf '%s\n' "$BCCN_ERROR"
        """
    result = subprocess.run(
        [shell, "-uc", script, "script", str(daemon.socket)],
        cwd=FOLDER, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.stdout == b"too-large\n"
    assert result.stderr.startswith(rb"bccn: too-large MSG a\0033[31mb: ")
    assert b"\x1b" not in result.stderr


@each_shell
@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_get_the_bus(daemon: DaemonProcess, shell: str, streams: str) -> None:
    script = f"""
        exec {streams}
        . ./bccn.sh
        bccn_open "$1" || exit
        bccn_subscribe bait
        bccn_publish bait 'MSG stolen'
        bccn_receive 30 || exit
        printf '%s\n' "$BCCN_PAYLOAD"
        printf '%s\n' "$BCCN_PAYLOAD" >&2
        bccn_publish done "$BCCN_PAYLOAD"
        bccn_barrier
        """
    with PacketClient(daemon.socket) as client:
        client.subscribe("done")
        with subprocess.Popen(
            mortal([shell, "-c", script, "script", str(daemon.socket)]),
            cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ):  # fmt: skip
            assert client.message() == ("done", b"MSG stolen")
        assert client.status()["counters"]["errors"] == 0  # no packet that is none


@each_shell
def test_text_and_bytes(daemon: DaemonProcess, shell: str) -> None:
    script = r"""
        bccn_open "$1"
        bccn_subscribe a
        bccn_publish a 'back\slash \n and
        two lines
'
        bccn_receive 30
        printf '[%s]' "$BCCN_PAYLOAD" "$BCCN_RAW"
        bccn_publish -b a 'x\0000y\0377\0012'
        bccn_receive 30
        printf '[%s]' "$BCCN_RAW" | od -An -c | tr -d ' \n'
        printf '[%s]' "${#BCCN_PAYLOAD}"
        """
    said = run(shell, script, str(daemon.socket), LC_ALL="C")
    text = "back\\slash \\n and\n        two lines\n"
    raw = text.replace("\\", "\\0134").replace("\n", "\\0012")
    assert said == f"[{text}][{raw}][x\\0000y377\\0012][4]"


@each_shell
def test_a_long_packet_with_line_feeds_stays_one(daemon: DaemonProcess, shell: str) -> None:
    payload = bytes(range(256)) * 256
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("local/big")
        raw = escaped(bytes(range(256)))
        script = (
            'bccn_open "$1"; raw=$2; for i in 1 2 3 4 5 6 7 8; do raw=$raw$raw; done\n'
            'bccn_publish -b local/big "$raw"; bccn_barrier\n'
            'bccn_publish -b local/big "$raw$raw$raw" || echo "$BCCN_ERROR"'
        )
        assert run(shell, script, str(daemon.socket), raw) == "too-large\n"
        assert listener.message() == ("local/big", payload)


def test_a_line_of_the_bridge_is_written_at_once() -> None:
    """Or an alarm would come between it and its end. Each write to the socket is a packet of its own."""
    bridge = run("sh", 'printf %s "$_bccn_bridge"')
    program = re.search(r"\$bccn_awk '(.*?)' >&7", bridge, re.DOTALL)
    assert program
    version = subprocess.run(["awk", "-W", "version"], capture_output=True, text=True, check=False).stdout
    command = ["awk", *(["-W", "interactive"] if version.startswith("mawk") else []), program[1]]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        dump = " " + " ".join(["00"] * 2000) + "\n"
        subprocess.run(command, input=dump, text=True, stdout=theirs, timeout=PATIENCE, check=True)
        theirs.close()
        lines = list(iter(lambda: ours.recv(4096), b""))
    assert [line for line in lines if line.count(b"\n") != 1 or not line.endswith(b"\n")] == []
    assert len(lines) == 5
    assert max(map(len, lines)) < select.PIPE_BUF


@each_shell
def test_flooding_oneself_does_not_block(daemon: DaemonProcess, shell: str) -> None:
    """More than the pipes, the sockets and the bridge can hold."""
    script = """
        bccn_open -q packets=5000 -t 60 "$1"
        bccn_subscribe a
        text=$(printf '%900s' x)
        i=0
        while [ $i -lt 1500 ]; do i=$((i + 1)); bccn_publish a "$i$text"; done
        bccn_barrier
        n=0
        while bccn_receive 0; do n=$((n + 1)); done
        echo "$n ${BCCN_PAYLOAD%% *}"
        """
    # Some seconds of work, in which three processes take turns: the busier the machine, the longer each waits.
    assert run(shell, script, str(daemon.socket), seconds=5 * PATIENCE) == "1500 1500\n"


@each_shell
def test_nothing_is_left_behind(daemon: DaemonProcess, tmp_path: Path, shell: str) -> None:
    """By scripts that end without closing, that are killed, and that never connected."""
    folder = tmp_path / "bridges"
    folder.mkdir()
    environ = {"TMPDIR": str(folder)}
    assert run(shell, 'bccn_open "$1"; bccn_publish a b', str(daemon.socket), **environ) == ""
    run(shell, 'bccn_open "$1" || exit', "/nonexistent/bus.sock", code=5, **environ)
    run(
        shell, 'bccn_open "$1"; bccn_close; bccn_receive || echo "$BCCN_ERROR"', str(daemon.socket), **environ
    )
    script = f'. ./bccn.sh; bccn_open "{daemon.socket}"; echo open; bccn_receive'
    process = subprocess.Popen(
        [shell, "-c", script], cwd=FOLDER, env={**os.environ, **environ}, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == b"open\n"
        assert len(bridges(folder)) >= 1
        process.kill()
    wait_until(lambda: bridges(folder) == [], "the bridges to end")
    wait_until(lambda: clients(daemon) == 1, "the daemon to notice")


@each_shell
def test_nothing_is_left_behind_without_a_daemon(daemon: DaemonProcess, tmp_path: Path, shell: str) -> None:
    """By scripts that close, or end, while their bridge tries to connect again."""
    folder = tmp_path / "bridges"
    folder.mkdir()
    script = """
        bccn_open "$1"
        kill -KILL "$2"
        bccn_receive 0.3 2>/dev/null || echo "$BCCN_ERROR"
        [ "$3" = end ] || bccn_close
        until [ "$3" = end ] || [ "$(echo "$TMPDIR"/*)" = "$TMPDIR/*" ]; do sleep 0.1; done
        """
    for how in ("close", "end"):
        arguments = (str(daemon.socket), str(daemon.process.pid), how)
        assert run(shell, script, *arguments, TMPDIR=str(folder)) == "timeout\n"
        daemon.process.wait(PATIENCE)
        if how == "close":
            daemon.start()
    wait_until(lambda: bridges(folder) == [], "the bridge to end")


def clients(daemon: DaemonProcess) -> int:
    with PacketClient(daemon.socket) as client:
        return len(json.loads(client.request("clients"))["clients"])


@each_shell
def test_a_script_is_not_kept_waiting(daemon: DaemonProcess, shell: str) -> None:
    """Its own `wait` and the reader of its output do not wait for the bridge or for an alarm."""
    script = (
        'bccn_open "$1"; bccn_subscribe a; bccn_publish a b; bccn_receive 3600; sleep 0.01 & wait; echo over'
    )
    assert run(shell, script, str(daemon.socket)) == "over\n"


@each_shell
def test_a_child_has_a_connection_of_its_own(daemon: DaemonProcess, shell: str) -> None:
    script = """
        bccn_open -f full "$1"
        mine=$BCCN_NAME
        bccn_subscribe a
        (bccn_publish a "from the child"; bccn_barrier; echo "$BCCN_NAME") | sed "s|^$mine/[0-9]*$|its own|"
        bccn_receive 30
        echo "$BCCN_PAYLOAD ${BCCN_SRC%/*}" | sed "s|$mine|parent|"
        """
    assert run(shell, script, str(daemon.socket)) == "its own\nfrom the child parent\n"


@each_shell
def test_a_timeout_holds_when_the_daemon_hangs(daemon: DaemonProcess, shell: str) -> None:
    script = """
        until bccn_open -t 0.3 "$1"; do :; done
        kill -STOP "$2"
        bccn_receive 0.2 || echo "$? $BCCN_ERROR"
        bccn_receive 0 || echo "$? $BCCN_ERROR"
        bccn_barrier || echo "$? $BCCN_ERROR"
        kill -CONT "$2"
        until bccn_barrier; do :; done
        """
    told = run(shell, script, str(daemon.socket), str(daemon.process.pid))
    assert told == "3 timeout\n" * 3


@each_shell
def test_an_unwatch_during_a_greeting_is_said_after_it(shell: str, tmp_path: Path) -> None:
    """Its time is over, and that of the greeting is not, in which the daemon refuses something."""
    greets, goes_on = tmp_path / "greets", tmp_path / "goes-on"

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"MSG end\0":
            connection.shutdown(socket.SHUT_RDWR)
        if packet == b"SUB c" and scripted.seen.count(packet) == 2:
            connection.send(b"CMSG error\0refused SUB c: no right")
        if packet == b"CMSG whoami" and scripted.seen.count(b"CMSG whoami") == 2:
            greets.touch()
            wait_until(goes_on.exists, "the end of the unwatch")
        return packet == b"MSG end\0"

    lines = """
        note() { echo "$1"; }
        bccn_open -o note -t 60 "$1"
        bccn_watch a :
        bccn_subscribe c
        bccn_publish end
        until [ -e "$2" ]; do bccn_receive 0 || :; done
        _bccn_timeout=0
        bccn_unwatch a || echo "$BCCN_ERROR"
        _bccn_timeout=60
        : >"$3"
        bccn_unwatch b
        bccn_close
        """
    told = "disconnected\nunavailable\nrejected\nreconnected\n"
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        assert run(shell, lines, str(scripted.path), str(greets), str(goes_on)) == told
    asked = [packet for packet in scripted.seen if b"watch\0" in packet]
    assert asked == [b"CMSG watch\0a"] * 2 + [b"CMSG unwatch\0a", b"CMSG unwatch\0b"]


@each_shell
def test_errors_name_their_cause(shell: str, tmp_path: Path) -> None:
    script = """
        bccn_publish a b || echo "$? $BCCN_ERROR: $BCCN_TEXT"
        bccn_serve a b || echo "$? $BCCN_ERROR: $BCCN_TEXT"
        bccn_open "$1" || echo "$? $BCCN_ERROR: $BCCN_TEXT"
        refused() { bccn_open "$@" || echo "$? $BCCN_ERROR: $BCCN_TEXT"; }
        refused -f lines
        refused -s ,
        refused -w soon
        refused -t ''
        refused -o nonsense
        refused -q 'packets=1 byte=2'
        refused -q bytes=x
        refused -c 5
        """
    path = tmp_path / "none"
    assert run(shell, script, str(path)).splitlines() == [
        "5 closed: there is no open connection",
        "5 closed: there is no open connection",
        f"5 unavailable: no daemon at {path}: No such file or directory",
        "2 invalid: format lines: plain or full",
        "2 invalid: separator ,: / or .",
        "2 invalid: soon: must be seconds, such as 5 or 0.5",
        "2 invalid: ?: must be seconds, such as 5 or 0.5",
        "2 invalid: nonsense: no such function",
        "2 invalid: queue byte=2: packets=N, bytes=N or policy=P",
        "2 invalid: queue bytes=x: packets=N, bytes=N or policy=P",
        "2 invalid: bccn_open: no option -c, or nothing behind it",
    ]


@each_shell
def test_who_serves_ignores_what_is_no_request(daemon: DaemonProcess, shell: str) -> None:
    script = """
        bccn_open -f full "$1"
        work() { echo "$BCCN_PAYLOAD"; bccn_reply "re:$BCCN_PAYLOAD"; }
        bccn_serve jobs work
        bccn_listen show
        show() { echo "$BCCN_PAYLOAD"; }
        bccn_publish jobs 'no request'
        bccn_publish -b jobs '\\0012nor this'
        bccn_publish -b jobs 'token\\0012a request'
        bccn_barrier
        bccn_dispatch
        bccn_barrier
        bccn_dispatch
        """
    assert run(shell, script, str(daemon.socket)) == "a request\ntoken\nre:a request\n"


@each_shell
def test_dispatch_reports_what_only_receive_returns(daemon: DaemonProcess, shell: str) -> None:
    script = """
        note() { echo "$1 $2"; return 1; }
        bccn_open -o note "$1"
        bccn_subscribe a
        bccn_publish a 1
        bccn_publish a 2
        bccn_barrier
        bccn_dispatch
        bccn_dispatch
        """
    assert run(shell, script, str(daemon.socket)) == "unclaimed 2\n"


@each_shell
def test_an_abstract_address(loopback_port: int, shell: str, tmp_path: Path) -> None:
    address = f"@bccn,shell:{os.getpid()}-{shell}"  # socat's own punctuation
    flags = ["--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port), "--socket", address]
    daemon = DaemonProcess(tmp_path, *flags)
    daemon.launch()
    try:
        script = 'bccn_open -w 30 "$1"; printf %s "${BCCN_NAME#*/}"'
        assert run(shell, script, address).startswith("script/")
    finally:
        assert daemon.terminate() == 0


# --- vectors ---


@each_shell
def test_vectors_of_patterns(shell: str) -> None:
    """Callbacks match by the same patterns as subscriptions."""
    entries = json.loads((VECTORS / "patterns.json").read_text())["matches"]
    script = """
        while IFS=' ' read -r separator pattern channel; do
            if bccn_matches "${pattern#=}" "${channel#=}" "$separator"; then echo true; else echo false; fi
        done
        """
    lines = "".join(f"{entry['separator']} ={entry['pattern']} ={entry['channel']}\n" for entry in entries)
    said = run(shell, script, stdin=lines).split()
    assert [
        entry for entry, word in zip(entries, said, strict=True) if (word == "true") != entry["matches"]
    ] == []


def valid_packets(*types: str) -> list[dict[str, str]]:
    """Those that fit on a command line."""
    entries = json.loads((VECTORS / "sbus.json").read_text())["valid"]
    return [entry for entry in entries if entry["type"] in types and len(entry["packet"]) <= 4000]


def unescaped(raw: str) -> bytes:
    """What printf's %b makes of bytes as bccn.sh gives them."""
    return re.sub(rb"\\0([0-7]{3})", lambda found: bytes([int(found[1], 8)]), raw.encode("latin-1"))


@each_shell
def test_vectors_of_packets_sent(shell: str, tmp_path: Path) -> None:
    entries = [entry for entry in valid_packets("MSG", "SUB") if entry["canonical"]]
    calls = [
        f"bccn_subscribe '{entry['pattern']}'"
        if entry["type"] == "SUB"
        else f"bccn_publish -b '{entry['chan']}' '{escaped(bytes.fromhex(entry['payload']))}'"
        for entry in entries
    ]
    path = tmp_path / "bus.sock"
    with ScriptedDaemon(path, lambda *_: False) as daemon:
        run(shell, "\n".join(['bccn_open "$1"', *calls, "bccn_barrier"]), str(path))
    said = [packet for packet in daemon.seen if not packet.startswith(b"CMSG ")]
    assert said == [bytes.fromhex(entry["packet"]) for entry in entries] != []


@each_shell
def test_vectors_of_packets_received(shell: str, tmp_path: Path) -> None:
    entries = valid_packets("MSG", "RECV")

    def script(connection: socket.socket, packet: bytes) -> bool:
        for entry in entries if packet.startswith(b"SUB ") else ():
            connection.send(bytes.fromhex(entry["packet"]))
        return False

    path = tmp_path / "bus.sock"
    with ScriptedDaemon(path, script):
        heard = run(
            shell,
            'bccn_open "$1"; bccn_subscribe x; while bccn_receive 0; do printf "%s\\n" '
            '"$BCCN_PEER $BCCN_TIME_NS $BCCN_VERDICT $BCCN_SRC:$BCCN_SEQ:" "$BCCN_CHANNEL" "$BCCN_RAW"; done',
            str(path),
        ).split("\n")
    for entry in entries:
        head, channel, payload = heard[:3]
        del heard[:3]
        if entry["type"] == "MSG":
            assert (head, channel, unescaped(payload).hex()) == ("   ::", entry["chan"], entry["payload"])
        else:
            *said, src = head.split(" ")
            assert said == [entry["peer"], str(entry["unix_ns"]), entry["verdict"]]
            if not channel:  # no datagram at all
                assert (src, unescaped(payload).hex()) == ("::", entry["datagram"])
                continue
            body = f"{src}{channel}|".encode() + unescaped(payload)
            assert body == bytes.fromhex(entry["datagram"]).partition(b"]")[2]
    assert heard == [""]


@each_shell
def test_every_shell_parses_the_scripts(shell: str) -> None:
    for script in SCRIPTS:
        assert subprocess.run([shell, "-n", script], cwd=FOLDER, check=False).returncode == 0


def test_shellcheck_finds_nothing() -> None:
    command = [Path(sys.executable).with_name("shellcheck"), "-x", *SCRIPTS]
    assert subprocess.run(command, cwd=FOLDER, check=False).returncode == 0


@each_shell
def test_a_number_of_the_daemon_is_no_command(shell: str, tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"SUB a":
            for count in (b"_bccn_lost[$(echo carried out >&2)0]", b"08", b"", b"1" * 30, b"3"):
                connection.send(b"CMSG dropped\0" + count)
        return False

    lines = 'bccn_open -o : "$1"; bccn_subscribe a; bccn_lost; echo "$BCCN_LOST_EVER"; bccn_close'
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        assert run(shell, lines, str(scripted.path)) == "3\n"
