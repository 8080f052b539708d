"""Makes a failing history small: fewer hosts and uplinks, fewer things that go wrong, fewer messages, less network.

    shrink(scenario, fails) -> the smallest scenario found that still breaks the same rule

Rules
- Delta debugging over the elements: halves of them are left out, then quarters, down to single ones, as long as the
  rule still breaks. Then uplinks, hosts, strangers and liars; then each number is made smaller.
- It begins anew until nothing more can be left out, or TRIES histories were run.
- What is left out changes the fate of nothing else: see ``network``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, fields, replace
from typing import Any, TypeVar

from tests.simulation.invariants import Broken
from tests.simulation.scenario import (
    Burst,
    Element,
    HostPlan,
    NetworkPlan,
    Scenario,
    StrangerSpeaks,
    UplinkPlan,
)

# Histories that are run to shrink one: some seconds.
TRIES = 600
# Other dice that are tried where those of the seed need many messages.
DICE = range(1, 6)
# Shares of datagrams, and one with which few are enough.
SHARES, EASY = ("loss", "uplink_loss", "late", "doubled"), 0.5
# What says which it is and where, and stays.
PLACES = ("number", "host", "segment", "backbone")

T = TypeVar("T")

# What a rule is broken by in a scenario; None when all hold.
Fails = Callable[[Scenario], Broken | None]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """``scenario`` itself must fail."""
    broken = fails(scenario)
    assert broken is not None
    return _Shrinking(scenario, broken.rule, fails).smallest()


class _Shrinking:
    def __init__(self, scenario: Scenario, rule: str, fails: Fails) -> None:
        self._best = scenario
        self._rule = rule
        self._fails = fails
        self._tries = 0

    def smallest(self) -> Scenario:
        before = None
        while before != self._best and self._tries < TRIES:
            before = self._best
            self._leave_out_elements()
            for number in [uplink.number for uplink in self._best.uplinks]:
                self._try(self._best.without_uplink(number))
            for number in [host.number for host in self._best.hosts]:
                self._try(self._best.without_host(number))
            for simpler in self._simpler():
                self._try(simpler)
        return self._best

    def _try(self, scenario: Scenario) -> bool:
        """Whether it breaks the rule as well; then it is the best so far."""
        if scenario == self._best or not scenario.hosts or self._tries >= TRIES:
            return False
        self._tries += 1
        broken = self._fails(scenario)
        if broken is None or broken.rule != self._rule:
            return False
        self._best = scenario
        return True

    def _leave_out_elements(self) -> None:
        parts = 2
        while parts <= 2 * len(self._best.elements) and self._tries < TRIES:
            size = max(1, len(self._best.elements) // parts)
            left_out = False
            at = 0
            while at < len(self._best.elements):
                rest = self._best.elements[:at] + self._best.elements[at + size :]
                if self._try(replace(self._best, elements=rest)):
                    left_out = True
                else:
                    at += size
            if size == 1 and not left_out:
                return
            if not left_out or size > 1:
                parts *= 2

    def _simpler(self) -> Iterator[Scenario]:
        """The best so far with one thing made simpler; what is tried next goes on from what was found."""
        for name in ("strangers", "liars"):
            for each in getattr(self._best, name):
                yield _without(self._best, name, each.number)
        if self._best.key:
            yield replace(self._best, key=False)
        for name in ("network", "lines"):
            for field in fields(NetworkPlan):
                for value in _simpler_values(field, getattr(self._best, name)):
                    simpler = replace(getattr(self._best, name), **{field.name: value})
                    yield replace(self._best, **{name: simpler})
        yield from self._plainer("hosts", HostPlan)
        yield from self._plainer("uplinks", UplinkPlan)
        for each in self._best.elements:
            if isinstance(each, Burst | StrangerSpeaks):
                yield from self._fewer(each)

    def _plainer(self, name: str, kind: type[HostPlan] | type[UplinkPlan]) -> Iterator[Scenario]:
        """With each field of each plan as it is by default, but for where it is."""
        for number in [each.number for each in getattr(self._best, name)]:
            for field in fields(kind):
                plan = next(each for each in getattr(self._best, name) if each.number == number)
                for value in () if field.name in PLACES else _simpler_values(field, plan):
                    plans = _with(getattr(self._best, name), plan, replace(plan, **{field.name: value}))
                    yield replace(self._best, **{name: plans})

    def _fewer(self, burst: Burst | StrangerSpeaks) -> Iterator[Scenario]:
        """With fewer messages: half of them again and again, then one less; with the dice as they are, or others."""
        for fewer in (lambda count: count // 2, lambda count: count - 1):
            while burst in self._best.elements and (count := fewer(burst.count)):
                shorter = replace(burst, count=count, until=burst.at + burst.gap * (count - 1))
                elements = _with(self._best.elements, burst, shorter)
                for dice in (self._best.dice, *DICE):
                    yield replace(self._best, elements=elements, dice=dice)
                    if shorter in self._best.elements:
                        break
                if shorter not in self._best.elements:
                    break
                burst = shorter


def _simpler_values(field: Field[Any], plan: NetworkPlan | HostPlan | UplinkPlan) -> tuple[Any, ...]:
    """What to try in place of a value: the usual one; else, of a share, one that takes few messages to show."""
    value = getattr(plan, field.name)
    if value == field.default:
        return ()
    is_share = field.name in SHARES and value < EASY
    return (field.default, EASY) if is_share else (field.default,)


def _with(those: Sequence[T], old: T, new: T) -> tuple[T, ...]:
    return tuple(new if each == old else each for each in those)


def _without(scenario: Scenario, name: str, number: int) -> Scenario:
    """Without a stranger or a liar, and what it says."""

    def says(each: Element) -> bool:
        return getattr(each, name[:-1], None) == number

    rest = tuple(each for each in getattr(scenario, name) if each.number != number)
    elements = tuple(each for each in scenario.elements if not says(each))
    return replace(scenario, elements=elements, **{name: rest})
