"""What hypothesis throws at the relay's inputs: sound packets, and what is left of them."""

from hypothesis import strategies as st


def mostly(sound: st.SearchStrategy[bytes], pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    """Sound packets, cut ones, and rubble of their pieces."""
    cut = st.builds(lambda packet, at: packet[: at % (len(packet) + 1)], sound, st.integers(0, 100))
    rubble = st.lists(st.sampled_from(pieces), max_size=6).map(b"".join)
    return st.one_of(sound, sound, sound, cut, rubble)


channels = st.sampled_from([b"a", b"ab", b"a/b", b"local/x", b"!", b"!here", b"!?", b"", b"a:b", b"c" * 1025])
payloads = st.one_of(st.binary(max_size=12), st.binary(min_size=1, max_size=2).map(lambda piece: piece * 150))
