"""What an uplink says of itself: answers that fit a datagram, and losses with what to do."""

import json
from collections import Counter
from typing import Any

from bccnd.beside.answers import PART_BYTES
from bccnd.uplink.account import (
    BUS,
    LINKS_SHOWN,
    LOSSES,
    REASONS_LIMIT,
    Losses,
    Reasons,
    answers,
    counted,
    lost,
    mistaken,
    shown,
)
from bccnd.uplink.bus import EXPECTED
from bccnd.uplink.carrier import Facts
from bccnd.uplink.core import DROPPED, Uplink
from bccnd.uplink.journal import Journal
from bccnd.uplink.metrics import _COUNTERS, _GAUGES
from bccnd.uplink.options import Options

FACTS = {"uplink": "h" * 64 + "/bccnd-uplink/1234567", "state": "up", "reason": ""}


def link(number: int, hosts: int) -> dict[str, Any]:
    named = [f"host{host:03}" for host in range(hosts)]
    return {"segment": f"s{number}", "instance": "0" * 16, "heard": float(number), "lost": 0, "hosts": named}


def test_each_part_of_an_answer_fits_a_datagram() -> None:
    head, *rest = [json.loads(part) for part in answers({**FACTS, "links": [link(2, 500), link(1, 3)]})]
    assert (head["links_said"], head["more_links"]) == (2, 0)
    assert [part["link"]["segment"] for part in rest] == ["s1", "s2"]
    assert (rest[0]["link"]["hosts"], rest[0]["link"]["more_hosts"]) == (["host000", "host001", "host002"], 0)
    assert 50 < len(rest[1]["link"]["hosts"]) < 500
    assert len(rest[1]["link"]["hosts"]) + rest[1]["link"]["more_hosts"] == 500
    assert max(map(len, answers({**FACTS, "links": [link(2, 500)]}))) <= PART_BYTES


def test_the_first_part_leaves_out_what_it_has_no_room_for() -> None:
    counts = {"exported": 1 << 60, "imported": 1 << 60}
    losses, dropped = dict.fromkeys(LOSSES, 1 << 60), dict.fromkeys(DROPPED, 1 << 60)
    about = {**FACTS, **counts, "carrier": "nats://", "losses": losses, "dropped": dropped, "links": []}
    assert json.loads(answers(about)[0])["losses"] == losses
    servers = "nats://" + ",".join(f"server{number:03}:4222" for number in range(100))
    (part,) = answers({**about, "carrier": servers, "reason": "because " * 200})
    said = json.loads(part)
    assert len(part) <= PART_BYTES
    assert "losses" not in said
    assert said["exported"] == 1 << 60
    assert servers.startswith(said["carrier"])


def test_what_the_carrier_gives_up_is_lost_and_said() -> None:
    journal = Journal(None)
    journal.open()
    core = Uplink(Options(b"north"), journal, lambda: 0.0, lambda: 0).facts()
    journal.close()
    carrier, bus = (
        Facts("", lost=2, skipped=3, given_up=4),
        Counter(dict.fromkeys(("lost", "refused", *BUS), 0)),
    )
    assert Losses().new(lost(core, carrier, bus)) == {"too_large": 4, "remedy": LOSSES["too_large"]}
    said, measured = shown(core, carrier, bus), counted(core, carrier, bus)
    assert (said["losses"], said["skipped"]) == ({"too_large": 4}, 3)
    assert (measured["skipped"], measured["lost_positions"]) == (3, 2)


def test_what_is_in_each_others_way_is_said_with_what_to_do() -> None:
    other = {"instance": "0" * 16, "heard": 0.1, "hosts": ["a", "b", "c", "d"], "namesake": True}
    core = {"segment": "north", "copied": False, "siblings": [{**other, "namesake": False}, other]}
    assert "the name north, with the hosts a, b, c and 1 more: give each" in mistaken(core)
    assert "remove its journal" in mistaken({**core, "copied": True})


def test_each_reason_is_new_once_and_there_are_few() -> None:
    reasons = Reasons()
    assert [reasons.is_new(reason) for reason in ("a", "b", "a", "b", "c")] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert sum(reasons.is_new(str(number)) for number in range(50)) == REASONS_LIMIT - 3


def test_an_answer_names_so_many_links() -> None:
    head, *rest = answers({**FACTS, "links": [link(number, 0) for number in range(LINKS_SHOWN + 5)]})
    assert (len(rest), json.loads(head)["more_links"]) == (LINKS_SHOWN, 5)


def test_a_loss_is_said_once_with_what_to_do() -> None:
    losses = Losses()
    assert losses.new(dict.fromkeys(LOSSES, 0)) == {}
    assert losses.new({"link": 3, "rate": 1}) == {"link": 3, "rate": 1, "remedy": LOSSES["link"]}
    assert losses.new({"link": 3, "rate": 1}) == {}
    assert losses.new({"link": 3, "rate": 9}) == {"rate": 8, "remedy": LOSSES["rate"]}


def test_every_fact_that_is_asked_for_is_there() -> None:
    """Of a core as it is made, and a bus that has counted nothing."""
    journal = Journal(None)
    journal.open()
    core = Uplink(Options(b"north"), journal, lambda: 0.0, lambda: 0).facts()
    journal.close()
    bus = Counter(dict.fromkeys(("heard", "sent", "lost", "refused", *EXPECTED), 0))
    carrier = Facts("cut off")
    assert set(lost(core, carrier, bus)) == set(LOSSES)
    assert not any(lost(core, carrier, bus).values())
    named = {key for _, key, _ in [*_COUNTERS, *_GAUGES]} | {"dropped", "bus"}
    assert set(counted(core, carrier, bus)) == named - {"connected"}
    said = shown(core, carrier, bus)
    assert (said["segment"], said["links"], said["losses"], said["dropped"]) == ("north", [], {}, {})
    assert mistaken(core) == ""
    assert set(BUS) == {"heard", "sent", *EXPECTED}
