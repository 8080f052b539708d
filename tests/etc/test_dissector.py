"""The dissector for Wireshark against the golden vectors, run by tshark on a capture of them."""

import json
import os
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.golden import entries
from tests.needs import require

DISSECTOR = Path(__file__).parents[2] / "etc" / "bccn.lua"
PORT = 5400
LINKTYPE_IPV4 = 228
# Verdicts that depend on a receiver's settings or on its key: the datagram itself is sound.
NOT_IN_THE_DATAGRAM = {"unauthenticated", "hmac", "version", "truncated"}


def capture(path: Path, datagrams: Sequence[bytes], port: int = PORT) -> Path:
    """A pcap file with one UDP packet for each datagram."""
    with path.open("wb") as stream:
        stream.write(struct.pack("=IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_IPV4))
        for datagram in datagrams:
            udp = struct.pack("!HHHH", port, port, 8 + len(datagram), 0)
            addresses = socket.inet_aton("10.99.0.1") + socket.inet_aton("10.99.0.255")
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(datagram), 0, 0, 64, 17, 0) + addresses
            packet = ip + udp + datagram
            stream.write(struct.pack("=IIII", 0, 0, len(packet), len(packet)) + packet)
    return path


def dissect(file: Path) -> list[dict[str, Any]]:
    """The layers of each packet."""
    require("tshark")
    shown = subprocess.run(
        ["tshark", "-n", "-X", f"lua_script:{DISSECTOR}", "-r", str(file), "-T", "json", "--no-duplicate-keys"],
        capture_output=True, text=True, errors="replace", timeout=120, check=False,
        env={**os.environ, "HOME": str(file.parent)},
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "Lua" not in shown.stderr, shown.stderr
    packets: list[dict[str, Any]] = [packet["_source"]["layers"] for packet in json.loads(shown.stdout)]
    return packets


def flagged(layers: dict[str, Any], expert: str) -> bool:
    return f'"bccn.{expert}"' in json.dumps(layers.get("bccn", {}))


def of_bytes(payload: str) -> str:
    """Hexadecimal digits as tshark writes them."""
    return ":".join(payload[at : at + 2] for at in range(0, len(payload), 2))


def test_sound_datagrams_have_the_fields_of_the_vectors(tmp_path: Path) -> None:
    valid = entries("bccn1", "valid")
    packets = dissect(capture(tmp_path / "valid.pcap", [bytes.fromhex(each["datagram"]) for each in valid]))
    assert len(packets) == len(valid)
    for vector, layers in zip(valid, packets, strict=True):
        shown = layers["bccn"]
        expected = {
            "bccn.magic": vector["magic"],
            "bccn.len": str(vector["length"]),
            "bccn.algo": vector["algorithm"],
            "bccn.sum": vector["sum"],
            "bccn.src": vector["src"],
            "bccn.seq": str(int(vector["seq"])),
            "bccn.chan": vector["chan"],
            "bccn.mode": vector["mode"],
            "bccn.payload": of_bytes(vector["payload"]) or None,
        }
        assert {name: shown.get(name) for name in expected} == expected, vector["name"]
        assert not flagged(layers, "malformed"), vector["name"]
        assert not flagged(layers, "wrong_sum"), vector["name"]


def test_malformed_datagrams_are_flagged(tmp_path: Path) -> None:
    invalid = [v for v in entries("bccn1", "invalid") if v["reason"] not in NOT_IN_THE_DATAGRAM]
    packets = dissect(
        capture(tmp_path / "invalid.pcap", [bytes.fromhex(each["datagram"]) for each in invalid])
    )
    for vector, layers in zip(invalid, packets, strict=True):
        if "bccn" not in layers:  # another beginning: another protocol
            assert not bytes.fromhex(vector["datagram"]).startswith(b"BCCN"), vector["name"]
        elif vector["reason"] == "crc32":
            assert flagged(layers, "wrong_sum"), vector["name"]
        else:
            assert flagged(layers, "malformed"), (vector["name"], layers)


def test_another_version_shows_its_envelope(tmp_path: Path) -> None:
    (layers,) = dissect(capture(tmp_path / "version.pcap", [b"BCCN2[4]\0\1\2\3"]))
    assert (layers["bccn"]["bccn.magic"], layers["bccn"]["bccn.len"]) == ("BCCN2", "4")
    assert flagged(layers, "version")
    assert "bccn.src" not in layers["bccn"]


def test_on_another_port_the_beginning_is_enough(tmp_path: Path) -> None:
    file = capture(tmp_path / "other.pcap", [b"BCCN1[14]a:1:demo/x|hi!", b"BCCNEWS[at nine]"], port=7777)
    first, second = dissect(file)
    assert first["bccn"]["bccn.chan"] == "demo/x"
    assert "bccn" not in second


def test_the_info_column_and_filters_work(tmp_path: Path) -> None:
    file = capture(
        tmp_path / "columns.pcap", [b"BCCN1[14]a:1:demo/x|hi!", b"BCCN1[12]a:2:!b/c/7|x", b"BCCN1[99]short"]
    )
    lines = [
        "BCCN1 a #1 demo/x, 3 bytes",
        "BCCN1 a #2 !b/c/7, 1 byte",
        "BCCN1 [malformed: says 99 bytes, 5 are there]",
    ]
    columns = [
        "tshark",
        "-n",
        "-X",
        f"lua_script:{DISSECTOR}",
        "-r",
        str(file),
        "-T",
        "fields",
        "-e",
        "_ws.col.Info",
    ]

    def shown(*flags: str) -> list[str]:
        run = subprocess.run([*columns, *flags], capture_output=True, text=True, timeout=120, check=True)
        return run.stdout.splitlines()

    assert shown() == lines
    assert shown("-Y", 'bccn.mode == "directed"') == lines[1:2]
    assert shown("-Y", "bccn.malformed") == lines[2:]
    assert shown("-Y", "bccn.seq < 2") == lines[:1]
