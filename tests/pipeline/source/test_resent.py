"""``bccnd/pipeline/source/resent.py``: what a capture shows of repair."""

from pathlib import Path

import pytest

from bccnd.pipeline.source import resent
from bccnd.pipeline.source.captures import CaptureOptions, rows_of
from bccnd.pipeline.source.resent import Resent
from bccnd.wire.pcap import Direction, Packet, header
from bccnd.wire.udp import UdpDatagram
from bccnd.wire.verdict import Verdict
from tests.plain_bccn import datagram

START = 1_700_000_000 * 10**9
MS = 10**6
LATER = 2000


def packet(ms: float, src: str, seq: int, chan: str = "c", payload: bytes = b"", out: bool = False) -> bytes:
    data = UdpDatagram("10.0.0.7", 5400, "10.0.0.255", 5400, datagram(src, seq, chan, payload)).serialize()
    direction = Direction.OUT if out else Direction.IN
    return Packet(START + round(ms * MS), data, len(data), direction=direction).serialize()


def asking(ms: float, host: str, numbers: bytes, *, out: bool = False, src: str = "") -> bytes:
    payload = b"resend\na/x/1 " + numbers
    return packet(ms, src or f"{host}/bccnd/7/repair", round(ms), "!bccnd/repair", payload, out)


def judged(folder: Path, *packets: bytes) -> list[tuple[int, str, str]]:
    """(seq, direction, verdict) of what a/x/1 sent, in a capture of host c."""
    path = folder / "c.pcapng"
    path.write_bytes(header("test", "eth0") + b"".join([packet(0, "a/x/1", 0), *packets]))
    rows = [row for row in rows_of(str(path), CaptureOptions((str(path),))) if row[7] == "a/x/1"]
    return [(row[8], row[3], str(row[4])) for row in rows[1:]]


def test_message_asked_for_was_repaired_if_it_had_not_come(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        packet(LATER, "a/x/1", 8),
        packet(LATER + 1, "a/x/1", 11),
        asking(LATER + 5, "c", b"9 0", out=True),
        asking(LATER + 6, "b", b"8 0,2"),  # b lacks 8 as well, and 10, which c has not got either
        packet(LATER + 7, "a/x/1", 9),
        packet(LATER + 8, "a/x/1", 8),
        packet(LATER + 9, "a/x/1", 10),
        packet(LATER + 10, "a/x/1", 9),  # for somebody else
        packet(LATER + 2000, "a/x/1", 11),  # which nobody asked for
    )
    assert found == [
        (8, "in", "ok"), (11, "in", "ok"), (9, "in", "repaired"), (8, "in", "duplicate"), (10, "in", "repaired"),
        (9, "in", "duplicate"), (11, "in", "ok"),
    ]  # fmt: skip


def test_what_a_host_sent_again_is_an_echo(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        packet(LATER, "a/x/1", 8, out=True),
        asking(LATER + 5, "b", b"8 0-1"),
        packet(LATER + 6, "a/x/1", 8, out=True),
        packet(LATER + 7, "a/x/1", 9, out=True),
    )
    assert found == [(8, "out", "ok"), (8, "echo", "own"), (9, "out", "ok")]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asking(LATER, "c", b"9 0", src="c/program/7"), "no daemon asks"),
        (asking(LATER, "c", b"9 0 0"), "it is malformed"),
        (asking(LATER, "c", b"10 0"), "it is for another"),
        (packet(LATER, "c/bccnd/7/repair", 1, "!bccnd/repair", b"gone\na/x/1 9 0"), "it is no request"),
    ],
)
def test_message_that_was_not_asked_for_is_what_it_was(tmp_path: Path, request_: bytes, why: str) -> None:
    assert judged(tmp_path, request_, packet(LATER + 20, "a/x/1", 9)) == [(9, "in", "ok")], why


def test_what_may_have_come_before_the_capture_is_not_judged(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        asking(1, "c", b"0 0-1"),
        packet(2, "a/x/1", 0),
        packet(3, "a/x/1", 1),
        packet(4, "a/x/1", 1),
    )
    assert found == [(0, "in", "ok"), (1, "in", "repaired"), (1, "in", "duplicate")]


def test_message_that_comes_much_later_was_not_asked_for(tmp_path: Path) -> None:
    assert judged(tmp_path, asking(LATER, "c", b"9 0"), packet(LATER + 1001, "a/x/1", 9)) == [(9, "in", "ok")]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resent, "REMEMBERED", 10)
    monkeypatch.setattr(resent, "RANGE_LIMIT", 5)
    one = Resent()

    def judge(seq: int, chan: str = "c", payload: bytes = b"", src: str = "a/x/1") -> Verdict:
        return one.judge(10**10, "in", ("none", src, seq, chan, payload))

    for number in range(100):
        assert judge(number) is Verdict.OK
    judge(1, "!bccnd/repair", b"resend\na/x/1 0 90-1000000", "c/bccnd/7/repair")
    found = [judge(number) for number in (90, 95, 99, 94)]
    # That 90 came is forgotten by now, and of a range the first five are looked at.
    assert found == [Verdict.REPAIRED, Verdict.OK, Verdict.OK, Verdict.DUPLICATE]
    assert len(one._seen) == len(one._asked) + 5 == 10
