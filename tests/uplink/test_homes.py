"""Which hosts are in which segment, as links say."""

from bccnd.uplink.homes import ALL_HOSTS_LIMIT, HOME_SECONDS, HOSTS_LIMIT, Homes


def test_a_host_is_where_a_link_says_for_a_while() -> None:
    homes = Homes()
    assert not homes.away(b"mon01", 0.0)
    homes.name(b"paris", b"mon01", 0.0)
    assert homes.away(b"mon01", HOME_SECONDS)
    assert not homes.away(b"mon01", HOME_SECONDS + 1)
    assert homes.of(b"paris", 0.0) == [b"mon01"]
    assert homes.of(b"paris", HOME_SECONDS + 1) == []


def test_a_host_of_this_segment_is_here_whatever_a_link_says() -> None:
    homes = Homes()
    homes.set_here([b"mon01"])
    homes.name(b"paris", b"mon01", 0.0)
    assert not homes.away(b"mon01", 0.0)


def test_a_host_that_moves_is_where_it_was_named_last() -> None:
    homes = Homes()
    homes.name(b"paris", b"mon01", 0.0)
    homes.name(b"rome", b"mon01", 1.0)
    homes.forget(b"paris")
    assert homes.away(b"mon01", 1.0)
    homes.forget(b"rome")
    assert not homes.away(b"mon01", 1.0)
    assert not homes.any


def test_the_hosts_of_a_link_are_bounded_the_oldest_goes() -> None:
    homes = Homes()
    homes.name(b"rome", b"mon01", 0.0)
    for number in range(HOSTS_LIMIT + 10):
        homes.heard(b"paris", b"h%d" % number, 0.0)
    assert homes.of(b"paris", 0.0) == [b"h%d" % number for number in range(10, HOSTS_LIMIT + 10)]
    assert homes.away(b"mon01", 0.0)


def test_the_hosts_of_all_links_are_bounded_the_fullest_gives() -> None:
    homes = Homes()
    homes.name(b"rome", b"mon01", 0.0)
    links = ALL_HOSTS_LIMIT // 1000 + 5
    for link in range(links):
        for number in range(1000):
            homes.name(b"%d" % link, b"%d-%d" % (link, number), 0.0)
    sizes = [len(homes.of(b"%d" % link, 0.0)) for link in range(links)]
    assert sum(sizes) == ALL_HOSTS_LIMIT - 1
    assert min(sizes) > 800
    assert homes.away(b"mon01", 0.0)
    homes.forget(b"0")
    assert homes._count == ALL_HOSTS_LIMIT - sizes[0]
