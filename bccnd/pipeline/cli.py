"""The ``bccnd-pipeline`` command: recorded files in, tables and a report out.

Exit codes are those of ``bccnd`` and ``bccn``: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused by the
system, 5 no Spark available, or somebody else at work in OUTPUT. An interrupt ends it with 130 and loses nothing that
is done.
With --check they are those of ``Status``.
"""

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from time import time_ns
from types import FrameType
from typing import TYPE_CHECKING

from bccnd.errors import BccndError, RefusedError
from bccnd.pipeline import amounts, java, locks, preconditions, session
from bccnd.pipeline.layout import Output
from bccnd.pipeline.progress import Progress
from bccnd.pipeline.status import Status
from bccnd.process.standard_streams import CommandLine, OutputError, complain, guarded, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bccnd.pipeline.ingest import Batch
    from bccnd.pipeline.report import Said

PROGRAM = "bccnd-pipeline"
USAGE, FAULT, INTERRUPTED = 2, 1, 130
# Names with these Spark would not find, without a word.
PATTERN = re.compile(r"[*?\[\]{}\\]")
# In it nanoseconds since 1970 do not fit 64 bits any more.
LAST_YEAR = 2262
# What each action keeps others from doing at the same time.
WORK: dict[str, tuple[str, ...]] = {
    "ingest": (locks.INGEST,),
    "analyse": (locks.ANALYSE,),
    "report": (),
    "run": (locks.INGEST, locks.ANALYSE),
    "maintain": (locks.MAINTAIN,),
}
# What reads files that ``maintain`` removes.
READS = {"analyse", "report", "run"}

DESCRIPTION = """\
Find out what a network lost, where and when, from what bccnd-record wrote on its hosts.

  ingest    copy recorded files into OUTPUT, each exactly once, however often it runs
  analyse   make tables of everything ingested: which host lost how many messages of which host, when, in which bursts
  report    make a page for people of the tables, OUTPUT/report.html, and print its findings
  run       all three
  maintain  merge what was ingested in many small files, and with --keep-days remove what is older
"""
EPILOG = """\
examples:
  bccnd-pipeline run --input /var/lib/bccnd-record --output ~/network
  bccnd-pipeline report --output ~/network --check
  bccnd-pipeline analyse --output ~/network --since 2026-01-31T14:00 --until 2026-01-31T15:00
  bccnd-pipeline ingest --input hdfs:///record --output hdfs:///network --master spark://head:7077 --continuous
  spark-submit --master yarn "$(python3 -c 'from bccnd.pipeline import cli; print(cli.__file__)')" \\
      run --input hdfs:///record --output hdfs:///network        (it takes only files named .py)

The workers of a cluster need Spark and access to the files, but neither Python nor bccnd.

OUTPUT holds traffic/ (what was ingested), checkpoint/ (which files were ingested: keep it with traffic/),
rejected-files/ (files that could not be read, and why), tables/ (Parquet, for any tool: a link to the newest of
versions/) and report.html.
"""


def moment(text: str) -> int:
    """ISO 8601, UTC unless it says otherwise, or so many hours or days ago, ``24h`` -> nanoseconds since 1970."""
    if ago := re.fullmatch("([1-9][0-9]{0,4})([hd])", text, re.ASCII):
        return time_ns() - int(ago[1]) * {"h": 3600, "d": 86_400}[ago[2]] * 10**9
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write it like 2026-01-31 or 2026-01-31T14:00 (UTC), 24h or 7d"
        ) from None
    if not 1970 <= time.year < LAST_YEAR:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 1970 to {LAST_YEAR - 1}")
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp()) * 10**9 + time.microsecond * 1000


def days(text: str) -> int:
    """A number of days, at least one."""
    if not re.fullmatch("[1-9][0-9]{0,4}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, 1 or more")
    return int(text)


