"""``bccn reply``: reply to requests with the output of a command.

Rules
- Each request gets a process, at most ``--jobs`` at a time. Further requests wait in the daemon's queue for this
  client.
- The output of the command is the reply, whatever its exit status. There is no reply if the command fails without
  output, is killed, or takes too long. Each failure is one line on stderr, which the command shares.
- A command and the processes it has started are a process group, which is killed as a whole.
- On SIGTERM ``bccn reply`` takes no further requests and replies to those it has begun. Ctrl-C kills the commands.
"""

import argparse
import asyncio
import os
import shutil
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress

import bccn
from bccnd.commands.arguments import count, seconds
from bccnd.commands.outcome import DONE, Reporter, complain
from bccnd.process.standard_streams import counted, printable

JOBS = 8

# Seconds that the daemon may take to accept the last reply.
LAST_WORD_SECONDS = 1.0

# Bytes. No reply is longer, so a command that prints more is killed.
OUTPUT_LIMIT = 65536

DESCRIPTION = """\
Run COMMAND for each request on CHANNEL, with the request as its stdin; what it
prints is the reply. Several can run at once. No shell is involved, and what
COMMAND writes to stderr appears on stderr.

There is no reply when COMMAND is killed, takes too long, or fails without
printing anything. Otherwise its exit status does not matter. Each failure is
reported on stderr. Goes on until it gets SIGTERM or Ctrl-C.

environment of COMMAND:
  BCCN_CHANNEL  the channel of the request
  BCCN_SRC      the source of the request
"""

EPILOG = """\
examples:
  bccn reply text/upper -- tr a-z A-Z
  bccn reply 'host/*/load' -- cat /proc/loadavg
  bccn reply -j 1 -W 5 door/open -- ./open-door --gently
  bccn reply 'echo/>' -- sh -c 'echo "$BCCN_SRC on $BCCN_CHANNEL:"; cat'
  bccn reply '!' -- uptime
"""

# Everything after "--" is COMMAND, whatever it looks like.
TAKES_COMMAND = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "bccn reply [options] CHANNEL -- COMMAND [ARG ...]"
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "channel",
        metavar="CHANNEL",
        help="or a pattern, as for sub; '!' is for requests to all and to this program",
    )
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="the program to run, and its arguments")
    parser.add_argument(
        "-j", "--jobs", metavar="N", type=count, default=JOBS, help=f"run up to N at a time (default {JOBS})"
    )
    parser.add_argument(
        "-W",
        "--timeout",
        metavar="S",
        type=seconds,
        default=60.0,
        help="kill COMMAND after S seconds (default 60)",
    )
    parser.add_argument("-C", "--count", metavar="N", type=count, help="exit after N requests")
    parser.add_argument("--name", metavar="SRC", help="reply as SRC, if the daemon allows it")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="report each request and reply on stderr"
    )


def run(arguments: argparse.Namespace) -> int:
    if not arguments.words:
        raise bccn.InvalidError("reply: give the command to run, after --")
    if shutil.which(arguments.words[0]) is None:
        raise bccn.InvalidError(f"reply: {arguments.words[0]}: no such command")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a command need not read its request
    return asyncio.run(_Replies(arguments).serve())


class _NoReplyError(Exception):
    """There is no reply to a request; the text says why."""


