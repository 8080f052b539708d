"""What was sent is kept within its bounds, the newest of each source, and found by its number."""

import random

import pytest

from bccnd.relay.announcements import AGAIN_LIMIT, Announcements
from bccnd.relay.deadlines import Alarm
from bccnd.relay.options import KIB, Repair
from bccnd.relay.sent import (
    BATCH_BYTES,
    NUMBER_BYTES,
    SILENT_SECONDS,
    SOURCE_BYTES,
    UNCOUNTED_BYTES,
    Sent,
)

SRC = b"here/prog/1"
USER = 1000


def sent_of(memory: bytearray | None = None, **options: int) -> Sent:
    return Sent(
        memory if memory is not None else bytearray(1 << 16), Repair(**options), Announcements(Alarm())
    )


def keep(
    sent: Sent, first: int, *datagrams: bytes, src: bytes = SRC, user: int = USER, now: float = 0.0
) -> None:
    """As they lie side by side in the memory."""
    starts, ends, at = [], [], 16
    for datagram in datagrams:
        sent._memory[at : at + len(datagram)] = datagram
        starts.append(at)
        ends.append(at + len(datagram))
        at += len(datagram)
    sent.keep(src, user, first, (starts, ends), now)


def found(sent: Sent, numbers: range, src: bytes = SRC) -> list[bytes | None]:
    record = sent.get(src)
    return [record.find(number) if record else None for number in numbers]


def size_of(sent: Sent) -> int:
    return sum(record.size for record in sent._records.values())


def test_what_was_sealed_together_is_found_one_by_one():
    sent = sent_of()
    keep(sent, 5, b"five", b"six", b"seven")
    keep(sent, 8, b"eight")
    sent.keep(SRC, USER, 9, [b"nine", b"ten"], 0.0)
    assert found(sent, range(4, 12)) == [None, b"five", b"six", b"seven", b"eight", b"nine", b"ten", None]


def test_who_takes_over_a_name_pays_for_what_is_kept_under_it():
    sent = sent_of(bytes=256 * KIB)
    for number in range(30):
        keep(sent, number, bytes(2000), user=1)
    for number in range(30, 100):
        keep(sent, number, bytes(2000), user=2)
    assert None not in found(sent, range(100)[-30:])
    keep(sent, 5, bytes(2000), src=b"here/prog/2", user=1)
    for number in range(10, 60):
        keep(sent, number, bytes(2000), src=b"here/prog/3", user=3)
    # The second user, who holds most, has given, and the first nothing.
    assert found(sent, range(5, 6), b"here/prog/2") != [None]
    assert sum(each is not None for each in found(sent, range(100))) < 100
    assert sum(sent._users.values()) == sent.size == size_of(sent)
    assert set(sent._users) == {1, 2, 3}
    sent.forget_silent(1e6)
    assert (sent.size, sent._users, sent._rings) == (0, {}, {})


def test_numbers_that_were_left_out_are_not_found():
    sent = sent_of()
    keep(sent, 1, b"one", b"two")
    keep(sent, 9, b"nine")
    assert found(sent, range(1, 11)) == [b"one", b"two", *[None] * 6, b"nine", None]


def test_what_was_kept_stays_when_the_memory_is_used_again():
    sent = sent_of()
    keep(sent, 1, b"first")
    keep(sent, 2, b"later")
    assert found(sent, range(1, 3)) == [b"first", b"later"]


def test_a_source_keeps_its_newest_numbers():
    sent = sent_of(numbers=64)
    for number in range(200):
        keep(sent, number, b"%1000d" % number)
    record = sent.get(SRC)
    assert record.count <= 64
    assert found(sent, range(136, 200)) == [b"%1000d" % number for number in range(136, 200)]
    assert found(sent, range(120)) == [None] * 120


def test_a_source_keeps_its_newest_bytes():
    sent = sent_of(source_bytes=64 * KIB)
    for number in range(200):
        keep(sent, number, b"x" * 1000)
    record = sent.get(SRC)
    assert record.size <= 64 * KIB
    assert record.count > 40
    assert record.find(199)


def test_numbers_that_go_back_begin_anew():
    sent = sent_of()
    keep(sent, 100, b"before")
    keep(sent, 7, b"after")
    assert found(sent, range(100, 101)) == [None]
    assert found(sent, range(7, 8)) == [b"after"]
    assert len(sent) == 1


