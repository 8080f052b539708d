"""The format ``bccn``: ``readStream`` reads the bus (``live``); ``write`` and ``writeStream`` publish on it."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from bccnd.pipeline.source import rows
from bccnd.pipeline.source.live import FORMAT, LiveOptions, LiveReader
from bccnd.pipeline.source.publish import BatchPublisher, StreamPublisher, Target

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BusSource(DataSource):
    """The format as Spark looks it up, by its name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return rows.ROWS

    def streamReader(self, schema: "StructType") -> LiveReader:  # noqa: N802
        return LiveReader(LiveOptions.of(self.options), schema.names)

    def writer(self, schema: "StructType", overwrite: bool) -> BatchPublisher:
        return BatchPublisher(Target.of(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamPublisher:  # noqa: N802
        return StreamPublisher(Target.of(self.options, schema, overwrite=overwrite))
