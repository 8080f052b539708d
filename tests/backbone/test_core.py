"""What the backbone decides, clause by clause of ``bccnd/wire/FYREHOSE.md``."""

import random
from collections import Counter
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.backbone import core
from bccnd.backbone.core import DROPPED, Networks
from bccnd.backbone.leases import LEASE_SECONDS, Places
from bccnd.wire.fyrehose import (
    NOJOURNAL,
    NOSUBSCRIBE,
    SEQ_LIMIT,
    Ack,
    Deliver,
    Forward,
    Push,
    token_of,
)
from tests.backbone.packets import TOKEN, Desk, at, keepalive, networks, request
from tests.documents import coded, rows, section
from tests.golden import entries

A, B, C = at("10.0.0.1:1001"), at("10.0.0.2:1002"), at("10.0.1.3:1003")
KEY = b"sixteen bytes or more"
PUSH = Push(b"hello").serialize()


# --- KEEPALIVE ---


@pytest.mark.parametrize("flags", [0, NOSUBSCRIBE, NOJOURNAL, NOSUBSCRIBE | NOJOURNAL, SEQ_LIMIT - 1])
def test_each_keepalive_is_acknowledged_to_its_source(flags: int) -> None:
    desk = Desk()
    assert desk.receive((keepalive(flags), A)) == ([], [(Ack(TOKEN), A)])
    assert desk.subscribers() == (set() if flags & NOSUBSCRIBE else {A})


def test_unknown_flags_are_ignored() -> None:
    desk = Desk()
    desk.receive((keepalive(SEQ_LIMIT - 1 - NOSUBSCRIBE), A))
    assert desk.subscribers() == {A}


def test_a_subscriber_is_one_for_five_seconds() -> None:
    desk = Desk()
    desk.receive((keepalive(), A))
    desk.pass_by(LEASE_SECONDS - 0.001)
    # That takes nothing from it: anybody might send that in its name.
    desk.receive((keepalive(NOSUBSCRIBE), A))
    desk.receive((PUSH, B))
    assert desk.subscribers() == {A}
    desk.pass_by(0.001)
    desk.receive((PUSH, B))
    assert desk.subscribers() == set()


def test_each_keepalive_begins_the_five_seconds_again() -> None:
    desk = Desk()
    for _ in range(10):
        desk.receive((keepalive(), A))
        desk.pass_by(LEASE_SECONDS - 0.5)
        desk.core.expire(desk.now)
        assert desk.subscribers() == {A}


@pytest.mark.parametrize("address", [at("0.0.0.0:0"), A, (A[0], 0), (bytes(4), A[1])])
def test_an_address_may_be_zero_or_that_of_its_sender(address: tuple[bytes, int]) -> None:
    desk = Desk()
    desk.receive((keepalive(address=address), A))
    assert desk.subscribers() == {A}
    assert not desk.dropped()


@pytest.mark.parametrize("address", [B, (A[0], 7), (bytes(4), 7), (B[0], 0), (B[0], A[1])])
def test_a_forged_address_aims_traffic_at_nobody(address: tuple[bytes, int]) -> None:
    desk = Desk()
    desk.receive((keepalive(), C))
    _, replies = desk.receive((keepalive(address=address), A), (request(1, 2, address), A))
    assert replies == [(Ack(TOKEN), A)]
    assert desk.subscribers() == {C}
    assert desk.dropped() == {"redirect": 2}


def test_a_trusted_network_may_name_another_address() -> None:
    desk = Desk(redirect=networks("10.0.0.0/24"))
    _, replies = desk.receive((keepalive(address=C), A), (request(1, 2, B), A), (keepalive(address=B), C))
    assert replies == [(Ack(TOKEN), A), (Forward(B, 1, 2), C), (Ack(TOKEN), C)]
    assert desk.subscribers() == {C}


def test_a_flood_of_forged_keepalives_takes_bounded_places() -> None:
    desk = Desk(places=Places(40, 20, 3))
    forged = [(keepalive(), at(f"10.0.{n % 7}.{n % 11}:{n + 1}")) for n in range(2000)]
    desk.receive(*forged)
    assert len(desk.subscribers()) == 40
    assert max(Counter(addr[:3] for addr, _ in desk.subscribers()).values()) <= 20
    assert max(Counter(addr for addr, _ in desk.subscribers()).values()) <= 3
    assert desk.dropped() == {"place": 1960}


