"""The recorder beside a real daemon: the files hold exactly what happened, whatever fails."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bccnd import __version__
from bccnd.recorder.service import of_settings
from bccnd.recorder.settings import RecorderSettings
from bccnd.wire import sbus
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, free_address
from tests.recorder_process import RecorderProcess, assert_well_kept, rows_of
from tests.replaceable_daemon import ReplaceableDaemon


@pytest.fixture
def plain(loopback_port: int) -> Iterator[socket.socket]:
    """Sends to the segment like a program of another host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.connect((LOOPBACK_BROADCAST, loopback_port))
        yield sender


def received_by(daemon: DaemonProcess, count: int) -> None:
    """Wait until the daemon has read this many datagrams of the segment."""
    with PacketClient(daemon.socket) as client:
        wait_until(lambda: client.status()["counters"]["received"] >= count, f"{count} received")


def test_all_sent_received_and_rejected_is_recorded_exactly(
    tmp_path: Path, unrepairing: DaemonProcess, plain: socket.socket
):
    with (
        RecorderProcess(tmp_path, unrepairing.socket) as recorder,
        PacketClient(unrepairing.socket) as client,
    ):
        name = client.request("whoami")
        for number in range(300):
            client.publish("demo/x", b"%d" % number)
            if number < 50:
                client.publish("local/x", b"\0\xff%d" % number)
        client.drain()
        received_by(unrepairing, 300)  # they come back
        for number in range(200):
            plain.send(datagram("there/prog/1", 2**63 + number, "demo/y", b"in"))
            if number % 2:
                plain.send(datagram("there/prog/1", 2**63 + number, "demo/y", b"in"))
        malformed = [
            b"noise",
            b"BCCN1[99]x:1:a|short",
            b"BCCN1[6:sha1=00]x:1:a|",
            b"BCCN1[26]x:18446744073709551616:a|z",
        ]
        for each in malformed:
            plain.send(each)
        received_by(unrepairing, 300 + 300 + len(malformed))
    rows = recorder.rows()
    assert_well_kept(rows)
    counted = Counter((row["direction"], row["verdict"]) for row in rows if row["direction"])
    assert counted == {
        ("out", "ok"): 300,
        ("local", "ok"): 50,
        ("echo", "own"): 300,
        ("in", "ok"): 200,
        ("in", "duplicate"): 100,
        ("in", "magic"): 1,
        ("in", "length"): 1,
        ("in", "algorithm"): 1,
        ("in", "sequence"): 1,
    }
    sent = [row for row in rows if row["direction"] == "out"]
    assert [row["payload"] for row in sent] == [b"%d" % number for number in range(300)]
    assert {row["src"] for row in sent} == {name}
    assert [row["seq"] - sent[0]["seq"] for row in sent] == list(range(300))
    assert {(row["peer"], row["interface"], row["mode"]) for row in sent} == {(None, None, "none")}
    assert [row["payload"] for row in rows if row["direction"] == "local"] == [
        b"\0\xff%d" % n for n in range(50)
    ]
    came = [row for row in rows if (row["direction"], row["verdict"]) == ("in", "ok")]
    assert [row["seq"] for row in came] == [2**63 + number for number in range(200)]
    assert {row["interface"] for row in came} == {"lo"}
    host, port = plain.getsockname()
    assert {row["peer"] for row in came} == {f"{host}:{port}"}
    assert {row["size"] for row in came} == {len(datagram("there/prog/1", 2**63, "demo/y", b"in"))}
    bad = {
        row["verdict"]: row for row in rows if row["verdict"] in ("magic", "length", "algorithm", "sequence")
    }
    assert (bad["magic"]["src"], bad["magic"]["payload"], bad["magic"]["size"]) == (None, b"noise", 5)
    assert (bad["length"]["src"], bad["length"]["seq"], bad["length"]["channel"]) == ("x", 1, "a")
    assert {row["payload"] for row in (bad["algorithm"], bad["sequence"])} == set(malformed[2:])


def test_numbers_are_recorded_without_payloads(tmp_path: Path, daemon: DaemonProcess):
    with (
        RecorderProcess(tmp_path, daemon.socket, "--payloads", "none") as recorder,
        PacketClient(daemon.socket) as client,
    ):
        name = client.request("whoami")
        for number in range(20):
            client.publish("demo/x", b"secret %d" % number)
        client.drain()
        received_by(daemon, 20)
    rows = recorder.rows()
    said = [row for row in rows if row["src"] == name and row["direction"] == "out"]
    assert len({row["seq"] for row in said}) == len(said) == 20
    assert {row["payload"] for row in said} == {None}
    assert all(row["size"] > len("secret 1") for row in said)
    assert recorder.marks("daemon"), "marks say what they say"


