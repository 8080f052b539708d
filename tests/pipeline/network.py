"""Generates recorded traffic of a network with known losses: files as bccnd-record writes them, and the truth.

Everything is drawn from the seed of the plan, and vectorised over all messages, one receiver after the other. Memory
grows with one receiver, time with the rows (about a million a second). A message is sent once, at its true time. It
reaches every other host unless it is lost, in a burst that begins at random, or by itself, each copy at random.

    python -m tests.pipeline.network DIR --hosts 200 --rows 50000000
"""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()), ("interface", pa.string()), ("direction", pa.string()), ("verdict", pa.string()),
        ("mode", pa.string()), ("peer", pa.string()), ("src", pa.string()), ("seq", pa.uint64()),
        ("channel", pa.string()), ("payload", pa.binary()), ("size", pa.int32()),
    ]
)  # fmt: skip
SECOND = 10**9
# The record begins so long before the first message, and ends so long after the last.
EDGE_SECONDS = 20
RESTART_LEAP = 2**40
HEARTBEAT = "heartbeat/"
# What the daemons are: they wait for no message that was overtaken (bccnd/recorder/account.py).
DAEMON = b'{"reorder": 0}'
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Plan:
    """``messages`` of each source, spread evenly over ``seconds``; probabilities are per message and receiver."""

    hosts: int = 3
    sources: int = 2  # per host, besides that of the daemon, which beats
    messages: int = 1000
    shares: tuple[float, ...] = ()  # of a host's messages, by source; equal if empty
    seconds: int = 600
    begin: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)
    burst: float = 0.001  # that a burst of loss begins
    burst_mean: float = 5.0
    single: float = 0.0  # that a copy is lost by itself
    copies: int = 1
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_distance: int = 3
    first: int = 1  # the first number of every other source; the others begin just below 2**63
    restarts: bool = False  # every source restarts after half of its messages: at 1, or with a leap
    clock_step: float = 0.0  # seconds: the clock of host n is n times as far ahead
    delay: float = 200e-6  # seconds, the same in both directions
    jitter: float = 300e-6  # seconds, mean, above the delay
    beat: int = 5  # seconds
    silent: dict[int, tuple[int, int]] = field(default_factory=dict)  # host: seconds without messages
    deaf: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # (sender, receiver): seconds
    unrecorded: frozenset[int] = frozenset()  # hosts without a recorder
    forged: int = 0  # datagrams with a wrong hmac, at each host
    local: int = 0  # messages on a local channel, at each host
    file_rows: int = 250_000
    seed: int = 1

    def name(self, host: int) -> str:
        return f"host-{host:03d}"

    def count(self, source: int) -> int:
        """How many messages that source of a host sends."""
        return (
            max(1, round(self.messages * self.sources * self.shares[source]))
            if self.shares
            else self.messages
        )

    @property
    def begin_ns(self) -> int:
        return int(self.begin.timestamp()) * SECOND


class Truth(NamedTuple):
    """What was injected, by (sender, receiver): counts, and the lengths of the bursts, sorted."""

    rows: int
    sent: dict[tuple[str, str], int]
    lost: dict[tuple[str, str], int]
    bursts: dict[tuple[str, str], list[int]]
    duplicates: dict[tuple[str, str], int]
    reordered: dict[tuple[str, str], int]


class Messages(NamedTuple):
    """All messages, by source and number: ``src`` and ``channel`` are places in ``sources`` and ``channels``."""

    sources: list[str]
    channels: list[str]
    payloads: list[bytes]
    host: Array
    src: Array
    seq: Array
    channel: Array
    payload: Array
    at_ns: Array  # true time
    gap_ns: Array  # about the time to the next of the same source


