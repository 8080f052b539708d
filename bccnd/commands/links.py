"""``bccn links``: the uplinks of this segment, and the segments that each of them hears."""

import argparse
import json
from typing import Any

import bccn
from bccnd.commands.arguments import count, seconds
from bccnd.commands.outcome import DONE, NOBODY_LISTENS, TIMED_OUT, Reporter, complain
from bccnd.commands.terminal import duration, table
from bccnd.process.standard_streams import counted, printable, say
from bccnd.uplink.account import CHANNEL, FORM, LOSSES

TITLES = ["UPLINK", "SEGMENT", "STATE", "ROUND TRIP", "BEHIND", "WAITING", "REPAIRED", "LOST", "CARRIER"]
# An uplink says something once a second.
SILENT_SECONDS = 5
# Hosts of a segment that a line names.
HOSTS_SHOWN = 8
# Parts of answers that are taken, of a thousand bytes each: those of 64 uplinks, each with as many links as it tells.
PARTS_LIMIT = 64 * 65
# Of what came by links, that did not go on.
NOT_TAKEN = "not-imported", "elsewhere", "echo", "claimed"

DESCRIPTION = """\
Show the uplinks of this segment, on whichever host they run, and below each the
other segments that it hears, with their hosts. Each uplink answers by itself.

BEHIND counts what is known to be still to come. WAITING counts messages that
the carrier has not taken yet. REPAIRED counts what was lost on the way, and
came again. LOST counts what is lost for good. The lines below count what was
carried since the start, and what was lost, by reason.
"""

EPILOG = """\
examples:
  bccn links
  bccn links --wait 30 --count 2
  bccn links --json | jq '.uplinks[] | select(.state != "up") | .reason'

Exits with 6 if no uplink answers, and with 3 if fewer than --count do in time.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "-W",
        "--wait",
        metavar="S",
        type=seconds,
        default=1.0,
        help="take the answers that come within S seconds (default 1)",
    )
    parser.add_argument("-C", "--count", metavar="N", type=count, help="wait for N uplinks and no longer")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    parts: list[dict[str, Any]] = []
    with bccn.Client(arguments.socket, on_notice=Reporter()) as bus:
        try:
            for reply in bus.request_many(CHANNEL, b"", arguments.wait):
                part = FORM.read(reply.payload) if len(parts) < PARTS_LIMIT else None
                if part is None:
                    continue
                parts.append(part)
                if arguments.count and len(gathered(parts, only_whole=True)) >= arguments.count:
                    break
        except bccn.NobodyListensError:
            pass
    uplinks = gathered(parts)
    if arguments.json:
        say(json.dumps({"uplinks": uplinks}, indent=2))
    elif uplinks:
        say("\n".join(lines(uplinks)))
    if not uplinks:
        complain(
            "no uplink answers in this segment: start bccnd-uplink on one of its hosts "
            "(systemctl start bccnd-uplink), or look into its log there (journalctl -u bccnd-uplink)"
        )
        return NOBODY_LISTENS
    answered = len(gathered(parts, only_whole=True))
    if answered < (arguments.count or 0):
        complain(f"{answered} of {counted(arguments.count, 'uplink')} answered within {arguments.wait:g} s")
        return TIMED_OUT
    return DONE


def gathered(parts: list[dict[str, Any]], *, only_whole: bool = False) -> list[dict[str, Any]]:
    """The uplinks by name, each with its links. ``only_whole``: those of which all parts have come."""
    uplinks = FORM.gathered(parts, only_whole=only_whole)
    for uplink in uplinks:
        uplink["links"].sort(key=lambda link: (str(link.get("segment")), str(link.get("instance"))))
    return uplinks


def lines(uplinks: list[dict[str, Any]]) -> list[str]:
    title, *rows = table(TITLES, [_cells(uplink) for uplink in uplinks])
    text = [title]
    for row, uplink in zip(rows, uplinks, strict=True):
        text.append(row)
        if uplink.get("reason"):
            text.append(printable(f"  {uplink['reason']}"))
        text += [printable(line) for line in _carried(uplink)]
        text += [printable(_link(link)) for link in uplink["links"]] or ["  hears no other segment"]
        if more := uplink.get("more_links"):
            text.append(printable(f"  and {more} more"))
    return text


def _carried(uplink: dict[str, Any]) -> list[str]:
    """What became of messages; nothing of an uplink that does not say that."""
    if "exported" not in uplink:
        return []
    dropped = uplink.get("dropped") or {}
    not_named = dropped.get("not-imported", 0)
    taken = (uplink.get("imported") or 0) - sum(dropped.get(reason, 0) for reason in NOT_TAKEN)
    line = f"  carried {counted(uplink['exported'] or 0, 'message')} out and {taken} in"
    if not_named:
        line += f"; {not_named} came that import does not name"
    if uplink.get("directed") is False:
        line += "; no directed messages, so requests get no reply"
    if more := uplink.get("siblings"):
        line += f"; beside {counted(more, 'other uplink')} of {uplink.get('segment', '?')}"
    losses = uplink.get("losses") or {}
    return [line, *(f"  lost {losses[kind]}: {LOSSES.get(kind, kind)}" for kind in sorted(losses))]


def _cells(uplink: dict[str, Any]) -> list[object]:
    took = uplink.get("round_trip")
    state = str(uplink["state"])
    if uplink.get("seconds") is not None:
        state += f" {duration(float(uplink['seconds']))}"
    trip = f"{1000 * took:.1f} ms" if isinstance(took, int | float) else "-"
    counted = [uplink.get(name) or 0 for name in ("behind", "waiting", "repaired")]
    losses = uplink.get("losses") or {"link": uplink.get("lost") or 0}  # what the lines below name
    segment, carrier = uplink.get("segment", "-"), uplink.get("carrier", "-")
    return [uplink["uplink"], segment, state, trip, *counted, sum(losses.values()), carrier]


def _link(link: dict[str, Any]) -> str:
    hosts = [str(host) for host in link.get("hosts") or ()]
    more = len(hosts) - HOSTS_SHOWN + int(link.get("more_hosts") or 0)
    named = ", ".join(hosts[:HOSTS_SHOWN]) + (f" and {more} more" if more > 0 else "") or "not known yet"
    segment, ago = link.get("segment", "?"), float(link.get("heard") or 0.0)
    heard = f"hears {segment}, {duration(ago)} ago"
    if ago >= SILENT_SECONDS:
        heard = f"{segment} has been silent for {duration(ago)}"
    return f"  {heard}; {link.get('held', 0)} held, {link.get('lost', 0)} lost; hosts: {named}"
