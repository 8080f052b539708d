"""How many lines of the log peers may cause, and what is said of those left out."""

import os

import pytest
import structlog

from bccnd.process.log_limit import (
    KEYS_LIMIT,
    OF_ALL,
    OF_DEBUG,
    OF_ONE_KIND,
    OF_ONE_USER,
    REPORT_SECONDS,
    ROWS,
    LogLimit,
)


class Log:
    """A limit with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limit = LogLimit({"serving"}, lambda: self.now)

    def takes(self, event: str = "client closed", method: str = "warning", **fields: object) -> bool:
        try:
            self.limit(None, method, {"event": event, **fields})
        except structlog.DropEvent:
            return False
        return True

    def lines(self, count: int, **fields: object) -> int:
        return sum(self.takes(**fields) for _ in range(count))


def test_one_program_has_a_few_lines_and_one_in_a_while():
    log = Log()
    assert log.lines(3000, uid=1000, program="prog") == OF_ONE_KIND.burst
    assert log.takes(uid=1000, program="other")
    log.now += OF_ONE_KIND.seconds
    assert log.lines(3000, uid=1000, program="prog") == 1


def test_a_user_cannot_get_more_by_other_programs():
    log = Log()
    assert sum(log.takes(uid=1000, program=f"p{number}") for number in range(500)) == OF_ONE_USER.burst
    assert log.takes(uid=1001, program="prog")


def test_all_users_together_have_a_bound():
    log = Log()
    users = range(100_000, 105_000)
    assert sum(log.takes(uid=uid, program="prog") for uid in users) == OF_ALL.burst
    log.now += OF_ALL.seconds
    assert sum(log.takes(uid=uid, program="prog") for uid in users) == 1


@pytest.mark.parametrize("uid", [None, 0, os.geteuid()])
def test_no_crowd_of_users_hides_what_befalls_the_host(uid: int | None):
    log = Log()
    for stranger in range(100_000, 105_000):
        log.takes(uid=stranger, program="prog")
    assert log.lines(100, uid=uid, program="prog") == OF_ONE_KIND.burst
    assert sum(log.takes(event=f"event {number}", uid=uid) for number in range(500)) == (
        OF_ONE_USER.burst - OF_ONE_KIND.burst
    )


def test_what_no_peer_can_cause_has_no_limit():
    log = Log()
    assert log.lines(5000, event="serving") == 5000
    assert log.limit.left_out(ending=True) == []


def test_a_line_that_nobody_foresaw_is_limited():
    assert Log().lines(5000, event="Task exception was never retrieved") == OF_ONE_KIND.burst


def test_debug_lines_have_a_larger_allowance():
    log = Log()
    assert log.lines(5000, method="debug", uid=1, program="p") == OF_DEBUG.burst
    assert log.takes(uid=1, program="p")


def test_what_was_left_out_is_counted_and_said_once():
    log = Log()
    log.lines(105, uid=1000, program="prog")
    log.lines(7, event="datagrams dropped")
    assert log.limit.left_out() == []
    log.now += REPORT_SECONDS
    assert log.limit.left_out() == [
        {"of": "client closed", "more": 100, "uid": 1000},
        {"of": "datagrams dropped", "more": 2},
    ]
    assert log.limit.left_out(ending=True) == []


def test_the_report_of_many_users_is_short_and_complete():
    log = Log()
    sent = sum(not log.takes(uid=uid, program="p") for uid in range(10 * KEYS_LIMIT) for _ in range(2))
    rows = log.limit.left_out(ending=True)
    assert len(rows) <= ROWS
    assert sum(row["more"] for row in rows) == sent


@pytest.mark.parametrize("users", [1, 20_000])
def test_its_tables_stay_small(users: int):
    log = Log()
    for number in range(20_000):
        log.now += 0.01
        log.takes(uid=number % users, program=f"p{number}")
        assert len(log.limit._allowances) <= KEYS_LIMIT + 2
