"""What a fuzzer is, and what several of them need.

A fuzzer is a file ``fuzz_<what>.py`` beside this one, for one parser, with

    one_input(data: bytes) -> None      judges one input; whatever it raises is a finding
    seeds() -> Iterable[bytes]          sound inputs to begin with, most of them from the golden vectors
    EXECUTIONS = 100                    how many inputs the suite's short run must manage, if not so many

``one_input`` lets the documented exceptions of its parser pass, and wherever there is a second opinion (a plain
implementation beside the fast one, a reference, the way back) it asserts that both agree. It keeps nothing from one
input to the next. ``corpus/<what>/`` holds inputs that once were findings; the suite replays them.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def fuzzers(folder: Path = HERE) -> dict[str, Path]:
    """Name -> file."""
    return {path.stem.removeprefix("fuzz_"): path for path in sorted(folder.glob("fuzz_*.py"))}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Script:
    """Bytes read as decisions: a fuzzer's input that stands for more than one string of bytes.

    When the bytes are used up every number is 0, so that any input has an end.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, below: int) -> int:
        """0 to ``below`` - 1; ``below`` is at most 256."""
        value = self._data[self._at] if self else 0
        self._at += 1
        return value % below

    def chunk(self) -> bytes:
        """Bytes behind their length (one byte)."""
        length = self.number(256)
        self._at += length
        return self._data[self._at - length : self._at]

    def rest(self) -> bytes:
        rest, self._at = self._data[self._at :], len(self._data)
        return rest
