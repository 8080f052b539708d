"""The thread that empties the connection to the daemon, and does nothing else.

Rules
- The socket holds a fraction of a second of traffic, so the tap waits for nobody: it reads packets into blocks, which
  the writer takes apart. With no empty block left it counts what it read, forgets it, and reads on.
- The daemon's queue for the recorder is as large as the daemon allows, with the policy ``drop-oldest``, never
  ``block``: a recorder holds no publisher up.
- The tap sends a ping a second, with the time as its value. The daemon answers in the order of everything else, so
  each answer says up to when everything has been read.
- In its greeting, every LOOK_SECONDS, and when the recorder stops, the tap asks the daemon for its account of itself
  (``account``), and in between for what the writer wants to know (``ask``). The answers come in the order of
  everything else. That of the greeting opens the record: a daemon that dies at once has said what it was.
- When the daemon goes, the tap waits for it to come back. It does not wait for the right to tap.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence

import structlog

import bccn
from bccnd.errors import BccndError, ConfigError, ProtocolError, RefusedError, UnavailableError
from bccnd.recorder.account import LOOK_SECONDS
from bccnd.recorder.feed import Block, Feed
from bccnd.recorder.inbox import Closed, Finished, Inbox, Lost, Opened
from bccnd.recorder.rows import Dropped, Ended, messages_in

# Seconds for the daemon to grant everything; a busy daemon needs milliseconds.
GREETING_SECONDS = 10.0
PING_SECONDS = 1.0
# Seconds between two blocks that are not full: each is work for the writer, however little it holds.
HAND_OVER_SECONDS = 0.1
# Seconds to read what the daemon still has, once the recorder stops.
LAST_SECONDS = 3.0
# The daemon grants the first that its limits allow, or keeps its own.
QUEUES = (
    "packets=100000 bytes=67108864 policy=drop-oldest",
    "packets=10000 bytes=8388608 policy=drop-oldest",
)
TAP_IS_OFF = b"CMSG tap\0off"
# Requests of the writer that wait to be made. It makes the next when it has the answer.
QUESTIONS = 16

log = structlog.get_logger()


class Tap:
    """``run`` is the thread; ``stop`` ends it from another. ``fault`` gets the error that ends it by itself.

    With ``patterns`` it subscribes to these channels instead of tapping all.
    """

    def __init__(
        self,
        path: str | None,
        inbox: Inbox,
        fault: Callable[[BaseException], None],
        patterns: Sequence[str] = (),
    ) -> None:
        self.path = path or bccn.socket_path()
        self.connected = False
        # When the loop last turned, on the monotonic clock.
        self.turned_at = time.monotonic()
        # Messages that were read and found no empty block.
        self.unrecorded = 0
        self._inbox = inbox
        self._fault = fault
        self._feed = Feed(path, patterns, queues=QUEUES, timeout=GREETING_SECONDS)
        self._subscribes = bool(patterns)
        self._greeted = False
        self._stopping = False
        self._questions: deque[tuple[str, str]] = deque(maxlen=QUESTIONS)
        # Why the daemon ends the connection, if the packet that says so found no empty block.
        self._reason = ""

    def ask(self, key: str, value: str) -> None:
        """Make this request soon; called from the thread that writes."""
        self._questions.append((key, value))
        self._feed.wake()

    def stop(self) -> None:
        self._stopping = True
        self._feed.wake()

    def connect(self) -> None:
        """Make the first attempt before ``run`` does, and only this one. Raises what ends a recorder, if it fails."""
        try:
            self._feed.connect()
        except bccn.BccnError as error:
            raise _fault_of(error) from None
        self._greeted = True

    def run(self) -> None:
        try:
            self._run()
        except bccn.BccnError as error:
            self._fault(_fault_of(error))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the process must end with it
            self._fault(error)
        self._feed.close()
        self._inbox.put(Finished())

    def _run(self) -> None:
        reported = ""
        while not self._stopping:
            try:
                if not self._greeted:
                    self._feed.connect()
                self._greeted = False
            except bccn.UnavailableError as error:
                if str(error) != reported:
                    reported = str(error)
                    log.warning("no daemon, trying again", reason=reported)
            else:
                reported = ""
                self._record()
            self.turned_at = time.monotonic()
            self._feed.pause()

    def _record(self) -> None:
        """Record this connection from its first packet to its last."""
        self._questions.clear()
        self._reason = ""
        self.connected = True  # first: the writer may be at it before the next line
        self._inbox.put(Opened(time.time_ns(), self._feed.host, self._feed.local, self._feed.status))
        closed_ns = gone_ns = None
        try:
            closed_ns = self._read(self._first_block())
            gone_ns = None if self._stopping else time.time_ns()
        finally:
            self.connected = False
            self._inbox.put(Closed(closed_ns, gone_ns, self._reason))
        if not self._stopping:
            log.warning("lost the daemon, trying again", socket=self.path)

    def _first_block(self) -> Block:
        """Wait for an empty block: the writer may be far behind with those of the connection before."""
        while (block := self._inbox.block()) is None:
            self.turned_at = time.monotonic()
            time.sleep(HAND_OVER_SECONDS)
        return block

    def _read(self, block: Block) -> int | None:
        """Read until the connection ends, or everything is read after ``stop``; up to when, if that is known."""
        ping_at = handed_over = 0.0
        look_at = time.monotonic() + LOOK_SECONDS
        asked_ns, last, deadline = 0, b"", float("inf")
        try:
            while True:
                self.turned_at = now = time.monotonic()
                if self._stopping and not asked_ns:
                    asked_ns, deadline = time.time_ns(), now + LAST_SECONDS
                    last = self._ask_last(asked_ns)
                elif now >= ping_at:
                    ping_at = now + PING_SECONDS
                    self._feed.request("ping", str(time.time_ns()))
                    if now >= look_at:
                        look_at = now + LOOK_SECONDS
                        self._feed.request("status", "")
                while self._questions:
                    self._feed.request(*self._questions.popleft())
                if block.full or (block.used and self._inbox.idle and now - handed_over >= HAND_OVER_SECONDS):
                    block = self._hand_over(block)
                    handed_over = now
                before = len(block.ends)
                if not self._feed.fill(block):
                    return None
                if asked_ns and _has(block, before, last):
                    return asked_ns
                if now > deadline:
                    return None
                if not block.full:
                    self._feed.wait(min(HAND_OVER_SECONDS if block.used else PING_SECONDS, deadline - now))
        finally:
            self._inbox.give_back(self._hand_over(block))

    def _ask_last(self, time_ns: int) -> bytes:
        """End the tap; returns the answer before which everything stands that came until now.

        Nobody will ask for a second page of clients, so the first is asked for now.
        """
        self._feed.request("status", "")
        self._feed.request("clients", "")
        if self._subscribes:
            self._feed.request("ping", str(time_ns))
            return b"CMSG pong\0%d" % time_ns
        self._feed.request("tap", "off")
        return TAP_IS_OFF

    def _hand_over(self, block: Block) -> Block:
        """Give the block to the writer and return an empty one: the same one, if there is no other."""
        if not block.used:
            return block
        fresh = self._inbox.block()
        if fresh is not None:
            self._inbox.put(block)
            return fresh
        messages, others = messages_in(block.memory, block.starts, block.ends)
        block.clear()
        for item in others:
            match item:
                case Dropped(missing):
                    messages += missing
                case Ended(reason, word):
                    self._reason = word
                    self.ended(reason)
        self.unrecorded += messages
        self._inbox.put(Lost(messages))
        return block

    def ended(self, reason: str) -> None:
        """Take note of why the daemon ends the connection or the tap."""
        if "revoked" in reason:
            self._fault(RefusedError(f"{self.path}: {reason}"))
        else:
            log.info(reason, socket=self.path)


def _has(block: Block, first: int, answer: bytes) -> bool:
    """Whether one of the packets from ``first`` on is, or ends with, this answer."""
    return any(block.memory[max(0, end - len(answer)) : end] == answer for end in block.ends[first:])


def _fault_of(error: bccn.BccnError) -> BccndError:
    """What ends the recorder, with its exit code."""
    match error:
        case bccn.RefusedError():
            remedy = "the group of the socket and [[rights]] in the daemon's settings say who may"
            return RefusedError(f"{error.text}; {remedy}")
        case bccn.UnavailableError():
            return UnavailableError(str(error))
        case bccn.RejectedError():
            return ConfigError(f"{error}; install the same version of bccnd and bccnd-record")
        case _:
            return ProtocolError(str(error))
