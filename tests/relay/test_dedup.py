"""What is new, what was heard before, what was lost: the document's rule, the account, the bounds."""

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.dedup import CLOCKED, JUMP, NEAR, PROOF_SECONDS, STRAYS, WINDOW, Source, Sources
from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict
from tests.golden import entries

thorough = settings(deadline=None, max_examples=300)

CLOCK = 2 * CLOCKED
DELIVERED = {Verdict.OK, Verdict.NEW, Verdict.RESTARTED}
SRC = b"host/prog/1"

sanities = st.integers(1, 200)
# Steps that stay close, reach the edges of window and sanity, and leap.
steps = st.one_of(
    st.integers(-3, 4),
    st.integers(-220, 220),
    st.sampled_from([-WINDOW - 1, -WINDOW, 1 - WINDOW, WINDOW, WINDOW + 1, JUMP, JUMP + 1, -JUMP]),
)


def numbers_from(first: int, moves: list[int]) -> list[int]:
    """Sequence numbers, each a step away from one before."""
    numbers = [first]
    for move in moves:
        numbers.append(min(2**64 - 1, max(0, numbers[-1] + move)))
    return numbers


scripts = st.builds(numbers_from, st.integers(0, 10_000), st.lists(steps, max_size=60))


def rules(**values: Any) -> Dedup:
    return Dedup(**{"replays": "accept"} | values)


def table(**values: Any) -> Sources:
    return Sources(rules(**values), authenticated=True)


def keyless(**values: Any) -> Sources:
    return Sources(rules(**values), authenticated=False)


def configure(known: Sources, **values: Any) -> None:
    known.configure(rules(**values), authenticated=True)


def heard(sources: Sources, *numbers: int, src: bytes = SRC, now: float = 0.0) -> list[Verdict]:
    return [sources.observe(src, number, now) for number in numbers]


def account(sources: Sources, src: bytes = SRC) -> tuple[int, int, int, int]:
    source = sources.get(src)
    assert source is not None
    return source.received, source.lost, source.late, source.duplicates


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
        (
            [5000, 0, 5000],
            Verdict.OK,
        ),  # two programs of one name: each looks like a restart of the other
        ([2**64 - 1, 0], Verdict.RESTARTED),
    ],
)
def test_verdicts(numbers: list[int], last_verdict: Verdict):
    assert heard(table(), *numbers)[-1] is last_verdict


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
    source = sources.get(SRC)
    assert source is not None
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
    source = sources.get(SRC)
    assert source is not None
    assert (source.restarts, source.first, source.last) == (1, 1, 4)
    assert account(sources) == (5, 2, 0, 0)
    assert heard(sources, 3) == [Verdict.LATE]
    assert account(sources) == (5, 1, 1, 0)


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
    source = sources.get(SRC)
    assert source is not None
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


def test_a_smaller_table_keeps_those_heard_last():
    sources = table(sources=1000)
    for number in range(400):
        prove(sources, b"proven/%d" % number, since=number)
    for number in range(100):
        heard(sources, 1, src=b"newcomer/%d" % number, now=number)
    configure(sources, sanity=1000, sources=80, seconds=60, reorder=0, replays="accept")
    assert len(sources) <= 80
    assert all(sources.get(b"proven/%d" % number) for number in range(370, 400))
    assert all(sources.get(b"newcomer/%d" % number) for number in range(90, 100))


# Without a key: what one forged number can do


def silenced(sources: Sources, forged: int, after: int = 3000) -> int:
    """How many messages of a source are not delivered behind one forged number, but for that number."""
    heard(sources, *range(100_000, 100_100))
    heard(sources, 100_099 + forged)
    wanted = [number for number in range(100_100, 100_100 + after) if number != 100_099 + forged]
    return sum(verdict not in DELIVERED for verdict in heard(sources, *wanted))


@pytest.mark.parametrize("forged", [17, 65, 500, 998, 999, 1000, 1001, 1500, 2500, 10**6, JUMP + 5, 10**15])
def test_a_forged_jump_costs_its_source_nothing(forged: int):
    assert silenced(keyless(), forged) == 0


@pytest.mark.parametrize("forged", [2, 3, 10, NEAR])
def test_a_forged_step_costs_its_source_what_is_below(forged: int):
    assert silenced(keyless(), forged) == forged - 1


@pytest.mark.parametrize("sanity", [50, 1000, 5000, 1 << 32])
@pytest.mark.parametrize("forged", [70, 998, 1500, 4000, 10**6])
def test_whatever_sanity_is_configured(forged: int, sanity: int):
    assert silenced(keyless(sanity=sanity), forged) == 0


