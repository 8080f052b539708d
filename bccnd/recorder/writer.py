"""The thread that turns the blocks of the tap into files.

Rules
- Everything comes through the inbox, in order. ``until`` is the time up to which the record is complete.
- Where messages are missing, the writer marks how many. If more than GAP_NS has passed there, it closes the record
  before the gap and opens it after, so that the time between does not count as recorded.
- Where the clock was set back by more than GAP_NS, the record is closed, and opened at the new time.
- What the daemon says of itself, what is said of links, and how a connection ended, are marks at the place where they
  came.
- While the disk takes nothing, the open file and whole files wait in memory, up to ``backlog_limit`` bytes. Beyond
  that the writer takes nothing from the inbox; the inbox fills up, and the tap counts the messages that find no room.
"""

import json
import time
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bccnd.recorder.account import Account, Ask, Said
from bccnd.recorder.feed import Block
from bccnd.recorder.files import Counts, Recording
from bccnd.recorder.inbox import Closed, Finished, Inbox, Lost, Opened
from bccnd.recorder.layout import Mark
from bccnd.recorder.links import Links, Spoken
from bccnd.recorder.rows import Answer, Dropped, Ended, ReadUntil, Rows

GAP_NS = 10**9

# Seconds to wait for the inbox or the disk before looking again.
IDLE_SECONDS = 0.2

# Seconds that the disk has to take the last files when the recorder stops.
LAST_SECONDS = 5.0

# What the daemon says when it stops, and characters of what else it may say (``clients/PROTOCOL.md``, "Notices").
SHUTDOWN = "shutdown"
REASON_LIMIT = 200

log = structlog.get_logger()


