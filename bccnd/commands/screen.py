"""A terminal taken over for a while: lines that fill the screen go out, single keys come in.

Rules
- The terminal is restored whatever happens, and in one place: ``__exit__``. Signals only write to a pipe, which
  ``wait`` reads together with the keys, so that nothing is interrupted halfway.
- SIGINT, SIGTERM and SIGHUP end it. The program then dies of the signal (``ended_by``), so that a shell knows.
  SIGWINCH only wakes ``wait``. SIGTSTP restores the terminal until SIGCONT.
- Only three kinds of escape sequences are used (alternate screen, cursor, clearing). Every terminal of the last
  decades knows them, so terminfo is not needed. Each drawing writes all lines whole.
"""

import codecs
import contextlib
import os
import select
import signal
import termios
import tty
from collections.abc import Iterable
from types import FrameType
from typing import Self

from bccnd.commands.board import ALERT, TITLE, Line

ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[0m\x1b[?25h\x1b[?1049l"
STYLES = {TITLE: "\x1b[7m", ALERT: "\x1b[1m"}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Bytes. The rest of a long paste is read at the next turn.
KEYS_READ = 64


class Screen:
    """A context manager. ``keys`` and ``out`` are descriptors of the terminal.

    ``ended_by``: the signal that ended it, or 0. A terminal that is gone counts as SIGHUP.
    """

    def __init__(self, keys: int = 0, out: int = 1) -> None:
        self.ended_by = 0
        self._keys, self._out = keys, out
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._saved: list[object] | None = None
        self._handlers: dict[int, object] = {}
        self._wakeup = self._woken = -1

    def __enter__(self) -> Self:
        self._woken, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        for number in (*ENDS, signal.SIGWINCH, signal.SIGTSTP):
            self._handlers[number] = signal.signal(number, _noted)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._wakeup)
        os.close(self._woken)

    def size(self) -> tuple[int, int]:
        """(columns, lines); 80 by 24 for a terminal that does not know its size."""
        try:
            width, height = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return width or 80, height or 24

    def draw(self, lines: Iterable[Line]) -> None:
        """Draw as many lines as the screen has, in one write, so that nothing flickers or scrolls.

        A line is cleared before it is written: after a line of full width the cursor still stands on its last letter.
        """
        text = "\r\n".join(f"\x1b[K{STYLES.get(style, '')}{text}\x1b[0m" for text, style in lines)
        self._write(f"\x1b[H{text}".encode())

    def wait(self, seconds: float) -> list[str]:
        """The keys pressed. Empty after ``seconds``, and when a signal has changed the size or ends the program."""
        ready, _, _ = select.select([self._keys, self._woken], [], [], max(seconds, 0))
        if self._woken in ready:
            self._heed(os.read(self._woken, 4096))
        if self._keys not in ready or self.ended_by:
            return []
        try:
            typed = os.read(self._keys, KEYS_READ)
        except OSError:
            typed = b""
        if not typed:
            self.ended_by = signal.SIGHUP
        return _keys_of(self._decoder.decode(typed))

    def _heed(self, signals: bytes) -> None:
        for number in signals:
            if number in ENDS:
                self.ended_by = self.ended_by or number
            elif number == signal.SIGTSTP:
                self._give_back()
                os.kill(os.getpid(), signal.SIGSTOP)
                self._take()  # SIGCONT has come

    def _take(self) -> None:
        self._saved = termios.tcgetattr(self._keys)
        tty.setcbreak(self._keys, termios.TCSADRAIN)
        self._write(ENTER)

    def _give_back(self) -> None:
        if self._saved is None:
            return
        with contextlib.suppress(termios.error, OSError):  # the terminal may be gone
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._saved)  # type: ignore[arg-type]
        self._saved = None
        self._write(LEAVE)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._out, data) :]
            except BlockingIOError:
                select.select([], [self._out], [], 1.0)
            except OSError:
                self.ended_by = self.ended_by or signal.SIGHUP
                return


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the number of the signal is in the pipe."""


def _keys_of(text: str) -> list[str]:
    """Single characters. Cursor left and right are < and >; other escape sequences are skipped."""
    keys = []
    while text:
        if text.startswith(("\x1b[", "\x1bO")):
            end = next((at for at in range(2, len(text)) if "@" <= text[at] <= "~"), len(text) - 1)
            keys += {"C": [">"], "D": ["<"]}.get(text[end], [])
            text = text[end + 1 :]
        else:
            keys.append(text[0])
            text = text[1:]
    return keys
