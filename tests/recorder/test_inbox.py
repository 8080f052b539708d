"""The inbox between reader and writer: bounded, in order, losses summed."""

import threading

from bccnd.recorder.feed import Block
from bccnd.recorder.inbox import BLOCK_BYTES, Closed, Finished, Inbox, Lost, Opened
from tests.packet_client import PATIENCE


def test_blocks_go_round_and_are_limited():
    inbox = Inbox(4 * BLOCK_BYTES)
    blocks = [inbox.block() for _ in range(4)]
    assert inbox.block() is None
    first = blocks[0]
    assert first is not None
    first.put(b"x")
    inbox.give_back(first)
    assert inbox.block() is first
    assert first.used == 0


def test_items_keep_their_order_and_losses_are_summed():
    inbox = Inbox(0)
    for item in (Opened(1, "here", ()), Lost(3), Lost(4), Closed(None), Lost(1), Finished()):
        inbox.put(item)
    assert not inbox.idle
    got = [inbox.get(0) for _ in range(6)]
    assert got == [Opened(1, "here", ()), Lost(7), Closed(None), Lost(1), Finished(), None]
    assert inbox.idle


def test_the_size_is_the_bytes_that_wait():
    inbox = Inbox(0)
    block = Block(BLOCK_BYTES)
    block.put(bytes(100))
    inbox.put(block)
    inbox.put(Lost(1))
    assert inbox.size == 100


def test_put_wakes_a_waiting_writer():
    inbox = Inbox(0)
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(inbox.get(60)))
    waiting.start()
    inbox.put(Finished())
    waiting.join(PATIENCE)
    assert got == [Finished()]
