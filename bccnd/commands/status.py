"""``bccn status``: the daemon, its clients, and the sources it hears."""

import argparse
import json
from collections.abc import Callable
from typing import Any

import bccn
from bccnd.commands.arguments import count
from bccnd.commands.outcome import Reporter
from bccnd.commands.terminal import duration, table
from bccnd.process.standard_streams import counted, printable, say

EPILOG = """\
examples:
  bccn status
  bccn status --json | jq '.clients[] | select(.dropped > 0) | .name'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show the daemon with its counters, its clients, and the sources it hears."
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument(
        "--rows",
        metavar="N",
        type=count,
        default=20,
        help="show at most N clients and N sources (default 20)",
    )


def run(arguments: argparse.Namespace) -> int:
    with bccn.Client(arguments.socket, on_notice=Reporter()) as bus:
        status, clients, sources, own = bus.status(), bus.clients(), bus.sources(), bus.name
    if arguments.json:
        text = json.dumps({**status, "client_list": clients, "source_list": sources}, indent=2)
    else:
        others = [client for client in clients if client["name"] != own]
        # Sources without a peer are clients of this host that have left.
        heard = [source for source in sources if source["peer"]]
        text = "\n".join(
            [
                *_daemon(status),
                *_section("client", others, _clients_table, arguments.rows),
                *_section("source", heard, _sources_table, arguments.rows),
            ]
        )
    say(text)
    return 0


def _daemon(status: dict[str, Any]) -> list[str]:
    counters = status["counters"]
    retained, kernel = status["retained"], status.get("kernel", {})
    lines = {
        "integrity": status["integrity"],
        "bus": f"{counted(status['clients'], 'client')}, {counted(status['subscriptions'], 'subscription')}"
        + (f", {status['slow']} too slow" if status["slow"] else ""),
        "messages": _listed(
            counters,
            "published",
            "delivered",
            "dropped",
            "errors",
            *["bridged"] * bool(counters.get("bridged")),
        ),
        "datagrams": _listed(counters, "received", "accepted", "unwanted", "sent", "unsent"),
        "kernel": f"{kernel.get('dropped', 0)} dropped, {kernel.get('filtered', 0)} filtered",
        "retained": f"{counted(retained['channels'], 'channel')}, {counted(retained['bytes'], 'byte')}",
        "repair": _repair(status.get("repair")),
        "rejected": ", ".join(f"{count} {reason}" for reason, count in sorted(status["rejected"].items()))
        or "none",
        "refused": _listed(status["refused"], *sorted(status["refused"])) or "none",
        "queued": f"{counted(status['queued']['packets'], 'packet')}, {counted(status['queued']['bytes'], 'byte')}",
    }
    up = duration(status["uptime"])
    title = f"bccnd {status['version']} on {status['host']}, pid {status['pid']}, up {up}"
    texts = [("socket", status["socket"]), *bindings(status["segments"]), *lines.items()]
    return [title, *(f"  {name:<10} {printable(text)}" for name, text in texts)]


def _repair(repair: dict[str, Any] | None) -> str:
    """What was lost here and repaired, then what others lost; None: of an older daemon."""
    if not repair:
        return "not known to this daemon"
    mine = f"{_listed(repair, 'asked', 'repaired', 'gone')}, {repair['given_up']} given up"
    held, kept = repair["held"]["messages"], counted(repair["kept"]["bytes"], "byte")
    others = f"{held} held; {_listed(repair, 'resent', 'refused')}, {kept} kept"
    return (
        f"{mine}, {others}"
        if repair["on"]
        else f"off; {repair['repaired']} repaired, {repair['resent']} resent"
    )


def bindings(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """A line for each binding to the segment: its name and text. An older daemon does not report all of it."""
    texts = []
    for row in rows:
        address = f"[{row['address']}]" if ":" in row["address"] else row["address"]
        text = f"{address}:{row['port']}" + (f" on {row['interface']}" if row["interface"] else "")
        if "sent" in row:
            text += f", {row['sent']} sent, {row['unsent']} unsent"
        texts.append(f"{text}; {row['error']}" if row.get("error") else text)
    return [("segment" if not at else "", text) for at, text in enumerate(texts or ["none"])]


def _section(
    noun: str, rows: list[dict[str, Any]], as_table: Callable[[list[dict[str, Any]]], list[str]], limit: int
) -> list[str]:
    if not rows:
        return ["", f"no other {noun}" if noun == "client" else f"no {noun} heard"]
    more = [f"... and {len(rows) - limit} more (--rows N)"] if len(rows) > limit else []
    return ["", *as_table(rows[:limit]), *more]


def _clients_table(rows: list[dict[str, Any]]) -> list[str]:
    titles = ["CLIENT", "SUBS", "PUBLISHED", "DELIVERED", "DROPPED", "QUEUED", "HOLDS", "POLICY", "UP"]
    keys = ["name", "subscriptions", "published", "delivered", "dropped", "queued", "holds", "policy"]
    return table(titles, [[*(row[key] for key in keys), duration(row["seconds"])] for row in rows])


def _sources_table(rows: list[dict[str, Any]]) -> list[str]:
    titles = ["SOURCE", "FROM", "RECEIVED", "LOST", "REPAIRED", "DUPL.", "LATE", "RESTARTS", "SILENT"]
    keys = ["received", "lost", "repaired", "duplicates", "late", "restarts"]
    return table(
        titles,
        [
            [row["src"], row["peer"], *(row.get(key, 0) for key in keys), duration(row["silent"])]
            for row in rows
        ],
    )


def _listed(counters: dict[str, int], *names: str) -> str:
    return ", ".join(f"{counters[name]} {name}" for name in names)