@pytest.mark.parametrize("reorder", [20, 200])
def test_a_forged_jump_beyond_the_reorder_window(reorder: int):
    assert silenced(keyless(reorder=reorder), reorder + 2) == 0
    assert silenced(keyless(reorder=reorder), reorder) == 0


@pytest.mark.parametrize("forged", [[998, 998], [9000, 500], [9000, 9000, 500, 20]])
def test_forged_jumps_that_do_not_agree_cost_nothing(forged: list[int]):
    sources = keyless()
    heard(sources, *range(100))
    heard(sources, *[99 + number for number in forged])
    wanted = [number for number in range(100, 10_000) if number - 99 not in forged]
    assert set(heard(sources, *wanted)) == {Verdict.OK}


@thorough
@given(
    forgeries=st.dictionaries(st.integers(0, 299), st.integers(NEAR + 1, 3000), max_size=12),
    sanity=st.sampled_from([64, 300, 1000]),
)
def test_forged_numbers_each_alone_hide_nothing(forgeries: dict[int, int], sanity: int):
    """One between two of the source's own, wherever it aims, hides at most what it pretends to be."""
    sources = keyless(sanity=sanity)
    heard(sources, *range(50_000, 50_100))
    for number in range(50_100, 50_400):
        if aim := forgeries.get(number - 50_100):
            heard(sources, number + aim)
        claimed = any(50_100 + when + aim == number for when, aim in forgeries.items())
        assert heard(sources, number)[0] in DELIVERED or claimed


@thorough
@given(gaps=st.lists(st.one_of(st.integers(1, 5), st.integers(1, 10**7)), max_size=60))
def test_a_real_jump_loses_nothing(gaps: list[int]):
    sources = keyless()
    numbers = numbers_from(1, gaps)
    assert heard(sources, *numbers) == [Verdict.NEW] + [Verdict.OK] * len(gaps)


@thorough
@given(numbers=st.lists(st.integers(0, 990), max_size=300))
def test_without_a_key_nothing_near_arrives_twice(numbers: list[int]):
    """For as long as not more stray at a time than are remembered."""
    sources = keyless()
    delivered: set[int] = set()
    for count, number in enumerate(numbers, 1):
        if heard(sources, number)[0] in DELIVERED:
            assert number not in delivered
            delivered.add(number)
        source = sources.get(SRC)
        assert source is not None
        assert 0 <= source.lost <= source.last - source.first
        assert source.received + source.late + source.duplicates == count
        assert source.received + source.late + source.lost == source.last - source.first + 1 + len(
            source.strays
        )
        if len(source.strays) == STRAYS:
            return


def in_runs(sources: Sources, first: int, count: int) -> list[Verdict]:
    verdicts: list[Verdict] = []
    while len(verdicts) < count:
        verdict, done = sources.observe_run(SRC, first + len(verdicts), count - len(verdicts), 0.0)
        verdicts += [verdict] * done
    return verdicts


@thorough
@given(
    runs=st.lists(st.tuples(st.integers(0, 200), st.sampled_from([1, 1, 2, 5, 30])), max_size=30),
    authenticated=st.booleans(),
)
def test_a_run_is_judged_as_its_numbers_one_by_one(runs: list[tuple[int, int]], authenticated: bool):
    whole, single = (Sources(rules(), authenticated=authenticated) for _ in range(2))
    for first, count in runs:
        assert in_runs(whole, first, count) == heard(single, *range(first, first + count))
        assert account(whole) == account(single)
    assert (whole.missed, whole.found) == (single.missed, single.found)


@thorough
@given(numbers=st.lists(st.sampled_from([*range(20), *range(5000, 5020)]), max_size=100))
def test_both_sides_of_a_jump_are_kept_until_it_is_sure(numbers: list[int]):
    """A model in so many words: ranges of 20 numbers, each beside its own last one."""
    sources = keyless()
    heard(sources, 0, 5000)
    seen, lower, alone = {0, 5000}, 0, True
    for number in numbers:
        verdict = heard(sources, number)[0]
        if not alone:
            return
        if number > 5000:
            assert verdict in DELIVERED
            alone = False
        elif number in seen and number == 5000:
            assert verdict is Verdict.DUPLICATE
            return  # which says nothing about where the source is
        elif number > lower:
            assert verdict is Verdict.OK
            lower = number
            seen.add(number)
        else:
            return