def test_who_has_a_place_keeps_it_in_a_flood() -> None:
    desk = Desk(places=Places(4, 4, 4))
    desk.receive((keepalive(), A))
    for n in range(20):
        desk.receive(*((keepalive(), at(f"10.9.{n}.{m}:5")) for m in range(50)), (keepalive(), A))
        desk.pass_by(1.0)
        assert A in desk.subscribers()


# --- PUSH ---


def test_numbers_begin_at_one_and_follow_each_other() -> None:
    desk = Desk()
    delivered, replies = desk.receive(*[(Push(b"%d" % n).serialize(), A) for n in range(5)])
    assert delivered == [Deliver(n + 1, b"%d" % n) for n in range(5)]
    assert not replies
    assert desk.receive((PUSH, B))[0] == [Deliver(6, b"hello")]


def test_a_push_is_taken_from_strangers() -> None:
    desk = Desk()
    assert desk.receive((PUSH, A))[0] == [Deliver(1, b"hello")]


@pytest.mark.parametrize("flags", [0, NOSUBSCRIBE])
def test_a_setting_forbids_strangers(flags: int) -> None:
    desk = Desk(strangers=False)
    assert desk.receive((PUSH, A), (keepalive(), B), (request(1, 1), A)) == ([], [(Ack(TOKEN), B)])
    assert desk.dropped() == {"stranger": 2}
    assert desk.receive((keepalive(flags), A), (PUSH, A))[0] == [Deliver(1, b"hello")]
    desk.pass_by(LEASE_SECONDS)
    assert desk.receive((PUSH, A)) == ([], [])


def test_a_push_without_a_number_is_dropped() -> None:
    desk = Desk()
    desk.core.numbers.bound = 3
    delivered, _ = desk.receive(*[(PUSH, A)] * 5)
    assert delivered == [Deliver(1, b"hello"), Deliver(2, b"hello")]
    assert desk.dropped() == {"number": 3}
    desk.core.numbers.bound = 4
    assert desk.receive((PUSH, A))[0] == [Deliver(3, b"hello")]


# --- REQUEST ---


def test_a_request_goes_to_one_that_journals() -> None:
    desk = Desk()
    desk.receive((keepalive(), A), (keepalive(), B), (keepalive(NOJOURNAL), C))
    for _ in range(20):
        assert desk.receive((request(3, 9), A)) == ([], [(Forward(A, 3, 9), B)])


def test_each_that_journals_is_chosen_but_the_requester() -> None:
    desk = Desk(random.Random(7).randrange)
    others = [at(f"10.0.3.{n}:9") for n in range(1, 6)]
    desk.receive(*((keepalive(), each) for each in [A, *others]))
    chosen = Counter(desk.receive((request(1, 1), A))[1][0][1] for _ in range(500))
    assert set(chosen) == set(others)
    assert min(chosen.values()) > 50


def test_nobody_who_keeps_anything_is_silence_and_a_count() -> None:
    desk = Desk()
    desk.receive((keepalive(), A), (keepalive(NOJOURNAL), B), (keepalive(NOSUBSCRIBE), C))
    assert desk.receive((request(1, 1), A)) == ([], [])
    assert desk.dropped() == {"nobody": 1}


def test_nojournal_holds_from_the_last_keepalive_on() -> None:
    desk = Desk()
    desk.receive((keepalive(), A), (keepalive(NOJOURNAL), A))
    assert desk.receive((request(1, 1), B)) == ([], [])
    desk.receive((keepalive(), A))
    assert desk.receive((request(1, 1), B)) == ([], [(Forward(B, 1, 1), A)])


def test_the_range_of_a_request_is_bounded() -> None:
    desk = Desk(range=10)
    desk.receive((keepalive(), A))
    _, replies = desk.receive((request(5, SEQ_LIMIT - 1), B), (request(5, 14), B), (request(5, 13), B))
    assert [packet for packet, _ in replies] == [Forward(B, 5, 14), Forward(B, 5, 14), Forward(B, 5, 13)]


def test_requests_of_an_address_are_bounded() -> None:
    desk = Desk(requests=3)
    desk.receive((keepalive(), A))
    other_port = (B[0], 9)
    _, replies = desk.receive(*[(request(1, 1), B), (request(1, 1), other_port)] * 4, (request(1, 1), C))
    assert [packet.address for packet, _ in replies] == [B, other_port, B, C]  # type: ignore[union-attr]
    assert desk.dropped() == {"hurry": 5}
    desk.pass_by(1.0)
    assert len(desk.receive((request(1, 1), B))[1]) == 1


