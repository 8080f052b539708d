"""``bccnd/pipeline/cli.py``: the command as people use it."""

import argparse
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.errors import UnavailableError
from bccnd.pipeline import cli, java, locks, session
from tests.pipeline import network
from tests.pipeline.report.tables import write_tables

DEADLINE_SECONDS = 300


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bccnd.pipeline.cli", *arguments],
        capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS, env={**os.environ, **environment},
    )  # fmt: skip


def test_help_describes_the_command_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(
        word in said
        for word in ("ingest", "analyse", "report", "run", "maintain", "examples:", "--since TIME")
    )
    assert max(map(len, said.splitlines())) <= 118


@pytest.mark.parametrize(("flags", "is_small"), [([], True), (["--continuous"], False)])
def test_what_is_yet_to_come_is_taken_for_a_lot(
    flags: list[str], is_small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "relay01.pcap").touch()
    monkeypatch.setattr(java, "require", lambda: None)
    given = cli.arguments(
        ["ingest", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), *flags]
    )
    with cli._ready(given) as size:
        assert size is not None
        assert (size < session.SMALL) is is_small


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required"),
        (["ingest", "--output", "x"], "needs --input DIR"),
        (["run", "--input", "x"], "--output"),
        (["analyse", "--output", "x", "--continuous"], "--continuous goes with ingest"),
        (["analyse", "--output", "x", "--since", "yesterday"], "is not a time; write it like"),
        (
            ["analyse", "--output", "x", "--since", "2026-02-01", "--until", "2026-01-31"],
            "must be before --until",
        ),
        (["analyse", "--output", "x", "--until", "9999-12-31"], "is not a time from 1970 to 2261"),
        (["analyse", "--output", "x", "--since", "0001-01-01T00:00+14:00"], "is not a time from 1970"),
        (["report", "--output", "x", "--max-age", "nan"], "is not a number of hours"),
        (["report", "--output", "x", "--max-age=-1"], "is not a number of hours"),
        (["report", "--output", "x", "--max-age", "9999999999"], "is not a number of hours"),
        (["fetch", "--output", "x"], "invalid choice"),
        (["analyse", "--output", "x", "--keep-days", "7"], "--keep-days goes with maintain only"),
        (["maintain", "--output", "x", "--keep-days", "0"], "is not a number of days, 1 or more"),
        (["ingest", "--input", "old [1]", "--output", "x"], "old [1]: Spark takes [ for a pattern"),
        (["analyse", "--output", "a{b,c}"], "a{b,c}: Spark takes { for a pattern"),
        (["ingest", "--input", "x", "--output", "x", "--json"], "--json and --check go with report and run"),
    ],
)
def test_wrong_usage_gives_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert complaint in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--check"],
        ["report", "--check", "--output", "/nowhere"],
        ["analyse", "--check", "--output", "/nowhere"],
        ["report", "--check", "--max-age", "soon", "--output", "/nowhere"],
    ],
)
def test_a_check_that_finds_nothing_out_is_unknown(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 3
    assert capfd.readouterr().out == ""


def test_times_are_utc_unless_they_have_a_zone() -> None:
    noon = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 10**9
    assert cli.moment("2026-01-31T12:00") == cli.moment("2026-01-31T13:00+01:00") == noon
    assert cli.moment("2026-01-31T12:00:00.000001") == noon + 1000


@pytest.mark.parametrize(("text", "hours"), [("1h", 1), ("24h", 24), ("7d", 168)])
def test_a_time_can_be_so_long_ago(text: str, hours: int) -> None:
    ago_ns = hours * 3600 * 10**9
    before = time.time_ns()
    found = cli.moment(text)
    assert before - ago_ns <= found <= time.time_ns() - ago_ns


@pytest.mark.parametrize("text", ["0h", "h", "-1d", "1w", "1.5h", "\u0661h", "999999d"])
def test_other_words_are_no_times(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write it like"):
        cli.moment(text)


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where there is no Java, so what it says is said before Spark starts."""
    return command(*arguments, JAVA_HOME="/nowhere")


def test_a_wrong_directory_is_told_before_spark_starts(tmp_path: Path) -> None:
    day = network.write(network.Plan(hosts=2, sources=1, messages=20), tmp_path / "in") and "date=2026-01-31"
    output = str(tmp_path / "out")
    for arguments, complaint in (
        (["run", "--input", str(tmp_path), "--output", output], f"but in {tmp_path / 'in'}; give that"),
        (["ingest", "--input", str(tmp_path / "in" / day), "--output", output], f"give {tmp_path / 'in'}"),
        (["ingest", "--continuous", "--input", output, "--output", output], "no such directory"),
        (["analyse", "--output", output], "no such directory"),
        (["report", "--output", output], "no such directory"),
        (["maintain", "--output", output], "no such directory"),
        (["report", "--output", str(tmp_path)], "no tables are there"),
    ):
        ended = ran(*arguments)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1), ended.stderr
        assert complaint in ended.stderr
    assert not Path(output).exists()
    (tmp_path / "out" / "tables").mkdir(parents=True)
    (tmp_path / "out" / "traffic" / "batch=0").mkdir(parents=True)
    for arguments in ["run", "--input", str(tmp_path / "in")], ["analyse"]:
        ended = ran(*arguments, "--output", output)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
        assert f"{output}/tables: is not of bccnd-pipeline; move it away" in ended.stderr


def test_the_second_run_on_an_output_names_the_first(tmp_path: Path) -> None:
    network.write(network.Plan(hosts=2, sources=1, messages=20), tmp_path / "in")
    with locks.held(tmp_path / "out", locks.INGEST):
        ended = ran("run", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"))
    assert ended.returncode == 5
    assert f"bccnd-pipeline, pid {os.getpid()}, is at work there (ingest); wait" in ended.stderr


@pytest.mark.parametrize("action", ["analyse", "report", "run"])
def test_nothing_is_removed_under_who_reads(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "relay01.pcap").touch()
    for there in "traffic/batch=0", "tables/coverage":
        (tmp_path / there).mkdir(parents=True)
    monkeypatch.setattr(java, "require", lambda: None)
    given = cli.arguments([action, "--input", str(tmp_path / "in"), "--output", str(tmp_path)])
    with cli._ready(given), locks.removing(tmp_path) as alone:
        assert not alone
    with locks.removing(tmp_path) as alone:
        assert alone


def test_on_a_cluster_a_directory_of_this_machine_is_locked(spark: SparkSession, tmp_path: Path) -> None:
    arguments = ["ingest", "--input", "x", "--output", str(tmp_path), "--master", "spark://head:7077"]
    with (
        cli._locked(cli.arguments(arguments), spark),
        pytest.raises(UnavailableError),
        locks.held(tmp_path, locks.INGEST),
    ):
        pass
    with cli._locked(cli.arguments([*arguments[:3], "--output", "hdfs://127.0.0.1:1/out"]), spark):
        pass


def test_missing_java_or_master_gives_one_line_and_exit_code_5(tmp_path: Path) -> None:
    (tmp_path / "traffic" / "batch=0").mkdir(parents=True)
    for arguments, environment, complaint in (
        ([], {"JAVA_HOME": str(tmp_path)}, "no Java found"),
        (["--master", "spark://127.0.0.1:1"], {}, "no Spark on spark://127.0.0.1:1: nobody answers there"),
    ):
        ended = command("analyse", "--output", str(tmp_path), *arguments, **environment)
        assert (ended.returncode, ended.stdout) == (5, "")
        assert complaint in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "java.io.IOException: No space left on device",
            "/out: no space left on its disk, or on that of Spark's scratch space (SPARK_LOCAL_DIRS); make room and",
        ),
        (
            "java.io.FileNotFoundException: /out/traffic/x (Permission denied)",
            "/out/traffic/x: permission denied; run it",
        ),
        ("[Errno 13] Permission denied: '/out/report.html'", "'/out/report.html': permission denied; run it"),
    ],
)
def test_what_the_system_refuses_meanwhile_is_said_with_a_remedy(error: str, said: str) -> None:
    refused = cli._refusal(RuntimeError(f"Job aborted.\n{error}\n\tat org.apache"), "/out")
    assert refused is not None
    assert refused.startswith(said)
    assert cli._refusal(RuntimeError("Job aborted."), "/out") is None


def test_what_there_is_to_read_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Java takes seconds to start; until then a run would look as if it did nothing."""
    network.write(network.Plan(hosts=2, sources=1, messages=20), tmp_path / "in")
    given = cli.arguments(["run", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")])
    with cli._ready(given) as size:
        assert capsys.readouterr().err.startswith("run: 2 files, ")
    assert size


def test_ingest_reports_in_plain_lines(tmp_path: Path) -> None:
    network.write(network.Plan(hosts=2, sources=1, messages=200), tmp_path / "in")
    output = tmp_path / "out"
    ended = command(
        "ingest", "--input", str(tmp_path / "in"), "--output", str(output), "--master", "local[2]"
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    lines = ended.stderr.splitlines()
    # Before Spark starts: what is read, and how much.
    assert lines[0].startswith("ingest: 2 files, ")
    assert lines[0].endswith(f"B in {tmp_path / 'in'}")
    assert lines[1].startswith("ingest: batch 0, ")
    assert lines[2].startswith("ingest  ")
    assert len(lines) == 3
    assert "\x1b" not in ended.stderr


def test_continuous_ingests_new_files_until_terminated(tmp_path: Path) -> None:
    network.write(network.Plan(hosts=2, sources=1, messages=200), tmp_path / "in")
    arguments = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--master", "local[2]"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bccnd.pipeline.cli", "ingest", "--continuous", *arguments],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for batch in (0, 1):
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not (tmp_path / "out" / "checkpoint" / "taken" / f"{batch}.json").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if batch == 0:
                network.write(network.Plan(hosts=2, sources=1, messages=200, seed=2), tmp_path / "in")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == cli.INTERRUPTED
    assert [line.split(",")[0] for line in said.splitlines()] == [
        "ingest: 2 files",
        "ingest: batch 0",
        "ingest: batch 1",
    ]


def test_report_on_this_machine_starts_no_java(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", 3, minutes=60)
    ended = ran("report", "--output", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "Problem: " in ended.stdout
    assert "</html>" in (tmp_path / "report.html").read_text()
