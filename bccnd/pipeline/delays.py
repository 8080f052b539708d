"""How long messages took, in memory: what ``latency`` has Spark do with the sample, by numpy.

Percentiles are exact here; those of Spark are, too, up to ten thousand messages of a pair in an hour.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bccnd.pipeline.arrays import Array, Columns, chosen, found, grouped
from bccnd.pipeline.latency import FAR_NS
from bccnd.pipeline.ordered import Words
from bccnd.pipeline.times import HOUR_NS
from bccnd.recorder.layout import Direction


class Latencies(NamedTuple):
    """``delays``, ``latency.fastest`` and ``latency.offsets``, of hosts as numbers."""

    fastest: Columns  # sender, receiver, hour, there, offset (NaN where messages went one way)
    table: Columns
    offsets: Columns  # sender, receiver, least_ns, most_ns


def latencies(words: Words, sampled: pa.Table, owner: Array, recorded: Array) -> Latencies:
    """Of ``latency.sample``, and the ``owners``."""
    columns: Columns = {name: sampled[name].to_numpy() for name in ("word", "bit", "time_ns")}
    columns["bit"] = columns["bit"].astype(np.int64)
    columns["repaired"] = sampled["repaired"].to_numpy()
    columns["host"], columns["src"] = words.hosts.of(sampled["host"]), words.sources.of(sampled["src"])
    is_out = pc.equal(sampled["direction"], Direction.OUT.value).to_numpy()
    columns = chosen(columns | {"out": is_out}, np.flatnonzero(columns["src"] >= 0))
    own = columns["out"] & recorded[columns["src"]] & (columns["host"] == owner[columns["src"]])
    message = ("src", "word", "bit")
    sent = chosen(columns, np.flatnonzero(own))
    uses = grouped(
        sent | {"uses": np.ones(len(sent["src"]), np.int64)}, message, {"uses": np.add, "time_ns": np.minimum}
    )
    uses = chosen(uses, np.flatnonzero(uses["uses"] == 1))
    came = chosen(columns, np.flatnonzero(~columns["out"]))
    came["message"] = found(came, uses, message)
    came = chosen(came, np.flatnonzero(came["message"] >= 0))
    came = grouped(came, ("host", "message"), {"time_ns": np.minimum, "repaired": np.logical_or})
    sent_ns = uses["time_ns"][came["message"]]
    delays: Columns = {
        "sender": owner[uses["src"]][came["message"]],
        "receiver": came["host"],
        "hour": sent_ns // HOUR_NS,
        "delay_ns": came["time_ns"] - sent_ns,
        "repaired": came["repaired"],
    }
    key = ("sender", "receiver", "hour")
    fastest = grouped(delays | {"there": delays["delay_ns"]}, key, {"there": np.minimum})
    back = found({**fastest, "sender": fastest["receiver"], "receiver": fastest["sender"]}, fastest, key)
    there = fastest["there"].astype(float)
    fastest["offset"] = np.where(back >= 0, (there - there[back]) / 2 if len(there) else there, np.nan)
    ahead = np.where(np.isnan(fastest["offset"]), there, fastest["offset"])
    ahead = np.where(np.abs(ahead) > FAR_NS, ahead, 0)
    # Towards zero, as SQL casts.
    bounds = fastest | {
        "least_ns": np.trunc(ahead).astype(np.int64),
        "most_ns": np.trunc(ahead).astype(np.int64),
    }
    offsets = grouped(bounds, key[:2], {"least_ns": np.minimum, "most_ns": np.maximum})
    return Latencies(fastest, _percentiles(delays, fastest), offsets)


def _percentiles(delays: Columns, fastest: Columns) -> Columns:
    """``latency.latency``, without the method; NaN where there is none."""
    key = ("sender", "receiver", "hour")
    group = found(delays, fastest, key)
    offset = np.where(np.isnan(fastest["offset"]), fastest["there"], fastest["offset"])
    taken = (delays["delay_ns"] - offset[group]) / 1000
    total = len(fastest["there"])

    def at(which: Array, shares: Sequence[float]) -> list[Array]:
        order = np.lexsort((taken[which], group[which]))
        values, sizes = taken[which][order], np.bincount(group[which], minlength=total)
        starts = np.cumsum(sizes) - sizes
        places = [starts + np.ceil(share * sizes).astype(np.int64) - 1 for share in shares]
        values = np.append(values, np.nan)
        return [np.where(sizes > 0, values[np.where(sizes > 0, place, -1)], np.nan) for place in places]

    every = np.arange(len(taken))
    names = ("latency_p50_us", "latency_p90_us", "latency_p99_us", "latency_max_us")
    of_all = dict(zip(names, at(every, (0.5, 0.9, 0.99, 1.0)), strict=True))
    for kind, asked in (("direct", False), ("repaired", True)):
        of = at(np.flatnonzero(delays["repaired"] == asked), (0.5, 0.99))
        of_all |= {f"{kind}_p50_us": of[0], f"{kind}_p99_us": of[1]}
    return {name: fastest[name] for name in (*key, "offset")} | of_all
