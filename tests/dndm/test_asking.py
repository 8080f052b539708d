"""What the bus is asked for adverts of one kind, whichever that is."""

import pytest

from bccnd.dndm.adverts import Advert, Adverts
from bccnd.dndm.asking import EFFECTS, KINDS, Asking, Kind
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm.routes import parse


@pytest.mark.parametrize("kind", KINDS)
def test_one_peer_takes_from_others_no_more_than_its_share(kind: Kind) -> None:
    """A daemon with room for six channels: three routes and their twins."""
    adverts = Adverts(64, Alarm())
    asking, (begin, end) = Asking(adverts, kind), EFFECTS[kind]
    held: set[str] = set()

    def do(effects: list[object]) -> None:
        while effects:
            match effects.pop(0):
                case begin(channel) if len(held) >= 6:
                    effects += asking.crowded(channel)[1]
                case begin(channel):
                    held.add(channel)
                case end(channel):
                    held.discard(channel)

    for number, link in enumerate([1] * 20 + [2] * 2):
        route = f"T@{link}.{number}"
        adverts.put(link, Advert(parse(route), 0, 0.0), 0.0)
        do(list(asking.update(route)))
    assert len([channel for channel in held if "dndm/2/" in channel]) in (2, 4)
    assert len(held) == 6
    for route in adverts.drop_link(1):
        do(list(asking.update(route)))
    assert sorted(held) == ["dndm/2/20/T", "dndm/2/21/T", "local/dndm/2/20/T", "local/dndm/2/21/T"]
    assert asking.waiting == 0
