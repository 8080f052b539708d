"""``bccnd/pipeline/analyse.py``: the tables say what was put into the network."""

import io
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.errors import ConfigError
from bccnd.pipeline import analyse as analysis
from bccnd.pipeline import loss, storage, versions, words
from bccnd.pipeline.analyse import Keeping, Span, analyse
from bccnd.pipeline.ingest import ingest
from bccnd.pipeline.layout import TABLES, Output
from bccnd.pipeline.progress import Progress
from tests.pipeline import network
from tests.pipeline.analysed import PLAN, RECORDED, Analysed
from tests.pipeline.plans import adapting
from tests.pipeline.rows import datagram, traffic


@pytest.fixture(scope="module", autouse=True)
def as_commands_run(spark: SparkSession) -> Iterator[None]:
    with adapting(spark):
        yield


def test_every_table_is_written_and_reported(analysed: Analysed) -> None:
    for name in TABLES:
        # No recorder of the network gives accounts, and it has no links.
        assert (analysed.table(name).count() > 0) == (name not in ("drops", "links")), name
        assert f": {name}  " in analysed.progress.getvalue()


def test_words_of_a_source_move_once(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [datagram("c", second, "a/p/1", second) for second in range(200)]
    numbers = words.of(words.digest(traffic(spark, rows)), 10**10)
    loss.seen(Keeping(spark).placed(numbers)).explain()
    plan = capsys.readouterr().out
    assert "Window" in plan
    assert "Exchange" not in plan


def test_what_an_executor_loses_is_computed_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(analysis, "_is_cluster", lambda _spark: True)
    keep, context = Keeping(spark), spark.sparkContext._jsc.sc()
    kept = keep(spark.range(9).groupBy((F.col("id") % 3).alias("rest")).count())
    kept.explain()
    assert "Aggregate" not in capsys.readouterr().out
    rows = sorted(kept.collect())
    assert rows == [(0, 3), (1, 3), (2, 3)]
    newest = max(context.getRDDStorageInfo(), key=lambda stored: stored.id())
    assert newest.numCachedPartitions() > 0
    context.unpersistRDD(newest.id(), True)
    assert newest.id() not in [stored.id() for stored in context.getRDDStorageInfo()]
    assert sorted(kept.collect()) == rows
    assert kept.storageLevel.useMemory
    keep.release()
    assert not kept.storageLevel.useMemory


def test_tasks_have_the_settings_while_a_frame_is_cut_off(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "_is_cluster", lambda _spark: True)
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        keep = Keeping(spark)
        # A task that lacks the setting refuses the second 1.
        sizes = spark.range(2).selectExpr("size(map_from_arrays(array(1, 1), array(id, 2))) AS size")
        assert keep(sizes.groupBy("size").count()).collect() == [(1, 2)]
        keep.release()
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")


def test_recorded_pairs_lost_exactly_what_was_injected(analysed: Analysed) -> None:
    found = analysed.by_pair("delivery", "basis = 'record'")
    assert set(found) == {(a, b) for a in RECORDED for b in RECORDED if a != b}
    for pair, (row,) in found.items():
        lost = analysed.truth.lost[pair]
        assert (row.sent, row.lost, row.received) == (
            analysed.truth.sent[pair],
            lost,
            analysed.truth.sent[pair] - lost,
        )
        lengths = analysed.truth.bursts[pair]
        assert (row.bursts, row.burst_max) == (len(lengths), max(lengths))
        assert row.burst_p50 == lengths[(len(lengths) - 1) // 2]
        assert row.loss == pytest.approx(lost / row.sent)


def test_minutes_add_up_and_the_deaf_minute_is_found(analysed: Analysed) -> None:
    for pair, rows in analysed.by_pair("minutes").items():
        if pair[0] in RECORDED:
            assert sum(row.sent for row in rows) == analysed.truth.sent[pair]
            assert sum(row.lost for row in rows) == analysed.truth.lost[pair]
    deaf = analysed.by_pair("episodes")[PLAN.name(0), PLAN.name(1)]
    assert sum(row.lost for row in deaf) == analysed.truth.lost[PLAN.name(0), PLAN.name(1)]
    worst = [
        row.minute.minute for row in analysed.by_pair("minutes", "lost = sent")[PLAN.name(0), PLAN.name(1)]
    ]
    assert worst == [2]


def test_loss_of_unrecorded_senders_comes_from_gaps(analysed: Analysed) -> None:
    found = analysed.by_pair("delivery", "basis = 'gaps'")
    assert set(found) == {(PLAN.name(3), name) for name in RECORDED}
    for pair, (row,) in found.items():
        lost = analysed.truth.lost[pair]
        # Loss before the first or after the last number of an epoch stays unseen; there are six epochs.
        assert lost - 6 * 15 <= row.lost <= lost
        assert row.sent - row.lost == analysed.truth.sent[pair] - lost


def test_clock_offsets_and_latencies_are_those_injected(analysed: Analysed) -> None:
    for (sender, receiver), (row,) in analysed.by_pair("delivery", "basis = 'record'").items():
        ahead = (int(receiver[-3:]) - int(sender[-3:])) * PLAN.clock_step * 1e6
        assert row.latency_method == "both-ways"
        assert row.clock_offset_us == pytest.approx(ahead, abs=50)
        assert 150 < row.latency_p50_us < row.latency_p90_us < row.latency_p99_us < row.latency_max_us


def test_duplicates_reordering_and_restarts_are_counted(analysed: Analysed) -> None:
    duplicates: dict[tuple[str, str], int] = defaultdict(int)
    restarts = []
    for row in analysed.table("sources").collect():
        duplicates[row.src.partition("/")[0], row.receiver] += row.duplicates
        if "bccnd" not in row.src:
            restarts.append(row.restarts)
    # Of each host, one program restarts at 1, and one goes on with a leap.
    assert sorted(restarts) == [0] * 9 + [1] * 9
    reordered: dict[tuple[str, str], int] = defaultdict(int)
    for row in analysed.table("reordering").collect():
        reordered[row.src.partition("/")[0], row.receiver] += row.reordered
        assert (row.distance_p50, row.distance_max) == (3, 3)
    recorded = {pair for pair in analysed.truth.sent if pair[1] in RECORDED}
    assert dict(duplicates) == {pair: analysed.truth.duplicates[pair] for pair in recorded}
    assert dict(reordered) == {pair: analysed.truth.reordered[pair] for pair in recorded}


def test_silences_rejected_channels_and_coverage_are_found(analysed: Analysed) -> None:
    # Shorter ones are beats that were lost.
    silences = analysed.table("silences").where(f"src LIKE '{PLAN.name(2)}/%' AND seconds > 40").collect()
    assert {row.observer for row in silences} == {PLAN.name(0), PLAN.name(1)}
    assert all(55 <= row.seconds <= 75 and row.expected_s == pytest.approx(5, abs=1) for row in silences)
    rejected = analysed.table("rejected").collect()
    assert {(row.host, row.verdict, row.peer, row.datagrams, row.example_channel) for row in rejected} == {
        (name, "hmac", "10.0.9.9", 7, "plant/stop") for name in RECORDED
    }
    messages = {row.channel: row.messages for row in analysed.table("channels").collect()}
    assert messages["local/work"] == 11 * 3
    assert messages[f"plant/{PLAN.name(0)}/values/1"] == PLAN.messages
    spans = analysed.table("coverage").collect()
    assert {(row.host, row.until_ns - row.from_ns, row.unrecorded) for row in spans} == {
        (name, (300 + 2 * network.EDGE_SECONDS) * 10**9, 0) for name in RECORDED
    }


def test_tables_stay_while_nothing_is_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.write(network.Plan(hosts=2, sources=1, messages=20, seconds=20), tmp_path / "in")
    output = Output(str(tmp_path / "out"))
    ingest(spark, str(tmp_path / "in"), output, [].append)
    analyse(spark, output, Span(), Progress(None, io.StringIO()))
    begun: list[Output] = []
    monkeypatch.setattr(versions, "begin", lambda _, output: begun.append(output) or 1 / 0)

    def is_new(span: Span) -> bool:
        before = len(begun)
        with suppress(ZeroDivisionError):
            analyse(spark, output, span, Progress(None, io.StringIO()))
        return len(begun) > before

    link, batch = Path(output.tables), Path(output.batch(0))
    taken, planned = (Path(output.checkpoint, name, "0.json") for name in ("taken", "planned"))
    planned.parent.mkdir(exist_ok=True)
    assert not is_new(Span())
    assert is_new(Span(0))
    written = (batch / "_SUCCESS").stat().st_mtime
    # Each changes something, and changes it back.
    changes: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: (link / "drops").rename(link / "gone"), lambda: (link / "gone").rename(link / "drops")),
        (lambda: link.rename(tmp_path / "link"), lambda: (tmp_path / "link").rename(link)),
        (
            lambda: os.utime(batch / "_SUCCESS", (0, 0)),
            lambda: os.utime(batch / "_SUCCESS", (written, written)),
        ),
        (lambda: shutil.copytree(batch, output.batch(1)), lambda: shutil.rmtree(output.batch(1))),
        # A batch that is planned may be written again.
        (lambda: taken.rename(planned), lambda: planned.rename(taken)),
    ]
    for change, back in changes:
        change()
        assert is_new(Span())
        back()
        assert not is_new(Span())
    batch.with_name(f"{storage.KEPT_SINCE}2026-01-01").touch()
    assert is_new(Span())


def test_since_and_until_limit_the_analysis(spark: SparkSession, tmp_path: Path) -> None:
    plan = network.Plan(hosts=2, sources=1, messages=600, burst=0.01)
    network.write(plan, tmp_path / "in")
    output = Output(str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="run bccnd-pipeline ingest first"):
        analyse(spark, output, Span(), Progress(None, io.StringIO()))
    ingest(spark, str(tmp_path / "in"), output, [].append)
    span = Span(plan.begin_ns + 130 * 10**9, plan.begin_ns + 170 * 10**9)  # of whole minutes
    analyse(spark, output, span, Progress(None, io.StringIO()))
    minutes = spark.read.schema(TABLES["minutes"]).parquet(f"{output.tables}/minutes").collect()
    assert {(row.minute.minute, row.sent) for row in minutes} == {(2, 72)}
    with pytest.raises(ConfigError, match="nothing was recorded"):
        analyse(spark, output, Span(0, 1), Progress(None, io.StringIO()))
    assert spark.read.schema(TABLES["minutes"]).parquet(f"{output.tables}/minutes").count() == len(minutes)