def test_numbers_that_an_address_asks_for_are_bounded() -> None:
    """Whatever others ask for in the name of a victim, it is sent no more."""
    desk = Desk(numbers=100, range=40)
    desk.receive((keepalive(), A))
    asked = [(request(1, 1000), B), (request(1, 1000), (B[0], 9)), (request(1, 1000), B), (request(1, 1), B)]
    _, replies = desk.receive(*asked, (request(1, 1), C))
    assert [packet for packet, _ in replies] == [
        Forward(B, 1, 40), Forward((B[0], 9), 1, 40), Forward(B, 1, 20), Forward(C, 1, 1),
    ]  # fmt: skip
    assert desk.dropped() == {"hurry": 1}
    desk.pass_by(1.0)
    assert len(desk.receive((request(1, 40), B))[1]) == 1


def test_messages_of_an_address_may_be_bounded() -> None:
    desk, push = Desk(pushes=5), Push(b"x").serialize()
    delivered, _ = desk.receive(*[(push, B)] * 4, *[(push, (B[0], 9))] * 4, (push, C))
    assert [each.seq for each in delivered] == [1, 2, 3, 4, 5, 6]  # type: ignore[union-attr]
    assert desk.dropped() == {"hurry": 3}
    desk.pass_by(1.0)
    assert len(desk.receive(*[(push, B)] * 9)[0]) == 5


def test_forged_requesters_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "ASKERS_LIMIT", 10)
    desk = Desk()
    desk.receive((keepalive(), A))
    _, replies = desk.receive(*((request(1, 1), at(f"10.5.0.{n}:5")) for n in range(50)))
    assert len(replies) == len(desk.core._asked) == 10
    assert desk.dropped() == {"hurry": 40}


def test_forged_requesters_shut_out_nobody_with_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "ASKERS_LIMIT", 10)
    desk = Desk(requests=2)
    desk.receive((keepalive(), A), (keepalive(), B), (keepalive(NOSUBSCRIBE), C))
    desk.receive(*((request(1, 1), at(f"10.5.0.{n}:5")) for n in range(50)))
    _, replies = desk.receive(*[(request(1, 1), B), (request(1, 1), C)] * 4)
    assert [packet.address for packet, _ in replies] == [B, C, B, C]  # type: ignore[union-attr]


# --- rights, keys ---


def test_rights_are_given_to_networks() -> None:
    inside = networks("10.0.0.0/24")
    desk = Desk(publish=inside, subscribe=inside, request=inside)
    for address, taken in (A, True), (C, False):
        delivered, replies = desk.receive((keepalive(), address), (PUSH, address))
        assert bool(delivered) is taken
        assert replies == [(Ack(TOKEN), address)]
        assert (address in desk.subscribers()) is taken
    assert desk.receive((request(1, 1), B), (request(1, 1), C))[1] == [(Forward(B, 1, 1), A)]
    assert desk.dropped() == {"right": 3}


def test_who_may_not_subscribe_is_no_stranger() -> None:
    """A KEEPALIVE without NOSUBSCRIBE, where only the right to publish and to ask is given."""
    desk = Desk(strangers=False, subscribe=networks("10.0.0.0/24"))
    desk.receive((keepalive(), A), (keepalive(), C))
    assert desk.receive((PUSH, C), (request(1, 1), C)) == ([Deliver(1, b"hello")], [(Forward(C, 1, 1), A)])
    assert desk.subscribers() == {A}
    assert desk.dropped() == {"right": 1}


def test_networks_are_told_apart_by_their_masks() -> None:
    few = Networks(map(IPv4Network, ("10.1.0.0/16", "192.168.7.9/32")))
    assert [ip for ip in ("10.1.2.3", "10.2.0.1", "192.168.7.9", "192.168.7.8") if at(f"{ip}:0")[0] in few] == [
        "10.1.2.3", "192.168.7.9",
    ]  # fmt: skip
    assert bytes(4) in networks("0.0.0.0/0")
    assert bytes(4) not in networks()


