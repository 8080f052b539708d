"""The gateway to robots, ``bccnd-dndm``, beside a plain connection of TCP: rates and round trips of frames.

Both ends are sockets of this process and a child, and do nothing but write and count: the frame that one robot writes
comes out at another one, at a program of the bus, or at the other end of one connection.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median, quantiles

from tests.bench.loads import PAYLOAD
from tests.bench.machine import cpu_seconds
from tests.bench.peers import bccnd
from tests.bench.programs import MeasurementError
from tests.bench.results import Report
from tests.bench.rounds import Bench, Flow, rates
from tests.dndm.process import DndmProcess, Robot, dialled
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import free_address

GATEWAY, PLAIN = "gateway", "plain TCP"
ROUTE, CHANNEL = "T@bench", "dndm/bench/T"
# What each payload is, so that frames can be counted in a stream.
MARK = b"bccnd-dndm bench"
BODY = MARK.ljust(PAYLOAD, b".")
# In one send of a publisher; a robot that has much to say writes several frames at once.
BATCH = 64
PINGS = 2000


def run(bench: Bench) -> Report:
    report = Report("The gateway to DNDM, messages of 100 bytes")
    ways = [
        ("robot", "from one robot to another", _robots),
        ("bus", "from a robot to a program of the bus", _bus),
    ]
    for key, title, gateway in ways[:1] if bench.quick else ways:
        sides: dict[str, Callable[[int], Flow]] = {
            GATEWAY: partial(gateway, bench),
            PLAIN: _plain,
        }
        flows = bench.flows(sides, 1, report.faults)
        used = median(flow.busy for flow in flows.get(GATEWAY, [Flow(0, 0)]))
        note = f"of a core used by the gateway: {used:.0%}"
        report.compare(f"dndm/{key}", title, "/s", rates(flows), GATEWAY, PLAIN, note)
    _measure_round_trips(bench, report)
    return report


@contextmanager
def _gateway(bench: Bench) -> Iterator[tuple[DndmProcess, str, str]]:
    """The gateway, where robots dial it, and the socket of its daemon."""
    with ExitStack() as running:
        folder = running.enter_context(bench.folder())
        relay = running.enter_context(bccnd(tree=bench.tree, settings=bench.settings)(folder))
        where, bus = free_address(), relay.address.partition(":")[2]
        flags = ("--listen", f"tcp://{where}", "--backlog", str(1 << 30))
        yield running.enter_context(DndmProcess(folder / "gateway", folder / bus, *flags)), where, bus


def _robots(bench: Bench, messages: int) -> Flow:
    with _gateway(bench) as (gateway, where, _), dialled(where) as one, dialled(where) as other:
        _join(one, other)
        return _flow(one, partial(_count, other.stream), messages, gateway.process.pid)


def _bus(bench: Bench, messages: int) -> Flow:
    with _gateway(bench) as (gateway, where, bus), dialled(where) as robot, PacketClient(bus) as program:
        program.request("pack", "on")
        program.request("queue", "packets=100000 bytes=67108864 policy=block")
        program.subscribe(CHANNEL)
        robot.advert("INTENT", ROUTE)
        robot.until(lambda: robot.wants(ROUTE))
        return _flow(robot, partial(_count, program.socket), messages, gateway.process.pid)


def _plain(messages: int) -> Flow:
    with _connection() as (one, other):
        return _flow(Robot(one), partial(_count, other), messages, 0)


@contextmanager
def _connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname(), PATIENCE) as one,
        listening.accept()[0] as other,
    ):
        for each in one, other:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.settimeout(PATIENCE)
        yield one, other


def _join(one: Robot, other: Robot) -> None:
    """Have the one send, and the other receive."""
    other.advert("INTEREST", ROUTE)
    other.settle()
    one.advert("INTENT", ROUTE)
    one.until(lambda: one.wants(ROUTE))


def _flow(sender: Robot, count: Callable[[int], None], messages: int, gateway: int) -> Flow:
    """``busy`` of the gateway."""
    batch = b"".join(
        sender.frame("MESSAGE", BODY, route=ROUTE.encode(), timestamp=n + 1) for n in range(BATCH)
    )
    used, begun = cpu_seconds(gateway) if gateway else 0.0, time.perf_counter()
    assert isinstance(sender.stream, socket.socket)
    sender.stream.settimeout(None)
    child = os.fork()
    if not child:
        try:
            for _ in range(messages // BATCH):
                sender.stream.sendall(batch)
        finally:
            os._exit(0)
    try:
        count(messages // BATCH * BATCH)
    finally:
        os.waitpid(child, 0)
    seconds = time.perf_counter() - begun
    used = cpu_seconds(gateway) - used if gateway else 0.0
    return Flow(messages / seconds, seconds, used / seconds)


def _count(stream: socket.socket, messages: int) -> None:
    """Read until so many payloads have come."""
    stream.settimeout(PATIENCE)
    found, rest = 0, b""
    while found < messages:
        try:
            data = stream.recv(1 << 18)
        except TimeoutError:
            data = b""
        if not data:
            raise MeasurementError(f"{found} of {messages} messages")
        found += (rest + data).count(MARK)
        rest = (rest + data)[-len(MARK) + 1 :]


def _measure_round_trips(bench: Bench, report: Report) -> None:
    pings = PINGS // 20 if bench.quick else PINGS
    measured = bench.alternate(
        {GATEWAY: partial(_gateway_trips, bench, pings), PLAIN: partial(_plain_trips, pings)}, report.faults
    )
    for at, which in (49, "p50"), (98, "p99"):
        values = {name: [quantiles(trips, n=100)[at] for trips in runs] for name, runs in measured.items()}
        report.compare(f"dndm/way/{which}", f"way of one message, {which}", "us", values, GATEWAY, PLAIN)


def _gateway_trips(bench: Bench, pings: int) -> list[float]:
    with _gateway(bench) as (_, where, _), dialled(where) as one, dialled(where) as other:
        _join(one, other)
        assert isinstance(other.stream, socket.socket)
        return _trips(one, other.stream, pings)


def _plain_trips(pings: int) -> list[float]:
    with _connection() as (one, other):
        return _trips(Robot(one), other, pings)


def _trips(sender: Robot, receiver: socket.socket, pings: int) -> list[float]:
    """Microseconds from a write at the one end to the end of the frame at the other."""
    trips = []
    for number in range(pings):
        frame = sender.frame("MESSAGE", BODY, route=ROUTE.encode(), timestamp=number + 1)
        begun = time.perf_counter()
        sender.write(frame)
        _count(receiver, 1)
        trips.append(1e6 * (time.perf_counter() - begun))
    return trips
