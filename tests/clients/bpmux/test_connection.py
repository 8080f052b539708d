"""What follows from the state of a connection, whoever changed it: credit, ids that are free, and the end."""

from bpmux import chunks
from bpmux.chunks import TOP, Chunk, parse
from bpmux.connection import FAREWELL, Connection
from bpmux.entities import Channel, Request, State
from bpmux.events import Ended, Finished, Writable
from bpmux.limits import ITEM_BYTES, TOP_LEVEL_RESERVE, Limits

PLENTY = 1 << 20


def connected(limits: Limits | None = None) -> Connection:
    """One that has said what it says first, with credit for all that it sends."""
    connection = Connection(0.0, limits or Limits())
    connection.outgoing.take(PLENTY)
    connection.tables.top.account.credit = PLENTY
    return connection


def said(connection: Connection) -> list[Chunk]:
    return parse(connection.outgoing.take(PLENTY))


def opened(connection: Connection, kind: int) -> Channel:
    channel = connection.tables.new_channel(kind)
    connection.outgoing.add(channel.lane, kind, b"")
    return channel


def test_it_begins_with_credit_for_the_top_level() -> None:
    connection = Connection(0.0, Limits())
    assert said(connection) == [Chunk(chunks.CREDIT, TOP, TOP_LEVEL_RESERVE)]


def test_credit_waits_for_the_opening() -> None:
    connection = connected()
    channel = opened(connection, chunks.STREAM)
    connection.grant(channel, 7)
    assert (channel.credit, channel.pending) == (0, 7)
    assert said(connection) == [Chunk(chunks.STREAM, 0), Chunk(chunks.CREDIT, 0, 7)]
    assert (channel.credit, channel.pending) == (7, 0)


def test_a_window_is_topped_up_when_half_of_it_is_used() -> None:
    connection = connected()
    channel = opened(connection, chunks.DUPLEX)
    said(connection)
    channel.window = 100
    connection.top_up(channel)
    channel.credit -= 49
    connection.top_up(channel)
    assert said(connection) == [Chunk(chunks.CREDIT, 0, 100)]
    channel.credit -= 1
    connection.top_up(channel)
    assert said(connection) == [Chunk(chunks.CREDIT, 0, 50)]


def test_what_is_given_up_gets_no_credit() -> None:
    connection = connected()
    channel = opened(connection, chunks.STREAM)
    said(connection)
    channel.window, channel.receiving = 100, State.LEAVING
    connection.top_up(channel)
    connection.grant(channel, 5)
    assert said(connection) == []


def test_an_id_is_free_once_nobody_has_more_to_say() -> None:
    connection = connected()
    channel = opened(connection, chunks.DUPLEX)
    channel.sending = State.OVER
    connection.settle(channel)
    assert connection.tables.ours == {0: channel}
    channel.receiving = State.OVER
    connection.settle(channel)
    assert connection.tables.ours == {}
    assert connection.events == [Ended(channel)]
    assert connection.tables.new_channel(chunks.SINK).id == 0


def test_a_response_that_is_sent_ends_its_request() -> None:
    connection = connected()
    request = connection.tables.requests[3] = Request(3, ours=False)
    request.is_open = True
    connection.outgoing.add(request.lane, chunks.RESPONSE, b"yes")
    assert said(connection) == [Chunk(chunks.RESPONSE, 3, 3, b"yes")]
    assert (connection.tables.requests, connection.events) == ({}, [])


def test_a_queue_is_writable_again_once_half_of_it_is_sent() -> None:
    connection = connected(Limits(queue=4 * (ITEM_BYTES + 1)))
    channel = opened(connection, chunks.SINK)
    for _ in range(4):
        connection.outgoing.add(channel.lane, chunks.MESSAGE, b"a")
    channel.is_full = True
    channel.account.credit = 1
    said(connection)
    assert connection.events == []
    connection.outgoing.credited(channel.account, 1)
    said(connection)
    assert connection.events == [Writable(channel)]


def test_it_is_finished_when_both_have_said_farewell() -> None:
    connection = connected()
    top = connection.tables.top
    connection.heard |= FAREWELL
    connection.finish()
    connection.outgoing.add(top.lane, chunks.CLOSE, b"")
    said(connection)
    assert not connection.is_finished
    connection.outgoing.add(top.cancelling, chunks.CANCEL, b"")
    said(connection)
    assert connection.is_finished
    assert connection.events == [Finished()]
    opened(connection, chunks.SINK)
    assert said(connection) == []
