"""The metrics of a backbone."""

from bccnd.backbone.core import DROPPED
from bccnd.backbone.metrics import _COUNTERS, _GAUGES, render


def test_every_value_has_its_metric() -> None:
    values = {key: at for at, (_, key, _) in enumerate([*_COUNTERS, *_GAUGES])}
    text, kind = render({"version": "1", "dropped": dict.fromkeys(DROPPED, 5)} | values, "")
    lines = text.decode().splitlines()
    assert kind.startswith("text/plain")
    for name, key, _ in _COUNTERS:
        assert f"bccnd_backbone_{name}_total {values[key]}.0" in lines
    for name, key, _ in _GAUGES:
        assert f"bccnd_backbone_{name} {values[key]}.0" in lines
    assert sum(line.startswith("bccnd_backbone_dropped_packets_total{") for line in lines) == len(DROPPED)
