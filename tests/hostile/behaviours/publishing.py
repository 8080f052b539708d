"""Floods of messages, and subscribers that hold others up."""

import socket
import time
from itertools import count

from tests.hostile.attack import Attack, pack, packs
from tests.hostile.behaviour import behaviour
from tests.hostile.behaviours.requests import LONG

SHORT_BLOCK = "[queue]\nblock_seconds = 0.5\n"
# By right: a client that may hold publishers does, until it is closed. It is looked at each second (``holding``).
HELD = 1500.0
NOT_TO_ALL = (
    '[[rights]]\nuid = "root"\npublish = [">", "!"]\n[[rights]]\npublish = ["flood/>"]\nsubscribe = [">"]\n'
)
FLOOD = pack([b"MSG flood/x\0" + bytes(100)] * 400)


@behaviour("a flood of messages one by one, to nobody")
def one_by_one_to_nobody(attack: Attack) -> None:
    attack.repeat(attack.connect_many(2), b"MSG flood/x\0" + bytes(100))


@behaviour("a flood of packed messages to the segment", suite=True)
def packed_to_the_segment(attack: Attack) -> None:
    attack.repeat(attack.packing(), FLOOD)


@behaviour("floods of packed messages of eight publishers")
def packed_by_eight(attack: Attack) -> None:
    attack.repeat([attack.packing() for _ in range(8)], FLOOD)


@behaviour("a flood of large local messages to a hundred readers")
def large_to_a_hundred(attack: Attack) -> None:
    readers = attack.connect_many(100)
    for reader in readers:
        reader.subscribe("local/flood")
    publisher = attack.connect()
    while attack.goes_on:
        publisher.offer(b"MSG local/flood\0" + bytes(60_000))
        for reader in readers:
            reader.discard()


@behaviour("a publisher that gets its own echoes and does not read")
def own_echoes(attack: Attack) -> None:
    client = attack.packing()
    client.subscribe("flood/>")
    attack.repeat(client, FLOOD, reading=False)


@behaviour("a publisher whose own messages it holds up by its policy")
def holds_itself(attack: Attack) -> None:
    client = attack.packing()
    client.request("queue", "packets=10 policy=block")
    client.subscribe("flood/>")
    attack.repeat(client, FLOOD, reading=False)


@behaviour("a block client that never reads the bystander's messages", settings=SHORT_BLOCK, suite=True)
def holds_the_bystander(attack: Attack) -> None:
    client = attack.connect()
    client.request("queue", "packets=10 policy=block")
    client.subscribe("bystander/>")


@behaviour("a block client of the bystander's own user that never reads", settings=SHORT_BLOCK, p99=HELD)
def holds_its_own_user(attack: Attack) -> None:
    client = attack.connect(uid=None)
    client.request("queue", "packets=10 policy=block")
    client.subscribe("bystander/>")


@behaviour("block clients that never read, one after another", settings=SHORT_BLOCK)
def holds_the_bystander_again(attack: Attack) -> None:
    while attack.goes_on:
        client = attack.connect()
        client.offer(b"CMSG queue\0packets=10 policy=block")
        client.offer(b"SUB bystander/>")
        client.wait_at_most(2.0)
        while not client.gone and attack.goes_on:
            attack.daemon.process.poll()
            client.offer(b"MSG flood/x\0")


@behaviour("a block client that reads a little now and then")
def holds_by_the_drop(attack: Attack) -> None:
    client = attack.connect()
    client.request("queue", "packets=10 policy=block")
    client.subscribe("bystander/>")
    while attack.goes_on:
        client.discard(10)
        client.socket.recv(1 << 17)


@behaviour("fifty readers of the bystander's messages that are slow")
def slow_readers(attack: Attack) -> None:
    readers = attack.connect_many(50)
    for reader in readers:
        reader.request("queue", "packets=100")
        reader.subscribe("bystander/>")
    while attack.goes_on:
        for reader in readers:
            reader.discard(1)


@behaviour("200 readers of everything", suite=True)
def readers_of_everything(attack: Attack) -> None:
    readers = attack.connect_many(200)
    for reader in readers:
        reader.offer(b"SUB >")
    while attack.goes_on:
        for reader in readers:
            reader.discard()


