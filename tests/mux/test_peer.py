"""Whom a connection speaks for."""

import pytest

from bccnd.mux.peer import GROUPS_LIMIT, Peer
from bccnd.mux.settings import Certified
from bccnd.relay.identity import parse_peer


@pytest.mark.parametrize(
    "peer",
    [
        Peer(1000, (1000, 27, 44), 4711, b"node"),
        Peer(0, (0,)),
        Peer(4294967294, (1,), 0, b"two words"),
        Peer(1, tuple(range(GROUPS_LIMIT)), 1, b"x" * 32),
    ],
    ids=["a process", "a bare one", "the highest uid", "as much as there can be"],
)
def test_the_daemon_reads_what_is_said_of_a_peer(peer: Peer) -> None:
    head, _, value = peer.introduction.partition(b"\0")
    found = parse_peer(value)
    assert head == b"CMSG peer"
    assert (found.uid, found.gid, found.pid, found.program) == (
        peer.uid, peer.groups[0], peer.pid, peer.program,
    )  # fmt: skip
    assert found.groups == set(peer.groups[1:])


@pytest.mark.parametrize("name", [" ", " a  b ", "é" * 20, "☃/*>!", "\x7f\x01", "*", "x" * 255], ids=ascii)
def test_any_name_of_the_settings_can_be_said(name: str) -> None:
    """As ``[[mux.peers]]`` has it, cut within a letter, too."""
    user = Certified(name=name, user=1, groups=(2,))
    found = parse_peer(Peer(user.user, user.groups, 0, user.name.encode()).introduction.partition(b"\0")[2])
    assert (found.uid, found.gid, found.program) == (1, 2, name.encode()[:32])
    assert found.shown_program.isprintable()


def test_what_the_daemon_would_not_read_is_left_out() -> None:
    peer = Peer(1, tuple(range(GROUPS_LIMIT + 5)), 1, b"a\0b\nc" + b"x" * 40)
    found = parse_peer(peer.introduction.partition(b"\0")[2])
    assert len(found.groups) == GROUPS_LIMIT - 1
    assert found.program == b"a_b_c" + b"x" * 27
