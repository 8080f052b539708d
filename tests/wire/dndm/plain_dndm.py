"""Frames and messages of DNDM from the document alone: no protobuf library, nothing of the daemon.

A message is a list of fields (number, value) in order; a value is an int (varint), bytes (of any length) or a float.
"""

import struct

Value = int | bytes | float
Fields = list[tuple[int, Value]]

# Message type -> its number.
TYPES = {
    "MESSAGE": 1, "INTENT": 2, "INTENTS": 3, "INTEREST": 4, "INTERESTS": 5, "NOTIFY_INTENT": 6, "RESULT": 7,
    "PING": 8, "PONG": 9, "HANDSHAKE": 50, "PEERS": 51, "ADDRBOOK": 52,
}  # fmt: skip


def varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def written(fields: Fields) -> bytes:
    data = b""
    for number, value in fields:
        match value:
            case float():
                data += varint(number << 3 | 5) + struct.pack("<f", value)
            case int():
                data += varint(number << 3) + varint(value)
            case _:
                data += varint(number << 3 | 2) + varint(len(value)) + value
    return data


def read(data: bytes) -> Fields:
    """Raises ``ValueError`` or ``IndexError`` for what is no message."""
    fields: Fields = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            octet = data[at]
            at += 1
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return value

    while at < len(data):
        key = number()
        match key & 7:
            case 0:
                fields.append((key >> 3, number()))
            case 2:
                size = number()
                if at + size > len(data):
                    raise ValueError("a field ends too late")
                fields.append((key >> 3, data[at : at + size]))
                at += size
            case 5:
                fields.append((key >> 3, struct.unpack("<f", data[at : at + 4])[0]))
                at += 4
            case other:
                raise ValueError(f"wire type {other}")
    return fields


def frame(header: bytes, message: bytes) -> bytes:
    counted = struct.pack(">I", len(header)) + header + struct.pack(">I", len(message)) + message
    return struct.pack(">II", 0xFADABEDA, len(counted)) + counted


def headerless(message: bytes) -> bytes:
    return struct.pack(">III", 0xCEBAFE4A, 4 + len(message), len(message)) + message


def split(data: bytes) -> tuple[bytes, bytes]:
    """Header and message of one standard frame."""
    assert data[:4] == bytes.fromhex("fadabeda")
    total, size = struct.unpack(">II", data[4:12])
    assert total == len(data) - 8
    (rest,) = struct.unpack(">I", data[12 + size : 16 + size])
    assert rest == len(data) - 16 - size
    return data[12 : 12 + size], data[16 + size :]
