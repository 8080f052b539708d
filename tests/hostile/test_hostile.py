"""Each hostile behaviour beside a bystander, and the judge itself beside behaviours that do harm."""

import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.hostile.attack import Attack
from tests.hostile.behaviour import Behaviour, behaviours
from tests.hostile.judge import GIVES_UP, judge
from tests.hostile.known import KNOWN

ALL = behaviours()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        wanted = [
            name for name, each in ALL.items() if each.suite or metafunc.config.getoption("hostile") == "all"
        ]
        metafunc.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in wanted], ids=str)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.needs(*ALL[name].needs)] if ALL[name].needs else []


def test_nobody_else_pays(name: str, record_property: Callable[[str, object], None]) -> None:
    outcome, known = judge(ALL[name]), KNOWN.get(name)
    if outcome.faults and known is None:
        # A machine that stood still for a moment does so once, and harm is done each time.
        outcome = judge(ALL[name])
    record_property("outcome", str(outcome))
    if known is None:
        assert not outcome.faults, outcome
    else:
        assert len(outcome.faults) == 1, outcome
        assert re.fullmatch(known, outcome.faults[0]), outcome


def test_a_hundred_behaviours_of_which_a_quarter_is_run() -> None:
    suite = Counter(each.group for each in ALL.values() if each.suite)
    assert len(ALL) >= 100
    assert 25 <= suite.total() <= len(ALL) // 4
    assert suite.keys() == {each.group for each in ALL.values()}
    assert KNOWN.keys() <= ALL.keys()


def harmful(act: "object", **bounds: object) -> Behaviour:
    return replace(Behaviour("for the judge", "none", act), **bounds)  # type: ignore[arg-type]


def nothing(attack: Attack) -> None:
    attack.rest()


def kill(attack: Attack) -> None:
    attack.daemon.process.kill()
    attack.daemon.process.wait()


def stop(attack: Attack) -> None:
    attack.daemon.process.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize(
    ("behaviour", "gives_up", "faults"),
    [
        (harmful(nothing), GIVES_UP, []),
        (harmful(nothing, memory=-1, lines=1), GIVES_UP, ["more memory", "lines in the log"]),
        (harmful(nothing, settings="[queue]\npackets = 1\n", pause=0.8), GIVES_UP, ["the bystander lost"]),
        (harmful(kill), GIVES_UP, ["a newcomer", "connection was closed", "has died"]),
        (harmful(stop), 1.0, ["a newcomer", "late", "has not ended"]),
    ],
    ids=["nothing", "what-it-keeps-and-logs", "loss", "death", "standstill"],
)
def test_the_judge_sees(behaviour: Behaviour, gives_up: float, faults: list[str]) -> None:
    found = judge(behaviour, gives_up=gives_up).faults
    assert len(found) == len(faults), found
    assert all(part in fault for part, fault in zip(faults, found, strict=True)), found
