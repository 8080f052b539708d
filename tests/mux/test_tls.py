"""TLS without a socket: a client and the carrier, joined in memory."""

import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, RefusedError
from bccnd.mux.carrier import CarrierError
from bccnd.mux.peer import Peer
from bccnd.mux.settings import Certified, MuxSettings
from bccnd.mux.tls import PORTION, Records, Tls, certified, context_of, make_context, out_of_date
from tests.documents import blocks
from tests.mux.certificates import Certificates
from tests.mux.key_updates import KeyChanger, library
from tests.needs import cannot_run

pytestmark = pytest.mark.needs("openssl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "door", "reports")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of an authority that the door does not know."""
    return Certificates(tmp_path_factory.mktemp("other"), "reports")


class Client:
    """The other side."""

    def __init__(self, context: ssl.SSLContext, door: str = "127.0.0.1") -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=door)

    def shake(self, carrier: Tls) -> bytes:
        """Until both are done. What the carrier had for the endpoint."""
        early = b""
        while True:
            try:
                self._object.do_handshake()
                return early + carrier.received(self._out.read())
            except ssl.SSLWantReadError:
                early += carrier.received(self._out.read())
                self._in.write(carrier.outgoing())

    def says(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._out.read()

    def hears(self, data: bytes) -> bytes:
        self._in.write(data)
        return self._object.read(1 << 16)

    def leaves(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self._object.unwrap()
        return self._out.read()


def server(made: Certificates) -> Tls:
    return Tls(make_context(*made.files("door"), made.ca))


def test_many_records_are_read_some_at_a_time(made: Certificates) -> None:
    carrier, client = Tls(make_context(*made.files("door"), made.ca)), Client(made.client("reports"))
    client.shake(carrier)
    data = b"".join(client.says(bytes([number % 256])) for number in range(2500))
    before = frames = carrier.frames
    most, shortest = 50, len(data) // 2500
    taken = carrier.received(data, most)
    while carrier.is_behind:
        assert carrier.frames - frames <= most + PORTION // shortest + 1
        assert carrier.held > len(data) - shortest * (carrier.frames - before + 1)
        frames = carrier.frames
        taken += carrier.received(b"", most)
    assert taken == bytes(number % 256 for number in range(2500))
    assert (carrier.frames - before, carrier.held, carrier.has_ended) == (2500, 0, False)


def test_bytes_go_both_ways_once_both_have_proved_who_they_are(made: Certificates) -> None:
    carrier, client = server(made), Client(made.client("reports"))
    assert not carrier.is_ready
    assert client.shake(carrier) == b""
    assert carrier.is_ready
    assert carrier.names == ["reports", "reports of CN"]
    carrier_says = carrier.outgoing(b"x" * 50_000)
    heard = client.hears(carrier_says)
    while len(heard) < 50_000:
        heard += client.hears(b"")
    assert heard == b"x" * 50_000
    sealed = client.says(b"y" * 50_000)
    assert (
        b"".join(carrier.received(sealed[at : at + 999]) for at in range(0, len(sealed), 999))
        == b"y" * 50_000
    )
    assert not carrier.has_ended
    assert carrier.received(client.says(b"last") + client.leaves()) == b"last"
    assert carrier.has_ended


def test_nobody_gets_in_without_a_certificate_that_counts(made: Certificates, other: Certificates) -> None:
    stranger = made.client()
    stranger.load_cert_chain(*other.files("reports"))
    for context in (made.client(), stranger):
        carrier = server(made)
        with pytest.raises(CarrierError):
            Client(context).shake(carrier)
        assert not carrier.is_ready
        assert carrier.outgoing(), "an alert says why"


def test_records_are_counted_however_they_are_cut() -> None:
    data = b"".join(b"\x17\x03\x03" + size.to_bytes(2) + bytes(size) for size in (1, 0, 7, 300, 16_000, 3))
    for step in (1, 2, 5, 6, 7, 400, 20_000):
        records = Records()
        for at in range(0, len(data), step):
            records.add(data[at : at + step])
        assert records.count == 6


def test_changes_of_keys_are_work_and_chatter(made: Certificates) -> None:
    """They cost more than what they bring. What else comes meanwhile is no chatter."""
    libssl = library()
    if libssl is None:
        cannot_run("needs libssl")
    carrier = server(made)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        changer = KeyChanger(libssl, theirs.fileno(), *made.files("reports"))
        while not (changer.connect() and carrier.is_ready):
            with suppress(BlockingIOError):
                carrier.received(ours.recv(1 << 16))
            ours.send(carrier.outgoing() or b"")
        before = carrier.chatter
        assert before < 20
        for count in range(100):
            assert changer.change_key()
            assert count % 10 or changer.write(b"x")
        assert carrier.received(ours.recv(1 << 16)) == b"x" * 10
        assert carrier.chatter - before == 100
        assert carrier.frames == carrier.chatter + 10
        changer.close()


def test_what_is_no_tls_is_a_fault(made: Certificates) -> None:
    with pytest.raises(CarrierError):
        server(made).received(b"GET / HTTP/1.1\r\n\r\n")
    carrier, client = server(made), Client(made.client("reports"))
    client.shake(carrier)
    with pytest.raises(CarrierError):
        carrier.received(b"\x17\x03\x03\x00\x05xxxxx")


def test_a_certificate_is_the_user_that_the_settings_say() -> None:
    users = [Certified(name="a", user=1, groups=(2, 3)), Certified(name="b", user=4, groups=(5,))]
    assert certified(["x", "b"], users) == Peer(4, (5,), 0, b"b")
    assert certified(["b", "a"], users) == Peer(1, (2, 3), 0, b"a")
    assert certified(["x", "y"], users) == b"refused the certificate of x is no user's here"
    assert certified([], []) == b"refused the certificate has no name that can be read"
    assert certified(["a\0\nb"], []) == b"refused the certificate of a??b is no user's here"
    assert len(certified(["x" * 60_000], [])) <= 300  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("subject", "extensions", "names"),
    [
        ("/CN=reports", [b"subjectAltName=DNS:caf\xe9.example"], []),
        ("/O=reports", [b"subjectAltName=DER:30078205fffe804142"], []),
        ("/CN=Zoë ☃", [], ["Zoë ☃"]),
        ("/CN=x", ["subjectAltName=DER:30078205610062632e"], ["a\0bc.", "x"]),
        ("/O=reports", ["subjectAltName=IP:127.0.0.1,email:a@b.example"], []),
    ],
    ids=["latin-1", "bytes", "letters", "nul", "none"],
)
def test_a_certificate_may_have_any_name(
    other: Certificates, subject: str, extensions: list[bytes | str], names: list[str]
) -> None:
    other.sign("odd", subject, *extensions)
    carrier = Tls(make_context(*other.files("reports"), other.ca))
    Client(other.client("odd")).shake(carrier)
    assert carrier.is_ready
    assert carrier.names == names


def test_a_file_that_is_wrong_is_named_alone(made: Certificates, tmp_path: Path) -> None:
    certificate, key = made.files("door")
    none, broken, exposed, locked = (tmp_path / name for name in ("none", "broken", "exposed", "locked"))
    broken.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    exposed.write_bytes(key.read_bytes())
    exposed.chmod(0o644)
    asked = ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked]
    subprocess.run(asked, check=True, capture_output=True)
    locked.chmod(0o600)
    for files, said in (
        ((none, key, made.ca), f"certificate {none}: No such file or directory"),
        ((certificate, none, made.ca), f"key {none}: No such file or directory"),
        ((certificate, key, none), f"authorities {none}: No such file or directory"),
        ((key, key, made.ca), f"certificate {key}: has no certificate in PEM"),
        ((certificate, certificate, made.ca), f"key {certificate}: has no private key in PEM"),
        ((certificate, key, key), f"authorities {key}: has no certificate in PEM"),
        ((broken, key, made.ca), f"certificate {broken}, key {key}: cannot be read ("),
        ((certificate, key, broken), f"authorities {broken}: cannot be read ("),
        (
            (certificate, exposed, None),
            f"key {exposed}: mode 0644 lets others at it; do: chmod 600 {exposed}",
        ),
        ((certificate, locked, None), f"certificate {certificate}, key {locked}: the key has a password"),
        (
            (certificate, made.files("reports")[1], made.ca),
            f"key {made.files('reports')[1]}: is not the key of the certificate in {certificate}",
        ),
    ):
        with pytest.raises((ConfigError, RefusedError)) as caught:
            make_context(*files)
        assert str(caught.value).startswith(said)
        assert "\n" not in str(caught.value)


def test_a_certificate_that_has_expired_is_known(made: Certificates) -> None:
    assert out_of_date(*made.files("door")) == ""
    made.expire("door", "expired")
    assert out_of_date(*made.files("expired")) == "certificate has expired"


def test_who_listens_with_tls_needs_all_three_files(made: Certificates) -> None:
    certificate, key = made.files("door")
    listen = ("tls://127.0.0.1:0",)
    assert context_of(MuxSettings(listen=("unix:/x",))) is None
    with pytest.raises(ConfigError, match="needs certificate, key and authorities"):
        context_of(MuxSettings(listen=listen, certificate=certificate, key=key))
    assert context_of(MuxSettings(listen=listen, certificate=certificate, key=key, authorities=made.ca))


def test_certificates_made_as_in_the_readme_let_in(tmp_path: Path) -> None:
    (commands,) = [
        each.code for each in blocks("bccnd/mux/README.md") if each.code.startswith('new="openssl')
    ]
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    carrier = Tls(make_context(tmp_path / "door.pem", tmp_path / "door.key", tmp_path / "ca.pem"))
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    context.load_cert_chain(tmp_path / "me.pem", tmp_path / "me.key")
    Client(context, "relay01").shake(carrier)
    assert carrier.names == ["reports.example.org"]
