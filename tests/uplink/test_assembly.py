"""What the settings of an uplink come to."""

import sys
from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import ConfigError
from bccnd.uplink.assembly import carrier_of, limits_of, options_of
from bccnd.uplink.fyrehose_socket import FyrehoseCarrier
from bccnd.uplink.journal import Journal
from bccnd.uplink.nats import NatsCarrier
from bccnd.uplink.settings import UplinkSettings

SOURCE = b"north/uplink/0123456789abcdef"


def settings_for(carrier: str, **values: Any) -> UplinkSettings:
    return UplinkSettings(
        **{"carrier": carrier, "name": "north", "import": ["b/>"], "export": ["a/>"], **values}
    )


def test_a_link_of_nats_has_a_message_in_a_datagram() -> None:
    by_backbone, by_nats = (
        options_of(settings_for(url), (b"key",)) for url in ("fyrehose://h:1", "nats://h")
    )
    assert (by_nats.batch_bytes, by_backbone.batch_bytes > 1000) == (0, True)
    assert (by_nats.name, by_nats.keys, by_nats.export, by_nats.import_) == (
        b"north",
        (b"key",),
        (b"a/>",),
        (b"b/>",),
    )


def test_rates_and_bounds_are_those_of_the_settings() -> None:
    settings = settings_for(
        "nats://h",
        rate=[{"pattern": "a/>", "per_second": 2.5, "burst": 7}],
        journal_bytes=1 << 20,
        journal_seconds=9,
    )
    (rate,) = options_of(settings, ()).rates
    assert (rate.pattern, rate.per_second, rate.burst) == (b"a/>", 2.5, 7)
    limits = limits_of(settings)
    assert (limits.outbox_bytes, limits.outbox_seconds) == (1 << 20, 9.0)
    assert (limits.archive_bytes, limits.archive_seconds) == (1 << 20, 9.0)


def test_the_scheme_chooses_the_carrier(tmp_path: Path) -> None:
    hearer: Any = None
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text("0123456789abcdef\n")
    by_backbone = settings_for("fyrehose://backbone:4900/", backbone_key_file=keys)
    assert isinstance(carrier_of(by_backbone, SOURCE, hearer, Journal(None)), FyrehoseCarrier)
    assert isinstance(carrier_of(settings_for("nats://h1,h2:1"), SOURCE, hearer, Journal(None)), NatsCarrier)
    with pytest.raises(ConfigError, match="nats_user and nats_password_file go together"):
        carrier_of(settings_for("nats://h", nats_user="x"), SOURCE, hearer, Journal(None))


def test_without_nats_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    hearer: Any = None
    monkeypatch.setitem(sys.modules, "bccnd.uplink.nats", None)
    with pytest.raises(ConfigError, match=r"pip install 'bccnd\[nats\]'"):
        carrier_of(settings_for("nats://h"), SOURCE, hearer, Journal(None))
