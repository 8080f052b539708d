"""The bound that ``fuzz_relay_cost.py`` holds the relay to: it is reached by what is known, and counted alike."""

import pytest

from bccnd.relay import effects
from tests.fuzz import fuzz_relay, fuzz_relay_cost
from tests.fuzz.fuzz_relay_cost import KNOWN, SOURCES, CostlyError, Crowd, Known, cost_of_example
from tests.fuzz.steps import Steps


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.reason)
def test_what_is_known_still_costs_too_much(known: Known) -> None:
    """Once it does not, its line in KNOWN goes."""
    with pytest.raises(CostlyError):
        cost_of_example(known)


def test_the_same_input_costs_the_same() -> None:
    def cost() -> int:
        client = (crowd := Crowd(crowded=True)).bus.connect()
        return crowd.judge("", lambda: client.say(b"SUB a", b"MSG a\0x", b"CMSG clients"), [b"x" * 100])

    assert cost() == cost() > 100


def test_a_look_at_everybody_is_noticed() -> None:
    crowd = Crowd(crowded=True)
    relay = crowd.bus.relay
    with pytest.raises(CostlyError, match="at most"):
        crowd.judge("all", lambda: [relay.is_backlogged() for _ in range(SOURCES)], [b"SUB z*"])


def test_deliveries_are_paid_for_by_their_number() -> None:
    """Twenty subscribers make a message dearer by what is allowed for each, and no more."""
    crowd = Crowd(crowded=False)
    for _ in range(20):
        crowd.bus.connect(b"SUB a")
    publisher = crowd.bus.connect()
    crowd.judge("fan-out", lambda: publisher.say(b"MSG a\0x"), [b"MSG a\0x"])


def test_steps_are_lines_of_the_relay_alone() -> None:
    steps = Steps()
    with steps.counting():
        sum(number for number in range(1000))
    assert steps.count == 0


def test_the_seeds_fill_the_region_for_datagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: set[int] = set()
    seal = effects.Outgoing.seal

    def sealing(outgoing: effects.Outgoing, *arguments: object) -> effects.Sealed:
        sealed = seal(outgoing, *arguments)  # type: ignore[arg-type]
        rooms.add(outgoing.room)
        return sealed

    monkeypatch.setattr(effects.Outgoing, "seal", sealing)
    for seed in fuzz_relay.seeds():
        fuzz_relay.one_input(seed)
    assert rooms >= {0, fuzz_relay.SEALED_LIMIT - 1}
    assert effects.SEALED_LIMIT == 1024


def test_the_seeds_of_the_cost_are_judged() -> None:
    for seed in fuzz_relay_cost.seeds():
        fuzz_relay_cost.one_input(seed)
