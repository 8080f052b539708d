"""A spooler in a process of its own, and the rows of its spool files."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import DataStreamWriter

import bccn
from bccnd.pipeline.source import spool_files
from bccnd.pipeline.source.live import read_file
from tests.daemon_process import DaemonProcess, mortal
from tests.packet_client import PATIENCE, wait_until


def start(spool: Path, *flags: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        mortal([sys.executable, "-m", "bccnd.pipeline.source.spool", str(spool), *flags]),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The exit code and the complaints."""
    _, complaint = process.communicate(timeout=PATIENCE)
    return process.returncode, complaint.decode()


@contextmanager
def spooling(daemon: DaemonProcess, spool: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A spooler that reads the bus; at the end it must stop on SIGTERM, with all that it read written."""
    process = start(spool, f"--socket={daemon.socket}", *flags)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", ended(process)
        yield process
        process.terminate()
        assert ended(process)[0] == 0
    finally:
        process.kill()
        process.communicate()


def publish(daemon: DaemonProcess, channel: str, numbers: range) -> None:
    with bccn.Client(str(daemon.socket), pack=True) as bus:
        with bus.batch():
            for number in numbers:
                bus.publish(channel, str(number))
        # The sockets of all readers have them now.
        bus.barrier()


def spooled(spool: Path) -> list[dict[str, Any]]:
    return [
        row
        for each in spool_files.listed(str(spool))
        for batch in read_file(each.path)
        for row in batch.to_pylist()
    ]


def bounds(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The marks ``opened`` and ``closed``, each with its time."""
    marks = [(row["verdict"], row["time_ns"]) for row in rows if not row["direction"]]
    return [mark for mark in marks if mark[0] in ("opened", "closed")]


def payloads(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["payload"]) for row in rows if row["direction"] in ("out", "local")]


def await_messages(spool: Path, count: int) -> None:
    """Wait until the spool files hold this many messages."""
    wait_until(
        lambda: spool.exists() and sum(each.messages for each in spool_files.listed(str(spool))) >= count,
        f"{count} messages in {spool}",
    )


def run_query(writer: DataStreamWriter) -> None:
    """Run a query to its end. It begins again if Spark gave up a Python process that took more than ten seconds to
    start: nothing was read then, and Spark has no setting for that limit.
    """
    while True:
        try:
            return writer.start().awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
