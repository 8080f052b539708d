from collections.abc import Mapping, Sequence
from typing import Any

from bccnd.wire.batch import Run
from bccnd.wire.sbus import Memory

class Codec:
    def __init__(self, keys: Sequence[bytes], required: bool) -> None: ...
    def open(
        self, memory: Memory, starts: list[int], ends: list[int], region: tuple[int, int]
    ) -> list[Run | int]: ...
    def seal(
        self,
        src: bytes,
        seq: int,
        memory: Memory,
        starts: list[int],
        ends: list[int],
        region: tuple[int, int],
    ) -> tuple[list[int], list[int]]: ...
    def datagrams(
        self, src: bytes, seq: int, memory: Memory, starts: list[int], ends: list[int]
    ) -> list[bytes]: ...

def alike(
    memory: Memory,
    spans: tuple[list[int], list[int]],
    first: int,
    routes: Mapping[bytes, object],
    route: object,
    longest: tuple[int, int],
) -> int: ...
def columns(memory: Memory, starts: list[int], ends: list[int]) -> tuple[Any, ...]: ...
def number(memory: bytearray | memoryview, starts: Sequence[int], ends: Sequence[int], seq: int) -> int: ...
def unpack(memory: Memory, start: int, end: int) -> tuple[list[int], list[int]] | None: ...