def test_with_a_key_only_its_token_is_acknowledged() -> None:
    desk = Desk(keys=(KEY,))
    token = token_of(KEY, b"whatever")
    _, replies = desk.receive((keepalive(), A), (keepalive(token=token), B), (request(1, 1), A))
    assert replies == [(Ack(token), B)]
    assert desk.subscribers() == {B}
    assert desk.dropped() == {"token": 1, "stranger": 1}
    assert desk.receive((PUSH, A))[0] == [Deliver(1, b"hello")]


# --- what is wrong ---


def test_what_is_wrong_is_counted_and_changes_nothing() -> None:
    desk = Desk()
    wrong = [bytes.fromhex(entry["packet"]) for entry in entries("fyrehose", "invalid")]
    not_for_it = [Deliver(7, b"x").serialize(), Forward(A, 1, 1).serialize(), Ack(TOKEN).serialize()]
    for packet in wrong + not_for_it:
        assert desk.receive((packet, A)) == ([], [])
    assert sum(desk.dropped().values()) == len(wrong) + 3
    assert desk.dropped()["unexpected"] == 3
    assert desk.receive((PUSH, A))[0] == [Deliver(1, b"hello")]


def test_nothing_is_sent_to_port_0() -> None:
    desk = Desk()
    assert desk.receive((keepalive(), (A[0], 0)), (PUSH, (A[0], 0))) == ([], [])
    assert desk.dropped() == {"source": 2}


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 3)), max_size=20))
def test_garbage_harms_nothing(packets: list[tuple[bytes, int]]) -> None:
    desk = Desk()
    before = desk.core.numbers.next
    delivered, _ = desk.receive(*((data, (A[0], port)) for data, port in packets))
    assert [each.seq for each in delivered] == list(range(before, desk.core.numbers.next))  # type: ignore[union-attr]
    assert set(desk.core.counts.dropped) == set(DROPPED)


# --- any history ---

STEPS = st.one_of(
    st.tuples(st.just("keepalive"), st.integers(0, 11), st.integers(0, 3)),
    st.tuples(st.just("push"), st.integers(0, 11), st.integers(0, 3)),
    st.tuples(st.just("request"), st.integers(0, 11), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(1, 6), st.just(0)),
)


@given(st.lists(STEPS, max_size=60))
def test_a_model_agrees(steps: list[tuple[str, int, int]]) -> None:
    """Against a table of (last KEEPALIVE, NOJOURNAL), with 8 places, 6 of a network and 2 of an address."""
    desk = Desk(places=Places(8, 6, 2))
    model: dict[tuple[bytes, int], tuple[float, bool]] = {}
    last = 0
    for what, who, flags in steps:
        address = at(f"10.0.{who // 8}.{who // 3}:{who + 1}")
        if what == "wait":
            desk.pass_by(who)
        model = {each: row for each, row in model.items() if row[0] + LEASE_SECONDS > desk.now}
        if what == "keepalive":
            assert desk.receive((keepalive(flags), address))[1] == [(Ack(TOKEN), address)]
            room = len(model) < 8 and sum(a[:3] == address[0][:3] for a, _ in model) < 6
            room = room and sum(a == address[0] for a, _ in model) < 2
            if not flags & NOSUBSCRIBE and (address in model or room):
                model[address] = desk.now, bool(flags & NOJOURNAL)
        elif what == "push":
            assert desk.receive((PUSH, address))[0] == [Deliver(last := last + 1, b"hello")]
        elif what == "request":
            able = {each for each, (_, nojournal) in model.items() if not nojournal} - {address}
            _, replies = desk.receive((request(1, 5), address))
            assert {to for _, to in replies} <= able
            assert len(replies) == bool(able)
        desk.core.expire(desk.now)
        assert desk.subscribers() == set(model)


def test_a_successor_goes_on_where_it_stopped() -> None:
    old, new = Desk(), Desk()
    old.receive((keepalive(), A), (keepalive(NOJOURNAL), B), (keepalive(NOSUBSCRIBE), C), (PUSH, A), (b"", A))
    new.core.restore(old.core.state())
    assert new.core.state() == old.core.state()
    new.pass_by(LEASE_SECONDS - 0.001)
    assert new.receive((PUSH, A), (request(1, 1), C)) == ([Deliver(2, b"hello")], [(Forward(C, 1, 1), A)])
    new.pass_by(0.001)
    new.core.expire(new.now)
    assert new.subscribers() == set()


def test_the_readme_lists_every_reason() -> None:
    listed = {
        coded(reason)[0]: what for reason, what in rows(section("bccnd/backbone/README.md", "Operating"))
    }
    assert listed == DROPPED
