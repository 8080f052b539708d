"""What the log says about clients and dropped datagrams."""

from collections import Counter
from errno import ENETDOWN

import pytest
import structlog
from structlog.testing import capture_logs

from bccnd import report
from bccnd.relay.askers import Asker
from bccnd.relay.identity import Peer
from bccnd.relay.slow import Episode, Trouble
from tests.relay.fakes import Bus

IDENTITY = {"name": "here/prog/7", "pid": 7, "uid": 1000, "program": "prog"}


@pytest.fixture(autouse=True)
def every_level() -> None:
    """Undo what a daemon that ran in this process before has configured."""
    structlog.reset_defaults()


def held_up() -> Bus:
    """A bus on which one client holds another up."""
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG queue\0packets=2 policy=block", pid=7)
    reader.stop_reading()
    bus.connect(pid=8).say(b"MSG a\0x", b"MSG a\0y")
    return bus


def test_a_closed_client_is_a_warning_with_its_queue():
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


def test_a_client_that_leaves_is_a_debug_line():
    session = Bus().connect(pid=7).session
    with capture_logs() as lines:
        report.client_left(session, "", report.queue_state(session))
    assert lines == [
        {"event": "client left", "log_level": "debug", **IDENTITY, "reason": "", "dropped": 0},
    ]


def test_refusals_are_logged_and_the_rest_counted():
    with capture_logs() as lines:
        report.refusals([{**IDENTITY, "right": "tap", "reason": "no right to tap"}], 3)
    assert lines == [
        {"event": "refused", "log_level": "warning", **IDENTITY, "right": "tap", "reason": "no right to tap"},
        {"event": "refused", "log_level": "warning", "more": 3},
    ]


def test_a_refused_client_is_named_with_the_reason():
    with capture_logs() as lines:
        report.client_refused(Peer(7, 1000, 1000, b"prog"), "limit: at most 4 clients", 4)
    assert lines == [
        {
            "event": "client refused",
            "log_level": "warning",
            "pid": 7,
            "uid": 1000,
            "program": "prog",
            "reason": "limit: at most 4 clients",
            "clients": 4,
        }
    ]


def test_a_fault_names_the_client_that_met_it():
    session = Bus().connect(pid=7).session
    fault = ZeroDivisionError("ours")
    with capture_logs() as lines:
        report.fault(fault, "a client", session)
        report.fault(fault, "a timer")
    line = {"event": "fault", "log_level": "error", "exc_info": fault}
    assert lines == [line | IDENTITY | {"where": "a client"}, line | {"where": "a timer"}]


def test_a_host_that_misses_much_is_named_with_what_to_look_at():
    with capture_logs() as lines:
        report.askers([Asker("b", "10.0.0.2", asked=300, sent=9000, seconds=10.0)])
    (line,) = lines
    assert "bccn doctor" in line.pop("see")
    assert line == {
        "event": "host misses much",
        "log_level": "warning",
        "host": "b",
        "peer": "10.0.0.2",
        "asked": 300,
        "sent": 9000,
        "seconds": 10.0,
    }


def test_a_slow_client_is_logged_at_begin_and_end():
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


def test_drops_are_reported_once_and_harmless_ones_never():
    drops, counts = report.Drops(), Counter(hmac=2, own=5, duplicate=1)
    with capture_logs() as lines:
        drops.pass_over(Counter(hmac=1))
        drops.report(counts, [], 10.0)
        drops.report(counts, [], 30.0)
        drops.report(counts | Counter(unsent=3), [ENETDOWN], 50.0)
    line = {"event": "datagrams dropped", "log_level": "warning"}
    assert lines == [line | {"hmac": 1}, line | {"unsent": 3, "errors": ["Network is down"]}]
