"""What goes out, and in whose turn."""

from typing import Any

import pytest

from bpmux import chunks
from bpmux.chunks import MESSAGE, PARTIAL, TOP, Chunk, parse
from bpmux.entities import Account, Channel, Request
from bpmux.errors import BpmuxError
from bpmux.limits import ITEM_BYTES, PIECE_LIMIT
from bpmux.outgoing import Outgoing


class Sending:
    def __init__(self, limit: int = 100) -> None:
        self.top = Account()
        self.sent: list[tuple[Any, int]] = []
        self.outgoing = Outgoing(self.top, limit, lambda entity, kind: self.sent.append((entity, kind)))

    def channel(self, ident: int, credit: int = 0) -> Channel:
        channel = Channel(ident, chunks.SINK, ours=True)
        channel.is_open = True
        channel.account.credit = credit
        return channel

    def say(self, channel: Channel, *messages: bytes) -> None:
        for message in messages:
            self.outgoing.add(channel.lane, MESSAGE, message)

    def take(self, limit: int = 1 << 20) -> list[Chunk]:
        return parse(self.outgoing.take(limit))


def shown(taken: list[Chunk]) -> list[tuple[int, bytes]]:
    return [(chunk.id, chunk.payload) for chunk in taken if chunk.kind == MESSAGE]


def test_what_has_no_credit_waits_and_holds_up_nobody() -> None:
    sending = Sending()
    poor, rich = sending.channel(1), sending.channel(2, credit=10)
    sending.say(poor, b"a")
    sending.say(rich, b"b")
    assert shown(sending.take()) == [(2, b"b")]
    assert not sending.outgoing.has_more
    sending.outgoing.credited(poor.account, 1)
    assert sending.outgoing.has_more
    assert shown(sending.take()) == [(1, b"a")]
    assert sending.outgoing.waiting == 0


def test_no_credit_is_needed_for_no_bytes() -> None:
    sending = Sending()
    channel = sending.channel(1)
    sending.say(channel, b"", b"a", b"")
    assert shown(sending.take()) == [(1, b"")]
    sending.outgoing.credited(channel.account, 1)
    assert shown(sending.take()) == [(1, b"a"), (1, b"")]


def test_a_payload_is_announced_once_and_cut_by_credit() -> None:
    sending = Sending()
    channel = sending.channel(1, credit=1)
    sending.say(channel, b"abc")
    assert sending.take() == [Chunk(PARTIAL, TOP, 3), Chunk(MESSAGE, 1, 1, b"a")]
    sending.outgoing.credited(channel.account, 5)
    assert sending.take() == [Chunk(MESSAGE, 1, 2, b"bc")]
    assert channel.account.credit == 3
    assert sending.sent == [(channel, MESSAGE)]


def test_lanes_take_turns_piece_by_piece() -> None:
    sending = Sending()
    first, second = sending.channel(1, credit=1 << 20), sending.channel(2, credit=1 << 20)
    sending.say(first, bytes(3 * PIECE_LIMIT))
    sending.say(second, *[bytes(1000)] * 40)
    taken = shown(sending.take())
    assert [ident for ident, payload in taken if len(payload) == PIECE_LIMIT or ident == 2][:2] == [1, 2]
    turns = [ident for at, (ident, _) in enumerate(taken) if at == 0 or taken[at - 1][0] != ident]
    assert turns == [1, 2, 1, 2, 1, 2]
    assert sum(len(payload) for _, payload in taken) == 3 * PIECE_LIMIT + 40_000


def test_credit_for_all_is_shared_in_turns() -> None:
    sending = Sending()
    requests = [Request(ident, ours=True) for ident in range(3)]
    for request in requests:
        sending.outgoing.add(request.lane, chunks.REQUEST, b"ab")
    said = []
    for _ in range(6):
        sending.outgoing.credited(sending.top, 1)
        said += [(chunk.id, chunk.payload) for chunk in sending.take() if chunk.kind == chunks.REQUEST]
    assert said == [(0, b"a"), (1, b"a"), (2, b"a"), (0, b"b"), (1, b"b"), (2, b"b")]


