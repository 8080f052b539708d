"""Packets of a tap as rows: the values of each column, the direction, and the notices between rows."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from bccnd.errors import ProtocolError
from bccnd.recorder.layout import SCHEMA
from bccnd.recorder.links import Spoken
from bccnd.recorder.rows import Answer, Dropped, Ended, ReadUntil, Rows, messages_in
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Integrity, Level
from tests.relay.fakes import datagram
from tests.wire.memory import laid_out

OURS, THEIRS = b"here/prog/1", b"there/prog/1"
ELSEWHERE = b"10.0.0.2:5400"


def recv(
    datagram_: bytes,
    verdict: bytes = b"ok",
    peer: bytes = ELSEWHERE,
    interface: bytes = b"eth0",
    time_ns: int = 5,
) -> bytes:
    return sbus.Recv(peer, time_ns, verdict, datagram_, interface).serialize()


def sent(datagram_: bytes) -> bytes:
    return recv(datagram_, peer=b"local", interface=b"-")


def items_of(packets: Sequence[bytes], rows: Rows | None = None) -> list[Any]:
    items = (rows or Rows(["local/>"], "here")).read(*laid_out(list(packets)))
    return [item.to_pylist() if isinstance(item, pa.RecordBatch) else item for item in items]


def directions(rows: Rows, *packets: bytes) -> list[str]:
    return [row["direction"] for (item) in items_of(packets, rows) for row in item]


def test_every_column_has_its_value():
    signed = Integrity([b"k" * 32], Level.HMAC).seal(b"there/prog/1:18446744073709551615:a/b|pay\0load")
    ((row,),) = items_of([recv(signed, time_ns=1_760_000_000_000_000_001)])
    assert row == {
        "time_ns": 1_760_000_000_000_000_001,
        "interface": "eth0",
        "direction": "in",
        "verdict": "ok",
        "mode": "hmac",
        "peer": "10.0.0.2:5400",
        "src": "there/prog/1",
        "seq": 2**64 - 1,
        "channel": "a/b",
        "payload": b"pay\0load",
        "size": len(signed),
    }
    assert list(row) == SCHEMA.names


def test_a_repaired_message_is_recorded_as_one_that_came_in():
    ((row,),) = items_of([recv(datagram(THEIRS, 7, b"a", b"x"), b"repaired")])
    assert (row["direction"], row["verdict"], row["seq"]) == ("in", "repaired", 7)


def test_without_a_header_all_of_a_datagram_is_payload():
    sound = datagram(THEIRS, 0, b"a", b"x")
    ((noise, plain),) = items_of([recv(b"noise", b"magic"), recv(sound)])
    assert [noise[name] for name in ("src", "seq", "channel", "mode")] == [None] * 4
    assert (noise["payload"], noise["size"]) == (b"noise", 5)
    assert (plain["src"], plain["seq"], plain["mode"]) == ("there/prog/1", 0, "none")


def test_without_payloads_heartbeats_alone_keep_theirs():
    rows = Rows(["local/>"], "here", payloads=False)
    packets = [
        recv(datagram(THEIRS, 1, b"a/b", b"secret" * 20)),
        recv(datagram(THEIRS, 2, b"heartbeat/there/prog/1", b"leaving")),
        recv(datagram(THEIRS, 3, b"a/heartbeat/", b"")),
        recv(b"noise", b"magic"),
    ]
    (found,) = items_of(packets, rows)
    assert [row["payload"] for row in found] == [None, b"leaving", None, None]
    (whole,) = items_of(packets)
    for row in (*found, *whole):
        del row["payload"]
    assert found == whole
    ((only,),) = items_of([recv(datagram(THEIRS, 1, b"heartbeat/there/prog/1"))], rows)
    assert only["payload"] == b""


def test_the_direction_of_each_datagram():
    rows = Rows(["local/>", "here/*/state"], "here")
    packets = {
        sent(datagram(OURS, 1, b"a")): "out",
        sent(datagram(OURS, 1, b"local/a")): "local",
        sent(datagram(OURS, 2, b"here/x/state")): "local",
        sent(datagram(OURS, 2, b"!local/a")): "out",
        sent(datagram(b"here/bccnd/1", 2, b"local/presence/left/x")): "local",
        recv(datagram(THEIRS, 1, b"a")): "in",
        recv(datagram(THEIRS, 1, b"a"), b"duplicate"): "in",
        recv(datagram(THEIRS, 1, b"local/a"), b"local-channel"): "in",
        recv(datagram(OURS, 1, b"a"), b"own"): "echo",
        recv(datagram(OURS, 1, b"a"), b"duplicate"): "echo",
        recv(datagram(OURS, 9, b"a"), b"conflict"): "in",
        recv(b"noise", b"magic"): "in",
    }
    assert directions(rows, *packets) == list(packets.values())


def test_an_echo_of_a_bridged_source_is_recognized():
    rows = Rows([], "here")
    other = datagram(b"bridged/prog/1", 1, b"a")
    assert directions(rows, recv(other, b"duplicate")) == ["in"]
    assert directions(rows, sent(other)) == ["out"]
    assert directions(rows, recv(other, b"duplicate")) == ["echo"]


def test_notices_stand_between_the_rows_where_they_came():
    one, two = recv(datagram(THEIRS, 1, b"a")), recv(datagram(THEIRS, 2, b"a"))
    items = items_of(
        [
            b"CMSG pong\x0077",
            sbus.pack([one, b"CMSG dropped\x0012", two, one]),
            b"CMSG closing\0shutdown",
            b"CMSG revoked\0CMSG tap",
            b"CMSG revoked\0SUB a/>",
            b"CMSG revoked\0CMSG listen",
            b"CMSG tap\0off",
            b'CMSG status\0{"pid":1}',
            b"CMSG clients\0{}",
            two,
        ]
    )
    assert [[row["seq"] for row in item] if isinstance(item, list) else item for item in items] == [
        ReadUntil(77),
        [1],
        Dropped(12),
        [2, 1],
        Ended("closed by the daemon: shutdown", "shutdown"),
        Ended("the right to tap was revoked", "revoked"),
        Ended("the right to SUB a/> was revoked", "revoked"),
        Answer("status", b'{"pid":1}'),
        Answer("clients", b"{}"),
        [2],
    ]


@pytest.mark.parametrize("packet", [b"MSG a\0x", b"noise", b"PACK \0", b"RECV a b"])
def test_packets_that_no_tap_gets_are_an_error(packet: bytes):
    with pytest.raises(ProtocolError, match="which a tap does not get"):
        items_of([packet])


def test_messages_without_a_block_are_counted():
    one = recv(datagram(THEIRS, 1, b"a"))
    counted = messages_in(*laid_out([one, sbus.pack([one, b"CMSG dropped\x0012", one])]))
    assert counted == (3, [Dropped(12)])


def test_an_interface_name_that_is_not_utf8_is_escaped():
    ((row,),) = items_of([recv(datagram(THEIRS, 1, b"a"), interface=b"w\xffn")])
    assert row["interface"] == "w\\xffn"


def test_what_is_said_of_links_stands_behind_the_rows():
    """But for what was not delivered: anybody may have said that."""
    words = b"bccnd/there/repair", b"!bccnd/repair", b"relayed\na/b/1"
    packets = [
        recv(datagram(words[0], 1, words[1], words[2])),
        recv(datagram(words[0], 2, words[1], words[2]), b"hmac"),
        recv(datagram(THEIRS, 2**64 - 1, b"!bccnd/links", b"{}"), b"repaired"),
        recv(datagram(THEIRS, 7, b"a/b", b"x")),
    ]
    rows, *items = items_of(packets, Rows([], "here", payloads=False))
    assert len(rows) == 4
    assert items == [
        Spoken(words[1], words[0], 1, words[2]), Spoken(b"!bccnd/links", THEIRS, 2**64 - 1, b"{}"),
    ]  # fmt: skip
