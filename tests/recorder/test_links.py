"""What is said of links to other segments: what becomes a mark, and what is left out."""

import json
from collections.abc import Iterable
from typing import Any

from bccnd.recorder.account import Said
from bccnd.recorder.links import FACTS_CHANNEL, HOSTS_LIMIT, RANGES_LIMIT, SOURCES_LIMIT, Links, Spoken
from bccnd.uplink import account
from bccnd.wire import repair

DAEMON = b"relay01/bccnd/7/repair"
UPLINK = {"uplink": "relay01/bccnd-uplink/9", "state": "up", "segment": "south", "instance": "6f1d"}


def repairing(payload: bytes, src: bytes = DAEMON) -> Spoken:
    return Spoken(repair.CHANNEL, src, 1, payload)


def marks(found: Iterable[Said]) -> list[tuple[str, Any]]:
    return [(each.kind.value, json.loads(each.payload)) for each in found]


def after(*spoken: Spoken) -> list[tuple[str, Any]]:
    links = Links()
    return [mark for each in spoken for mark in marks(links.heard(each))] + marks(links.end())


def facts(part: object) -> list[tuple[str, Any]]:
    return after(Spoken(FACTS_CHANNEL, b"relay01/bccnd-uplink/9", 5, json.dumps(part).encode()))


def test_relayed_sources_are_gathered_with_what_was_left_out() -> None:
    assert after(
        repairing(b"relayed\ncam07/door/9\ncam07/bell/2"),
        repairing(b"gone\ncam07/door/9 17 0-1,4"),
        repairing(b"gone\ncam07/door/9 18446744073709551600 15"),
        repairing(b"last\nrelay01/a/7 42"),
    ) == [
        ("relayed", {"by": "relay01", "sources": [
            {"src": "cam07/door/9", "left_out": [[17, 18], [21, 21], [2**64 - 1, 2**64 - 1]]},
            {"src": "cam07/bell/2", "left_out": []},
        ]})
    ]  # fmt: skip


def test_a_source_of_a_host_that_is_here_is_not_relayed() -> None:
    here = repairing(b"last\ncam07/door/9 42", b"cam07/bccnd/3/repair")
    said = repairing(b"relayed\ncam07/door/9")
    assert after(said, here) == after(here, said) == []
    assert after(repairing(b"gone\nrelay01/a/7 17 0-1")) == [], "of its own it keeps no more"


def test_who_is_no_daemon_relays_nothing() -> None:
    for src in (b"relay01/other/7/repair", b"relay01/bccnd/7", b"bccnd/7/repair"):
        assert after(repairing(b"relayed\ncam07/door/9", src)) == []
    assert after(repairing(b"relayed"), repairing(b"nonsense")) == []


def test_much_that_is_said_makes_several_marks() -> None:
    links = Links()
    for number in range(3 * SOURCES_LIMIT):
        found = marks(links.heard(repairing(b"relayed\ncam07/door/%d" % number)))
        assert bool(found) == (number in (SOURCES_LIMIT, 2 * SOURCES_LIMIT))
        assert all(len(about["sources"]) == SOURCES_LIMIT for _, about in found)
    ranges = b",".join(b"%d" % (2 * number) for number in range(200))
    found = [mark for _ in range(9) for mark in marks(links.heard(repairing(b"gone\nx/y/1 0 " + ranges)))]
    counts = [sum(len(row["left_out"]) for row in about["sources"]) for _, about in found]
    assert counts
    assert max(counts) <= RANGES_LIMIT
    for number in range(2 * HOSTS_LIMIT):
        marks(links.heard(repairing(b"last\nx/y/1 4", b"h%d/bccnd/7/repair" % number)))
    assert len(links._here) == HOSTS_LIMIT


def test_an_uplink_and_each_of_its_links_are_a_mark() -> None:
    """In the form in which the uplink says it."""
    link = {
        "segment": "north", "instance": "ab", "heard": 0.1, "next": 9, "datagrams": 8, "duplicates": 1,
        "messages": 20, "missed": 2, "lost": 1, "hosts": ["n1"],
    }  # fmt: skip
    about = {**UPLINK, "exported": 7, "published": 6, "losses": {"given_up": 2, "rate": 1, "link": 5}}
    made = account.answers({**about, "links": [link]})
    assert [facts(json.loads(part)) for part in made] == [
        [("link", {
            "uplink": UPLINK["uplink"], "seq": 5, "segment": "south", "instance": "6f1d", "exported": 7,
            "published": 6, "withheld": 3,
        })],
        [("link", {"uplink": UPLINK["uplink"], "seq": 5, "link": {
            "segment": "north", "instance": "ab", "datagrams": 8, "duplicates": 1, "messages": 20, "missed": 2,
            "lost": 1,
        }})],
    ]  # fmt: skip
    assert FACTS_CHANNEL.decode() == account.FACTS_CHANNEL


def test_facts_of_another_form_are_left_out() -> None:
    assert [facts(part) for part in (7, [], {}, {"uplink": 7}, {"uplink": ""})] == [[]] * 5
    ((_, about),) = facts({**UPLINK, "exported": -1, "segment": 7, "losses": [1]})
    assert (about["exported"], about["segment"], about["withheld"]) == (None, None, 0)
    assert after(Spoken(FACTS_CHANNEL, b"x", 5, b"\xff{")) == []


def test_nobody_else_speaks_for_an_uplink() -> None:
    assert facts({**UPLINK, "uplink": "relay02/bccnd-uplink/9", "exported": 7}) == []
