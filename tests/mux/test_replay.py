"""A replay before a daemon, a recorder and a clock that are the test."""

import random
from collections.abc import Callable

import pytest

from bccnd.mux import limits
from bccnd.mux.portion import ITEM_BYTES, Portion, recv, unrecorded
from bccnd.mux.replay import BARRIER, UNWRITTEN
from bccnd.mux.span import SECOND_NS, Span
from bpmux.entities import Channel
from tests.mux.fake_link import FakeLink, Talk, endings, messages

NAME = b"CMSG whoami\0here/node/1"


def message(number: int, time_ns: int | None = None, channel: str = "a/x") -> bytes:
    """Message ``number`` of the host, as live and as recorded."""
    return recv(number if time_ns is None else time_ns, None, "here/a", number, channel, b"%d" % number)[1]


def number_of(packet: bytes) -> int:
    return int(packet.rpartition(b"|")[2])


class FakeTape:
    """``taker``: who waits for a portion; ``timer``: what is to be called later."""

    def __init__(self) -> None:
        self.time = 1000
        self.begun: tuple[str, Span] | None = None
        self.taker: Callable[[Portion | bytes], None] | None = None
        self.timer: Callable[[], None] | None = None
        self.seconds = 0.0
        self.is_closed = False

    def now(self) -> int:
        return self.time

    def begin(self, host: str, span: Span) -> None:
        assert self.begun is None
        self.begun = host, span

    def next(self, taker: Callable[[Portion | bytes], None]) -> None:
        assert not self.is_closed
        assert self.taker is None
        self.taker = taker

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        assert self.timer is None
        self.seconds += seconds
        self.timer = callback

    def close(self) -> None:
        self.is_closed = True

    # --- the recorder ---

    def give(self, portion: Portion | bytes) -> None:
        taker, self.taker = self.taker, None
        assert taker
        taker(portion)

    def ring(self) -> None:
        timer, self.timer = self.timer, None
        assert timer
        timer()


class Scene:
    """A peer that has asked for a replay; the daemon answers a barrier when ``answer`` is called."""

    def __init__(self, asked: bytes = b"0  a/>", window: int = 1 << 20) -> None:
        self.tape = FakeTape()
        self.talk = Talk(lend=lambda: self.tape)
        self.channel: Channel = self.talk.stream(b"REPLAY " + asked, window)
        self.seen = self.talk.settle()
        self.link: FakeLink = self.talk.links[0] if self.talk.links else FakeLink(None)  # type: ignore[arg-type]

    def begin(self) -> None:
        """The daemon knows whom it is for, and lets it."""
        self.link.owner.joined()
        self.answer()

    @property
    def asks(self) -> bool:
        """Whether the daemon has a barrier that it has not answered."""
        return self.link.taken.count(BARRIER) > self.answered

    answered = 0

    def answer(self) -> None:
        assert self.asks
        self.answered += 1
        self.link.say(NAME)

    @property
    def is_subscribed(self) -> bool:
        subs = [packet for packet in self.link.taken if b"SUB " in packet]
        return bool(subs) and subs[-1].startswith(b"SUB ")

    def portion(self, *packets: bytes, reached: int = 0, last: bool = False, written: bool = True) -> Portion:
        items = [
            (packet.split(b" ")[2] + b" " + packet[packet.find(b"]") + 1 : packet.find(b"|")], packet)
            for packet in packets
        ]
        return Portion(items, reached, last, written)

    def give(self, *packets: bytes, reached: int = 0, last: bool = False, written: bool = True) -> None:
        self.tape.give(self.portion(*packets, reached=reached, last=last, written=written))

    def heard(self) -> list[bytes]:
        self.seen += self.talk.settle()
        return messages(self.seen)

    def reasons(self) -> list[bytes]:
        self.seen += self.talk.settle()
        return endings(self.seen, self.channel)