def hours(text: str) -> float:
    """A number of hours, as ``--max-age`` has it."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours, such as 24 or 0.5")
    return float(text)


def parser() -> CommandLine:
    formatter = argparse.RawDescriptionHelpFormatter
    top = CommandLine(prog=PROGRAM, description=DESCRIPTION, epilog=EPILOG, formatter_class=formatter)
    top.add_argument("action", choices=tuple(WORK), help="what to do; see above")
    top.add_argument(
        "--input",
        metavar="DIR",
        help="what bccnd-record wrote on one host or many, and captures of tcpdump, HOST.pcap (ingest, run)",
    )
    top.add_argument(
        "--output", metavar="DIR", required=True, help="where everything is written; created if missing"
    )
    top.add_argument(
        "--master",
        metavar="URL",
        help="the Spark to run on: local[4], spark://host:7077 (default: all cores of this machine)",
    )
    top.add_argument(
        "--continuous",
        action="store_true",
        help="keep ingesting new files until interrupted (ingest)",
    )
    top.add_argument(
        "--since",
        metavar="TIME",
        type=moment,
        help="leave out the minutes that are earlier; UTC, or 24h or 7d ago (analyse, run)",
    )
    top.add_argument(
        "--until",
        metavar="TIME",
        type=moment,
        help="leave out the minutes that are later; UTC (analyse, run)",
    )
    top.add_argument(
        "--keep-days",
        metavar="N",
        type=days,
        help="remove older traffic; the next analyse leaves it out of the tables; by default all is kept (maintain)",
    )
    top.add_argument(
        "--json", action="store_true", help="print the findings as one JSON object (report, run)"
    )
    top.add_argument(
        "--check",
        action="store_true",
        help="exit like a check of Nagios: 0 all well, 1 warnings, 2 problems, 3 nothing is known (report, run)",
    )
    top.add_argument(
        "--max-age",
        metavar="HOURS",
        type=hours,
        default=24.0,
        help="with --check, nothing is known if the record ends earlier than that; 24 by default",
    )
    return top


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked; wrong usage ends the process with a line that says why, and exit code 2."""
    top = parser()
    given = top.parse_args(argv)
    if given.action in {"ingest", "run"} and not given.input:
        top.error(f"{given.action} needs --input DIR: the directory that bccnd-record writes to")
    if given.continuous and given.action != "ingest":
        top.error("--continuous goes with ingest only; analyse and report may run beside it")
    if given.keep_days is not None and given.action != "maintain":
        top.error("--keep-days goes with maintain only: the others remove nothing")
    if (given.json or given.check) and given.action not in {"report", "run"}:
        top.error("--json and --check go with report and run only: the others find nothing")
    for path in (given.input, given.output):
        if path and (found := PATTERN.search(path)):
            top.error(f"{path}: Spark takes {found[0]} for a pattern; name the directory without *?[]{{}}\\")
    if given.since is not None and given.until is not None and given.since >= given.until:
        top.error("--since must be before --until")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        code = guarded(PROGRAM, lambda: _start(argv))
    except SystemExit as ended:
        if ended.code != USAGE or "--check" not in argv:
            raise
        code = USAGE
    # The other codes would say of the network that something is wrong with it.
    known = isinstance(code, Status) or code == INTERRUPTED or "--check" not in argv
    return int(code) if known else Status.UNKNOWN


def _start(argv: Sequence[str]) -> int:
    given = arguments(argv)
    asked_to_end = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_to_end
        asked_to_end = True
        logging.disable(logging.CRITICAL)  # py4j would log a stack trace
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        with _ready(given) as size:
            if given.action == "report" and (place := _place(given, given.output)):
                # Starting a JVM would take longest.
                return _report(given, None, Output(str(place)), Progress())
            settings = session.sized(size, os.environ, keeps=given.action in {"analyse", "run"})
            with session.connect(given.master, f"bccnd-pipeline {given.action}", settings) as spark:
                signal.signal(signal.SIGINT, interrupt)  # in place of pyspark's
                with _locked(given, spark):
                    return _run(given, spark)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputError:
        raise
    except Exception as error:  # what Spark raises is a page of Java
        if asked_to_end:  # py4j raises other faults if it was interrupted within an answer
            return INTERRUPTED
        if isinstance(error, BccndError):
            _complain(str(error))
            return error.exit_code
        if os.environ.get("BCCND_TRACE"):
            raise
        refused = _refusal(error, given.output)
        _complain(refused or f"{_first_line(error)}  (BCCND_TRACE=1 shows the whole error)")
        return RefusedError.exit_code if refused else FAULT


