"""How ``bccn dump`` shows a datagram."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.commands.dissection import dissect
from bccnd.commands.dump_lines import Paint, details, hex_dump, line, missing, to_json
from bccnd.commands.sightings import Sighting
from bccnd.wire.bccn1 import Integrity

OPEN = Integrity()
PLAIN = Paint(on=False)
TIME = 1_795_235_711_396_667_000
SOUND = OPEN.seal(b"mon01/bccn/8168:1795235711396667:demo/greeting|hello, world, how are you today?")


def seen(datagram: bytes = SOUND, verdict: str = "ok", peer: str = "10.99.0.2:5400") -> Sighting:
    return Sighting(TIME, "in", verdict, peer, dissect(datagram, OPEN))


HEAD = "04:35:11.396667 in    ok        10.99.0.2:5400 mon01/bccn/8168 #1795235711396667 demo/greeting"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (None, f"{HEAD} - 88 B hello, world, how are you today?"),
        (130, f"{HEAD} - 88 B hello, world, how are you t…"),
        (112, f"{HEAD} - 88 B hello, world…".replace("667 in", " in", 1)),
        (
            100,
            "04:35:11.396 in    ok        10.99.0.2 mon01/bccn/8168 #…396667 demo/greeting - 88 B hello, world, …",
        ),
        (80, "04:35:11.396 in    ok        mon01/bccn/8168 #…396667 demo/greeting hello, worl…"),
        (60, "04:35:11.396 in    ok        demo/greeting hello, world, ho…"),
    ],
)
def test_columns_give_way_on_a_narrow_terminal(width: int | None, shown: str) -> None:
    assert line(seen(), width, PLAIN) == shown


@given(st.binary(max_size=200), st.integers(20, 200))
def test_a_line_is_printable_and_fits_if_it_can(payload: bytes, width: int) -> None:
    shown = line(seen(OPEN.seal(b"a:1:b|" + payload)), width, PLAIN)
    assert shown.isprintable()
    assert len(shown) <= max(width, 32)


def test_a_rejected_datagram_shows_its_verdict_and_parts() -> None:
    shown = line(seen(b"BCCN1[22]?:1:demo/greeting|hello", "length"), None, PLAIN)
    assert shown.endswith(
        "in    length    10.99.0.2:5400 ? #1 demo/greeting - 32 B hello (at byte 6: says 22, has 23)"
    )
    assert line(seen(b"\x1b[2J\xff", "magic"), None, PLAIN).endswith(" - 5 B \\e[2J\\xff")
    assert line(seen(b"BCCN2[3]abc", "version"), None, PLAIN).endswith(" - 11 B abc (BCCN2)")


def test_colours_can_be_off() -> None:
    painted = line(seen(b"BCCN1[22]?:1:demo/greeting|hello", "length"), None, Paint(on=True))
    assert "\x1b[31mlength   \x1b[0m" in painted
    assert "\x1b" not in line(seen(), None, PLAIN)


def test_colours_take_no_room() -> None:
    for width in (60, 80, 120):
        painted = line(seen(), width, Paint(on=True))
        for code in "0", "2", "31", "33":
            painted = painted.replace(f"\x1b[{code}m", "")
        assert painted == line(seen(), width, PLAIN)


def test_verbose_lines() -> None:
    assert details(seen()) == [
        "    envelope  BCCN1, 79 bytes, no sum",
        "    source    mon01/bccn/8168, number 1795235711396667, from 10.99.0.2:5400",
        "    channel   demo/greeting (plain)",
        "    payload   32 bytes: hello, world, how are you today?",
    ]
    assert details(seen(b"BCCN1[9:crc32=00000000]a:1:!|\xff\0", "length")) == [
        "    rejected  length at byte 6: says 9, has 8",
        "    envelope  BCCN1, says 9 bytes, has 8, crc32 00000000 (wrong)",
        "    source    a, number 1, from 10.99.0.2:5400",
        "    channel   ! (all)",
        "    payload   2 bytes, hex: ff00",
    ]
    assert details(seen(b"BCCN1[7:hmac=0123456789abcdef]a:1:b|c", "hmac")) == [
        "    rejected  hmac",
        "    envelope  BCCN1, 7 bytes, hmac 0123456789abcdef (not checked here)",
        "    source    a, number 1, from 10.99.0.2:5400",
        "    channel   b (plain)",
        "    payload   1 byte: c",
    ]
    assert details(seen(b"junk", "magic"))[1:] == ["    datagram  4 bytes: junk"]


REPAIR = b"b/bccnd/7/repair:5:!bccnd/repair|"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"last\na/x/1 42", "last a/x/1 #42"),
        (b"last\na/x/1 5-9\na/y/2 7", "last a/x/1 #5-9 (new); a/y/2 #7"),
        (b"resend\na/x/1 17 0-2,5\na/y/2 6 0", "resend a/x/1 #17-19 #22; a/y/2 #6"),
        (b"gone\na/x/1 17 0", "gone a/x/1 #17"),
        (b"plain\na/x/1\na/\x1b[2J/2", "plain a/x/1; a/\\e[2J/2"),
        (b"relayed\nb/x/1\nb/y/2", "relayed b/x/1; b/y/2"),
        (b"resend\na/x/1 17 2-1", "resend\\na/x/1 17 2-1"),
    ],
)
def test_what_daemons_say_about_loss_is_in_words(payload: bytes, words: str) -> None:
    sighting = seen(OPEN.seal(REPAIR + payload))
    assert line(sighting, None, PLAIN).endswith(f" !bccnd/repair - {len(sighting.parts.datagram)} B {words}")
    says = [row.removeprefix("    says      ") for row in details(sighting) if row.startswith("    says ")]
    assert "; ".join(says) in (words, "")
    assert json.loads(to_json(sighting, whole=False))["payload"] == payload.decode()


def test_the_same_text_on_another_channel_is_a_payload() -> None:
    assert line(seen(OPEN.seal(b"a:1:b|plain\na/x/1")), None, PLAIN).endswith(" plain\\na/x/1")


def test_a_repaired_datagram_is_no_rejected_one() -> None:
    repaired = seen(SOUND, "repaired")
    assert line(repaired, None, PLAIN) == line(seen(), None, PLAIN).replace(" ok       ", " repaired ")
    assert not [row for row in details(repaired) if "rejected" in row]


def test_hex_dump() -> None:
    assert hex_dump(b"BCCN1[1]\xff\n0123456789") == [
        "    0000  42 43 43 4e 31 5b 31 5d ff 0a 30 31 32 33 34 35  BCCN1[1]..012345",
        "    0010  36 37 38 39                                      6789",
    ]


def test_json_object() -> None:
    assert json.loads(to_json(seen(OPEN.seal(b"a:18446744073709551615:!b|\xff")), whole=True)) == {
        "time": "2026-11-21T04:35:11.396667Z", "direction": "in", "verdict": "ok", "peer": "10.99.0.2:5400",
        "size": 36, "magic": "BCCN1", "length": 27, "src": "a", "seq": 18446744073709551615, "channel": "!b",
        "mode": "directed", "payload_hex": "ff",
        "datagram_hex": b"BCCN1[27]a:18446744073709551615:!b|\xff".hex(),
    }  # fmt: skip
    broken = json.loads(to_json(seen(b"BCCN1[9:crc32=00]a:x:b|c", "length"), whole=False))
    assert (broken["seq"], broken["sum"], broken["payload"]) == ("x", "00", "c")
    assert broken["detail"] == "at byte 6: says 9, has 7"
    assert json.loads(to_json(seen(b"junk", "magic"), whole=False))["datagram_hex"] == b"junk".hex()


def test_missing_datagrams_are_a_line() -> None:
    assert missing(1, as_json=False) == "--- 1 datagram missing here: they came faster than they were read"
    assert json.loads(missing(12, as_json=True)) == {"missing": 12}
