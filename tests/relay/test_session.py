"""A session: how it starts, and the form in which answers and notices reach it."""

import pytest

from bccnd.relay.identity import Peer
from bccnd.relay.rights import Rights
from bccnd.relay.session import Format, Session
from bccnd.wire.sbus import Cmsg, parse


@pytest.fixture
def session() -> Session:
    return Session(1, 10, Peer(7, 1000, 100, b"prog"), rights=Rights(), now=5.0)


def test_session_starts_plain_and_not_listening(session: Session):
    assert session.format is Format.PLAIN
    assert not session.format_chosen
    assert session.separator == b"/"
    assert session.echo
    assert not any([session.listening, session.tap, session.packed, session.subscriptions])
    assert not any([session.waits_for, session.holds, session.closing])
    assert session.since == session.progress == 5.0


@pytest.mark.parametrize("form", [Format.PLAIN, Format.FULL])
def test_renders_packets(session: Session, form: Format):
    session.format = form
    answer = Cmsg(b"pong", b"one\ntwo\0")
    assert parse(session.render(answer)) == answer
    assert session.lost_notice(3) == b"CMSG dropped\x003"


def test_renders_lines(session: Session):
    session.format = Format.LINES
    assert session.render(Cmsg(b"pong", b"one\ntwo\r\0")) == b"CMSG pong one\\ntwo\\r\\0\n"
    assert session.lost_notice(3) == b"CMSG dropped 3\n"
