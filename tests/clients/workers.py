"""The example worker of every client.

It answers on jobs/upper in capitals, counts its jobs in its heartbeat, reconnects to a new daemon, and ends on the
message ``stop``.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.daemon_process import DaemonProcess, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until


@contextmanager
def running(command: Sequence[str | Path], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its stderr in `log`. It is killed at the end if it still runs."""
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


def sockets_for_streams(
    command: Sequence[str | Path], folder: Path, log: Path, daemon: DaemonProcess, program: str
) -> list[str]:
    """The sockets that a worker has in place of the streams it was started without."""
    found = []
    for streams in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        with running(["sh", "-c", f'exec "$@" {streams}', "sh", *command], folder, log) as worker:
            name = f"here/{program}/{worker.pid}"
            wait_until(lambda name=name: is_subscribed(daemon, name), "the worker")
            links = {path.name: path.readlink() for path in Path(f"/proc/{worker.pid}/fd").iterdir()}
        found += [f"{streams} {at}: {to}" for at, to in links.items() if at in "012" and "socket" in str(to)]
    return found


def is_subscribed(daemon: DaemonProcess, name: str) -> bool:
    with PacketClient(daemon.socket) as client:
        rows = json.loads(client.request("clients"))["clients"]
    return any(row["name"] == name and row["subscriptions"] for row in rows)


def following(client: PacketClient, channel: str) -> bytes:
    """The payload of the next message on this channel. A heartbeat that was due anyway may come before it."""
    while True:
        found, payload = client.message()
        if found == channel:
            return payload


def ask(daemon: DaemonProcess, name: str, question: bytes) -> tuple[bytes, bytes]:
    """The worker's answer, and the text of the heartbeat that follows it."""
    wait_until(lambda: is_subscribed(daemon, name), f"the subscription of {name}")
    with PacketClient(daemon.socket) as asker:
        me = asker.request("whoami")
        asker.request("listen")
        asker.subscribe(f"heartbeat/{name}")
        asker.publish("jobs/upper", b"token\n" + question)
        answer = following(asker, f"!{me}")
        return answer, following(asker, f"heartbeat/{name}")


def stop(daemon: DaemonProcess, name: str, worker: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code and output."""
    with PacketClient(daemon.socket) as client:
        client.publish(f"!{name}", b"stop")
        client.drain()
    output, _ = worker.communicate(timeout=PATIENCE)
    return worker.returncode, output.decode()
