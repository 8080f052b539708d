"""Places that run out: who gets one, for how long, and who is chosen among them."""

import random
from collections import Counter
from itertools import count

from bccnd.backbone.leases import LEASE_SECONDS, Leases, Places
from tests.backbone.packets import at

A, B, C = at("10.0.0.1:1"), at("10.0.0.1:2"), at("10.0.0.2:1")


def leases(total: int = 100, network: int = 100, address: int = 100) -> Leases:
    return Leases(Places(total, network, address))


def test_the_version_changes_with_who_is_there() -> None:
    table = leases()
    versions = [table.version]
    table.keep(A, 0.0, journals=True)
    versions.append(table.version)
    table.keep(A, 1.0, journals=False)
    assert table.version == versions[-1]
    table.keep(B, 1.0, journals=False)
    versions.append(table.version)
    table.expire(1.0 + LEASE_SECONDS)
    versions.append(table.version)
    assert len(set(versions)) == len(versions)


def test_places_come_back_when_they_run_out() -> None:
    for places in ((1, 9, 9), (9, 1, 9), (9, 9, 1)):
        table = leases(*places)
        assert table.keep(A, 0.0, journals=True)
        assert not table.keep(B, 4.0, journals=True)
        table.expire(LEASE_SECONDS)
        assert table.keep(B, LEASE_SECONDS, journals=True)
        assert list(table.addresses) == [B]
        table.expire(2 * LEASE_SECONDS)
        assert not table._held


def test_an_address_of_another_network_has_its_own_places() -> None:
    table = leases(9, 2, 9)
    kept = [table.keep(at(f"10.0.{n % 2}.{n}:1"), 0.0, journals=True) for n in range(6)]
    assert kept == [True, True, True, True, False, False]


def test_each_is_as_likely_as_any_other() -> None:
    """Every number that chance can give leads to one of them, each to another."""
    table = leases()
    everybody = [at(f"10.0.0.{n}:1") for n in range(6)]
    for each in everybody:
        table.keep(each, 0.0, journals=True)
    for passed_over in ([], [everybody[0]], [everybody[5], everybody[2]], [everybody[1], A]):
        left = [each for each in everybody if each not in passed_over]
        turn = count()
        found = [table.choose(passed_over, lambda below: next(turn) % below) for _ in left]  # noqa: B023 - at once
        assert Counter(found) == Counter(left)
    assert table.choose(everybody, lambda below: below) is None


def test_an_address_with_many_places_is_chosen_no_more_often() -> None:
    table = leases()
    for port in range(1, 65):
        table.keep(at(f"10.0.0.1:{port}"), 0.0, journals=True)
    for each in (C, at("10.0.0.3:1")):
        table.keep(each, 0.0, journals=True)
    assert table.journalling == 66
    chance = random.Random(1).randrange
    found = [table.choose([at("10.0.0.3:1")], chance) for _ in range(2000)]
    assert 900 < found.count(C) < 1100
    assert len(set(found)) == 65
    assert table.choose([at("10.0.0.3:1"), C], lambda _below: 0) == A
    for port in range(1, 65):
        table.keep(at(f"10.0.0.1:{port}"), 1.0, journals=False)
    assert {table.choose([], chance) for _ in range(50)} == {C, at("10.0.0.3:1")}
    assert table.journalling == 2


def test_a_successor_with_fewer_places_sends_nobody_away() -> None:
    old, new = leases(), leases(total=1)
    for each in (A, B, C):
        assert old.keep(each, 0.0, journals=True)
    new.restore(old.state())
    assert list(new.addresses) == [A, B, C]
    assert new.keep(C, 1.0, journals=True)
    assert not new.keep(at("10.0.0.3:1"), 1.0, journals=True)
    new.expire(1.0 + LEASE_SECONDS)
    assert not new._held


def test_who_leaves_is_chosen_no_more() -> None:
    table = leases()
    for at_second, each in enumerate((A, B, C)):
        table.keep(each, float(at_second), journals=True)
    table.keep(B, 2.0, journals=False)
    assert table.journalling == 2
    table.expire(LEASE_SECONDS)
    assert table.choose((), lambda below: below - 1) == C
    assert table.journalling == 1
    assert A not in table
    assert B in table
    assert len(table) == 2
