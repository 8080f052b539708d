"""Prints the golden vectors (clients/vectors) as lines, for a program without a JSON reader.

    match SEPARATOR PATTERN CHANNEL yes|no      whether the pattern matches
    send PACKET CHANNEL PAYLOAD                 the packet that publishing writes
    recv PACKET [CHANNEL PAYLOAD]...            the messages in a packet from the daemon, in the format plain
    full PACKET CHANNEL PAYLOAD SRC SEQ PEER UNIX_NS VERDICT DATAGRAM
    broken PACKET                               a packet that no daemon sends

Words are hex, except yes, no and numbers; an empty word is ``-``.

    python3 vector_lines.py FOLDER
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

MSG = b"MSG ".hex()


def packed(text: str) -> str:
    return text.encode().hex() or "-"


def of_patterns(vectors: dict[str, list[Entry]]) -> Iterator[str]:
    for entry in vectors["matches"]:
        words = (packed(entry[key]) for key in ("separator", "pattern", "channel"))
        yield f"match {' '.join(words)} {'yes' if entry['matches'] else 'no'}"


def said(packet: str) -> str | None:
    """The channel and payload of a MSG; None for anything else."""
    channel, nul, payload = bytes.fromhex(packet)[4:].partition(b"\0")
    return f"{channel.hex()} {payload.hex() or '-'}" if nul and packet.startswith(MSG) else None


def of_bus(vectors: dict[str, list[Entry]]) -> Iterator[str]:
    for entry in vectors["valid"]:
        if entry["type"] == "MSG":
            words = f"{packed(entry['chan'])} {entry['payload'] or '-'}"
            if entry["canonical"]:
                yield f"send {entry['packet']} {words}"
            yield f"recv {entry['packet']} {words}"
        elif entry["type"] == "PACK" and None not in (inside := [said(each) for each in entry["packets"]]):
            yield f"recv {entry['packet']} {' '.join(map(str, inside))}".rstrip()
    for entry in vectors["invalid"]:
        if entry["name"].startswith(("RECV:", "PACK:")):
            yield f"broken {entry['packet']}"


def of_datagrams(vectors: dict[str, list[Entry]]) -> Iterator[str]:
    head = b"RECV 10.0.0.7:5400 1760000000123456789 ok\0".hex()
    for entry in vectors["valid"]:
        words = [packed(entry["chan"]), entry["payload"] or "-", packed(entry["src"]), entry["seq"]]
        words += [packed("10.0.0.7:5400"), "1760000000123456789", packed("ok"), entry["datagram"]]
        yield f"full {head}{entry['datagram']} {' '.join(words)}"


def main(folder: Path) -> None:
    for name, lines in (("patterns", of_patterns), ("sbus", of_bus), ("bccn1", of_datagrams)):
        vectors = json.loads((folder / f"{name}.json").read_text())
        sys.stdout.writelines(f"{line}\n" for line in lines(vectors))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
