"""``bccnd/pipeline/hashing.py``: the hash is Spark's, so that a sample made by either is the same."""

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import hashing
from tests.pipeline.rows import frame

NUMBERS = (0, 1, 63, -1, 2**57 + 3, -(2**63), 2**63 - 1)
# Up to 31 bytes are hashed in another way than 32 and more.
STRINGS = [*("source/é/0123456789" * 5)[:71]]


def test_hash_is_that_of_spark(spark: SparkSession) -> None:
    names = ["".join(STRINGS[:length]) for length in range(len(STRINGS) + 1)]
    rows = [(name, number) for name in names for number in NUMBERS]
    hashed = F.xxhash64("src", "word").alias("hash")
    expected = {
        (row.src, row.word): row.hash
        for row in frame(spark, rows, "src string, word bigint").select("src", "word", hashed).collect()
    }
    for name in names:
        found = hashing.of_numbers(np.array(NUMBERS), hashing.of_string(name)).view(np.int64)
        assert found.tolist() == [expected[name, number] for number in NUMBERS]
