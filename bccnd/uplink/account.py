"""What an uplink reports about itself: to ``bccn links``, recorders, Prometheus and the log. No I/O and no clock.

Rules
- An answer to ``bccn links`` is a message about the uplink, and one for each link that is heard
  (``bccnd/beside/answers.py``). ``bccn doctor`` gets the same.
- The same messages go to FACTS_CHANNEL from time to time, unasked: only taps see them, and recordings have them.
- New losses get one line in the log at each look, with what to do.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from bccnd.beside.answers import Form
from bccnd.uplink.carrier import Facts

# Every uplink of the segment answers requests on it.
CHANNEL = "bccnd/links"
# Directed to a name that no program has, like ``!bccnd/repair``: recorders find it (``bccnd.recorder.links``).
FACTS_CHANNEL = "!bccnd/links"
# Links in one answer: those that were heard last. With so many, at most 8 answers fit a second.
LINKS_SHOWN = 64
FORM = Form(
    "uplink", "link", "links", LINKS_SHOWN,
    texts=("segment", "instance", "state", "reason", "carrier"),
    numbers=(
        "seconds", "round_trip", "behind", "waiting", "repaired", "lost", "heard", "held", "more_hosts", "links_said",
        "more_links", "exported", "imported", "siblings",
    ),
    counts=("dropped", "losses"),
    lists=("hosts",),
)  # fmt: skip

# Reasons that are logged while the carrier is cut off: each of several servers may have its own.
REASONS_LIMIT = 8

# Counts of the bus that are no loss.
BUS = "heard", "sent", "duplicate", "own", "late", "replayed"

# What may be wrong while daemon and carrier are there, and what to do.
COPIED = (
    "another uplink uses a copy of this journal, and messages are lost: stop one of them, remove its journal, "
    "and start both anew"
)
NAMESAKE = "another segment seems to have the name {}, with the hosts {}: give each segment a name of its own"
# Hosts of a namesake that are named.
HOSTS_NAMED = 3

# What was lost for good, and what to do about it.
LOSSES = {
    "link": "nobody keeps it any more: more journal_bytes there, more nats_bytes, or a carrier that loses less",
    "crowded": "too much waited for what was missing: more hold_bytes",
    "given_up": "the carrier was cut off for too long: more journal_bytes or journal_seconds",
    "too_large": "larger than the carrier takes: a larger max_payload in the settings of its servers",
    "rate": "more than the rates of the settings allow",
    "unsound": "not signed as it should be: all uplinks of a carrier need the same key_file",
    "claimed": "under names of hosts of this segment: give each host a name of its own, or set local_names",
    "missed": "the uplink reads too slowly: give it more CPU, or export less",
    "refused": "the daemon does not take it: its log and [[rights]] say why",
}


def shown(core: Mapping[str, Any], carrier: Facts, bus: Mapping[str, int]) -> dict[str, Any]:
    """The facts of core, carrier and bus that ``bccn links`` shows, and programs that read its JSON."""
    return {
        "segment": core["segment"],
        "instance": core["instance"],
        "round_trip": carrier.round_trip,
        "behind": max(carrier.behind, sum(link["behind"] for link in core["links"])),
        "waiting": core["outbox"]["datagrams"],
        "waiting_bytes": core["outbox"]["bytes"],
        "repaired": carrier.repaired,
        "repeated": carrier.repeated,
        "answered": carrier.answered,
        "skipped": carrier.skipped,
        "lost": core["lost"],
        "exported": core["exported"],
        "published": core["published"],
        "imported": core["imported"],
        "siblings": len(core["siblings"]),
        "dropped": {reason: count for reason, count in core["dropped"].items() if count},
        "losses": {reason: count for reason, count in lost(core, carrier, bus).items() if count},
        "links": core["links"],
    }


def mistaken(core: Mapping[str, Any]) -> str:
    """How this uplink and another one conflict; empty if they do not."""
    if core["copied"]:
        return COPIED
    for sibling in core["siblings"]:
        if sibling["namesake"]:
            named, more = sibling["hosts"][:HOSTS_NAMED], len(sibling["hosts"]) - HOSTS_NAMED
            hosts = ", ".join(named) + (f" and {more} more" if more > 0 else "")
            return NAMESAKE.format(core["segment"], hosts)
    return ""


def lost(core: Mapping[str, Any], carrier: Facts, bus: Mapping[str, int]) -> dict[str, int]:
    """How much was lost for good, by the words of LOSSES. ``bus``: the counts of ``Bus``."""
    return {
        "link": core["lost"],
        "crowded": core["crowded"],
        "given_up": core["outbox"]["given_up"],
        "too_large": carrier.given_up,
        "rate": core["dropped"]["rate"],
        "claimed": core["dropped"]["claimed"],
        "unsound": sum(core["refused"].values()) + core["wrong"],
        "missed": bus["lost"],
        "refused": bus["refused"],
    }


def counted(core: Mapping[str, Any], carrier: Facts, bus: Mapping[str, int]) -> dict[str, Any]:
    """The metrics of core, carrier and bus."""
    return {
        "carried": int(not carrier.reason),
        "round_trip": carrier.round_trip or 0.0,
        "behind": carrier.behind,
        "asked": carrier.asked,
        "repaired": carrier.repaired,
        "lost_positions": carrier.lost,
        "skipped": carrier.skipped,
        "answered": carrier.answered,
        "repeated": carrier.repeated,
        "exported": core["exported"],
        "published": core["published"],
        "imported": core["imported"],
        "links": len(core["links"]),
        "held": sum(link["held"] for link in core["links"]),
        "waiting": core["outbox"]["datagrams"],
        "waiting_bytes": core["outbox"]["bytes"],
        "dropped": core["dropped"],
        "bus": {name: bus[name] for name in BUS},
    }


def answers(facts: Mapping[str, Any]) -> list[bytes]:
    """The messages that answer a request; the links that were heard last first."""
    return FORM.answers({**facts, "links": sorted(facts["links"], key=lambda link: float(link["heard"]))})


class Losses:
    """Finds losses that are new. ``seen``: the known ones."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def new(self, counted: Mapping[str, int]) -> dict[str, Any]:
        """The fields of a log line: what was lost since the last call, and what to do; empty if nothing was."""
        more = Counter({kind: counted.get(kind, 0) for kind in LOSSES}) - self._seen
        if not more:
            return {}
        self._seen += more
        worst = max(more, key=lambda kind: more[kind])
        return {**more, "remedy": LOSSES[worst]}


class Reasons:
    """The reasons why the carrier is cut off this time, each reported once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def is_new(self, reason: str) -> bool:
        if reason in self._said or len(self._said) >= REASONS_LIMIT:
            return False
        self._said.add(reason)
        return True
