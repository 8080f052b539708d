"""What a peer opens and asks, and who answers it."""

import pytest

from bccnd.mux import limits
from bccnd.mux.conversation import UNKNOWN, VERSION
from bpmux import chunks
from bpmux.chunks import TOP, head
from bpmux.events import Closed, Ended, Finished
from bpmux.heartbeats import IDLE_SECONDS
from tests.mux.fake_link import Talk, answers, endings, messages


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        ("duplex", b"", UNKNOWN),
        ("duplex", b"bus ", UNKNOWN),
        ("duplex", b"SUB a", UNKNOWN),
        ("stream", b"bus", UNKNOWN),
        ("stream", b"SUBa", UNKNOWN),
        ("stream", b"SUB", b"bad-pattern it is 1 to 1024 printable characters"),
        ("stream", b"SUB a\n", b"bad-pattern it is 1 to 1024 printable characters"),
        ("stream", b"SUB a\0b", b"bad-pattern it is 1 to 1024 printable characters"),
        ("stream", b"SUB \xff", b"bad-pattern it is 1 to 1024 printable characters"),
        ("stream", b"SUB " + b"a" * 1025, b"bad-pattern it is 1 to 1024 printable characters"),
    ],
)
def test_what_the_door_does_not_know_is_refused(kind: str, payload: bytes, reason: bytes) -> None:
    talk = Talk()
    channel = getattr(talk.peer, f"open_{kind}")(payload)
    seen = talk.settle()
    assert endings(seen, channel) == [reason] * (1 + (kind == "duplex"))
    assert Ended(channel) in seen
    assert talk.links == []


def test_a_sink_is_refused_on_the_way_that_it_has() -> None:
    talk = Talk()
    sink = talk.peer.open_sink(b"bus")
    assert sink
    assert endings(talk.settle(), sink) == [UNKNOWN]


def test_requests_are_answered_once_and_unknown_ones_are_closed() -> None:
    talk = Talk()
    talk.ask(b"version")
    assert answers(talk.settle()) == [VERSION]
    for unknown in (
        b"",
        b"versions",
        b"who " + b"x" * 1025,
        b"status now",
        b"doctors",
        b"doctor " + b"x" * 1025,
    ):
        request = talk.ask(unknown)
        assert endings(talk.settle(), request) == [UNKNOWN]
    talk.ask(b"who")
    talk.ask(b"who here/node/1")
    talk.settle()
    for link in talk.links:
        link.owner.joined()
    assert [link.taken for link in talk.links] == [[b"CMSG sources"], [b"CMSG sources\0here/node/1"]]


def test_so_many_requests_are_under_way_and_the_rest_wait() -> None:
    talk = Talk()
    for _ in range(limits.ERRANDS + 3):
        talk.ask(b"status")
    talk.settle()
    assert len(talk.links) == limits.ERRANDS
    for at in range(limits.ERRANDS + 3):
        talk.links[at].owner.joined()
        talk.links[at].say(b"CMSG status\0%d" % at)
    assert answers(talk.settle()) == [b"%d" % at for at in range(limits.ERRANDS + 3)]
    assert len(talk.conversation) == 0


def test_a_request_cancelled_while_it_waits_is_not_asked() -> None:
    talk = Talk()
    requests = [talk.ask(b"status") for _ in range(limits.ERRANDS + 1)]
    talk.settle()
    talk.peer.cancel(requests[-1])
    talk.settle()
    for request in requests[:-1]:
        talk.peer.cancel(request)
    talk.settle()
    assert len(talk.links) == limits.ERRANDS
    assert len(talk.conversation) == 0


def test_messages_on_the_top_level_are_passed_over() -> None:
    talk = Talk()
    talk.peer.send(talk.peer.top, b"hello")
    assert talk.settle() == []


def test_several_sessions_are_several_clients() -> None:
    talk = Talk()
    (one, first), (_, second) = talk.bus(), talk.bus()
    talk.peer.send(one, b"MSG a\0")
    talk.settle()
    first.owner.ended()
    assert endings(talk.settle(), one) != []
    assert (first.taken, second.taken) == ([b"MSG a\0"], [])
    assert not second.is_closed


