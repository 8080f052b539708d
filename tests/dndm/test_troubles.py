"""Which peers are in trouble, the worst first."""

from typing import Any

import pytest

from bccnd.dndm.link import Link
from bccnd.dndm.troubles import FORM, LET_GO_SECONDS, NAME_LIMIT, OTHERS_LIMIT, Troubles
from bccnd.wire.dndm.peers import Peer, parse

ARM, LINE = parse("tcp://10.0.0.7:1/arm"), parse("serial:///dev/ttyS0/board?baud=9600")
STRANGER = Peer("tcp", "10.0.0.9", text="tcp://10.0.0.9")


@pytest.fixture
def troubles() -> Troubles:
    one = Troubles()
    one.expect([ARM, LINE])
    return one


def row(peer: str, kind: str, reason: str, seconds: float, count: int) -> dict[str, Any]:
    return {"peer": peer, "kind": kind, "reason": reason, "seconds": seconds, "count": count}


def test_who_is_dialled_is_away_until_it_is_met(troubles: Troubles) -> None:
    assert troubles.rows([], 0.0) == []  # nobody has tried yet
    assert [troubles.away(ARM, reason, now) for now, reason in enumerate(("refused", "refused", "no route"))] == [
        True, False, True,
    ]  # fmt: skip
    assert troubles.rows([], 10.0) == [row(str(ARM), "away", "no route", 10.0, 3)]
    troubles.over(("tcp", "elsewhere"), ARM.place)
    assert troubles.rows([], 10.0) == []
    troubles.ended(ARM, "tcp://as.it.calls.itself:1/", "ended by the peer", 20.0, let_go=False)
    assert troubles.rows([], 21.0) == [row(str(ARM), "away", "ended by the peer", 1.0, 1)]
    troubles.over(ARM.place)
    troubles.ended(ARM, str(ARM), "twice", 20.0, let_go=True)
    assert troubles.rows([], 21.0) == []


def test_who_is_dialled_no_more_is_no_trouble(troubles: Troubles) -> None:
    troubles.away(ARM, "no answer", 0.0)
    troubles.expect([LINE])
    assert troubles.rows([], 1.0) == []


def test_others_are_in_trouble_only_if_they_were_let_go(troubles: Troubles) -> None:
    troubles.ended(STRANGER, "tcp://10.0.0.9:7/cam", "ended by the peer", 1.0, let_go=False)
    troubles.away(parse("tcp://10.0.0.8:1/told"), "no answer", 1.0)
    assert troubles.rows([], 2.0) == []
    for now in 1.0, 2.0:
        troubles.ended(STRANGER, "tcp://10.0.0.9:7/cam", "bus", now, let_go=True)
    assert troubles.rows([], 5.0) == [row("tcp://10.0.0.9:7/cam", "let go", "bus", 3.0, 2)]
    assert troubles.rows([], 2.0 + LET_GO_SECONDS) == []


def test_the_worst_come_first(troubles: Troubles) -> None:
    links = [Link(number, None, "tcp", 0.0, peer=parse(f"tcp://10.0.1.{number}:1/")) for number in range(3)]
    for link in links:
        link.counts["slow"], link.backlog = 5 * link.number, 100
    for number in range(2):
        stranger = Peer("tcp", f"s{number}", text=f"s{number}")
        troubles.ended(stranger, str(stranger), "frame", 1.0 + number, let_go=True)
    troubles.away(LINE, "No such file or directory", 1.0)
    troubles.away(ARM, "no answer", 3.0)
    rows = troubles.rows(links, 5.0)
    assert [each["peer"] for each in rows] == [
        str(LINE),
        str(ARM),
        str(links[2].peer),
        str(links[1].peer),
        "s1",
        "s0",
    ]
    assert rows[2] == {"peer": str(links[2].peer), "kind": "slow", "count": 10, "waiting": 100}


def test_what_others_make_grow_is_bounded(troubles: Troubles) -> None:
    troubles.away(ARM, "no answer", 0.0)
    for number in range(3 * OTHERS_LIMIT):
        stranger = Peer("tcp", f"s{number}", text=f"s{number}")
        troubles.ended(stranger, "x" * 5000, "frame" * 1000, float(number), let_go=True)
        troubles.away(stranger, "no answer", float(number))
    rows = troubles.rows([], 3.0 * OTHERS_LIMIT)
    assert (rows[0]["peer"], len(rows)) == (str(ARM), 1 + OTHERS_LIMIT)
    assert len(rows[1]["peer"]) == NAME_LIMIT
    assert len(troubles._away) == 1 + OTHERS_LIMIT
    about = {"gateway": "here/bccnd-dndm/7", "state": "up", "lost": {}, "troubles": rows}
    head, *parts = (FORM.read(payload) for payload in FORM.answers(about))
    assert head
    assert (head["more_troubles"], len(parts)) == (1 + OTHERS_LIMIT - FORM.most, FORM.most)
