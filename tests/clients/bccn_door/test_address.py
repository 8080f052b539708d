"""Connecting to a door: addresses, Unix sockets, TLS with certificates on both sides, and what stands for nothing."""

import errno
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

import bccn
from bccn_door.address import connected, fault
from tests.clients.scripted_door import ScriptedDoor
from tests.mux.certificates import Certificates
from tests.packet_client import PATIENCE

NOTHING = (None, None, None, None)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a door and a client that it vouches for, and another authority and its client."""
    folder = tmp_path_factory.mktemp("keys")
    Certificates(folder, "door", "me")
    Certificates(folder / "other", "me")
    return folder


@pytest.fixture
def context(keys: Path) -> ssl.SSLContext:
    """Of a door that wants to know who comes."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys / "ca.pem"))
    made.load_cert_chain(keys / "door.pem", keys / "door.key")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def door_with(context: ssl.SSLContext, folder: Path) -> ScriptedDoor:
    return ScriptedDoor(folder, wrap=lambda accepted: context.wrap_socket(accepted, server_side=True))


def test_a_client_and_a_door_know_each_other_by_certificates(
    keys: Path, context: ssl.SSLContext, tmp_path: Path
) -> None:
    with door_with(context, tmp_path) as door:
        files = {"ca": keys / "ca.pem", "cert": keys / "me.pem", "key": keys / "me.key"}
        for name in (None, "door"):
            with bccn.Client(
                f"tls://127.0.0.1:{door.port}", timeout=PATIENCE, server_name=name, **files
            ) as bus:
                for number in range(100):
                    bus.publish("a", bytes(number * 1000))
                bus.barrier()
        assert [len(each) - 6 for each in door.seen if each[:4] == b"MSG "] == 2 * [
            n * 1000 for n in range(100)
        ]


def test_files_are_named_by_the_environment_too(
    keys: Path, context: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word, file in (("CA", "ca.pem"), ("CERT", "me.pem"), ("KEY", "me.key")):
        monkeypatch.setenv(f"BCCN_TLS_{word}", str(keys / file))
    with door_with(context, tmp_path) as door:
        monkeypatch.setenv("BCCN_CONNECT", f"tls://127.0.0.1:{door.port}")
        monkeypatch.delenv("BCCN_SOCKET", raising=False)
        with bccn.Client(timeout=PATIENCE) as bus:
            assert bus.name == "here/test/1"
        monkeypatch.setenv("BCCN_SOCKET", str(tmp_path / "none"))
        with pytest.raises(bccn.UnavailableError, match=r"no daemon at .*/none"):
            bccn.Client()


@pytest.mark.parametrize(
    ("files", "name", "error", "text"),
    [
        (("other/ca.pem", "me.pem", "me.key"), None, bccn.UnavailableError, "not prove .*: .*certificate"),
        (("ca.pem", "me.pem", "me.key"), "relay.test", bccn.UnavailableError, "not prove .*: .*mismatch"),
        (("ca.pem", None, None), None, bccn.RefusedError, "does not take our certificate: .*required"),
        (
            ("ca.pem", "other/me.pem", "other/me.key"),
            None,
            bccn.RefusedError,
            "does not take our certificate",
        ),
    ],
)
def test_strangers_are_no_door_and_no_client(
    keys: Path,
    context: ssl.SSLContext,
    tmp_path: Path,
    files: tuple[str | None, ...],
    name: str | None,
    error: type[bccn.BccnError],
    text: str,
) -> None:
    ca, cert, key = (keys / each if each else None for each in files)
    with door_with(context, tmp_path) as door, pytest.raises(error, match=text):
        bccn.Client(
            f"tls://127.0.0.1:{door.port}", timeout=PATIENCE, ca=ca, cert=cert, key=key, server_name=name
        )


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (("none", None, None), "none: No such file"),
        (("ca.pem", "none", "me.key"), "none: No such file"),
        (("ca.pem", "me.pem", "none"), "none: No such file"),
        (("me.key", None, None), "me.key: has no certificate in PEM"),
        (("ca.pem", "me.key", "me.key"), "me.key: has no certificate in PEM"),
        (("ca.pem", "me.pem", None), "me.pem: has no private key in PEM"),
        (("ca.pem", "me.pem", "door.pem"), "door.pem: has no private key in PEM"),
        (("ca.pem", "me.pem", "door.key"), "door.key: is not the key of the certificate in .*me.pem"),
        (("ca.pem", "me.pem", "locked.key"), "locked.key: the key has a password"),
        (("ca.pem", None, "me.key"), "me.key: a key needs its certificate"),
        (("broken.pem", None, None), "no keys or certificates to be read in .*broken.pem"),
    ],
)
def test_a_file_that_is_wrong_is_named_alone(keys: Path, files: tuple[str | None, ...], text: str) -> None:
    (keys / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    asked = ["openssl", "pkey", "-in", "me.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key"]
    subprocess.run(asked, cwd=keys, check=True, capture_output=True)
    ca, cert, key = (str(keys / each) if each else None for each in files)
    with pytest.raises(bccn.InvalidError, match=text):
        connected("tls://127.0.0.1:1", (ca, cert, key, None))


@pytest.mark.parametrize(
    "address",
    [
        "ws://here:80/bus",
        "wss://here/bus",
        "tls://here",
        "tls://:7",
        "tls:here:7",
        "tls://here:x",
        "tls://here:0",
        "tls://here:65537",
    ],
)
def test_an_address_of_no_door_is_invalid(address: str) -> None:
    with pytest.raises(bccn.InvalidError, match="no address of a door"):
        bccn.Client(address)


def test_a_unix_socket_may_be_abstract(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError, match="no door at unix:@nobody/here: Connection refused"):
        connected("unix:@nobody/here", NOTHING)


def test_nobody_may_be_there(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError, match=r"no door at tls://127\.0\.0\.1:1: Connection refused"):
        connected("tls://127.0.0.1:1", NOTHING)
    with pytest.raises(bccn.UnavailableError, match="too long"):
        connected("unix:" + "x" * 200, NOTHING)


def test_the_socket_of_a_daemon_is_no_door(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(f"{tmp_path}/bus")
        daemon.listen()
        with pytest.raises(bccn.UnavailableError, match="is the socket of a daemon"):
            connected(f"unix:{tmp_path}/bus", NOTHING)


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EPIPE])
def test_a_door_that_closed_before_it_had_read_all_went_away(number: int) -> None:
    ended = fault(OSError(number, "Broken"), "unix:/x", stood=True)
    assert str(ended).startswith("the door at unix:/x went away")