class _Replies:
    """Takes requests and replies to them, until a signal or the count ends it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._bus = bccn.AsyncClient(
            arguments.socket,
            name=arguments.name,
            format="full",
            on_notice=Reporter(),
        )
        self._commands = _Commands(arguments.words, arguments.timeout)
        self._left: int | None = arguments.count
        self._running = 0
        self._ending = False
        self._changed = asyncio.Event()

    async def serve(self) -> int:
        arguments = self._arguments
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end)
        loop.add_signal_handler(signal.SIGINT, self._commands.interrupt)
        async with self._bus as bus:
            requests = await bus.serve(arguments.channel, self._answer, concurrency=arguments.jobs)
            if arguments.verbose:
                complain(f"replying to requests on {arguments.channel} as {bus.name}")
            await self._until(lambda: self._ending)
            # A refusal of the daemon has been reported as a notice. Without a daemon nobody waits for a reply.
            with suppress(bccn.BccnError):
                await requests.close()  # so that later requests fail at once
                await self._until(lambda: not self._running)
                await bus.barrier(LAST_WORD_SECONDS)
            await bus.close()
        return DONE

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _end(self) -> None:
        self._ending = True
        self._changed.set()

    async def _answer(self, request: bccn.Request) -> None:
        if self._ending:
            return
        if self._left is not None:
            self._left -= 1
            self._ending = not self._left
        self._running += 1
        began = time.monotonic()
        who = printable(f"{request.src} on {request.channel}")
        try:
            reply = await self._commands.output(request)
            await self._bus.reply(request, reply)
            if self._arguments.verbose:
                took = (time.monotonic() - began) * 1000
                size = counted(len(request.payload), "byte")
                complain(f"{who}: {size}, replied {len(reply)} in {took:.1f} ms")
        except (_NoReplyError, bccn.BccnError) as error:
            complain(f"no reply to {who}: {error}")
        finally:
            self._running -= 1
            self._changed.set()


class _Commands:
    """Runs the command, any number of times at once."""

    def __init__(self, words: list[str], timeout: float) -> None:
        self._words = words
        self._timeout = timeout
        self._groups: set[int] = set()  # a process group for each command that runs
        self._starting = 0
        self._interrupted = False

    async def output(self, request: bccn.Request) -> bytes:
        """Run the command for this request and return its output. Raises ``_NoReplyError``."""
        command = self._words[0]
        process = await self._start(request)
        try:
            async with asyncio.timeout(self._timeout):
                output = await _output(process, request.payload)
                status = await process.wait()
        except BaseException as error:
            _kill(process.pid)
            await _discard(process)
            if isinstance(error, TimeoutError):
                raise _NoReplyError(f"{command} was killed after {self._timeout:g} s") from None
            raise
        finally:
            self._groups.discard(process.pid)
        if status < 0:
            raise _NoReplyError(f"{command} was ended by signal {-status} ({signal.strsignal(-status)})")
        if status and not output:
            raise _NoReplyError(f"{command} ended with status {status}")
        if status:
            complain(
                f"{command} ended with status {status}; the request was from {printable(request.src or '')}"
            )
        return output

    async def _start(self, request: bccn.Request) -> Process:
        about = {"BCCN_CHANNEL": request.channel, "BCCN_SRC": request.src or ""}
        self._starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words, stdin=PIPE, stdout=PIPE, env=os.environ | about, process_group=0
            )
            self._groups.add(process.pid)
        except OSError as error:
            raise _NoReplyError(f"{self._words[0]}: {error.strerror}") from None
        finally:
            self._starting -= 1
            if self._interrupted:
                self.interrupt()
        return process

    def interrupt(self) -> None:
        """Kill the commands that run, and die of SIGINT as any filter does.

        A command that is being started has no process group yet: then ``_start`` calls this again.
        """
        self._interrupted = True
        if self._starting:
            return
        for group in self._groups:
            _kill(group)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


async def _output(process: Process, payload: bytes) -> bytes:
    """Give a process ``payload`` as its stdin, which it need not read, and return its output."""
    if process.stdin is None or process.stdout is None:  # never: it was started with both
        raise _NoReplyError("no pipes")
    process.stdin.write(payload)
    process.stdin.close()
    try:
        await process.stdout.readexactly(OUTPUT_LIMIT + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    raise _NoReplyError(f"it printed more than {OUTPUT_LIMIT} bytes")


async def _discard(process: Process) -> None:
    """Read the rest of a killed process's output, without which asyncio does not notice its end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while process.stdout and await process.stdout.read(OUTPUT_LIMIT):
                pass
            await process.wait()


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
