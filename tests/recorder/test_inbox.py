"""Between reader and writer: bounded, in order, losses together."""

import threading

from bccnd.recorder.inbox import CHUNK_BYTES, ROOM, Chunk, Closed, Finished, Inbox, Lost, Opened


def test_chunks_go_round_and_there_are_no_more_than_that():
    inbox = Inbox(4 * CHUNK_BYTES)
    chunks = [inbox.chunk() for _ in range(4)]
    assert inbox.chunk() is None
    first = chunks[0]
    assert first is not None
    first.add(10)
    inbox.give_back(first)
    assert inbox.chunk() is first
    assert first.used == 0


def test_a_chunk_is_full_when_the_longest_packet_would_not_fit():
    chunk = Chunk()
    while not chunk.full:
        chunk.add(ROOM)
    assert chunk.used <= CHUNK_BYTES
    assert chunk.used + ROOM > CHUNK_BYTES
    assert list(zip(chunk.starts, chunk.ends, strict=True))[:2] == [(0, ROOM), (ROOM, 2 * ROOM)]
    chunk.clear()
    assert (chunk.used, chunk.full) == (0, False)


def test_what_is_put_comes_in_order_and_losses_that_follow_each_other_are_one():
    inbox = Inbox(0)
    for item in (Opened(1, "here", ()), Lost(3), Lost(4), Closed(None), Lost(1), Finished()):
        inbox.put(item)
    assert not inbox.idle
    got = [inbox.get(0) for _ in range(6)]
    assert got == [Opened(1, "here", ()), Lost(7), Closed(None), Lost(1), Finished(), None]
    assert inbox.idle


def test_its_size_is_what_was_read():
    inbox = Inbox(0)
    chunk = Chunk()
    chunk.add(100)
    inbox.put(chunk)
    inbox.put(Lost(1))
    assert inbox.size == 100


def test_who_waits_is_woken():
    inbox = Inbox(0)
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(inbox.get(60)))
    waiting.start()
    inbox.put(Finished())
    waiting.join(10)
    assert got == [Finished()]
