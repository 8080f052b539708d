"""``bccnd/pipeline/steps.py``."""

from collections import defaultdict

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import steps
from bccnd.pipeline.layout import OF_ONE_HOST
from tests.pipeline.analysed import Analysed
from tests.pipeline.rows import at, frame


@pytest.mark.parametrize(
    ("seconds", "step"), [(0, 1), (239, 1), (240, 2), (1000, 5), (3599, 15), (3600, None), (86400, None)]
)
def test_step_is_shorter_than_a_minute_in_short_records(seconds: int, step: int | None) -> None:
    assert steps.seconds_of(seconds * 10**9) == step


def test_steps_of_a_short_record_are_of_all_and_of_the_worst(analysed: Analysed) -> None:
    whole = {(row.sender, row.receiver): (row.sent, row.lost) for row in analysed.table("delivery").collect()}
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in analysed.table("steps").collect():
        # 300 seconds, and EDGE_SECONDS before and after.
        assert (row.seconds, row["from"].second % 2) == (2, 0)
        sums[row.sender, row.receiver][0] += row.sent
        sums[row.sender, row.receiver][1] += row.lost
    assert tuple(sums.pop(("", ""))) == tuple(map(sum, zip(*whole.values(), strict=True)))
    assert {pair: tuple(counts) for pair, counts in sums.items()} == whole  # all nine lost some


def test_worst_pairs_are_few_of_one_host(spark: SparkSession) -> None:
    lost = [(f"s{number}", "bad", at(0), 100 + number) for number in range(6)]
    lost += [("s0", "r", at(0), 1), ("s1", "r", at(0), 0), ("r", "r", at(0), 99)]
    minutes = frame(spark, lost, "sender string, receiver string, minute timestamp, lost bigint")
    found = {(row.sender, row.receiver) for row in steps.worst_pairs(minutes).collect()}
    assert found == {*((f"s{number}", "bad") for number in range(2, 2 + OF_ONE_HOST)), ("s0", "r")}
