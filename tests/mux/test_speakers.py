"""Sessions, streams and requests, each with a link to a daemon that is the test."""

import pytest

from bccnd.mux import limits
from bccnd.mux.speakers import BATCH, WENT_AWAY, closing
from bpmux.events import Ended
from tests.mux.fake_link import Talk, answers, endings, messages


def test_packets_pass_as_they_are_once_it_is_joined() -> None:
    talk = Talk()
    channel = talk.peer.open_duplex(b"bus", 1 << 20)
    assert channel
    talk.settle()
    talk.peer.send(channel, b"SUB a/>\n")
    talk.peer.send(channel, b"\0")
    talk.settle()
    (link,) = talk.links
    assert link.taken == []
    link.owner.joined()
    assert link.taken == [b"SUB a/>\n", b"\0"]
    link.say(b"MSG a/x\0\xff", b"RECV")
    assert messages(talk.settle()) == [b"MSG a/x\0\xff", b"RECV"]


def test_credit_comes_back_when_the_daemon_takes() -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.room = 0
    sent = 0
    while talk.peer.room(channel) >= 1000:
        talk.peer.send(channel, bytes(1000))
        sent += 1
        talk.settle()
    assert sent == limits.WINDOW // 1000
    assert talk.conversation.waiting == sent * (1000 + limits.PACKET_BYTES)
    talk.settle()
    assert talk.peer.room(channel) < 1000
    link.take(10)
    assert len(link.taken) == 10
    talk.settle()
    assert talk.peer.room(channel) < 1000, "less than half is granted later"
    link.take()
    talk.settle()
    assert (len(link.taken), talk.conversation.waiting) == (sent, 0)
    assert talk.peer.room(channel) >= limits.WINDOW // 2


def test_the_daemon_is_not_read_for_who_gives_no_credit() -> None:
    talk = Talk()
    channel, link = talk.bus(window=0)
    link.say(*[b"MSG a\0" + bytes(94)] * 100)
    assert len(link.unread) == 100
    talk.peer.grant(channel, 100)
    assert len(messages(talk.settle())) == 1
    assert len(link.unread) == 99
    talk.peer.grant(channel, 1)  # one is read for it, and waits in the endpoint
    assert messages(talk.settle()) == []
    assert len(link.unread) == 98
    talk.peer.grant(channel, 99 + 4900)
    talk.settle()
    assert len(link.unread) == 49
    talk.peer.set_window(channel, 1 << 20)
    talk.settle()
    assert (link.unread, talk.endpoint.queued) == ([], 0)


