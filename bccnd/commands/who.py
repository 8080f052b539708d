"""``bccn who``: which programs are there, on which host, and how well this host hears them."""

import argparse
import json
from typing import Any

import bccn
from bccn import matches
from bccnd.commands.arguments import pattern
from bccnd.commands.outcome import Reporter
from bccnd.commands.terminal import duration, table
from bccnd.doctor.loss import loss_of
from bccnd.process.standard_streams import printable, say

DESCRIPTION = """\
Show the sources by host: the programs of this host, and the sources it hears
from the segment. A source that sends heartbeats is alive, silent (it missed
several of them) or left. For other sources, only the time when they were last
heard is known.

LOST messages never came. REPAIRED ones were lost, and came when the daemon
asked for them. A daemon that sends again what others miss "repairs". A source
of another segment is "by" the host that relays it. Messages that the host
leaves out are not lost. Messages that this host relays come back to it once,
as duplicates.
"""

EPILOG = """\
examples:
  bccn who
  bccn who 'relay01/>' '*/bccnd/*'
  bccn who --silent
  bccn who --json | jq '.hosts[].sources[] | select(.missed_percent > 1) | .src'
"""
CURRENT_SECONDS = 600
TITLES = ["SOURCE", "STATE", "HEARD", "RECEIVED", "LOST", "LOST%", "REPAIRED", "DUPL.", "VERSION"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "patterns", metavar="PATTERN", type=pattern, nargs="*", help="only sources that match, as channels do"
    )
    parser.add_argument("--silent", action="store_true", help="only sources that have fallen silent")
    parser.add_argument(
        "--all", action="store_true", help="also sources that left, or were not heard for ten minutes"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    with bccn.Client(arguments.socket, on_notice=Reporter()) as bus:
        status, clients, sources, own = bus.status(), bus.clients(), bus.sources(), bus.name
    rows = [_daemon_row(status)]
    rows += [_client_row(client) for client in clients if client["name"] != own]
    rows += [_source_row(source) for source in sources if source["peer"]]  # others are clients that have left
    if arguments.silent:
        rows = [row for row in rows if row["state"] == "silent"]
    if arguments.patterns:
        rows = [row for row in rows if any(matches(each, row["src"], "/") for each in arguments.patterns)]
    if arguments.json:
        say(json.dumps({"hosts": _by_host(rows, status["host"])}, indent=2))
        return 0
    shown = rows if arguments.all else current(rows)
    lines = _lines(_by_host(shown, status["host"]))
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} that left, or were not heard for ten minutes (--all)")
    say("\n".join(lines))
    return 0


def current(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows to show without ``--all``: not those of programs that have left, or were last heard long ago.

    A source that fell silent is shown, unless it is a daemon that has a successor: a host has one daemon.
    """
    served = {_daemon_host(row) for row in rows if row["state"] == "alive"} - {None}
    return [
        row
        for row in rows
        if _is_here(row)
        or (row["state"] == "silent" and _daemon_host(row) not in served)
        or (row["state"] != "silent" and row["silent"] <= CURRENT_SECONDS)
    ]


def _is_here(row: dict[str, Any]) -> bool:
    """Whether it is a program of this host. What a bridge of this host relays is none."""
    return row["peer"] == "local" and not row.get("relayed")


def _daemon_host(row: dict[str, Any]) -> str | None:
    """The host whose daemon this is; None for any other source."""
    host, _, rest = row["src"].partition("/")
    return host if rest.startswith("bccnd/") else None


def _row(src: str, **known: Any) -> dict[str, Any]:
    row = {
        "src": src, "peer": "local", "state": "alive", "silent": 0.0, "received": 0, "lost": 0, "lost_percent": 0.0,
        "missed_percent": 0.0, "repaired": 0, "gone": 0, "given_up": 0, "held": 0, "duplicates": 0, "version": None,
        "repair": None, "heartbeat": None, "relayed": None, "left_out": 0,
    }  # fmt: skip
    return row | known


def _daemon_row(status: dict[str, Any]) -> dict[str, Any]:
    src = status.get("src", f"{status['host']}/bccnd/{status['pid']}")
    return _row(
        src,
        received=status["counters"]["sent"],
        version=status["version"],
        repair=status.get("repair", {}).get("numbers") or None,
    )


def _client_row(client: dict[str, Any]) -> dict[str, Any]:
    return _row(client["name"], received=client["published"])


def _source_row(source: dict[str, Any]) -> dict[str, Any]:
    loss = loss_of(source)
    names = ("peer", "silent", "received", "lost", "duplicates")
    counted = ("repaired", "gone", "given_up", "held")  # not by an older daemon
    return _row(
        source["src"],
        **{name: source[name] for name in names},
        **{name: source.get(name, 0) for name in counted},
        lost_percent=round(loss.after, 1),
        missed_percent=round(loss.before, 1),
        state=source.get("state"),
        version=source.get("version"),
        repair=source.get("repair"),
        heartbeat=source.get("heartbeat"),
        relayed=source.get("relayed"),
        left_out=source.get("left_out", 0),
    )


def _by_host(rows: list[dict[str, Any]], here: str) -> list[dict[str, Any]]:
    """The rows of each host, this host first, the others by name."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["src"].partition("/")[0], []).append(row)
    return [
        {
            "host": host,
            "here": host == here,
            "sources": sorted(groups[host], key=lambda row: str(row["src"])),
        }
        for host in sorted(groups, key=lambda host: (host != here, host))
    ]


def _lines(hosts: list[dict[str, Any]]) -> list[str]:
    if not hosts:
        return ["nobody"]
    rows = [_cells(row) for host in hosts for row in host["sources"]]
    title, *lines = table(TITLES, rows)
    text = [title]
    for host in hosts:
        text.append(_host_line(host))
        text += [lines.pop(0) for _ in host["sources"]]
    return text


def _host_line(host: dict[str, Any]) -> str:
    peers = sorted({_way(row) for row in host["sources"]} - {"local"})
    more = " and others" if len(peers) > 2 else ""
    where = ", ".join((["this host"] if host["here"] else []) + peers[:2]) + more
    return printable(f"{host['host']} ({where})")


def _way(row: dict[str, Any]) -> str:
    """What its datagrams came from."""
    return f"relayed by {row['relayed']['host']}" if row["relayed"] else str(row["peer"])


def _cells(row: dict[str, Any]) -> list[object]:
    heard = "here" if _is_here(row) else f"{duration(row['silent'])} ago"
    relayed = f"by {row['relayed']['host']}" if row["relayed"] else ""
    name = row["src"].partition("/")[2] or row["src"]
    return [
        f"  {name}", row["state"] or "-", heard, row["received"], row["lost"], row["lost_percent"], row["repaired"],
        row["duplicates"], f"{row['version'] or ''}{' repairs' * bool(row['repair'])} {relayed}".strip(),
    ]  # fmt: skip