def test_an_echo_after_its_sender_has_left_is_still_an_echo(
    tmp_path: Path, unrepairing: DaemonProcess, plain: socket.socket
):
    with RecorderProcess(tmp_path, unrepairing.socket) as recorder:
        with PacketClient(unrepairing.socket) as client:
            client.publish("demo/x", b"once")
            client.drain()
        received_by(unrepairing, 1)
        in_files = [row for row in _after(recorder) if row["direction"] == "out"]
        again = datagram(in_files[0]["src"], in_files[0]["seq"], "demo/x", b"once")
        plain.send(again)
        received_by(unrepairing, 2)
    seen = Counter((row["direction"], row["verdict"]) for row in recorder.datagrams())
    assert seen == Counter([("out", "ok"), ("echo", "own"), ("echo", "own")])


def _after(recorder: RecorderProcess) -> list[dict[str, object]]:
    """What it had recorded before it was restarted."""
    recorder.terminate()
    rows = recorder.datagrams()
    recorder.start()
    return rows


def test_files_follow_each_other_without_a_gap(tmp_path: Path, daemon: DaemonProcess):
    recorder = RecorderProcess(tmp_path, daemon.socket, "--rotate-seconds", "1")
    with recorder, PacketClient(daemon.socket) as client:
        for number in range(10_000):
            client.publish("local/x", b"%d" % number)
            if number % 100 == 0 and len(recorder.files()) >= 3:
                break
        client.drain()
        wait_until(lambda: len(recorder.files()) >= 3, "three files, also without traffic")
    rows = recorder.rows()
    spans = assert_well_kept(rows)
    assert len(spans) >= 4
    assert [opened for opened, _ in spans[1:]] == [closed for _, closed in spans[:-1]]
    payloads = [int(row["payload"]) for row in rows if row["direction"]]
    assert payloads == list(range(len(payloads)))


def test_a_killed_recorder_leaves_only_whole_files(tmp_path: Path, daemon: DaemonProcess):
    recorder = RecorderProcess(tmp_path, daemon.socket, "--rotate-seconds", "1")
    with recorder, PacketClient(daemon.socket) as client:
        client.publish("local/x", b"before")
        wait_until(recorder.datagrams, "a whole file with the message")
        client.publish("local/x", b"perhaps lost")
        client.drain()
        wait_until(lambda: list(recorder.output.glob("date=*/host=*/.*")), "an unfinished file")
        recorder.kill()
        before = recorder.files()
        assert [row["payload"] for path in before for row in rows_of(path) if row["direction"]][:1] == [
            b"before"
        ]
        recorder.start()
        assert not {path.name for path in before} - {path.name for path in recorder.files()}
        client.publish("local/x", b"after")
        client.drain()
    spans = assert_well_kept(recorder.rows())
    assert [row["payload"] for row in recorder.datagrams()][-1] == b"after"
    assert spans == sorted(spans)
    assert not list(recorder.output.glob("date=*/host=*/.*")), (
        "the next start removes what the killed one left"
    )


def test_it_waits_for_a_daemon_that_comes_back(tmp_path: Path, daemon: DaemonProcess):
    with RecorderProcess(tmp_path, daemon.socket) as recorder:
        with PacketClient(daemon.socket) as client:
            client.publish("local/x", b"before")
            client.drain()
        daemon.terminate()
        wait_until(lambda: recorder.logged("no daemon, trying again"), "a line about it")
        daemon.start()
        wait_until(lambda: recorder.logged("recording again"), "a recorder that records again")
        with PacketClient(daemon.socket) as client:
            client.publish("local/x", b"after")
            client.drain()
    rows = recorder.rows()
    (first, second) = assert_well_kept(rows)
    assert first[1] < second[0], "the time between is not in the record"
    assert [row["payload"] for row in rows if row["direction"]] == [b"before", b"after"]


