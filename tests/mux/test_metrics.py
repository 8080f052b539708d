"""The metrics of a door."""

from bccnd.mux.metrics import _COUNTERS, _GAUGES, render


def test_every_value_has_its_metric() -> None:
    values = {key: at for at, (_, key, _) in enumerate([*_COUNTERS, *_GAUGES])}
    text, kind = render({"version": "1", "ended": {"left": 3, "silent": 4}} | values, "")
    lines = text.decode().splitlines()
    assert kind.startswith("text/plain")
    for name, key, _ in _COUNTERS:
        assert f"bccnd_mux_{name}_total {values[key]}.0" in lines
    for name, key, _ in _GAUGES:
        assert f"bccnd_mux_{name} {values[key]}.0" in lines
    assert 'bccnd_mux_ended_connections_total{reason="silent"} 4.0' in lines
