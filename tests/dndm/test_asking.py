"""What the bus is asked for adverts of one kind, whichever that is."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bccnd.dndm.adverts import Advert, Adverts
from bccnd.dndm.asking import EFFECTS, KINDS, Asking, Kind
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm.routes import parse


def daemon(asking: Asking, begin: Any, end: Any) -> tuple[set[str], Callable[[Iterable[object]], None]]:
    """The channels that a daemon with room for six holds, and what has it carry out effects."""
    held: set[str] = set()

    def do(effects: Iterable[object]) -> None:
        left = list(effects)
        while left:
            match left.pop(0):
                case begin(channel) if len(held) >= 6:
                    left += asking.crowded(channel)[1]
                case begin(channel):
                    held.add(channel)
                case end(channel):
                    held.discard(channel)

    return held, do


@pytest.mark.parametrize("kind", KINDS)
def test_one_peer_takes_from_others_no_more_than_its_share(kind: Kind) -> None:
    """A daemon with room for six channels: three routes and their twins."""
    adverts = Adverts(64, Alarm())
    asking, (begin, end) = Asking(adverts, kind), EFFECTS[kind]
    held, do = daemon(asking, begin, end)

    for number, link in enumerate([1] * 20 + [2] * 2):
        route = f"T@{link}.{number}"
        adverts.put(link, Advert(parse(route), 0, 0.0), 0.0)
        do(asking.update(route))
    assert len([channel for channel in held if "dndm/2/" in channel]) in (2, 4)
    assert len(held) == 6
    for route in adverts.drop_link(1):
        do(asking.update(route))
    assert sorted(held) == ["dndm/2/20/T", "dndm/2/21/T", "local/dndm/2/20/T", "local/dndm/2/21/T"]
    assert asking.waiting == 0


def test_the_room_of_a_route_in_several_forms_goes_to_several() -> None:
    adverts = Adverts(64, Alarm())
    asking = Asking(adverts, "watch")
    held, do = daemon(asking, *EFFECTS["watch"])
    digest = "A" * 27
    for link in 1, 2, 3:
        adverts.put(link, Advert(parse(f"p{link}#{digest}"), 0, 0.0), 0.0)
    do(asking.update(digest))
    assert len(held) == 6
    for number in range(3):
        adverts.put(4, Advert(parse(f"T@{number}"), 0, 0.0), 0.0)
        do(asking.update(f"T@{number}"))
    assert asking.waiting == 3
    for link in 1, 2, 3:
        adverts.drop_link(link)
    do(asking.update(digest))
    assert (len(held), asking.waiting) == (6, 0)
