"""Checks of the programs beside the daemon, by what they report about themselves: uplinks, gateways to robots.

Any program may answer as they do, though only under its own name: where several gateways answer, what each says of
others comes with its name. Remedies never come from an answer, and a reason that is not known here is shown as it is.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bccnd.doctor.facts import Facts, Row
from bccnd.doctor.finding import Finding, ok, warning
from bccnd.process.standard_streams import counted

UPLINKS, ROBOTS = "uplinks", "robots"

# Why a gateway ended a connection, and what to do.
LET_GO = {
    "me": (
        "it names no address, or another one than it has",
        "correct its address: of the scheme by which it connects",
    ),
    "you": ("it wants another peer than this gateway", "have it dial this gateway, or set address here"),
    "stage": ("its handshake is out of order", "update it, or set strict = false if it is to be trusted"),
    "self": ("it has the address of this gateway", "take it out of dial, or correct address"),
    "bus": (
        "it is a gateway of this bus, or of one that another peer joins already",
        "run one gateway between a bus and a mesh: stop one; another segment needs another bus = NAME",
    ),
    "full": ("there were as many peers as links allows", "raise links, and restart the gateway"),
    "handshakes": ("it began anew again and again", "see why it does: its log"),
    "before the handshake": ("it spoke before the handshake", "see what it is: it may be no peer of DNDM"),
    "frame": (
        "what it sent is no frame of DNDM",
        "see what it is: it may speak something else, or be cut off in a frame",
    ),
    "faults": ("too much of what it sent was wrong", "see bccnd_dndm_faults in the metrics, and its program"),
    "no handshake": (
        "nobody answers the handshake",
        "see whether a peer of DNDM runs there; on a line, its baud",
    ),
    "silent": ("it said nothing for half a minute", "look at it, and at the link to it"),
    "slow": (
        "it read too slowly",
        "let it read faster, or give it less: fewer interests, or a larger backlog",
    ),
}
# How the system, or the gateway, says that a device is not there any more.
GONE = "No such file or directory", "No such device", "Input/output error", "ended by the peer"
# What a gateway lost, in words, and what to do.
LOST = {
    "too large for the segment": (
        "{} too large for a datagram of the segment: only peers and local/dndm/ on this host can have them",
        "subscribe to local/dndm/... on this host, or have robots send less than 1200 bytes",
    ),
    "too large for the host": (
        "{} of more than 64 KiB: only peers can have them",
        "have robots send less at a time",
    ),
    "too large": ("{} too large for a frame: no peer can have them", "publish less at a time"),
    "missed": (
        "{} of programs missed: the gateway reads too slowly",
        "give it more CPU, or peers fewer interests",
    ),
    "refused by the daemon": ("{} refused by the daemon", "[[rights]] in its settings, and its log, say why"),
    "no daemon": ("{} of robots lost while there was no daemon", "see its log: journalctl -u bccnd"),
    "daemon too slow": (
        "{} of robots lost, as the daemon took no more",
        "see who holds publishers up: bccn top, policy block",
    ),
}


def uplinks(facts: Facts) -> Iterable[Finding]:
    more = "see: bccn links, and journalctl -u bccnd-uplink"
    for uplink in facts.uplinks:
        name, reason = uplink["uplink"], uplink.get("reason") or ""
        lost = {kind: count for kind, count in _counts(uplink, "losses").items() if count}
        if uplink["state"] != "up" or reason:
            lasting = f" for {_seconds(uplink)}" if uplink["state"] != "up" else ""
            yield warning(
                UPLINKS, f"{name} is {uplink['state']}{lasting}: {reason or 'no reason given'}", more
            )
        if lost:
            kinds = ", ".join(f"{count:.0f} {kind}" for kind, count in sorted(lost.items()))
            yield warning(UPLINKS, f"{name} has lost messages for good: {kinds}", more)
        if uplink["state"] == "up" and not reason and not lost:
            yield ok(UPLINKS, f"{name} is up, and has lost nothing")


def gateways(facts: Facts) -> Iterable[Finding]:
    for gateway in facts.gateways:
        found = [*_peers(gateway), *_messages(gateway), *_room(gateway)]
        for each in found:  # who says it matters where another program may be lying
            name = f"{gateway['gateway']}: " if len(facts.gateways) > 1 else ""
            yield replace(each, finding=f"{name}{each.finding}")
        if not found:
            yield ok(
                ROBOTS,
                f"{counted(_number(gateway, 'peers'), 'peer')} of {gateway['gateway']}, none in trouble",
            )


def _peers(gateway: Row) -> Iterable[Finding]:
    for row in gateway["troubles"]:
        yield _trouble(str(row.get("peer") or "a peer"), row)
    if more := _number(gateway, "more_troubles"):
        yield warning(ROBOTS, f"{counted(more, 'more peer')} in trouble", "see: journalctl -u bccnd-dndm")
    if strangers := _number(gateway, "not_accepted"):
        text = f"{counted(strangers, 'connection')} came from networks that accept does not name"
        yield warning(
            ROBOTS, text, "add their network to accept, and reload the gateway, if they are to come in"
        )


def _trouble(peer: str, row: Row) -> Finding:
    said = str(row.get("reason") or "")
    meaning, remedy = LET_GO.get(said, (said or "no reason given", "see: journalctl -u bccnd-dndm"))
    match row.get("kind"):
        case "away":
            state = "is cut off"
            if said not in LET_GO and peer.startswith("serial:"):
                state = "has no device" if said in GONE else "has a device that cannot be opened,"
                remedy = (
                    "plug it in, and see: ls -l /dev/serial/by-id; the unit needs a drop-in to see devices"
                )
            elif said not in LET_GO:
                remedy = "start it, and let it through the firewall; or take it out of dial"
            return warning(ROBOTS, f"{peer} {state} for {_seconds(row)}: {meaning}", remedy)
        case "slow":
            lost, waits = counted(_number(row, "count"), "message"), _number(row, "waiting")
            text = f"{peer} does not read fast enough: {lost} for it lost, {waits} bytes wait"
            return warning(ROBOTS, text, LET_GO["slow"][1])
        case _:
            times = counted(_number(row, "count") or 1, "time")
            return warning(ROBOTS, f"{peer} was refused {times}, last {_seconds(row)} ago: {meaning}", remedy)


def _messages(gateway: Row) -> Iterable[Finding]:
    for kind, count in sorted(_counts(gateway, "lost").items()):
        if kind in LOST and count:
            text, remedy = LOST[kind]
            yield warning(ROBOTS, text.format(counted(int(count), "message")), remedy)


def _room(gateway: Row) -> Iterable[Finding]:
    waiting = [(_number(gateway, "unheard"), "interest"), (_number(gateway, "unwatched"), "intent")]
    used_up = [counted(count, what) for count, what in waiting if count]
    if used_up:
        text = f"the daemon has no room for {' and '.join(used_up)} of peers: subscriptions or watches are used up"
        yield warning(
            ROBOTS, text, "raise limits.subscriptions, reload bccnd, then bccnd-dndm; or have fewer routes"
        )


def _number(row: Row, name: str) -> int:
    return int(row.get(name) or 0)


def _seconds(row: Row) -> str:
    return f"{float(row.get('seconds') or 0.0):.0f} s"


def _counts(program: Row, name: str) -> dict[str, Any]:
    return program.get(name) or {}
