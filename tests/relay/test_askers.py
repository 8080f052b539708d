"""Hosts that ask for much are named, and no more of them than there is room for."""

from bccnd.relay.askers import (
    AGAIN_SECONDS,
    HOSTS_LIMIT,
    LEAST,
    ROWS,
    SHARE,
    WINDOW_SECONDS,
    Asker,
    Askers,
)

A, B = b"10.0.0.2", b"10.9.9.9"


def window(askers: Askers, sent: int, at: float = 0.0, **asked: int) -> list[Asker]:
    """What is reported after a window in which these hosts asked for so much."""
    for number, (host, count) in enumerate(asked.items()):
        askers.count(b"10.0.0.%d" % number, host.encode(), count, 0, at)
    return askers.take(sent, at + WINDOW_SECONDS)


def test_a_host_that_asks_for_much_is_named() -> None:
    askers = Askers()
    much, more = LEAST + 1, LEAST + 2
    assert window(askers, 1000, a=much, b=more, c=LEAST) == [
        Asker("b", "10.0.0.1", more, 1000, WINDOW_SECONDS),
        Asker("a", "10.0.0.0", much, 1000, WINDOW_SECONDS),
    ]
    assert [row["host"] for row in askers.rows()] == ["b", "a"]


def test_a_small_share_of_what_is_sent_is_not_much() -> None:
    asked = 10 * LEAST
    assert window(Askers(), round(asked / SHARE), a=asked) == []
    assert window(Askers(), round(asked / SHARE) - 1, a=asked) != []


def test_what_was_sent_before_the_window_does_not_count() -> None:
    askers = Askers()
    askers.count(A, b"a", LEAST + 1, 10**9, 0.0)
    (asker,) = askers.take(10**9 + 500, WINDOW_SECONDS)
    assert asker.sent == 500


def test_nothing_is_said_before_the_window_is_over() -> None:
    askers = Askers()
    askers.count(A, b"a", 10**6, 0, 5.0)
    assert askers.take(0, 5.0 + WINDOW_SECONDS - 0.1) == []
    assert askers.take(0, 5.0 + WINDOW_SECONDS) != []
    assert askers.take(0, 99.0) == []


def test_a_host_is_reported_once_in_a_while() -> None:
    askers = Askers()
    times = [step * WINDOW_SECONDS for step in range(12)]
    reported = [at for at in times if window(askers, 0, at, a=LEAST + 1)]
    assert reported == [0.0, AGAIN_SECONDS]


def test_the_status_forgets_who_asks_no_more() -> None:
    askers = Askers()
    window(askers, 0, a=LEAST + 1)
    askers.take(0, WINDOW_SECONDS + AGAIN_SECONDS - 1)
    assert askers.rows() != []
    askers.take(0, WINDOW_SECONDS + AGAIN_SECONDS)
    assert askers.rows() == []


def test_a_name_is_nothing_that_a_terminal_obeys() -> None:
    askers = Askers()
    askers.count(A, b"b\x07[2J\x7f", LEAST + 1, 0, 0.0)
    (asker,) = askers.take(0, WINDOW_SECONDS)
    assert asker.host == "b\\x07[2J\\x7f"


def test_hosts_without_number_are_bounded() -> None:
    askers = Askers()
    for number in range(2 * HOSTS_LIMIT):
        askers.count(b"10.0.%d.%d" % divmod(number, 256), b"h", LEAST + 1, 0, 0.0)
    assert len(askers.take(0, WINDOW_SECONDS)) == HOSTS_LIMIT
    assert len(askers.rows()) == ROWS
    askers.count(B, b"b", LEAST + 1, 0, 20.0)
    assert [asker.host for asker in askers.take(0, 30.0)] == ["b"]