def messages(plan: Plan, rng: np.random.Generator) -> Messages:
    """What all hosts send, with true times."""
    sources, channels, parts = [], [], []
    for host in range(plan.hosts):
        beats = max(2, plan.seconds // plan.beat)
        for number in range(plan.sources + 1):
            is_daemon = number == plan.sources
            src = f"{plan.name(host)}/{'bccnd' if is_daemon else f'program{number}'}/{1000 + number}"
            count = beats if is_daemon else plan.count(number)
            gap = plan.seconds * SECOND // count
            at = np.arange(count, dtype=np.int64) * gap + rng.integers(0, gap // 4 + 1, count)
            numbers = np.arange(count, dtype=np.uint64)
            seq = np.uint64(2**63 - count // 2 if number % 2 else plan.first) + numbers
            if plan.restarts and not is_daemon:
                half = count // 2
                seq[half:] = (
                    seq[half:] + np.uint64(RESTART_LEAP) if number % 2 else 1 + numbers[: count - half]
                )
            keep = np.ones(count, dtype=bool)
            if host in plan.silent:
                begin, end = plan.silent[host]
                keep = (at < begin * SECOND) | (at >= end * SECOND)
                seq = seq[: int(keep.sum())]
            parts.append((host, len(sources), len(channels), seq, at[keep], gap))
            sources.append(src)
            channels.append(HEARTBEAT + src if is_daemon else f"plant/{plan.name(host)}/values/{number}")
    lengths = np.array([len(part[3]) for part in parts])
    payloads = [b"", *(bytes(rng.bytes(int(length))) for length in rng.integers(8, 400, 255))]
    channel = np.repeat([part[2] for part in parts], lengths)
    beating = np.array([name.startswith(HEARTBEAT) for name in channels])[channel]
    return Messages(
        sources,
        channels,
        payloads,
        np.repeat([part[0] for part in parts], lengths),
        np.repeat([part[1] for part in parts], lengths),
        np.concatenate([part[3] for part in parts]),
        channel,
        np.where(beating, 0, rng.integers(1, 256, int(lengths.sum()))),
        plan.begin_ns + np.concatenate([part[4] for part in parts]),
        np.repeat([part[5] for part in parts], lengths),
    )


class Arrivals(NamedTuple):
    """The rows of one receiver: places in ``Messages``, times, verdicts; and what was lost."""

    place: Array
    at_ns: Array
    verdict: Array  # 0 ok, 1 duplicate, 2 late
    lost: Array  # bool, of all messages: those that no subscriber got
    reordered: Array  # places


def arrivals(plan: Plan, said: Messages, receiver: int, rng: np.random.Generator) -> Arrivals:
    total = len(said.seq)
    foreign = said.host != receiver
    lost = np.zeros(total, dtype=bool)
    begins = np.flatnonzero(rng.random(total) < plan.burst)
    ends = np.minimum(begins + rng.geometric(1 / plan.burst_mean, len(begins)), total)
    steps = np.zeros(total + 1, dtype=np.int32)
    np.add.at(steps, begins, 1)
    np.add.at(steps, ends, -1)
    lost |= np.cumsum(steps[:-1]) > 0
    for (sender, deaf), (begin, end) in plan.deaf.items():
        if deaf == receiver:
            since = said.at_ns - plan.begin_ns
            lost |= (said.host == sender) & (since >= begin * SECOND) & (since < end * SECOND)
    copies = np.where(lost, 0, rng.binomial(plan.copies, 1 - plan.single, total))
    lost = (copies == 0) & foreign
    copies = np.where(foreign, copies, 0)
    offset = round((receiver - 0) * plan.clock_step * SECOND)
    jitter = np.minimum(rng.exponential(plan.jitter * SECOND, total), said.gap_ns // 4).astype(np.int64)
    first = said.at_ns + round(plan.delay * SECOND) + jitter + offset
    reordered = np.zeros(0, dtype=np.int64)
    if plan.reorder:
        distance = plan.reorder_distance
        chosen = np.flatnonzero(rng.random(total) < plan.reorder)
        chosen = chosen[(chosen + distance + 1 < total) & (chosen > 0)]
        chosen = chosen[np.concatenate([[True], np.diff(chosen) > 2 * distance])] if len(chosen) else chosen
        after = chosen + distance
        sound = (copies[chosen] > 0) & (copies[after] > 0) & (said.src[chosen] == said.src[after])
        sound &= said.seq[after] - said.seq[chosen] == np.uint64(distance)
        reordered = chosen[sound]
        first[reordered] = first[reordered + distance] + 1000
    doubled = (
        (rng.random(total) < plan.duplicate) & (copies == 1)
        if plan.duplicate
        else np.zeros(total, dtype=bool)
    )
    seen = np.flatnonzero(copies > 0)
    again = np.flatnonzero((copies > 1) | doubled)
    verdict = np.zeros(total, dtype=np.int8)
    verdict[reordered] = 2
    lost[reordered] = True  # with dedup.reorder = 0, the daemon drops what comes late
    place = np.concatenate([seen, again])
    return Arrivals(
        place,
        np.concatenate([first[seen], first[again] + 2000]),
        np.concatenate([verdict[seen], np.ones(len(again), dtype=np.int8)]),
        lost,
        reordered,
    )


def _strings(values: list[str] | list[bytes], places: Array, kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(values, kind))


def _recorded(plan: Plan, said: Messages, host: int, came: Arrivals, rng: np.random.Generator) -> pa.Table:
    """Everything that one host records, by time."""
    own = np.flatnonzero(said.host == host)
    own_ns = said.at_ns[own] + round(host * plan.clock_step * SECOND)
    place = np.concatenate([own, came.place])
    out = np.arange(len(place)) < len(own)
    table = pa.table(
        {
            "time_ns": np.concatenate([own_ns, came.at_ns]),
            "interface": _strings(["eth0"], np.zeros(len(place)), pa.string()),
            "direction": _strings(["in", "out"], out, pa.string()),
            "verdict": _strings(
                ["ok", "duplicate", "late"], np.concatenate([np.zeros(len(own)), came.verdict]), pa.string()
            ),
            "mode": _strings(["none"], np.zeros(len(place)), pa.string()),
            "peer": pa.DictionaryArray.from_arrays(
                pa.array(said.host[place], pa.int32(), mask=out),
                pa.array([f"10.0.{at // 250}.{at % 250 + 1}:4321" for at in range(plan.hosts)]),
            ),
            "src": _strings(said.sources, said.src[place], pa.string()),
            "seq": said.seq[place],
            "channel": _strings(said.channels, said.channel[place], pa.string()),
            "payload": _strings(said.payloads, said.payload[place], pa.binary()),
            "size": np.array([len(payload) for payload in said.payloads], dtype=np.int32)[said.payload[place]]
            + 60,
        }
    )
    table = pa.concat_tables([table.cast(SCHEMA), *_others(plan, host, rng)])
    return table.take(pa.array(np.argsort(table["time_ns"].to_numpy(), kind="stable")))


def _others(plan: Plan, host: int, rng: np.random.Generator) -> Iterator[pa.Table]:
    """Forged datagrams, and messages that stay on the host."""
    for count, direction, verdict, src, channel, peer in (
        (plan.forged, "in", "hmac", "host-000/program0/1000", "plant/stop", "10.0.9.9:666"),
        (plan.local, "local", "ok", f"{plan.name(host)}/program0/1000", "local/work", None),
    ):
        at = plan.begin_ns + np.sort(rng.integers(0, plan.seconds * SECOND, count))
        rows = [
            {
                "time_ns": int(time_ns), "interface": "eth0", "direction": direction, "verdict": verdict,
                "mode": "hmac", "peer": peer, "src": src, "seq": number, "channel": channel, "payload": b"x" * 10,
                "size": 80,
            }
            for number, time_ns in enumerate(at)
        ]  # fmt: skip
        yield pa.Table.from_pylist(rows, SCHEMA)


def _mark(time_ns: int, what: str, payload: bytes | None = None) -> pa.Table:
    row = {"time_ns": time_ns, "direction": "", "verdict": what, "payload": payload, "size": 0}
    return pa.Table.from_pylist([row], SCHEMA)


def _write(plan: Plan, directory: Path, host: int, table: pa.Table, rng: np.random.Generator) -> int:
    """Files of at most ``file_rows`` that follow each other without a gap; the rows written, marks included."""
    offset = round(host * plan.clock_step * SECOND)
    begin = plan.begin_ns + offset - EDGE_SECONDS * SECOND
    end = plan.begin_ns + offset + (plan.seconds + EDGE_SECONDS) * SECOND
    day = datetime.fromtimestamp(begin // SECOND, UTC).date()
    if datetime.fromtimestamp(end // SECOND, UTC).date() != day:
        raise ValueError("a plan lies within one day: files do not span midnight")
    folder = directory / f"date={day}" / f"host={quote(plan.name(host), safe='')}"
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [table.slice(at, plan.file_rows) for at in range(0, max(1, len(table)), plan.file_rows)]
    for number, piece in enumerate(pieces):
        closed = end if number == len(pieces) - 1 else int(pieces[number + 1]["time_ns"][0].as_py())
        marks = [_mark(begin, "opened"), _mark(begin, "daemon", DAEMON)]
        whole = pa.concat_tables([*marks, piece, _mark(closed, "closed")])
        name = f"{begin}-{rng.integers(2**32):08x}.parquet"
        pq.write_table(whole, folder / f".{name}", compression="zstd", row_group_size=1_000_000)
        (folder / f".{name}").rename(folder / name)
        begin = closed
    return len(table) + 3 * len(pieces)


def _burst_lengths(lost: Array, said: Messages) -> list[int]:
    """Lengths of the runs of lost numbers that follow each other at one source; sorted."""
    places = np.flatnonzero(lost)
    if not len(places):
        return []
    apart = (np.diff(places) > 1) | (np.diff(said.src[places]) != 0) | (np.diff(said.seq[places]) != 1)
    edges = np.concatenate([[0], np.flatnonzero(apart) + 1, [len(places)]])
    return sorted(int(length) for length in np.diff(edges))


def write(plan: Plan, directory: Path, threads: int = 2) -> Truth:
    """Write what all recorders of the plan recorded below ``directory``."""
    said = messages(plan, np.random.default_rng(plan.seed))
    truth = Truth(0, {}, {}, {}, {}, {})
    by_host = np.bincount(said.host, minlength=plan.hosts)

    def record(host: int) -> int:
        rng = np.random.default_rng((plan.seed, host))
        came = arrivals(plan, said, host, rng)
        for sender in range(plan.hosts):
            if sender == host:
                continue
            pair = plan.name(sender), plan.name(host)
            mine = said.host == sender if plan.hosts <= 20 else None
            truth.sent[pair] = int(by_host[sender])
            if mine is not None:  # the pairs of a large network are many
                truth.bursts[pair] = _burst_lengths(came.lost & mine, said)
                copies = came.place[came.verdict == 1]
                truth.duplicates[pair] = int(np.count_nonzero(mine[copies]))
                truth.reordered[pair] = int(np.count_nonzero(mine[came.reordered]))
        lost = np.bincount(said.host[came.lost], minlength=plan.hosts)
        truth.lost.update(
            {(plan.name(at), plan.name(host)): int(lost[at]) for at in range(plan.hosts) if at != host}
        )
        return _write(plan, directory, host, _recorded(plan, said, host, came, rng), rng)

    hosts = [host for host in range(plan.hosts) if host not in plan.unrecorded]
    with ThreadPoolExecutor(threads) as pool:
        rows = sum(pool.map(record, hosts))
    return truth._replace(rows=rows)


def of_size(rows: int, hosts: int, seed: int = 1) -> Plan:
    """A plan with about so many ``rows`` in all records; more rows take more time, at the same rate.

    Every host records every message. A tenth are heartbeats; three quarters of the others come from one of the four
    programs of a host. Each program restarts once, with numbers that the daemon takes for a restart.
    """
    each = max(40, rows // hosts**2)
    return Plan(
        hosts=hosts,
        sources=4,
        messages=each * 9 // 40,
        shares=(0.75, 0.15, 0.07, 0.03),
        seconds=each,  # so that a tenth are beats, every 10 seconds
        beat=10,
        duplicate=0.001,
        reorder=0.001,
        first=10_000,
        restarts=True,
        clock_step=1e-3,
        seed=seed,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Write recorded traffic with known losses.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    plan = of_size(arguments.rows, arguments.hosts, arguments.seed)
    truth = write(plan, arguments.directory)
    sys.stderr.write(f"{truth.rows} rows, {sum(truth.lost.values())} lost of {sum(truth.sent.values())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
