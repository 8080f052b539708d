"""The daemon and its clients' sockets: who leaves in a hurry, who is held, and whose turn it is."""

import asyncio
import select
import socket
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from bccnd.daemon import bus, turns
from bccnd.relay.effects import SEALED_LIMIT
from bccnd.relay.session import Session
from bccnd.wire import sbus
from tests.daemon.in_process import InProcess, stopped
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until

# A PACK that takes many short turns.
MUCH = sbus.pack([b"SUB a*", b"UNSUB a*"] * 2900)


# --- last words ---


def roomy(client: PacketClient) -> None:
    """Let it send all of a test's packets while the daemon reads none."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def numbered(count: int) -> list[tuple[str, bytes]]:
    return [("last/words", b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("count", [1, 64, 150], ids=["one", "a batch", "more"])
def test_last_words_of_a_client_that_left_packets_unread(daemon: DaemonProcess, count: int) -> None:
    """The kernel makes such an end a reset, which is told before what the client sent."""
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as hasty:
            roomy(hasty)
            hasty.subscribe("busy/>")
            listener.publish("busy/x", b"never read")
            listener.drain()
            with stopped(daemon):
                for chan, payload in numbered(count):
                    hasty.publish(chan, payload)
                hasty.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 1, "the client to be forgotten")


@pytest.mark.parametrize("count", [0, 1, 150], ids=["none", "one", "more than a batch"])
def test_last_words_of_a_client_that_had_a_backlog(daemon: DaemonProcess, count: int) -> None:
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as slow:
            roomy(slow)
            slow.subscribe("busy/>")
            while listener.status()["queued"]["packets"] == 0:  # one by one: nobody waits for a turn then
                listener.publish("busy/x", b"never read" * 100)
            for chan, payload in numbered(count):
                slow.publish(chan, payload)
            slow.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 1, "the client to be forgotten")


@pytest.mark.parametrize("count", [1, 150], ids=["one", "more than a batch"])
def test_last_words_of_a_client_that_a_delivery_finds_gone(daemon: DaemonProcess, count: int) -> None:
    with PacketClient(daemon.socket) as listener, PacketClient(daemon.socket) as busy:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as hasty:
            roomy(hasty)
            hasty.subscribe("busy/>")
            busy.drain()
            with stopped(daemon):
                busy.publish("busy/x", b"finds it gone")  # read first, since it came first
                for chan, payload in numbered(count):
                    hasty.publish(chan, payload)
                hasty.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 2, "the client to be forgotten")


def test_last_words_that_find_the_next_client_gone(daemon: DaemonProcess) -> None:
    count = 300
    with PacketClient(daemon.socket) as listener, ExitStack() as row:
        listener.subscribe(f"row/{count}")
        clients = [row.enter_context(PacketClient(daemon.socket)) for _ in range(count)]
        for number, client in enumerate(clients):
            client.subscribe(f"row/{number}")
        with stopped(daemon):
            for number, client in enumerate(clients):
                client.publish(f"row/{number + 1}")
            row.close()
        assert listener.message() == (f"row/{count}", b"")
        wait_until(lambda: listener.status()["clients"] == 1, "the clients to be forgotten")


@pytest.mark.parametrize("empty", [1, 64, 130], ids=["one", "a batch", "more"])
def test_last_words_behind_empty_packets(daemon: DaemonProcess, empty: int) -> None:
    """An empty packet looks like the end of a connection."""
    with PacketClient(daemon.socket) as listener, PacketClient(daemon.socket) as hasty:
        listener.subscribe("last/>")
        roomy(hasty)
        hasty.drain()
        with stopped(daemon):
            for _ in range(empty):
                hasty.send(b"")
            hasty.publish("last/x", b"words")
            hasty.close()
        assert listener.message() == ("last/x", b"words")


async def test_last_words_behind_a_reset_are_read_at_the_end(in_process: InProcess) -> None:
    daemon = in_process.daemon
    listener, hasty = await in_process.client(), await in_process.client()
    await asyncio.to_thread(listener.subscribe, "last/>")
    await asyncio.to_thread(hasty.subscribe, "busy/>")
    listener.publish("busy/x", b"never read")
    await asyncio.to_thread(listener.drain)
    hasty.publish("last/x", b"words")
    hasty.close()
    daemon._bus.read_the_rest(time.monotonic() + PATIENCE)
    assert listener.message() == ("last/x", b"words")


@pytest.mark.parametrize("left", [False, True], ids=["read", "left of a turn"])
async def test_a_fault_of_ours_at_the_end_costs_one_client(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    daemon = in_process.daemon
    listener, unlucky, other = [await in_process.client() for _ in range(3)]
    await asyncio.to_thread(listener.subscribe, "last/>")
    assert await asyncio.to_thread(unlucky.request, "pack", "on")
    await asyncio.to_thread(other.drain)
    first = next(session for session in daemon.relay.sessions.values() if session.packed)
    read = daemon.relay.from_client

    def broken(session: Session, *arguments: Any) -> Any:
        if session is first:
            raise ZeroDivisionError
        return read(session, *arguments)

    if left:
        spans = [0], [4]
        daemon._bus._turns.put_aside(first, (spans, 0, 0))
    else:
        unlucky.publish("last/x", b"never")
    other.publish("last/x", b"words")
    monkeypatch.setattr(daemon.relay, "from_client", broken)
    daemon._bus.read_the_rest(time.monotonic() + PATIENCE)
    assert listener.message() == ("last/x", b"words")
    assert first.closing == "fault"


# --- held and closed clients ---


def test_sigterm_while_a_publisher_is_held(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as subscriber, PacketClient(daemon.socket) as publisher:
        subscriber.request("queue", "packets=10 policy=block")
        subscriber.subscribe("flood/>")
        publisher.socket.setblocking(False)
        wait_until(lambda: is_held(publisher), "the publisher to be held")
        assert daemon.terminate() == 0


def is_held(publisher: PacketClient) -> bool:
    """Fills its socket; whether the daemon leaves it full."""
    with suppress(BlockingIOError):
        while True:
            publisher.publish("flood/x", bytes(1000))
    return not select.select([], [publisher.socket], [], 0.2)[1]


async def test_a_held_publisher_goes_on_when_the_client_leaves(in_process: InProcess) -> None:
    daemon = in_process.daemon
    subscriber, publisher = await in_process.client(), await in_process.client()
    await asyncio.to_thread(subscriber.request, "queue", "packets=10 policy=block")
    await asyncio.to_thread(subscriber.subscribe, "flood/>")
    publisher.socket.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        while not any(session.waits_for for session in daemon.relay.sessions.values()):
            with suppress(BlockingIOError):
                publisher.publish("flood/x", bytes(1000))
            await asyncio.sleep(0)
    subscriber.socket.shutdown(socket.SHUT_WR)  # the end, without a reset
    await in_process.until(lambda: len(daemon.relay.sessions) == 1)
    publisher.socket.settimeout(PATIENCE)
    assert await asyncio.to_thread(publisher.drain) == []


@pytest.mark.parametrize(("batch_ns", "read"), [(300_000, 6 * 64), (1_100_000, 64)], ids=["short", "long"])
async def test_batches_are_read_as_long_as_they_fit_a_turn(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch, batch_ns: int, read: int
) -> None:
    """What is left of one would have to be copied."""
    now = time.time_ns()
    monkeypatch.setattr(bus, "ALONE_NS", 1 << 63)
    monkeypatch.setattr(bus, "TURN_NS", 2_000_000)
    monkeypatch.setattr(bus, "time_ns", lambda: now)
    daemon = in_process.daemon
    publisher = await in_process.client()
    await asyncio.to_thread(publisher.drain)
    pass_on = daemon.relay.from_client

    def takes_time(*arguments: Any) -> Any:
        nonlocal now
        now += batch_ns
        return pass_on(*arguments)

    monkeypatch.setattr(daemon.relay, "from_client", takes_time)
    roomy(publisher)
    for _ in range(7 * 64):
        publisher.publish("local/x")
    (session,) = daemon.relay.sessions.values()
    daemon._bus._serve(session)
    assert session.published == read


async def test_less_is_read_at_once_of_a_client_that_leaves_much(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each PACK so many messages that the datagrams of 25 fill their region."""
    monkeypatch.setattr(bus, "ALONE_NS", 1 << 63)
    monkeypatch.setattr(bus, "TURN_NS", 0)  # every turn is over when it has begun
    daemon = in_process.daemon
    publisher = await in_process.client()
    assert await asyncio.to_thread(publisher.request, "pack", "on")
    (session,) = daemon.relay.sessions.values()
    asked: list[int] = []
    read = daemon._bus._table.read

    def noted(fd: int, most: int) -> tuple[list[int], list[int]]:
        asked.append(most)
        return read(fd, most)

    monkeypatch.setattr(daemon._bus._table, "read", noted)
    roomy(publisher)
    pack = sbus.pack([b"MSG a\0"] * (SEALED_LIMIT // 25))
    for _ in range(64 + 32 + 16 + 16):
        publisher.send(pack)
    await in_process.until(lambda: session.published == (64 + 32 + 16 + 16) * (SEALED_LIMIT // 25))
    assert asked[:4] == [64, 32, 16, 16]


async def test_a_client_closed_while_congested_is_not_read_again(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor may be another client's by then."""
    monkeypatch.setattr(bus, "ALONE_NS", 1 << 63)  # always read by the batch
    daemon = in_process.daemon
    broken = await in_process.client()
    assert await asyncio.to_thread(broken.request, "pack", "on")
    daemon._segments._egresses[0].congested = True
    broken.publish("demo/x", b"one batch with what follows")
    broken.send(b"PACK \xff\xff\xff\xff")
    await in_process.until(lambda: not daemon.relay.sessions)
    assert daemon._bus._held_back == set()
    daemon._segments._egresses[0].congested = False
    daemon._segments._relieved()
    other = await in_process.client()
    assert await asyncio.to_thread(other.drain) == []


def test_a_shell_may_write_several_lines_at_once(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as plain, PacketClient(daemon.socket) as shell:
        plain.subscribe("a", "b")
        shell.send(b"SUB own\nMSG a x\nMSG b y\nMSG own z\n")
        assert [plain.message(), plain.message()] == [("a", b"x"), ("b", b"y")]
        assert shell.receive() == b"MSG own z\n"


# --- turns ---


def calls_of(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Session]:
    """Of this method of every bus from now on: the session of each call."""
    sessions: list[Session] = []
    method = getattr(bus.Bus, name)

    def noted(self: bus.Bus, session: Session) -> Any:
        sessions.append(session)
        return method(self, session)

    monkeypatch.setattr(bus.Bus, name, noted)
    return sessions


async def test_a_client_with_packets_left_has_one_turn_a_round(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two turns the loop looks after everybody else."""
    monkeypatch.setattr(bus, "TURN_NS", 1000)
    turns_taken = calls_of(monkeypatch, "_take_turn")
    client = await in_process.client()
    assert await asyncio.to_thread(client.request, "pack", "on")
    client.send(MUCH)
    await in_process.until(lambda: turns_taken)
    for _ in range(6):
        before = len(turns_taken)
        await asyncio.sleep(0)
        assert len(turns_taken) - before <= 1
    await in_process.until(lambda: not in_process.daemon._bus._turns.left)


async def test_a_round_has_one_long_turn_however_many_are_busy(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for little waits for that one, and not for as many as there are busy clients."""
    for name in ("LONG_NS", "LONG_STEPS", "ROUND_NS"):  # each turn of a client that sends is one
        monkeypatch.setattr(turns, name, 0)
    monkeypatch.setattr(turns, "PAUSE_NS", 1 << 62)  # a machine that stands still begins no other round
    busy = [await in_process.client() for _ in range(5)]
    served = calls_of(monkeypatch, "_serve")

    def all_send() -> None:
        for client in busy:
            client.publish("busy/x", b"")

    all_send()
    await in_process.until(lambda: len(set(served)) == len(busy))
    for _ in range(10):
        served.clear()
        all_send()
        for rounds in range(1, 100):
            await asyncio.sleep(0)
            assert len(served) <= rounds
            if len(set(served)) == len(busy):
                break
        await in_process.until(lambda: not in_process.daemon._bus._turns)  # who was found busy twice
    assert len(set(served)) == len(busy), "everybody has a turn"


async def test_a_round_reads_as_many_as_its_budget_allows(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are read in the next rounds, and each once."""
    senders = [await in_process.client() for _ in range(30)]
    served = calls_of(monkeypatch, "_serve")
    monkeypatch.setattr(turns, "ROUND_NS", 0)  # any turn spends it
    for client in senders:
        client.publish("busy/x", b"")
    most = 0
    while len(served) < len(senders):
        before = len(served)
        await asyncio.sleep(0)
        most = max(most, len(served) - before)
    assert most <= 2, "one from the line, and one that the loop found"
    assert len(set(served)) == len(senders)
    assert not in_process.daemon._bus._turns


async def test_a_turn_is_as_long_whatever_its_first_call_takes(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    read = in_process.daemon.relay.from_client

    def time_ns() -> int:
        """A call takes three quarters of a turn, and nothing else takes time."""
        return 1_800_000_000_000_000_000 + calls * 3 * turns.TURN_NS // 4

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return read(*arguments)

    monkeypatch.setattr(in_process.daemon.relay, "from_client", counted)
    monkeypatch.setattr(bus, "time_ns", time_ns)
    client = await in_process.client()
    assert await asyncio.to_thread(client.request, "pack", "on")
    begun = calls
    client.send(sbus.pack([b"MSG busy/x\0"] * 4000))
    while calls < begun + 3:
        before = calls
        await asyncio.sleep(0)
        assert calls - before <= 2


async def test_packets_left_are_in_the_account_of_their_client(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "TURN_NS", 1000)
    relay, left = in_process.daemon.relay, in_process.daemon._bus._turns.left
    client = await in_process.client()
    assert await asyncio.to_thread(client.request, "pack", "on")
    client.send(MUCH)
    await in_process.until(lambda: left)
    (session,) = left
    assert session.outbox.left == relay.state.ledger.left == sum(map(len, left[session])) > 0
    await in_process.until(lambda: not left)
    assert session.outbox.left == relay.state.ledger.left == 0
    monkeypatch.setattr(bus, "TURN_NS", 0)
    client.send(MUCH)
    await in_process.until(lambda: left)
    client.send(b"PACK \xff\xff\xff\xff")
    await in_process.until(lambda: not relay.sessions)
    assert relay.state.ledger.left == 0
