"""``bccn dump`` with a real daemon, tcpdump and tshark."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.pcap import Reader
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.command_line import bccn, ended, publish, start
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.running_program import RunningProgram

DISSECTOR = Path(__file__).parents[2] / "etc" / "bccn.lua"
OPEN = Integrity()
SOUND = OPEN.seal(b"mon01/x/1:7:far/away|hello")
BROKEN = b"BCCN1[22]?:1:far/broken|hello"


@pytest.fixture
def daemon(tmp_path: Path, loopback_port: int) -> Iterator[DaemonProcess]:
    """One that sends nothing but what the test has it send: it does not repair, and so announces nothing."""
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    with DaemonProcess(tmp_path, *flags, environ={"BCCND_REPAIR__ON": "false"}) as running:
        yield running


def dumping(daemon: DaemonProcess, *arguments: str) -> subprocess.Popen[bytes]:
    """``bccn dump`` once it taps."""
    process = start(daemon, "dump", *arguments)
    wait_until(lambda: process.poll() is not None or tapped(daemon), "the tap")
    assert process.poll() is None, process.communicate()
    return process


def tapped(daemon: DaemonProcess) -> bool:
    with PacketClient(daemon.socket) as client:
        return any(row["tap"] for row in json.loads(client.request("clients"))["clients"])


def configured(folder: Path, port: int, settings: str) -> DaemonProcess:
    """A daemon with this file of settings."""
    file = folder / "bccnd.toml"
    file.write_text(settings)
    return DaemonProcess(
        folder, "--config", str(file), "--broadcast", LOOPBACK_BROADCAST, "--port", str(port)
    )


def send(daemon: DaemonProcess, *datagrams: bytes) -> None:
    with PacketClient(daemon.socket) as client:
        [segment] = client.status()["segments"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for datagram in datagrams:
            sender.sendto(datagram, (LOOPBACK_BROADCAST, segment["port"]))


def shown(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_directions_are_distinguished(daemon: DaemonProcess) -> None:
    process = dumping(daemon, "--json", "-C", "4")
    publish(daemon, ("a/b", b"out"), ("local/c", b"stays"))
    send(daemon, SOUND, BROKEN)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    rows = [(row["direction"], row["verdict"], row["channel"], row["payload"]) for row in shown(out)]
    assert sorted(rows) == [
        ("in", "length", "far/broken", "hello"),
        ("in", "ok", "far/away", "hello"),
        ("local", "ok", "local/c", "stays"),
        ("out", "ok", "a/b", "out"),
    ]


def test_what_daemons_say_about_loss_can_be_read(tmp_path: Path, loopback_port: int) -> None:
    with configured(tmp_path, loopback_port, 'host = "here"') as daemon:
        process = dumping(daemon, "-C", "1", "!bccnd/repair")
        publish(daemon, ("a/b", b"out"))
        code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert re.search(
        r" out   ok        local here/bccnd/\d+/repair #\d+ !bccnd/repair - \d+ B last here/\S+ #",
        out.decode(),
    )


def test_each_datagram_is_a_line(daemon: DaemonProcess) -> None:
    process = dumping(daemon, "-C", "2", "--peer", "127.0.0.1")
    send(daemon, SOUND, BROKEN)
    first, second = ended(process)[1].decode().splitlines()
    assert " in    ok        127.0.0.1:" in first
    assert first.endswith(" mon01/x/1 #7 far/away - 35 B hello")
    assert second.endswith(" ? #1 far/broken - 29 B hello (at byte 6: says 22, has 20)")


@pytest.mark.parametrize(
    ("arguments", "payloads"),
    [
        (["a/>"], ["1"]),
        (["a/b", "local/>"], ["1", "2"]),
        (["!"], ["4"]),
        (["!>"], ["3"]),
        (["!kitchen"], ["3"]),
        (["--src", "mon01/>"], ["hello"]),
        (["--src", "?"], ["hello"]),
        (["--peer", "local"], ["1", "2", "3", "4"]),
        (["--rejected"], ["hello"]),
        (["--verdict", "length,hmac"], ["hello"]),
        (["--verdict", "ok", "far/>"], ["hello"]),
        (["--min-size", "29", "far/>", "--max-size", "30"], ["hello"]),
    ],
)
def test_filters_choose_datagrams(
    tmp_path: Path, loopback_port: int, arguments: list[str], payloads: list[str]
) -> None:
    with configured(tmp_path, loopback_port, "[repair]\non = false\n") as daemon:
        process = dumping(daemon, "--json", *arguments, "-C", str(2 * len(payloads)))
        for sound in (SOUND, OPEN.seal(b"mon01/x/1:8:far/away|hello")):
            publish(daemon, ("a/b", b"1"), ("local/c", b"2"), ("!kitchen", b"3"), ("!", b"4"))
            send(daemon, sound, BROKEN)
        code, out, err = ended(process)
    assert [row["payload"] for row in shown(out)] == payloads * 2
    assert (code, err) == (0, "")


def test_less_than_was_wanted_in_time_is_code_3(daemon: DaemonProcess) -> None:
    done = bccn(daemon, "dump", "-C", "1", "-W", "0.2")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"bccn: dump: timed out after 0.2 s and 0 of 1 datagrams\n"


def test_echoes_are_shown_on_request(daemon: DaemonProcess) -> None:
    process = dumping(daemon, "--json", "--verdict", "own", "-C", "1")
    with PacketClient(daemon.socket) as client:
        client.publish("a/b", b"x")
        client.drain()
        code, out, _ = ended(process)
    [row] = shown(out)
    assert (code, row["direction"], row["channel"]) == (0, "out", "a/b")
    assert row["peer"].startswith("127.")


@pytest.mark.parametrize(("flags", "line"), [([], b" datagrams missing here"), (["--json"], b'{"missing": ')])
def test_missing_datagrams_are_counted_where_they_are_missing(
    tmp_path: Path, loopback_port: int, flags: list[str], line: bytes
) -> None:
    with configured(tmp_path, loopback_port, "") as daemon:
        process = dumping(daemon, *flags)
        process.send_signal(signal.SIGSTOP)
        publish(daemon, *[("local/x", bytes(60_000))] * 400)  # more bytes than its queue may have
        process.send_signal(signal.SIGCONT)
        assert process.stdout
        while line not in (found := process.stdout.readline()):
            assert found
        process.kill()
        process.communicate()


def test_a_shorter_queue_is_accepted(tmp_path: Path, loopback_port: int) -> None:
    """It connects twice, so that the first tap that is seen need not be the one that stays."""
    with configured(tmp_path, loopback_port, "[queue]\npackets = 10\nmax_packets = 10\n") as daemon:
        process = start(daemon, "dump", "-C", "1")

        def has_one() -> bool:
            publish(daemon, ("local/x", b"here"))
            return process.poll() is not None

        wait_until(has_one, "a datagram")
        code, out, _ = ended(process)
    assert (code, out.rstrip().endswith(b"here")) == (0, True)


def test_without_the_right_it_exits_with_code_4(tmp_path: Path, loopback_port: int) -> None:
    with configured(tmp_path, loopback_port, '[[rights]]\nsubscribe = [">"]\n') as daemon:
        done = bccn(daemon, "dump")
    assert done.returncode == 4
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("bccn: dump: no right to tap: run it as root")


def test_a_revoked_right_ends_it(tmp_path: Path, loopback_port: int) -> None:
    with configured(tmp_path, loopback_port, "[[rights]]\ntap = true\n") as daemon:
        process = dumping(daemon)
        (tmp_path / "bccnd.toml").write_text('[[rights]]\nsubscribe = [">"]\n')
        daemon.process.send_signal(signal.SIGHUP)
        code, _, err = ended(process)
    assert (code, err) == (4, "bccn: no longer allowed: CMSG tap\n")


def test_a_right_revoked_with_the_last_answer_ends_it(tmp_path: Path) -> None:
    """The notice is read with that answer, and nothing comes after it."""

    def script(connection: socket.socket, packet: bytes) -> bool:
        if not packet.startswith(b"CMSG status"):
            return False
        pack = [b'CMSG status\0{"host": "here", "segments": []}', b"CMSG revoked\0CMSG tap"]
        lengths = [len(each).to_bytes(4, "big") + each for each in pack]
        return bool(connection.send(b"PACK " + b"".join(lengths)))

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        done = bccn(scripted.path, "dump")
    assert (done.returncode, done.stdout, done.stderr) == (4, b"", b"bccn: no longer allowed: CMSG tap\n")


def test_a_right_revoked_at_once_is_reported_once(tmp_path: Path) -> None:
    """Before it has asked what the daemon is, which it may no longer know either."""

    def script(connection: socket.socket, packet: bytes) -> bool:
        if not packet.startswith(b"CMSG status"):
            return False
        connection.send(b"CMSG revoked\0CMSG tap")
        return bool(connection.send(b"CMSG error\0refused CMSG status: no right to observe"))

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        done = bccn(scripted.path, "dump")
    assert (done.returncode, done.stdout, done.stderr) == (4, b"", b"bccn: no longer allowed: CMSG tap\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-w", "x", "-v"], ["-w", "x", "--json"], ["--size", "9"], ["--key-file", "x"], ["-r", "x", "-W", "1"],
        ["--rejected", "--verdict", "ok"], ["--min-size", "x"], ["-r", "/nonexistent"],
    ],
)  # fmt: skip
def test_wrong_usage_is_code_2(daemon: DaemonProcess, arguments: list[str], tmp_path: Path) -> None:
    done = bccn(daemon, "dump", *arguments)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1].startswith("bccn")


# Captures


def test_a_capture_is_written_at_once_and_read_back(daemon: DaemonProcess, tmp_path: Path) -> None:
    path = tmp_path / "file.pcapng"
    process = dumping(daemon, "-w", str(path))
    publish(daemon, ("a/b", b"out"), ("local/c", b"stays"))
    send(daemon, SOUND, BROKEN)

    def packets() -> int:
        return len(list(Reader().feed(path.read_bytes()))) if path.exists() else 0

    wait_until(lambda: packets() == 4, "the packets")
    process.kill()
    process.communicate()
    rows = shown(bccn(daemon, "dump", "--json", "-r", str(path)).stdout)
    assert sorted((row["direction"], row["verdict"], row["channel"]) for row in rows) == [
        ("in", "length", "far/broken"), ("in", "ok", "far/away"), ("local", "ok", "local/c"), ("out", "ok", "a/b"),
    ]  # fmt: skip


def test_a_capture_into_a_pipe_ends_when_its_reader_leaves(daemon: DaemonProcess) -> None:
    process = dumping(daemon, "-w", "-")
    publish(daemon, ("a/b", b"x"))
    assert process.stdout
    data = b""
    while not list(Reader().feed(data)):
        data += os.read(process.stdout.fileno(), 4096)
    with process:
        process.stdout.close()
        assert process.wait(PATIENCE) == -signal.SIGPIPE


def test_size_limits_the_file(daemon: DaemonProcess, tmp_path: Path) -> None:
    path = tmp_path / "file.pcapng"
    process = dumping(daemon, "-w", str(path), "--size", "1000")
    publish(daemon, *[("a/b", bytes(100))] * 20)
    assert ended(process)[0] == 0
    assert 700 < path.stat().st_size <= 1000


def test_a_full_disk_is_reported_in_one_line(daemon: DaemonProcess) -> None:
    done = bccn(daemon, "dump", "-w", "/dev/full")
    assert (done.returncode, done.stderr) == (2, b"bccn: /dev/full: No space left on device\n")


def test_the_file_that_is_read_is_not_overwritten(daemon: DaemonProcess, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"precious")
    assert bccn(daemon, "dump", "-r", str(path), "-w", str(path)).returncode == 2
    assert path.read_bytes() == b"precious"


def test_no_capture_is_written_to_a_terminal(daemon: DaemonProcess) -> None:
    ours, theirs = pty.openpty()
    process = start(daemon, "dump", "-w", "-", stdout=theirs)
    assert process.wait(PATIENCE) == 2
    assert b"pipe it" in process.communicate()[1]
    os.close(ours)
    os.close(theirs)


def test_a_broken_capture_is_shown_up_to_where_it_breaks(daemon: DaemonProcess, tmp_path: Path) -> None:
    path = written(daemon, tmp_path, SOUND, SOUND)
    path.write_bytes(path.read_bytes()[:-5])
    done = bccn(daemon, "dump", "-r", str(path))
    assert done.returncode == 2
    assert done.stdout.count(b"\n") == 1
    assert done.stderr.decode().splitlines() == [
        f"bccn: dump: {path}: ends in the middle of a packet; those before it are complete"
    ]
    path.write_bytes(b"no capture")
    done = bccn(daemon, "dump", "-r", str(path))
    assert done.stderr.decode() == f"bccn: dump: {path}: not a capture file: neither pcap nor pcapng\n"


def written(daemon: DaemonProcess, folder: Path, *datagrams: bytes) -> Path:
    path = folder / "segment.pcapng"
    process = dumping(daemon, "-w", str(path), "-C", str(len(datagrams)))
    send(daemon, *datagrams)
    assert ended(process)[0] == 0
    return path


def test_one_capture_is_filtered_into_another(daemon: DaemonProcess, tmp_path: Path) -> None:
    path, other = written(daemon, tmp_path, SOUND, BROKEN), tmp_path / "other"
    assert bccn(daemon, "dump", "-r", str(path), "--rejected", "-w", str(other)).returncode == 0
    [row] = shown(bccn(daemon, "dump", "-r", str(other), "--json").stdout)
    assert row["verdict"] == "length"


def test_no_daemon_is_needed_to_read_a_file(daemon: DaemonProcess, tmp_path: Path) -> None:
    path = written(daemon, tmp_path, SOUND)
    assert bccn(Path("/nonexistent"), "dump", "-r", str(path)).returncode == 0


def test_capture_of_tcpdump_is_checked_with_the_key(
    daemon: DaemonProcess, loopback_port: int, tmp_path: Path
) -> None:
    require("root", "tcpdump")
    keys, path = tmp_path / "keys", tmp_path / "tcpdump.pcap"
    key = b"a key that nobody knows"
    keys.write_bytes(key + b"\n")
    keys.chmod(0o600)
    signed = Integrity([key], Level.HMAC).seal(b"mon01/x/1:8:far/away|signed")
    tcpdump = RunningProgram(
        ["tcpdump", "-i", "lo", "-n", "-U", "-Z", "root", "-w", str(path), "-c", "3",
         f"udp dst port {loopback_port}"]
    )  # fmt: skip
    try:
        tcpdump.read_until("listening on lo")
        send(daemon, SOUND, signed, signed[:-1] + b"D")
        assert tcpdump.process.wait(PATIENCE) == 0
    finally:
        tcpdump.close()
    flags = ["--port", str(loopback_port), "--json"]
    plain = shown(bccn(daemon, "dump", "-r", str(path), *flags).stdout)
    assert [row["verdict"] for row in plain] == ["ok"] * 3
    checked = shown(bccn(daemon, "dump", "-r", str(path), *flags, "--key-file", str(keys)).stdout)
    assert [row["verdict"] for row in checked] == ["unauthenticated", "ok", "hmac"]
    keys.chmod(0o644)
    done = bccn(daemon, "dump", "-r", str(path), "--key-file", str(keys))
    assert (done.returncode, done.stderr.count(b"\n")) == (4, 1)


def test_wireshark_opens_the_capture(daemon: DaemonProcess, loopback_port: int, tmp_path: Path) -> None:
    require("tshark")
    path = tmp_path / "file.pcapng"
    process = dumping(daemon, "-w", str(path), "-C", "3")
    publish(daemon, ("a/b", b"out"))
    send(daemon, SOUND, BROKEN)
    assert ended(process)[0] == 0
    fields = ["frame.comment", "ip.src", "ip.dst", "udp.dstport", "bccn.chan", "frame.packet_flags_direction",
              "ip.checksum.status", "udp.checksum.status"]  # fmt: skip
    flags = [flag for field in fields for flag in ("-e", field)]
    # The sender's port is a random one, which may be another protocol's.
    preferences = ("ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "udp.try_heuristic_first:TRUE")
    checks = [flag for preference in preferences for flag in ("-o", preference)]
    lua = ["-X", f"lua_script:{DISSECTOR}"]
    done = subprocess.run(
        ["tshark", "-n", *lua, *checks, "-r", str(path), "-T", "fields", *flags],
        capture_output=True, text=True, timeout=4 * PATIENCE, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    port = str(loopback_port)
    rows = sorted(line.split("\t") for line in done.stdout.splitlines())
    assert rows == [
        ["bccnd in length", "127.0.0.1", LOOPBACK_BROADCAST, port, "", "0x00000001", "1", "1"],
        ["bccnd in ok", "127.0.0.1", LOOPBACK_BROADCAST, port, "far/away", "0x00000001", "1", "1"],
        ["bccnd out ok", "127.0.0.1", LOOPBACK_BROADCAST, port, "a/b", "0x00000002", "1", "1"],
    ]