def test_the_user_who_holds_most_gives():
    sent = sent_of(bytes=256 * KIB)
    keep(sent, 1, b"modest", src=b"here/modest/1", user=1)
    for number in range(3000):
        keep(sent, number, b"x" * 900, src=b"here/flood/%d" % (number % 7), user=2)
    assert found(sent, range(1, 2), b"here/modest/1") == [b"modest"]
    assert sent.size <= 256 * KIB


def test_many_sources_of_one_user_push_out_nobody_else():
    sent = sent_of(bytes=256 * KIB)
    keep(sent, 1, b"modest", src=b"here/modest/1", user=1)
    for number in range(5000):
        keep(sent, number, b"x", src=b"here/once/%d" % number, user=2)
    assert found(sent, range(1, 2), b"here/modest/1") == [b"modest"]
    assert len(sent) * SOURCE_BYTES <= 256 * KIB
    assert found(sent, range(4999, 5000), b"here/once/4999") == [b"x"]


@pytest.mark.parametrize("seed", range(5))
def test_the_account_is_right_whatever_is_kept(seed):
    chance = random.Random(seed)
    sent = sent_of(bytes=128 * KIB, source_bytes=64 * KIB, numbers=100)
    last: dict[bytes, int] = {}
    for step in range(2000):
        src = b"here/p/%d" % chance.randrange(12)
        first = last.get(src, 0) + chance.choice([1, 1, 1, 5])
        datagrams = [b"x" * chance.randrange(1, 1400) for _ in range(chance.choice([1, 1, 2, 8]))]
        keep(sent, first, *datagrams, src=src, user=int(src[-1:]) % 3, now=step * 0.1)
        last[src] = first + len(datagrams) - 1
        assert sent.size == size_of(sent) == sum(sent._users.values()) <= 128 * KIB
        for record in sent._records.values():
            counted = list(record.batches)[: record.counted]
            assert record.count == sum(len(starts) for _, _, starts, _, _ in counted)
            uncounted = sum(
                len(data) + BATCH_BYTES + NUMBER_BYTES * len(starts)
                for _, data, starts, *_ in list(record.batches)[record.counted :]
            )
            assert uncounted == record.uncounted <= UNCOUNTED_BYTES
            assert record.count <= 100 or len(record.batches) == 1


def test_who_is_silent_for_long_is_forgotten():
    sent = sent_of()
    keep(sent, 1, b"x", src=b"here/old/1", now=0.0)
    keep(sent, 1, b"x", src=b"here/young/1", now=SILENT_SECONDS)
    sent.forget_silent(SILENT_SECONDS + 1.0)
    assert sent.get(b"here/old/1") is None
    assert sent.get(b"here/young/1")
    assert sent.size == size_of(sent)


def test_a_successor_finds_all_of_it():
    sent, heir = sent_of(), sent_of()
    keep(sent, 5, b"five", b"six")
    keep(sent, 7, b"seven")
    sent.keep(b"here/bridge/1", 0, 3, [b"three"], 0.0)
    sent.get(b"here/bridge/1").passed = 2
    heir.restore(sent.state(), sent.passed())
    assert (heir.get(SRC).passed, heir.get(b"here/bridge/1").passed) == (0, 2)
    assert found(heir, range(5, 8)) == [b"five", b"six", b"seven"]
    assert found(heir, range(3, 4), b"here/bridge/1") == [b"three"]
    assert heir.size == size_of(heir)


def test_nothing_is_kept_once_it_is_switched_off():
    sent = sent_of()
    keep(sent, 5, b"five")
    sent.configure(Repair(on=False))
    assert (len(sent), sent.size) == (0, 0)
    sent.restore([(SRC, USER, 5, 0.0, 0.0, [(5, b"five", [0], [4], 0)])], {})
    assert len(sent) == 0


def test_names_without_end_leave_no_announcements_behind():
    announcements = Announcements(Alarm())
    sent = Sent(bytearray(1 << 16), Repair(bytes=128 * KIB), announcements)
    for number in range(2 * AGAIN_LIMIT + 1000):
        now = number * 1e-4  # more in a second than can be announced
        keep(sent, 1, b"x", src=b"here/prog/%d" % number, now=now)
        announcements.take(now)
    assert len(announcements._new) <= 128
    assert all(len(queue) <= AGAIN_LIMIT for queue in announcements._again)


def test_short_messages_one_by_one_are_soon_counted():
    sent = sent_of()
    for number in range(200):
        keep(sent, number, b"x")
    record = sent.get(SRC)
    assert record
    taken = SOURCE_BYTES + len(record.batches) * (1 + BATCH_BYTES + NUMBER_BYTES)
    assert taken - record.size <= UNCOUNTED_BYTES
