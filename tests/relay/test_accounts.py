"""The table of accounts is bounded, in sources and in time, and goes over to a successor."""

from bccnd.relay.accounts import Part, Source


def source_of(peer: str, now: float = 0.0) -> Source:
    source = Source(1, now)
    source.peer = peer
    return source


def test_a_source_is_forgotten_after_two_generations():
    part = Part()
    part.put(b"a/prog/1", source_of("10.0.0.2:5400"))
    part.turn(10.0)
    assert [src for src, _ in part] == [b"a/prog/1"]
    part.turn(20.0)
    assert len(part) == 0
    assert len(part.crowd) == 0


def test_the_host_with_most_sources_gives_one_up():
    part = Part()
    for number in range(9):
        part.put(b"flood/prog/%d" % number, source_of("10.0.0.2:5400"))
    part.put(b"modest/prog/1", source_of("10.0.0.3:5400"))
    newcomer = source_of("10.0.0.4:5400")
    part.make_room(b"other/prog/1", newcomer, 10)
    part.put(b"other/prog/1", newcomer)
    assert len(part) == 10
    assert {src.split(b"/")[0] for src, _ in part} == {b"flood", b"modest", b"other"}


def test_a_smaller_limit_keeps_those_heard_last():
    part = Part()
    for number in range(8):
        part.put(b"a/prog/%d" % number, source_of("10.0.0.2:5400", now=float(number)))
    part.shrink(4)
    part.count_anew()
    assert [src for src, _ in part] == [b"a/prog/6", b"a/prog/7"]
    assert len(part.crowd) == 2


def test_a_successor_has_every_account():
    part, heir = Part(), Part()
    source = source_of("10.0.0.2:5400")
    source.repaired, source.kept, source.ours = 3, 7.0, range(5, 9)
    part.put(b"a/prog/1", source)
    heir.restore(part.state())
    ((src, found),) = heir
    assert (src, found.repaired, found.kept, found.ours, found.gap) == (
        b"a/prog/1",
        3,
        7.0,
        range(5, 9),
        None,
    )
