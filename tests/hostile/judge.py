"""Runs one behaviour against a real daemon with a bystander, and says what it cost anybody else.

The bystander publishes RATE messages a second from before the attack until after it, in a process of its own. Where
there is a door, it is judged as the daemon is, beside a bystander that comes in by it. Faults are

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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.clients.door import Door
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, ServiceProcess, mortal
from tests.hostile.attack import Attack
from tests.hostile.behaviour import MIB, Behaviour
from tests.hostile.guests import Hall
from tests.mux.mux_client import MuxClient
from tests.packet_client import PacketClient
from tests.plain_bccn import free_port

HERE = Path(__file__).parent
PROGRAM = HERE / "bystander.py"
# By the door, where it has to find what it imports.
BY_DOOR = HERE / "door_bystander.py"
BPMUX = HERE.parents[1] / "clients/python"

# Messages a second of the bystander, and of the one that comes in by the door.
RATE = 1000
DOOR_RATE = 200

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
        command = [str(PROGRAM), str(path), str(RATE), str(gives_up), str(behaviour.pause)]
        self._start(command + ([str(port)] if behaviour.segment else []))

    def _start(self, command: list[str]) -> None:
        command = [sys.executable, "-I", "-S", *command]
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


class DoorBystander(Bystander):
    """See ``door_bystander.py``."""

    def __init__(self, path: Path, gives_up: float) -> None:
        self._start([str(BY_DOOR), str(BPMUX), str(HERE), str(path), str(DOOR_RATE), str(gives_up), "0"])


class Observed(ServiceProcess):
    """One whose end is an outcome, not an assertion. ``what`` it is called there."""

    what: str

    def memory(self, field: str) -> int:
        """Bytes of resident memory: VmRSS now, VmHWM at most so far; 0 when it is dead."""
        with suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            if field in status:
                return int(status.partition(field + ":")[2].split()[0]) * 1024
        return 0

    def end(self, seconds: float) -> str:
        """What is wrong with how it ends at SIGTERM; it has ended in any case."""
        if self.process.poll() is not None:
            return f"the {self.what} has died with {self.process.returncode}"
        self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the {self.what} has not ended {seconds:g} s after SIGTERM"
        return f"the {self.what} has ended with {code}" if code else ""


class ObservedDaemon(Observed, DaemonProcess):
    what = "daemon"

    def greets(self, seconds: float) -> bool:
        """Whether one of its own user is served."""
        with PacketClient(self.socket, seconds=seconds) as newcomer:
            return newcomer.drain() == []


class ObservedDoor(Observed, Door):
    what = "door"

    def greets(self, seconds: float) -> bool:
        """Whether one of its own user is served."""
        with MuxClient(self.socket, seconds=seconds) as newcomer:
            return newcomer.bus().drain() == []


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
    with ExitStack() as ending, _many_descriptors(), _folder() as folder:
        daemon = ObservedDaemon(folder, *_flags(behaviour, folder, port), environ=environ)
        ending.callback(_end, daemon)
        daemon.start()
        attack = Attack(daemon, folder, port, metrics_port, max(seconds, behaviour.seconds))
        judged: list[Judged] = []
        if behaviour.door:
            attack.hall = Hall(folder, behaviour.door)
            door = ObservedDoor(folder, daemon.socket, *attack.hall.flags)
            door.config.write_text(attack.hall.settings)
            ending.callback(_end, door)
            door.start()
            judged.append(Judged(door, DoorBystander(door.socket, gives_up), behaviour, gives_up))
            ending.callback(judged[-1].bystander.kill)
        judged.append(
            Judged(daemon, Bystander(daemon.socket, behaviour, port, gives_up), behaviour, gives_up)
        )
        ending.callback(judged[-1].bystander.kill)
        attack.bystander = judged[-1].bystander.pid
        return _judged(behaviour, judged, attack)


def _end(service: Observed) -> None:
    if service.process.poll() is None:
        service.kill()


class Judged:
    """A service beside a bystander that it serves; ``faults`` of it, in words."""

    def __init__(
        self,
        service: "ObservedDaemon | ObservedDoor",
        bystander: Bystander,
        behaviour: Behaviour,
        gives_up: float,
    ) -> None:
        self.service, self.bystander = service, bystander
        self.faults: list[str] = []
        self.account: dict[str, float] = {}
        self.memory = self.lines = self.log_bytes = 0
        self._behaviour, self._gives_up = behaviour, gives_up
        self._is_stuck = False
        self._before = service.memory("VmRSS")

    @property
    def faults_by_name(self) -> list[str]:
        """Of the daemon as they are."""
        return [f"the door: {fault}" for fault in self.faults] if self.service.what == "door" else self.faults

    def look(self) -> None:
        """When the attack is over, and the hostile ones are still there."""
        self._is_stuck = not self._serves_a_newcomer()
        if self._is_stuck:
            self.faults.append(f"a newcomer is not served within {self._gives_up:g} s")
        self.account = self.bystander.account(self._gives_up)
        self.faults += _losses(self.account, self._gives_up, self._behaviour)
        self.memory = max(0, self.service.memory("VmHWM") - self._before)

    def _serves_a_newcomer(self) -> bool:
        """While too many others knock it tries again, as clients do."""
        until = time.monotonic() + self._gives_up
        while time.monotonic() < until:
            try:
                return self.service.greets(self._gives_up)
            except BlockingIOError:
                time.sleep(0.01)
            except (OSError, AssertionError):
                break
        return False

    def end(self) -> None:
        """A service that is stuck anyway need not be waited for."""
        behaviour, faults = self._behaviour, self.faults
        ending = self.service.end(0.1 if self._is_stuck else STOP_SECONDS)
        log = self.service.log_file.read_bytes()
        self.lines, self.log_bytes = log.count(b"\n"), len(log)
        faults += [ending] if ending else []
        if self.memory > behaviour.memory:
            faults.append(f"{self.memory / MIB:.0f} MiB more memory, at most {behaviour.memory / MIB:.0f}")
        if self.lines > behaviour.lines:
            faults.append(f"{self.lines} lines in the log, at most {behaviour.lines}")
        if b"Traceback" in log:
            faults.append(
                "a traceback in the log: " + log.decode(errors="replace").strip().splitlines()[-1][:200]
            )


def _judged(behaviour: Behaviour, judged: Sequence[Judged], attack: Attack) -> Outcome:
    """The daemon is the last of those judged."""
    with attack.closing:
        broken_off = _act(behaviour, attack)
        for each in judged:
            each.look()
        if not behaviour.stays:
            attack.closing.close()
        for each in judged:
            each.end()
    faults = [fault for each in reversed(judged) for fault in each.faults_by_name]
    # Without a fault seen on its side the behaviour must have come about, or it has tried nothing.
    if broken_off is not None and not faults:
        raise broken_off
    account = judged[-1].account
    return Outcome(
        tuple(faults),
        int(account["sent"]),
        account["p50"],
        max(each.account["p99"] for each in judged),
        max(each.account["worst"] for each in judged),
        max(each.memory for each in judged),
        sum(each.lines for each in judged),
        sum(each.log_bytes for each in judged),
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
