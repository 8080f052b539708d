"""What hypothesis throws at whatever reads from clients and the segment: what is sound, and what is left of it."""

from collections.abc import Sequence

from hypothesis import strategies as st

from bccnd.wire.bccn1 import Integrity

channels = st.sampled_from([b"a", b"ab", b"a/b", b"local/x", b"!", b"!here", b"!?", b"", b"a:b", b"c" * 1025])
payloads = st.one_of(st.binary(max_size=12), st.binary(min_size=1, max_size=2).map(lambda piece: piece * 150))
PIECES = [
    b"BCCN1", b"BCCN2", b"[", b"8", b"]", b"x:1:a", b"x:2:ab|", b"|", b":", b"\0", b":hmac=", b"MSG a\0", b"0",
    b"\x0b", b"F",
]  # fmt: skip


def mostly(sound: st.SearchStrategy[bytes], pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    """Sound packets, cut ones, and rubble of their pieces."""
    cut = st.builds(lambda packet, at: packet[: at % (len(packet) + 1)], sound, st.integers(0, 100))
    rubble = st.lists(st.sampled_from(pieces), max_size=6).map(b"".join)
    return st.one_of(sound, sound, sound, cut, rubble)


def datagrams(
    integrities: Sequence[Integrity],
    srcs: Sequence[bytes],
    numbers: st.SearchStrategy[int],
    channels: st.SearchStrategy[bytes] = channels,
    payloads: st.SearchStrategy[bytes] = payloads,
) -> st.SearchStrategy[bytes]:
    """Sealed as one of ``integrities`` does it, whether or not their fields are sound, and what is left of them."""
    body = st.builds(b"%b:%d:%b|%b".__mod__, st.tuples(st.sampled_from(srcs), numbers, channels, payloads))
    sealed = st.builds(lambda integrity, body: integrity.seal(body), st.sampled_from(integrities), body)
    return mostly(sealed, PIECES)