@behaviour("messages on 16,000 channels in turn")
def channels_in_turn(attack: Attack) -> None:
    attack.repeat(attack.packing(), *packs(b"MSG flood/%d\0x" % number for number in range(16_000)))


@behaviour("SUB and MSG in turn, in PACKs")
def subscribe_and_publish_in_turn(attack: Attack) -> None:
    attack.repeat(
        attack.packing(),
        *packs(
            each
            for number in range(5000)
            for each in (b"SUB f/%d" % number, b"MSG f/%d\0x" % number, b"UNSUB f/%d" % number)
        ),
    )


@behaviour("messages that are too large, in PACKs")
def too_large(attack: Attack) -> None:
    attack.repeat(
        attack.packing(), pack([b"MSG flood/x\0" + bytes(1400)] * 40), b"MSG local/x\0" + bytes(65_537)
    )


@behaviour("messages on channels that only the daemon publishes on")
def channels_of_the_daemon(attack: Attack) -> None:
    attack.repeat(attack.packing(), pack([b"MSG local/presence/left/x\0"] * 1500))


@behaviour("messages to all that the rights refuse", settings=NOT_TO_ALL, needs=("root",))
def refused_to_all(attack: Attack) -> None:
    attack.repeat(attack.packing(), pack([b"MSG !\0" + bytes(100)] * 500))


@behaviour("lines of a terminal, each too long")
def long_lines(attack: Attack) -> None:
    client = attack.connect()
    client.offer(b"SUB >\n")
    attack.repeat(client, b"MSG local/f " + b"\n" * 60_000)


@behaviour("pings to the daemon by message, thousands in a PACK", suite=True)
def pings_by_message(attack: Attack) -> None:
    client = attack.packing()
    client.request("listen")
    attack.repeat(client, pack([b"MSG !here/bccnd\0t\nping"] * 2000))


@behaviour("pings to the daemon by message, longer than anybody waits", seconds=LONG)
def pings_by_message_for_long(attack: Attack) -> None:
    pings_by_message(attack)


@behaviour("questions for listeners by message, each to a new channel")
def questions_by_message(attack: Attack) -> None:
    client = attack.packing()
    attack.repeat(client, *packs(b"MSG !here/bccnd\0t\nlisteners q/%d" % number for number in range(50_000)))


@behaviour("questions on the channel of all daemons, thousands in a PACK")
def questions_to_all_daemons(attack: Attack) -> None:
    attack.repeat(attack.packing(), pack([b"MSG bccnd/ask\0t\nlisteners bystander/x"] * 1500))


@behaviour("directed messages to each name of the host in turn")
def directed_messages(attack: Attack) -> None:
    attack.connect_many(100)
    attack.repeat(attack.packing(), *packs(b"MSG !here/nobody/%d\0x" % number for number in range(50_000)))


@behaviour("publishers that shut their sending half down")
def half_closed_publishers(attack: Attack) -> None:
    for client in attack.connect_many(200):
        client.offer(b"SUB flood/x")
        client.socket.shutdown(socket.SHUT_WR)
    attack.repeat(attack.packing(), FLOOD)


@behaviour("messages of every size in turn, to ten readers that pack")
def every_size(attack: Attack) -> None:
    readers = [attack.packing() for _ in range(10)]
    for reader in readers:
        reader.subscribe("local/f")
    publisher = attack.packing()
    packets = [*packs(b"MSG local/f\0" + bytes(size) for size in range(0, 60_000, 97))]
    turns = (packets[number % len(packets)] for number in count())
    while attack.goes_on:
        publisher.offer(next(turns))
        for reader in readers:
            reader.discard()


@behaviour("a reader that holds publishers, and reads its own messages alone", seconds=LONG)
def holds_by_its_own(attack: Attack) -> None:
    """It reads far more than the floor asks for, and never comes to what the others wait with."""
    reader = attack.connect()
    reader.request("queue", "packets=1 policy=block")
    reader.subscribe("local/own", "bystander/>")
    others, reads = attack.connect_many(100), 0
    while attack.goes_on:
        if reads % 200 == 0 and others:
            feeder = others.pop()
            feeder.offer(b"CMSG pack\0on")
            feeder.offer(pack([b"MSG local/own\0"] * 1000))
        reads += reader.discard(1)
        time.sleep(0.01)
