"""Last values of thousands of channels for one client: a page at a time, with others in between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.daemon.turns import Leftover
from bccnd.relay import client_input
from bccnd.relay.client_input import LOOK_STEPS, REQUEST_STEPS, ROW_STEPS, STEPS
from bccnd.relay.pattern import matches
from bccnd.relay.rights import AccessList
from bccnd.relay.succession import restore, state_of
from bccnd.wire import sbus
from tests.relay.counting import calls_of
from tests.relay.fakes import Bus, FakeClient, datagram
from tests.relay.last_values import ALL, looks_of

thorough = settings(deadline=None, max_examples=200)


def states(*numbers: int) -> list[bytes]:
    return [b"MSG state/%05d\0%d" % (number, number) for number in numbers]


def filled(channels: int) -> Bus:
    """One that keeps all, and has heard a state of so many channels."""
    bus = Bus(retain=ALL, retain_channels=10_000, retain_bytes=1 << 30)
    publisher = bus.connect(b"CMSG pack\0on")
    for first in range(0, channels, 500):
        publisher.say(sbus.pack(states(*range(first, min(first + 500, channels)))))
    return bus


@pytest.mark.parametrize("packed", [b"on", b"off"])
def test_one_pattern_for_ten_thousand_channels(packed: bytes):
    bus = filled(10_000)
    reader = bus.connect(b"CMSG pack\0" + packed)
    assert reader.ask(b"SUB >") == states(*range(10_000))
    reader.leave()


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "block", "disconnect"])
def test_ten_thousand_channels_for_one_who_does_not_read(policy: str):
    """They wait for the client, which waits with them: nobody else does, and nothing is lost."""
    bus = filled(10_000)
    other = bus.connect(b"SUB new")
    reader = bus.connect(b"CMSG queue\0packets=100 policy=%b" % policy.encode())
    reader.stop_reading(5)
    reader.say(b"SUB state/>", b"CMSG ping")
    assert 50 < reader.session.outbox.packets <= 100
    assert reader.held
    bus.hear(datagram(b"x", 1, b"new", b"x"))
    assert other.heard() == [b"MSG new\0x"]
    bus.tick(60)
    assert reader.take() == [*states(*range(10_000)), b"CMSG pong\0"]
    for client in list(bus.clients.values()):
        client.leave()
    bus.assert_idle()


class Paging:
    """A client whose requests are done one call of the relay at a time, with others in between."""

    def __init__(self, bus: Bus, *packets: bytes) -> None:
        self.bus, self.client = bus, bus.connect()
        spans = bus._lay(packets, bus._client_slots)
        self.left = Leftover.of(bus.memory, (spans, 0, 0))

    @property
    def goes_on(self) -> bool:
        return self.left is not None

    def call(self) -> list[bytes]:
        """What comes of the next call."""
        assert self.left is not None
        left = self.bus.from_client(self.client.session, self.left.lay_out(self.bus.memory, 0))
        self.left = Leftover.of(self.bus.memory, left) if left else None
        self.bus.settle()
        return self.client.heard()

    def finish(self) -> list[bytes]:
        heard = []
        while self.goes_on:
            heard += self.call()
        return heard


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call looks at some ten channels, in pages of three."""
    monkeypatch.setattr(client_input, "PAGE_ROWS", 3)
    monkeypatch.setattr(client_input, "STEPS", 10 * (LOOK_STEPS + ROW_STEPS) + REQUEST_STEPS)


@pytest.mark.parametrize("pattern", [b">", b"state/*", b"state/*/x", b"*/x"])
def test_one_call_looks_at_so_many_channels(pattern: bytes):
    bus = filled(10_000)
    paging = Paging(bus, b"SUB " + pattern)
    calls = []
    while paging.goes_on:
        calls.append(looks_of(paging.call))
    assert max(calls) <= STEPS // LOOK_STEPS + 1
    assert sum(calls) >= 10_000


def test_a_pattern_held_already_looks_at_none():
    bus = filled(1000)
    reader = bus.connect(b"SUB >")
    assert looks_of(lambda: reader.say(b"SUB >", b"UNSUB >")) == 0


def test_patterns_that_cannot_meet_are_not_asked():
    bus = filled(100)
    with calls_of(bus.relay.state.router, "matching") as asked:
        assert len(bus.connect(b"SUB other/>", b"SUB states").ask(b"SUB state/>")) == 100
        assert not asked
        assert len(bus.connect(b"SUB state/00001").ask(b"SUB state/>")) == 99
        assert len(asked) == 100


