"""A day in fake time: a hundred sources with a heartbeat every five seconds, which lose, restart, leave and come."""

import random

from tests.relay.fakes import CLOCK, Bus, datagram

DAY, INTERVAL = 24 * 3600, 5
SOURCES = 100
FORGOTTEN_AFTER = 3600
LOST, RESTARTED = 0.01, 0.0002  # of all heartbeats
ONE_SHOT = 0.5  # programs an interval that say one thing and end


class Heartbeats:
    """One source and what is true of it. Every other one counts by the clock, as ours do, the rest from 1."""

    def __init__(self, number: int) -> None:
        self.src = b"host%d/prog/%d" % (number % 7, number)
        self.clocked = number % 2 == 0
        self.received = self.lost = self.restarts = 0
        self.begin(0)

    def begin(self, second: int) -> None:
        self.next = CLOCK + second * 10**6 if self.clocked else 1
        self.gap: int | None = None  # lost since the last that was heard; before the first nobody can know

    def restart(self, second: int) -> None:
        self.restarts += not self.clocked  # what the document calls a sharp drop; a clock goes on
        self.begin(second)

    def beat(self, lost: bool) -> bytes:
        """A heartbeat; none when it is lost."""
        body = b"%b:%d:heartbeat/x|" % (self.src, self.next)
        self.next += 1
        if lost:
            self.gap = None if self.gap is None else self.gap + 1
            return b""
        self.received += 1
        self.lost += self.gap or 0
        self.gap = 0
        return b"BCCN1[%d]%b" % (len(body), body)


def test_a_day_of_heartbeats():
    chance = random.Random(1)
    bus = Bus(dedup_seconds=FORGOTTEN_AFTER, sources=4096, replays="drop")
    sources = [Heartbeats(number) for number in range(SOURCES)]
    most = strangers = 0
    for second in range(0, DAY, INTERVAL):
        datagrams = []
        for source in sources:
            if chance.random() < RESTARTED and (source.clocked or source.next > 1001):
                source.restart(second)
            datagrams.append(source.beat(chance.random() < LOST))
        if chance.random() < ONE_SHOT:
            strangers += 1
            datagrams.append(datagram(b"job/once/%d" % strangers, 1, b"job"))
        bus.hear(*filter(None, datagrams))
        bus.tick(INTERVAL)
        most = max(most, len(bus.relay.state.sources))
    assert bus.relay.state.counters.accepted == strangers + sum(source.received for source in sources)
    assert not bus.relay.state.rejected
    assert strangers > 5000
    assert most < 1000, "who is silent is forgotten"
    for source in sources:
        known = bus.relay.state.sources.get(source.src)
        assert known is not None
        assert (known.received, known.restarts) == (source.received, source.restarts)
        assert known.lost == source.lost
    bus.tick(FORGOTTEN_AFTER + 1)
    bus.tick(FORGOTTEN_AFTER + 1)
    assert len(bus.relay.state.sources) == 0
