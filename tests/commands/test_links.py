"""``bccn links`` with a real daemon, and programs that answer as uplinks do."""

import argparse
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest

import bccn
from bccnd.commands.links import PARTS_LIMIT, TITLES, gathered, lines, run
from bccnd.uplink.account import FORM, LOSSES
from tests.command_line import bccn as command
from tests.daemon_process import DaemonProcess
from tests.documents import blocks
from tests.packet_client import PATIENCE

NORTH: dict[str, Any] = {
    "uplink": "relay01/bccnd-uplink/7", "segment": "north", "carrier": "fyrehose://10.1.0.1:4900", "state": "up",
    "reason": "", "seconds": 61.0, "round_trip": 0.0123, "behind": 1, "waiting": 2, "repaired": 3, "lost": 4,
}  # fmt: skip
SOUTH = {
    "segment": "south",
    "instance": "0" * 16,
    "heard": 2.5,
    "held": 0,
    "lost": 4,
    "hosts": ["mon01", "mon02"],
}


@contextmanager
def answering(daemon: DaemonProcess, *payloads: bytes) -> Iterator[None]:
    """A program that replies to a request with all of these."""
    over = threading.Event()
    with bccn.Client(daemon.socket, format="full") as client:

        def reply(request: bccn.Request) -> None:
            for payload in payloads:
                client.reply(request, payload)

        client.serve("bccnd/links", reply)
        thread = threading.Thread(target=lambda: _serve(client, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)


def _serve(client: bccn.Client, over: threading.Event) -> None:
    while not over.is_set():
        client.receive(timeout=0.02)


def test_it_shows_uplinks_and_what_they_hear(daemon: DaemonProcess) -> None:
    parts = [{**NORTH, "links_said": 1}, {"uplink": NORTH["uplink"], "link": SOUTH}]
    options = ["--wait", str(PATIENCE), "--count", "1"]
    with answering(daemon, b"not JSON", b'["no object"]', *(json.dumps(part).encode() for part in parts)):
        title, row, link = command(daemon, "links", *options).stdout.decode().splitlines()
        (uplink,) = json.loads(command(daemon, "links", "--json", *options).stdout)["uplinks"]
    assert re.split(r" {2,}", title) == TITLES
    assert re.split(r" {2,}", row) == [
        "relay01/bccnd-uplink/7", "north", "up 1 min 1 s", "12.3 ms", "1", "2", "3", "4", "fyrehose://10.1.0.1:4900",
    ]  # fmt: skip
    assert link == "  hears south, 2 s ago; 0 held, 4 lost; hosts: mon01, mon02"
    assert uplink == {**NORTH, "links_said": 1, "links": [SOUTH]}


def test_without_an_uplink_it_says_what_to_do(daemon: DaemonProcess) -> None:
    done = command(daemon, "links")
    assert (done.returncode, done.stdout) == (6, b"")
    assert done.stderr.decode().count("\n") == 1
    assert "start bccnd-uplink on one of its hosts" in done.stderr.decode()
    done = command(daemon, "links", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (6, {"uplinks": []})


@pytest.mark.parametrize(("wanted", "code"), [(None, 0), (1, 0), (2, 3)])
def test_fewer_uplinks_than_wanted_are_a_timeout(
    wanted: int | None, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second one answers with a part alone. What came is shown all the same."""
    other = {**NORTH, "uplink": "relay02/bccnd-uplink/8", "links_said": 1}
    monkeypatch.setattr("bccnd.commands.links.bccn.Client", Replies)
    monkeypatch.setattr(Replies, "payloads", tuple(json.dumps(each).encode() for each in (NORTH, other)))
    assert run(argparse.Namespace(socket=None, wait=1.0, count=wanted, json=True)) == code
    shown, said = capfd.readouterr()
    assert len(json.loads(shown)["uplinks"]) == (1 if wanted == 1 else 2)
    assert said == ("bccn: 1 of 2 uplinks answered within 1 s\n" if code else "")


def test_parts_of_several_uplinks_are_put_together() -> None:
    west = {**SOUTH, "segment": "west"}
    other = {**NORTH, "uplink": "relay02/bccnd-uplink/8"}
    parts = [
        {"uplink": other["uplink"], "link": SOUTH}, NORTH, {"uplink": NORTH["uplink"], "link": west}, other,
        {"uplink": NORTH["uplink"], "link": SOUTH}, {"uplink": "never introduced", "link": SOUTH},
    ]  # fmt: skip
    assert gathered(parts) == [{**NORTH, "links": [SOUTH, west]}, {**other, "links": [SOUTH]}]
    assert gathered([{**NORTH, "links_said": 2}, *parts[2:3], other], only_whole=True) == [
        {**other, "links": []}
    ]


def test_what_is_wrong_stands_below_its_uplink() -> None:
    cut = {
        **NORTH,
        "state": "cut off",
        "reason": "no answer of\n10.1.0.1",
        "round_trip": None,
        "more_links": 3,
    }
    many = {**SOUTH, "hosts": [f"h{number}" for number in range(10)], "more_hosts": 90}
    _, row, reason, link, more = lines([{**cut, "links": [many]}])
    assert row.split()[2:8] == ["cut", "off", "1", "min", "1", "s"]
    assert " - " in row
    assert reason == "  no answer of\\n10.1.0.1"
    assert link.endswith("hosts: h0, h1, h2, h3, h4, h5, h6, h7 and 92 more")
    assert more == "  and 3 more"
    assert lines([{**NORTH, "links": []}])[2] == "  hears no other segment"


class Replies:
    """Stands in for a client whose request gets these payloads."""

    payloads: tuple[bytes, ...] = ()

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def request_many(self, *_: object) -> Iterator[SimpleNamespace]:
        for payload in self.payloads:
            yield SimpleNamespace(payload=payload)


@pytest.mark.parametrize(
    "text",
    [
        '"x"', '"\\ud800\\u001b[2J"', str(-(2**70)), "1" + "0" * 800, "1e300", "1e999", "NaN", "-Infinity", "true",
        "null", "[]", "{}", '["a", 1, null, {}]', "[" * 400 + "]" * 400, "[" * 100_000,
    ],
)  # fmt: skip
def test_whatever_is_replied_is_shown_or_left_out(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "links_said", "more_links", "new", "imported", "siblings", "directed", *FORM.counts
    about = [name for name in (*NORTH, *more) if name != "uplink"]
    replies = [
        json.dumps(NORTH),
        text,
        f'{{"uplink": {text}, "state": "up"}}',
        f'{{"uplink": "a", "link": {text}}}',
    ]
    replies += [f'{{"uplink": "{name}", "state": "up", "{name}": {text}}}' for name in about]
    said = '"state": "up", "exported": 1'
    replies += [f'{{"uplink": "c{name}", {said}, "{name}": {{"rate": {text}}}}}' for name in FORM.counts]
    replies += [f'{{"uplink": "e{name}", {said}, "{name}": {text}}}' for name in ("exported", *more)]
    links = (f'{{"{name}": {text}}}' for name in (*SOUTH, "more_hosts", "new"))
    replies += [f'{{"uplink": "{NORTH["uplink"]}", "link": {link}}}' for link in links]
    monkeypatch.setattr(Replies, "payloads", tuple(reply.encode() for reply in replies))
    monkeypatch.setattr(bccn, "Client", Replies)
    for json_wanted in (False, True):
        assert run(argparse.Namespace(socket=None, wait=1.0, count=99, json=json_wanted)) == 3
    title, _, printed = capsys.readouterr().out.partition("\n")
    shown, brace, encoded = printed.partition("\n{\n")
    assert title.split()[0] == "UPLINK"
    assert "relay01/bccnd-uplink/7" in shown
    assert shown.replace("\n", "").isprintable()
    uplinks = json.loads(brace + encoded, parse_constant=pytest.fail)["uplinks"]
    assert "relay01/bccnd-uplink/7" in [each["uplink"] for each in uplinks]


def test_a_flood_of_answers_takes_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flood = tuple(b'{"uplink": "u%d", "state": "up"}' % number for number in range(2 * PARTS_LIMIT))
    monkeypatch.setattr(Replies, "payloads", flood)
    monkeypatch.setattr(bccn, "Client", Replies)
    assert run(argparse.Namespace(socket=None, wait=1.0, count=None, json=False)) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * PARTS_LIMIT


def test_what_became_of_messages_stands_below_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = {
        **NORTH, "directed": False, "exported": 1, "imported": 12, "siblings": 1,
        "dropped": {"not-imported": 5, "rate": 2},
        "losses": {"too_large": 3, "of a newer uplink": 9}, "links_said": 1,
    }  # fmt: skip
    link = {"uplink": NORTH["uplink"], "link": {**SOUTH, "heard": 61.0, "lost": 0}}
    replies = tuple(json.dumps(part).encode() for part in (busy, link))
    monkeypatch.setattr(Replies, "payloads", replies)
    monkeypatch.setattr(bccn, "Client", Replies)
    assert run(argparse.Namespace(socket=None, wait=1.0, count=1, json=False)) == 0
    title, row, carried, *rest = capsys.readouterr().out.splitlines()
    assert row.split()[-2] == "12", title
    assert carried.split("; ") == [
        "  carried 1 message out and 7 in",
        "5 came that import does not name",
        "no directed messages, so requests get no reply",
        "beside 1 other uplink of north",
    ]
    assert rest == [
        "  lost 9: of a newer uplink",
        f"  lost 3: {LOSSES['too_large']}",
        "  south has been silent for 1 min 1 s; 0 held, 0 lost; hosts: mon01, mon02",
    ]


def test_the_readme_shows_what_is_printed() -> None:
    (shown,) = [
        block.code for block in blocks("bccnd/uplink/README.md") if block.code.startswith("$ bccn links\n")
    ]
    uplink = {
        **NORTH, "uplink": "relay01/bccnd-uplink/77", "seconds": 182.0, "round_trip": 0.0004, "behind": 0,
        "waiting": 0, "repaired": 12, "lost": 0, "exported": 512, "imported": 2048,
        "links": [{**SOUTH, "heard": 0.4, "lost": 0}],
    }  # fmt: skip
    assert shown.splitlines()[1:] == lines([uplink])
