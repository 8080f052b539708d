"""What a hostile behaviour is, and where the hundred of them are.

A behaviour is a function in a module of ``behaviours/``, named in plain words:

    @behaviour("SUB and UNSUB of a pattern that all cached channels match", suite=True)
    def churn_of_a_wide_pattern(attack: Attack) -> None:
        attack.repeat(attack.connect(), b"SUB z*", b"UNSUB z*")

That is all: it is judged as the others are (``judge.py``). Those with ``suite`` run in every run of the suite, all of
them with ``--hostile=all``. What is known to fail stands in ``known.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.hostile.attack import Attack

HERE = Path(__file__).parent

MIB = 1 << 20

# What the daemon may grow by, beside what its settings let wait and keep. A bystander and a few clients need some two
# megabytes; the rest is for what one read, one batch of effects, and the allocator take.
MEMORY = 32 * MIB

# Lines in the log, of a second or two: some three of its own, and for two kinds of complaints (slow clients,
# and those that caught up) what ``bccnd/report.py`` writes at once (LINES_A_REPORT), and a line that counts the rest.
LOG_LINES = 50

# Milliseconds in which the bystander has 99 of 100 messages, on a machine that does nothing else.
P99 = 20.0

Act = Callable[["Attack"], None]


@dataclass(frozen=True)
class Behaviour:
    """``settings``: of the daemon, as TOML; ``needs``: see ``tests/needs.py``; ``memory``, ``lines``: what the daemon
    may grow by, in bytes, and may log. ``segment``: the bystander's publisher is a plain program of the segment;
    ``pause``: its subscriber stops reading for so many seconds in each. ``metrics``: the daemon has a metrics port.
    ``key``: the segment has one. ``stays``: the hostile ones are still connected when the daemon must end.
    ``seconds``: it goes on for at least so long. ``p99``: more than P99 where the bystander waits by right. It is
    printed when it is passed, and asserted nowhere. ``door``: there is a door, with a bystander of its own, which is
    judged as the daemon is; it is entered by its file, and by ``tls`` or ``web`` if that is what this says.
    """

    name: str
    group: str
    act: Act
    suite: bool = False
    settings: str = ""
    needs: tuple[str, ...] = ()
    memory: int = MEMORY
    lines: int = LOG_LINES
    segment: bool = False
    pause: float = 0.0
    metrics: bool = False
    key: bytes = b""
    stays: bool = False
    seconds: float = 0.0
    p99: float = P99
    door: str = ""

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


_all: dict[str, Behaviour] = {}


def behaviour(name: str, **bounds: object) -> Callable[[Act], Act]:
    """Registers a function as a behaviour; ``bounds`` are the fields of ``Behaviour``."""

    def register(act: Act) -> Act:
        made = Behaviour(name, act.__module__.rpartition(".")[2], act, **bounds)  # type: ignore[arg-type]
        if str(made) in _all and _all[str(made)].act.__qualname__ != act.__qualname__:
            raise ValueError(f"two behaviours are called {made}")
        _all[str(made)] = made
        return act

    return register


def behaviours() -> dict[str, Behaviour]:
    """All of them, by ``<group>: <name>``."""
    for path in sorted((HERE / "behaviours").glob("*.py")):
        import_module(f"tests.hostile.behaviours.{path.stem}")
    return dict(_all)
