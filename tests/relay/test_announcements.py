"""Last numbers are announced while a host sends, twice more when it falls silent, and then never."""

from itertools import pairwise
from math import inf

from bccnd.relay.announcements import (
    AGAIN,
    AT_ONCE_PER_SECOND,
    AT_ONCE_TOGETHER,
    EVERY,
    NEW_SECONDS,
    Announcements,
    Speaker,
)
from bccnd.relay.deadlines import Alarm
from bccnd.wire.repair import Last, parse

SRC = b"here/prog/1"


class Host:
    """Some sources that speak, and what is announced of them."""

    def __init__(self) -> None:
        self.alarm = Alarm()
        self.alarm.due = inf
        self.announcements = Announcements(self.alarm)
        self.speakers: dict[bytes, Speaker] = {}
        self.said: list[tuple[float, dict[bytes, int]]] = []

    def speak(self, now: float, src: bytes = SRC, count: int = 1) -> None:
        speaker = self.speakers.setdefault(src, Speaker(src, 1, now))
        speaker.last += count
        if not speaker.fresh:
            self.announcements.note(speaker, now)

    def run(self, until: float) -> list[float]:
        """Do what is due up to then; when something was announced."""
        before = len(self.said)
        while (due := self.announcements.next_deadline()) <= until:
            assert self.alarm.due <= due
            if payload := self.announcements.take(due):
                message = parse(payload)
                assert isinstance(message, Last)
                self.said.append((due, {src: last for src, _, last in message.sources}))
        return [at for at, _ in self.said[before:]]


def test_one_message_is_announced_three_times():
    host = Host()
    host.speak(10.0)
    times = host.run(100.0)
    assert [round(at - 10.0, 6) for at in times] == [0.0, 0.1, 0.5]
    assert all(lines == {SRC: 1} for _, lines in host.said)
    assert host.announcements.next_deadline() == inf


def test_who_begins_is_announced_at_once_while_few_do():
    host = Host()
    for number in range(5):
        host.speak(10.0 + number / 1000, b"here/prog/%d" % number)
        host.run(10.0 + number / 1000)
    assert [lines for _, lines in host.said] == [{b"here/prog/%d" % number: 1} for number in range(5)]


def test_who_begins_all_the_time_waits_for_others():
    host = Host()
    for number in range(3000):
        host.speak(10.0 + number / 1000, b"here/prog/%d" % number)
        host.run(10.0 + number / 1000)
    assert len(host.said) <= 3 * (1 / EVERY + AT_ONCE_PER_SECOND) + AT_ONCE_TOGETHER + 1


def test_whoever_speaks_all_the_time_is_announced_in_between():
    host = Host()
    for step in range(1000):
        host.speak(10.0 + step / 1000)
        host.run(10.0 + step / 1000)
    assert 15 <= len(host.said) <= 1.0 / EVERY
    assert host.run(100.0)
    assert host.said[-1][1] == {SRC: 1000}


def test_what_was_announced_is_dropped_when_the_source_speaks():
    host = Host()
    host.speak(10.0)
    host.run(10.06)
    host.speak(10.07)
    host.run(100.0)
    assert [lines[SRC] for _, lines in host.said] == [1, 2, 2, 2]


def test_a_new_source_is_announced_with_its_first_number():
    host = Host()
    host.speak(10.0, count=3)
    payload = host.announcements.take(10.0 + EVERY)
    assert parse(payload) == Last(((SRC, 1, 3),))
    host.speak(10.0 + NEW_SECONDS + 1)
    host.announcements.take(10.0 + EVERY + AGAIN[0])
    payload = host.announcements.take(100.0)
    assert parse(payload) == Last(((SRC, None, 4),))


def test_many_sources_are_announced_a_datagram_at_a_time():
    host = Host()
    for number in range(300):
        host.speak(10.0, b"here/prog/%d" % number)
    times = host.run(100.0)
    assert min(after - before for before, after in pairwise(times)) >= EVERY * 0.999
    heard = [src for _, lines in host.said for src in lines]
    assert {heard.count(src) for src in host.speakers} == {3}


def test_those_who_fell_silent_come_before_those_who_speak():
    host = Host()
    for number in range(300):
        host.speak(0.0, b"here/prog/%d" % number)
    host.run(90.0)
    host.said.clear()
    host.speak(100.0, b"here/prog/0")
    for step in range(100):  # two hundred others never stop
        for number in range(100, 300):
            host.speak(100.0 + step / 100, b"here/prog/%d" % number)
        host.run(100.0 + step / 100)
    first = next(at for at, lines in host.said if b"here/prog/0" in lines)
    assert first - 100.0 <= 3 * EVERY


def test_nothing_is_announced_after_a_clear():
    host = Host()
    host.speak(10.0)
    host.announcements.clear()
    assert host.run(100.0) == []
