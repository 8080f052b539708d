"""What is new, what was heard before, what was lost: the document's rule, the account, what is replayed or own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.dedup import CLOCKED, JUMP, Sources
from bccnd.wire.verdict import Verdict
from tests.golden import entries
from tests.relay.sources import (
    DELIVERED,
    SRC,
    account,
    configure,
    heard,
    known,
    numbers_from,
    rules,
    steps,
    table,
)

thorough = settings(deadline=None, max_examples=300)

sanities = st.integers(1, 200)
scripts = st.builds(numbers_from, st.integers(0, 10_000), st.lists(steps, max_size=60))


# The document's rule


@thorough
@given(sanity=sanities, script=st.lists(st.tuples(st.sampled_from([b"a", b"b"]), scripts), max_size=4))
def test_delivers_exactly_what_the_document_says(sanity: int, script: list[tuple[bytes, list[int]]]):
    sources = table(sanity=sanity)
    last_seen: dict[bytes, int] = {}
    for src, numbers in script:
        for seq in numbers:
            last = last_seen.get(src, -1)
            stale = seq <= last and last - seq < sanity
            assert (sources.observe(src, seq, 0.0) not in DELIVERED) == stale
            last_seen[src] = last if stale else seq


@pytest.mark.parametrize(
    ("numbers", "last_verdict"),
    [
        ([5], Verdict.NEW),
        ([5, 6], Verdict.OK),
        ([5, 5], Verdict.DUPLICATE),
        ([5, 7, 6], Verdict.LATE),
        ([5, 7, 6, 6], Verdict.DUPLICATE),
        ([5000, 4001], Verdict.DUPLICATE),  # or late, but too long ago to tell
        ([5000, 4000], Verdict.RESTARTED),
        ([5000, 0], Verdict.RESTARTED),
        # Two programs of one name: each looks like a restart of the other.
        ([5000, 0, 5000], Verdict.OK),
        ([2**64 - 1, 0], Verdict.RESTARTED),
    ],
)
def test_verdicts(numbers: list[int], last_verdict: Verdict):
    assert heard(table(), *numbers)[-1] is last_verdict


@pytest.mark.parametrize(("section", "authenticated"), [("plain", True), ("jumps", False)])
def test_the_vectors(section: str, authenticated: bool):
    for each in entries("sequences", section):
        sources = Sources(rules(), authenticated=authenticated)
        delivered = [number for number in each["numbers"] if heard(sources, int(number))[0] in DELIVERED]
        assert delivered == each["delivered"], each["name"]


# The account


@thorough
@given(
    first=st.integers(0, 10_000),
    order=st.lists(st.integers(0, 300), min_size=1, max_size=200),
    reorder=st.sampled_from([0, 1, 10, 63, 64, 65, 200]),
)
def test_received_late_and_lost_add_up_to_the_span(first: int, order: list[int], reorder: int):
    sources = table(reorder=reorder)
    heard(sources, *[first + number for number in order])
    source = known(sources)
    assert source.restarts == 0
    assert source.lost >= 0
    assert source.received + source.late + source.lost == source.last - source.first + 1
    assert source.received + source.late + source.duplicates == len(order)


def test_a_gap_is_lost_until_it_arrives_late():
    sources = table()
    heard(sources, 1, 2, 6)
    assert account(sources) == (3, 3, 0, 0)
    assert heard(sources, 4) == [Verdict.LATE]
    assert account(sources) == (3, 2, 1, 0)
    assert heard(sources, 4) == [Verdict.DUPLICATE]
    assert account(sources) == (3, 2, 1, 1)


def test_late_datagram_before_the_first_begins_the_span():
    sources = table()
    heard(sources, 10, 7)
    assert account(sources) == (1, 2, 1, 0)
    assert heard(sources, 8, 7) == [Verdict.LATE, Verdict.DUPLICATE]
    assert account(sources) == (1, 1, 2, 1)


def test_every_datagram_twice_costs_and_loses_nothing():
    sources = table()
    for number in range(1, 200):
        heard(sources, number)
        if number > 5:
            assert heard(sources, number - 5) == [Verdict.DUPLICATE]
    assert account(sources) == (199, 0, 0, 194)


@pytest.mark.parametrize("jump", [JUMP + 1, 2**63])
def test_a_jump_is_not_that_many_losses(jump: int):
    sources = table()
    heard(sources, 1, 3, 3 + jump)
    assert account(sources) == (3, 1, 0, 0)
    assert heard(sources, 4 + jump) == [Verdict.OK]
    assert account(sources) == (4, 1, 0, 0)


def test_the_longest_gap_that_is_counted():
    sources = table()
    heard(sources, 0, JUMP)
    assert account(sources) == (2, JUMP - 1, 0, 0)


def test_a_restart_is_counted_and_begins_a_new_span():
    sources = table()
    heard(sources, 5000, 5002, 1, 2, 4)
    source = known(sources)
    assert (source.restarts, source.first, source.last) == (1, 1, 4)
    assert account(sources) == (5, 2, 0, 0)
    assert heard(sources, 3) == [Verdict.LATE]
    assert account(sources) == (5, 1, 1, 0)


def test_keeps_when_and_from_where_a_source_was_heard():
    sources = table()
    sources.observe(SRC, 1, 5, b"10.0.0.1:5400")
    heard(sources, 1, now=9)
    source = known(sources)
    assert (source.heard, source.peer) == (9, "10.0.0.1:5400")


# The reorder window


@thorough
@given(
    reorder=st.integers(1, 150),
    moves=st.lists(st.integers(-160, 200), max_size=120),
)
def test_reorder_window_delivers_late_datagrams_once(reorder: int, moves: list[int]):
    sources = table(reorder=reorder)
    delivered: set[int] = set()
    last = 10_000
    for number in [last, *(last + move for move in moves)]:
        verdict = sources.observe(SRC, number, 0.0)
        assert (verdict in DELIVERED) == (last - number <= reorder and number not in delivered)
        if verdict in DELIVERED:
            delivered.add(number)
            last = max(last, number)


# Replayed recordings


clocks = st.builds(
    numbers_from,
    st.integers(CLOCKED, 10**16),
    st.lists(st.one_of(steps, st.integers(-(10**6), 10**6)), max_size=60),
).filter(lambda numbers: min(numbers) >= CLOCKED)


@thorough
@given(sanity=sanities, numbers=clocks, reorder=st.sampled_from([0, 0, 5, 100]))
def test_clocked_sources_have_nothing_delivered_twice(sanity: int, numbers: list[int], reorder: int):
    sources = table(sanity=sanity, reorder=min(reorder, sanity - 1), replays="drop")
    delivered = [seq for seq in numbers if sources.observe(SRC, seq, 0.0) in DELIVERED]
    assert len(set(delivered)) == len(delivered)
    if not reorder:
        assert delivered == sorted(delivered)
    source = known(sources)
    assert source.restarts == 0
    assert source.received + source.late + source.duplicates + source.replayed == len(numbers)


@thorough
@given(sanity=sanities, numbers=scripts)
def test_without_a_clock_the_documents_rule_stays(sanity: int, numbers: list[int]):
    plain, careful = table(sanity=sanity), table(sanity=sanity, replays="drop")
    assert heard(careful, *numbers) == heard(plain, *numbers)


@pytest.mark.parametrize(
    ("numbers", "last_verdict"),
    [
        ([CLOCKED + 5000, CLOCKED + 4001], Verdict.DUPLICATE),
        ([CLOCKED + 5000, CLOCKED + 4000], Verdict.REPLAYED),
        ([CLOCKED + 5000, CLOCKED], Verdict.REPLAYED),
        ([CLOCKED + 5000, CLOCKED - 1], Verdict.RESTARTED),  # another program, which counts otherwise
        ([CLOCKED + 5000, 1], Verdict.RESTARTED),
        ([1_790_000_000, 1_700_000_000], Verdict.RESTARTED),  # epoch seconds
        ([1, CLOCKED, 1, CLOCKED], Verdict.OK),
        ([CLOCKED + 5000, CLOCKED, CLOCKED + 5001], Verdict.OK),
    ],
)
def test_replays(numbers: list[int], last_verdict: Verdict):
    assert heard(table(replays="drop"), *numbers)[-1] is last_verdict


def test_source_whose_clock_was_set_back_is_heard_again():
    """As after a reboot without the file of numbers: what is dropped does not keep the old number alive."""
    sources = table(replays="drop", seconds=60)
    heard(sources, CLOCKED + 10**9)
    verdicts = {now: heard(sources, CLOCKED + now, now=now)[0] for now in range(1, 100)}
    assert [now for now, verdict in verdicts.items() if verdict is Verdict.RESTARTED] == [61]
    assert set(verdicts.values()) == {Verdict.REPLAYED, Verdict.RESTARTED, Verdict.OK}


def test_rules_may_change_while_sources_are_known():
    sources = table()
    heard(sources, CLOCKED + 9000)
    configure(sources, sanity=10, sources=1000, seconds=60, reorder=5, replays="drop")
    assert heard(sources, CLOCKED, CLOCKED + 8995, CLOCKED + 8990) == [
        Verdict.REPLAYED,
        Verdict.OK,
        Verdict.REPLAYED,
    ]
    configure(sources, sanity=1000, sources=1000, seconds=60, reorder=0, replays="accept")
    assert heard(sources, CLOCKED + 8994, CLOCKED) == [Verdict.LATE, Verdict.RESTARTED]


# What this host sent itself


@pytest.mark.parametrize("reorder", [0, 50])
@pytest.mark.parametrize("count", [1, 10, 999, 1000, 1001, 5000])
def test_echo_of_a_client_that_left_is_our_own(count: int, reorder: int):
    sources = table(reorder=reorder)
    sent = range(70_000, 70_000 + count)
    sources.remember(SRC, sent, 0.0)
    assert set(heard(sources, *sent, *reversed(sent))) == {Verdict.OWN}


def test_echo_of_an_earlier_client_of_the_name_is_our_own():
    sources = table()
    sources.remember(SRC, range(70_000, 75_000), 0.0)
    sources.remember(SRC, range(80_000, 85_000), 0.0)
    assert set(heard(sources, *range(70_000, 75_000), *range(80_000, 85_000))) == {Verdict.OWN}


def test_another_host_may_use_the_name_of_a_client_that_left():
    sources = table()
    sources.remember(SRC, range(70_000, 70_010), 0.0)
    assert heard(sources, 1, 2, 2) == [Verdict.RESTARTED, Verdict.OK, Verdict.DUPLICATE]
    assert heard(sources, 70_010) == [Verdict.OK]
