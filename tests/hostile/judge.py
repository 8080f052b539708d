"""Runs one behaviour against a real daemon with a bystander, and says what it cost anybody else.

The bystander publishes RATE messages a second from before the attack until after it, in a process of its own. Faults
are

- a message that the bystander lost, or one that took GIVES_UP seconds, which is as bad;
- a daemon that has died, that serves nobody new while the attack lasts, or does not end as its unit wants;
- memory and log lines beyond what the behaviour may cost (``behaviour.py``).

How late messages came is measured and asserted nowhere: a busy machine makes everything late.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, mortal
from tests.hostile.attack import Attack
from tests.hostile.behaviour import MIB, Behaviour
from tests.packet_client import PacketClient
from tests.plain_bccn import free_port

PROGRAM = Path(__file__).parent / "bystander.py"

# Messages a second of the bystander.
RATE = 1000

# Seconds that the behaviour goes on.
SECONDS = 1.0

# Seconds from when a message is due until the bystander gives it up: twice what the calls of our clients wait for the
# daemon, a third of what systemd waits (WatchdogSec in ``systemd/bccnd.service``). Until then it is not lost.
GIVES_UP = 10.0

# TimeoutStopSec in ``systemd/bccnd.service``: then systemd kills the daemon.
STOP_SECONDS = 15.0

# Of this process: twice the places of a daemon.
DESCRIPTORS = 8192


@dataclass(frozen=True)
class Outcome:
    """``faults``: in words, empty for a daemon that stood it. ``p50``, ``p99``, ``worst``: the bystander's delays in
    milliseconds; ``memory``: what the daemon grew by at most, in bytes; ``lines``, ``log_bytes``: what it has logged.
    """

    faults: tuple[str, ...]
    sent: int = 0
    p50: float = 0.0
    p99: float = 0.0
    worst: float = 0.0
    memory: int = 0
    lines: int = 0
    log_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.sent} messages, p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, worst {self.worst:.0f} ms, "
            f"{self.memory / MIB:.1f} MiB, {self.lines} lines" + "".join(f"; {each}" for each in self.faults)
        )


class Bystander:
    """The process; see ``bystander.py``."""

    def __init__(self, path: Path, behaviour: Behaviour, port: int, gives_up: float) -> None:
        command = [sys.executable, "-I", "-S", str(PROGRAM), str(path), str(RATE), str(gives_up)]
        command += [str(behaviour.pause)] + ([str(port)] if behaviour.segment else [])
        self._process = subprocess.Popen(mortal(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the bystander does not begin"

    @property
    def pid(self) -> int:
        return self._process.pid

    def account(self, gives_up: float) -> dict[str, float]:
        """Have it publish no more and wait for what is missing; what it has seen."""
        output, _ = self._process.communicate(timeout=gives_up + STOP_SECONDS)
        return dict(json.loads(output))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class ObservedDaemon(DaemonProcess):
    """One whose end is an outcome, not an assertion."""

    def memory(self, field: str) -> int:
        """Bytes of resident memory: VmRSS now, VmHWM at most so far; 0 when it is dead."""
        with suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            if field in status:
                return int(status.partition(field + ":")[2].split()[0]) * 1024
        return 0

    def serves_a_newcomer(self, seconds: float) -> bool:
        """One of the daemon's own user. While too many others knock it tries again, as clients do."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                with PacketClient(self.socket, seconds=seconds) as newcomer:
                    return newcomer.drain() == []
            except BlockingIOError:
                time.sleep(0.01)
            except (OSError, AssertionError):
                break
        return False

    def end(self, seconds: float) -> str:
        """What is wrong with how it ends at SIGTERM; it has ended in any case."""
        if self.process.poll() is not None:
            return f"the daemon has died with {self.process.returncode}"
        self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the daemon has not ended {seconds:g} s after SIGTERM"
        return f"the daemon has ended with {code}" if code else ""


@contextmanager
def _folder() -> Iterator[Path]:
    """Where every user can reach the socket, unlike below pytest's own folder."""
    with tempfile.TemporaryDirectory(prefix="bccnd-hostile-") as name:
        os.chmod(name, 0o755)  # noqa: S103
        yield Path(name)


