"""Recorded files, read back in the span and by the pattern, whatever became of them."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bccnd.mux import limits
from bccnd.mux import record as record_module
from bccnd.mux.portion import NoRecordError, key_of, time_of
from bccnd.mux.record import Record
from bccnd.mux.span import Span
from bccnd.recorder.files import Limits, Recording
from bccnd.recorder.folders import recorded
from bccnd.recorder.layout import DAY_NS, SCHEMA, Mark

NOON = 20_000 * DAY_NS + DAY_NS // 2


def rows(*times: int, **others: Any) -> pa.RecordBatch:
    """Messages that a client of this host sent, numbered by their times."""
    values = {
        "direction": "out", "verdict": "ok", "mode": "none", "src": "here/a", "channel": "a/x", "payload": b"hello",
        "size": 40, **others,
    }  # fmt: skip
    columns = {name: [value] * len(times) for name, value in values.items()}
    columns |= {"time_ns": [NOON + each for each in times], "seq": list(times)}
    arrays = [pa.array(columns.get(field.name, [None] * len(times)), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def record(folder: Path, *files: tuple[int, int, list[pa.RecordBatch]], **limits_: Any) -> Recording:
    """Files that open and close at these times after noon, with these rows."""
    recording = recorded(folder, "here", Limits(**limits_))
    for opened, closed, batches in files:
        recording.open(NOON + opened, 0.0)
        for batch in batches:
            recording.write(batch, 0.0)
        recording.close(NOON + closed, 0.0)
    return recording


def read(folder: Path, since: int, until: int | None = None, pattern: str = ">") -> tuple[list[Any], Record]:
    """Times after noon of the messages, and in words what is missing; and the record, to read on."""
    found = Record(folder, "here", Span(NOON + since, until if until is None else NOON + until, pattern))
    return read_on(found), found


def read_on(found: Record) -> list[Any]:
    seen: list[Any] = []
    while not (portion := found.next()).is_last:
        seen += [_shown(packet) for _, packet in portion.items]
        assert [key for key, packet in portion.items if key] == [
            key_of(packet) for key, packet in portion.items if key
        ]
    return seen


def _shown(packet: bytes) -> Any:
    if packet.startswith(b"RECV "):
        return time_of(packet) - NOON
    head, _, said = packet.partition(b"\0")
    assert head == b"CMSG unrecorded"
    since, until, why = said.decode().split(" ", 2)
    return int(since) - NOON, int(until) - NOON, why


def whole(folder: Path) -> list[Path]:
    return sorted(folder.glob("date=*/host=here/[0-9]*.parquet"), key=lambda path: path.name)


def test_a_span_of_several_files_comes_in_order(tmp_path: Path) -> None:
    record(tmp_path, *[(at, at + 10, [rows(at + 1, at + 5), rows(at + 9)]) for at in range(0, 50, 10)]).end()
    assert read(tmp_path, 0)[0] == [at + more for at in range(0, 50, 10) for more in (1, 5, 9)]
    assert read(tmp_path, 15, 31)[0] == [15, 19, 21, 25, 29, 31]
    assert read(tmp_path, 16, 18)[0] == []
    assert read(tmp_path, 19, 19)[0] == [19]
    _, found = read(tmp_path, 15, 31)
    assert found.next().reached_ns == NOON + 31
    _, found = read(tmp_path, 15)
    assert found.next().reached_ns == NOON + 50


def test_a_span_may_end_where_a_file_begins(tmp_path: Path) -> None:
    record(tmp_path, (0, 10, [rows(9)]), (10, 20, [rows(10, 11)])).end()
    assert read(tmp_path, 9, 10)[0] == [9, 10]


def test_a_message_has_the_form_of_the_format_full(tmp_path: Path) -> None:
    record(
        tmp_path, (0, 9, [rows(1), rows(2, direction="in", verdict="repaired", peer="10.0.0.2:5400")])
    ).end()
    found = Record(tmp_path, "here", Span(NOON, None, "a/*"))
    found.next()
    assert [packet for _, packet in found.next().items] == [
        b"RECV local %d ok\0BCCN1[18]here/a:1:a/x|hello" % (NOON + 1),
        b"RECV 10.0.0.2:5400 %d ok\0BCCN1[18]here/a:2:a/x|hello" % (NOON + 2),
    ]


def test_only_what_a_subscriber_would_have_got_is_there(tmp_path: Path) -> None:
    batches = [
        rows(1), rows(2, channel="b"), rows(3, channel="!here/a"), rows(4, verdict="duplicate", direction="in"),
        rows(5, verdict="own", direction="echo"), rows(6, direction="local", channel="local/x"),
        rows(7, verdict="magic", direction="in", src=None, channel=None), rows(8, direction="in"),
        rows(9, channel="a"),
    ]  # fmt: skip
    record(tmp_path, (0, 20, batches)).end()
    assert read(tmp_path, 0)[0] == [1, 2, 6, 8, 9]
    assert read(tmp_path, 0, pattern="a/>")[0] == [1, 8]
    assert read(tmp_path, 0, pattern="local/*")[0] == [6]
    assert read(tmp_path, 0, pattern="c")[0] == []


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    recording = record(tmp_path, (10, 20, [rows(11)]))
    recording.open(NOON + 30, 0.0)
    recording.mark(Mark.UNRECORDED, NOON + 31, 0.0, size=7)
    recording.write(rows(32, payload=None), 0.0)
    recording.close(NOON + 40, 0.0)
    recording.end()
    assert read(tmp_path, 0, 35)[0] == [
        (0, 10, "nothing was recorded"),
        11,
        (20, 30, "nothing was recorded"),
        (31, 31, "the recorder lost 7 messages, of any channel"),
        (32, 32, "1 messages were recorded without their payloads"),
    ]
    assert read(tmp_path, 22, 26)[0] == [(22, 26, "nothing was recorded")]


@pytest.mark.parametrize("harm", ["cut", "page", "footer", "empty"])
def test_a_damaged_file_is_left_out_and_said(tmp_path: Path, harm: str) -> None:
    record(tmp_path, (0, 10, [rows(1)]), (10, 20, [rows(*range(11, 19))]), (20, 30, [rows(21)])).end()
    path = whole(tmp_path)[1]
    data = bytearray(path.read_bytes())
    match harm:
        case "cut":
            data = data[: len(data) // 2]
        case "page":
            data[4:600] = bytes(596)
        case "footer":
            data[-200:-8] = b"\xff" * 192
        case "empty":
            data = bytearray()
    path.write_bytes(data)
    seen = read(tmp_path, 0)[0]
    why = f"{path.name} {'is damaged' if harm == 'page' else 'cannot be read'}"
    assert seen == [1, (10, 20, why), 21]


def test_a_file_that_goes_before_it_is_read_is_said(tmp_path: Path) -> None:
    record(tmp_path, *[(at, at + 10, [rows(at + 1)]) for at in range(0, 40, 10)]).end()
    found = Record(tmp_path, "here", Span(NOON, None, ">"))
    found.next()  # the first file is open
    for path in whole(tmp_path)[:2]:
        path.unlink()
    assert read_on(found) == [1, (10, 20, "a file was removed before it was read"), 21, 31]


def test_files_that_appear_later_are_read_on(tmp_path: Path) -> None:
    recording = record(tmp_path, (0, 10, [rows(1)]))
    seen, found = read(tmp_path, 0)
    assert seen == [1]
    recording.open(NOON + 10, 0.0)
    recording.write(rows(11), 0.0)
    portion = found.next()
    assert (portion.items, portion.is_last, portion.is_written) == ([], True, True)
    recording.close(NOON + 20, 0.0)
    assert read_on(found) == [11]
    portion = found.next()
    assert (portion.is_last, portion.is_written, portion.reached_ns) == (True, False, NOON + 20)
    recording.end()


def test_a_record_goes_on_over_midnight(tmp_path: Path) -> None:
    record(tmp_path, (0, 10, [rows(1)]), (DAY_NS, DAY_NS + 10, [rows(DAY_NS + 1)])).end()
    assert read(tmp_path, 0)[0] == [1, (10, DAY_NS, "nothing was recorded"), DAY_NS + 1]
    assert read(tmp_path, DAY_NS + 1)[0] == [DAY_NS + 1]


def test_a_portion_is_bounded_and_files_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PORTION_ROWS", 10)
    many = rows(*range(1, 101))
    recording = record(tmp_path, *[(at, at + 200, [many]) for at in range(0, 10_000, 200)], group_bytes=1)
    recording.end()
    for path in whole(tmp_path)[:-2]:
        path.write_bytes(b"nobody opens this")
    found = Record(tmp_path, "here", Span(NOON + 9_800, None, ">"))
    sizes = []
    while not (portion := found.next()).is_last:
        sizes.append(len(portion.items))
    assert max(sizes) <= 10
    long = record(tmp_path / "long", (0, 100, [rows(1, 2, 3, payload=bytes(limits.PORTION_BYTES))]))
    long.end()
    found = Record(tmp_path / "long", "here", Span(NOON, None, ">"))
    sizes = []
    while not (portion := found.next()).is_last:
        sizes.append(len(portion.items))
    assert [size for size in sizes if size] == [1, 1, 1]


def test_what_matches_nothing_gives_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PORTION_ROWS", 1)
    record(tmp_path, (0, 9_000, [rows(*range(1, 101)), rows(101, channel="b")])).end()
    found = Record(tmp_path, "here", Span(NOON, None, "b"))
    portions = []
    while not (portion := found.next()).is_last:
        portions.append(len(portion.items))
    assert portions == [0, *[0] * (100 // limits.EMPTY_PORTIONS), 1]


def test_without_a_record_the_reason_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoRecordError, match=r"\Aunavailable no record in .*: No such file or directory\Z"):
        read(tmp_path / "none", 0)
    with pytest.raises(NoRecordError, match=r"\Aunavailable there is no record of here in .*\Z"):
        read(tmp_path, 0)


def test_a_record_may_be_closed_at_any_time(tmp_path: Path) -> None:
    record(tmp_path, (0, 10, [rows(1)])).end()
    Record(tmp_path, "here", Span(NOON, None, ">")).close()
    found = Record(tmp_path, "here", Span(NOON, None, ">"))
    found.next()
    found.close()


def test_a_footer_that_lies_ends_nobody(tmp_path: Path) -> None:
    """Whatever a byte of it is turned into. Arrow aborts the process when it is asked for some of what these say."""
    record(tmp_path, (0, 10, [rows(1)]), (10, 20, [rows(11)])).end()
    path = whole(tmp_path)[0]
    sound = path.read_bytes()
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    for at in range(footer, len(sound), 9):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        seen = read(tmp_path, 0)[0]
        assert seen[-1] == 11, (at, seen)


def test_names_that_no_recorder_gives_are_passed_over(tmp_path: Path) -> None:
    """A FIFO that nobody writes to is one of them: the thread would wait for ever."""
    record(tmp_path, (0, 10, [rows(1)]), (20, 30, [rows(21)])).end()
    folder = whole(tmp_path)[0].parent
    for stem in ("²", "9" * 200, str(2**63), "-1", "", "1_0"):
        (folder / f"{stem}-0.parquet").touch()
    fifo = f"{NOON + 10}-0.parquet"
    os.mkfifo(folder / fifo)
    (folder / f"{NOON + 11}-0.parquet").mkdir()
    (tmp_path / "date=soon").mkdir()
    assert read(tmp_path, 0)[0] == [1, (10, 20, f"{NOON + 11}-0.parquet cannot be read"), 21]


def test_a_row_group_that_no_recorder_writes_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "GROUP_ROWS", 4)
    record(tmp_path, (0, 10, [rows(1)]), (10, 20, [rows(*range(11, 19))]), (20, 30, [rows(21)])).end()
    why = f"{whole(tmp_path)[1].name} cannot be read"
    assert read(tmp_path, 0)[0] == [1, (10, 20, why), 21]


def test_each_day_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = 6
    record(tmp_path, *[(at * DAY_NS, at * DAY_NS + 10, [rows(at * DAY_NS + 1)]) for at in range(days)]).end()
    looked: list[str] = []
    names = record_module._names
    monkeypatch.setattr(record_module, "_names", lambda folder: looked.append(folder) or names(folder))
    seen, _ = read(tmp_path, 0)
    assert len(seen) == 2 * days - 1
    assert len(looked) <= 2 * days + 1
