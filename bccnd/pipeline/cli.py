"""The ``bccnd-pipeline`` command: what was recorded in, tables and a report out.

Exit codes are those of ``bccnd`` and ``bccn``: 0 done, 1 a fault of ours, 2 wrong settings or usage, 4 refused by the
system, 5 no Spark to be had. Interrupted ends with 130 and loses nothing: what is done stays done.
"""

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

from bccnd.errors import BccndError, RefusedError
from bccnd.pipeline import session
from bccnd.pipeline.layout import Output
from bccnd.pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bccnd.pipeline.ingest import Batch

USAGE, FAULT, INTERRUPTED = 2, 1, 130

DESCRIPTION = """\
Tell what a network lost, where and when, from what bccnd-record wrote on its hosts.

  ingest    take over recorded files, each exactly once; also again and again, or --continuous
  analyse   make tables of all that was taken over: who lost what of whom, when, in which bursts
  report    make a page for people of the tables, OUTPUT/report.html, and say what it found
  run       all three
"""
EPILOG = """\
examples:
  bccnd-pipeline run --input /var/lib/bccnd-record --output ~/network
  bccnd-pipeline analyse --output ~/network --since 2026-01-31T14:00 --until 2026-01-31T15:00
  bccnd-pipeline ingest --input hdfs:///record --output hdfs:///network --master spark://head:7077 --continuous
  spark-submit --master yarn "$(python3 -c 'from bccnd.pipeline import cli; print(cli.__file__)')" \\
      run --input hdfs:///record --output hdfs:///network        (it takes only files named .py)

The workers of a cluster need Spark and the files, no Python and nothing of bccnd.

OUTPUT gets: traffic/ (what was taken over), rejected-files/ (files that could not be read, and why), checkpoint/
(which files were taken over: keep it with traffic/), tables/ (Parquet, for any tool) and report.html.
"""


def moment(text: str) -> int:
    """ISO 8601, UTC unless it says otherwise -> nanoseconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time like 2026-01-31 or 2026-01-31T14:00 (UTC)"
        ) from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp()) * 10**9 + time.microsecond * 1000


def parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="bccnd-pipeline", description=DESCRIPTION, epilog=EPILOG, formatter_class=formatter
    )
    top.add_argument("action", choices=("ingest", "analyse", "report", "run"), help="what to do; see above")
    top.add_argument(
        "--input",
        metavar="DIR",
        help="what bccnd-record wrote, of one host or of many; and captures of tcpdump, HOST.pcap (ingest, run)",
    )
    top.add_argument(
        "--output", metavar="DIR", required=True, help="where everything goes; made if it is not there"
    )
    top.add_argument(
        "--master",
        metavar="URL",
        help="Spark to run on: local[4], spark://host:7077 (default: all cores of this machine)",
    )
    top.add_argument(
        "--continuous",
        action="store_true",
        help="go on taking over what is recorded, until interrupted (ingest)",
    )
    top.add_argument("--since", metavar="TIME", type=moment, help="analyse from then on; UTC (analyse, run)")
    top.add_argument("--until", metavar="TIME", type=moment, help="analyse up to then; UTC (analyse, run)")
    return top


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parsed and checked; wrong usage ends the process with one line and exit code 2."""
    top = parser()
    given = top.parse_args(argv)
    takes = given.action in {"ingest", "run"}
    if takes and not given.input:
        top.error(f"{given.action} needs --input DIR: what bccnd-record wrote")
    if given.continuous and given.action != "ingest":
        top.error("--continuous goes with ingest; analyse and report may run beside it")
    if given.since is not None and given.until is not None and given.since >= given.until:
        top.error("--since is not before --until: no time is left")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    given = arguments(sys.argv[1:] if argv is None else argv)
    asked_to_end = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_to_end
        asked_to_end = True
        logging.disable(logging.CRITICAL)  # py4j shows where it was interrupted, at length
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        with session.connect(given.master, f"bccnd-pipeline {given.action}") as spark:
            signal.signal(signal.SIGINT, interrupt)  # in place of pyspark's
            _run(given, spark)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # whatever Spark raises is a page of Java
        if asked_to_end:  # py4j makes faults of its own of an answer that was not read to its end
            return INTERRUPTED
        if isinstance(error, BccndError):
            _complain(str(error))
            return error.exit_code
        if os.environ.get("BCCND_TRACE"):
            raise
        refused = _refusal(error)
        _complain(refused or f"{_first_line(error)}  (BCCND_TRACE=1 shows all of it)")
        return RefusedError.exit_code if refused else FAULT
    return 0


def _run(given: argparse.Namespace, spark: "SparkSession") -> None:
    from bccnd.pipeline.analyse import Span, analyse
    from bccnd.pipeline.ingest import ingest

    output = Output(given.output)
    with Progress(spark.sparkContext) as progress:
        if given.action in {"ingest", "run"}:
            with progress.step("ingest"):
                ingest(
                    spark,
                    given.input,
                    output,
                    lambda batch: _tell(progress, batch),
                    continuous=given.continuous,
                )
        if given.action in {"analyse", "run"}:
            analyse(spark, output, Span(given.since, given.until), progress)
        if given.action in {"report", "run"}:
            report = import_module("bccnd.pipeline.report")  # with its templates; nobody else needs them
            with progress.step("report"):
                findings = report.write(spark, output.tables, output.report)
            progress.say(f"report: {output.report}")
            sys.stdout.writelines(f"{finding}\n" for finding in findings)


def _tell(progress: Progress, batch: "Batch") -> None:
    progress.say(f"ingest: batch {batch.number}, {batch.rows:,} rows of {batch.files:,} files")
    for path, reason in batch.rejected:
        progress.say(f"ingest: set aside {path}: {reason}")


def _refusal(error: BaseException) -> str | None:
    """The line to show if the system did not let us write or read, or has no room."""
    found = re.search(
        r"(/\S+)? ?\((Permission denied|No space left on device)\)|Permission denied: (\S+)", str(error)
    )
    if found:
        return found.group().strip()
    full = "No space left on device"
    return full if full in str(error) else None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _complain(text: str) -> None:
    sys.stderr.write(f"bccnd-pipeline: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
