"""Which channels the patterns concern that came and went."""

from bccnd.relay.changes import CHANGES_LIMIT, Changes
from bccnd.relay.meter import Meter


def test_a_pattern_concerns_what_it_matches_and_is_older():
    changes = Changes(Meter())
    changes.add(b"/", b"a/>", 5)
    assert changes.concern(b"a/b", 4)
    assert not changes.concern(b"a/b", 5), "looked up since"
    assert not changes.concern(b"b/a", 4)


def test_the_last_change_of_a_pattern_counts():
    changes = Changes(Meter())
    for version in (3, 7):
        changes.add(b".", b"a.*", version)
    assert changes.last == 7
    assert changes.concern(b"a.b", 5)


def test_stars_inside_count_too():
    changes = Changes(Meter())
    for number in range(CHANGES_LIMIT // 4):
        assert not changes.full()
        changes.add(b"/", b"*/*/*/%d" % number, number + 1)
    assert changes.full()
