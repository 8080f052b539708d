"""What the log says of clients."""

import pytest
import structlog
from structlog.testing import capture_logs

from bccnd import report
from bccnd.relay.slow import Episode, Trouble
from tests.relay.fakes import Bus

IDENTITY = {"name": "here/prog/7", "pid": 7, "uid": 1000, "program": "prog"}


@pytest.fixture(autouse=True)
def every_level() -> None:
    """Whatever a daemon that ran in this process before has configured."""
    structlog.reset_defaults()


def held_up() -> Bus:
    """One client that holds another up."""
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG queue\0packets=2 policy=block", pid=7)
    reader.stop_reading()
    bus.connect(pid=8).say(b"MSG a\0x", b"MSG a\0y")
    return bus


def test_a_client_that_is_closed():
    session = next(iter(held_up().relay.sessions.values()))
    with capture_logs() as lines:
        report.client_left(session, "slow", report.queue_state(session))
    assert lines == [
        {
            "event": "client closed",
            "log_level": "warning",
            **IDENTITY,
            "reason": "slow",
            "policy": "block",
            "queued": 2,
            "queued_bytes": 14,
            "dropped": 0,
            "holds": 1,
            "held": ["here/prog/8"],
        }
    ]


def test_a_client_that_leaves():
    session = Bus().connect(pid=7).session
    with capture_logs() as lines:
        report.client_left(session, "", report.queue_state(session))
    assert lines == [
        {"event": "client left", "log_level": "debug", **IDENTITY, "reason": "", "dropped": 0},
    ]


def test_refusals():
    with capture_logs() as lines:
        report.refusals([{**IDENTITY, "right": "tap", "reason": "no right to tap"}], 3)
    assert lines == [
        {"event": "refused", "log_level": "warning", **IDENTITY, "right": "tap", "reason": "no right to tap"},
        {"event": "refused", "log_level": "warning", "more": 3},
    ]


def test_who_is_turned_away_again_and_again_is_one_line_a_while():
    door = report.Door()
    with capture_logs() as lines:
        for now in (0.0, 0.1, 9.9, 10.0):
            door.turn_away(now, reason="limits.clients", pid=7)
    line = {"event": "client refused", "log_level": "warning", "reason": "limits.clients", "pid": 7}
    assert lines == [line | {"refused": 1}, line | {"refused": 3}]


def test_a_slow_client():
    session = Bus().connect(pid=7).session
    session.outbox.dropped = 5
    episode = Episode(session, Trouble.LOSES, 100.0, lost_before=2)
    with capture_logs() as lines:
        report.slow_clients([episode], [], 101.0)
        episode.ended = 103.5
        report.slow_clients([], [episode], 104.0)
        episode.left = True
        report.slow_clients([], [episode], 104.0)
    begin, end, left = lines
    assert begin == {
        "event": "client too slow",
        "log_level": "warning",
        **IDENTITY,
        "reason": "loses messages",
        "policy": "drop-oldest",
        "queued": 0,
        "queued_bytes": 0,
        "dropped": 5,
    }
    assert end == {
        "event": "client no longer too slow",
        "log_level": "info",
        **IDENTITY,
        "reason": "caught up",
        "lost": 3,
        "seconds": 3.5,
    }
    assert left["reason"] == "left"


def test_when_everybody_is_slow_the_log_stays_short():
    session = Bus().connect().session
    episodes = [Episode(session, Trouble.LOSES, 0.0, lost_before=0) for _ in range(500)]
    with capture_logs() as lines:
        report.slow_clients(episodes, [], 1.0)
    assert len(lines) == report.LINES_A_REPORT + 1
    assert lines[-1] == {
        "event": "more clients too slow",
        "log_level": "warning",
        "clients": 500 - report.LINES_A_REPORT,
    }