def test_a_span_that_is_written_is_replayed_and_ends() -> None:
    scene = Scene(b"5 0.000000900 a/>".replace(b"5", b"0.000000005"))
    scene.link.owner.joined()
    assert scene.link.taken == [b"CMSG format\0full", b"SUB a/>", BARRIER, b"UNSUB a/>"]
    assert scene.tape.begun is None, "nothing is read before the daemon has said yes"
    scene.answer()
    assert scene.tape.begun == ("here", Span(5, 900, "a/>"))
    scene.give(message(6), message(7), reached=100)
    scene.link.say(message(2000))  # live, and not asked for
    assert scene.heard() == [message(6), message(7)]
    scene.give(reached=100)
    scene.give(message(8), reached=900)
    scene.give(reached=900, last=True)
    assert scene.heard() == [message(6), message(7), message(8)]
    assert scene.reasons() == [b""]
    assert scene.tape.is_closed
    assert scene.link.is_closed
    assert scene.talk.conversation.waiting == 0


def test_who_may_not_subscribe_gets_nothing() -> None:
    scene = Scene()
    scene.link.owner.joined()
    scene.link.say(b"CMSG error\0refused SUB a/>: no", NAME)
    assert scene.reasons() == [b"refused SUB a/>: no"]
    assert scene.tape.begun is None
    assert scene.tape.is_closed


def test_a_right_that_goes_ends_it() -> None:
    scene = Scene()
    scene.begin()
    scene.tape.time += int(limits.RIGHTS_SECONDS * SECOND_NS) + 1
    scene.give(message(1), reached=10)
    assert scene.heard() == [message(1)]
    assert scene.asks
    assert scene.tape.taker is None, "nothing is read until the daemon has answered"
    scene.link.say(b"CMSG error\0refused SUB a/>: no", NAME)
    assert scene.reasons() == [b"refused SUB a/>: no"]
    following = Scene()
    following.begin()
    following.give(reached=10, last=True)
    following.answer()
    following.link.say(b"CMSG revoked\0SUB a/>")
    assert following.reasons() == [b"refused SUB a/>"]


@pytest.mark.parametrize("step", [1, -1], ids=["later", "clock set back"])
def test_a_right_that_stays_is_asked_for_once_in_a_while(step: int) -> None:
    scene = Scene()
    scene.begin()
    scene.tape.time += step * (int(limits.RIGHTS_SECONDS * SECOND_NS) + 1)
    scene.give(message(1), reached=10)
    assert scene.heard() == [message(1)]
    scene.answer()
    scene.give(message(2), reached=20)
    assert scene.heard() == [message(1), message(2)]
    assert not scene.asks
    assert scene.tape.taker


@pytest.mark.parametrize("at", ["the beginning", "the seam"])
def test_a_daemon_that_takes_nothing_ends_it(at: str) -> None:
    scene = Scene()
    if at == "the seam":
        scene.begin()
    scene.link.room = 1
    if at == "the seam":
        scene.give(reached=10, last=True)
    else:
        scene.link.owner.joined()
    assert scene.reasons() == [b"unavailable the daemon takes nothing"]
    assert scene.tape.is_closed


def test_the_live_bus_follows_where_the_record_ends() -> None:
    scene = Scene()
    scene.begin()
    scene.give(message(1), reached=10)
    scene.give(reached=10, last=True)
    assert scene.is_subscribed
    assert scene.asks
    scene.tape.time = 1100
    scene.answer()
    scene.link.say(message(1001, 1150), message(1002, 1160))
    assert scene.heard() == [message(1)]
    scene.tape.ring()
    scene.give(message(999), message(1001, 1150), reached=1155)
    scene.answer()
    assert scene.heard() == [message(1), message(999), message(1001, 1150)]
    scene.give(reached=1155, last=True)
    scene.answer()
    assert scene.heard()[3:] == [message(1002, 1160)]
    scene.link.say(message(1003, 1170), b"CMSG dropped\x005", message(1009, 1180))
    assert scene.heard()[4:] == [message(1003, 1170), b"CMSG dropped\x005", message(1009, 1180)]
    assert scene.reasons() == []
    assert scene.talk.conversation.waiting == limits.REPLAY_BYTES


def test_a_message_that_comes_twice_is_held_once() -> None:
    scene = Scene()
    scene.begin()
    scene.give(reached=500, last=True)
    before = scene.talk.conversation.waiting
    scene.link.say(message(1100), message(1100))
    assert scene.talk.conversation.waiting == before + len(message(1100)) + ITEM_BYTES
    scene.answer()
    scene.tape.ring()
    scene.give(reached=2000, last=True)
    scene.answer()
    assert scene.heard() == [message(1100)]
    assert scene.talk.conversation.waiting == limits.REPLAY_BYTES


