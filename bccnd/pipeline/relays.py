"""Sources of other segments that a host relays here (marks ``relayed``): here they count as separate sources.

    north: n2 sends n2/a/1, numbers 1 to 9     south: s1 relays 1, 4 and 7 of it; its filter left out the others
    words of n2/a/1, of n2                     words of ``n2/a/1 via s1``: sent by s1, received by the others

Rules
- Where a source is relayed, the host that relays it is its sender: others can lose only what that host brought. This
  does not concern the segment that the source is on.
- Without a record of the host that relays, losses are the gaps in the numbers, less what was left out. If nobody said
  what was left out of a source, its gaps are no losses: a filter may have made them.
- Where several hosts relay to one segment, each of them that has a record is a sender of what it brought, and a
  receiver of what the others brought.
- A file may come from another host and say anything. A range of more numbers than a daemon may name is ignored. If
  more than WORDS_OF_SOURCE was left out of a source, the source is ignored: its gaps are no losses, either. The same
  holds beyond WORDS_OF_HOST for one host that relays, and beyond WORDS for all of them. Sources with little come
  first, since names cost nothing.
- A relayed message came from the address of the host that relays it, if only one does. Relayed heartbeats show
  nothing about silence.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import storage
from bccnd.pipeline.layout import VIA
from bccnd.pipeline.words import SEEN_NS, SENT_NS, so_far
from bccnd.recorder.layout import Mark
from bccnd.wire.repair import OFFSET_LIMIT

# As 64 numbers each: a hundred messages a second for a week. A line of a datagram can name 16,384.
WORDS_OF_SOURCE = 1 << 20
# A hundred such sources for seven hours.
WORDS_OF_HOST = 1 << 22
# Rows of 50 bytes: 800 MB.
WORDS = 1 << 24
_SAID = "by string, sources array<struct<src: string, left_out: array<array<decimal(20,0)>>>>"


class Cut(NamedTuple):
    sources: int
    numbers: int


class Relays(NamedTuple):
    """``via``: (host, src, via, alone), what is relayed where: ``via`` has its name there; a row for each host that
    relays it, ``alone`` if no other one does. ``left_out``: (src, word, known), by that name, as bits. ``cut``:
    of how many sources nothing is in it because there was too much, and how many numbers that was.
    """

    via: DataFrame
    left_out: DataFrame
    cut: "Cut"

    def words(self, digests: DataFrame) -> DataFrame:
        """``words.digest`` by these names."""
        slot = F.when(self._brought(), F.expr(f"slot div {SEEN_NS // SENT_NS}")).otherwise(F.col("slot"))
        return self._named(digests, slot=slot)

    def sample(self, sampled: DataFrame) -> DataFrame:
        """``latency.sample`` by these names."""
        return self._named(sampled)

    def heard(self, talk: DataFrame) -> DataFrame:
        """``segments.digest`` by these names; without one where several hosts relay."""
        one = self.via.groupBy("host", "src").agg(F.min("via").alias("via"), F.every("alone").alias("alone"))
        src = F.when(F.col("via").isNull(), F.col("src")).when(F.col("alone"), F.col("via")).alias("src")
        others = [name for name in talk.columns if name != "src"]
        return talk.join(F.broadcast(one), ["host", "src"], "left").select(*others, src)

    def beats(self, digests: DataFrame) -> DataFrame:
        """``liveness.digest`` without what is relayed."""
        return digests.join(F.broadcast(self.via), ["host", "src"], "left_anti")

    def gaps(self, found: DataFrame) -> DataFrame:
        """``loss.gaps`` without those of relayed sources of which nobody said what was left out."""
        told = F.broadcast(self.left_out.select("src", F.lit(True).alias("told")).distinct())
        counts = ~F.col("src").contains(VIA) | F.coalesce("told", F.lit(False))
        return (
            found.join(told, "src", "left")
            .withColumn("before", F.when(counts, F.col("before")).otherwise(0).cast("bigint"))
            .withColumn("inside", F.when(counts, F.col("inside")).otherwise(0).cast("bigint"))
            .select(*found.columns)
        )

    def _named(self, frame: DataFrame, **others: Column) -> DataFrame:
        changed = {
            **others,
            "direction": F.when(self._brought(), "in").otherwise(F.col("direction")),
            "src": F.coalesce("via", "src"),
        }
        columns = [changed.get(name, F.col(name)).alias(name) for name in frame.columns]
        return frame.join(F.broadcast(self.via), ["host", "src"], "left").select(*columns)

    def _brought(self) -> Column:
        """Whether a host had it from a link, and what it is named after from another host."""
        return (
            (F.col("direction") == "out")
            & F.col("via").isNotNull()
            & (F.substring_index("via", VIA, -1) != F.col("host"))
        )


def said(marks: DataFrame) -> DataFrame:
    """``coverage.digest`` -> (host, by, src, left_out array<array<decimal>>): what host ``host`` heard that ``by``
    relays.
    """
    return (
        marks.where(F.col("verdict") == Mark.RELAYED)
        .withColumn("said", F.from_json(F.col("payload").cast("string"), _SAID))
        .select("host", "said.by", F.explode("said.sources").alias("source"))
        .select("host", "by", "source.src", "source.left_out")
        .where("by IS NOT NULL AND src IS NOT NULL")
    )


def relays(marks: DataFrame, recorded: Iterable[str], keep: Callable[[DataFrame], DataFrame]) -> Relays:
    """``coverage.digest`` and the recorded hosts -> what is relayed. ``keep`` is given frames that are used again."""
    told = keep(said(marks))
    together = (
        told.groupBy("host", "src")
        .agg(F.array_sort(F.collect_set("by")).alias("relaying"))
        .select("relaying")
        .distinct()
        .collect()
    )
    found = senders((row.relaying for row in together), recorded)
    rows = [(by, sender) for by, group in found.items() for sender in group.senders]
    ones, others = [*zip(*rows, strict=True)] or [(), ()]
    several = [by for by, group in found.items() if group.size > 1]
    named = F.broadcast(storage.of_strings(marks.sparkSession, {"by": ones, "sender": others}))
    via = F.concat("src", F.lit(VIA), "sender").alias("via")
    alone = (~F.col("by").isin(several)).alias("alone")
    ranges = told.join(named, "by").select(via.alias("src"), F.explode("left_out").alias("range"))
    few, cut = _bounded(_ranges(ranges), keep)
    return Relays(
        keep(told.join(named, "by").select("host", "src", via, alone).distinct()), keep(_words(few)), cut
    )


class Group(NamedTuple):
    """The hosts that relay to one segment: how many, and which of them are the senders of what they relay."""

    size: int
    senders: list[str]


def senders(together: Iterable[Iterable[str]], recorded: Iterable[str]) -> dict[str, Group]:
    """Hosts that relay the same source to the same host relay to one segment -> the group of each host that relays.

    Its senders are those with a record, or else the first by name.
    """
    groups: list[set[str]] = []
    for hosts in map(set, together):
        touched = [group for group in groups if group & hosts]
        groups = [group for group in groups if not group & hosts] + [reduce(set.union, touched, hosts)]
    known = {*recorded}
    return {
        host: Group(len(group), sorted(group & known) or [min(group)])
        for group in groups
        for host in sorted(group)
    }


def _ranges(ranges: DataFrame) -> DataFrame:
    """(src, range array<decimal>, of the first and the last number) -> (src, first_word, first_bit, last_word,
    last_bit, numbers), each once: all who heard it wrote it down.
    """
    return (
        ranges.where("size(range) = 2 AND range[0] <= range[1]")
        .where(F.expr(f"range[1] - range[0] < {OFFSET_LIMIT}"))
        .selectExpr(
            "src",
            "range[0] div 64 AS first_word",
            "CAST(range[0] % 64 AS int) AS first_bit",
            "range[1] div 64 AS last_word",
            "CAST(range[1] % 64 AS int) AS last_bit",
            "CAST(range[1] - range[0] + 1 AS bigint) AS numbers",
        )
        .distinct()
    )


def _bounded(ranges: DataFrame, keep: Callable[[DataFrame], DataFrame]) -> tuple[DataFrame, Cut]:
    """``_ranges`` -> those of sources that are looked at, and what was cut."""
    sums = (
        ranges.groupBy("src")
        .agg(F.sum(F.expr("last_word - first_word + 1")).alias("words"), F.sum("numbers").alias("numbers"))
        .withColumn("host", F.substring_index("src", VIA, -1))
    )
    least = Window.partitionBy("host").orderBy("words", "src")
    of_host = sums.withColumn("before", so_far(F.col("words"), least))
    fits = f"words <= {WORDS_OF_SOURCE} AND before <= {WORDS_OF_HOST}"
    # In turns: what is little of its host comes before what is not.
    of_all = of_host.where(fits).withColumn("all", so_far(F.col("words"), Window.orderBy("before", "src")))
    many = keep(
        of_host.where(f"NOT ({fits})")
        .select("src", "numbers")
        .unionByName(of_all.where(F.col("all") > WORDS).select("src", "numbers"))
    )
    row = many.agg(F.count("*"), F.coalesce(F.sum("numbers"), F.lit(0))).first()
    few = ranges.join(F.broadcast(many), "src", "left_anti")
    return few, Cut(*row) if row else Cut(0, 0)


def _words(ranges: DataFrame) -> DataFrame:
    """``_ranges`` -> (src, word, known)."""
    low, high = "IF(word = first_word, first_bit, 0)", "IF(word = last_word, last_bit, 63)"
    return (
        ranges.withColumn("word", F.explode(F.expr("sequence(first_word, last_word)")))
        .groupBy("src", "word")
        .agg(F.bit_or(F.expr(f"shiftleft(-1L, {low}) & shiftrightunsigned(-1L, 63 - {high})")).alias("known"))
    )