def test_the_record_says_why_the_daemon_was_gone(tmp_path: Path, daemon: DaemonProcess):
    with RecorderProcess(tmp_path, daemon.socket) as recorder:
        daemon.terminate()
        wait_until(lambda: recorder.logged("no daemon, trying again"), "a line about it")
        daemon.start()
        wait_until(lambda: len(recorder.logged("recording again")) == 1, "a recorder that records again")
        daemon.process.kill()
        daemon.process.wait()
        daemon.start()
        wait_until(lambda: len(recorder.logged("recording again")) == 2, "a recorder that records again")
    assert len(assert_well_kept(recorder.rows())) == 3
    (stopped,), (disappeared,) = recorder.marks("stopped"), recorder.marks("disappeared")
    assert (stopped["reason"], disappeared["reason"]) == ("shutdown", None)
    first, second = recorder.marks("returned")
    assert (first["after"], first["gone_ns"]) == ("stopped", stopped["gone_ns"])
    assert (second["after"], second["gone_ns"]) == ("disappeared", disappeared["gone_ns"])
    assert stopped["time_ns"] <= stopped["gone_ns"] < first["time_ns"] < second["time_ns"]
    abouts = recorder.marks("daemon")
    assert len({about["pid"] for about in abouts}) == 3
    assert [about["since_ns"] for about in abouts] == sorted(about["since_ns"] for about in abouts)


def test_the_record_says_what_is_delivered(tmp_path: Path, loopback_port: int):
    """Each file by itself, also where new settings come while it is written."""
    configuration = tmp_path / "bccnd.toml"
    configuration.write_text("[dedup]\nreorder = 3\n")
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, "--config", str(configuration), *flags) as daemon:
        with RecorderProcess(tmp_path, daemon.socket, "--rotate-seconds", "1") as recorder:
            wait_until(lambda: len(recorder.files()) >= 2, "two files")
            configuration.write_text("[dedup]\nreorder = 0\n")
            daemon.process.send_signal(signal.SIGHUP)
            with PacketClient(daemon.socket) as client:
                wait_until(lambda: client.status()["reorder"] == 0, "new settings")
        rows = recorder.rows()
    assert_well_kept(rows)
    assert {row["file"] for row in rows} == {row["file"] for row in rows if row["verdict"] == "daemon"}
    abouts = recorder.marks("daemon")
    assert [abouts[0]["reorder"], abouts[-1]["reorder"]] == [3, 0]
    assert {about["version"] for about in abouts} == {__version__}


def test_the_record_names_who_lost_messages_inside_the_host(
    tmp_path: Path, daemon: DaemonProcess, plain: socket.socket
):
    """A client that does not read, and the kernel's buffer of a daemon that did not for a moment."""
    recorder, slow, client = (
        RecorderProcess(tmp_path, daemon.socket), PacketClient(daemon.socket), PacketClient(daemon.socket)
    )  # fmt: skip
    with recorder, slow, client:
        slow.subscribe("local/>")
        slow.request("queue", "packets=10 policy=drop-newest")
        name = slow.request("whoami")
        while not client.status()["counters"]["dropped"]:
            client.publish("local/x", b"x" * 1000)
        client.drain()
        daemon.process.send_signal(signal.SIGSTOP)
        flood = datagram("there/prog/1", 1, "demo/y", b"x" * 1000)
        for _ in range(20_000):
            plain.send(flood)
        daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: client.status()["kernel"]["dropped"], "datagrams that the kernel dropped")
        client.drain()
        recorder.terminate()
        status = client.status()
    rows = recorder.rows()
    assert_well_kept(rows)
    looks = recorder.marks("counters")
    assert sum(look["kernel_dropped"] for look in looks) == status["kernel"]["dropped"] > 0
    assert sum(look["dropped"] for look in looks) == status["counters"]["dropped"] > 0
    losses = Counter[str]()
    for look in looks:
        losses.update({row["name"]: row["dropped"] for row in look["clients"]})
    assert losses[name] == status["counters"]["dropped"]
    assert looks[0]["from_ns"] < looks[-1]["time_ns"]


def test_a_replacement_of_the_daemon_goes_unnoticed(tmp_path: Path, loopback_port: int):
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with ReplaceableDaemon(tmp_path, *flags) as daemon, RecorderProcess(tmp_path, daemon.socket) as recorder:
        with PacketClient(daemon.socket) as client:
            client.publish("local/x", b"before")
            client.drain()
            daemon.replace()
            client.publish("local/x", b"after")
            client.drain()
        recorder.terminate()
    assert len(assert_well_kept(recorder.rows())) == 1
    assert [(row["payload"], row["interface"]) for row in recorder.datagrams()] == [
        (b"before", None),
        (b"after", None),
    ]