def test_last_values_and_directed_messages_are_not_passed_on() -> None:
    scene = Scene()
    scene.begin()
    scene.give(reached=10, last=True)
    retained = message(5).replace(b" ok\0", b" retained\0")
    scene.link.say(retained, message(6, channel="!here/node/1"), message(7, channel="!"))
    scene.answer()
    scene.tape.ring()
    scene.give(reached=5000, last=True)
    scene.answer()
    scene.link.say(retained, message(8, channel="!here/node/1"), message(9))
    assert scene.heard() == [message(9)]


def test_a_recorder_that_does_not_go_on_is_waited_for_and_told() -> None:
    scene = Scene()
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    scene.link.say(message(1001))
    while scene.tape.timer:
        scene.tape.ring()
        scene.give(reached=10, last=True)
    assert scene.tape.seconds == limits.SEAM_SECONDS
    scene.answer()
    assert scene.heard() == [unrecorded(10, 1000, UNWRITTEN)[1], message(1001)]


def test_a_recorder_that_goes_on_is_waited_for_anew() -> None:
    scene = Scene()
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    looks = int(limits.SEAM_SECONDS / limits.LOOK_SECONDS)
    for _ in range(looks - 1):
        scene.tape.ring()
        scene.give(reached=10, last=True)
    scene.tape.ring()
    scene.give(reached=20)
    scene.give(reached=20, last=True)
    assert scene.tape.timer, "a file has come since"
    assert scene.heard() == []


@pytest.mark.parametrize("asked", [b"0  a/>", b"0 0.000000900 a/>"])
def test_without_a_recorder_nothing_is_waited_for(asked: bytes) -> None:
    scene = Scene(asked)
    scene.begin()
    scene.give(reached=10, last=True, written=False)
    while scene.asks:
        scene.answer()
    end = 1000 if asked.count(b"  ") else 900
    assert scene.heard() == [unrecorded(10, end, UNWRITTEN)[1]]
    assert scene.reasons() == ([] if end == 1000 else [b""])


def test_nothing_is_read_for_who_gives_no_credit() -> None:
    scene = Scene(window=0)
    scene.begin()
    scene.give(*[message(number) for number in range(100)], reached=100)
    assert scene.heard() == []
    assert scene.tape.taker is None
    assert scene.talk.endpoint.queued == 0
    held = scene.talk.conversation.waiting
    assert held == limits.REPLAY_BYTES + sum(ITEM_BYTES + len(message(number)) for number in range(100))
    scene.talk.peer.grant(scene.channel, 1)  # what credit has come for begins
    scene.heard()
    assert scene.tape.taker is None
    scene.talk.peer.set_window(scene.channel, 1 << 20)
    assert scene.heard() == [message(number) for number in range(100)]
    assert scene.tape.taker is not None
    scene.talk.peer.cancel(scene.channel)
    scene.heard()
    assert (scene.tape.is_closed, scene.link.is_closed, scene.talk.conversation.waiting) == (True, True, 0)
    scene.tape.give(scene.portion(message(200)))  # the thread was at it


def test_what_does_not_fit_is_taken_from_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(message(1001)) + ITEM_BYTES
    monkeypatch.setattr(limits, "SEAM_BYTES", 3 * size)
    scene = Scene()
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    scene.link.say(*[message(number) for number in range(1001, 1006)])
    scene.tape.ring()
    scene.give(message(1000), message(1001), reached=1001)
    scene.answer()
    scene.give(reached=1001, last=True)
    assert scene.heard() == [message(1000), message(1001)], "1002 is in neither yet"
    scene.tape.ring()
    scene.give(message(1002), message(1003), reached=1003)
    scene.answer()
    scene.give(reached=1003, last=True)
    scene.answer()
    assert [number_of(packet) for packet in scene.heard()] == list(range(1000, 1006))


