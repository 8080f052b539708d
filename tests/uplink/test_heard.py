"""What came by the carrier is remembered for a while, in bounded memory."""

from bccnd.uplink.heard import GENERATION, Heard


def test_what_was_heard_is_remembered_by_message() -> None:
    heard = Heard()
    heard.add(b"relay01/door/7:1")
    assert b"relay01/door/7:1" in heard
    assert b"relay01/door/7:2" not in heard


def test_the_last_generation_is_remembered_and_two_at_most() -> None:
    heard = Heard()
    for number in range(3 * GENERATION):
        heard.add(b"a:%d" % number)
    assert all(b"a:%d" % number in heard for number in range(2 * GENERATION, 3 * GENERATION))
    assert sum(b"a:%d" % number in heard for number in range(3 * GENERATION)) <= 2 * GENERATION
