"""Messages that went through lately."""

from bccnd.dndm.seen import SEEN_LIMIT, Seen


def test_a_message_is_known_again_by_another_link() -> None:
    seen = Seen()
    assert not seen.again(1, "T@a", 5, b"x")
    assert seen.again(2, "T@a", 5, b"x")
    assert not seen.again(2, "T@a", 6, b"x")
    assert not seen.again(2, "T@a", 5, b"y")
    assert not seen.again(2, "T@b", 5, b"x")


def test_equal_messages_of_one_link_are_new() -> None:
    seen = Seen()
    assert [seen.again(1, "T@a", 5, b"x") for _ in range(3)] == [False] * 3


def test_without_a_timestamp_all_is_new() -> None:
    seen = Seen()
    assert [seen.again(link, "T@a", 0, b"x") for link in (1, 2)] == [False] * 2
    assert len(seen) == 0


def test_a_link_has_room_for_so_many() -> None:
    seen = Seen()
    for stamp in range(1, 3 * SEEN_LIMIT):
        seen.again(1, "T@a", stamp, b"x")
        seen.again(1, "T@a", stamp, b"x")
    seen.again(2, "T@b", 1, b"x")
    assert len(seen) == SEEN_LIMIT + 1
    assert not seen.again(2, "T@a", 1, b"x")
    assert seen.again(2, "T@a", 3 * SEEN_LIMIT - 1, b"x")


def test_with_its_link_a_message_is_forgotten() -> None:
    seen = Seen()
    seen.again(1, "T@a", 5, b"x")
    seen.forget(1)
    assert len(seen) == 0
    assert not seen.again(2, "T@a", 5, b"x")
