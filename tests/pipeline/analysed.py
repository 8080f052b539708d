"""A generated network with known losses, ingested and analysed once for all tests that look at the tables."""

import io
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from bccnd.pipeline.analyse import Span, analyse
from bccnd.pipeline.ingest import Batch, ingest
from bccnd.pipeline.layout import TABLES, Output
from bccnd.pipeline.progress import Progress
from tests.pipeline import network
from tests.pipeline.plans import adapting

PLAN = network.Plan(
    hosts=4,
    sources=2,
    messages=4000,
    seconds=300,
    burst=0.004,
    duplicate=0.01,
    reorder=0.01,
    restarts=True,
    clock_step=0.25,
    silent={2: (100, 160)},
    deaf={(0, 1): (120, 180)},
    unrecorded=frozenset({3}),
    forged=7,
    local=11,
    file_rows=4000,
    seed=7,
)
RECORDED = [PLAN.name(host) for host in (0, 1, 2)]


class Analysed:
    """The recorded files of PLAN, the truth about them, and the tables."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.recorded, self.output = directory / "in", Output(str(directory / "out"))
        self.truth = network.write(PLAN, self.recorded)
        batches: list[Batch] = []
        self.progress = io.StringIO()
        with adapting(spark):
            ingest(spark, str(self.recorded), self.output, batches.append)
            assert sum(batch.rows for batch in batches) == self.truth.rows
            analyse(spark, self.output, Span(), Progress(None, self.progress))
        self._spark = spark

    def table(self, name: str) -> DataFrame:
        return self._spark.read.schema(TABLES[name]).parquet(f"{self.output.tables}/{name}")

    def by_pair(self, name: str, where: str = "true") -> dict[tuple[str, str], list[Row]]:
        rows = defaultdict(list)
        for row in self.table(name).where(where).collect():
            rows[row.sender, row.receiver].append(row)
        return rows
