"""The recorder's metrics: well-formed, with every count of a snapshot."""

from prometheus_client.parser import text_string_to_metric_families

from bccnd.recorder.metrics import render
from bccnd.recorder.service import of_settings
from bccnd.recorder.settings import RecorderSettings

SNAPSHOT = {
    "version": "1.2.3", "rows": 1, "bytes": 2, "files": 3, "removed": 4, "lost": 5, "unrecorded": 6, "disk_errors": 7,
    "kept": 8, "buffered": 9, "connected": 1, "lag": 0.5,
}  # fmt: skip


def test_each_count_is_a_metric_with_a_description():
    text, content_type = render(SNAPSHOT, "")
    assert content_type.startswith("text/plain")
    families = list(text_string_to_metric_families(text.decode()))
    ours = {family.name: family for family in families if family.name.startswith("bccnd_record_")}
    assert all(family.documentation for family in ours.values())
    values = {
        name: family.samples[0].value for name, family in ours.items() if name != "bccnd_record_build_info"
    }
    assert sorted(values.values()) == sorted(value for key, value in SNAPSHOT.items() if key != "version")
    assert values["bccnd_record_unrecorded"] == 6


def test_a_recorder_that_never_started_has_all_counts(tmp_path):
    recorder = of_settings(RecorderSettings(socket="@none", output=tmp_path), lambda _: None)
    assert recorder.snapshot().keys() == SNAPSHOT.keys()
    render(recorder.snapshot(), "application/openmetrics-text;version=abc")  # from anybody on the host
