"""Programs of every client: its tools, its example worker, and one that waits in a poll loop.

The worker answers on jobs/upper in capitals, counts its jobs in its heartbeat, reconnects to a new daemon, and ends
on the message ``stop``.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.drivers import BUILD_SECONDS
from tests.daemon_process import DaemonProcess, mortal
from tests.packet_client import PATIENCE, PacketClient, wait_until


@contextmanager
def running(command: Sequence[str | Path], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its stderr in `log`. It is killed at the end if it still runs."""
    with (
        log.open("ab") as stderr,
        subprocess.Popen(mortal(command), cwd=folder, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def end_at_ctrl_c(command: Sequence[str | Path], folder: Path, log: Path) -> tuple[str, int]:
    """What a worker that is ready says when it is interrupted, and its exit code."""
    # A suite in the background has SIGINT ignored, and a JVM that inherits that leaves it so.
    with running(["env", "--default-signal=INT", *command], folder, log) as worker:
        assert worker.stdout
        assert worker.stdout.readline().endswith(b" is ready\n"), log.read_text()
        worker.send_signal(signal.SIGINT)
        said, _ = worker.communicate(timeout=PATIENCE)
    return said.decode(), worker.returncode


def run(*command: str | Path, folder: Path, **environ: str) -> str:
    """What a command says, which must be a success."""
    result = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


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


def ask(daemon: DaemonProcess, name: str, question: bytes, beat: bytes) -> bytes:
    """The worker's answer, which a heartbeat with the text ``beat`` must follow."""
    wait_until(lambda: is_subscribed(daemon, name), f"the subscription of {name}")
    with PacketClient(daemon.socket) as asker:
        me = asker.request("whoami")
        asker.request("listen")
        asker.subscribe(f"heartbeat/{name}")
        asker.publish("jobs/upper", b"token\n" + question)
        answer = following(asker, f"!{me}")
        heard = [following(asker, f"heartbeat/{name}")]
        if heard != [beat]:  # one with the text before was due
            heard.append(following(asker, f"heartbeat/{name}"))
        assert heard[-1] == beat, heard
        return answer


def stop(daemon: DaemonProcess, name: str, worker: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code and output."""
    with PacketClient(daemon.socket) as client:
        client.publish(f"!{name}", b"stop")
        client.drain()
    output, _ = worker.communicate(timeout=PATIENCE)
    return worker.returncode, output.decode()


def output_over_a_restart(daemon: DaemonProcess, name: str, worker: subprocess.Popen[bytes]) -> str:
    """What a worker prints from now on that serves two daemons, one after the other, and is stopped."""
    assert ask(daemon, name, b"hello\0there", b"1 done") == b"token\nHELLO\0THERE"
    daemon.terminate()
    daemon.start()
    assert ask(daemon, name, b"", b"2 done") == b"token\n"
    code, output = stop(daemon, name, worker)
    assert code == 0
    return output


def told_of_a_restart(prefix: str) -> list[str]:
    """The lines of its log."""
    lines = (
        "the daemon closes the connection: shutdown",
        "the daemon went away",
        "connected to the daemon again",
    )
    return [prefix + line for line in lines]


def turns_over_a_restart(daemon: DaemonProcess, loop: subprocess.Popen[bytes]) -> int:
    """How often a program polls that says it is ready, and at the end how often, once it is back."""
    assert loop.stdout
    assert loop.stdout.readline() == b"ready\n"
    daemon.terminate()
    with pytest.raises(FileNotFoundError):
        PacketClient(daemon.socket)
    daemon.start()
    turns = int(loop.stdout.readline())
    assert loop.wait(PATIENCE) == 0
    return turns
