"""Without a key: what one forged number can do, and what a jump is until two numbers agree on it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bccnd.relay.dedup import CLOCKED, JUMP, NEAR, STRAYS, WINDOW, Sources
from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict
from tests.relay.sources import DELIVERED, SRC, account, heard, keyless, known, numbers_from, rules, table

thorough = settings(deadline=None, max_examples=300)

CLOCK = 2 * CLOCKED


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
    """One between two of the source's own that are taken, wherever it aims, hides at most what it pretends to be."""
    sources = keyless(sanity=sanity)
    heard(sources, *range(50_000, 50_100))
    claimed: set[int] = set()
    for number in range(50_100, 50_400):
        if number in claimed:
            heard(sources, number)
            continue
        if aim := forgeries.get(number - 50_100):
            heard(sources, number + aim)
            claimed.add(number + aim)
        assert heard(sources, number)[0] in DELIVERED


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
        source = known(sources)
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


@example(runs=[(0, 1), (18, 1), (17, 2)], authenticated=False)  # a stray agrees with no jump
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
        source = known(sources)
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
    source = known(sources)
    assert (source.restarts, source.last) == (0, 5002)
    assert account(sources)[1] == 5000 - 12


@pytest.mark.parametrize("far", [2**33, 2**62])
def test_a_jump_far_beyond_a_stray_takes_no_memory(far: int):
    sources = keyless()
    assert heard(sources, 1, 18, far) == [Verdict.NEW, Verdict.OK, Verdict.OK]
    source = known(sources)
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
