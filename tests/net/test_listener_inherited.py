"""Listeners whose name is no file of their own: abstract names, and descriptors that somebody handed down."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, UnavailableError
from tests.net.connections import Listen, bound, listening_at, reopened, seqpacket_socket, serves


def test_an_abstract_name_is_served_once(listen: Listen) -> None:
    name = f"@bccnd-test-{os.getpid()}"
    first = listen(name)
    assert first.name == name
    assert serves(first)
    with pytest.raises(UnavailableError, match="another daemon serves this socket"):
        listen(name)
    first.close()
    assert serves(listen(name))


def test_free_abstract_names_differ(listen: Listen) -> None:
    listeners = [listen("@") for _ in range(3)]
    assert len({listener.name for listener in listeners}) == 3
    assert all(listener.name.startswith("@") and serves(listener) for listener in listeners)


def test_an_abstract_name_that_is_too_long_is_refused(listen: Listen) -> None:
    assert serves(listen("@" + "x" * 107))
    with pytest.raises(ConfigError, match="too long"):
        listen("@" + "x" * 108)


@pytest.mark.parametrize("listening", [False, True], ids=["bound only", "listening"])
@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_a_bound_descriptor_is_served_and_its_file_stays(
    path: Path, listen: Listen, listening: bool, abstract: bool
) -> None:
    with (listening_at if listening else bound)("" if abstract else str(path)) as handed:
        handed.set_inheritable(True)
        listener = listen(f"fd:{handed.detach()}")
    assert listener.name.startswith("@") if abstract else listener.name == str(path)
    assert not listener.socket.get_inheritable()
    assert serves(listener)
    listener.close()
    assert abstract or path.exists()


def test_a_descriptor_that_cannot_be_served_is_refused(path: Path, listen: Listen) -> None:
    def unbound() -> int:
        return seqpacket_socket().detach()

    def stream() -> int:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.bind("")
            return made.detach()

    def udp() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.bind(("127.0.0.1", 0))
            return made.detach()

    def connection() -> int:
        with listening_at(str(path)) as server, seqpacket_socket() as client:
            client.connect(str(path))
            return server.accept()[0].detach()

    def file() -> int:
        return os.open(os.devnull, os.O_RDONLY)

    for made, complaint in [
        (unbound, "not a bound Unix SOCK_SEQPACKET socket"),
        (stream, "not a bound Unix SOCK_SEQPACKET socket"),
        (udp, "not a bound Unix SOCK_SEQPACKET socket"),
        (connection, "cannot listen"),
        (file, "not an open socket"),
    ]:
        descriptor = made()
        with pytest.raises(ConfigError, match=f"fd:{descriptor}: {complaint}"):
            listen(f"fd:{descriptor}")
        with suppress(OSError):
            os.close(descriptor)


@pytest.mark.parametrize("number", ["", "x", "-1", "1000000"])
def test_a_bad_descriptor_number_is_refused(listen: Listen, number: str) -> None:
    with pytest.raises(ConfigError, match=f"--socket fd:{number}: not an open socket"):
        listen(f"fd:{number}")


@pytest.mark.parametrize("raw", [b"\xff\xfe.sock", b"a\nb.sock"])
def test_a_path_that_is_no_text_is_shown_in_text(tmp_path: Path, listen: Listen, raw: bytes) -> None:
    with listening_at(os.fsencode(tmp_path) + b"/" + raw) as handed:
        listener = listen(f"fd:{handed.detach()}")
    assert listener.name.isprintable()
    assert listener.name.encode().decode() == listener.name
    assert os.fsencode(listener.beside("seq") or "").endswith(raw + b".seq")
    assert not listener.is_gone


def test_a_socket_that_was_handed_down_is_not_made_again(path: Path, listen: Listen) -> None:
    with listening_at(bytes(path)) as handed:
        listener = listen(f"fd:{handed.detach()}")
    path.unlink()
    assert listener.is_gone
    with pytest.raises(UnavailableError, match="only whoever made the socket"):
        reopened(listener)