def queued(client: PacketClient) -> int:
    """How many messages wait for clients."""
    return sum(row["queued"] for row in json.loads(client.request("clients"))["clients"])


def test_messages_dropped_for_a_stopped_recorder_are_marked(tmp_path: Path, daemon: DaemonProcess):
    count = 0
    with RecorderProcess(tmp_path, daemon.socket) as recorder, PacketClient(daemon.socket) as client:
        client.request("pack", "on")
        recorder.process.send_signal(signal.SIGSTOP)
        pack = sbus.pack([b"MSG local/x\0%d" % number for number in range(1000)])
        while not client.status()["counters"]["dropped"]:
            for _ in range(10):
                client.send(pack)
            count += 10_000
        recorder.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not queued(client), "a recorder that has caught up")
    rows = recorder.rows()
    assert_well_kept(rows)
    unrecorded = sum(row["size"] for row in rows if row["verdict"] == "unrecorded")
    assert unrecorded > 0
    assert len([row for row in rows if row["direction"]]) + unrecorded == count


def fill(folder: Path) -> Path:
    """A file that leaves no room."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def test_a_full_disk_is_reported_and_harms_nobody(tmp_path: Path, daemon: DaemonProcess, small_disk: Path):
    flags = ["--rotate-seconds", "1"]
    output = small_disk / "recorded"
    with RecorderProcess(tmp_path, daemon.socket, *flags, output=output) as recorder:
        wait_until(recorder.files, "a first file")
        filler = fill(small_disk)
        with PacketClient(daemon.socket) as client, PacketClient(daemon.socket) as other:
            other.subscribe("local/>")
            for number in range(300):
                client.publish("local/x", b"%d" % number)
            client.drain()
            wait_until(lambda: recorder.logged("cannot write, trying again"), "a line about the disk")
            assert [payload for _, payload in other.messages()] == [b"%d" % number for number in range(300)]
        filler.unlink()
        wait_until(lambda: recorder.logged("writing again"), "a line that it is over")
    (line,) = recorder.logged("cannot write, trying again")
    assert (line["level"], line["error"]) == ("error", "No space left on device")
    rows = recorder.rows()
    spans = assert_well_kept(rows)
    assert [opened for opened, _ in spans[1:]] == [closed for _, closed in spans[:-1]], "nothing was lost"
    assert [int(row["payload"]) for row in rows if row["direction"]] == list(range(300))


def test_messages_beyond_memory_are_counted_on_a_full_disk(
    tmp_path: Path, daemon: DaemonProcess, small_disk: Path
):
    output = small_disk / "recorded"
    flags = ["--rotate-seconds", "1", "--buffer-bytes", "8M", "--keep-bytes", "1G"]
    sent = 0
    with RecorderProcess(tmp_path, daemon.socket, *flags, output=output) as recorder:
        fill(small_disk)
        with PacketClient(daemon.socket) as client:
            client.request("pack", "on")
            for _ in range(30):
                payloads = [os.urandom(30_000) for _ in range(20)]
                for payload in payloads:
                    client.publish("local/x", payload)
                client.drain()
                sent += len(payloads)
            wait_until(lambda: recorder.logged("not recorded"), "a line about what is missing")
            subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
            wait_until(lambda: recorder.logged("writing again"), "a line that it is over")
            wait_until(lambda: accounted_for(recorder.rows()) == sent, "room for more")
            client.publish("local/x", b"last")
            client.drain()
            sent += 1
    rows = recorder.rows()
    assert_well_kept(rows)
    assert any(row["verdict"] == "unrecorded" for row in rows)
    assert [row["payload"] for row in rows if row["direction"]][-1] == b"last"
    assert accounted_for(rows) == sent


def accounted_for(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many messages are recorded, or counted as not recorded."""
    return sum(row["size"] if row["verdict"] == "unrecorded" else bool(row["direction"]) for row in rows)


