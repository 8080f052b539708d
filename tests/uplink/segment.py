"""A segment of one host with its uplink, in virtual time: programs that say numbered messages, a daemon that drops
what it has had, and an uplink that is stopped, killed and started again with its journal.
"""

from collections.abc import Callable
from pathlib import Path

from bccnd.uplink.core import Uplink
from bccnd.uplink.journal import Journal, Limits
from bccnd.uplink.options import Options
from bccnd.wire.link import inner
from tests.uplink.medium import Medium

# Where a journal costs no disk, if there is such a place.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Clock:
    """Monotonic seconds, and Unix nanoseconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def ns(self) -> int:
        return int(self.now * 1e9)


def datagram(
    seq: int, chan: bytes = b"door/in", src: bytes = b"relay01/door/7", payload: bytes = b"x"
) -> bytes:
    body = b"%b:%d:%b|%b" % (src, seq, chan, payload)
    return b"BCCN1[%d]%b" % (len(body), body)


def options(name: bytes, batch_bytes: int = 0) -> Options:
    return Options(name, export=(b">", b"!>"), import_=(b">", b"!>"), batch_bytes=batch_bytes)


def killed(journal: Journal) -> None:
    """What a kill leaves of a journal: what was committed."""
    journal._outbox.clear()
    journal._archive.clear()
    journal._written = journal._content(clean=False)
    assert journal._database is not None
    journal._database.close()
    journal._database = None
    journal.close()  # gives the lock back


class Segment:
    """``heard``: what programs here got, src -> sequence numbers; ``path``: of the journal."""

    def __init__(
        self, name: bytes, medium: Medium, clock: Clock, path: Path | None, batch_bytes: int = 0
    ) -> None:
        self.name, self.medium, self.clock, self.path = name, medium, clock, path
        self.options = options(name, batch_bytes)
        self.host = name + b"01"
        self.said = 0
        self.heard: dict[bytes, list[int]] = {}
        self.repeated = 0
        self.start()

    @property
    def src(self) -> bytes:
        return self.host + b"/door/7"

    def start(self) -> None:
        self.journal = Journal(self.path, Limits(), self.clock)
        self.journal.open()
        self.uplink = Uplink(self.options, self.journal, self.clock, self.clock.ns)
        self.carrier = self.medium.attach(self.uplink)
        self.uplink.carrier = self.carrier
        self.carrier.begin(self.uplink.begin())
        self.uplink.hosts([self.host])

    def stop(self) -> None:
        self.medium.carriers.remove(self.carrier)
        self.uplink.flush()
        self.take()
        self.journal.close()

    def kill(self) -> None:
        self.medium.carriers.remove(self.carrier)
        killed(self.journal)

    def say(self, count: int = 1) -> None:
        """The program here says so many messages, and the uplink hears them."""
        for _ in range(count):
            self.said += 1
            self.uplink.offer(datagram(self.said, src=self.src))
        self.uplink.flush()

    def take(self) -> None:
        """All that is ready reaches the daemon, and the uplink knows."""
        while self.take_once():
            pass

    def take_once(self, reaches: Callable[[bytes], bool] = lambda _: True) -> bool:
        batch = self.uplink.take()
        for each in batch:
            if reaches(each):
                self.hear(each)
        return bool(batch)

    def hear(self, each: bytes) -> None:
        """As a daemon does: what is not higher than the last of its source is dropped."""
        message = inner(each)
        assert message is not None
        numbers = self.heard.setdefault(message[1], [])
        if numbers and message[2] <= numbers[-1]:
            self.repeated += 1
        else:
            numbers.append(message[2])

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.due()

    def due(self) -> None:
        if self.clock.now >= self.uplink.next_deadline():
            self.uplink.on_deadline()