def test_what_the_daemon_drops_comes_from_the_record() -> None:
    scene = Scene()
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    scene.tape.time = 2000
    scene.link.say(b"CMSG dropped\x003", message(1004))
    scene.tape.ring()
    scene.give(message(1001), reached=1500)
    scene.answer()
    scene.give(reached=1500, last=True)
    assert scene.heard() == [message(1001)]
    scene.tape.ring()
    scene.give(message(1002), message(1003), message(1004), reached=2000)
    scene.answer()
    scene.give(reached=2000, last=True)
    scene.answer()
    assert [number_of(packet) for packet in scene.heard()] == [1001, 1002, 1003, 1004]


def test_what_is_dropped_at_the_last_moment_comes_too() -> None:
    scene = Scene()
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    scene.tape.ring()
    scene.give(reached=1000, last=True)
    scene.tape.time = 2000
    scene.link.say(b"CMSG dropped\x001")
    scene.answer()
    scene.tape.ring()
    scene.give(message(1500), reached=2000)
    scene.answer()
    scene.give(reached=2000, last=True)
    assert scene.asks, "more may have been dropped since"
    scene.answer()
    scene.link.say(message(2001))
    assert scene.heard() == [message(1500), message(2001)]


def test_what_finds_no_room_holds_up_what_comes_behind_it() -> None:
    """The endpoint takes 256 KiB for a channel; the transport has taken none of it yet."""
    scene = Scene(window=1 << 22)
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    scene.tape.ring()
    large = [recv(number, None, "here/a", number, "a/x", bytes(60_000))[1] for number in range(11, 21)]
    scene.give(*large, reached=20)
    scene.answer()
    assert scene.tape.taker is None
    scene.link.say(message(1001))
    assert scene.link.unread
    scene.link.owner.ended()
    assert scene.heard() == large
    assert scene.reasons() == [b"unavailable the daemon went away"]


def test_what_was_dropped_behind_a_slow_peer_comes_too() -> None:
    scene = Scene(window=0)
    scene.begin()
    scene.give(reached=10, last=True)
    scene.answer()
    scene.tape.ring()
    scene.give(message(999), reached=1000)
    scene.answer()
    scene.link.say(b"CMSG dropped\x003", message(1004))
    assert len(scene.link.unread) == 2
    scene.tape.time = 2000
    scene.talk.peer.set_window(scene.channel, 1 << 20)
    assert scene.heard() == [message(999)]
    scene.give(reached=1000, last=True)
    scene.tape.ring()
    scene.give(message(1001), message(1002), message(1003), reached=2000)
    scene.answer()
    scene.give(reached=2000, last=True)
    scene.answer()
    assert [number_of(packet) for packet in scene.heard()] == [999, 1001, 1002, 1003, 1004]


def test_what_ends_it_comes_behind_what_was_read() -> None:
    scene = Scene(window=0)
    scene.begin()
    scene.give(message(1), reached=10)
    scene.link.owner.ended()
    assert scene.reasons() == []
    scene.talk.peer.set_window(scene.channel, 1 << 16)
    assert scene.heard() == [message(1)]
    assert scene.reasons() == [b"unavailable the daemon went away"]
    lost = Scene()
    lost.begin()
    lost.tape.give(b"unavailable there is no record")
    assert lost.reasons() == [b"unavailable there is no record"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (b"REPLAY", b"bad-pattern it is 1 to 1024"),
        (b"REPLAY 0 a\n", b"bad-pattern it is 1 to 1024"),
        (b"REPLAY 0 a", b"bad-packet REPLAY needs"),
        (b"REPLAY 0  !x", b"bad-pattern a replay"),
        (b"REPLAY soon  a", b"bad-value soon: must be"),
    ],
)
def test_what_is_no_replay_is_refused_before_anything_is_done(asked: bytes, reason: bytes) -> None:
    tape = FakeTape()
    talk = Talk(lend=lambda: tape)
    channel = talk.stream(asked)
    (said,) = endings(talk.settle(), channel)
    assert said.startswith(reason)
    assert talk.links == []
    busy = Talk(lend=lambda: b"limit: too many")
    channel = busy.stream(b"REPLAY 0  a")
    assert endings(busy.settle(), channel) == [b"limit: too many"]


# --- the seam ---


