"""The newest message of each retained channel: what is kept, and who is given it when."""

from collections.abc import Iterable
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.options import Retain
from bccnd.relay.pattern import matches
from bccnd.relay.retained import ENTRY_COST, OWNER_COST, Kept, Retained
from bccnd.relay.succession import restore, state_of
from bccnd.wire import sbus
from bccnd.wire.sbus import Recv
from tests.relay.fakes import CLOCK, ELSEWHERE, Bus, datagram, options
from tests.relay.last_values import ALL, channels_of, cost, filled, kept, looks_of, rows

thorough = settings(deadline=None, max_examples=200)

CHANNELS = [b"state/a", b"state/b", b"state/a/deep", b"state/", b"other/a", b"local/state/a"]
PATTERNS = [b"", b">", b"state/>", b"state/", b"state/*", b"state/a*", b"*/a", b"state/a", b"local/>", b"x"]


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


def test_matching_looks_at_no_others():
    """At those that begin as the pattern does, a row for each step that is taken."""
    retained = filled(
        *(b"state/%04d/%d" % (n, n % 2) for n in range(4000)), b"zoo/a", channels=5000, bytes=1 << 24
    )
    assert looks_of(lambda: list(retained.matching(b"state/0017*/>", b"/"))) == 2
    assert looks_of(lambda: list(retained.matching(b"zoo/>", b"/"))) == 2
    assert looks_of(lambda: list(retained.matching(b"zoo/a", b"/"))) == 0
    assert looks_of(lambda: list(retained.matching(b"nothing/>", b"/"))) == 1
    assert looks_of(lambda: list(islice(retained.matching(b"", b"/"), 10))) == 10
    rows = retained.matching(b"state/*/1", b"/")
    assert looks_of(lambda: list(islice(rows, 100))) == 100
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
    assert [recv.verdict for recv in reader.shown()] == [b"ok"]


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
    reader = bus.connect_stuck()
    reader.say(b"SUB a", b"CMSG ping")
    publisher.say(b"MSG a\0002")
    assert reader.take() == [b"MSG a\0001", b"CMSG pong\0", b"MSG a\0002"]


def test_publisher_that_subscribes_gets_its_own_retained():
    bus = Bus(retain=ALL)
    assert bus.connect().ask(b"MSG a\0001", b"SUB a", b"MSG a\0002") == [b"MSG a\0001", b"MSG a\0002"]


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
