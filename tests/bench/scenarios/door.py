"""The stream door, ``bccnd-mux``, beside sockets of the daemon: rates, memory, and what one that stalls costs others.

The loads are C programs that speak bpmux without a client's cost; what the clients that need a door make of it is
measured beside. Where rates are measured nothing is lost: the daemon's queues have the policy ``block``.
"""

import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

from bpmux import chunks
from bpmux.chunks import TOP, Chunk, head
from tests.bench.charts import Bars
from tests.bench.loads import CHANNEL, PAYLOAD
from tests.bench.machine import cpu_seconds, resident_kib
from tests.bench.peers import Relay, bccnd
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import Bench, Flow, rates
from tests.bench.scenarios.clients import LOOP, measured_by
from tests.clients.door import Door
from tests.clients.drivers import LANGUAGES
from tests.mux.certificates import Certificates
from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import free_port

THROUGH, PLAIN = "door", "sockets"
MANY = 1000  # streams of one connection, which may have 1024
IDLE = 200  # connections; a user may have 256
STALLED = 10_000  # streams without credit
STALLED_MESSAGES = 20  # to each: the kernel holds them, in 150 MB
READERS, READERS_RATE = 100, 100  # streams, and messages a second to each of them

BLOCK = {"BCCND_QUEUE__POLICY": "block", "BCCND_QUEUE__BLOCK_SECONDS": "60"}
AMPLE = {"BCCND_LIMITS__CLIENTS": "20000"}
CREDIT = head(chunks.CREDIT, TOP, 1 << 20)


def run(bench: Bench) -> Report:
    report = Report("The stream door, messages of 100 bytes")
    _measure_rates(bench, report)
    if not bench.quick:  # the clients' own scenario shows that it works
        _measure_clients(bench, report)
    _measure_memory(bench, report)
    _measure_stall(bench, report)
    return report


@contextmanager
def _beside(
    bench: Bench, settings: Mapping[str, str], *flags: str, config: str = ""
) -> Iterator[tuple[Relay, Door]]:
    """A daemon and its door."""
    with bench.folder() as folder, bccnd(tree=bench.tree, settings=settings)(folder) as relay:
        door = Door(folder, relay.address.partition(":")[2], *flags)
        door.config.write_text(config)
        with door:
            yield relay, door


def _await_subscriptions(relay: Relay, count: int) -> None:
    wait_until(lambda: relay.status()["subscriptions"] >= count, f"{count} subscriptions")


# --- rates ---


@dataclass(frozen=True)
class Load:
    """One publisher, and as many ``streams`` of one connection, or sockets of one process; 0 streams: a session.

    ``through``: the side that takes the door, "subscribe" or "publish"; empty: none.
    """

    streams: int = 0
    packed: bool = False
    through: str = ""

    @property
    def receivers(self) -> int:
        return max(1, self.streams)

    def taken(self, addresses: Mapping[str, str], messages: int) -> list[str]:
        common = {
            "address": addresses["subscribe"],
            "channel": CHANNEL,
            "count": messages,
            "packed": self.packed,
        }
        if self.through == "subscribe":
            return words("door-subscribe", streams=self.streams, **common)
        return words(
            "packets-subscribe", connections=self.receivers, block=True, slot=PAYLOAD + 1024, **common
        )

    def sent(self, addresses: Mapping[str, str], messages: int) -> list[str]:
        role = "door-publish" if self.through == "publish" else "packets-publish"
        where = {"address": addresses["publish"], "channel": CHANNEL}
        return words(role, count=messages, packed=self.packed, size=PAYLOAD, **where)


