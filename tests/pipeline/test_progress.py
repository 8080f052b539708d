"""``bccnd/pipeline/progress.py``."""

import io
import re
import time

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import progress
from bccnd.pipeline.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_step_has_a_line() -> None:
    stream = io.StringIO()
    with Progress(None, stream) as shown:
        with shown.step("one"):
            shown.say("a word")
        with pytest.raises(OSError, match="full"), shown.step("two"):
            raise OSError("full")
    first, second = stream.getvalue().splitlines()
    assert first == "a word"
    assert second.startswith("one  ")


def test_terminal_has_one_line_that_follows_the_stage(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)
    stream = Terminal()
    deadline = time.monotonic() + 60
    with Progress(spark.sparkContext, stream) as shown, shown.step("counting"):
        while not re.search(r"counting  \d+ s, stage ", stream.getvalue()) and time.monotonic() < deadline:
            spark.range(0, 1_000_000, 1, 4).selectExpr("sum(hash(id))").collect()
    said = stream.getvalue()
    assert "of 4 tasks" in said
    assert said.count("\n") == 1
    assert "\r\x1b[Kcounting  " in said
    assert said.endswith(" s\n\r\x1b[K")
