"""What is hot of ``batch``, ``columns`` and ``fyrehose``, compiled where the extension (Rust, beside this) was built.

Without it, or with ``BCCN_PURE`` in the environment, they are the ones in Python: slower, never different.
"""

from bccnd import PURE
from bccnd.wire import batch
from bccnd.wire import columns as plain
from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.sbus import Memory

__all__ = ["COMPILED", "alike", "codec_of", "columns", "number", "unpack"]

try:
    if PURE:
        raise ImportError
    from bccnd.wire.native import _native
    from bccnd.wire.native._native import alike, number, unpack
    from bccnd.wire.native._native import columns as compiled_columns

    COMPILED = True
except ImportError:
    from bccnd.wire.batch import alike, unpack
    from bccnd.wire.fyrehose import number

    COMPILED = False


def codec_of(integrity: Integrity) -> batch.Codec:
    if COMPILED and integrity.required is not Level.CRC32:
        return _native.Codec(integrity.keys, integrity.required is Level.HMAC)
    return batch.PlainCodec(integrity)


def columns(memory: Memory, starts: list[int], ends: list[int]) -> plain.Columns:
    if COMPILED:
        return plain.Columns(*compiled_columns(memory, starts, ends))
    return plain.columns(memory, starts, ends)