@contextmanager
def _many_descriptors() -> Iterator[None]:
    """The hostile ones hold thousands of connections, all in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _flags(behaviour: Behaviour, folder: Path, port: int) -> list[str]:
    settings = folder / "bccnd.toml"
    settings.write_text('socket_mode = "0666"\n' + behaviour.settings)
    flags = ["--config", str(settings), "--host", "here"]
    flags += ["--broadcast", LOOPBACK_BROADCAST, "--port", str(port)]
    if behaviour.key:
        keys = folder / "keys"
        keys.touch(0o600)
        keys.write_bytes(behaviour.key + b"\n")
        flags += ["--key-file", str(keys)]
    return flags


def judge(behaviour: Behaviour, seconds: float = SECONDS, gives_up: float = GIVES_UP) -> Outcome:
    """Runs the behaviour, for ``seconds`` beside what it needs to prepare."""
    port, metrics_port = free_port(), free_port(socket.SOCK_STREAM)
    environ = {"BCCND_METRICS__LISTEN": f"127.0.0.1:{metrics_port}"} if behaviour.metrics else {}
    with _many_descriptors(), _folder() as folder:
        daemon = ObservedDaemon(folder, *_flags(behaviour, folder, port), environ=environ)
        try:
            daemon.start()
            bystander = Bystander(daemon.socket, behaviour, port, gives_up)
            try:
                attack = Attack(daemon, folder, port, metrics_port, max(seconds, behaviour.seconds))
                return _judged(behaviour, daemon, bystander, attack, gives_up)
            finally:
                bystander.kill()
        finally:
            if daemon.process.poll() is None:
                daemon.kill()


def _judged(
    behaviour: Behaviour, daemon: ObservedDaemon, bystander: Bystander, attack: Attack, gives_up: float
) -> Outcome:
    faults: list[str] = []
    attack.bystander = bystander.pid
    before = daemon.memory("VmRSS")
    with attack.closing:
        broken_off = _act(behaviour, attack)
        if not daemon.serves_a_newcomer(gives_up):
            faults.append(f"a newcomer is not served within {gives_up:g} s")
        account = bystander.account(gives_up)
        faults += _losses(account, gives_up, behaviour)
        memory = max(0, daemon.memory("VmHWM") - before)
        if not behaviour.stays:
            attack.closing.close()
        # A daemon that is stuck anyway need not be waited for.
        ending = daemon.end(STOP_SECONDS if not account["late"] else 0.1)
    log = daemon.log_file.read_bytes()
    lines = log.count(b"\n")
    faults += [ending] if ending else []
    if memory > behaviour.memory:
        faults.append(f"{memory / MIB:.0f} MiB more memory, at most {behaviour.memory / MIB:.0f}")
    if lines > behaviour.lines:
        faults.append(f"{lines} lines in the log, at most {behaviour.lines}")
    if b"Traceback" in log:
        faults.append(
            "a traceback in the log: " + log.decode(errors="replace").strip().splitlines()[-1][:200]
        )
    # Without a fault seen on its side the behaviour must have come about, or it has tried nothing.
    if broken_off is not None and not faults:
        raise broken_off
    return Outcome(
        tuple(faults),
        int(account["sent"]),
        account["p50"],
        account["p99"],
        account["worst"],
        memory,
        lines,
        len(log),
    )


def _act(behaviour: Behaviour, attack: Attack) -> Exception | None:
    """What has broken the behaviour off: a daemon that stands still makes its polite steps time out."""
    try:
        behaviour.act(attack)
        attack.rest()
    except (OSError, AssertionError) as error:
        return error
    return None


def _losses(account: dict[str, float], gives_up: float, behaviour: Behaviour) -> list[str]:
    if account["closed"]:
        return ["the bystander's connection was closed"]
    # A datagram is not late for long: what a plain program sent has come or is lost.
    if account["late"] and not behaviour.segment:
        return [f"a message of the bystander is {gives_up:g} s late"]
    if account["lost"]:
        return [f"the bystander lost {account['lost']:.0f} of {account['sent']:.0f} messages"]
    return []


def compared(behaviour: Behaviour, seconds: float = SECONDS) -> tuple[Outcome, Outcome]:
    """With the hostile one, and the same daemon and bystander without it."""
    return judge(behaviour, seconds), judge(replace(behaviour, act=lambda attack: attack.rest()), seconds)
