"""The metrics of a gateway."""

from bccnd.dndm.metrics import _COUNTERS, _GAUGES, render


def test_every_value_has_its_metric() -> None:
    values = {key: at for at, (_, key, _) in enumerate([*_COUNTERS, *_GAUGES])}
    labelled = {"lost": {"slow": 5}, "closed": {"frame": 6}, "faults": {"route": 7}}
    labelled["latencies"] = {"tcp://10.0.0.2:9000/arm": 0.25}
    text, kind = render({"version": "1"} | values | labelled, "")
    lines = text.decode().splitlines()
    assert kind.startswith("text/plain")
    for name, key, _ in _COUNTERS:
        assert f"bccnd_dndm_{name}_total {values[key]}.0" in lines
    for name, key, _ in _GAUGES:
        assert f"bccnd_dndm_{name} {values[key]}.0" in lines
    assert 'bccnd_dndm_lost_messages_total{reason="slow"} 5.0' in lines
    assert 'bccnd_dndm_closed_links_total{reason="frame"} 6.0' in lines
    assert 'bccnd_dndm_peer_latency_seconds{peer="tcp://10.0.0.2:9000/arm"} 0.25' in lines
    assert 'bccnd_dndm_faults_total{rule="route"} 7.0' in lines
