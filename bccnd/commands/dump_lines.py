"""How ``bccn dump`` shows a datagram: as a line, as several, as a hex dump, as a JSON object. No I/O here."""

import json
from typing import Any

from bccnd.commands.sightings import Sighting
from bccnd.commands.terminal import iso_time
from bccnd.process.standard_streams import printable
from bccnd.wire import repair

# Characters of the payload that are shown before any other column gives way.
PAYLOAD_LEAST = 12
# The last digits of a sequence number, which differ from one datagram to the next.
SEQ_SHORT = 6
# Bytes in a line of a hex dump.
HEX_COLUMNS = 16

_PLAIN, _DIM, _RED, _YELLOW = "", "2", "31", "33"


class Paint:
    """Colours, where ``on``."""

    def __init__(self, *, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on and code and text else text


def line(sighting: Sighting, width: int | None, paint: Paint) -> str:
    """One line. On a narrow terminal columns that ``-v`` shows as well give way to the payload."""
    payload = "; ".join(repair_words(sighting)) or printable(sighting.parts.shown)
    if sighting.detail:
        payload = (
            f"{payload} ({printable(sighting.detail)})" if payload else f"({printable(sighting.detail)})"
        )
    for narrowness in range(len(_DISPENSABLE) + 1):
        head = _head(sighting, frozenset(_DISPENSABLE[:narrowness]))
        room = None if width is None else width - sum(len(word) + 1 for word, _ in head)
        if room is None or room >= min(len(payload), PAYLOAD_LEAST):
            break
    if room is not None and len(payload) > room:
        payload = payload[: room - 1] + "…" if room > 1 else ""
    return " ".join([*(paint(word, code) for word, code in head), payload]).rstrip()


# What gives way, in this order.
_DISPENSABLE = ("microseconds", "seq", "port", "size", "peer", "src")


def _head(sighting: Sighting, without: frozenset[str]) -> list[tuple[str, str]]:
    """The words before the payload, each with its colour."""
    parts = sighting.parts
    clock = iso_time(sighting.time_ns)[11:26]
    words = [
        (clock[:12] if "microseconds" in without else clock, _DIM),
        (f"{sighting.direction or '-':<5}", _PLAIN),
        (f"{sighting.verdict:<9}", _RED if sighting.rejected else _DIM),
    ]
    if "peer" not in without:
        peer = sighting.peer.rpartition(":")[0] or sighting.peer if "port" in without else sighting.peer
        words.append((printable(peer), _PLAIN))
    if parts.src is not None and "src" not in without:
        words.append((printable(parts.src), _PLAIN))
    if parts.seq is not None and "src" not in without:
        seq = printable(parts.seq)
        short = "seq" in without and len(seq) > SEQ_SHORT + 1
        words.append((f"#…{seq[-SEQ_SHORT:]}" if short else f"#{seq}", _DIM))
    if parts.chan is not None:
        words.append((printable(parts.chan), _YELLOW))
    if "size" not in without:
        words += [(integrity(sighting), _DIM), (f"{len(parts.datagram)} B", _DIM)]
    return words


def integrity(sighting: Sighting) -> str:
    """The algorithm; ``-`` for none."""
    return printable(sighting.parts.algorithm or b"-")


def details(sighting: Sighting) -> list[str]:
    """The lines that ``-v`` adds."""
    parts = sighting.parts
    rows: list[tuple[str, str]] = []
    if sighting.rejected:
        rows.append(("rejected", f"{sighting.verdict} {sighting.detail}".rstrip()))
    if parts.magic is not None:
        rows.append(("envelope", _envelope(sighting)))
    if parts.src is not None:
        seq = "" if parts.seq is None else f", number {printable(parts.seq)}"
        rows.append(("source", f"{printable(parts.src)}{seq}, from {printable(sighting.peer)}"))
    if parts.chan is not None:
        rows.append(("channel", f"{printable(parts.chan)} ({parts.mode})"))
    what = "datagram" if parts.body is None else "body" if parts.payload is None else "payload"
    rows.append((what, _bytes(parts.shown)))
    rows += [("says", text) for text in repair_words(sighting)]
    return [f"    {name:<9} {text}" for name, text in rows]


def repair_words(sighting: Sighting) -> list[str]:
    """What daemons say to each other about lost datagrams, a text for each source; empty for any other payload."""
    parts = sighting.parts
    message = repair.parse(parts.payload or b"") if parts.chan == repair.CHANNEL else None
    if message is None:
        return []
    if isinstance(message, repair.Plain | repair.Relayed):
        texts = [printable(src) for src in message.sources]
    elif isinstance(message, repair.Last):
        texts = [
            f"{printable(src)} #{last}" if first is None else f"{printable(src)} #{first}-{last} (new)"
            for src, first, last in message.sources
        ]
    else:
        texts = [f"{printable(src)} {' '.join(map(_range, ranges))}" for src, ranges in message.numbers]
    texts[0] = f"{type(message).__name__.lower()} {texts[0]}"
    return texts


def _range(numbers: range) -> str:
    return f"#{numbers[0]}" if len(numbers) == 1 else f"#{numbers[0]}-{numbers[-1]}"


def _envelope(sighting: Sighting) -> str:
    parts = sighting.parts
    texts = [printable(parts.magic or b"")]
    if parts.length is not None and parts.body is not None:
        said, has = printable(parts.length), str(len(parts.body))
        texts.append(f"{has} bytes" if said == has else f"says {said} bytes, has {has}")
    if parts.algorithm is None:
        texts.append("no sum")
    else:
        known = {True: "right", False: "wrong", None: "not checked here"}[parts.checked]
        texts.append(f"{printable(parts.algorithm)} {printable(parts.sum or b'')} ({known})")
    return ", ".join(texts)


def _bytes(data: bytes) -> str:
    """Text as text, anything else in hex."""
    count = f"{len(data)} byte{'s' * (len(data) != 1)}"
    if not data:
        return count
    try:
        return f"{count}: {printable(data.decode())}"
    except UnicodeDecodeError:
        return f"{count}, hex: {data.hex(' ', -4)}"


def hex_dump(data: bytes) -> list[str]:
    """Lines of offset, bytes and characters."""
    lines = []
    for at in range(0, len(data), HEX_COLUMNS):
        row = data[at : at + HEX_COLUMNS]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"    {at:04x}  {row.hex(' '):<{3 * HEX_COLUMNS - 1}}  {shown}")
    return lines