def test_busy_channels_do_not_keep_credit_from_those_who_wait() -> None:
    sending = Sending()
    busy, request = sending.channel(1, credit=1 << 30), Request(0, ours=True)
    sending.outgoing.add(request.lane, chunks.REQUEST, b"ab")
    assert sending.take() == []
    sending.say(busy, *[bytes(PIECE_LIMIT)] * 10)
    sending.outgoing.credited(sending.top, 2)
    assert Chunk(chunks.REQUEST, 0, 2, b"ab") in sending.take(3 * PIECE_LIMIT)


def test_a_byte_of_credit_does_not_wake_everybody() -> None:
    sending = Sending()
    requests = [Request(ident, ours=True) for ident in range(100)]
    for request in requests:
        sending.outgoing.add(request.lane, chunks.REQUEST, b"ab")
    sending.take()
    sending.outgoing.credited(sending.top, 1)
    sending.take()
    assert len(sending.top.waiting) == 100
    assert [request.lane.at for request in requests] == [1] + [0] * 99


def test_credit_is_not_lost_with_what_it_woke() -> None:
    sending = Sending()
    first, second = Request(0, ours=False), Request(1, ours=False)
    for request in (first, second):
        request.is_open = True
        sending.outgoing.add(request.lane, chunks.RESPONSE, b"ab")
    sending.take()
    sending.outgoing.credited(sending.top, 2)
    sending.outgoing.clear(first.lane)
    assert sending.outgoing.has_more
    assert sending.take() == [Chunk(chunks.RESPONSE, 1, 2, b"ab")]


def test_what_is_taken_back_leaves_nothing() -> None:
    sending = Sending()
    channel = sending.channel(1, credit=1)
    sending.say(channel, b"abc", b"d")
    sending.take()
    sending.outgoing.clear(channel.lane)
    assert (sending.outgoing.waiting, channel.lane.size, len(channel.account.waiting)) == (0, 0, 0)
    sending.outgoing.credited(channel.account, 9)
    assert sending.take() == []
    sending.say(channel, b"ef")
    assert sending.take() == [Chunk(MESSAGE, 1, 2, b"ef")]


def test_an_opening_is_not_taken_back() -> None:
    sending = Sending()
    channel = Channel(1, chunks.SINK, ours=True)
    sending.top.credit = 1
    sending.outgoing.add(channel.lane, chunks.SINK, b"hi")
    sending.say(channel, b"x")
    sending.take()
    sending.outgoing.clear(channel.lane)
    assert sending.outgoing.waiting == 2 + ITEM_BYTES
    sending.outgoing.credited(sending.top, 9)
    assert sending.take() == [Chunk(chunks.SINK, 1, 1, b"i")]


def test_replies_go_first_and_cost_nothing() -> None:
    sending = Sending()
    channel = sending.channel(1, credit=1)
    sending.say(channel, b"a")
    sending.outgoing.reply(chunks.PONG, TOP)
    sending.outgoing.grant(channel, 5)
    assert [chunk.kind for chunk in sending.take()] == [chunks.PONG, chunks.CREDIT, MESSAGE]
    assert sending.outgoing.replies == 0


def test_a_peer_that_does_not_read_its_replies_is_dropped() -> None:
    sending = Sending(limit=10)
    for _ in range(10):
        sending.outgoing.reply(chunks.PONG, TOP)
    with pytest.raises(BpmuxError, match="limit"):
        sending.outgoing.reply(chunks.PONG, TOP)


def test_no_more_is_taken_than_wanted_but_for_a_piece() -> None:
    sending = Sending()
    channel = sending.channel(1, credit=1 << 30)
    sending.say(channel, *[bytes(5000)] * 100)
    taken = sending.outgoing.take(20_000)
    assert 20_000 <= len(taken) <= 20_000 + 2 * PIECE_LIMIT


def test_nothing_follows_the_end() -> None:
    sending = Sending()
    sending.say(sending.channel(1, credit=9), b"a")
    sending.outgoing.stop()
    assert not sending.outgoing.has_more
    assert sending.take() == []
