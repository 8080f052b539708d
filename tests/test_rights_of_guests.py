"""Rights of those who come in by the door: what its user may do is no matter of theirs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGHUP

import pytest

from bccnd.mux.span import SECOND_NS
from bpmux.events import Message
from tests.clients.door import Door
from tests.daemon_process import DaemonProcess
from tests.mux.mux_client import MuxClient
from tests.mux.test_record import NOON, record, rows
from tests.packet_client import wait_until
from tests.test_rights import STRANGER, acting_as, folder, start

__all__ = ["folder", "start"]

pytestmark = pytest.mark.needs("root")  # to become somebody else

RIGHTS = f"""
[[rights]]
uid = 0
tap = true
speak_for = true
[[rights]]
uid = {STRANGER}
subscribe = ["a/x", "local/mine/>", "b/>"]
"""


@pytest.fixture
def stranger(start: Callable[..., DaemonProcess], folder: Path) -> Iterator[tuple[MuxClient, DaemonProcess]]:
    """A client of a door of root, whose user may do a little, and the daemon. Something is recorded."""
    batches = [
        rows(1, channel="a/x"), rows(2, channel="a/y"), rows(3, channel="!here/node/7"),
        rows(4, direction="local", channel="local/mine/z"), rows(5, direction="local", channel="local/theirs/z"),
    ]  # fmt: skip
    record(folder / "recorded", (0, 20, batches)).end()
    with start(RIGHTS) as daemon:
        flags = ("--recorded", str(folder / "recorded"), "--socket-mode", "0666")
        with Door(folder, daemon.socket, *flags) as door:
            with acting_as():
                client = MuxClient(door.socket)
            with client:
                yield client, daemon


def replayed(client: MuxClient, pattern: str) -> list[bytes]:
    """What follows the length of each datagram; and why it ended, if that is not normal."""
    since = NOON // SECOND_NS
    channel = client.open(f"REPLAY {since} {since + 1} {pattern}")
    reason = client.ending(channel)
    packets = [
        each.payload for each in client.events if isinstance(each, Message) and each.channel is channel
    ]
    return [packet.partition(b"]")[2] for packet in packets if packet.startswith(b"RECV ")] or [reason]


def test_a_replay_needs_the_right_to_subscribe(stranger: tuple[MuxClient, DaemonProcess]) -> None:
    client, _ = stranger
    assert replayed(client, "a/x") == [b"here/a:1:a/x|hello"]
    assert replayed(client, "local/mine/>") == [b"here/a:4:local/mine/z|hello"]
    for pattern in (">", "a/>", "a/*", "*/x", "a/y", "local/>", "local/*/z", "local/mine"):
        (refused,) = replayed(client, pattern)
        assert refused.startswith(b"refused "), (pattern, refused)
    (refused,) = replayed(client, "!here/node/7")
    assert refused.startswith(b"bad-pattern ")
    assert client.ask(b"doctor").startswith(b"closed refused ")


def test_a_replay_ends_when_its_right_goes(stranger: tuple[MuxClient, DaemonProcess], folder: Path) -> None:
    client, daemon = stranger
    follows = client.open(f"REPLAY {NOON // SECOND_NS}  a/x")
    while not client.message(follows).startswith(b"RECV "):
        pass
    settings = folder / "bccnd.toml"
    settings.write_text(settings.read_text().replace('"a/x", ', ""))
    daemon.process.send_signal(SIGHUP)
    wait_until(lambda: daemon.logged("reloaded"), "the reload")
    assert client.ending(follows).startswith(b"refused ")
