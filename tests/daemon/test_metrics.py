"""Metrics and health of a running daemon, over TCP and a Unix socket, across reloads and replacements."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bccnd.wire.verdict import Verdict
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, free_address, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon


def get(where: str, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body of the answer."""
    if where.startswith("/"):
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(where)
    else:
        connection = http.client.HTTPConnection(where, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def scrape(where: str) -> dict[str, float]:
    """Samples by name and labels. Text that Prometheus would refuse does not parse."""
    status, text = get(where, "/metrics")
    assert status == 200
    return {
        sample.name + "".join(f",{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Watched(ReplaceableDaemon):
    def __init__(self, folder: Path, port: int, listen: str, begin_with: str = "") -> None:
        self.settings = folder / "bccnd.toml"
        self.listen(listen)
        flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(port))
        super().__init__(folder, "--config", str(self.settings), *flags, begin_with=begin_with)

    def listen(self, where: str) -> None:
        new = self.settings.with_suffix(".new")
        new.write_text(f'log = {{format = "json"}}\nmetrics = {{listen = "{where}"}}\n')
        new.replace(self.settings)

    def reload(self, where: str, event: str = "reloaded") -> None:
        before = len(self.logged(event))
        self.listen(where)
        self.signal(signal.SIGHUP)
        wait_until(lambda: len(self.logged(event)) > before, event)


@pytest.fixture
def address() -> str:
    return free_address()


@pytest.fixture
def watched(tmp_path: Path, loopback_port: int, address: str) -> Iterator[Watched]:
    with Watched(tmp_path, loopback_port, address) as daemon:
        yield daemon


def test_metrics_count_what_happens(watched: Watched, address: str, loopback_port: int) -> None:
    with PacketClient(watched.socket) as client, plain_socket(0) as network:
        client.subscribe("demo/>")
        for sent in (
            datagram("a", 1, "demo/x"),
            datagram("a", 5, "demo/x"),
            datagram("a", 5, "demo/x"),
            b"HELLO",
        ):
            network.sendto(sent, (LOOPBACK_BROADCAST, loopback_port))
        client.receive()
        client.receive()
        wait_until(lambda: client.rejected("duplicate") == 1, "the duplicate")
        kernel = [f"bccnd_kernel_{what}_datagrams_total" for what in ("dropped", "filtered")]
        wait_until(lambda: sum(map(scrape(address).get, kernel)) == 1, "the one that is foreign")
        seen = scrape(address)
        assert seen["bccnd_datagrams_received_total"] == 3
        assert seen["bccnd_messages_routed_total"] == 2
        assert seen["bccnd_datagrams_missed_total"] == 3
        assert seen["bccnd_datagrams_rejected_total,duplicate"] == 1
        assert seen["bccnd_datagrams_rejected_total,hmac"] == 0
        assert (seen["bccnd_clients"], seen["bccnd_subscriptions"], seen["bccnd_segment_sockets"]) == (
            1,
            1,
            1,
        )
        watched.replace()
        after = scrape(address)
        assert after["bccnd_datagrams_missed_total"] == 3
        counters = [name for name in seen if "_total" in name and name.startswith("bccnd")]
        assert [name for name in counters if after[name] < seen[name]] == []


def test_metrics_count_what_is_repaired(watched: Watched, address: str, loopback_port: int) -> None:
    with PacketClient(watched.socket) as client, plain_socket(0) as network:
        client.subscribe("demo/>")
        daemon = "b/bccnd/1/repair"
        for sent in (
            datagram(daemon, 1, "!bccnd/repair", b"last\na 1-1"),
            datagram("a", 1, "demo/x"),
            datagram("a", 3, "demo/x"),
            datagram(daemon, 2, "!bccnd/repair", b"gone\na 2 0"),
        ):
            network.sendto(sent, (LOOPBACK_BROADCAST, loopback_port))
        client.receive()
        client.receive()  # the one behind the gap, once that is gone
        seen = scrape(address)
    assert (seen["bccnd_datagrams_gone_total"], seen["bccnd_datagrams_given_up_total"]) in ((1, 0), (0, 1))
    zero = ("datagrams_repaired_total", "datagrams_resent_total", "datagrams_resend_refused_total")
    assert [seen[f"bccnd_{name}"] for name in zero] == [0, 0, 0]
    assert (seen["bccnd_held_messages"], seen["bccnd_held_bytes"], seen["bccnd_repairs"]) == (0, 0, 1)
    assert seen["bccnd_held_bytes_limit"] == 16 << 20


def test_every_reason_begins_at_zero(watched: Watched, address: str) -> None:
    name = "bccnd_datagrams_rejected_total"
    counted = {key: value for key, value in scrape(address).items() if key.startswith(name)}
    assert counted == {f"{name},{verdict}": 0 for verdict in Verdict if not verdict.delivered}


def test_health_and_readiness_are_answered(watched: Watched, address: str) -> None:
    assert get(address, "/healthz") == (200, "alive\n")
    assert get(address, "/readyz") == (200, "ready\n")
    assert get(address, "/readyz", "HEAD") == (200, "")
    assert get(address, "/")[0] == 404
    assert get(address, "/metrics", "POST")[0] == 405


def test_a_stopping_daemon_is_not_ready(tmp_path: Path, loopback_port: int, address: str) -> None:
    patient = "import bccnd.daemon.service as it; it.DRAIN_SECONDS = 600.0"
    with (
        Watched(tmp_path, loopback_port, address, patient) as watched,
        PacketClient(watched.socket) as slow,
        PacketClient(watched.socket) as publisher,
    ):
        slow.subscribe("local/x")
        for _ in range(40):  # more than the socket holds, so that draining takes until they are read
            publisher.publish("local/x", bytes(60_000))
        publisher.drain()
        assert get(address, "/readyz") == (200, "ready\n")
        watched.signal(signal.SIGTERM)
        wait_until(lambda: get(address, "/readyz") == (503, "stopping\n"), "the word that it stops")
        while slow.receive():
            pass
        assert watched.wait() == 0


def test_a_reload_moves_metrics_or_is_refused_whole(watched: Watched, address: str, tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.sock")
    watched.reload(path)
    assert oct(os.stat(path).st_mode)[-3:] == "660"
    with pytest.raises(ConnectionRefusedError):
        get(address, "/healthz")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        watched.reload(f"127.0.0.1:{taken.getsockname()[1]}", "not reloaded, the old settings stay")
        assert "taken" in watched.logged("not reloaded, the old settings stay")[-1]["fault"]
    wait_until(lambda: scrape(path)["bccnd_config_last_reload_successful"] == 0, "the failed reload to show")
    watched.reload("")
    assert not Path(path).exists()
    watched.reload(address)
    assert scrape(address)["bccnd_config_last_reload_successful"] == 1


def test_a_socket_file_that_was_deleted_is_made_again(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    watched.reload(str(path))
    for _ in range(2):  # by this daemon, and by its successor, which inherits the socket
        before = len(watched.logged("socket file made again"))
        path.unlink()
        wait_until(lambda: len(watched.logged("socket file made again")) > before, "the file")  # noqa: B023
        assert "bccnd_clients" in get(str(path), "/metrics")[1]
        watched.replace()
    watched.reload("")
    assert not path.exists()


def test_a_replacement_fails_no_scrape(watched: Watched, address: str) -> None:
    stop, failures, scrapes = threading.Event(), [], []

    def keep_scraping() -> None:
        while not stop.is_set():
            try:
                scrapes.append(get(address, "/metrics")[0])
            except OSError as error:
                failures.append(error)

    scraper = threading.Thread(target=keep_scraping)
    scraper.start()
    try:
        for _ in range(2):
            watched.replace()
    finally:
        stop.set()
        scraper.join()
    assert failures == []
    assert set(scrapes) == {200}


def test_a_successor_that_listens_elsewhere_leaves_nothing(
    tmp_path: Path, loopback_port: int, address: str
) -> None:
    path = str(tmp_path / "metrics.sock")
    with Watched(tmp_path, loopback_port, path) as daemon:
        daemon.listen(address)
        daemon.replace()
        assert get(address, "/healthz")[0] == 200
        assert not Path(path).exists()


def test_idle_connections_keep_no_scrape_and_no_message_out(watched: Watched, address: str) -> None:
    host, _, port = address.partition(":")
    with ExitStack() as opened, PacketClient(watched.socket) as client:
        for _ in range(100):
            idle = opened.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):
                idle.send(b"GET /metr")
        assert get(address, "/healthz")[0] == 200
        client.drain()
        assert watched.descriptors() < 60


def test_an_address_in_use_is_one_line_and_leaves_no_socket(tmp_path: Path, loopback_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ["--socket", str(tmp_path / "bus.sock"), "--port", str(loopback_port)]
        result = subprocess.run(
            [sys.executable, "-m", "bccnd.daemon", *flags],
            env={**os.environ, "BCCND_METRICS__LISTEN": where, "BCCND_BROADCAST": LOOPBACK_BROADCAST},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert result.returncode == 5
    assert result.stderr == f"bccnd: metrics.listen {where}: is taken by another program\n"
    assert not (tmp_path / "bus.sock").exists()


def test_without_metrics_the_library_is_not_loaded() -> None:
    code = "import sys, bccnd.daemon.program; print([m for m in sys.modules if m.startswith('prometheus')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
