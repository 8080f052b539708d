"""Plausible tables, written without the pipeline: a network with a bad receiver, a bad quarter of an hour, a forger.

They are seeded, so the same each time.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 8, 1, 13, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
FORGER = "10.0.0.9:5400"
# A valid name of a channel.
SPY = "<script>alert(1)</script>"


def names(hosts: int) -> list[str]:
    return (
        [chr(97 + place) for place in range(hosts)]
        if hosts <= 26
        else [f"node{n}" for n in range(1, hosts + 1)]
    )


def nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000_000


def write_table(directory: Path, name: str, rows: list[dict[str, Any]] | pa.Table) -> None:
    (directory / name).mkdir(parents=True, exist_ok=True)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    moments = {"from", "until", "hour", "minute", "first", "last"}
    for place, field in enumerate(table.schema):
        if field.name in moments:
            table = table.set_column(place, field.name, table[field.name].cast(TIME))
        elif (name, field.name) in {("copies", "copies"), ("steps", "seconds")}:
            table = table.set_column(place, field.name, table[field.name].cast(pa.int32()))
        elif field.name in {"seconds", "expected_s", "saved", "lost_single", "loss"} or field.name.endswith(
            "_us"
        ):
            table = table.set_column(place, field.name, table[field.name].cast(pa.float64()))
    pq.write_table(table, directory / name / "part-0.parquet")


def write_tables(directory: Path, hosts: int, minutes: int = 180, lossless: bool = False) -> None:
    random = np.random.default_rng(hosts)
    host = names(hosts)
    sender, receiver = (side[~np.eye(hosts, dtype=bool)] for side in np.indices((hosts, hosts)))
    sent = np.repeat(random.lognormal(7, 0.6, hosts).astype(int)[sender][:, None], minutes, axis=1)
    chance = np.where(random.random(len(sender)) < 0.12, 2e-4, 0.0)[:, None] * (
        random.random(sent.shape) < 0.1
    )
    quarter = slice(minutes // 3 + 5, minutes // 3 + 5 + max(1, minutes // 12))
    chance[(sender == 0) & (receiver == 2), quarter] = 0.031
    if hosts > 3:
        chance[receiver == hosts // 3] += 0.012 * (1 + np.sin(np.arange(minutes) / 17)) / 2
        chance[(sender == 1) & (receiver == 3), -20:-8] = 1.0
    lost = np.zeros_like(sent) if lossless else random.binomial(sent, np.clip(chance, 0, 1))
    words = np.array(host)
    _write_loss(directory, words, sender, receiver, sent, lost, random)
    _write_hosts(directory, host, sent, minutes, random)


def _write_loss(
    directory: Path, words: Any, sender: Any, receiver: Any, sent: Any, lost: Any, random: np.random.Generator
) -> None:
    pairs, minutes = sent.shape
    first = np.datetime64(START.replace(tzinfo=None), "us")
    moments = first + np.arange(minutes) * np.timedelta64(60, "s")
    write_table(directory, "minutes", pa.table({
        "sender": words[np.repeat(sender, minutes)], "receiver": words[np.repeat(receiver, minutes)],
        "minute": np.tile(moments, pairs), "sent": sent.ravel(), "lost": lost.ravel(),
    }))  # fmt: skip
    delivery, copies, episodes = [], [], []
    fastest = random.lognormal(4.6, 0.5, pairs)
    for hour in range(0, minutes, 60):
        out, gone = sent[:, hour : hour + 60].sum(axis=1), lost[:, hour : hour + 60].sum(axis=1)
        for number in range(pairs):
            burst = int(min(gone[number], 40 if gone[number] > 100 else 1))
            pair = {"sender": words[sender[number]], "receiver": words[receiver[number]]}
            pair["hour"] = START + timedelta(minutes=hour)
            p50 = float(fastest[number])
            delivery.append({
                **pair, "basis": "record", "sent": int(out[number]), "received": int(out[number] - gone[number]),
                "lost": int(gone[number]), "loss": float(gone[number] / out[number]),
                "bursts": int(gone[number] // max(1, burst)),
                "burst_p50": burst, "burst_p95": burst * 2, "burst_max": burst * 3, "latency_method": "both-ways",
                "clock_offset_us": 12.5, "latency_p50_us": p50, "latency_p90_us": p50 * 2.1,
                "latency_p99_us": p50 * (9 + number % 40), "latency_max_us": p50 * (60 + number % 70),
            })  # fmt: skip
            if sender[number] % 2 == 0 and gone[number] > 1:
                single = float(gone[number]) * 14
                copies.append({
                    **pair, "copies": 2, "sent": int(out[number]), "lost": int(gone[number]), "lost_single": single,
                    "saved": single - float(gone[number]),
                })  # fmt: skip
    for number in np.argsort(-lost.sum(axis=1))[:300]:
        bad = np.flatnonzero(lost[number] > 8)
        for run in np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1) if len(bad) else []:
            out, gone = int(sent[number, run].sum()), int(lost[number, run].sum())
            episodes.append({
                "sender": words[sender[number]], "receiver": words[receiver[number]],
                "from": START + timedelta(minutes=int(run[0])), "until": START + timedelta(minutes=int(run[-1]) + 1),
                "sent": out, "lost": gone, "loss": gone / out, "burst_p50": 40 if gone > 100 else 2,
            })  # fmt: skip
    for name, rows in (("delivery", delivery), ("copies", copies), ("episodes", episodes)):
        if rows:
            write_table(directory, name, rows)


def _write_hosts(
    directory: Path, host: list[str], sent: Any, minutes: int, random: np.random.Generator
) -> None:
    end = START + timedelta(minutes=minutes)
    coverage, sources, rejected, silences, reordering = [], [], [], [], []
    for place, name in enumerate(host):
        pause = 10 if place == 1 else 0
        middle = START + timedelta(minutes=minutes // 2)
        for start, until in ((START, middle), (middle + timedelta(minutes=pause), end)):
            coverage.append({
                "host": name, "from_ns": nanoseconds(start), "until_ns": nanoseconds(until),
                "unrecorded": 1200 if place == 2 and until == end else 0,
            })  # fmt: skip
        other = host[(place + 1) % len(host)]
        sources.append({
            "receiver": other, "src": f"{name}/sensor/{4000 + place}", "hour": START, "received": 60_000,
            "lost": 3 * place, "duplicates": 40, "late": place % 4, "restarts": 1 if place == 1 else 0,
        })  # fmt: skip
        reordering.append({
            "receiver": other, "src": f"{name}/sensor/{4000 + place}", "hour": START,
            "reordered": int(random.integers(0, 900)), "distance_p50": 2, "distance_max": 12,
        })  # fmt: skip
        for verdict, count in (("hmac", 412), ("crc32", 3 + place), ("duplicate", 5000)):
            rejected.append({
                "host": name, "hour": START, "verdict": verdict,
                "peer": FORGER if verdict == "hmac" else f"10.0.0.{place % 250}:5400", "datagrams": count,
                "first": START + timedelta(minutes=5), "last": START + timedelta(minutes=25),
                "example_channel": SPY if verdict == "hmac" else "metrics/cpu",
            })  # fmt: skip
    last = host[-1]
    silences.extend(
        {
            "observer": name, "src": f"{last}/bccnd/77", "from": end - timedelta(minutes=28), "until": end,
            "seconds": 28 * 60, "expected_s": 5,
        }
        for name in host[:-1]
    )  # fmt: skip
    silences.append({
        "observer": host[0], "src": f"{host[1]}/pump/<b>9</b>", "from": START + timedelta(minutes=12),
        "until": START + timedelta(minutes=14, seconds=20), "seconds": 140, "expected_s": 10,
    })  # fmt: skip
    channels = [
        {
            "channel": channel, "hour": START + timedelta(hours=hour), "messages": int(9e5 / (rank + 1) ** 1.2),
            "bytes": int(9e5 / (rank + 1) ** 1.2 * 180), "rate_peak": 4000 // (rank + 1), "payload_p50": 120,
            "payload_p95": 700, "payload_max": 1288,
        }
        for hour in range(max(1, minutes // 60))
        for rank, channel in enumerate(
            ["metrics/cpu", "metrics/disk", "orders/new", SPY, "log/" + "deep/" * 150]
            + [f"sensor/{n}/temperature" for n in range(40)]
        )
    ]  # fmt: skip
    tables = {
        "coverage": coverage, "sources": sources, "rejected": rejected, "silences": silences,
        "reordering": reordering, "channels": channels,
    }  # fmt: skip
    for name, rows in tables.items():
        write_table(directory, name, rows)