def _measure_rates(bench: Bench, report: Report) -> None:
    many = MANY // 10 if bench.quick else MANY
    cases = {
        "receive/stream": ("received by a stream", "subscribe", 1, False),
        "receive/streams": (f"received by {many} streams of a connection", "subscribe", many, False),
        "receive/session": ("received by a session", "subscribe", 0, False),
        "receive/packed": ("the same, packed", "subscribe", 0, True),
        "publish/session": ("published by a session", "publish", 0, False),
        "publish/packed": ("the same, packed", "publish", 0, True),
    }
    if bench.quick:
        cases = {key: cases[key] for key in ("receive/stream", "receive/streams", "publish/session")}
    drawn: dict[str, dict[str, list[float]]] = {}
    for key, (title, through, streams, packed) in cases.items():
        loads = {THROUGH: Load(streams, packed, through), PLAIN: Load(streams, packed)}
        flows = bench.flows(
            {name: partial(_flow, bench, load) for name, load in loads.items()},
            max(1, streams),
            report.faults,
        )
        used = median(flow.busy for flow in flows.get(THROUGH, [Flow(0, 0)]))
        note = f"of a core used by the door: {used:.0%}"
        drawn[title] = rates(flows)
        report.compare(f"door/{key}", title, "/s", drawn[title], THROUGH, PLAIN, note)
    report.charts.append(Bars("door", "Through the door and by plain sockets", "deliveries a second", drawn))


def _flow(bench: Bench, load: Load, messages: int) -> Flow:
    """``busy`` of the door."""
    program = bench.programs.load
    with ExitStack() as running:
        folder = running.enter_context(bench.folder())
        relay = running.enter_context(bccnd(tree=bench.tree, settings=BLOCK)(folder))
        addresses, pids = {"publish": relay.address, "subscribe": relay.address}, []
        if load.through:
            door = running.enter_context(Door(folder, relay.address.partition(":")[2]))
            addresses[load.through] = door.address
            pids.append(door.process.pid)
        receiving = running.enter_context(LoadProcess([program, *load.taken(addresses, messages)]))
        receiving.await_ready()
        _await_subscriptions(relay, load.receivers)
        used = sum(map(cpu_seconds, pids))
        with LoadProcess([program, *load.sent(addresses, messages)]) as sending:
            begun, received = sending.tally(), receiving.tally()
            used = sum(map(cpu_seconds, pids)) - used
    seconds = received.last - begun.first
    if received.count != messages * load.receivers or seconds <= 0:
        raise MeasurementError(f"{received.count} deliveries of {messages * load.receivers}")
    return Flow(received.count / seconds, seconds, used / seconds)


# --- the clients that need a door ---


def _measure_clients(bench: Bench, report: Report) -> None:
    languages = [each for each in LANGUAGES if each.needs_door and all(map(shutil.which, each.toolchain))]
    for direction, measured in measured_by(bench, languages, report.faults):
        for name in map(str, languages):
            report.compare(f"door/{name}/{direction}", f"{name}: {direction}", "/s", measured, name, LOOP)


# --- memory ---


def _measure_memory(bench: Bench, report: Report) -> None:
    count = STALLED // 100 if bench.quick else STALLED
    measures: dict[str, Callable[[], dict[str, float]]] = {
        "connections": partial(_idle_connections, bench),
        "streams": partial(_stalled_streams, bench, count),
    }
    measured = bench.alternate(measures, report.faults)
    titles = {
        "connection": ("an idle connection", "KB"),
        "tls": ("an idle connection by TLS", "KB"),
        "stream": ("a stream without credit", "KB"),
        "door": (f"the door with {count} streams without credit", "MB"),
        "growth": (f"its growth as each of them has {STALLED_MESSAGES} messages", "MB"),
    }
    for values in measured.values():
        for name in values[0]:
            title, unit = titles[name]
            series = Series(THROUGH, [each[name] for each in values])
            report.figures.append(Figure(f"door/memory/{name}", title, unit, series))


def _idle_connections(bench: Bench) -> dict[str, float]:
    """Kilobytes of each, by what carries it."""
    port = free_port()
    with ExitStack() as running:
        made = Certificates(running.enter_context(bench.folder()), "door", "bench")
        certificate, key = map(str, made.files("door"))
        files = ["--certificate", certificate, "--key", key, "--authorities", str(made.ca)]
        config = '[[mux.peers]]\nname = "bench"\nuser = 0\ngroups = [0]\n'
        flags = ["--user-connections", "1024", "--listen", f"tls://127.0.0.1:{port}", *files]
        _, door = running.enter_context(_beside(bench, {}, *flags, config=config))
        context = made.client("bench")

        def enter_by_tls() -> socket.socket:
            connected = socket.create_connection(("127.0.0.1", port), PATIENCE)
            return context.wrap_socket(connected, server_hostname="127.0.0.1")

        return {
            "connection": _kb_of_each(door, running, partial(_connected, door), bench.quick),
            "tls": _kb_of_each(door, running, enter_by_tls, bench.quick),
        }


