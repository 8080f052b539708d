"""The format ``bccn``: ``readStream`` is the bus, live (``live``); ``write``, ``writeStream`` publish there."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from bccnd.pipeline.source import rows
from bccnd.pipeline.source.live import FORMAT, LiveReader, Settings
from bccnd.pipeline.source.publish import BatchPublisher, StreamPublisher, Target

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BusSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return rows.ROWS

    def streamReader(self, schema: "StructType") -> LiveReader:  # noqa: N802
        return LiveReader(Settings.of(self.options), schema.names)

    def writer(self, schema: "StructType", overwrite: bool) -> BatchPublisher:
        return BatchPublisher(Target.of(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamPublisher:  # noqa: N802
        return StreamPublisher(Target.of(self.options, schema, overwrite=overwrite))