def test_a_stalled_stream_holds_up_no_other() -> None:
    talk = Talk()
    channels = [talk.bus(window=0) for _ in range(limits.QUEUED // 65_000 + 1)]
    for channel, link in channels:
        talk.peer.grant(channel, 1)
        talk.settle()
        link.say(*[b"MSG local/a\0" + bytes(65_000)] * 3)
    talk.settle()
    assert talk.endpoint.queued > limits.QUEUED
    assert {len(link.unread) for _, link in channels} == {2}
    _, link = talk.bus()
    packets = [b"MSG a\0%d" % number for number in range(200)]
    link.say(*packets)
    assert messages(talk.settle()) == packets


def test_what_one_read_brings_beyond_the_queue_waits_in_order() -> None:
    talk = Talk()
    channel, link = talk.bus(window=1 << 30)
    packets = [b"%04d" % number + bytes(20_000) for number in range(40)]
    link.unread = packets[:]
    link.owner.received(link.unread[:BATCH])
    link.unread = []
    assert talk.endpoint.queued <= limits.ENDPOINT.queue
    rest = sum(map(len, packets)) + len(packets) * limits.PACKET_BYTES - talk.endpoint.queued
    assert talk.conversation.waiting == rest > 0
    link.owner.ended()
    seen = talk.settle()
    assert messages(seen) == packets
    assert talk.conversation.waiting == 0
    assert endings(seen, channel) == [WENT_AWAY] * 2


@pytest.mark.parametrize("kind", ["bus", "stream"])
@pytest.mark.parametrize("how", ["cancelled", "lost"])
def test_what_found_no_room_weighs_until_it_is_given_up(kind: str, how: str) -> None:
    talk = Talk()
    channel = talk.bus(window=1 << 30)[0] if kind == "bus" else talk.stream(b"SUB a", 1 << 30)
    talk.settle()
    (link,) = talk.links
    link.owner.received([b"MSG a\0" + bytes(20_000)] * 40)
    assert talk.conversation.waiting > 300_000
    if how == "lost":
        talk.conversation.lost()
    else:
        talk.peer.cancel(channel)
        talk.settle()
    assert talk.conversation.waiting == 0


def test_a_transport_that_is_behind_lets_some_read_at_a_time() -> None:
    """Each of them a batch, and nobody is left out."""
    talk = Talk()
    packets = [b"MSG a\0" + bytes(240)] * BATCH
    count = 2 * limits.READY // (BATCH * 250)
    links = [talk.bus()[1] for _ in range(count)]
    for link in links:
        link.say(*packets)
    assert limits.READY < talk.endpoint.ready < limits.READY + BATCH * 400
    assert {len(link.unread) for link in links} == {0, BATCH}
    assert len(messages(talk.settle())) == count * BATCH
    assert not any(link.unread for link in links)


def test_who_has_nothing_for_the_peer_keeps_no_other_waiting() -> None:
    talk = Talk()
    streams = [talk.stream(b"SUB a") for _ in range(10 * limits.READY // limits.READ_ON)]
    talk.settle()
    others = talk.links
    assert len(others) == len(streams)
    for each in others:
        each.owner.joined()
    filler = [b"MSG a\0" + bytes(60_000)] * 4
    for other in others[:3]:
        other.owner.received(filler)
    assert talk.endpoint.ready > limits.READY
    for other in others[3:-1]:
        other.say(b"MSG !directed\0")  # not for a stream
    others[-1].say(b"MSG a\0last")
    assert others[-1].unread
    assert b"MSG a\0last" in messages(talk.settle())


@pytest.mark.parametrize("closes_first", [True, False])
def test_who_closes_has_its_packets_taken_and_gets_the_rest(closes_first: bool) -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.room = 0
    talk.peer.send(channel, b"MSG a\0last")
    if closes_first:
        talk.peer.close(channel)
        talk.settle()
    link.take()
    if not closes_first:
        talk.peer.close(channel)
        talk.settle()
    assert (link.taken, link.is_finished, link.is_closed) == ([b"MSG a\0last"], True, False)
    link.say(b"CMSG error\0refused MSG a: no")
    link.owner.ended()
    seen = talk.settle()
    assert messages(seen) == [b"CMSG error\0refused MSG a: no"]
    assert endings(seen, channel) == [b""]
    assert Ended(channel) in seen
    assert len(talk.conversation) == 0


def test_who_cancels_has_its_packets_taken_and_gets_nothing() -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.room = 0
    talk.peer.send(channel, b"MSG a\0last")
    talk.peer.cancel(channel)
    talk.settle()
    link.say(b"MSG b\0x")
    assert link.unread == []
    assert not link.is_closed
    link.take()
    assert link.is_closed
    seen = talk.settle()
    assert messages(seen) == []
    talk.peer.close(channel)
    assert Ended(channel) in seen + talk.settle()


def test_the_packets_of_a_lost_peer_are_taken() -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.room = 0
    talk.peer.send(channel, b"MSG a\0last")
    talk.settle()
    talk.conversation.lost()
    assert len(talk.conversation) == 1
    link.take()
    assert (link.taken, link.is_closed) == ([b"MSG a\0last"], True)
    assert (len(talk.conversation), talk.conversation.waiting) == (0, 0)


def test_a_daemon_that_goes_ends_the_session_with_a_reason() -> None:
    talk = Talk()
    channel, link = talk.bus(window=0)
    talk.peer.grant(channel, 3)
    talk.settle()
    link.say(b"MSG a\0one")
    link.owner.ended()
    assert endings(talk.settle(), channel) == [WENT_AWAY], "the Close waits behind the message"
    talk.peer.grant(channel, 100)
    seen = talk.settle()
    assert messages(seen) == [b"MSG a\0one"]
    assert endings(seen, channel) == [WENT_AWAY]


def test_a_daemon_that_takes_no_more_is_no_fault() -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.is_gone = True
    talk.peer.send(channel, b"MSG a\0lost")
    talk.settle()
    link.say(b"CMSG closing\0shutdown")
    link.owner.ended()
    seen = talk.settle()
    assert messages(seen) == [b"CMSG closing\0shutdown"]
    assert endings(seen, channel) == [WENT_AWAY] * 2
    assert talk.conversation.waiting == 0


def test_an_empty_packet_ends_the_session() -> None:
    talk = Talk()
    channel, link = talk.bus()
    talk.peer.send(channel, b"")
    assert endings(talk.settle(), channel) == [b"bad-packet no packet of the bus is empty"] * 2
    assert link.is_closed


def test_crumbs_that_the_daemon_does_not_take_end_the_session() -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.room = 0
    for _ in range(limits.SESSION_WAITING // (1 + limits.PACKET_BYTES)):
        if not talk.peer.send(channel, b"x"):
            talk.settle()
            talk.peer.send(channel, b"x")
    talk.settle()
    assert not link.is_closed
    talk.peer.send(channel, b"x")
    assert endings(talk.settle(), channel) == [b"limit: too many packets wait for the daemon"] * 2
    assert talk.conversation.waiting == 0


# --- streams ---


def test_a_stream_carries_the_messages_of_its_pattern() -> None:
    talk = Talk()
    stream = talk.stream(b"SUB a/>")
    talk.settle()
    (link,) = talk.links
    link.owner.joined()
    assert link.taken == [b"SUB a/>"]
    link.say(
        b"MSG a/x\0one", b"MSG !here/node/1\0two", b"CMSG dropped\x005", b"CMSG other\0", b"MSG a/y\0three"
    )
    assert messages(talk.settle()) == [b"MSG a/x\0one", b"CMSG dropped\x005", b"MSG a/y\0three"]
    talk.peer.cancel(stream)
    assert Ended(stream) in talk.settle()
    assert link.is_closed


def test_a_directed_pattern_has_directed_messages() -> None:
    talk = Talk()
    talk.stream(b"SUB !>")
    talk.settle()
    talk.links[0].owner.joined()
    talk.links[0].say(b"MSG !here/node/1\0two")
    assert messages(talk.settle()) == [b"MSG !here/node/1\0two"]


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"CMSG error\0refused SUB a: no right", b"refused SUB a: no right"),
        (b"CMSG revoked\0SUB a", b"refused SUB a"),
        (b"CMSG closing\0shutdown", b"unavailable the daemon closes the connection: shutdown"),
        (b"CMSG closing\0limit: at most 1 clients", b"limit: at most 1 clients"),
    ],
)
def test_a_stream_that_the_daemon_ends_is_closed_with_the_reason(packet: bytes, reason: bytes) -> None:
    talk = Talk()
    stream = talk.stream(b"SUB a")
    talk.settle()
    talk.links[0].owner.joined()
    talk.links[0].say(b"MSG a\0x", packet, b"MSG a\0y")
    seen = talk.settle()
    assert messages(seen)[:1] == [b"MSG a\0x"]
    assert endings(seen, stream) == [reason]
    assert talk.links[0].is_closed


# --- requests ---


def test_a_request_is_answered_with_what_the_daemon_says() -> None:
    talk = Talk()
    talk.ask(b"status")
    talk.settle()
    (link,) = talk.links
    link.owner.joined()
    assert link.taken == [b"CMSG status"]
    link.say(b'CMSG status\0{"host": "here"}')
    assert answers(talk.settle()) == [b'{"host": "here"}']
    assert link.is_closed


@pytest.mark.parametrize(
    ("packet", "reason"),
    [(b"CMSG error\0refused CMSG status: no", b"refused CMSG status: no"), (b"MSG a\0", WENT_AWAY)],
)
def test_a_request_that_is_refused_is_closed_with_the_reason(packet: bytes, reason: bytes) -> None:
    talk = Talk()
    request = talk.ask(b"status")
    talk.settle()
    talk.links[0].owner.joined()
    talk.links[0].say(packet)
    assert endings(talk.settle(), request) == [reason]


def test_a_request_that_is_cancelled_lets_its_link_go() -> None:
    talk = Talk()
    request = talk.ask(b"who")
    talk.settle()
    talk.peer.cancel(request)
    assert Ended(request) in talk.settle()
    assert talk.links[0].is_closed


def test_a_full_daemon_says_so_and_any_other_end_is_unavailable() -> None:
    assert closing(b"limit: at most 4096 clients") == b"limit: at most 4096 clients"
    assert closing(b"slow").startswith(b"unavailable ")


def test_a_session_that_leaves_unheard_needs_no_daemon() -> None:
    talk = Talk()
    channel = talk.peer.open_duplex(b"bus")
    assert channel
    talk.settle()
    talk.peer.cancel(channel)
    talk.peer.close(channel)
    talk.settle()
    assert talk.links[0].is_closed
    assert len(talk.conversation) == 0