def _kb_of_each(door: Door, running: ExitStack, enter: Callable[[], socket.socket], is_quick: bool) -> float:
    def greeted(count: int) -> int:
        for _ in range(count):
            connected = running.enter_context(enter())
            connected.sendall(CREDIT)
            connected.recv(len(CREDIT))
        return resident_kib(door.process.pid)

    before = greeted(10)  # what only the first ones need is there then
    count = IDLE // 10 if is_quick else IDLE
    return (greeted(count) - before) / count


def _stalled_streams(bench: Bench, count: int) -> dict[str, float]:
    """Kilobytes of a stream, and the door's megabytes in all and as the daemon has messages for all of them."""
    with ExitStack() as running:
        relay, door = running.enter_context(_beside(bench, AMPLE, "--sessions", "20000"))
        before = _door_kib(door)
        connections: list[socket.socket] = []
        for first in range(0, count, MANY):  # one after the other, as each stream has some seconds to join
            ours = min(MANY, count - first)
            connections.append(running.enter_context(_connected(door)))
            streams = [Chunk(chunks.STREAM, at, payload=b"SUB " + CHANNEL.encode()) for at in range(ours)]
            connections[-1].sendall(CREDIT + b"".join(stream.serialize() for stream in streams))
            _await_subscriptions(relay, first + ours)
            for each in connections:  # whoever says something is there
                each.sendall(head(chunks.PONG, TOP))
        opened = _door_kib(door)
        command = words(
            "packets-publish", address=relay.address, channel=CHANNEL, count=STALLED_MESSAGES, size=PAYLOAD
        )
        with LoadProcess([bench.programs.load, *command]) as sending:
            sending.tally()
            delivered = count * STALLED_MESSAGES
            wait_until(lambda: relay.status()["counters"]["delivered"] >= delivered, "all to be sent")
        grown = _door_kib(door)
    return {"stream": (opened - before) / count, "door": grown / 1024, "growth": (grown - opened) / 1024}


def _connected(door: Door) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(PATIENCE)
    connected.connect(str(door.socket))
    return connected


def _door_kib(door: Door) -> int:
    """Once it has looked at all that was there: a request is answered some turns later."""
    with _connected(door) as connected:
        connected.sendall(CREDIT + Chunk(chunks.REQUEST, 0, payload=b"version").serialize())
        heard = b""
        while b"bccnd-mux" not in heard:
            heard += connected.recv(4096)
    return resident_kib(door.process.pid)


# --- one that stalls ---


def _measure_stall(bench: Bench, report: Report) -> None:
    measured = bench.alternate(
        {
            name: partial(_lateness, bench, stalled)
            for name, stalled in (("one stalls", True), ("none", False))
        },
        report.faults,
    )
    for which in ("p50", "p99"):
        values = {name: [each[which] for each in runs] for name, runs in measured.items()}
        title = f"delay to {READERS - 1} readers beside one that stalls, {which}"
        report.compare(f"door/stalled/{which}", title, "us", values, "one stalls", "none")


def _lateness(bench: Bench, stalled: bool) -> dict[str, float]:
    """Microseconds from a publish by a socket to each stream of one connection but the last."""
    count = max(10, int(READERS_RATE * 4 * bench.seconds))
    with _beside(bench, {}) as (relay, door):
        command = words(
            "door-late", address=door.address, bus=relay.address, channel=CHANNEL, streams=READERS,
            stalled=stalled, count=count, rate=READERS_RATE, size=PAYLOAD,
        )  # fmt: skip
        with LoadProcess([bench.programs.load, *command]) as reading:
            reading.await_ready()
            _await_subscriptions(relay, READERS)
            reading.go()
            return {which: float(value) for which, value in reading.report().items()}
