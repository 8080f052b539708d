"""A driver of its own, to be killed: the bus into ``<folder>/out/batch=<id>``, as the pipeline writes."""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from bccnd.pipeline import session
from bccnd.pipeline.source import register
from tests.pipeline.source.spooling import run_query

SETTINGS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


def main() -> None:
    folder, socket = Path(sys.argv[1]), sys.argv[2]

    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / "out" / f"batch={number}"))

    with session.connect("local[2]", "live", SETTINGS) as spark:
        register(spark)
        rows = (
            spark.readStream.format("bccn")
            .options(spool=str(folder / "spool"), socket=socket, seconds=0.2, linger=300)
            .load()
        )
        run_query(
            rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
        )


main()
