"""The machine that the figures come from, and how busy others kept it."""

import os
import platform
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

TICKS = os.sysconf("SC_CLK_TCK")
# The share of the machine that others may use. Above it figures are not trusted.
NOISY = 0.05


def described() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(": ")[2] for line in cpuinfo if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@dataclass
class Disturbance:
    """What others did to the rounds of a scenario: their share of the machine in each, and how many were repeated."""

    shares: list[float] = field(default_factory=list)
    repeated: int = 0

    def __str__(self) -> str:
        share = sum(self.shares) / len(self.shares) if self.shares else 0.0
        doubt = ", too much to trust the figures" if share > NOISY else ""
        repeated = f", {self.repeated} rounds repeated for that" if self.repeated else ""
        return f"others used {share:.0%} of the machine{doubt}{repeated}"


class Others:
    """The share of all cores that went to others, or was taken by the hypervisor, within the block.

    What this process and those it has started and waited for have used is ours, and what is added to ``ours``,
    seconds of their children; what is left of all busy time is not.
    Interrupts count as ours, being mostly the network traffic of the loads.
    """

    def __enter__(self) -> Self:
        self._busy, self._own, self._began = _busy_seconds(), _own_seconds(), time.monotonic()
        self.ours = self.share = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        available = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        foreign = (_busy_seconds() - self._busy) - (_own_seconds() - self._own) - self.ours
        self.share = max(0.0, foreign / available) if available else 0.0


def _busy_seconds() -> float:
    """User, nice, system and steal, of all cores together."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[index]) for index in (0, 1, 2, 7)) / TICKS


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond."""
    return (
        sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
        / 1e9
    )


def resident_kib(pid: int) -> int:
    """VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def udp_drops(pid: int, port: int) -> int:
    """Datagrams the kernel has dropped for want of room, of all sockets on `port` in the namespace of `pid`."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if int(row[1].rpartition(":")[2], 16) == port)
