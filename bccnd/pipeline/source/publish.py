"""``write`` and ``writeStream`` of the format ``bccn``: rows become messages, published from where the rows are.

    frame.select("channel", "payload").write.format("bccn").mode("append").save()
    frame.writeStream.format("bccn").option("checkpointLocation", DIR).start()

    channel (string), payload (string or binary; null is empty): these two columns and no others
    socket     the daemon's socket on each executor's host; default as for ``bccn``
    timeout    seconds to wait for the daemon, default 10

Rules
- A task ends when the daemon has taken all its rows. Otherwise it fails with the reason, and Spark repeats it.
- So messages come at least once: what a task published before it failed, or a batch before the driver was killed,
  comes again. A message that must count once carries an id that is the same every time it is made: a hash of what it
  is about (as ``bccnd.pipeline.alerts`` does), never a random number or the time.
- A row that the daemon rejects is an error that names it: too large, not a channel, no right to publish there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType

import bccn
from bccnd.errors import ConfigError, RefusedError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "bccn"
# Rows between two answers of the daemon: among these a rejected row is looked for.
WINDOW = 1024
# Seconds.
TIMEOUT = 10.0
# What to do where a door or a daemon does not let this program in, by the code of the error.
REMEDIES = {
    "limit": "end some programs of this user, have Spark run fewer tasks at once, or raise the limits of the door",
    "refused": "the group of the socket, or of a door by TLS its settings, say who may",
}

Row = tuple[str | None, bytes | str | None]


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    messages: int


@dataclass(frozen=True, slots=True)
class Target:
    """The options, checked."""

    socket: str | None
    timeout: float

    @classmethod
    def of(cls, options: Any, schema: "StructType", *, overwrite: bool) -> "Target":
        """Raises ``ConfigError``."""
        kinds = {field.name: field.dataType for field in schema.fields}
        text, content = kinds.pop("channel", None), kinds.pop("payload", None)
        if not isinstance(text, StringType) or not isinstance(content, StringType | BinaryType) or kinds:
            raise ConfigError(
                f"{FORMAT}: publishes the columns channel (string) and payload (string or binary) and no others; "
                f"got {schema.simpleString()}"
            )
        if overwrite:
            raise ConfigError(f'{FORMAT}: what was published cannot be replaced; use mode("append")')
        try:
            timeout = float(options.get("timeout", TIMEOUT))
        except ValueError:
            raise ConfigError(f"{FORMAT}: timeout {options['timeout']}: must be seconds") from None
        return cls(options.get("socket"), timeout)

    def publish(self, batches: Iterator["pa.RecordBatch"]) -> Published:
        """Raises ``ConfigError`` or ``RefusedError`` naming the row that cannot be published, ``UnavailableError``
        without a daemon, ``RefusedError`` where the daemon or a door lets this program not in."""
        count = 0
        # Not needed: the barrier raises them.
        rejections: list[bccn.Notice] = []
        try:
            with bccn.Client(
                self.socket, pack=True, timeout=self.timeout, wait=self.timeout, on_notice=rejections.append
            ) as bus:
                for batch in batches:
                    channels, payloads = batch.column("channel"), batch.column("payload")
                    for at in range(0, batch.num_rows, WINDOW):
                        window = [
                            *zip(
                                channels[at : at + WINDOW].to_pylist(),
                                payloads[at : at + WINDOW].to_pylist(),
                                strict=True,
                            )
                        ]
                        _publish(bus, window, count)
                        count += len(window)
        except (bccn.UnavailableError, bccn.TimedOutError) as error:
            raise UnavailableError(f"{FORMAT}: {error}; {count} rows of {_task()} were published") from None
        except bccn.RejectedError as error:  # of the connection: that of a row has its own
            raise RefusedError(
                f"{FORMAT}: {error}; {REMEDIES.get(error.code, 'see the log there')}"
            ) from None
        return Published(count)


class BatchPublisher(DataSourceArrowWriter):
    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Published:
        return self._target.publish(iterator)


class StreamPublisher(DataSourceStreamArrowWriter):
    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Published:
        return self._target.publish(iterator)


def _publish(bus: bccn.Client, window: Sequence[Row], before: int) -> None:
    """Publish the rows, and return when the daemon has taken them all."""
    try:
        with bus.batch():
            for at, (channel, payload) in enumerate(window):
                if channel is None:
                    raise ConfigError(f"{FORMAT}: row {before + at} of {_task()}: its channel is null")
                try:
                    bus.publish(channel, payload or b"")
                except bccn.InvalidError as error:
                    raise ConfigError(f"{FORMAT}: row {before + at} of {_task()}: {error}") from None
        bus.barrier()
    except bccn.RejectedError as error:
        kind = RefusedError if isinstance(error, bccn.RefusedError) else ConfigError
        at = _rejected(window, error)
        raise kind(f"{FORMAT}: row {before + at} of {_task()}: {error}") from None


def _rejected(window: Sequence[Row], error: bccn.RejectedError) -> int:
    """Which row the daemon rejected. It names the channel; of the rows there, the largest is one it rejects."""
    named = [at for at, (channel, _) in enumerate(window) if error.text.startswith(f"MSG {channel}:")]
    return max(named, key=lambda at: len(window[at][1] or b""), default=0)


def _task() -> str:
    context = TaskContext.get()
    return f"partition {context.partitionId()}" if context else "the frame"
