"""systemd runs the units as they are installed, with all their restrictions."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import blocks
from tests.mux.mux_client import MuxClient
from tests.needs import cannot_run
from tests.packet_client import PacketClient, wait_until
from tests.recorder_process import rows_of
from tests.systemd.booted_host import BootedHost, why_not

BUS = "/run/bccnd/bus.sock"
DOOR = "/run/bccnd/mux.sock"
KEY = "a-key-that-only-root-may-read-0123456789"


@pytest.fixture(scope="module", autouse=True)
def _it_can_boot() -> None:
    if reason := why_not():
        cannot_run(reason)


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedHost]:
    with BootedHost(tmp_path_factory.mktemp("host")) as host:
        yield host


@pytest.fixture
def host(booted: BootedHost) -> Iterator[BootedHost]:
    """With the service running as the unit says, started by itself."""
    booted.run("systemctl", "reset-failed")
    booted.run("systemctl", "start", "bccnd.service")
    yield booted
    booted.run("systemctl", "stop", "bccnd.socket", "bccnd.service")
    booted.run("sh", "-c", "rm -f /run/units/bccnd.service.d/test.conf /etc/bccnd/keys")
    booted.run("systemctl", "daemon-reload")


def connect(host: BootedHost) -> PacketClient:
    return PacketClient(host.path(BUS))


def main_pid(host: BootedHost) -> int:
    return int(host.show("MainPID"))


def wait_until_told(host: BootedHost, line: str) -> None:
    """The journal has a line a while after it was written."""
    wait_until(lambda: line in host.journal(), line)


def drop_in(host: BootedHost, text: str) -> None:
    host.write("/run/units/bccnd.service.d/test.conf", f"[Service]\n{text}\n")
    host.run("systemctl", "daemon-reload")


def test_an_active_unit_serves(host: BootedHost) -> None:
    """Started and at once connected to, without waiting."""
    for _ in range(3):
        host.run("systemctl", "restart", "bccnd.service")
        with connect(host) as client, connect(host) as other:
            other.subscribe("a/>")
            client.publish("a/b", b"x")
            client.drain()
            assert other.messages() == [("a/b", b"x")]
    assert host.show("ActiveState") == "active"


def test_the_status_line_counts_clients(host: BootedHost) -> None:
    with connect(host):
        wait_until(
            lambda: host.show("StatusText") == f"1 client on {BUS}; segment 127.255.255.255:5400",
            "the client",
        )
    assert host.show("StatusText") in host.run("systemctl", "status", "bccnd.service")


def test_the_daemon_has_no_privilege_at_all(host: BootedHost) -> None:
    with connect(host) as client:
        pid = main_pid(host)
        lines = host.run("cat", f"/proc/{pid}/status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert status["Uid"].split() == [host.run("id", "-u", "bccnd").strip()] * 4
        # Yet it can identify its clients.
        assert client.request("!/cred/whoami").startswith("!/cred/0/0/")
    assert host.run("stat", "-c", "%U:%G %a", BUS).strip() == "bccnd:bccnd 660"
    assert host.run("stat", "-c", "%U %a", "/var/lib/bccnd").strip() == "bccnd 700"


def test_systemd_sees_a_reload_succeed_and_fail(host: BootedHost) -> None:
    pid = main_pid(host)
    host.write("/etc/bccnd/bccnd.toml", 'host = "here"\nbroadcast = "127.255.255.255"\ncopies = 2\n')
    host.run("systemctl", "reload", "bccnd.service")
    wait_until(lambda: '"event": "reloaded", "changed": ["copies"]' in host.journal(), "the reload")
    host.write("/etc/bccnd/bccnd.toml", 'host = "here"\nbroadcast = "127.255.255.255"\ncopies = "many"\n')
    assert host.code("systemctl", "reload", "bccnd.service") != 0
    wait_until_told(host, "/etc/bccnd/bccnd.toml: copies: must be a whole number")
    # Told by SIGHUP alone, the daemon refuses it as well, and says so.
    host.run("systemctl", "kill", "--kill-whom=main", "-s", "HUP", "bccnd.service")
    wait_until(lambda: "not reloaded, the old settings stay" in host.journal(), "the refusal")
    host.write("/etc/bccnd/bccnd.toml", 'host = "here"\nbroadcast = "127.255.255.255"\n')
    wait_until(lambda: host.show("ActiveState") == "active", "the end of the reload")
    assert main_pid(host) == pid


def test_systemd_follows_a_replacement_to_its_end(host: BootedHost) -> None:
    with connect(host) as client:
        client.subscribe("a")
        for _ in range(2):
            old = main_pid(host)
            host.run("systemctl", "kill", "--kill-whom=main", "-s", "USR2", "bccnd.service")
            wait_until(lambda old=old: main_pid(host) not in (0, old), "another main process")  # type: ignore[misc]
            client.publish("a", b"still here")
            assert client.message() == ("a", b"still here")
    assert host.show("ActiveState") == "active"
    assert host.show("NRestarts") == "0"
    assert "reception only permitted for main PID" not in host.journal()
    last = main_pid(host)
    host.run("kill", "-KILL", str(last))
    wait_until(lambda: main_pid(host) not in (0, last) and host.show("ActiveState") == "active", "a restart")
    assert host.show("NRestarts") == "1"


@pytest.mark.parametrize("replaced", [False, True], ids=["started", "replaced"])
def test_a_hanging_daemon_is_killed_and_restarted(host: BootedHost, replaced: bool) -> None:
    drop_in(host, "WatchdogSec=2")
    host.run("systemctl", "restart", "bccnd.service")
    if replaced:
        first = main_pid(host)
        host.run("systemctl", "kill", "--kill-whom=main", "-s", "USR2", "bccnd.service")
        wait_until(lambda: main_pid(host) not in (0, first), "another main process")
    pid = main_pid(host)
    seen = host.show("WatchdogTimestampMonotonic")
    wait_until(lambda: host.show("WatchdogTimestampMonotonic") != seen, "a ping")
    host.run("kill", "-STOP", str(pid))
    wait_until(lambda: main_pid(host) not in (0, pid) and host.show("ActiveState") == "active", "a restart")
    wait_until(lambda: "Watchdog timeout (limit 2s)!" in host.journal(), "the reason in the journal")
    if not replaced:  # systemd gives a process that it did not start no time to log
        wait_until_told(host, "Fatal Python error: Aborted")  # and where


def test_wrong_settings_fail_once_without_a_retry(host: BootedHost) -> None:
    host.run("systemctl", "stop", "bccnd.service")
    drop_in(host, "Environment=BCCND_PORT=none")
    assert host.code("systemctl", "start", "bccnd.service") != 0
    assert host.show("ActiveState") == "failed"
    assert (host.show("ExecMainStatus"), host.show("NRestarts")) == ("2", "0")
    wait_until_told(host, "bccnd: BCCND_PORT: must be a whole number")


def test_wrong_settings_with_a_waiting_client_fail_in_the_end(host: BootedHost) -> None:
    """A connection that nobody accepts starts the service again: as often as the unit allows, then no more."""
    host.run("systemctl", "stop", "bccnd.service")
    drop_in(host, "Environment=BCCND_PORT=none\n[Unit]\nStartLimitBurst=3")
    host.run("systemctl", "start", "bccnd.socket")
    with connect(host):
        wait_until(lambda: host.show("Result", "bccnd.socket") == "service-start-limit-hit", "the end of it")
    assert host.show("ActiveState") == "failed"
    host.run("systemctl", "reset-failed")


def test_a_key_file_for_root_alone_is_passed_as_a_credential(host: BootedHost) -> None:
    host.write("/etc/bccnd/keys", KEY + "\n")
    host.run("chmod", "600", "/etc/bccnd/keys")
    drop_in(
        host,
        "LoadCredential=keys:/etc/bccnd/keys\nEnvironment=BCCND_KEY_FILE=credential:keys\n"
        "ExecReload=\nExecReload=/bin/kill -HUP $MAINPID",
    )
    host.run("systemctl", "restart", "bccnd.service")
    with connect(host) as client:
        assert '"integrity":"hmac"' in client.request("status").replace(" ", "")
    host.run("systemctl", "reload", "bccnd.service")
    wait_until(lambda: '"event": "reloaded", "changed": [], "keys": 1' in host.journal(), "the reload")
    pid = main_pid(host)
    host.run("systemctl", "kill", "--kill-whom=main", "-s", "USR2", "bccnd.service")
    wait_until(lambda: main_pid(host) not in (0, pid), "another main process")
    with connect(host) as client:
        assert '"integrity":"hmac"' in client.request("status").replace(" ", "")


def test_the_socket_outlives_the_daemon(host: BootedHost) -> None:
    host.run("systemctl", "stop", "bccnd.service")
    host.run("systemctl", "start", "bccnd.socket")
    assert host.show("ActiveState") == "inactive"
    inode = os.stat(host.path(BUS)).st_ino
    assert host.run("stat", "-c", "%U:%G %a", BUS).strip() == "bccnd:bccnd 660"
    with connect(host) as client:  # starts it
        client.subscribe("a")
        pid = main_pid(host)
        host.run("systemctl", "kill", "--kill-whom=main", "-s", "USR2", "bccnd.service")
        wait_until(lambda: main_pid(host) not in (0, pid), "another main process")
        client.publish("a", b"still here")
        assert client.message() == ("a", b"still here")
    host.run("systemctl", "restart", "bccnd.service")
    with connect(host) as client:
        assert client.drain() == []
    host.run("systemctl", "stop", "bccnd.service")
    assert os.stat(host.path(BUS)).st_ino == inode
    host.run("systemctl", "stop", "bccnd.socket")
    assert not Path(host.path(BUS)).exists()


def test_the_recorder_records_within_its_restrictions(host: BootedHost) -> None:
    unit = "bccnd-record.service"
    host.write(
        f"/run/units/{unit}.d/test.conf", "[Service]\nEnvironment=BCCND_RECORD_METRICS=127.0.0.1:9541\n"
    )
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", unit)
    assert host.show("StatusText", unit) == "recording here"
    with connect(host) as client:
        client.publish("local/a", b"x")
        client.drain()
    host.run("systemctl", "restart", "bccnd.service")
    wait_until(lambda: "recording again" in host.journal(unit), "a recorder that has found the new daemon")
    host.run("systemctl", "stop", unit)
    assert host.show("Result", unit) == "success", host.journal(unit)
    files = sorted(host.path("/var/lib/bccnd-record").glob("date=*/host=here/*.parquet"))
    rows = [row for file in files for row in rows_of(file)]
    assert [row["payload"] for row in rows if row["channel"] == "local/a"] == [b"x"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o640}


def test_backbone_and_uplink_work_within_their_restrictions(host: BootedHost) -> None:
    """Started, reloaded, replaced where that is promised, killed and stopped."""
    backbone, uplink = "bccnd-backbone.service", "bccnd-uplink.service"
    host.write(
        "/etc/bccnd/uplink.toml",
        '[uplink]\ncarrier = "fyrehose://127.0.0.1:4900"\nname = "north"\nexport = ["a/>"]\nimport = ["b/>"]\n',
    )
    host.run("systemctl", "start", uplink)  # no backbone yet
    wait_until(
        lambda: host.show("StatusText", uplink).startswith("cut off: "), "it to say that it is cut off"
    )
    host.run("systemctl", "start", backbone)
    wait_until(lambda: host.show("StatusText", backbone) == "1 subscriber", "the uplink to be heard")
    wait_until(lambda: host.show("StatusText", uplink) == "up", "the uplink to be up")
    first = host.show("MainPID", backbone)
    host.run("systemctl", "kill", "--kill-whom=main", "-s", "USR2", backbone)
    wait_until(lambda: host.show("MainPID", backbone) not in ("0", first), "another backbone")
    for unit in backbone, uplink:
        host.run("systemctl", "reload", unit)
        host.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", unit)
        wait_until(
            lambda unit=unit: (
                host.show("NRestarts", unit) == "1" and host.show("ActiveState", unit) == "active"
            ),  # type: ignore[misc]
            "a restart",
        )
    wait_until(lambda: host.show("StatusText", uplink) == "up", "the uplink to be up again")
    for unit in uplink, backbone:
        host.run("systemctl", "stop", unit)
        assert host.show("Result", unit) == "success", host.journal(unit)
        assert "fault" not in host.journal(unit)
    assert 1 < int(host.path("/var/lib/bccnd-backbone/sequence").read_text()) < 1 << 22
    assert host.run("stat", "-c", "%U %a", "/var/lib/bccnd-uplink/journal").strip() == "bccnd 600"


def test_the_door_serves_within_its_restrictions(host: BootedHost) -> None:
    """Started, reloaded, restarted by systemd, stopped; and it stands while the daemon restarts."""
    unit, settings = "bccnd-mux.service", "/etc/bccnd/mux.toml"
    host.write(settings, "[mux]\nuser_connections = 3\n")
    host.run("systemctl", "start", unit)
    assert host.run("stat", "-c", "%U:%G %a", DOOR).strip() == "bccnd:bccnd 660"
    with MuxClient(host.path(DOOR)) as peer:
        assert peer.bus().request("!/cred/whoami").startswith("!/cred/0/0/")
        wait_until(lambda: host.show("StatusText", unit) == "1 connection", "the connection")
        pid = host.show("MainPID", unit)
        lines = host.run("cat", f"/proc/{pid}/status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert status["Uid"].split() == [host.run("id", "-u", "bccnd").strip()] * 4
        host.write(settings, "[mux]\nuser_connections = 2\n")
        host.run("systemctl", "reload", unit)
        wait_until(lambda: '"event": "reloaded", "changed": ["user_connections"]' in host.journal(unit), "it")
        host.write(settings, "[mux]\nuser_connections = 0\n")
        assert host.code("systemctl", "reload", unit) != 0
        host.write(settings, "")
        assert (host.show("MainPID", unit), host.show("ActiveState", unit)) == (pid, "active")
        session = peer.bus()
        assert session.drain() == []
        host.run("systemctl", "restart", "bccnd.service")
        assert session.ending().startswith(b"unavailable ")
        assert peer.bus().drain() == []
    # It listens elsewhere, too, as its document says.
    (elsewhere,) = [block.code for block in blocks("bccnd/mux/README.md") if block.language == "ini"]
    host.write(f"/run/units/{unit}.d/override.conf", elsewhere)
    host.write(settings, f'[mux]\nlisten = ["unix:{DOOR}", "unix:/run/bccnd/other.sock"]\n')
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "reload", unit)
    host.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", unit)
    wait_until(
        lambda: host.show("NRestarts", unit) == "1" and host.show("ActiveState", unit) == "active",
        "a restart",
    )
    with MuxClient(host.path("/run/bccnd/other.sock")) as peer:
        assert peer.bus().drain() == []
        host.run("systemctl", "stop", "--no-block", unit)
        assert peer.farewell() == b"unavailable the door stops"
    host.run("systemctl", "stop", unit)
    assert host.show("Result", unit) == "success", host.journal(unit)
    assert not host.path(DOOR).exists()
    assert host.path(BUS).exists()


def test_the_gateway_to_robots_serves_within_its_restrictions(host: BootedHost) -> None:
    unit, settings = "bccnd-dndm.service", "/etc/bccnd/dndm.toml"
    host.write(settings, '[dndm]\ndial = ["serial:///dev/ttyNONE"]\n')
    host.run("systemctl", "start", unit)
    wait_until(lambda: host.show("StatusText", unit) == "0 peers", "the gateway to have its daemon")
    wait_until(lambda: '"peer not reached, trying again"' in host.journal(unit), "it to look for the device")
    host.write(settings, "[dndm]\nstrict = true\n")
    host.run("systemctl", "reload", unit)
    wait_until(lambda: '"changed": ["dial", "strict"]' in host.journal(unit), "the reload")
    host.run("systemctl", "stop", unit)
    assert host.show("Result", unit) == "success", host.journal(unit)
    assert "fault" not in host.journal(unit)