def to_json(sighting: Sighting, *, whole: bool) -> str:
    """An object on one line, without the parts that could not be read. ``whole``: add the bytes of the datagram."""
    parts = sighting.parts
    fields: dict[str, Any] = {
        "time": iso_time(sighting.time_ns),
        "direction": sighting.direction or None,
        "verdict": sighting.verdict,
        "peer": sighting.peer,
        "size": len(parts.datagram),
    }
    texts = {"magic": parts.magic, "length": parts.length, "algorithm": parts.algorithm, "sum": parts.sum}
    texts |= {"src": parts.src, "seq": parts.seq, "channel": parts.chan}
    for name, value in texts.items():
        if value is not None:
            number = name in ("length", "seq") and value.isdigit() and len(value) <= HEX_COLUMNS + 4
            fields[name] = int(value) if number else value.decode("ascii", "backslashreplace")
    if parts.mode is not None:
        fields["mode"] = parts.mode
    if sighting.detail:
        fields["detail"] = sighting.detail
    if parts.payload is not None:
        try:
            fields["payload"] = parts.payload.decode()
        except UnicodeDecodeError:
            fields["payload_hex"] = parts.payload.hex()
    if whole or parts.payload is None:
        fields["datagram_hex"] = parts.datagram.hex()
    return json.dumps(fields)


def missing(count: int, *, as_json: bool) -> str:
    """The line that stands where ``count`` datagrams are missing."""
    if as_json:
        return json.dumps({"missing": count})
    return f"--- {count} datagram{'s' * (count != 1)} missing here: they came faster than they were read"