@contextmanager
def _ready(given: argparse.Namespace) -> Iterator[int | None]:
    """Check what can be checked before Spark starts, and keep out others that do the same work on the same
    directory.

    Says how much there is to read, and yields the bytes that all steps read; None if they are not on this machine.
    """
    source = given.input and _place(given, given.input)
    if source:
        preconditions.recordings(source, later=given.continuous)
    output = _place(given, given.output)
    if output is None:
        yield None
        return
    if given.action in {"analyse", "maintain"}:
        preconditions.ingested(output)
        source = output / "traffic"
    if given.action in {"analyse", "run"}:
        preconditions.replaceable(output / "tables")
    if given.action == "report":
        preconditions.analysed(output)
    preconditions.writable(output, os.environ, starts_spark=given.action != "report")
    with _at_work(given.action, output):
        if given.action == "report" or not source:
            yield None
            return
        java.require()
        amount = amounts.below(source)
        Progress().say(f"{given.action}: {amount} in {source}")
        if given.continuous:
            yield max(amount.size, session.SMALL)  # a lot may come
            return
        yield amount.size + (amounts.below(output / "traffic").size if given.action == "run" else 0)


@contextmanager
def _locked(given: argparse.Namespace, spark: "SparkSession") -> Iterator[None]:
    """Keep others out where only Spark could tell that the directory is one that this machine mounts."""
    from bccnd.pipeline import storage

    with ExitStack() as stack:
        if not _place(given, given.output) and (place := storage.on_this_machine(spark, given.output)):
            stack.enter_context(_at_work(given.action, place))
        yield


@contextmanager
def _at_work(action: str, output: Path) -> Iterator[None]:
    reading = locks.reading(output, Progress().say) if action in READS else nullcontext()
    with locks.held(output, *WORK[action]), reading:
        yield


def _place(given: argparse.Namespace, path: str) -> Path | None:
    return preconditions.of_this_machine(path, given.master, os.environ)


def _run(given: argparse.Namespace, spark: "SparkSession") -> int:
    """Do it; returns the exit code."""
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
                    lambda batch: _report_batch(progress, batch),
                    continuous=given.continuous,
                )
        if given.action in {"analyse", "run"}:
            analyse(spark, output, Span(given.since, given.until), progress)
        if given.action == "maintain":
            _maintain(given, spark, progress)
        if given.action in {"report", "run"}:
            return _report(given, spark, output, progress)
    return 0


def _report(
    given: argparse.Namespace, spark: "SparkSession | None", output: Output, progress: Progress
) -> int:
    """Make the page, and say what is on it; returns the exit code. Without ``spark`` all is on this machine."""
    from bccnd.pipeline import storage, versions

    report = import_module("bccnd.pipeline.report")  # only here: it needs jinja2
    with (
        progress.step("report"),
        versions.reading(spark, output) as tables,
        storage.brought_here(spark, tables) as here,
        storage.brought_here(spark, output.rejected_files) as rejected,
        storage.sent_there(spark, output.report) as page,
    ):
        said: Said = report.write(here, page, rejected_files=str(rejected))
    progress.say(f"report: {output.report}")
    return _tell(given, said._replace(page=output.report))


def _maintain(given: argparse.Namespace, spark: "SparkSession", progress: Progress) -> None:
    from bccnd.pipeline import storage
    from bccnd.pipeline.maintain import first_day, maintain

    here = storage.on_this_machine(spark, given.output)
    with progress.step("maintain"):
        maintain(
            spark,
            Output(given.output),
            first_day(datetime.now(UTC).date(), given.keep_days),
            progress.say,
            alone=lambda: locks.removing(here) if here else nullcontext(True),
        )


def _tell(given: argparse.Namespace, said: "Said") -> int:
    """Print what the report says, as it was asked for; returns the exit code."""
    now, oldest = datetime.now(UTC), timedelta(hours=given.max_age)
    if given.json:
        say(said.as_json())
    else:
        if given.check:
            say(said.summary(now, oldest))
        for line in said.lines():
            say(line)
    return said.status(now, oldest) if given.check else 0


def _report_batch(progress: Progress, batch: "Batch") -> None:
    progress.say(f"ingest: batch {batch.number}, {batch.rows:,} rows of {batch.files:,} files")
    for path, reason in batch.rejected:
        progress.say(f"ingest: set aside {path}: {reason}")


def _refusal(error: BaseException, output: str) -> str | None:
    """The line to show if the system refused to read or write, or has no room left."""
    said = str(error)
    if "No space left on device" in said:
        return (
            f"{output}: no space left on its disk, or on that of Spark's scratch space (SPARK_LOCAL_DIRS); "
            "make room and run it again, nothing is lost"
        )
    if found := re.search(r"(/\S+) ?\(Permission denied\)|Permission denied:? (\S+)", said):
        return f"{found[1] or found[2]}: permission denied; run it as a user that may, and nothing is lost"
    return None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _complain(text: str) -> None:
    complain(PROGRAM, text)


if __name__ == "__main__":
    sys.exit(main())
