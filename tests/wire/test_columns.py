"""RECV packets as columns: the compiled form against the one in Python, and that against the parsers."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import WireError
from bccnd.wire import columns, native, sbus
from bccnd.wire.bccn1 import SEQ_LIMIT, Envelope, Integrity, Level, Message
from tests.golden import entries
from tests.wire.memory import laid_out

DEPLOYMENTS = [Integrity(), Integrity([b"k" * 32], Level.HMAC), Integrity((), Level.CRC32)]
thorough = settings(deadline=None, max_examples=300)

datagrams = st.one_of(
    st.builds(
        lambda integrity, src, seq, chan, payload: integrity.seal(b"%b:%d:%b|%b" % (src, seq, chan, payload)),
        st.sampled_from(DEPLOYMENTS),
        st.sampled_from([b"x", b"?", b"host/prog/1", b"s" * 128, b"s" * 129, b"", b"a b"]),
        st.integers(0, 3) | st.sampled_from([2**63 - 1, 2**63, SEQ_LIMIT - 1, SEQ_LIMIT, 10**20]),
        st.sampled_from([b"a/b", b"c", b"!", b"!?", b"!x", b"", b"c" * 1024, b"c" * 1025, b"\xff"]),
        st.binary(max_size=20),
    ),
    st.sampled_from([bytes.fromhex(entry["datagram"]) for entry in entries("bccn1", "invalid")]),
    st.binary(max_size=30),
)
recvs = st.builds(
    sbus.Recv,
    st.sampled_from([b"local", b"10.0.0.2:5400", b"[fe80::1%eth0]:5400"]),
    st.integers(0, 3) | st.sampled_from([1_800_000_000_000_000_000, 2**63 - 1]),
    st.sampled_from([b"ok", b"own", b"duplicate", b"hmac"]),
    datagrams,
    st.sampled_from([b"", b"-", b"eth0", b"w\xc3\xbc0"]),
).map(sbus.Recv.serialize)
packets = st.one_of(
    recvs,
    recvs,
    st.sampled_from(
        [
            b"CMSG dropped\x007",
            b"CMSG pong\0",
            b"",
            b"RECV ",
            b"RECV a 1 ok",
            b"RECV a 1  -\0",
            b"RECV a x ok -\0",
        ]
    ),
    st.sampled_from(
        [b"RECV a %d ok\0" % 2**63, b"RECV a 1 ok - -\0", b"RECV a 1 ok \0", b"MSG a\0", b"\xff"]
    ),
    st.lists(recvs, max_size=4).map(sbus.pack),
    st.lists(recvs, min_size=1, max_size=3).map(sbus.pack).map(lambda packet: packet[:-1]),
    st.lists(recvs, min_size=1, max_size=2).map(
        lambda inside: sbus.pack([sbus.pack(inside), b"CMSG pong\0"])
    ),
)


@thorough
@given(st.lists(packets, max_size=12))
def test_the_compiled_form_agrees_with_the_plain(given_: list[bytes]):
    laid = laid_out(given_)
    assert native.columns(*laid) == columns.columns(*laid)


@thorough
@given(st.lists(recvs, max_size=8))
def test_each_row_agrees_with_the_parsers(given_: list[bytes]):
    made = native.columns(*laid_out([sbus.pack(given_)]))
    assert made.rows == len(given_)
    assert made.others == []
    ends = array("i", made.payload_at)
    for row, packet in enumerate(given_):
        recv = sbus.Recv.parse(packet[5:])
        assert array("q", made.time_ns)[row] == recv.unix_ns
        assert array("i", made.size)[row] == len(recv.datagram)
        assert word(made.peer, row) == recv.peer
        assert word(made.verdict, row) == recv.verdict
        assert word(made.interface, row) == (recv.interface or b"-")
        payload = made.payload[ends[row] : ends[row + 1]]
        try:
            envelope = Envelope.parse(recv.datagram)
            Integrity().verify(envelope)
            message = Message.parse(envelope.body)
        except WireError:
            continue  # it is shown as far as it can be read
        if envelope.magic != b"BCCN1":
            continue
        assert made.sound[row] == 1
        assert array("Q", made.seq)[row] == message.seq
        assert (word(made.src, row), word(made.chan, row), payload) == (
            message.src,
            message.chan,
            message.payload,
        )
        assert word(made.mode, row) == envelope.algorithm


def word(words: columns.Words, row: int) -> bytes:
    numbers, values = words
    return values[array("i", numbers)[row]]


def test_a_rejected_datagram_still_has_its_source():
    cut = sbus.Recv(b"10.0.0.2:1", 5, b"length", b"BCCN1[99]x:7:a/b|hello", b"eth0").serialize()
    made = native.columns(*laid_out([cut]))
    assert (made.src[1], made.chan[1], made.payload, bytes(made.sound)) == ([b"x"], [b"a/b"], b"hello", b"\1")


def test_bytes_without_a_header_are_payload():
    noise = sbus.Recv(b"10.0.0.2:1", 5, b"magic", b"noise", b"eth0").serialize()
    made = native.columns(*laid_out([noise]))
    assert (made.src[1], made.chan[1], made.payload, bytes(made.sound)) == ([b""], [b""], b"noise", b"\0")


def test_other_packets_come_back_with_their_row():
    recv = sbus.Recv(b"local", 5, b"ok", b"BCCN1[6]x:7:a|", b"-").serialize()
    pack = sbus.pack([recv, b"CMSG dropped\x003", recv])
    made = native.columns(*laid_out([b"CMSG pong\0", pack, b"PACK \0"]))
    assert made.others == [(0, b"CMSG pong\0"), (1, b"CMSG dropped\x003"), (2, b"PACK \0")]


def test_every_recv_of_the_vectors_is_a_row():
    for entry in entries("sbus", "tapped"):
        packet = bytes.fromhex(entry["packet"])
        made = native.columns(*laid_out([packet]))
        assert (made.rows, made.interface[1]) == (1, [entry["interface"].encode()])
    for entry in entries("sbus", "invalid"):
        packet = bytes.fromhex(entry["packet"])
        if packet.startswith(b"RECV "):
            assert native.columns(*laid_out([packet])).others == [(0, packet)]


def test_a_time_beyond_the_limit_is_not_a_row():
    packet = b"RECV a %d ok\0" % 2**63
    assert native.columns(*laid_out([packet])).others == [(0, packet)]
    assert sbus.Recv.parse(packet[5:]).unix_ns == 2**63