def test_nothing_is_missing_and_nothing_comes_twice_at_the_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon publishes, its link is read, the recorder takes, ends a file, the thread reads, the peer grants: in
    any order. The peer gets each message once, in order.
    """
    for seed in range(200):
        draw = random.Random(seed)
        room = draw.choice([2, 5, 1000]) * (len(message(1001)) + ITEM_BYTES)
        monkeypatch.setattr(limits, "SEAM_BYTES", room)
        scene = Scene(window=draw.choice([0, 1 << 20]))
        world = _World(scene)
        weights = [draw.choice([1, 2, 8]) for _ in _World.STEPS]
        for step in draw.choices(_World.STEPS, weights, k=draw.choice([30, 100, 300])):
            getattr(world, step)()
        world.settle()
        # One that is dropped when it follows is missing as for any slow reader: it is told in its place.
        told = [0 if packet == b"CMSG dropped\x001" else number_of(packet) for packet in scene.heard()]
        assert [number or at for at, number in enumerate(told, 1)] == list(range(1, world.published + 1)), (
            seed
        )


class _World:
    """The daemon takes packets in order, and tells its clients in order, as their sockets are read. It drops the
    oldest of a client that is not read. Its messages go to the recorder as well, which ends files.
    """

    STEPS = ("publish", "join", "serve", "read", "record", "rotate", "look", "grant")
    QUEUE = 4

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.time = 1000
        self.published = 0
        self.served = 0  # packets of the link that the daemon has dealt with
        self.subscribed = False
        self.queue: list[bytes] = []  # of the client
        self.tapped: list[bytes] = []  # that the recorder has not taken
        self.open: list[bytes] = []  # of the file that is written
        self.until = 0
        self.files: list[tuple[list[bytes], int]] = []
        self.at = 0  # the next file that the replay reads
        self.reached = 0

    def tick(self) -> None:
        self.time += 1
        self.scene.tape.time = self.time

    def publish(self) -> None:
        self.tick()
        self.published += 1
        packet = message(self.published, self.time)
        self.tapped.append(packet)
        if self.subscribed:
            self._tell(packet)

    def _tell(self, packet: bytes) -> None:
        self.queue.append(packet)
        while sum(each.startswith(b"RECV") for each in self.queue) > self.QUEUE:
            oldest = next(at for at, each in enumerate(self.queue) if each.startswith(b"RECV"))
            self.queue[oldest] = b"CMSG dropped\x001"

    def join(self) -> None:
        if not self.scene.link.taken:
            self.scene.link.owner.joined()

    def serve(self) -> None:
        """The daemon deals with one packet of its client."""
        if self.served < len(self.scene.link.taken):
            packet = self.scene.link.taken[self.served]
            self.served += 1
            if packet == BARRIER:
                self.queue.append(NAME)
            elif not packet.startswith(b"CMSG"):
                self.subscribed = packet.startswith(b"SUB")

    def read(self) -> None:
        """The loop reads one packet of the daemon, if the replay has an appetite."""
        if self.queue and not self.scene.link.is_closed and self.scene.link.owner.appetite():
            self.tick()
            self.scene.link.owner.received([self.queue.pop(0)])

    def record(self) -> None:
        if self.tapped:
            packet = self.tapped.pop(0)
            self.open.append(packet)
            self.until = int(packet.split(b" ")[2])
        else:
            self.until = self.time  # as the answer to its ping says

    def rotate(self) -> None:
        self.files.append((self.open, self.until))
        self.open = []

    def look(self) -> None:
        """The thread reads, or it is time to look again."""
        tape = self.scene.tape
        if tape.taker:
            if self.at < len(self.files):
                packets, self.reached = self.files[self.at]
                self.at += 1
                self.scene.give(*packets, reached=self.reached)
            else:
                self.scene.give(reached=self.reached, last=True)
        elif tape.timer:
            tape.ring()

    def grant(self) -> None:
        self.scene.talk.peer.grant(self.scene.channel, 100)
        self.scene.heard()

    def settle(self) -> None:
        """Everything goes on, until nothing more comes of it."""
        self.join()
        self.scene.talk.peer.grant(self.scene.channel, 1 << 20)
        for _ in range(300):
            self.scene.heard()
            self.tick()
            for step in (self.serve, self.read, self.read, self.record, self.rotate, self.look):
                step()
