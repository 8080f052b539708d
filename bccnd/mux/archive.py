"""What replays share: the recorder's folder, a thread that reads it, and the number of replays of each user.

The most expensive request reads everything and sends nothing, so that no credit bounds it. Turns bound it instead.

Rules
- One thread reads for all. So all replays together take one core at most, and none of the loop's time.
- Each call reads one portion. Users take turns, and the replays of a user among themselves.
- A replay holds one portion: it asks for the next one when its peer has taken that.
- ``limits.REPLAYS`` and ``USER_REPLAYS`` bound how many there are.
- The interval at which threads switch is that of the whole process. The door has only this thread and the loop's, so
  that it matters only here.
- A door that stops waits for the portion that is being read, which is bounded: if Python exits while a thread is
  inside Arrow, that could abort the process.
"""

import sys
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bccnd.mux import limits
from bccnd.mux.portion import NoRecordError, Portion
from bccnd.mux.span import Span

if TYPE_CHECKING:
    from bccnd.mux.record import Record

NONE = b"unavailable this door has no recordings: its setting recorded names no folder"
TOO_MANY = b"limit: the door has too many replays"
TOO_MANY_OF_USER = b"limit: this user has too many replays"
FAULT = b"unavailable the door cannot read its recordings"

# How long the thread runs before it makes way for the loop; the usual 5 ms are longer than the loop's turns.
SWITCH_SECONDS = 0.0005


class Archive:
    """``folder``: where the recorder of this host writes, or None; a reload may set it. ``replays``: how many run."""

    def __init__(self, loop: AbstractEventLoop, folder: Path | None) -> None:
        self.folder = folder
        self.replays = 0
        self._loop = loop
        self._of_user: Counter[int] = Counter()
        self._waiting: OrderedDict[int, deque[Loan]] = OrderedDict()  # by user: those that wait for a portion
        self._thread: ThreadPoolExecutor | None = None
        self._is_reading = False

    def lend(self, uid: int) -> "Loan | bytes":
        """A loan for one replay, or the reason why there is none."""
        if self.folder is None:
            return NONE
        if self.replays >= limits.REPLAYS:
            return TOO_MANY
        if self._of_user[uid] >= limits.USER_REPLAYS:
            return TOO_MANY_OF_USER
        self.replays += 1
        self._of_user[uid] += 1
        return Loan(self, uid, self.folder)

    def close(self) -> None:
        self._waiting.clear()
        if self._thread:
            self._thread.shutdown(wait=False, cancel_futures=True)

    # --- for loans ---

    def later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        return self._loop.call_later(seconds, callback)

    def wait(self, loan: "Loan") -> None:
        """Put the loan in line for its turn."""
        self._waiting.setdefault(loan.uid, deque()).append(loan)
        self._turn()

    def give_back(self, loan: "Loan") -> bool:
        """Take a loan back. Whether it was still waiting for its turn."""
        is_waiting = loan in (waiting := self._waiting.get(loan.uid, deque()))
        if is_waiting:
            waiting.remove(loan)
            if not waiting:
                del self._waiting[loan.uid]
        self.replays -= 1
        self._of_user[loan.uid] -= 1
        if not self._of_user[loan.uid]:
            del self._of_user[loan.uid]
        return is_waiting

    # --- turns ---

    def _turn(self) -> None:
        if not self._waiting or self._is_reading:
            return
        uid, loans = self._waiting.popitem(last=False)
        loan = loans.popleft()
        if loans:
            self._waiting[uid] = loans
        self._is_reading = True
        if self._thread is None:
            sys.setswitchinterval(SWITCH_SECONDS)
            self._thread = ThreadPoolExecutor(1, "replay")
        reading = self._thread.submit(loan.read)
        reading.add_done_callback(lambda _: self._report(loan, reading))

    def _report(self, loan: "Loan", reading: "Future[Portion]") -> None:
        with suppress(RuntimeError):  # the loop is closed: the door has stopped
            self._loop.call_soon_threadsafe(self._has_read, loan, reading)

    def _has_read(self, loan: "Loan", reading: "Future[Portion]") -> None:
        self._is_reading = False
        try:
            found: Portion | bytes = reading.result()
        except NoRecordError as error:
            found = str(error).encode()
        except ImportError as error:
            found = f"unavailable the door cannot load pyarrow ({error}): pip install 'bccnd[record]' there".encode()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this replay
            self._loop.call_exception_handler({"message": "a replay has failed", "exception": error})
            found = FAULT
        loan.has_read(found)
        self._turn()


class Loan:
    """The access of one replay to the record. Call ``begin`` first, and ``close`` once, at the end."""

    def __init__(self, archive: Archive, uid: int, folder: Path) -> None:
        self.uid = uid
        self.is_closed = False
        self._archive = archive
        self._folder = folder
        self._asked: tuple[str, Span] | None = None
        self._record: Record | None = None
        self._taker: Callable[[Portion | bytes], None] | None = None
        self._timer: TimerHandle | None = None

    @staticmethod
    def now() -> int:
        """Unix ns."""
        return time.time_ns()

    def begin(self, host: str, span: Span) -> None:
        self._asked = host, span

    def next(self, taker: Callable[[Portion | bytes], None]) -> None:
        """Have ``taker`` called later with the next portion, or with the reason why there is none."""
        self._taker = taker
        self._archive.wait(self)

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Have ``callback`` called later, unless the loan is closed by then. One such call at a time."""
        self._timer = self._archive.later(seconds, callback)

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        is_idle = self._archive.give_back(self) or self._taker is None  # else the thread may be in the record
        if self._timer:
            self._timer.cancel()
        if is_idle and self._record:
            self._record.close()

    # --- for the archive ---

    def read(self) -> Portion:
        """Runs in the thread."""
        if self._record is None:
            from bccnd.mux.record import Record  # pyarrow takes a quarter of a second, where it is installed

            assert self._asked  # noqa: S101 - begin comes first
            self._record = Record(self._folder, *self._asked)
        return self._record.next()

    def has_read(self, found: Portion | bytes) -> None:
        taker, self._taker = self._taker, None
        if not self.is_closed:
            assert taker  # noqa: S101 - only a loan that was asked reads
            taker(found)
        elif self._record:
            self._record.close()
