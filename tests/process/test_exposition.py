"""What the metrics of all our programs have in common."""

import pytest
from prometheus_client import parser

from bccnd.process.exposition import OPENMETRICS, text

SNAPSHOT = {"version": "1.2", "n": 7, "room": 3}


def of(accept: str) -> tuple[bytes, str]:
    counters, gauges = [("messages", "n", "Messages.")], [("room", "room", "Room.")]
    labelled = [("dropped", "By reason.", "reason", {"late": 2, "early": 1})]
    levels = [("delay_seconds", "By peer.", "peer", {"b": 0.5, "a": 2})]
    return text("prog", SNAPSHOT, counters, gauges, labelled, accept, levels)


def test_names_begin_with_the_program():
    found = {each.name: each for each in parser.text_string_to_metric_families(of("")[0].decode())}
    assert found["prog_build_info"].samples[0].labels["version"] == "1.2"
    assert found["prog_messages"].samples[0].name == "prog_messages_total"
    assert [found[name].samples[0].value for name in ("prog_messages", "prog_room")] == [7, 3]
    dropped = [(sample.labels["reason"], sample.value) for sample in found["prog_dropped"].samples]
    assert dropped == [("early", 1), ("late", 2)]
    assert found["prog_delay_seconds"].type == "gauge"
    delays = [(sample.labels["peer"], sample.value) for sample in found["prog_delay_seconds"].samples]
    assert delays == [("a", 2), ("b", 0.5)]
    assert found["process_resident_memory_bytes"].samples[0].value > 1 << 20


@pytest.mark.parametrize(
    "version", ["abc", "1.x", "²", "1" + "0" * 5000, "9.9; escaping=allow-utf-8", "1.0.0.0"]
)
@pytest.mark.parametrize("kind", [OPENMETRICS, "text/plain"])
def test_what_else_a_reader_accepts_changes_nothing(kind: str, version: str) -> None:
    """Not even the next answer, which is this one again."""
    plain = of(OPENMETRICS if kind == OPENMETRICS else "")[1]
    assert of(f"{kind};version={version},*/*;q=0.1")[1] == plain