def test_what_is_taken_in_one_turn_goes_out_together() -> None:
    talk = Talk()
    channel, link = talk.bus()
    sent: list[int] = []
    link.send = lambda packets: sent.append(len(packets)) or len(packets)  # type: ignore[method-assign,func-returns-value]
    for _ in range(100):
        talk.peer.send(channel, b"MSG a\0")
    talk.settle()
    assert sent == [100]


def test_whoever_is_turned_away_hears_why_whatever_it_asks() -> None:
    talk = Talk(turned_away=b"limit: enough")
    channel, request = talk.peer.open_duplex(b"bus"), talk.ask(b"version")
    assert channel
    seen = talk.settle()
    assert endings(seen, talk.peer.top) == [b"limit: enough"] * 2
    assert endings(seen, channel) == [b"limit: enough"] * 2
    assert endings(seen, request) == [b"limit: enough"]
    assert talk.links == []


def test_a_peer_that_leaves_is_left() -> None:
    talk = Talk()
    channel, link = talk.bus()
    talk.peer.close(talk.peer.top)
    talk.peer.cancel(talk.peer.top)
    assert Finished() in talk.settle()
    assert talk.conversation.is_over
    talk.conversation.lost()
    assert link.is_closed
    assert channel


def test_the_end_of_the_door_ends_all_with_a_reason() -> None:
    talk = Talk()
    channel, link = talk.bus()
    stream = talk.stream(b"SUB a")
    talk.settle()
    talk.conversation.part(b"unavailable the door stops")
    seen = talk.settle()
    assert endings(seen, channel) == [b"unavailable the door stops"] * 2
    assert endings(seen, stream) == [b"unavailable the door stops"]
    assert Closed(talk.peer.top, b"unavailable the door stops") in seen
    assert link.is_closed
    talk.peer.close(talk.peer.top)
    talk.peer.cancel(talk.peer.top)
    talk.settle()
    assert talk.conversation.is_over


def test_what_the_daemon_does_not_take_in_time_is_abandoned() -> None:
    talk = Talk()
    channel, link = talk.bus()
    link.room = 0
    talk.peer.send(channel, b"MSG a\0")
    talk.settle()
    talk.conversation.lost()
    assert len(talk.conversation) == 1
    talk.conversation.abandon()
    assert link.is_closed
    assert (len(talk.conversation), talk.conversation.waiting) == (0, 0)


def test_a_peer_that_does_not_answer_is_over() -> None:
    talk = Talk()
    now = 0.0
    while not talk.conversation.is_over:
        now += IDLE_SECONDS
        talk.conversation.handle(talk.endpoint.expire(now))
        assert now < 100
    assert talk.conversation.is_silent


def test_what_the_peer_overdoes_ends_that_session() -> None:
    talk = Talk()
    _, link = talk.bus()
    total = limits.ENDPOINT.payload + 1
    talk.conversation.handle(
        talk.endpoint.receive(head(chunks.PARTIAL, TOP, total) + head(chunks.MESSAGE, 0, 1) + b"x", 0.0)
    )
    talk.conversation.handle(talk.endpoint.receive(head(chunks.MESSAGE, 0, 9) + b"x" * 9, 0.0))
    assert link.is_closed
    assert messages(talk.seen) == []


def test_requests_that_wait_for_their_turn_weigh() -> None:
    talk = Talk()
    asked = [talk.ask(b"who " + bytes(100)) for _ in range(limits.ERRANDS + 2)]
    talk.settle()
    assert talk.conversation.waiting == 2 * len(b"CMSG sources\0" + bytes(100))
    talk.peer.cancel(asked[-1])
    talk.peer.cancel(asked[0])
    talk.settle()
    assert talk.conversation.waiting == 0
    talk.ask(b"who")
    talk.settle()
    talk.conversation.lost()
    assert talk.conversation.waiting == 0