@pytest.mark.usefixtures("short_pages")
def test_what_comes_between_two_pages():
    bus = filled(40)
    publisher = bus.connect()
    paging = Paging(bus, b"SUB >", b"CMSG ping", b"UNSUB >", b"CMSG ping\0end")
    first = paging.call()
    assert first == states(*range(len(first)))
    assert 3 <= len(first) <= 10
    news = [b"MSG state/00000\0new", b"MSG state/00038\0new", b"MSG state/00039\0", b"MSG state/00025a\0new"]
    publisher.say(*news)
    assert paging.client.heard() == news
    rest = states(*range(len(first), 38))
    assert paging.finish() == [*rest, b"CMSG pong\0", b"CMSG pong\0end"]
    assert not paging.client.session.subscriptions


PAGED = [b"p/%d" % number for number in range(12)]


@thorough
@given(
    before=st.lists(st.sampled_from(PAGED), max_size=40),
    wanted=st.lists(st.sampled_from([b">", b"p/>", b"p/1*", b"p/3", b"*/5"]), min_size=1, max_size=4),
    between=st.lists(st.lists(st.tuples(st.sampled_from(PAGED), st.booleans()), max_size=6), max_size=8),
)
def test_pages_and_news_leave_each_channel_at_its_newest(
    before: list[bytes], wanted: list[bytes], between: list[list[tuple[bytes, bool]]]
):
    """Each message comes once, nothing old behind anything newer, whatever comes and is deleted between two pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_input, "PAGE_ROWS", 2)
        patch.setattr(client_input, "STEPS", 3 * (LOOK_STEPS + ROW_STEPS) + REQUEST_STEPS)
        bus = Bus(retain=ALL)
        publisher = bus.connect()
        last: dict[bytes, bytes] = {}

        def publish(chan: bytes, payload: bytes) -> None:
            patch.setattr(client_input, "STEPS", STEPS)
            publisher.say(b"MSG %b\0%b" % (chan, payload))
            patch.setattr(client_input, "STEPS", 3 * (LOOK_STEPS + ROW_STEPS) + REQUEST_STEPS)
            last[chan] = payload

        for number, chan in enumerate(before):
            publish(chan, b"%03d" % number)
        paging, heard = Paging(bus, *[b"SUB " + pattern for pattern in wanted]), list[bytes]()
        for number, news in enumerate(between):
            heard += paging.call() if paging.goes_on else []
            for at, (chan, is_deleted) in enumerate(news):
                publish(chan, b"" if is_deleted else b"9%d%02d" % (number, at))
        heard += paging.client.heard() + paging.finish()
    of_channel: dict[bytes, list[bytes]] = {}
    for packet in heard:
        chan, _, payload = packet.removeprefix(b"MSG ").partition(b"\0")
        of_channel.setdefault(chan, []).append(payload)
    for chan, payload in last.items():
        if any(matches(pattern, b"/", chan) for pattern in wanted):
            payloads = of_channel.pop(chan, [])
            assert payloads[-1:] == ([payload] if payload or payloads else [])
            told = [each for each in payloads if each]
            assert told == sorted(set(told))
    assert not of_channel


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("how", ["closed", "gone", "revoked"])
def test_pages_end_with_what_asked_for_them(how: str):
    bus = filled(40)
    paging = Paging(bus, b"SUB >")
    paging.call()
    if how == "revoked":
        bus.reconfigure(access=AccessList([]))
        paging.client.heard()
    elif how == "gone":
        paging.client.vanish()
    else:
        bus.relay.close(paging.client.session, "slow")
    assert looks_of(paging.finish) <= 10
    paging.client.leave()


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("wanted", [ALL, ("state/0001*",)])
def test_a_successor_goes_on_with_the_pages(wanted: tuple[str, ...]):
    old, new = filled(40), Bus(retain=wanted)
    paging = Paging(old, b"SUB >", b"CMSG ping")
    heard = paging.call()
    publisher = old.connect(b"MSG state/00000\0new", b"MSG state/00012\0new", b"MSG state/00021\0new")
    publisher.leave()
    paging.client.heard()
    ports = {session.number: session.port for session in old.relay.sessions.values()}
    restore(new.relay, state_of(old.relay), ports)
    session = new.relay.sessions[paging.client.session.number]
    paging.bus, paging.client = new, FakeClient(new, session)
    new.settle()
    kept = {*range(len(heard), 40)} if wanted == ALL else {*range(10, 20)}
    rest = sorted(kept - {12, 21})
    assert paging.finish() == [*states(*rest), b"CMSG pong\0"]
    assert session.subscriptions == {(b"/", b">"): 1}
