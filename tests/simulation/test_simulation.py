"""Whole segments in virtual time: hundreds of histories; and the simulation itself, which finds what is wrong."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bccnd.relay.core import Relay
from bccnd.relay.dedup import Sources
from bccnd.relay.moment import Moment
from bccnd.uplink.inbound import Inbound, Link
from bccnd.wire.verdict import Verdict
from tests.simulation.__main__ import broken_seeds, fails, main, tell, told_short
from tests.simulation.drawing import Kind, draw
from tests.simulation.host import Sockets
from tests.simulation.lines import BackboneProgram
from tests.simulation.measure import measure, requests_for_shared
from tests.simulation.network import Network
from tests.simulation.scenario import (
    Burst,
    HostPlan,
    Kill,
    NetworkPlan,
    Scenario,
    Stop,
    StrangerSpeaks,
)
from tests.simulation.shrink import shrink
from tests.simulation.world import World

HISTORIES, LINKED, PARTS = 500, 40, 4
PART = HISTORIES // PARTS
# A restarted daemon gives again what was carried; a message that has no room to wait comes after all.
RINGS = 22, 22006, 21190
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("first", range(0, HISTORIES, PART))
def test_every_rule_holds_in_every_history(first: int):
    found = broken_seeds(range(first, first + PART))
    assert not found, told_short(found[0][0])


@pytest.mark.parametrize("first", range(0, LINKED, LINKED // 2))
def test_every_rule_holds_between_segments(first: int):
    found = broken_seeds(range(first, first + LINKED // 2), "links")
    assert not found, told_short(found[0][0], "links")


@pytest.mark.parametrize("seed", RINGS)
def test_every_rule_holds_in_a_ring(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["simulation", "--rings", "--seed", str(seed), "--shrink"])
    assert main() == 0, capsys.readouterr().out


def test_what_a_common_network_loses_is_repaired():
    lost = sent = 0
    for loss, sources, rate in ((0.01, 2, 1000), (0.05, 1, 1000), (0.05, 10, 1000), (0.02, 1, 10_000)):
        found = measure(hosts=3, sources=sources, rate=rate, loss=loss, messages=2000)
        lost, sent = lost + found.lost, sent + found.sent
    assert sent == 4 * 2 * 2000
    assert lost <= sent // 10_000


@pytest.mark.parametrize(
    ("sources", "rate", "loss", "most"),
    [(1, 10_000, 0.05, 0.04), (1, 10_000, 0.2, 0.1), (10, 1000, 0.2, 0.07)],
)
def test_what_is_missing_longest_is_asked_for_first(sources: int, rate: float, loss: float, most: float):
    """However few requests there may be. Seconds of virtual time, which are the same each time."""
    found = measure(hosts=3, sources=sources, rate=rate, loss=loss, messages=3000)
    assert found.lost <= found.sent // 1000
    assert found.delay(0.99) <= most


def test_few_ask_for_a_loss_that_all_share():
    assert median(requests_for_shared(hosts=64, seed=seed) for seed in range(7)) <= 2


def test_without_loss_nobody_asks():
    found = measure(hosts=3, sources=2, rate=1000, loss=0.0, messages=1000)
    assert found.lost == 0
    assert not found.counts["repair/resend"]
    assert not found.counts["again"]
    assert found.delay(1.0) < 1e-5  # what sending takes


# -- what is drawn


def test_the_histories_have_all_there_is():
    scenarios = [draw(seed) for seed in range(HISTORIES)]
    kinds = {type(each).__name__ for scenario in scenarios for each in scenario.elements}
    assert kinds == {
        *("Burst", "StrangerSpeaks", "Cut", "OneWay", "BadSpell", "Busy"),
        *("Stuck", "Stop", "Kill", "Replace", "Reload", "Lie"),
    }
    sizes = {len(scenario.hosts) for scenario in scenarios}
    assert min(sizes) == 2
    assert max(sizes) > 50


def test_the_linked_histories_have_all_there_is():
    scenarios = [draw(seed, "links") for seed in range(LINKED)]
    kinds = {type(each).__name__ for scenario in scenarios for each in scenario.elements}
    assert kinds >= {"CutLine", "StopUplink", "KillUplink", "KillBackbone", "ReplaceBackbone", "Stop", "Kill"}
    places = {
        (len({host.segment for host in each.hosts}), len({plan.backbone for plan in each.uplinks}))
        for each in scenarios
    }
    assert places == {(2, 1), (3, 1), (3, 2), (3, 3)}
    assert any(plan.exports != (">",) for each in scenarios for plan in each.uplinks)


def test_a_ring_has_each_uplink_twice():
    for seed in range(20):
        scenario = draw(seed, "rings")
        segments = {host.number: host.segment for host in scenario.hosts}
        ends = Counter((segments[plan.host], plan.backbone) for plan in scenario.uplinks)
        assert ends == dict.fromkeys(((0, 0), (0, 1), (1, 1), (1, 2), (2, 0), (2, 2)), 2)


def test_a_scenario_has_one_history():
    lines = [*tell(draw(17)), *tell(draw(1, "links"))]
    assert lines == [*tell(draw(17)), *tell(draw(1, "links"))]
    code = "from tests.simulation.__main__ import tell; from tests.simulation.drawing import draw\n"
    code += r"print('\n'.join([*tell(draw(17)), *tell(draw(1, 'links'))]))"
    for hash_seed in ("1", "2"):
        elsewhere = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert elsewhere.stdout.splitlines() == lines


def test_what_is_left_out_changes_nothing_for_the_rest():
    plans = tuple(HostPlan(number, repairs=False, loss=0.3) for number in range(4))
    bursts = [Burst(0.1 + 0.01 * at, 0.1 + 0.01 * at, at % 2, 0, 5, 0.0) for at in range(20)]
    whole = Scenario(5, plans, NetworkPlan(jitter=0.001), tuple(bursts))
    part = replace(whole, elements=tuple(each for each in bursts if each.host == 1)).without_host(0)
    fates = []
    for scenario in (whole, part):
        world = World(scenario)
        world.run()
        publisher = next(each for _, each in world.hosts[1].programs.values())
        fates.append([got[1] for got in world.hosts[2].witness.got if got[0] == publisher.number])
    assert fates[0] == fates[1]
    assert 0 < len(fates[0]) < 50


# -- what is wrong is found, and told in a few lines


def first_broken(rule: str, kind: Kind = "segment", seeds: range = range(300)) -> int:
    """The first seed whose history breaks the rule, and no history before it another one."""
    for seed in seeds:
        if broken := fails(draw(seed, kind)):
            assert broken.rule == rule
            return seed
    raise AssertionError(f"nothing breaks the rule {rule!r}")


def test_a_relay_that_delivers_copies_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch):
    behind = Sources._behind

    def forgetful(self: Sources, *arguments: Any) -> Verdict | None:
        verdict = behind(self, *arguments)
        return Verdict.OK if verdict is Verdict.DUPLICATE else verdict

    monkeypatch.setattr(Sources, "_behind", forgetful)
    seed = first_broken("once")
    smallest = shrink(draw(seed), fails)
    assert len(smallest.hosts) == 2
    assert len(smallest.elements) <= 2
    story = told_short(seed)
    assert "a second time" in story
    assert f"--seed {seed} --shrink" in story
    assert len(story.splitlines()) < 15


def test_a_relay_that_counts_no_losses_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sources, "_leave_out", lambda *_: None)
    smallest = shrink(draw(first_broken("account")), fails)
    assert len(smallest.hosts) + len(smallest.strangers) == 2
    assert sum(each.count for each in smallest.elements if isinstance(each, Burst | StrangerSpeaks)) <= 6


def test_a_client_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch):
    each, taken = Sockets.send_each, [0]

    def send_each(self: Sockets, port: int, packets: list[bytes]) -> int:
        taken[0] += 1
        return len(packets) if taken[0] % 100 == 0 else each(self, port, packets)

    monkeypatch.setattr(Sockets, "send_each", send_each)
    assert any(fails(draw(seed)) for seed in range(20))


def test_a_relay_that_never_rests_is_found(monkeypatch: pytest.MonkeyPatch):
    on_deadline = Relay.on_deadline

    def restless(self: Relay, moment: Moment) -> None:
        on_deadline(self, moment)
        self._publisher.say(self.state.own, b"a", b"still here", moment)
        self.alarm.due = moment.monotonic + 0.1

    monkeypatch.setattr(Relay, "on_deadline", restless)
    assert first_broken("quiet", seeds=range(5)) == 0


def test_a_relay_that_is_always_due_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Relay, "on_deadline", lambda *_: None)
    assert first_broken("spins", seeds=range(5)) == 0


def test_a_network_that_disorders_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sources, "observe_run", lambda *arguments: (Verdict.OK, arguments[3]))
    assert any((broken := fails(draw(seed))) and broken.rule in {"order", "once"} for seed in range(20))


def test_a_backbone_that_repeats_numbers_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        BackboneProgram, "_reserve", lambda self: setattr(self._core.numbers, "bound", 1 << 40)
    )
    seed = first_broken("number", "links")
    smallest = shrink(draw(seed, "links"), fails)
    assert len(smallest.uplinks) == 1
    assert len(smallest.elements) <= 2
    story = told_short(seed, "links")
    assert "a second time" in story
    assert f"--seed {seed} --shrink --links" in story
    assert len(story.splitlines()) < 50


def test_an_uplink_that_counts_no_losses_is_found(monkeypatch: pytest.MonkeyPatch):
    def skip_to(_: Inbound, link: Link, number: int) -> None:
        link.next = max(link.next, number)

    monkeypatch.setattr(Inbound, "_skip_to", skip_to)
    assert first_broken("told", "links") >= 0


def test_the_network_loses_what_the_scenario_says():
    plans = HostPlan(0), HostPlan(1, repairs=False, loss=0.2), HostPlan(2, repairs=False)
    burst = Burst(0.1, 2.1, 0, 0, 2000, 0.001)
    world = World(Scenario(1, plans, NetworkPlan(), (burst,)))
    world.run()
    assert len(world.hosts[2].witness.got) == 2000
    assert 0.17 < 1 - len(world.hosts[1].witness.got) / 2000 < 0.23


def test_a_host_that_starts_again_hears_and_repairs():
    for ends in (Stop, Kill):
        bursts = [Burst(at / 10, at / 10 + 0.049, 0, 0, 50, 0.001) for at in range(1, 20)]
        plans = HostPlan(0), HostPlan(1, loss=0.1)
        end = ends(0.5, 0.7, 1)
        world = World(Scenario(3, plans, NetworkPlan(), (*bursts, end), heartbeat=1))
        world.run()
        heard = {index for _, index, when in world.hosts[1].witness.got if when > 1.2}
        assert set(range(600, 950)) <= heard


def test_a_full_buffer_loses_the_newest():
    plans = HostPlan(0, repairs=False), HostPlan(1, repairs=False, buffer=10, wakes=0.01)
    world = World(Scenario(1, plans, NetworkPlan(), (Burst(0.1, 0.1, 0, 0, 64, 0.0),)))
    world.run()
    assert [index for _, index, _ in world.hosts[1].witness.got] == list(range(10))
    assert world.hosts[1].overflowed == 54
    assert isinstance(world.network, Network)
