"""How many sources are known: who is displaced by whom, when one is forgotten, and how they are listed."""

from itertools import islice

import pytest

from bccnd.relay.dedup import PROOF_SECONDS, Sources
from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict
from tests.relay.counting import calls_of
from tests.relay.sources import DELIVERED, SRC, account, configure, heard, keyless, known, rules, table


def prove(sources: Sources, *srcs: bytes, since: float = 0.0) -> float:
    """Have sources heard until they are no newcomers any more (their last number is 4); when that is."""
    for number in range(5):
        now = since + PROOF_SECONDS * number / 3
        for src in srcs:
            assert sources.observe(src, number, now, src.partition(b"/")[0] + b":5400") in DELIVERED
    return now


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
        source = known(sources, src)
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


# Listing


def named(*numbers: int) -> list[bytes]:
    return [b"there/prog/%03d" % number for number in numbers]


def listed(sources: Sources, cursor: bytes = b"") -> list[bytes]:
    sources.sort_names()
    return [src for src, _ in sources.after(cursor)]


def test_a_source_is_listed_once_whatever_is_known_of_it():
    sources = table(sources=4)
    sources.remember(SRC, range(1, 2), 0.0)
    sources.remember(b"other", range(1, 2), 0.0)  # the young generation is full: SRC grows old
    sources.remember(SRC, range(1, 3), 0.0)
    assert sorted(src for src, _ in sources) == [SRC, b"other"]
    assert len(sources) == 2


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


def test_a_page_behind_a_cursor_looks_at_no_other_source() -> None:
    sources = Sources(Dedup(), authenticated=True)
    for src in named(*range(5000)):
        sources.observe(src, 1, 0.0)
    sources.sort_names()
    behind = sorted(src for src, _ in sources if src > named(499)[0])
    with calls_of(sources, "get") as looks:
        assert [src for src, _ in islice(sources.after(*named(499)), 10)] == behind[:10]
    assert len(looks) <= 11
    assert sources.sort_names() == 0