@thorough
@given(numbers=st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_the_widest_jumps_cost_no_memory(numbers: list[int]):
    sources = keyless()
    for count, number in enumerate(numbers, 1):
        heard(sources, number)
        source = sources.get(SRC)
        assert source is not None
        assert source.seen < 1 << WINDOW
        assert len(source.strays) <= STRAYS
        assert source.received + source.duplicates + source.late == count


def test_a_jump_that_two_agree_on_ends_what_was_below():
    sources = keyless()
    heard(sources, 1, 2, 3, 900, 901, 902)
    assert heard(sources, 4, 5) == [Verdict.DUPLICATE, Verdict.DUPLICATE]
    assert account(sources) == (6, 896, 0, 2)
    assert heard(sources, 903, 6, 7, 904) == [Verdict.OK, Verdict.DUPLICATE, Verdict.DUPLICATE, Verdict.OK]


def test_a_jump_counts_as_loss_once_it_is_agreed_with():
    sources = keyless()
    heard(sources, *range(10), 5000, 10, 11)
    assert account(sources) == (13, 0, 0, 0)
    assert sources.missed == sources.found
    assert heard(sources, 5001, 5000, 5002) == [Verdict.OK, Verdict.DUPLICATE, Verdict.OK]
    source = sources.get(SRC)
    assert source is not None
    assert (source.restarts, source.last) == (0, 5002)
    assert account(sources)[1] == 5000 - 12


@pytest.mark.parametrize("far", [2**33, 2**62])
def test_a_jump_far_beyond_a_stray_takes_no_memory(far: int):
    sources = keyless()
    assert heard(sources, 1, 18, far) == [Verdict.NEW, Verdict.OK, Verdict.OK]
    source = sources.get(SRC)
    assert source is not None
    assert source.seen.bit_length() <= WINDOW


def test_copies_that_come_behind_a_jump_arrive_once():
    """``copies = 2``, the second ones twelve numbers later, and a burst of loss."""
    sources = keyless()
    first = [*range(100), *range(140, 200)]
    copies = [[]] * 12 + [[each] for each in first]
    sent = [number for each, copy in zip(first, copies, strict=False) for number in (each, *copy)]
    delivered = [number for number in sent if heard(sources, number)[0] in DELIVERED]
    assert delivered == first


def test_a_restart_ends_what_strayed_before():
    sources = keyless()
    heard(sources, *range(5000, 5010), 5100)
    assert heard(sources, 1, 2) == [Verdict.RESTARTED, Verdict.OK]
    assert set(heard(sources, *range(3, 5200))) == {Verdict.OK}


def test_a_run_beside_a_stray_is_judged_at_once():
    """Else one forged number makes each message of its source as dear as a run, for ever."""
    sources = keyless()
    heard(sources, 1, 2**63)
    assert sources.observe_run(SRC, 2, 60, 0.0) == (Verdict.OK, 60)
    heard(sources, 80)
    assert sources.observe_run(SRC, 62, 40, 0.0) == (Verdict.OK, 18)
    assert sources.observe_run(SRC, 80, 22, 0.0) == (Verdict.DUPLICATE, 1)
    assert sources.observe_run(SRC, 81, 21, 0.0) == (Verdict.OK, 21)


@pytest.mark.parametrize("replaced", [False, True])
def test_what_was_forged_before_there_was_a_key_ends_with_it(replaced: bool):
    """A number above all clocks, and the source speaks again when the key is there, by reload or replacement."""
    sources = Sources(Dedup(), authenticated=False)
    gone = b"here/prog/7"
    heard(sources, CLOCK, CLOCK + 1, 2**64 - 2, 2**64 - 1)
    sources.remember(gone, range(CLOCK, CLOCK + 5), 0.0)
    if replaced:
        predecessor, sources = sources, Sources(Dedup(), authenticated=True)
        sources.restore(predecessor.state())
    else:
        sources.configure(Dedup(), authenticated=True)
    assert heard(sources, CLOCK + 2, CLOCK + 3) == [Verdict.NEW, Verdict.OK]
    assert heard(sources, CLOCK + 3, src=gone) == [Verdict.OWN]
    known = Sources(Dedup(), authenticated=True)
    known.restore(sources.state())
    known.configure(Dedup(seconds=100), authenticated=True)
    assert heard(known, CLOCK + 3, CLOCK - 10_000) == [Verdict.DUPLICATE, Verdict.REPLAYED]


def test_other_code_may_keep_more_of_a_source_or_less():
    sources = keyless()
    heard(sources, 1, 2)
    state = sources.state()
    row = state["newcomers"]["young"][0][1]
    row["of_tomorrow"] = 1
    del row["strays"]
    successor = keyless()
    successor.restore(state)
    assert heard(successor, 2, 3) == [Verdict.DUPLICATE, Verdict.OK]


def test_with_a_key_a_jump_is_taken_at_its_word():
    assert silenced(table(), 998) == 997


@pytest.mark.parametrize(("section", "authenticated"), [("plain", True), ("jumps", False)])
def test_the_vectors(section: str, authenticated: bool):
    for each in entries("sequences", section):
        sources = Sources(rules(), authenticated=authenticated)
        delivered = [number for number in each["numbers"] if heard(sources, int(number))[0] in DELIVERED]
        assert delivered == each["delivered"], each["name"]


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


def test_a_source_is_listed_once_whatever_is_known_of_it():
    sources = table(sources=4)
    sources.remember(SRC, range(1, 2), 0.0)
    sources.remember(b"other", range(1, 2), 0.0)  # the young generation is full: SRC grows old
    sources.remember(SRC, range(1, 3), 0.0)
    assert sorted(src for src, _ in sources) == [SRC, b"other"]
    assert len(sources) == 2


# Bounds


def prove(sources: Sources, *srcs: bytes, since: float = 0.0) -> float:
    """Have sources heard until they are no newcomers any more (their last number is 4); when that is."""
    for number in range(5):
        now = since + PROOF_SECONDS * number / 3
        for src in srcs:
            assert sources.observe(src, number, now, src.partition(b"/")[0] + b":5400") in DELIVERED
    return now


@pytest.mark.parametrize("limit", [64, 100, 1000])
def test_forged_sources_displace_no_proven_source(limit: int):
    """Ten times the table, and whoever speaks rarely meanwhile is still known: no duplicate, no false restart."""
    sources = table(sources=limit, sanity=100)
    real = [b"real/prog/%d" % number for number in range(limit // 4)]
    now = prove(sources, *real)
    heard(sources, 5, src=real[0], now=now)
    for number in range(10 * limit):
        assert heard(sources, 10**15 + number, src=b"forged/%d" % number, now=now + number) == [Verdict.NEW]
        assert len(sources) <= limit
    now += 10 * limit
    assert heard(sources, 5, 6, 3, src=real[0], now=now) == [
        Verdict.DUPLICATE,
        Verdict.OK,
        Verdict.DUPLICATE,
    ]
    for src in real[1:]:
        assert heard(sources, 4, 5, src=src, now=now) == [Verdict.DUPLICATE, Verdict.OK]
        source = sources.get(src)
        assert source is not None
        assert (source.received, source.lost, source.restarts, source.duplicates) == (6, 0, 0, 1)


@pytest.mark.parametrize("authenticated", [True, False])
def test_a_host_that_invents_sources_evicts_its_own(authenticated: bool):
    """However many names it bears, also of hosts that do not exist, and with the key that all have, too."""
    sources = Sources(rules(sources=400), authenticated=authenticated)
    real = [b"real%d/prog/%d" % (number % 20, number) for number in range(90)]
    for number, src in enumerate(real):
        assert sources.observe(src, 1, 0.0, b"10.0.1.%d:5400" % (number % 20)) is Verdict.NEW
    for number in range(5000):
        src = b"loud%d/prog/1" % number if number % 2 else b"loud/prog/%d" % number
        sources.observe(src, 1, 0.0, b"10.0.0.2:5400")
        assert len(sources) <= 400
    assert all(sources.get(src) for src in real)


def test_a_proven_flood_displaces_no_other_host():
    sources = table(sources=100)
    prove(sources, b"rare/prog/1")
    for number in range(50):
        prove(sources, *[b"loud/prog/%d" % (number * 10 + each) for each in range(10)], since=100.0 * number)
        assert len(sources) <= 100
    assert heard(sources, 4, src=b"rare/prog/1", now=6000.0) == [Verdict.DUPLICATE]


def test_the_state_says_whose_the_sources_are():
    sources = keyless(sources=64)
    sources.observe(b"rare/prog/1", 1, 0.0, b"10.0.0.3:5400")
    for number in range(100):
        sources.observe(b"made-up%d/prog/1" % number, 1, 0.0, b"10.0.0.2:5400")
    successor = keyless(sources=64)
    successor.restore(sources.state())
    for number in range(100, 200):
        successor.observe(b"made-up%d/prog/1" % number, 1, 0.0, b"10.0.0.2:5400")
    assert successor.get(b"rare/prog/1")


def test_hurried_forged_sources_displace_no_proven_source():
    sources = table(sources=100)
    now = prove(sources, SRC)
    for number in range(1000):
        for seq in range(1 + number % 8):
            sources.observe(b"forged/%d" % number, seq, now + number % 8)
        sources.observe(b"forged/%d" % number, 9, now + 2 * PROOF_SECONDS if number % 8 < 2 else now)
    assert heard(sources, 4, now=now) == [Verdict.DUPLICATE]
    assert len(sources) <= 100


def test_newcomer_that_keeps_sending_outlasts_a_flood():
    sources = table(sources=800)  # newcomers come and go by hundreds
    for number in range(10_000):
        now = number * PROOF_SECONDS / 5000
        heard(sources, 1, src=b"forged/%d" % number, now=now)
        if number % 40 == 0:
            assert heard(sources, number, now=now)[0] in {Verdict.NEW, Verdict.OK}
    assert account(sources)[0] == 250
    for number in range(10_000, 20_000):
        heard(sources, 1, src=b"forged/%d" % number, now=now)
    assert account(sources)[0] == 250


def test_proven_sources_displace_those_silent_longest():
    sources = table(sources=100)
    for number in range(200):
        prove(sources, b"worker/%d" % number, since=1000.0 * number)
        assert len(sources) <= 100
    assert sources.get(b"worker/0") is None
    assert all(sources.get(b"worker/%d" % number) for number in range(165, 200))


def test_the_table_is_bounded_under_clients_that_come_and_go():
    sources = table(sources=100)
    for number in range(1000):
        sources.remember(b"here/prog/%d" % number, range(5, 6), 0.0)
        assert len(sources) <= 100


def test_silent_source_is_forgotten_in_two_expiry_times():
    sources = table(seconds=60)
    sources.on_deadline(1000)
    heard(sources, 1, src=b"silent", now=1000)
    for now in range(1000, 1060):
        heard(sources, now, src=b"busy", now=now)
        sources.on_deadline(now)
    assert sources.get(b"silent") is not None
    for now in range(1060, 1125):
        heard(sources, now, src=b"busy", now=now)
        sources.on_deadline(now)
    assert sources.get(b"silent") is None
    assert account(sources, b"busy") == (125, 0, 0, 0)


def test_source_heard_after_one_expiry_time_is_kept():
    sources = table(seconds=60)
    sources.on_deadline(1000)
    for now in range(1001, 1600, 50):
        heard(sources, now // 50, now=now)
        sources.on_deadline(now)
    assert account(sources) == (12, 0, 0, 0)


def test_keeps_when_and_from_where_a_source_was_heard():
    sources = table()
    sources.observe(SRC, 1, 5, b"10.0.0.1:5400")
    heard(sources, 1, now=9)
    source = sources.get(SRC)
    assert source is not None
    assert (source.heard, source.peer) == (9, "10.0.0.1:5400")


# Listing


def named(*numbers: int) -> list[bytes]:
    return [b"there/prog/%03d" % number for number in numbers]


def listed(sources: Sources, cursor: bytes = b"") -> list[bytes]:
    sources.sort_names()
    return [src for src, _ in sources.after(cursor)]


def test_sources_are_listed_by_name_behind_a_cursor() -> None:
    sources = Sources(Dedup(), authenticated=True)
    for src in named(5, 1, 3):
        sources.observe(src, 1, 0.0)
    assert listed(sources) == named(1, 3, 5)
    sources.observe(*named(2), 1, 0.0)
    assert listed(sources, *named(1)) == named(2, 3, 5)
    assert listed(sources, b"~") == []


def test_sources_that_come_and_go_are_listed_once() -> None:
    sources = Sources(Dedup(sources=64, seconds=10), authenticated=True)
    for round_ in range(40):
        for src in named(*range(round_ * 100, round_ * 100 + 100)):
            sources.observe(src, 1, float(round_))
        assert listed(sources) == sorted(src for src, _ in sources)
    assert len(sources._names) < 2000


def test_a_page_behind_a_cursor_looks_at_no_other_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(Dedup(), authenticated=True)
    for src in named(*range(5000)):
        sources.observe(src, 1, 0.0)
    sources.sort_names()
    looked_at: list[bytes] = []
    get = sources.get

    def counted(src: bytes) -> Source | None:
        looked_at.append(src)
        return get(src)

    monkeypatch.setattr(sources, "get", counted)
    behind = sorted(src for src, _ in sources if src > named(499)[0])
    assert [src for src, _ in islice(sources.after(*named(499)), 10)] == behind[:10]
    assert len(looked_at) <= 11
    assert sources.sort_names() == 0
