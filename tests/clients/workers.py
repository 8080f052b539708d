"""What every client's example worker does: it answers on jobs/upper in capitals, tells on its heartbeat how many it
did, outlives its daemon, and ends when told to stop."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.daemon_process import DaemonProcess, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until


@contextmanager
def running(command: Sequence[str | Path], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its stderr in `log`, killed at the end of a test that did not see it end."""
    with (
        log.open("ab") as stderr,
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=die_with_parent
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def is_subscribed(daemon: DaemonProcess, name: str) -> bool:
    with PacketClient(daemon.socket) as client:
        rows = json.loads(client.request("clients"))["clients"]
    return any(row["name"] == name and row["subscriptions"] for row in rows)


def ask(daemon: DaemonProcess, name: str, question: bytes) -> tuple[bytes, bytes]:
    """What the worker answers, and what it says of its health then."""
    wait_until(lambda: is_subscribed(daemon, name), f"{name} to listen")
    with PacketClient(daemon.socket) as asker:
        me = asker.request("whoami")
        asker.request("listen")
        asker.subscribe(f"heartbeat/{name}")
        asker.publish("jobs/upper", b"token\n" + question)
        found: dict[str, bytes] = {}
        while len(found) < 2:
            channel, payload = asker.message()
            if payload != b"ready":
                found[channel] = payload
    return found[f"!{me}"], found[f"heartbeat/{name}"]


def stop(daemon: DaemonProcess, name: str, worker: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code and output."""
    with PacketClient(daemon.socket) as client:
        client.publish(f"!{name}", b"stop")
        client.drain()
    output, _ = worker.communicate(timeout=PATIENCE)
    return worker.returncode, output.decode()