def test_a_disk_full_at_the_end_costs_only_the_last_file(
    tmp_path: Path, daemon: DaemonProcess, small_disk: Path
):
    output = small_disk / "recorded"
    recorder = RecorderProcess(tmp_path, daemon.socket, output=output)
    recorder.start()
    fill(small_disk)
    with PacketClient(daemon.socket) as client:
        client.publish("local/x", os.urandom(30_000))
        client.drain()
    assert recorder.terminate() == 0
    assert [line["rows"] for line in recorder.logged("lost a recorded file")] == [1]
    assert recorder.files() == []
    assert not list(recorder.output.rglob("*.partial"))


def test_two_recorders_of_a_host_do_not_share_a_directory(tmp_path: Path, daemon: DaemonProcess):
    (tmp_path / "second").mkdir()
    with RecorderProcess(tmp_path, daemon.socket) as recorder:
        second = RecorderProcess(tmp_path / "second", daemon.socket, output=recorder.output)
        second.launch()
        assert second.process.wait(PATIENCE) == 5
        assert "another process records host here there" in second.log
        assert "Traceback" not in second.log


def test_without_the_right_to_tap_it_ends(tmp_path: Path, loopback_port: int):
    configuration = tmp_path / "bccnd.toml"
    configuration.write_text('[[rights]]\npublish = [">"]\n')
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, "--config", str(configuration), *flags) as daemon:
        recorder = RecorderProcess(tmp_path, daemon.socket)
        recorder.launch()
        assert recorder.process.wait(PATIENCE) == 4
        assert "no right to tap" in recorder.log.splitlines()[-1]


def test_a_revoked_right_ends_it(tmp_path: Path, loopback_port: int):
    configuration = tmp_path / "bccnd.toml"
    configuration.write_text("[[rights]]\ntap = true\n")
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, "--config", str(configuration), *flags) as daemon:
        recorder = RecorderProcess(tmp_path, daemon.socket)
        recorder.start()
        configuration.write_text('[[rights]]\npublish = [">"]\n')
        daemon.process.send_signal(signal.SIGHUP)
        assert recorder.process.wait(PATIENCE) == 4
        assert "revoked" in recorder.log.splitlines()[-1]
        assert_well_kept(recorder.rows())


def test_the_service_manager_gets_status_and_watchdog(tmp_path: Path, daemon: DaemonProcess):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        with RecorderProcess(tmp_path, daemon.socket, environ=environ):
            got: list[str] = []
            while got.count("WATCHDOG=1") < 2:
                got.append(manager.recv(4096).decode())
        manager.settimeout(0)
        while "STOPPING" not in got[-1]:
            got.append(manager.recv(4096).decode())
    assert "READY=1\nSTATUS=recording here" in got


def test_metrics_and_health_are_served(tmp_path: Path, daemon: DaemonProcess):
    where = free_address()

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    with RecorderProcess(tmp_path, daemon.socket, "--metrics", where), PacketClient(daemon.socket) as client:
        client.publish("local/x", b"1")
        wait_until(lambda: "bccnd_record_rows_total 1.0" in get("/metrics"), "a row that is counted")
        text = get("/metrics")
        assert "bccnd_record_unrecorded_total 0.0" in text
        assert "bccnd_record_connected 1.0" in text
        assert get("/healthz") == "alive\n"
        assert get("/readyz") == "ready\n"
        daemon.terminate()
        wait_until(lambda: "bccnd_record_connected 0.0" in get("/metrics"), "a daemon that is missed")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get("/readyz")


def test_a_socket_file_of_metrics_that_goes_is_made_again(tmp_path: Path, daemon: DaemonProcess):
    path = tmp_path / "metrics.sock"
    with RecorderProcess(tmp_path, daemon.socket, "--metrics", str(path)) as recorder:
        path.unlink()
        wait_until(lambda: "socket file made again" in recorder.log, "the file")
        assert path.is_socket()


def test_the_socket_is_found_as_clients_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def found(socket: str = "") -> str:
        settings = RecorderSettings(socket=socket, output=tmp_path)
        return of_settings(settings, lambda _: None).tap.path

    monkeypatch.setenv("BCCN_SOCKET", "@other")
    assert (found(), found("@named")) == ("@other", "@named")
    monkeypatch.delenv("BCCN_SOCKET")
    monkeypatch.setattr("bccn.transport.SERVICE_SOCKET", str(tmp_path / "none.sock"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert found() == f"{tmp_path}/none.sock"
    (tmp_path / "bccnd").mkdir()
    (tmp_path / "bccnd/bus.sock").touch()
    assert found() == f"{tmp_path}/bccnd/bus.sock"
