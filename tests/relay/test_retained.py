"""The newest message of each retained channel: what is kept, for how long, and who is given it when."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.daemon.turns import Leftover
from bccnd.relay import client_input
from bccnd.relay.client_input import LOOK_STEPS, REQUEST_STEPS, ROW_STEPS, STEPS
from bccnd.relay.options import Retain
from bccnd.relay.ordered import OrderedKeys
from bccnd.relay.pattern import matches
from bccnd.relay.retained import ENTRY_COST, OWNER_COST, Kept, Retained
from bccnd.relay.rights import AccessList
from bccnd.relay.succession import restore, state_of
from bccnd.wire import sbus
from bccnd.wire.sbus import Recv
from tests.relay.fakes import CLOCK, ELSEWHERE, Bus, FakeClient, datagram, options

thorough = settings(deadline=None, max_examples=200)

CHANNELS = [b"state/a", b"state/b", b"state/a/deep", b"state/", b"other/a", b"local/state/a"]
PATTERNS = [b"", b">", b"state/>", b"state/", b"state/*", b"state/a*", b"*/a", b"state/a", b"local/>", b"x"]
ALL = (">",)


def kept(payload: bytes, chan: bytes = b"state/a") -> Kept:
    whole = datagram(b"src", 1, chan, payload)
    return Kept(b"10.0.0.2:5400", 5, whole, len(whole) - len(payload))


def filled(*channels: bytes, payload: bytes = b"x", **bounds: int) -> Retained:
    retained = Retained(Retain(ALL, **{"channels": 100, "bytes": 1 << 20} | bounds))
    for chan in channels:
        retained.keep(chan, kept(payload, chan))
    return retained


def channels_of(retained: Retained, pattern: bytes = b"", separator: bytes = b"/") -> list[bytes]:
    return [chan for chan, _ in rows(retained, pattern, separator)]


def rows(retained: Retained, pattern: bytes = b"", separator: bytes = b"/") -> list[tuple[bytes, Kept]]:
    return [row for row in retained.matching(pattern, separator) if row]


# What is kept


@pytest.mark.parametrize(
    ("chan", "wanted"),
    [(b"state/a", True), (b"state/a/b", True), (b"state", False), (b"x", False), (b"one/x", True)],
)
def test_the_patterns_say_what_is_wanted(chan: bytes, wanted: bool):
    assert Retained(Retain(("state/>", "one/*"))).wants(chan) == wanted


def test_directed_channels_are_never_retained():
    retained = Retained(Retain(ALL))
    assert retained.wants(b"a")
    assert not retained.wants(b"!")
    assert not retained.wants(b"!a")


def test_nothing_is_wanted_without_patterns():
    assert not Retained(Retain()).wants(b"a")


def test_the_newest_replaces_the_one_before():
    retained = filled(b"state/a")
    retained.keep(b"state/a", kept(b"newer"))
    assert rows(retained, b"state/a") == [(b"state/a", kept(b"newer"))]
    assert len(retained) == 1


def test_an_empty_payload_deletes():
    retained = filled(b"state/a", b"state/b")
    retained.keep(b"state/a", kept(b""))
    retained.keep(b"never/there", kept(b"", b"never/there"))
    assert channels_of(retained) == [b"state/b"]


def test_the_channel_updated_longest_ago_goes_first():
    retained = filled(b"a", b"b", b"c", b"a", b"d", channels=3)
    assert channels_of(retained) == [b"a", b"c", b"d"]


def test_bounded_in_bytes():
    one = ENTRY_COST + 1 + len(kept(b"x", b"a").datagram)
    bound = 4 * OWNER_COST + 2 * one
    retained = filled(b"a", b"b", b"c", bytes=bound)
    assert (channels_of(retained), retained.size) == ([b"b", b"c"], bound)


def test_too_large_message_is_not_kept_nor_its_predecessor():
    retained = filled(b"a", b"b", bytes=6000)
    retained.keep(b"a", kept(b"x" * 6000, b"a"))
    assert channels_of(retained) == [b"b"]


def test_other_limits_forget_what_they_do_not_allow():
    retained = filled(b"state/a", b"state/b", b"other/a", b"state/c")
    retained.limit(Retain(("state/>",), channels=2))
    assert channels_of(retained) == [b"state/b", b"state/c"]
    retained.limit(Retain(channels=2))
    assert (len(retained), retained.size) == (0, 0)


@pytest.mark.parametrize("separator", [b"/", b"."])
@pytest.mark.parametrize("pattern", [*PATTERNS, b"a>", b"a.b.>", b"a.*", b"a."])
def test_matching_is_what_the_pattern_matches(pattern: bytes, separator: bytes):
    channels = [*CHANNELS, b"x", b"a", b"a>", b"a.b", b"a.b.c", b"a.", b"state"]
    expected = sorted(chan for chan in channels if matches(pattern, separator, chan))
    assert channels_of(filled(*channels), pattern, separator) == expected


def looked_at(retained: Retained, action: Callable[[], object]) -> int:
    """How many rows it looks for."""
    count = 0
    first = OrderedKeys.first

    def counted(keys: OrderedKeys, start: bytes) -> bytes | None:
        nonlocal count
        count += 1
        return first(keys, start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OrderedKeys, "first", counted)
        action()
    return count


def test_matching_looks_at_no_others():
    """At those that begin as the pattern does, a row for each step that is taken."""
    retained = filled(
        *(b"state/%04d/%d" % (n, n % 2) for n in range(4000)), b"zoo/a", channels=5000, bytes=1 << 24
    )
    assert looked_at(retained, lambda: list(retained.matching(b"state/0017*/>", b"/"))) == 2
    assert looked_at(retained, lambda: list(retained.matching(b"zoo/>", b"/"))) == 2
    assert looked_at(retained, lambda: list(retained.matching(b"zoo/a", b"/"))) == 0
    assert looked_at(retained, lambda: list(retained.matching(b"nothing/>", b"/"))) == 1
    assert looked_at(retained, lambda: list(islice(retained.matching(b"", b"/"), 10))) == 10
    rows = retained.matching(b"state/*/1", b"/")
    assert looked_at(retained, lambda: list(islice(rows, 100))) == 100
    assert next(rows) is None  # a step that found nothing counts, too
    assert next(rows) == (b"state/0101/1", kept(b"x", b"state/0101/1"))


def test_rows_hold_as_of_the_subscription():
    """What is updated, deleted or new while they are taken was sent to the subscriber as it came."""
    retained = filled(b"a", b"b", b"c", b"d", b"e")
    steps = retained.matching(b">", b"/")
    assert next(steps) == (b"a", kept(b"x", b"a"))
    for chan, payload in ((b"a", b"new"), (b"b", b""), (b"c", b"new"), (b"cc", b"new")):
        retained.keep(chan, kept(payload, chan))
    assert [row[0] for row in steps if row] == [b"d", b"e"]
    assert channels_of(retained) == [b"a", b"c", b"cc", b"d", b"e"]


def test_one_channel_deleted_before_its_step():
    retained = filled(b"a")
    steps = retained.matching(b"a", b"/")
    retained.keep(b"a", kept(b"", b"a"))
    assert list(steps) == [None]


messages = st.tuples(st.sampled_from(CHANNELS), st.sampled_from([b"", b"1", b"2", b"x" * 300, b"y" * 2000]))


@thorough
@given(
    script=st.lists(messages, max_size=40),
    wanted=st.lists(st.sampled_from(PATTERNS), max_size=3),
    channels=st.integers(1, 5),
    size=st.integers(1, 4000),
)
def test_any_script_against_the_obvious(
    script: list[tuple[bytes, bytes]], wanted: list[bytes], channels: int, size: int
):
    rules = Retain(tuple(pattern.decode() for pattern in wanted), channels, size)
    retained = Retained(rules)
    oracle: list[tuple[bytes, Kept]] = []
    for chan, payload in script:
        if not any(matches(pattern, b"/", chan) for pattern in wanted):
            assert not retained.wants(chan)
            continue
        assert retained.wants(chan)
        message = kept(payload, chan)
        retained.keep(chan, message)
        oracle = [entry for entry in oracle if entry[0] != chan]
        if payload and cost([(chan, message)]) <= size:
            oracle.append((chan, message))
        while len(oracle) > channels or whole_cost(oracle) > size:
            del oracle[0]
        assert rows(retained) == sorted(oracle)
        assert (len(retained), retained.size) == (len(oracle), whole_cost(oracle))
    successor = Retained(rules)
    successor.restore(retained.state())
    assert rows(successor) == sorted(oracle)
    assert successor.state() == retained.state()
    for chan, _ in oracle:
        retained.keep(chan, kept(b"", chan))
    assert (len(retained), retained.size) == (0, 0)


def whole_cost(entries: Iterable[tuple[bytes, Kept]]) -> int:
    """With what is kept of their one owner and source, by address and by host."""
    return cost(entries) + 4 * OWNER_COST if entries else 0


def cost(entries: Iterable[tuple[bytes, Kept]]) -> int:
    return sum(ENTRY_COST + len(chan) + len(message.datagram) for chan, message in entries)


# Who is given it


def test_newcomer_gets_the_newest_message_of_each_channel():
    bus = Bus(retain=["state/>"])
    publisher = bus.connect()
    publisher.say(b"MSG state/a\0old", b"MSG state/b\0here", b"MSG other/a\0not kept")
    bus.hear(datagram(b"x", 1, b"state/a", b"there"), datagram(b"x", 2, b"state/c", b"too"))
    newcomer = bus.connect()
    assert newcomer.ask(b"SUB >") == [b"MSG state/a\0there", b"MSG state/b\0here", b"MSG state/c\0too"]
    publisher.say(b"MSG state/a\0new")
    assert newcomer.heard() == [b"MSG state/a\0new"]


def test_nobody_is_given_what_was_deleted():
    bus = Bus(retain=["state/>"])
    reader, publisher = bus.connect(b"SUB state/a"), bus.connect(b"MSG state/a\0on", b"MSG state/b\0on")
    reader.heard()
    publisher.say(b"MSG state/a\0")
    bus.hear(datagram(b"x", 1, b"state/b"))
    assert reader.heard() == [b"MSG state/a\0"]
    assert bus.connect().ask(b"SUB >") == []


def test_full_format_marks_retained_with_time_and_peer():
    bus = Bus(retain=["state/>", "local/>"])
    publisher = bus.connect(b"MSG state/a\0one", b"MSG local/b\0two", pid=7)
    there = datagram(b"x", 9, b"state/c", b"three")
    bus.hear(there)
    heard_at = bus.unix_us * 1000
    bus.tick(60)
    reader = bus.connect(b"CMSG format\0full")
    assert reader.ask(b"SUB >") == [
        Recv(b"local", heard_at, b"retained", datagram(b"here/prog/7", 1, b"local/b", b"two")).serialize(),
        Recv(b"local", heard_at, b"retained", bus.sent[0]).serialize(),
        Recv(ELSEWHERE, heard_at, b"retained", there).serialize(),
    ]
    publisher.say(b"MSG state/a\0again")
    assert Recv.parse(reader.heard()[0][5:]).verdict == b"ok"


def test_in_lines_it_is_a_line():
    bus = Bus(retain=["state/>"])
    bus.connect(b"MSG state/a\0two\nlines")
    assert bus.connect().ask(b"SUB >\n") == [b"MSG state/a two\\nlines\n"]


def test_a_packed_client_is_given_it_packed():
    bus = Bus(retain=["state/>"])
    bus.connect(b"MSG state/a\0one", b"MSG state/b\0two")
    reader = bus.connect(b"CMSG pack\0on")
    reader.say(b"SUB state/*")
    assert reader.heard_packets() == [sbus.pack([b"MSG state/a\0one", b"MSG state/b\0two"])]


def test_retained_message_comes_once_for_many_patterns():
    bus = Bus(retain=ALL)
    bus.connect(b"MSG a/x\0one", b"MSG a/y\0two")
    reader = bus.connect()
    assert reader.ask(b"SUB a/x") == [b"MSG a/x\0one"]
    assert reader.ask(b"SUB a/x", b"SUB a/>", b"SUB >", b"SUB a/y") == [b"MSG a/y\0two"]
    reader.ask(b"UNSUB a/x", b"UNSUB a/x", b"UNSUB a/>", b"UNSUB a/y")
    assert reader.ask(b"SUB a/x") == []
    assert reader.ask(b"UNSUB >", b"UNSUB a/x", b"SUB a/x") == [b"MSG a/x\0one"]


def test_patterns_of_the_other_separator_count_too():
    bus = Bus(retain=ALL)
    bus.connect(b"MSG a.x\0one")
    reader = bus.connect(b"SUB a.x")
    assert reader.ask(b"CMSG separator\0.", b"SUB a.>") == [b"CMSG separator\0."]


def test_listening_alone_brings_no_retained_messages():
    bus = Bus(retain=ALL)
    bus.connect(b"MSG !\0to all", b"MSG !here\0directed", b"MSG a\0x")
    assert bus.connect().ask(b"CMSG listen") == [b"CMSG listen\0"]


def test_a_pattern_that_is_refused_gives_nothing():
    bus = Bus(retain=ALL, subscriptions=1)
    bus.connect(b"MSG a*b\0x")
    reader = bus.connect()
    assert [packet[:12] for packet in reader.ask(b"SUB a*b")] == [b"CMSG error\0b"]
    assert reader.ask(b"SUB x", b"SUB >")[0].startswith(b"CMSG error\0limit")


def test_tap_gets_no_retained_messages():
    bus = Bus(retain=ALL)
    bus.connect(b"MSG a\0x")
    assert bus.connect(b"CMSG tap\0on", privileged=True).ask(b"SUB >") == []


def test_a_bridged_datagram_is_kept():
    bus = Bus(retain=ALL)
    bridged = datagram(b"far", 1, b"a", b"x")
    bus.connect(bridged, privileged=True)
    assert bus.connect(b"CMSG format\0full").ask(b"SUB a") == [
        Recv(b"local", CLOCK * 1000, b"retained", bridged).serialize()
    ]


def test_rejected_datagrams_are_not_retained():
    bus = Bus(retain=ALL)
    bus.hear(datagram(b"x", 2, b"a", b"new"), datagram(b"x", 1, b"a", b"late"), b"BCCN1[3]x:1")
    bus.hear(datagram(b"x", 3, b"local/a", b"from the network"))
    assert bus.connect().ask(b"SUB >") == [b"MSG a\0new"]


def test_retained_comes_before_later_answers_and_messages():
    bus = Bus(retain=ALL)
    publisher = bus.connect(b"MSG a\0001")
    reader = bus.connect()
    reader.stop_reading()
    reader.say(b"SUB a", b"CMSG ping")
    publisher.say(b"MSG a\0002")
    assert reader.take() == [b"MSG a\0001", b"CMSG pong\0", b"MSG a\0002"]


def test_publisher_that_subscribes_gets_its_own_retained():
    bus = Bus(retain=ALL)
    assert bus.connect().ask(b"MSG a\0001", b"SUB a", b"MSG a\0002") == [b"MSG a\0001", b"MSG a\0002"]


# Bounds of the client


def many(bus: Bus, channels: int) -> None:
    publisher = bus.connect(b"CMSG pack\0on")
    for first in range(0, channels, 500):
        publisher.say(
            sbus.pack(
                [b"MSG state/%05d\0%d" % (each, each) for each in range(first, min(first + 500, channels))]
            )
        )


@pytest.mark.parametrize("packed", [b"on", b"off"])
def test_one_pattern_for_ten_thousand_channels(packed: bytes):
    bus = Bus(retain=ALL, retain_channels=10_000, retain_bytes=1 << 30)
    many(bus, 10_000)
    reader = bus.connect(b"CMSG pack\0" + packed)
    assert reader.ask(b"SUB >") == [b"MSG state/%05d\0%d" % (each, each) for each in range(10_000)]
    reader.leave()


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "block", "disconnect"])
def test_ten_thousand_channels_for_one_who_does_not_read(policy: str):
    """They wait for the client, which waits with them: nobody else does, and nothing is lost."""
    bus = Bus(retain=ALL, retain_channels=10_000, retain_bytes=1 << 30)
    many(bus, 10_000)
    other = bus.connect(b"SUB new")
    reader = bus.connect(b"CMSG queue\0packets=100 policy=%b" % policy.encode())
    reader.stop_reading(5)
    reader.say(b"SUB state/>", b"CMSG ping")
    assert 50 < reader.session.outbox.packets <= 100
    assert reader.held
    bus.hear(datagram(b"x", 1, b"new", b"x"))
    assert other.heard() == [b"MSG new\0x"]
    bus.tick(60)
    assert reader.take() == [b"MSG state/%05d\0%d" % (each, each) for each in range(10_000)] + [
        b"CMSG pong\0"
    ]
    for client in list(bus.clients.values()):
        client.leave()
    bus.assert_idle()


# A page at a time


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
    bus = Bus(retain=ALL, retain_channels=10_000, retain_bytes=1 << 30)
    many(bus, 10_000)
    paging = Paging(bus, b"SUB " + pattern)
    calls = []
    while paging.goes_on:
        calls.append(looked_at(bus.relay.state.retained, paging.call))
    assert max(calls) <= STEPS // LOOK_STEPS + 1
    assert sum(calls) >= 10_000


def test_a_pattern_held_already_looks_at_none():
    bus = Bus(retain=ALL)
    many(bus, 1000)
    reader = bus.connect(b"SUB >")
    assert looked_at(bus.relay.state.retained, lambda: reader.say(b"SUB >", b"UNSUB >")) == 0


def test_patterns_that_cannot_meet_are_not_asked(monkeypatch: pytest.MonkeyPatch):
    bus = Bus(retain=ALL)
    many(bus, 100)
    asked = []
    monkeypatch.setattr(type(bus.relay.state.router), "matching", lambda *about: asked.append(about) or 1)
    assert len(bus.connect(b"SUB other/>", b"SUB states").ask(b"SUB state/>")) == 100
    assert not asked
    assert len(bus.connect(b"SUB state/00001").ask(b"SUB state/>")) == 100
    assert len(asked) == 100


@pytest.mark.usefixtures("short_pages")
def test_what_comes_between_two_pages():
    bus = Bus(retain=ALL)
    many(bus, 40)
    publisher = bus.connect()
    paging = Paging(bus, b"SUB >", b"CMSG ping", b"UNSUB >", b"CMSG ping\0end")
    first = paging.call()
    assert first == [b"MSG state/%05d\0%d" % (each, each) for each in range(len(first))]
    assert 3 <= len(first) <= 10
    news = [b"MSG state/00000\0new", b"MSG state/00038\0new", b"MSG state/00039\0", b"MSG state/00025a\0new"]
    publisher.say(*news)
    assert paging.client.heard() == news
    rest = [b"MSG state/%05d\0%d" % (each, each) for each in range(len(first), 38)]
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
    bus = Bus(retain=ALL)
    many(bus, 40)
    paging = Paging(bus, b"SUB >")
    paging.call()
    if how == "revoked":
        bus.reconfigure(access=AccessList([]))
        paging.client.heard()
    elif how == "gone":
        paging.client.vanish()
    else:
        bus.relay.close(paging.client.session, "slow")
    assert looked_at(bus.relay.state.retained, paging.finish) <= 10
    paging.client.leave()


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("wanted", [ALL, ("state/0001*",)])
def test_a_successor_goes_on_with_the_pages(wanted: tuple[str, ...]):
    old, new = Bus(retain=ALL), Bus(retain=wanted)
    many(old, 40)
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
    assert paging.finish() == [*[b"MSG state/%05d\0%d" % (each, each) for each in rest], b"CMSG pong\0"]
    assert session.subscriptions == {(b"/", b">"): 1}


def test_successor_keeps_what_its_settings_allow():
    old = Bus(retain=ALL)
    old.connect(b"MSG state/a\0one", b"MSG state/b\0two", b"MSG other\0three").leave()
    new = Bus(retain=["state/>"], retain_channels=1)
    restore(new.relay, state_of(old.relay) | {"sessions": []}, {})
    assert new.connect().ask(b"SUB >") == [b"MSG state/b\0two"]


def test_other_patterns_hold_from_a_reload_on():
    bus = Bus(retain=["state/>"])
    publisher = bus.connect(b"MSG state/a\0one", b"MSG other/a\0one")
    bus.reconfigure(options=options(local=[], retain=["other/>"]))
    publisher.say(b"MSG state/b\0two", b"MSG other/b\0two")
    assert bus.connect().ask(b"SUB >") == [b"MSG other/b\0two"]


# Against the obvious: every message of a script, and who must have been given what


@thorough
@given(
    script=st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["publish", "hear"]),
                st.tuples(st.sampled_from(CHANNELS), st.sampled_from([b"", b"1", b"2"])),
            ),
            st.tuples(st.sampled_from(["sub", "unsub"]), st.sampled_from(PATTERNS)),
        ),
        max_size=40,
    )
)
def test_any_script_of_one_reader_against_the_obvious(script: list[tuple[str, object]]):
    bus = Bus(retain=["state/>", "local/>"])
    reader, publisher = bus.connect(), bus.connect()
    held: list[bytes] = []
    last: dict[bytes, bytes] = {}
    for seq, (action, what) in enumerate(script):
        expected: list[bytes] = []
        match action, what:
            case "hear", (bytes(chan), bytes(payload)) if chan.startswith(b"local/"):
                bus.hear(datagram(b"x", seq, chan, payload))  # which is rejected
            case "publish" | "hear", (bytes(chan), bytes(payload)):
                if action == "publish":
                    publisher.say(b"MSG %b\0%b" % (chan, payload))
                else:
                    bus.hear(datagram(b"x", seq, chan, payload))
                last.pop(chan, None)
                if payload and chan.startswith((b"state/", b"local/")) and chan != b"state/":
                    last[chan] = payload
                if any(matches(pattern, b"/", chan) for pattern in held):
                    expected = [b"MSG %b\0%b" % (chan, payload)]
            case "sub", bytes(pattern):
                expected = [
                    b"MSG %b\0%b" % (chan, payload)
                    for chan, payload in sorted(last.items())
                    if matches(pattern, b"/", chan) and not any(matches(one, b"/", chan) for one in held)
                ]
                held.append(pattern)
                reader.say(b"SUB " + pattern)
            case _, bytes(pattern):
                reader.say(b"UNSUB " + pattern)
                if pattern in held:
                    held.remove(pattern)
                else:
                    reader.heard()  # an error
        assert reader.heard() == expected


# Whoever has most gives first


@pytest.mark.parametrize("bound", [{"channels": 100}, {"bytes": 128 << 10}])
def test_no_source_pushes_out_what_another_has_said(bound: dict[str, int]):
    bus = Bus(retain=["state/>"], **{f"retain_{name}": value for name, value in bound.items()})
    modest, greedy = bus.connect(), bus.connect()
    modest.say(*[b"MSG state/modest/%d\0x" % number for number in range(20)])
    greedy.say(*[b"MSG state/greedy/%d\0" % number + bytes(900) for number in range(500)])
    late = bus.connect()
    heard = late.ask(b"SUB state/modest/>")
    assert len(heard) == 20
    assert len(late.ask(b"SUB state/greedy/>")) > 50


def test_no_user_pushes_out_what_another_has_said():
    bus = Bus(retain=["state/>"], retain_channels=1000)
    bus.connect(uid=1000).say(*[b"MSG state/modest/%d\0x" % at for at in range(100)])
    for number in range(70):
        greedy = bus.connect(uid=1001)
        greedy.say(*[b"MSG state/greedy/%d/%d\0x" % (number, at) for at in range(60)])
    late = bus.connect()
    assert len(late.ask(b"SUB state/modest/>")) == 100
    assert len(late.ask(b"SUB state/greedy/>")) > 800


@pytest.mark.parametrize(
    ("src", "peer"),
    [
        (b"there/prog/%d", b"10.0.0.9:%d"),  # many sources of a host
        (b"there%d/prog/1", b"10.0.0.9:%d"),  # many hosts of an address
        (b"there/prog/1", b"10.0.1.%d:5400"),  # many addresses of a host
    ],
)
def test_no_host_pushes_out_what_others_have_said(src: bytes, peer: bytes):
    bus = Bus(retain=["state/>"], retain_channels=240)
    bus.connect().say(*[b"MSG state/modest/%d\0x" % at for at in range(50)])
    for at in range(50):
        bus.hear(datagram(b"modest/prog/1", at + 1, b"state/modest/there/%d" % at, b"x"))
    for number in range(255):
        source = src.replace(b"%d", b"%d" % number)
        whole = datagram(source, number + 1, b"state/greedy/%d" % number, b"x")
        bus.hear(whole, peer=peer % number)
    assert len(bus.connect().ask(b"SUB state/modest/>")) == 100


def test_what_a_bridge_brings_is_of_its_user():
    bus = Bus(retain=["state/>"], retain_channels=120)
    bus.connect().say(*[b"MSG state/modest/%d\0x" % at for at in range(50)])
    bridge = bus.connect(privileged=True)
    for number in range(200):
        bridge.say(datagram(b"far%d/prog/1" % number, 1, b"state/far/%d" % number, b"x"))
    late = bus.connect()
    assert len(late.ask(b"SUB state/modest/>")) == 50
    assert len(late.ask(b"SUB state/far/>")) == 70


def test_a_successor_knows_who_has_said_what():
    old, new = (Bus(retain=["state/>"], retain_channels=60) for _ in range(2))
    old.connect(uid=1001).say(*[b"MSG state/greedy/%d\0x" % at for at in range(30)])
    old.connect(uid=1000).say(*[b"MSG state/modest/%d\0x" % at for at in range(20)])
    restore(new.relay, state_of(old.relay) | {"sessions": []}, {})
    for number in range(40):
        new.connect(uid=1001).say(b"MSG state/greedy/more/%d\0x" % number)
    assert len(new.connect().ask(b"SUB state/modest/>")) == 20


def test_what_a_predecessor_left_without_users_is_taken_over():
    retained = filled(b"a", b"b")
    successor = filled()
    successor.restore(retained.state())
    assert rows(successor) == rows(retained)
    successor.restore(retained.state(), [1000, 1001])
    assert successor.users() == [1000, 1001]


@thorough
@given(
    script=st.lists(
        st.tuples(st.sampled_from([None, 1, 2]), st.integers(0, 2), st.integers(0, 5), st.integers(0, 900)),
        max_size=60,
    ),
    channels=st.integers(1, 5),
    size=st.integers(600, 9000),
)
def test_who_has_most_gives(script: list[tuple[int | None, int, int, int]], channels: int, size: int):
    """Each message is of a user, or of an address, and of a source, on a channel, so long."""
    retained = Retained(Retain(ALL, channels=channels, bytes=size))
    oracle: dict[bytes, tuple[Kept, int | None]] = {}
    for user, source, chan_number, length in script:
        chan = b"c%d" % chan_number
        whole = datagram(b"s%d" % source, 1, chan, b"x" * length)
        message = Kept(b"10.0.0.1:1", 5, whole, len(whole) - length)
        before = dict(oracle)
        retained.keep(chan, message, user)
        before.pop(chan, None)
        if length and cost([(chan, message)]) <= size:
            before[chan] = message, user
        there = dict(rows(retained))
        given_up = before.keys() - there
        assert there.keys() <= before.keys()
        oracle = {each: before[each] for each in there}
        assert cost(there.items()) <= retained.size <= size
        assert len(there) <= channels
        owners: Counter[int | None] = Counter()
        sources: Counter[tuple[int | None, bytes]] = Counter()
        for each, (kept_there, whose) in before.items():
            weight = size + cost([(each, kept_there)]) * channels
            owners[whose] += weight
            sources[whose, kept_there.source] += weight
        if len(given_up) == 1:  # of several the shares shrink meanwhile
            message, whose = before[given_up.pop()]
            assert owners[whose] == max(owners.values())
            assert sources[whose, message.source] == max(
                sources[whose, each] for each in map(b"s%d".__mod__, range(3))
            )
