"""The format ``bccn``: ``readStream`` is the live bus (``live``), ``write`` and ``writeStream`` publish (``publish``)."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from bccnd.pipeline.source import rows
from bccnd.pipeline.source.live import FORMAT, LiveReader, Settings

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
