"""``bccnd/pipeline/lookups.py``."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812


def test_java_is_asked_for_a_function_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    client, asked = spark._jvm._gateway_client, list[str]()  # type: ignore[union-attr]
    send = client.send_command
    monkeypatch.setattr(
        client, "send_command", lambda command, *of: asked.append(command) or send(command, *of)
    )

    def column() -> str:
        asked.clear()
        return str(F.coalesce(F.col("a"), F.lit(1)).alias("b"))

    first = column()
    assert column() == first == "Column<'coalesce(a, 1) AS b'>"
    # A look-up begins with r; calls are all that is left.
    assert [command for command in asked if command[0] == "r"] == []
    assert sum(command.startswith("c\n") for command in asked) > len("abc")
