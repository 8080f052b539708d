"""The backbone as it runs: with plain clients, killed, replaced, reloaded, flooded."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from errno import EAGAIN
from pathlib import Path
from random import Random

import pytest

from bccnd.backbone.numbers import RESERVE
from bccnd.backbone.outlet import Outlet, open_socket
from bccnd.backbone.service import Service
from bccnd.backbone.settings import BackboneSettings
from bccnd.backbone.state_file import StateFile
from bccnd.errors import RefusedError
from bccnd.net.fan import FanTable
from bccnd.net.mmsg import BATCH
from tests.backbone.process import TOKEN, BackboneProcess, PlainClient, client
from tests.packet_client import PATIENCE, wait_until
from tests.waiting import until

NOSUBSCRIBE, NOJOURNAL = 1, 2


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackboneProcess]:
    """One for several tests: each sees numbers that go on."""
    with BackboneProcess(tmp_path_factory.mktemp("backbone")) as process:
        yield process


@pytest.fixture
def one(backbone: BackboneProcess) -> Iterator[PlainClient]:
    with client(backbone, "127.0.0.2") as made:
        yield made


def test_a_foreign_client_does_all_six_packets(tmp_path: Path) -> None:
    with BackboneProcess(tmp_path) as process, client(process) as one, client(process) as two:
        one.keepalive()
        two.keepalive()
        one.push(b"hello")
        assert one.message() == two.message() == (1, b"hello")
        two.push(b"")
        assert one.message() == two.message() == (2, b"")
        with client(process) as late:
            late.request(1, 2**48 - 1)
            wait_until(lambda: any([_forwarded(one), _forwarded(two)]), "the FORWARD of a request")
            assert [late.message(), late.message()] == [(1, b"hello"), (2, b"")]
            late.push(b"from a stranger")
        assert one.message() == two.message() == (3, b"from a stranger")


def _forwarded(each: PlainClient) -> bool:
    """Whether a FORWARD has come to it, before the answer to a KEEPALIVE."""
    each.socket.sendto(b"\x10" + bytes(12) + TOKEN, each.backbone)
    kinds = []
    while 0x20 not in kinds:
        kinds.append(each.receive()[0])
    return 0x08 in kinds


def test_numbers_survive_kill_9_and_never_repeat(tmp_path: Path) -> None:
    process = BackboneProcess(tmp_path)
    with process, client(process) as one:
        last = 0
        for _ in range(2):
            one.keepalive()
            for _ in range(3):
                one.push(b"x")
                seq, _ = one.message()
                assert seq > last
                last = seq
            process.kill()
            assert int(process.state.read_text()) > last
            process.start()
        assert last == RESERVE + 3  # 1 to 3, and the same from RESERVE + 1 on
        one.keepalive()
        one.push(b"x")
        after = one.message()[0]
        assert after > last
        assert process.terminate() == 0
        assert process.state.read_text() == f"{after + 1}\n"
        process.start()
        one.keepalive()
        one.push(b"x")
        assert one.message()[0] == after + 1  # an orderly stop leaves no gap


def test_a_replacement_keeps_numbers_and_subscribers(tmp_path: Path) -> None:
    """While messages are pushed: each is delivered once, with the numbers in a row."""
    with BackboneProcess(tmp_path) as process, client(process) as one, client(process) as other:
        one.keepalive()
        over, sent = threading.Event(), []

        def publish() -> None:
            while not over.wait(0.005) and len(sent) < 150:  # which find room in the socket of the subscriber
                sent.append(b"%d" % len(sent))
                other.push(sent[-1])

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            pids = {process.pid}
            os.kill(process.pid, signal.SIGUSR1)  # which is ignored
            for _ in range(2):
                process.replace()
                pids.add(process.pid)
        finally:
            over.set()
            publisher.join(PATIENCE)
        assert [one.message() for _ in sent] == list(enumerate(sent, 1))
        other.push(b"after")
        assert one.message() == (len(sent) + 1, b"after")
        assert len(pids) == 3


def test_a_reload_changes_what_it_can_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "backbone.toml"
    file.write_text("[backbone]\nstrangers = true\n")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(PATIENCE)
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    process = BackboneProcess(tmp_path, "--config", str(file), environ=environ)
    with manager, process, client(process) as one:
        assert manager.recv(1000) == b"READY=1\nSTATUS=0 subscribers"
        one.push(b"x")
        one.keepalive(NOSUBSCRIBE)  # its answer is behind what was sent before
        file.write_text("[backbone]\nstrangers = 7\n")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: process.logged("not reloaded, the old settings stay"), "a refusal")
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert b"STATUS=not reloaded: " in manager.recv(1000)
        file.write_text("[backbone]\nstrangers = false\nbuffer_bytes = 100000\n")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: process.logged("reloaded"), "a reload")
        assert process.logged("reloaded")[0]["changed"] == ["strangers"]
        assert process.logged("needs a restart")[0]["settings"] == ["buffer_bytes"]
        with client(process) as stranger:
            stranger.push(b"not taken")
            one.keepalive()
            one.push(b"taken")
            assert one.message() == (2, b"taken")


# --- hostile, with one backbone ---


def test_a_forged_address_gets_nothing(backbone: BackboneProcess, one: PlainClient) -> None:
    one.keepalive(NOJOURNAL)
    with client(backbone, "127.0.0.9") as victim, client(backbone, "127.0.0.3") as liar:
        host, port = victim.socket.getsockname()
        liar.keepalive(0, host, port)
        liar.socket.sendto(
            b"\x04" + socket.inet_aton(host) + port.to_bytes(2, "big") + bytes(5) + b"\1" + bytes(5) + b"\2",
            backbone.address,
        )
        liar.push(b"aimed")
        assert one.message()[1] == b"aimed"
        victim.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.socket.recv(100)


def test_a_flood_of_keepalives_harms_no_subscriber(backbone: BackboneProcess, one: PlainClient) -> None:
    """Of 300 sockets of one address, 64 find places; who had one before goes on."""
    one.keepalive(NOJOURNAL)
    with ExitStack() as stack:
        crowd = [stack.enter_context(client(backbone, "127.0.9.9")) for _ in range(300)]
        for each in crowd:
            each.keepalive(NOJOURNAL)
        one.push(b"still here")
        number, data = one.message()
        assert data == b"still here"
        wait_until(lambda: sum(map(_has_something, crowd)) == 64, "a message for each with a place")
        one.push(b"again")
        assert one.message() == (number + 1, b"again")


def _has_something(each: PlainClient) -> bool:
    each.socket.setblocking(False)
    try:
        return bool(each.socket.recv(100, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_garbage_harms_nobody(backbone: BackboneProcess, one: PlainClient) -> None:
    random = Random(18)
    one.keepalive(NOJOURNAL)
    with client(backbone, "127.0.0.4") as liar:
        for _ in range(20):
            for _ in range(50):
                kind = random.choice([b"", b"\x01", b"\x02", b"\x04", b"\x08", b"\x10", b"\x20", b"\xff"])
                liar.socket.sendto(kind + random.randbytes(random.randrange(40)), backbone.address)
            one.push(b"between")
            # A random PUSH has no right LENGTH but by chance; seed 18 has none.
            assert one.message()[1] == b"between"


def test_dead_subscribers_harm_nobody(backbone: BackboneProcess, one: PlainClient) -> None:
    one.keepalive(NOJOURNAL)
    for _ in range(10):
        with client(backbone, "127.0.0.5") as dead:
            dead.keepalive(NOJOURNAL)
    for n in range(20):
        one.push(b"%d" % n)
        assert one.message()[1] == b"%d" % n


# --- what no test can cause from outside ---


@pytest.fixture
async def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr("bccnd.backbone.leases.LEASE_SECONDS", 600.0)  # as BackboneProcess has it
    settings = BackboneSettings(listen="127.0.0.1:0", state=tmp_path / "sequence")
    made = Service(
        settings,
        (),
        Outlet(open_socket(settings.endpoint, 1 << 20)),
        StateFile(settings.state),
        asyncio.get_running_loop(),
        lambda: (settings, ()),
    )
    made.begin()
    yield made
    made._end()


async def test_a_full_disk_stops_numbers_before_they_repeat(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = service.core.numbers
    stored = int((tmp_path / "sequence").read_text())
    assert numbers.bound == stored == 1 + RESERVE
    numbers.next = stored

    def refuse(_file: StateFile, _bound: int) -> None:
        raise RefusedError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(StateFile, "write", refuse)
        service._reserve()
    assert service._unready() == "sequence numbers not kept: no space left"
    assert numbers.take() == 0
    service._reserve()
    assert service._unready() == ""
    assert numbers.take() == stored
    assert int((tmp_path / "sequence").read_text()) == numbers.bound == stored + RESERVE


async def test_a_fault_costs_one_tick(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(service, "_reserve", fail)
    with pytest.raises(RuntimeError):
        service._tick()
    assert service._ticking is not None
    assert not service._ticking.cancelled()
    service._ticking.cancel()


@pytest.mark.parametrize("room", [True, False])
async def test_who_pushes_waits_while_there_is_no_room(
    service: Service, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    send, full = FanTable.send, [True]
    monkeypatch.setattr(FanTable, "send", lambda fan, fd, first: -EAGAIN if full[0] else send(fan, fd, first))
    one = PlainClient(service._outlet.socket.getsockname())
    service._resume()
    with one.socket:
        await asyncio.to_thread(one.keepalive)
        one.push(b"x")
        await until(lambda: service._stalled is not None or service._outlet.unsent)
        full[0] = not room
        await until(lambda: service._stalled is None)
        if room and not service._outlet.unsent:  # its time may be over on a busy machine
            assert (await asyncio.to_thread(one.message)) == (1, b"x")
        assert service._outlet.unsent + service._outlet.delivered == 1
        full[0] = False
        one.push(b"y")
        assert (await asyncio.to_thread(one.message)) == (2, b"y")


async def test_a_turn_ends_after_so_many_datagrams(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.backbone.service.DATAGRAMS", 1)
    one = PlainClient(service._outlet.socket.getsockname())
    service._resume()
    with one.socket:
        await asyncio.to_thread(one.keepalive)
        service._pause()
        for _ in range(3 * BATCH):
            one.push(b"x")
        for batches in (1, 2, 3):
            service._on_readable()
            assert service._outlet.delivered == batches * BATCH
