"""The daemon's account of itself: what becomes a mark, whom it asks for, and what it leaves out."""

import json
from typing import Any

import pytest

from bccnd.recorder import account
from bccnd.recorder.account import Account, Ask, Said

SECOND = 10**9


def status(**fields: Any) -> bytes:
    counters = {"dropped": fields.pop("dropped", 0), "received": fields.pop("received", 0)}
    about = {"version": "1.2", "host": "here", "integrity": "none", "pid": 7, "uptime": 5.0, "reorder": 0}
    return json.dumps({**about, "counters": counters, "kernel": {"dropped": 0}, **fields}).encode()


def clients(*rows: tuple[str, int], following: str | None = None, seconds: float = 1000.0) -> bytes:
    made = [
        {"name": name, "dropped": dropped, "policy": "drop-oldest", "tap": False, "seconds": seconds}
        for name, dropped in rows
    ]
    return json.dumps({"clients": made, "next": following}).encode()


def heard(
    of: Account, key: str, value: bytes, time_ns: int = SECOND
) -> list[Ask | tuple[str, dict[str, Any]]]:
    return [
        (item.kind.value, json.loads(item.payload)) if isinstance(item, Said) else item
        for item in of.heard(key, value, time_ns)
    ]


def begun(dropped: int = 0) -> Account:
    """After its first look, at second 1."""
    made = Account()
    heard(made, "status", status(dropped=dropped))
    if dropped:
        heard(made, "clients", clients(("old", dropped)))
    return made


def test_the_first_look_says_what_the_daemon_is():
    assert heard(Account(), "status", status(reorder=3), 9 * SECOND) == [
        (
            "daemon",
            {
                "version": "1.2", "host": "here", "integrity": "none",
                "pid": 7, "reorder": 3, "since_ns": 4 * SECOND,
            },
        )
    ]  # fmt: skip


def test_a_daemon_that_is_the_same_is_described_once():
    made = Account()
    first = heard(made, "status", status(uptime=5.0), 9 * SECOND)
    again = heard(made, "status", status(uptime=15.0), 25 * SECOND)
    assert ([kind for kind, _ in first], [kind for kind, _ in again]) == (["daemon"], ["counters"])
    (about, _) = heard(made, "status", status(uptime=25.0, reorder=4), 35 * SECOND)
    assert about[1]["since_ns"] == 4 * SECOND
    (about, _) = heard(made, "status", status(uptime=1.0, reorder=4), 36 * SECOND)
    assert about[1]["since_ns"] == 35 * SECOND, "replaced"


def test_a_look_counts_since_the_one_before():
    made = begun()
    fields = {"kernel": {"dropped": 12}, "rejected": {"late": 4, "hmac": 0, "no such verdict": 9}}
    [(kind, counted)] = heard(made, "status", status(received=30, **fields), 11 * SECOND)
    assert (kind, counted["from_ns"]) == ("counters", SECOND)
    assert (counted["kernel_dropped"], counted["received"], counted["dropped"]) == (12, 30, 0)
    assert (counted["rejected"], counted["clients"], counted["more_clients"]) == ({"late": 4}, [], 0)
    [(_, counted)] = heard(made, "status", status(received=31, **fields), 21 * SECOND)
    assert (counted["from_ns"], counted["kernel_dropped"], counted["received"]) == (11 * SECOND, 0, 1)
    assert counted["rejected"] == {}
    [(_, counted)] = heard(made, "status", status(received=2), 31 * SECOND)
    assert counted["received"] == 2, "counting began again"


def test_clients_are_asked_for_where_messages_were_dropped():
    made = begun()
    assert heard(made, "status", status(dropped=9), 11 * SECOND) == [Ask("clients", "")]
    assert heard(made, "clients", clients(("a", 2), ("b", 0), following="17")) == [Ask("clients", "17")]
    [(kind, counted)] = heard(made, "clients", clients(("c", 7)))
    assert (kind, counted["from_ns"], counted["dropped"]) == ("counters", SECOND, 9)
    assert [(row["name"], row["dropped"]) for row in counted["clients"]] == [("c", 7), ("a", 2)]
    assert heard(made, "status", status(dropped=12), 21 * SECOND) == [Ask("clients", "")]
    [(_, counted)] = heard(made, "clients", clients(("a", 2), ("c", 10)))
    assert [(row["name"], row["dropped"]) for row in counted["clients"]] == [("c", 3)]
    assert heard(made, "clients", clients(("c", 99))) == [], "nobody asked"


def test_what_was_lost_before_the_record_is_not_in_it():
    made = begun(dropped=100)
    heard(made, "status", status(dropped=101), 11 * SECOND)
    [(_, counted)] = heard(made, "clients", clients(("old", 101)))
    assert (counted["dropped"], counted["clients"][0]["dropped"]) == (1, 1)


def test_a_client_that_took_a_name_over_begins_at_zero():
    made = begun(dropped=100)
    heard(made, "status", status(dropped=250), 11 * SECOND)
    [(_, counted)] = heard(made, "clients", clients(("old", 150), seconds=3.0))
    assert counted["clients"][0]["dropped"] == 150


def test_answers_that_never_come_cost_only_the_names():
    made = begun()
    heard(made, "status", status(dropped=9), 11 * SECOND)
    heard(made, "clients", clients(("a", 2), following="17"))
    [(_, counted), question] = heard(made, "status", status(dropped=10), 21 * SECOND)
    assert (counted["dropped"], [row["name"] for row in counted["clients"]]) == (9, ["a"])
    assert question == Ask("clients", "")
    [last] = made.end()
    assert json.loads(last.payload)["dropped"] == 1
    assert [*made.end()] == []


def test_a_mark_is_bounded_whatever_the_daemon_says():
    made = begun()
    heard(made, "status", status(dropped=1, version="v" * 10**5, rejected={"x" * 9: 1}), 11 * SECOND)
    for page in range(account.PAGES - 1):
        rows = [(f"{page}-{row}-" + "n" * 1000, row + 1) for row in range(100)]
        assert heard(made, "clients", clients(*rows, following="1")) == [Ask("clients", "1")]
    [(_, counted)] = heard(made, "clients", clients(("last", 1000), following="1"))
    assert len(counted["clients"]) == account.CLIENTS
    assert counted["more_clients"] == (account.PAGES - 1) * 100 + 1 - account.CLIENTS
    assert counted["clients"][0]["name"] == "last"
    assert len(json.dumps(counted)) < 10_000


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"not JSON",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"counters":7,"kernel":[],"rejected":"","uptime":"x","pid":-1,"version":{},"reorder":true}',
        b'{"counters":{"dropped":1e300,"received":99999999999999999999},"kernel":{"dropped":null}}',
        b'{"clients":{"a":1},"next":7}',
        b'{"clients":[7,{"name":5,"dropped":"x"},{"name":"a","dropped":1,"policy":[]}],"next":"x"}',
    ],
)
@pytest.mark.parametrize("key", ["status", "clients"])
def test_an_odd_answer_is_no_reason_to_stop(key: str, value: bytes):
    made = begun()
    heard(made, "status", status(dropped=1), 11 * SECOND)
    heard(made, key, value, 21 * SECOND)
    heard(made, "status", status(dropped=3), 31 * SECOND)
    [(_, counted)] = heard(made, "clients", clients(("z", 3)))
    assert counted["clients"][0]["name"] == "z"
