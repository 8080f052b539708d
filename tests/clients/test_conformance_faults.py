"""A client does not trust its daemon more than it must (``clients/PROTOCOL.md``, "The socket", "Notices")."""

import socket
from pathlib import Path

from tests.clients.conftest import Start
from tests.clients.drivers import (
    LATEST,
    Driver,
    Language,
    each_language,
)
from tests.clients.scripted_daemon import ScriptedDaemon

# Bytes; no packet of a daemon is longer.
PACKET_LIMIT = 128 * 1024


def next_message(driver: Driver) -> list[str]:
    """Whatever came of the connection before it."""
    while True:
        driver.ask("recv", LATEST)
        word, *words = driver.answer()
        if (word, words[0]) not in (("ok", "disconnected"), ("ok", "reconnected"), ("error", "protocol")):
            return [word, *words]


@each_language
def test_a_packet_longer_than_any_ends_the_connection(
    language: Language, tmp_path: Path, start: Start
) -> None:
    unreadable = b"MSG a\0".ljust(PACKET_LIMIT + 1, b"x")
    sent: list[bytes] = []

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"SUB a" and sent:
            connection.send(b"MSG a\0whole")
        if packet.startswith(b"MSG ") and not sent:
            sent.append(packet)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_LIMIT)
            connection.send(unreadable)
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        driver.open(daemon.path)
        try:
            driver("sub", "a")
            driver.ask("pub", "b", "x")
            word, *rest = driver.answer()
            assert word == "ok" or rest[0] == "protocol"  # one that reads what the daemon has against it
            assert next_message(driver) == ["ok", "msg", "a", "whole"]
        finally:
            driver("close")  # or the daemon would wait for it


@each_language
def test_news_of_a_newer_daemon_is_ignored(language: Language, tmp_path: Path, start: Start) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            for news in (b"CMSG news\0x", b"CMSG news\0", b"CMSG pong\0unasked", b"MSG a\0hello"):
                connection.send(news)
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        driver.open(daemon.path)
        try:
            driver("sub", "a")
            driver("pub", "b", "x")
            assert driver("recv", LATEST) == [b"msg", b"a", b"hello"]
            driver("barrier")
        finally:
            driver("close")
