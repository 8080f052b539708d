"""What Spark calls ``xxhash64``, of many rows at once: XXH64 of each column, the first one with the seed 42.

Its result is the seed of the next column (https://github.com/Cyan4973/xxHash, "XXH64 algorithm description").
"""

from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_ONE, _TWO, _THREE, _FOUR, _FIVE = np.array(
    [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5],
    np.uint64,
)
_SEED = np.array([42], np.uint64)
_STRIPE = 32


# The same sources are in many files.
@lru_cache(1 << 16)
def of_string(text: str) -> Array:
    """Of the first column; a single number."""
    data = text.encode()
    eights = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    found, taken = _SEED + _FIVE, len(data) // _STRIPE * 4
    if taken:
        lanes = np.concatenate([_SEED + _ONE + _TWO, _SEED + _TWO, _SEED, _SEED - _ONE])
        for stripe in eights[:taken].reshape(-1, 4):
            lanes = _turned(lanes + stripe * _TWO, 31) * _ONE
        turned = [_turned(lanes[k : k + 1], bits) for k, bits in enumerate((1, 7, 12, 18))]
        found = sum(turned[1:], turned[0])
        for k in range(4):
            found = (found ^ _lane(lanes[k : k + 1])) * _ONE + _FOUR
    found = found + np.uint64(len(data))
    for k in range(taken, len(eights)):
        found = _turned(found ^ _lane(eights[k : k + 1]), 27) * _ONE + _FOUR
    rest = data[8 * len(eights) :]
    if len(rest) >= 4:
        found = _turned(found ^ np.frombuffer(rest[:4], "<u4") * _ONE, 23) * _TWO + _THREE
        rest = rest[4:]
    for k in range(len(rest)):
        found = _turned(found ^ np.frombuffer(rest[k : k + 1], np.uint8) * _FIVE, 11) * _ONE
    return _mixed(found)


def of_numbers(values: Array, before: Array) -> Array:
    """Of a column of bigints, and the hashes of the columns before it."""
    found = (before + _FIVE + np.uint64(8)) ^ _lane(values.astype(np.int64).view(np.uint64))
    return _mixed(_turned(found, 27) * _ONE + _FOUR)


def _turned(values: Array, bits: int) -> Array:
    """Rotated to the left."""
    turned: Array = values << np.uint64(bits) | values >> np.uint64(64 - bits)
    return turned


def _lane(values: Array) -> Array:
    lane: Array = _turned(values * _TWO, 31) * _ONE
    return lane


def _mixed(values: Array) -> Array:
    values = (values ^ values >> np.uint64(33)) * _TWO
    values = (values ^ values >> np.uint64(29)) * _THREE
    mixed: Array = values ^ values >> np.uint64(32)
    return mixed
