"""What is carried, by patterns and rates."""

import pytest

from bccnd.uplink.exports import ROUTES_LIMIT, Patterns, Routes, exported, imported
from bccnd.uplink.options import Options, Rate


@pytest.mark.parametrize(
    ("patterns", "channel", "named"),
    [
        ([], b"door/in", False),
        ([b"door/>"], b"door/in", True),
        ([b"door/>"], b"doors", False),
        ([b""], b"door/in", True),
        ([b">"], b"door", True),
        ([b">"], b"local/presence", False),
        ([b"local/>"], b"local/presence", False),
        ([b"heartbeat/>"], b"heartbeat/relay01/a/1", False),
        ([b"bccnd/>"], b"bccnd/link", False),
        ([b">", b"!>"], b"!bccnd/repair", False),
        ([b">"], b"!relay01/door", False),
        ([b"!>"], b"!relay01/door", True),
        ([b"!>"], b"!relay01", True),
        ([b"!>"], b"!", False),
        ([b"!>"], b"door/in", False),
        ([b"!"], b"!", True),
        ([b"!"], b"!relay01", False),
        ([b"!relay01/>"], b"!relay01/door/7", True),
        ([b"!relay01/>"], b"!relay02/door/7", False),
    ],
)
def test_nothing_is_named_but_by_a_pattern(patterns: list[bytes], channel: bytes, named: bool) -> None:
    assert Patterns(patterns).name(channel) is named


def test_a_route_says_to_which_host_a_message_is_directed() -> None:
    routes = exported(Options(b"berlin", export=(b">", b"!>")))
    assert [
        route and route.host for route in map(routes.find, [b"!relay01/door/7", b"!relay01", b"a/b"])
    ] == [
        b"relay01",
        b"relay01",
        b"",
    ]


def test_export_and_import_are_apart() -> None:
    options = Options(b"berlin", export=(b"a",), import_=(b"b",))
    assert [bool(exported(options).find(each)) for each in (b"a", b"b")] == [True, False]
    assert [bool(imported(options).find(each)) for each in (b"a", b"b")] == [False, True]


def test_a_rate_lets_its_burst_pass_and_then_so_many() -> None:
    routes = Routes([b">"], [Rate(b"door/>", 10.0, 3.0)])
    door, other = routes.find(b"door/in"), routes.find(b"other")
    assert door
    assert other
    assert [door.granted(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert [door.granted(100.1) for _ in range(2)] == [True, False]
    assert all(other.granted(100.0) for _ in range(100))


def test_channels_of_one_rate_share_it_and_all_rates_count() -> None:
    routes = Routes([b">"], [Rate(b">", 1.0, 2.0), Rate(b"door/>", 1.0, 1.0)])
    door, other = routes.find(b"door/in"), routes.find(b"other")
    assert door
    assert other
    assert door.granted(100.0)
    assert not door.granted(100.0)
    assert other.granted(100.0), "what was refused took nothing of the other rate"
    assert not other.granted(100.0)


def test_a_rate_of_directed_messages() -> None:
    routes = Routes([b"!>", b"!", b">"], [Rate(b"!relay01/>", 1.0, 1.0), Rate(b"!", 1.0, 1.0)])
    limited = [
        bool(route and route.allowances) for route in map(routes.find, [b"!relay01/a", b"!", b"!b/a", b"a"])
    ]
    assert limited == [True, True, False, False]


def test_any_number_of_channels_takes_bounded_memory() -> None:
    routes = Routes([b">"])
    for number in range(ROUTES_LIMIT + 10):
        assert routes.find(b"c/%d" % number)
    assert len(routes._known) <= ROUTES_LIMIT
