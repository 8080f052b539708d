"""Cases of literal rows that know nothing of each other, and what the record says of the pairs of all of them.

Spark plans a query as long for one case as for ten, so what ``delivery`` and ``guesses`` make is made of all at once.
A host of a case has the name of the case behind its own, and an address that no other case has.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from bccnd.pipeline import coverage, delivery, guesses, latency, loss, segments, words
from bccnd.pipeline.analyse import Keeping
from tests.pipeline.rows import frame, traffic

SLOT_NS = 10**10
DELAYS = "sender string, receiver string, hour timestamp, repaired boolean, delay_ns bigint"
FASTEST = "sender string, receiver string, hour timestamp, there bigint, offset double"
OFFSETS = "sender string, receiver string, least_ns bigint, most_ns bigint"

_PEER, _SRC, _HOST = 5, 6, -1
Rows = list[tuple[Any, ...]]
Pair = tuple[str, str]


class Made:
    """``ahead`` are clocks of a case, as seconds by which a receiver's is ahead.

    What ``analyse`` keeps is kept here: of frames that are made of one another Spark would plan all again and again.
    """

    def __init__(
        self, spark: SparkSession, cases: Mapping[str, Rows], ahead: Mapping[str, Mapping[Pair, int]]
    ) -> None:
        self._spark, self._keep = spark, Keeping(spark)
        keep = self._keep
        every = enumerate(cases.items(), 1)
        all_rows = traffic(
            spark, [_of_case(row, case, number) for number, (case, rows) in every for row in rows]
        )
        numbers = keep.placed(words.of(words.digest(all_rows), SLOT_NS))
        owned = keep(delivery.owners(delivery.present(numbers)))
        stretches = keep(coverage.stretches(all_rows, keep(coverage.coverage(all_rows))))
        clocks = [
            (f"{sender}-{case}", f"{receiver}-{case}", seconds * 10**9, seconds * 10**9)
            for case, pairs in ahead.items()
            for (sender, receiver), seconds in pairs.items()
        ]
        offsets = frame(spark, clocks, OFFSETS)
        found = segments.whom(keep(segments.heard(segments.digest(all_rows))), owned)[1]
        hosts = [row.host for row in stretches.select("host").collect()]
        places = [place for case in cases for place in _segments(case, found, hosts)]
        receivers = keep(delivery.pairs(owned, segments.frame(all_rows, places), stretches, offsets))
        self._sent = keep(delivery.sent(numbers, owned))
        received = delivery.received(numbers, self._sent)
        self._matched = keep(delivery.matched(self._sent, received, receivers, SLOT_NS))
        gaps = keep(loss.gaps(keep(loss.seen(numbers)), stretches))
        self._guessed = keep(guesses.by_gaps(gaps, self._sent, owned, stretches, offsets))
        self._by_minute = keep(delivery.by_minute(self._matched, SLOT_NS))
        self._counted = keep(delivery.counted(self._by_minute, self._guessed))
        self._bursts = keep(delivery.bursts(self._matched, self._sent, SLOT_NS))
        self._guessed_bursts = keep(guesses.guessed_bursts(self._guessed))

    def counts(self, case: str) -> dict[Pair, tuple[int, int]]:
        """Sent and lost, of each pair."""
        sums: dict[Pair, list[int]] = defaultdict(lambda: [0, 0])
        for row in self.by_minute[case]:
            counts = sums[row.sender, row.receiver]
            counts[:] = counts[0] + row.sent, counts[1] + row.lost
        return {pair: (sent, lost) for pair, (sent, lost) in sums.items()}

    # Each has the rows of every case.

    @cached_property
    def by_minute(self) -> dict[str, list[Row]]:
        return _cases(self._by_minute)

    @cached_property
    def counted(self) -> dict[str, list[Row]]:
        return _cases(self._counted)

    @cached_property
    def bursts(self) -> dict[str, list[Row]]:
        return _cases(self._bursts.orderBy("from_ns"))

    @cached_property
    def guessed(self) -> dict[str, list[Row]]:
        return _cases(self._guessed)

    @cached_property
    def guessed_bursts(self) -> dict[str, list[Row]]:
        return _cases(self._guessed_bursts.orderBy("from_ns"))

    @cached_property
    def guessed_outages(self) -> dict[str, list[Row]]:
        return _cases(delivery.outages(self._guessed_bursts).orderBy("from_ns"))

    @cached_property
    def by_source(self) -> dict[str, list[Row]]:
        return _cases(delivery.by_source(delivery.sums(self._matched, SLOT_NS), self._guessed))

    @cached_property
    def senders(self) -> dict[str, list[Row]]:
        return _cases(delivery.senders(self._matched, SLOT_NS))

    @cached_property
    def delivery(self) -> dict[str, list[Row]]:
        empty = latency.latency(frame(self._spark, [], DELAYS), frame(self._spark, [], FASTEST))
        return _cases(delivery.delivery(self._counted, self._bursts, empty))


def _of_case(row: tuple[Any, ...], case: str, number: int) -> tuple[Any, ...]:
    changed = [*row]
    changed[_HOST] = f"{row[_HOST]}-{case}"
    if row[_SRC] is not None:
        host, slash, program = row[_SRC].partition("/")
        changed[_SRC] = f"{host}-{case}/{program}" if slash else row[_SRC]
    if row[_PEER] is not None:
        changed[_PEER] = row[_PEER].replace("10.0.", f"10.{number}.")
    return tuple(changed)


def _segments(case: str, found: set[segments.Heard], hosts: list[str]) -> list[Pair]:
    """As if no other case were recorded."""
    heard = [row for row in found if row.host.endswith(f"-{case}")]
    return [*segments.segments(heard, [host for host in hosts if host.endswith(f"-{case}")])]


def _cases(rows: DataFrame) -> dict[str, list[Row]]:
    """The rows of each case, with the names that its hosts have there."""
    found = defaultdict[str, list[Row]](list)
    for row in rows.collect():
        case = row.sender.rpartition("-")[2]
        values = (value.replace(f"-{case}", "") if isinstance(value, str) else value for value in row)
        found[case].append(Row(*row.__fields__)(*values))
    return found
