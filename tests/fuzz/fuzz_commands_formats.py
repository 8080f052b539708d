"""``bccn sub -F``: any format is refused or prints any message; JSON is read back; what is not raw moves no cursor.

An input is a message as the daemon sends it and, behind it, the format.
"""

import json
import os
import re
from collections.abc import Iterable

import bccn
from bccn.protocol import Message, parse
from bccnd.commands.formats import FORMAT_HELP, Formatter, to_json
from tests.fuzz.fuzzer import Script
from tests.golden import entries

END = b"\n"
MARKS = set(re.findall(r"%.|\\.", FORMAT_HELP))


def one_input(data: bytes) -> None:
    script = Script(data)
    full, packet = script.number(2), script.chunk() + script.chunk()
    format_text = os.fsdecode(script.rest())
    message = message_of(packet, full == 1)
    if message is None:
        return
    fields = json.loads(to_json(message))
    assert fields["channel"] == message.channel
    assert "payload_hex" not in fields or bytes.fromhex(fields["payload_hex"]) == message.payload
    assert "payload" not in fields or fields["payload"].encode() == message.payload
    for raw in (True, False):
        try:
            formatter = Formatter(format_text, end=END, raw=raw)
        except bccn.InvalidError:
            assert not means_something(format_text)
            continue
        assert means_something(format_text)
        if full or not formatter.needs_full:
            printed = formatter.line(message)
            assert printed.endswith(END)
            assert raw or harmless(format_text, printed)
    assert Formatter("%p", end=b"", raw=True).line(message) == message.payload


def message_of(packet: bytes, full: bool) -> Message | None:
    try:
        message = parse((b"RECV " if full else b"MSG ") + packet)
    except bccn.ProtocolError:
        return None
    assert isinstance(message, Message)
    return message


def means_something(format_text: str) -> bool:
    rest = format_text
    while rest:
        if rest[0] not in "%\\":
            rest = rest[1:]
        elif rest[:2] in MARKS:
            rest = rest[2:]
        else:
            return False
    return True


def harmless(format_text: str, printed: bytes) -> bool:
    """Whether all that moves the cursor comes from the format itself."""
    own = set(os.fsencode(format_text)) | set(END) | (set(b"\n\t\0") if "\\" in format_text else set())
    return all(byte >= 32 and byte != 127 for byte in set(printed) - own)


def seeds() -> Iterable[bytes]:
    whole = "%c %p %x %l %s %n %m %a %I %U %j %%\\n\\t\\0\\\\"
    formats = [whole, "%I %c %p", "%c\\t%p", "%", "\\", "%z", "\x1b[2J%p"]
    for entry in entries("sbus", "valid"):
        word, _, packet = bytes.fromhex(entry["packet"]).partition(b" ")
        if word in (b"MSG", b"RECV") and len(packet) < 256:
            for text in formats:
                yield bytes([word == b"RECV", len(packet)]) + packet + b"\0" + text.encode()
