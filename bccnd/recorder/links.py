"""What is said of links to other segments, as marks: which sources are relayed here, and how the links do.

    tap ── daemons on !bccnd/repair: relayed, gone ──> Links ──> marks ``relayed``, gathered
    tap ── uplinks on !bccnd/links: their facts ─────> Links ──> marks ``link``, one each

Rules
- A source is relayed by the host whose daemon says so (``bccnd/wire/REPAIR.md``, "Relayed sources"), unless the
  daemon of the source's own host is heard here, too.
- What a daemon says to be gone of sources of other hosts was left out: nobody sent it on this segment.
- A mark ``relayed`` is due at each look at the daemon, or when there is much to say. It says only what was said since
  the one before. What is said of an uplink is one message, and one mark (``bccnd.uplink.account``); the uplink says
  it itself: any program may publish there, and must not spoil the counts of others.
- What others make grow is bounded: the sources and ranges of a mark, and the hosts that are remembered. What breaks a
  rule is left out, and is no reason to stop recording.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bccnd.recorder.account import Said, json_object, number, said, word
from bccnd.recorder.layout import Mark
from bccnd.wire import repair

# Where uplinks say what they have done. It is directed to what no program is called, so taps alone see it.
FACTS_CHANNEL = b"!bccnd/links"
CHANNELS = (repair.CHANNEL, FACTS_CHANNEL)
# Of one mark, whose payload then has some 20 kB.
SOURCES_LIMIT, RANGES_LIMIT = 128, 512
# Hosts of this segment that are remembered.
HOSTS_LIMIT = 4096
# What a mark has of an uplink, and of a link that it hears: words and counts.
UPLINK_WORDS, UPLINK_COUNTS = ("segment", "instance"), ("exported", "published")
LINK_WORDS = ("segment", "instance")
LINK_COUNTS = ("datagrams", "duplicates", "messages", "missed", "lost")
# What an uplink lost for good before the carrier had it.
LOSSES = ("given_up", "too_large", "missed", "rate")

_DAEMON = re.compile(rb"([^/]+)/bccnd/[^/]+/" + re.escape(repair.SOURCE_END))


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message on one of CHANNELS that was delivered."""

    channel: bytes
    src: bytes
    seq: int
    payload: bytes


class Links:
    """Of one connection."""

    def __init__(self) -> None:
        self._here: OrderedDict[bytes, None] = OrderedDict()
        # By the host that relays, and by source: what was left out.
        self._relayed: dict[bytes, dict[bytes, list[range]]] = {}
        self._sources = self._ranges = 0

    def heard(self, spoken: Spoken) -> Iterator[Said]:
        if spoken.channel == FACTS_CHANNEL:
            yield from _facts(spoken)
        elif found := _DAEMON.fullmatch(spoken.src):
            yield from self._daemon(found[1], spoken.payload)

    def end(self) -> Iterator[Said]:
        """What was gathered."""
        for host, sources in self._relayed.items():
            rows = [
                {"src": _text(src), "left_out": [[each.start, each.stop - 1] for each in ranges]}
                for src, ranges in sources.items()
                if src.partition(b"/")[0] not in self._here
            ]
            if rows:
                yield said(Mark.RELAYED, {"by": _text(host), "sources": rows})
        self._relayed = {}
        self._sources = self._ranges = 0

    def _daemon(self, host: bytes, payload: bytes) -> Iterator[Said]:
        self._here[host] = None
        self._here.move_to_end(host)
        if len(self._here) > HOSTS_LIMIT:
            self._here.popitem(last=False)
        match repair.parse(payload):
            case repair.Relayed(sources):
                for src in sources:
                    yield from self._note(host, src, ())
            case repair.Gone(numbers):
                for src, ranges in numbers:
                    yield from self._note(host, src, ranges)

    def _note(self, host: bytes, src: bytes, ranges: tuple[range, ...]) -> Iterator[Said]:
        if src.partition(b"/")[0] in self._here:
            return
        if self._sources >= SOURCES_LIMIT or self._ranges + len(ranges) > RANGES_LIMIT:
            yield from self.end()
        sources = self._relayed.setdefault(host, {})
        if src not in sources:
            self._sources += 1
        sources.setdefault(src, []).extend(ranges)
        self._ranges += len(ranges)


def _facts(spoken: Spoken) -> Iterator[Said]:
    part = json_object(spoken.payload)
    uplink = _text(spoken.src)
    if not part or part.get("uplink") != uplink:
        return
    about: dict[str, Any] = {"uplink": uplink, "seq": spoken.seq}
    link = part.get("link")
    if isinstance(link, dict):
        about["link"] = _taken(link, LINK_WORDS, LINK_COUNTS)
    else:
        losses = part.get("losses")
        lost = [number(losses.get(name)) or 0 for name in LOSSES] if isinstance(losses, dict) else []
        about |= _taken(part, UPLINK_WORDS, UPLINK_COUNTS) | {"withheld": sum(lost)}
    yield said(Mark.LINK, about)


def _taken(found: dict[str, Any], words: tuple[str, ...], counts: tuple[str, ...]) -> dict[str, Any]:
    return {name: word(found.get(name)) for name in words} | {
        name: number(found.get(name)) for name in counts
    }


def _text(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace")
