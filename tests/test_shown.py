"""Everything that one client, or a source of the segment, makes the daemon show to others: bounded, and nothing in it
that a terminal obeys. Whoever adds something that is shown adds it to ``SHOWN``.
"""

import io
import json
from collections.abc import Callable

import pytest

from bccnd import report
from bccnd.process import logs
from bccnd.relay.heartbeat import TEXT_LIMIT
from bccnd.relay.identity import PROGRAM_LIMIT
from bccnd.relay.presence import VERSION_LIMIT
from bccnd.relay.rights import REASON_LIMIT, AccessList, Grant
from bccnd.wire.bccn1 import SRC_LIMIT
from tests.relay.fakes import Bus, datagram

# All that is worth escaping, in the least of places first: ESC, BEL, DEL, C1 as a byte and in UTF-8, a bidi override.
HOSTILE = b"\x1b]0;x\x07\x7f\x9b\xc2\x9b\xe2\x80\xae"
# What may stand in a source or channel, and is worth escaping.
NASTY = b"\x1b[2J\x07\x7f\x01"
# An escape has up to six characters for one, as in JSON.
ESCAPE = 6


def client_row() -> list[bytes]:
    bus = Bus()
    bus.connect(program=HOSTILE * 10)
    return bus.connect().ask(b"CMSG clients")


def client_program() -> list[bytes]:
    (answer,) = client_row()
    return [json.loads(answer.partition(b"\0")[2])["clients"][0]["program"].encode()]


def client_name() -> list[bytes]:
    bus = Bus()
    client = bus.connect(program=HOSTILE * 10, pid=7)
    name = client.name
    for wanted in (NASTY, HOSTILE, b"x" * 128):
        client.say(b"CMSG name\0%b/%b" % (name, wanted))
        assert client.name == name
    return [name]


def held_names() -> list[bytes]:
    bus = Bus()
    reader = bus.connect(b"SUB a", b"CMSG queue\0policy=block")
    publishers = [bus.connect(program=HOSTILE, pid=pid) for pid in range(50, 60)]
    reader.stop_reading()
    for publisher in publishers:
        publisher.say(b"MSG a\0x")
    return [json.dumps(report.queue_state(reader.session)).encode(), *bus.connect().ask(b"CMSG clients")]


def source_row() -> list[bytes]:
    bus = Bus()
    for number, src in enumerate((b"there/x/" + NASTY, NASTY * 16)):
        bus.hear(datagram(src, 5, b"heartbeat/" + src, b"bccnd/" + HOSTILE * 20))
        bus.hear(datagram(src, 6, NASTY, HOSTILE), peer=b"10.0.0.%d:5400" % number)
    return bus.connect().ask(b"CMSG sources")


def source_version() -> list[bytes]:
    (answer,) = source_row()
    rows = json.loads(answer.partition(b"\0")[2])["sources"]
    return [(row["version"] or "").encode() for row in rows]


def notices_of_clients() -> list[bytes]:
    bus = Bus()
    watcher = bus.connect(b"SUB local/presence/>")
    bus.connect(program=HOSTILE * 10).leave()
    return watcher.heard()


def notices_of_sources() -> list[bytes]:
    bus = Bus()
    watcher = bus.connect(b"SUB local/presence/>", b"CMSG format\0lines")
    for src in (b"there/x/" + NASTY, NASTY * 16):
        bus.hear(datagram(src, 5, b"heartbeat/" + src, b"bccnd/" + HOSTILE * 20))
    return watcher.heard()


def heartbeats() -> list[bytes]:
    bus = Bus()
    watcher = bus.connect(b"SUB heartbeat/>", b"CMSG format\0lines")
    client = bus.connect()
    assert b"bad-value" in client.ask(b"CMSG heartbeat\x005 " + b"x" * (TEXT_LIMIT + 1))[0]
    client.say(b"CMSG heartbeat\x005 " + HOSTILE * 10)
    bus.tick(0)
    return watcher.heard()


def lines() -> list[bytes]:
    bus = Bus()
    reader = bus.connect(b"SUB >", b"CMSG format\0lines")
    bus.connect().say(b"MSG %b\0%b" % (NASTY, HOSTILE), b"MSG local/x\0" + HOSTILE * 3000)
    return [*reader.heard(), *reader.ask(b"UNSUB " + NASTY, b"CMSG ping " + HOSTILE, b"MSG " + NASTY)]


def logged_refusals() -> list[bytes]:
    bus = Bus()
    bus.reconfigure(access=AccessList([Grant()]))
    client = bus.connect(program=HOSTILE * 10)
    client.say(b"MSG %b\0" % (NASTY * 100), b"SUB " + NASTY * 100, b"CMSG name\0there/x/1")
    fields, _ = bus.relay.state.refusals.take()
    assert len(fields) == 3
    return [str(value).encode() for line in fields for value in line.values()]


def logged_clients() -> list[bytes]:
    bus = Bus()
    session = bus.connect(program=HOSTILE * 10).session
    return [str(value).encode() for value in report._identity(session).values()]


# What is shown: how to have it shown, and how long it is at most.
SHOWN: list[tuple[Callable[[], list[bytes]], int]] = [
    (client_name, SRC_LIMIT),
    (client_program, 4 * PROGRAM_LIMIT),
    (client_row, 2 * (1024 + 4 * PROGRAM_LIMIT)),
    (held_names, 12 * 1024 + 5 * SRC_LIMIT),
    (source_row, 2 * (512 + ESCAPE * (SRC_LIMIT + VERSION_LIMIT))),
    (source_version, 4 * VERSION_LIMIT),
    (notices_of_clients, 512 + SRC_LIMIT + 4 * PROGRAM_LIMIT),
    (notices_of_sources, 512 + 4 * SRC_LIMIT + 2 * ESCAPE * (SRC_LIMIT + VERSION_LIMIT)),
    (heartbeats, 16 + SRC_LIMIT + 4 * TEXT_LIMIT),
    (lines, 32 << 10),
    (logged_refusals, 4 * REASON_LIMIT),
    (logged_clients, 4 * PROGRAM_LIMIT),
]


@pytest.mark.parametrize(("show", "limit"), SHOWN, ids=lambda value: getattr(value, "__name__", ""))
def test_nothing_shown_is_long_or_obeyed(show: Callable[[], list[bytes]], limit: int) -> None:
    shown = show()
    assert shown
    for packet in shown:
        text = packet.removesuffix(b"\n").replace(b"\0", b" ", 1).decode()
        assert text.isprintable(), text
        assert len(text) <= limit


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_log_line_is_one_line(form: logs.Format, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(format=form)
    bus = Bus()
    report.client_left(bus.connect(program=HOSTILE).session, "slow", {})
    written = io.StringIO(capfd.readouterr().err).readlines()
    assert len(written) == 1
    assert written[0].rstrip("\n").isprintable()
