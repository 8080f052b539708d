"""The two main results of the pipeline, computed from the recorded files by DuckDB with queries written by hand.

The method is the pipeline's, words of 64 numbers. It was the fastest in DuckDB too: for ten million messages the
losses by source took 3.5 s of processor time and 340 MB; a window over all rows took 13 s and 1.4 GB. The queries
leave out what the generated traffic does not have: gaps in the records, hosts without records, and numbers that are
used again.

    python -m tests.bench.by_hand DIR OUTPUT
"""

import sys
from pathlib import Path

import duckdb

THREADS = 2
MINUTE_NS = 60 * 10**9

# ruff: noqa: S608 - queries of constants
RECEIVED = "verdict IN ('ok', 'duplicate', 'late') AND src <> '?'"
DELIVERED = "FILTER (WHERE verdict = 'ok')"
DELIVERY = f"""
WITH words AS (
    SELECT host, direction, src, seq // 64 AS word, bit_or(1::UBIGINT << (seq % 64)::INT) {DELIVERED} AS bits
    FROM recorded WHERE direction IN ('in', 'out') AND {RECEIVED} GROUP BY ALL
), sent AS (
    SELECT any_value(host) AS sender, src, sum(bit_count(bits)) AS sent
    FROM words WHERE direction = 'out' GROUP BY src
), received AS (
    SELECT host AS receiver, src, sum(bit_count(bits)) AS received
    FROM words WHERE direction = 'in' GROUP BY ALL
)
SELECT sender, receiver, sum(sent)::BIGINT AS sent, sum(sent - coalesce(received, 0))::BIGINT AS lost
FROM sent JOIN (SELECT DISTINCT host AS receiver FROM words) ON receiver <> sender
LEFT JOIN received USING (receiver, src) GROUP BY ALL
"""
SOURCES = f"""
WITH words AS (
    SELECT host AS receiver, src, seq // 64 AS word, time_ns // {MINUTE_NS} AS slot, min(time_ns) AS since,
           bit_or(1::UBIGINT << (seq % 64)::INT) {DELIVERED} AS bits, min(seq) {DELIVERED} AS low,
           max(seq) {DELIVERED} AS high, count(*) FILTER (WHERE verdict <> 'late') AS messages
    FROM recorded WHERE direction = 'in' AND {RECEIVED} GROUP BY ALL
), steps AS (
    SELECT *, word::BIGINT - lag(word) OVER (PARTITION BY receiver, src ORDER BY since)::BIGINT AS step FROM words
), epochs AS (
    SELECT *, count(*) FILTER (step < -16 OR step > 16384)
        OVER (PARTITION BY receiver, src ORDER BY since ROWS UNBOUNDED PRECEDING) AS epoch FROM steps
), joined AS (
    SELECT receiver, src, epoch, word, bit_or(bits) AS bits, min(low) AS low, max(high) AS high,
           sum(messages) AS messages FROM epochs GROUP BY ALL
), counted AS (
    SELECT receiver, src, sum(messages) AS messages, sum(bit_count(bits)) AS received,
           max(high) - min(low) + 1 AS span
    FROM joined GROUP BY receiver, src, epoch
)
SELECT receiver, src, sum(received)::BIGINT AS received, sum(span - received)::BIGINT AS lost,
       sum(messages - received)::BIGINT AS duplicates
FROM counted GROUP BY ALL
"""


def main(recorded: Path, output: Path) -> None:
    """``delivery.parquet`` (sender, receiver, sent, lost), ``sources.parquet`` (receiver, src, received, lost,
    duplicates) in ``output``.
    """
    database = duckdb.connect()
    database.execute(f"SET threads = {THREADS}")
    files = f"read_parquet('{recorded}/*/*/*.parquet', hive_partitioning = true)"
    database.execute(f"CREATE VIEW recorded AS FROM {files}")
    for name, query in (("delivery", DELIVERY), ("sources", SOURCES)):
        database.execute(f"COPY ({query}) TO '{output / name}.parquet' (FORMAT parquet)")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
