"""What a client or a datagram can make the daemon write into its log."""

import ctypes
import socket
from contextlib import suppress

from tests.hostile.attack import NOBODY, Attack, HostileClient, pack
from tests.hostile.behaviour import behaviour
from tests.plain_bccn import datagram

BROKEN = b"PACK \xff\xff\xff\xffSUB a"
ONLY_ROOT = '[[rights]]\nuid = "root"\npublish = [">", "!"]\nsubscribe = [">"]\n'
_PR_SET_NAME = 15


def again(attack: Attack, *packets: bytes, most: int = 2000) -> None:
    """Connect, say this, and leave, over and over."""
    for _ in range(most):
        if not attack.goes_on:
            return
        with suppress(OSError, AssertionError):
            client = attack.connect()
            for packet in packets:
                client.offer(packet)
            closed(client)


def closed(client: HostileClient) -> None:
    """Read until the daemon has closed the connection."""
    client.wait_at_most(0.2)
    with suppress(OSError):
        while client.receive():
            pass
    client.close()


@behaviour("a broken PACK, and again after connecting again", suite=True)
def broken_packs(attack: Attack) -> None:
    again(attack, b"CMSG pack\0on", BROKEN)


@behaviour("a broken PACK of ten connections")
def ten_broken_packs(attack: Attack) -> None:
    again(attack, b"CMSG pack\0on", BROKEN, most=10)


@behaviour("answers that are not read until the daemon closes, and again")
def closed_for_answers(attack: Attack) -> None:
    again(attack, b"CMSG pack\0on", pack([b"CMSG ping"] * 4600))


@behaviour("a reader that wants to be disconnected, and again")
def closed_for_being_slow(attack: Attack) -> None:
    publisher = attack.packing()
    flood = pack([b"MSG local/f\0" + bytes(6000)] * 10)
    while attack.goes_on:
        client = attack.connect()
        client.offer(b"CMSG queue\0packets=1 policy=disconnect")
        client.offer(b"SUB local/f")
        for _ in range(20):
            publisher.offer(flood)
        closed(client)


@behaviour("refusals of one connection after another", settings=ONLY_ROOT, suite=True, needs=("root",))
def refusals(attack: Attack) -> None:
    again(attack, b"MSG a\0x", b"SUB a", b"CMSG tap\0on", b"CMSG name\0x/y", b"")


@behaviour("thousands of refusals of one connection", settings=ONLY_ROOT, needs=("root",))
def refusals_in_packs(attack: Attack) -> None:
    attack.repeat(attack.packing(), pack([b"MSG a\0x", b"SUB b", b"CMSG tap\0on"] * 2000))


@behaviour("refusals that would hide those of others", settings=ONLY_ROOT, needs=("root",))
def refusals_of_all_kinds(attack: Attack) -> None:
    again(
        attack,
        b"MSG a\0x",
        b"SUB a",
        b"CMSG tap\0on",
        b"CMSG name\0x/y",
        b"CMSG status",
        b"CMSG queue policy=block",
    )


@behaviour("datagrams of every fault")
def malformed_datagrams(attack: Attack) -> None:
    wrong = [b"", b"BCCN1", b"BCCN1[5]abc", b"BCCN1[3:md5=00]abc", b"BCCN1[9]a b:1:c|", b"BCCN2[3]abc"]
    attack.flood(wrong[number % len(wrong)] for number in range(1_000_000))


@behaviour("a program whose name is lines of the log")
def names_with_newlines(attack: Attack) -> None:
    name = b"x\n2026 [error]"
    own = ctypes.create_string_buffer(16)
    libc = ctypes.CDLL(None)
    libc.prctl(16, own)
    libc.prctl(_PR_SET_NAME, name)
    try:
        again(attack, b"CMSG pack\0on", BROKEN, most=5)
    finally:
        libc.prctl(_PR_SET_NAME, own)


@behaviour("a reader that is slow and catches up, in turn")
def slow_in_turn(attack: Attack) -> None:
    readers = attack.connect_many(60)
    for reader in readers:
        reader.request("queue", "packets=50")
        reader.subscribe("local/f")
    publisher = attack.packing()
    while attack.goes_on:
        publisher.offer(pack([b"MSG local/f\0" + bytes(600)] * 100))
        for reader in readers:
            reader.discard()
        publisher.discard()


@behaviour("conflicts, own echoes and duplicates from the segment")
def harmless_verdicts(attack: Attack) -> None:
    client = attack.connect()
    name = client.request("whoami")
    attack.flood(datagram(name, number // 3, "x") for number in range(1, 1_000_000))


@behaviour("the place is full, and again", settings="[limits]\nclients = 20\n")
def turned_away(attack: Attack) -> None:
    attack.connect_many(10, uid=NOBODY)
    again(attack, b"SUB a")


@behaviour("payloads and channels with escape sequences")
def escape_sequences(attack: Attack) -> None:
    attack.repeat(attack.connect(), b"MSG \x1b]0;x\x07\0\x1b[2J", b"SUB \x1b[2J\n", b"CMSG \x1b[2J\n")


@behaviour("a client of a stream that never ends its line")
def not_a_packet(attack: Attack) -> None:
    client = attack.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    attack.repeat(client, b"x" * 100_000)
