"""Who reads when: users take turns at one thread, and each has so many replays."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

from bccnd.mux import archive, limits
from bccnd.mux.archive import NONE, TOO_MANY, TOO_MANY_OF_USER, Archive, Loan
from bccnd.mux.portion import Portion
from bccnd.mux.record import Record
from bccnd.mux.span import Span
from tests.mux.in_process import until
from tests.mux.test_record import NOON, record, rows
from tests.packet_client import PATIENCE


def lent(of: Archive, uid: int) -> Loan:
    loan = of.lend(uid)
    assert isinstance(loan, Loan)
    return loan


async def test_a_portion_comes_and_an_ended_replay_hears_no_more(tmp_path: Path) -> None:
    record(tmp_path, (0, 10, [rows(1)])).end()
    held = Archive(asyncio.get_running_loop(), tmp_path)
    loan, other = lent(held, 1), lent(held, 1)
    found: list[Portion | bytes] = []
    for each in (loan, other):
        each.begin("here", Span(NOON, None, ">"))
        each.next(found.append)
    other.close()
    portion = await until(lambda: found and found[0])
    assert isinstance(portion, Portion)
    loan.next(found.append)
    message = await until(lambda: found[1:] and found[1])
    assert isinstance(message, Portion)
    assert len(message.items) == 1
    loan.next(found.append)
    loan.close()  # while the thread may be in it
    other.close()
    assert held.replays == 0
    held.close()
    assert len(found) == 2


async def test_what_an_ended_replay_had_open_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, (0, 10, [rows(1)])).end()
    closed: list[Record] = []
    monkeypatch.setattr(Record, "close", lambda self: closed.append(self))
    held = Archive(asyncio.get_running_loop(), tmp_path)
    found: list[Portion | bytes] = []
    idle, reading, waiting = (lent(held, 1) for _ in range(3))
    for count, loan in enumerate((idle, reading, waiting), 1):
        loan.begin("here", Span(NOON, None, ">"))
        loan.next(found.append)
        await until(lambda count=count: len(found) == count)
    idle.close()
    assert len(closed) == 1
    reading.next(found.append)
    waiting.next(found.append)
    waiting.close()
    assert len(closed) == 2
    reading.close()
    assert len(closed) == 2, "the thread may be in it"
    await until(lambda: len(closed) == 3)
    assert len(found) == 3
    held.close()


async def test_an_ended_replay_is_not_called_later(tmp_path: Path) -> None:
    held = Archive(asyncio.get_running_loop(), tmp_path)
    loan, called, over = lent(held, 1), asyncio.Event(), asyncio.Event()
    loan.after(0.0, called.set)
    held.later(0.0, over.set)
    loan.close()
    await over.wait()
    assert not called.is_set()


def test_a_door_that_has_stopped_hears_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    held = Archive(loop, tmp_path)
    loan = lent(held, 1)
    loan.begin("here", Span(NOON, None, ">"))
    loop.close()
    loan.next(lambda _: None)
    assert held._thread
    held._thread.shutdown()
    assert caplog.messages == []


async def test_a_user_has_so_many_and_the_door_so_many(tmp_path: Path) -> None:
    held = Archive(asyncio.get_running_loop(), tmp_path)
    mine = [lent(held, 1) for _ in range(limits.USER_REPLAYS)]
    assert held.lend(1) == TOO_MANY_OF_USER
    mine[0].close()
    mine[0].close()
    mine.append(lent(held, 1))
    assert held.lend(1) == TOO_MANY_OF_USER
    others = 2
    while held.replays < limits.REPLAYS:
        mine.append(lent(held, others))
        others += 1
    assert held.lend(0) == TOO_MANY
    for loan in mine:
        loan.close()
    assert held.replays == 0
    held.folder = None
    assert held.lend(1) == NONE


async def test_who_leaves_while_it_waits_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    going_on = Event()

    def reads(loan: Loan) -> Portion:
        going_on.wait(PATIENCE)
        read.append(loan.uid)
        return Portion()

    monkeypatch.setattr(Loan, "read", reads)
    held = Archive(asyncio.get_running_loop(), tmp_path)
    taken: list[object] = []
    first, leaving, staying, alone, last = (lent(held, uid) for uid in (1, 2, 2, 3, 4))
    for loan in (first, leaving, staying, alone, last):
        loan.next(taken.append)
    leaving.close()
    alone.close()
    for _ in range(2 * limits.USER_REPLAYS):  # others may come in its place
        another = lent(held, 2)
        another.next(taken.append)
        another.close()
    going_on.set()
    await until(lambda: len(taken) == 3)
    held.close()
    assert read == [1, 2, 4]


async def test_users_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def reads(loan: Loan) -> Portion:
        read.append(loan.uid)
        return Portion()

    monkeypatch.setattr(Loan, "read", reads)
    held = Archive(asyncio.get_running_loop(), tmp_path)
    taken: list[object] = []
    for uid in (1, 1, 1, 2, 3, 3):
        lent(held, uid).next(taken.append)
    await until(lambda: len(taken) == 6)
    assert read == [1, 1, 2, 3, 1, 3], "the first had begun before the others came"
    held.close()


async def test_what_goes_wrong_is_a_reason_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    faults: list[object] = []
    loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
    held = Archive(loop, tmp_path)
    found: list[Portion | bytes] = []
    loan = lent(held, 1)
    loan.begin("here", Span(NOON, None, ">"))
    loan.next(found.append)
    reason = await until(lambda: found and found.pop())
    assert reason == f"unavailable there is no record of here in {tmp_path}".encode()
    for error, said in (
        (ImportError("No module named 'pyarrow'"), b"unavailable the door cannot load pyarrow (No module"),
        (AssertionError("a fault"), archive.FAULT),
    ):

        def fails(_: Loan, error: Exception = error) -> Portion:
            raise error

        monkeypatch.setattr(Loan, "read", fails)
        loan.next(found.append)
        reason = await until(lambda: found and found.pop())
        assert isinstance(reason, bytes)
        assert reason.startswith(said)
    assert [type(each) for each in faults] == [AssertionError]
    held.close()
