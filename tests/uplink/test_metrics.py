"""The metrics of an uplink."""

from bccnd.uplink.account import LOSSES
from bccnd.uplink.metrics import _COUNTERS, _GAUGES, render


def test_every_value_has_its_metric() -> None:
    values = {key: at for at, (_, key, _) in enumerate([*_COUNTERS, *_GAUGES])}
    labelled = {"lost": dict.fromkeys(LOSSES, 5), "dropped": {"rate": 6}, "bus": {"heard": 7}}
    text, kind = render({"version": "1"} | values | labelled, "")
    lines = text.decode().splitlines()
    assert kind.startswith("text/plain")
    for name, key, _ in _COUNTERS:
        assert f"bccnd_uplink_{name}_total {values[key]}.0" in lines
    for name, key, _ in _GAUGES:
        assert f"bccnd_uplink_{name} {values[key]}.0" in lines
    assert sum(line.startswith("bccnd_uplink_lost_total{") for line in lines) == len(LOSSES)
    assert 'bccnd_uplink_dropped_messages_total{reason="rate"} 6.0' in lines
    assert 'bccnd_uplink_bus_messages_total{what="heard"} 7.0' in lines
