"""Who may be a peer, and which of two links stays."""

from itertools import product

import pytest

from bccnd.dndm.handshake import has_identity, message, own_address, refusal, rival_loses
from bccnd.dndm.link import Link
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.peers import Peer, parse

ME = parse("tcp://10.0.0.1:1/gate?bccn=a")
PEER = parse("tcp://10.0.0.2:1/arm")


def link(
    number: int = 1, *, scheme: str = "tcp", dialled: Peer | None = None, peer: Peer | None = None
) -> Link:
    return Link(number, dialled, scheme, 0.0, peer=peer)


def said(me: str = str(PEER), you: str = str(ME), stage: pb.Stage = pb.INITIAL) -> pb.Handshake:
    return pb.Handshake(me=me, you=you, stage=stage)


@pytest.mark.parametrize(
    ("me", "refused"),
    [
        (str(PEER), ""),
        ("tcp:///arm", ""),
        ("", "me"),
        ("serial:///dev/ttyS0/arm", "me"),
        ("tcp://10.0.0.1:1/another", "self"),
        ("tcp://10.0.0.3:1/?bccn=a", "bus"),
        ("tcp://10.0.0.3:1/?bccn=b", "bus"),
        ("tcp://10.0.0.3:1/?bccn=c", ""),
        ("tcp://10.0.0.4:1/?bccn=b", ""),  # it connects again
    ],
)
def test_a_trusted_peer_is_refused_for(me: str, refused: str) -> None:
    others = [link(2, peer=parse("tcp://10.0.0.4:1/?bccn=b")), link(3)]
    assert refusal(ME, link(), said(me, you=""), others, strict=False) == refused


def test_a_peer_stays_who_it_is() -> None:
    known = link(peer=PEER)
    assert refusal(ME, known, said(), [], strict=False) == ""
    assert refusal(ME, known, said("tcp://10.0.0.9:1/arm"), [], strict=False) == "me"


@pytest.mark.parametrize(
    ("handshake", "dialled", "refused"),
    [
        (said(), None, ""),
        (said(you="tcp://10.0.0.1:1/"), None, ""),
        (said(you="tcp://10.0.0.9:1/"), None, "you"),
        (said(you=""), None, "you"),
        (said(stage=pb.FINAL), None, "stage"),
        (said(stage=pb.FINAL), PEER, ""),
        (said(), PEER, "stage"),
        (said("tcp://10.0.0.9:1/arm", stage=pb.FINAL), PEER, "me"),
    ],
)
def test_a_peer_is_strictly_refused_for(handshake: pb.Handshake, dialled: Peer | None, refused: str) -> None:
    assert refusal(ME, link(dialled=dialled), handshake, [], strict=True) == refused
    assert refusal(ME, link(dialled=dialled), handshake, [], strict=False) == ""


def test_on_another_carrier_we_have_its_address() -> None:
    line = parse("serial:///dev/ttyUSB0/arm?baud=9600")
    assert own_address(ME, link()) == str(ME)
    ours = parse(own_address(ME, link(scheme="serial", dialled=line)))
    assert (ours.scheme, ours.address, ours.path) == ("serial", "/dev/ttyUSB0", "gate")
    assert ours.param("bccn") == "a"
    assert parse(own_address(ME, link(scheme="serial"))).scheme == "serial"
    assert message(ME, link(), PEER, pb.FINAL) == said(str(ME), str(PEER), pb.FINAL)


def test_an_address_that_others_may_have_is_none() -> None:
    assert has_identity(PEER)
    assert [has_identity(parse(each)) for each in ("tcp:///a", "tcp://:1/a", "serial:///dev/ttyS0")] == [
        False
    ] * 3


@pytest.mark.parametrize(("newer", "older"), [(True, False), (False, True)])
def test_both_ends_keep_the_same_of_two_links(newer: bool, older: bool) -> None:
    """``newer``: whether ME dialled the newer of both."""
    ends = []
    for me, peer, mine in ((ME, PEER, True), (PEER, ME, False)):
        one, rival = (link(dialled=peer if dialled is mine else None) for dialled in (newer, older))
        ends.append(rival_loses(me, one, rival, peer, strict=False))
    assert ends == [newer] * 2


@pytest.mark.parametrize(("dialled", "strict"), list(product([PEER, None], [False, True])))
def test_who_connects_again_is_preferred_unless_strict(dialled: Peer | None, strict: bool) -> None:
    one, rival = link(1, dialled=dialled), link(2, dialled=dialled)
    assert rival_loses(ME, one, rival, PEER, strict=strict) is not strict
