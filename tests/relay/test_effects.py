"""What the relay wants done: taken once, in order, and datagrams sealed side by side until their region is full."""

import pytest

from bccnd.relay.effects import SEALED_BYTES, SEALED_LIMIT, Outgoing, as_bytes
from bccnd.relay.identity import Peer
from bccnd.relay.rights import Rights
from bccnd.relay.session import Session
from bccnd.wire.bccn1 import SEND_LIMIT, Integrity, Level
from bccnd.wire.native import codec_of
from bccnd.wire.sbus import Cmsg
from tests.relay.fakes import datagram

REGION = 4096  # where it begins; before it lie the packets to seal
SRC = b"here/prog/1"


def session() -> Session:
    return Session(1, 11, Peer(1, 0, 0, b"prog"), rights=Rights(), now=0.0)


def gathering() -> Outgoing:
    return Outgoing(bytearray(SEALED_BYTES), 0)


# What is taken


def test_nothing_is_wanted_at_first():
    assert gathering().take() is None


def test_effects_are_taken_once():
    effects = gathering()
    client = session()
    effects.clients.watch.append(client)
    effects.clients.close.append(client)
    effects.clients.taps = False
    effects.clients.asked = client, Cmsg(b"status", b"")
    effects.add(b"x")
    taken = effects.take()
    assert taken is not None
    assert taken.clients is not None
    assert (taken.clients.watch, taken.clients.close, taken.clients.taps) == ([client], [client], False)
    assert taken.clients.asked == (client, Cmsg(b"status", b""))
    assert taken.starts == [0]
    assert effects.take() is None
    assert effects.room == SEALED_LIMIT


@pytest.mark.parametrize("name", ["watch", "unwatch", "resume", "close"])
def test_each_list_counts_and_is_not_shared(name: str):
    effects = gathering()
    getattr(effects.clients, name).append(session())
    taken = effects.take()
    assert taken is not None
    getattr(effects.clients, name).append(session())
    assert len(getattr(taken.clients, name)) == 1


@pytest.mark.parametrize("taps", [True, False])
def test_a_change_of_taps_counts(taps: bool):
    effects = gathering()
    effects.clients.taps = taps
    taken = effects.take()
    assert taken is not None
    assert taken.clients is not None
    assert taken.clients.taps is taps


def test_datagrams_alone_want_nothing_of_clients():
    effects = gathering()
    effects.add(b"x")
    taken = effects.take()
    assert taken is not None
    assert taken.clients is None


# What is sealed


class Sealing:
    """An ``Outgoing`` whose region holds SEALED_LIMIT datagrams, and packets to seal."""

    def __init__(self, integrity: Integrity | None = None) -> None:
        self.integrity = integrity or Integrity()
        self.memory = bytearray(REGION + SEALED_BYTES)
        self.outgoing = Outgoing(self.memory, REGION)
        self.seq = 1

    def seal(self, *payloads: bytes) -> list[bytes]:
        """Seal messages on ``a``; the datagrams that were made of them, as they were given back."""
        starts, ends, at = [], [], 0
        for payload in payloads:
            packet = b"MSG a\0" + payload
            self.memory[at : at + len(packet)] = packet
            starts.append(at)
            ends.append(at + len(packet))
            at += len(packet)
        sealed = self.outgoing.seal(codec_of(self.integrity), SRC, self.seq, (starts, ends))
        self.seq += len(payloads)
        return sealed if isinstance(sealed, list) else as_bytes(self.memory, *sealed)

    def expected(self, first: int, *payloads: bytes) -> list[bytes]:
        return [
            datagram(SRC, seq, b"a", payload, self.integrity) for seq, payload in enumerate(payloads, first)
        ]

    def take(self) -> list[bytes]:
        taken = self.outgoing.take()
        assert taken is not None
        assert taken.starts == sorted(taken.starts)
        assert all(end <= start for end, start in zip(taken.ends[:-1], taken.starts[1:], strict=True))
        return as_bytes(self.memory, taken.starts, taken.ends) + taken.beyond


@pytest.mark.parametrize("integrity", [Integrity(), Integrity([b"k" * 32], Level.HMAC)])
def test_datagrams_lie_side_by_side_in_order(integrity: Integrity):
    sealing = Sealing(integrity)
    first, second = sealing.seal(b"one", b"two"), sealing.seal(b"three")
    assert first + second == sealing.expected(1, b"one", b"two", b"three")
    assert sealing.outgoing.room == SEALED_LIMIT - 3
    assert sealing.take() == first + second
    assert sealing.outgoing.room == SEALED_LIMIT


def test_the_region_is_used_anew_once_it_is_taken():
    sealing = Sealing()
    sealing.seal(b"one")
    sealing.take()
    sealing.seal(b"two")
    assert sealing.outgoing._starts == [REGION]
    assert sealing.take() == sealing.expected(2, b"two")


def test_a_datagram_of_somebody_else_goes_as_it_is():
    sealing = Sealing()
    other = datagram(b"far/prog/1", 7, b"b", b"x")
    sealing.seal(b"one")
    sealing.outgoing.add(other)
    sealing.seal(b"two")
    assert sealing.take() == [*sealing.expected(1, b"one"), other, *sealing.expected(2, b"two")]


def test_datagrams_beyond_the_region_keep_their_order():
    """Also what would find room again: it comes later."""
    sealing = Sealing()
    for _ in range(SEALED_LIMIT - 2):
        sealing.seal(b"x")
    assert sealing.outgoing.room == 2
    sealing.seal(b"1", b"2", b"3")
    assert (sealing.outgoing.room, len(sealing.outgoing._starts) + len(sealing.outgoing._beyond)) == (
        0,
        SEALED_LIMIT + 1,
    )
    sealing.seal(b"4")
    sealing.outgoing.add(b"BCCN1[0]")
    late = sealing.expected(SEALED_LIMIT - 1, b"1", b"2", b"3", b"4")
    assert sealing.take()[SEALED_LIMIT - 2 :] == [*late, b"BCCN1[0]"]


def test_bridged_datagram_goes_beyond_a_full_region():
    sealing = Sealing()
    for _ in range(SEALED_LIMIT):
        sealing.seal(b"x")
    assert sealing.outgoing.room == 0
    sealing.outgoing.add(b"BCCN1[0]")
    assert sealing.outgoing._beyond == [b"BCCN1[0]"]
    assert len(sealing.outgoing._starts) == SEALED_LIMIT


def test_the_longest_datagrams_fill_the_region_and_no_more():
    sealing = Sealing()
    sealing.seq = 10**15
    around = len(sealing.seal(b"x" * 1000)[0]) - 1000
    sealing.take()
    for _ in range(SEALED_LIMIT):
        assert len(sealing.seal(b"x" * (SEND_LIMIT - around))[0]) == SEND_LIMIT
    assert sealing.outgoing._ends[-1] <= len(sealing.memory)
    assert not sealing.outgoing._beyond