class Writer:
    """``run`` is the body of the thread.

    ``recording`` begins the recording of a host, given what was counted before; ``backlog_limit``: bytes that may
    wait in memory for the disk; ``ended`` is called with the daemon's reason for ending the connection or the tap;
    ``ask`` is called with a request for the daemon; ``fault`` is called with the exception that ended the thread;
    ``payloads``: whether rows have them.
    """

    def __init__(
        self,
        recording: Callable[[str, Counts], Recording],
        inbox: Inbox,
        backlog_limit: int,
        ended: Callable[[str], None],
        ask: Callable[[str, str], None],
        fault: Callable[[BaseException], None],
        *,
        payloads: bool = True,
    ) -> None:
        # Messages that the daemon dropped, as the recorder read too slowly.
        self.dropped = 0
        # The record is complete up to this time (Unix ns).
        self.until = 0
        self.host = ""
        self._begin = recording
        self._inbox = inbox
        self._backlog_limit = backlog_limit
        self._ended = ended
        self._ask = ask
        self._fault = fault
        self._payloads = payloads
        self._recording: Recording | None = None
        # The counts of the recordings before this one: a daemon whose host name changes begins another.
        self._before = Counts()
        self._rows = Rows((), "")
        # Messages missing since ``until``.
        self._missing = 0
        self._account = Account()
        self._links = Links()
        # Why the daemon ends the connection, and how and when the last one ended.
        self._reason = ""
        self._gone: tuple[Mark, int] | None = None
        self._finished = False

    @property
    def counts(self) -> Counts:
        return self._recording.counts if self._recording else self._before

    @property
    def backlog(self) -> int:
        return self._recording.backlog if self._recording else 0

    @property
    def kept(self) -> int:
        return self._recording.kept if self._recording else 0

    @property
    def disk_error(self) -> str:
        error = self._recording.disk_error if self._recording else None
        return error.strerror or str(error) if error else ""

    def run(self) -> None:
        try:
            while not self._finished:
                self._step()
            self._end()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the process must end with it
            self._fault(error)

    def _step(self) -> None:
        recording = self._recording
        if recording is not None:
            recording.tick(time.monotonic())
            if recording.backlog > self._backlog_limit:
                time.sleep(IDLE_SECONDS)
                return
        item = self._inbox.get(IDLE_SECONDS)
        match item:
            case Block():
                self._read(item)
                self._inbox.give_back(item)
            case Lost(messages):
                self._missing += messages
            case Opened():
                self._open(item)
            case Closed():
                self._close(item)
            case Finished():
                self._finished = True
        if self._recording is not None:
            self._recording.rotate_if_due(self.until, time.monotonic())

    def _open(self, opened: Opened) -> None:
        if self._recording is None or opened.host != self.host:
            self._end()
            self._recording = self._begin(opened.host, self._before)
            self.host, self._gone = opened.host, None
        self._rows = Rows(opened.local, opened.host, payloads=self._payloads)
        self._missing = 0
        self._account, self._links, self._reason = Account(), Links(), ""
        if self.until:
            log.info("recording again", host=self.host, after_seconds=self._since(opened.time_ns))
        else:
            log.info("recording", host=self.host, output=str(self._recording))
        self.until = opened.time_ns
        self._recording.describe(None)
        self._recording.open(opened.time_ns, time.monotonic())
        if self._gone is not None:
            after, gone_ns = self._gone
            self._mark(Mark.RETURNED, {"after": after.value, "gone_ns": gone_ns})
        self._take(self._account.heard("status", opened.status, opened.time_ns))

    def _close(self, closed: Closed) -> None:
        assert self._recording is not None  # noqa: S101 - it was opened
        until = max(self.until, closed.time_ns or 0)
        self._reach(until)
        self.until = until
        self._take(self._account.end())
        self._take(self._links.end())
        if closed.gone_ns is not None:
            reason = (self._reason or closed.reason)[:REASON_LIMIT]
            kind = Mark.STOPPED if reason == SHUTDOWN else Mark.DISCONNECTED if reason else Mark.DISAPPEARED
            self._gone = kind, closed.gone_ns
            self._mark(kind, {"reason": reason or None, "gone_ns": closed.gone_ns})
        self._recording.close(until, time.monotonic())

    def _end(self) -> None:
        """Finish the files as far as the disk takes them within LAST_SECONDS."""
        if self._recording is not None:
            deadline = time.monotonic() + LAST_SECONDS
            while self._recording.unfinished and time.monotonic() < deadline:
                self._recording.tick(time.monotonic())
                if self._recording.unfinished:
                    time.sleep(IDLE_SECONDS)
            self._recording.end()
            self._before = self._recording.counts
            self._recording = None

    def _read(self, block: Block) -> None:
        assert self._recording is not None  # noqa: S101 - it was opened
        for item in self._rows.read(block.memory, block.starts, block.ends):
            match item:
                case pa.RecordBatch():
                    bounds = pc.min_max(item.column("time_ns"))
                    self._reach(bounds["min"].as_py())
                    self._recording.write(item, time.monotonic())
                    self.until = max(self.until, bounds["max"].as_py())
                case ReadUntil(time_ns):
                    self._reach(time_ns)
                    self.until = max(self.until, time_ns)
                case Dropped(messages):
                    self._missing += messages
                    self.dropped += messages
                case Ended(reason, word):
                    self._reason = word
                    self._ended(reason)
                case Answer(key, value):
                    self._take(self._account.heard(key, value, self.until))
                    self._take(self._links.end())
                case Spoken():
                    self._take(self._links.heard(item))

    def _take(self, account: Iterable[Ask | Said]) -> None:
        """Do what the account of the daemon asks for, and record what it says."""
        assert self._recording is not None  # noqa: S101 - it was opened
        for item in account:
            match item:
                case Ask(key, value):
                    self._ask(key, value)
                case Said(kind, payload):
                    if kind is Mark.DAEMON:
                        self._recording.describe(payload)
                    self._recording.mark(kind, self.until, time.monotonic(), payload=payload)

    def _mark(self, kind: Mark, about: dict[str, object]) -> None:
        assert self._recording is not None  # noqa: S101 - it was opened
        payload = json.dumps(about, separators=(",", ":")).encode()
        self._recording.mark(kind, self.until, time.monotonic(), payload=payload)

    def _reach(self, time_ns: int) -> None:
        """Call this before the record goes on at this time: it marks the messages that are missing before it."""
        recording, missing, now = self._recording, self._missing, time.monotonic()
        if recording is not None and time_ns < self.until - GAP_NS:
            recording.close(self.until, now)
            recording.open(time_ns, now)
            self.until = time_ns
        if not missing or recording is None:
            return
        self._missing = 0
        if time_ns > self.until + GAP_NS:
            recording.close(self.until, now)
            recording.open(time_ns, now)
        recording.mark(Mark.UNRECORDED, max(time_ns, self.until), now, size=missing)

    def _since(self, time_ns: int) -> float:
        return round((time_ns - self.until) / 1e9, 3)
