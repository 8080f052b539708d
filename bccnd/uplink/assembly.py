"""Makes what the settings describe: the options of the core, the bounds of the journal, the carrier."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bccnd.errors import ConfigError
from bccnd.process.keys import read_keys
from bccnd.uplink.carrier import Carrier, Hearer
from bccnd.uplink.journal import Journal, Limits
from bccnd.uplink.options import Options, Rate
from bccnd.uplink.settings import UplinkSettings

if TYPE_CHECKING:
    from bccnd.uplink.nats import NatsCarrier
    from bccnd.uplink.nats_options import NatsOptions


def keys_of(settings: UplinkSettings) -> tuple[bytes, ...]:
    """Of the link. Raises ``BccndError``."""
    return read_keys(settings.key_file) if settings.key_file else ()


def options_of(settings: UplinkSettings, keys: tuple[bytes, ...]) -> Options:
    return Options(
        name=settings.name.encode(),
        keys=keys,
        export=_encoded(settings.export),
        import_=_encoded(settings.import_),
        rates=tuple(Rate(rate.pattern.encode(), rate.per_second, rate.burst) for rate in settings.rate),
        hold_bytes=settings.hold_bytes,
        local_names=settings.local_names,
        # A NATS message holds one of our messages, so that any NATS subscriber can read it.
        **{"batch_bytes": 0} if settings.medium == "nats" else {},
    )


def _encoded(patterns: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(pattern.encode() for pattern in patterns)


def limits_of(settings: UplinkSettings) -> Limits:
    """The bounds of the journal. The archive of answers to others may take as much again."""
    size, seconds = settings.journal_bytes, float(settings.journal_seconds)
    return Limits(outbox_bytes=size, outbox_seconds=seconds, archive_bytes=size, archive_seconds=seconds)


def carrier_of(settings: UplinkSettings, source: bytes, hearer: Hearer, journal: Journal) -> Carrier:
    """The carrier that the settings name. Only the libraries of that carrier are loaded. Raises ``BccndError``."""
    if settings.medium == "nats":
        carrier: Carrier = _nats_carrier()(_nats_options(settings), source, hearer, journal)
        return carrier
    from bccnd.uplink import fyrehose
    from bccnd.uplink.fyrehose_socket import FyrehoseCarrier

    host, _, port = settings.carrier.removeprefix("fyrehose://").rstrip("/").rpartition(":")
    key = read_keys(settings.backbone_key_file)[0] if settings.backbone_key_file else b""
    return FyrehoseCarrier(host, int(port), hearer, journal, fyrehose.Options(key, settings.keepalive))


def check_carrier(settings: UplinkSettings) -> None:
    """Check that the carrier could be made, without opening anything. Raises ``BccndError``."""
    if settings.medium == "nats":
        _nats_carrier()
        _nats_options(settings).check()


def _nats_carrier() -> "type[NatsCarrier]":
    try:
        from bccnd.uplink.nats import NatsCarrier
    except ImportError as error:
        raise ConfigError(
            f"nats-py cannot be loaded ({error}); install it: pip install 'bccnd[nats]'"
        ) from None
    return NatsCarrier


def _nats_options(settings: UplinkSettings) -> "NatsOptions":
    from bccnd.uplink.nats_options import NatsOptions, servers_of

    return NatsOptions(
        servers_of(settings.carrier),
        settings.nats_stream,
        settings.nats_replicas,
        settings.nats_bytes,
        float(settings.nats_seconds),
        settings.nats_credentials,
        settings.nats_user,
        settings.nats_password_file,
        settings.nats_token_file,
        settings.nats_ca_file,
        settings.nats_cert_file,
        settings.nats_key_file,
    )
