"""DNDM: frames in pieces and within noise against slices, messages and the way back, routes, channels and peers.

The first byte says what the rest is.
"""

from collections.abc import Iterable
from contextlib import suppress

from bccnd.errors import DndmError
from bccnd.wire.dndm import peers, routes
from bccnd.wire.dndm.frame import HEADERLESS, LINE_LIMIT, MAGIC, Frame, Reader, parse
from bccnd.wire.dndm.messages import decode, join
from tests.fuzz.fuzzer import Script
from tests.golden import entries

LIMIT = 4096


def one_input(data: bytes) -> None:
    script = Script(data)
    choice = script.number(4)
    if choice == 0:
        judge_line(script.number(64) + 1, script.rest())
    elif choice == 1:
        judge_message(script.rest())
    else:
        text = script.rest().decode("utf-8", "surrogateescape" if choice == 3 else "replace")
        judge_text(text)


def judge_line(piece: int, data: bytes) -> None:
    """The same frames come of one piece and of many; what a clean line gives is what slices say."""
    for noisy in (False, True):
        whole, pieces = Reader(LIMIT, noisy=noisy), Reader(LIMIT, noisy=noisy)
        frames = whole.feed(data)
        assert frames == [
            frame for at in range(0, len(data), piece) for frame in pieces.feed(data[at : at + piece])
        ]
        assert whole.waiting == pieces.waiting < LIMIT
        assert (whole.fault is None) == (pieces.fault is None)
        if not noisy:
            assert frames == sliced(data)
            continue
        assert whole.fault is None
        while whole.waiting:
            before = whole.waiting
            frames += whole.resume()
            assert whole.waiting < before
        assert len(data) == whole.skipped + sum(len(frame.serialize()) for frame in frames)


def sliced(data: bytes) -> list[Frame]:
    frames = []
    while len(data) >= 12:
        total = int.from_bytes(data[4:8], "big")
        size = 8 + total
        if size > min(LIMIT, len(data)):
            break
        header: bytes | None = None
        rest = data[8:size]
        if data[:4] == MAGIC:
            if total < 8 or int.from_bytes(rest[:4], "big") > min(2048, total - 8):
                break
            end = 4 + int.from_bytes(rest[:4], "big")
            header, rest = rest[4:end], rest[end:]
        elif data[:4] != HEADERLESS:
            break
        if total < 4 or int.from_bytes(rest[:4], "big") != len(rest) - 4:
            break
        frames.append(Frame(header, rest[4:]))
        data = data[size:]
    return frames


def judge_message(data: bytes) -> None:
    try:
        header, message = decode(parse(data))
    except DndmError:
        return
    body = message if isinstance(message, bytes) else message.SerializeToString()
    assert decode(parse(join(header, body))) == (header, message)


def judge_text(text: str) -> None:
    with suppress(DndmError):
        peer = peers.parse(text)
        assert peers.parse(str(peer)) == peer
        peer.serial()
    with suppress(DndmError):
        route = routes.parse(text)
        assert str(route) == text
        assert routes.route_of(route.channel()) == route
    with suppress(DndmError):
        assert routes.route_of(text).channel() == text


def seeds() -> Iterable[bytes]:
    for section in ("frames", "wrong_frames", "messages"):
        for entry in entries("dndm", section):
            yield b"\x00\x07" + bytes.fromhex(entry["frame"])
            yield b"\x01" + bytes.fromhex(entry["frame"])
    for section, name in (
        ("routes", "route"),
        ("routes", "channel"),
        ("peers", "peer"),
        ("wrong_peers", "peer"),
    ):
        for entry in entries("dndm", section):
            yield b"\x02" + entry[name].encode()
    assert LIMIT < LINE_LIMIT
