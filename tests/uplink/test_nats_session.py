"""One connection to NATS: who is let in, and the line that says why not."""

import asyncio
import contextlib
import runpy
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.errors import AuthorizationError, Error, UnexpectedEOF

from bccnd.errors import ConfigError
from bccnd.uplink import nats_session
from bccnd.uplink.nats_options import NatsOptions
from bccnd.uplink.nats_session import explanation
from tests.mux.certificates import Certificates
from tests.packet_client import PATIENCE
from tests.uplink.nats_account import make_account
from tests.uplink.nats_server import NatsServer, Uplink, options_for, running, until

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with ``ca.pem``, and ``server.pem`` and ``client.pem`` that it signed, each with its key."""
    return Certificates(tmp_path, "server", "client").folder


def secret(path: Path, content: str) -> Path:
    path.write_text(content)
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def _in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is only slow gives no other reason. Where nobody answers, a test waits for less."""
    monkeypatch.setattr(nats_session, "CONNECT_SECONDS", int(PATIENCE))
    monkeypatch.setattr(nats_session, "ANSWER_SECONDS", PATIENCE)


async def reason_of(options: NatsOptions) -> str:
    """Why there is no connection."""
    uplink = Uplink(options)
    uplink.start()
    try:
        await until(lambda: uplink.ear.changes, "a reason")
        assert not uplink.is_up
        return uplink.reason
    finally:
        await uplink.stop()


@contextlib.asynccontextmanager
async def pretended(answer: Answer) -> AsyncIterator[str]:
    """A server of the test's own; its URL."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.needs("nats-server", "openssl")
async def test_tls_with_certificates_on_both_sides(certificates: Path) -> None:
    server_files = f'cert_file: "{certificates}/server.pem", key_file: "{certificates}/server.key"'
    tls = f'tls {{ {server_files}, ca_file: "{certificates}/ca.pem", verify: true }}'
    with NatsServer(certificates / "nats", tls) as server:
        url = (server.url.replace("nats:", "tls:"),)
        ours = {"cert": certificates / "client.pem", "key": certificates / "client.key"}
        a = Uplink(NatsOptions(url, ca=certificates / "ca.pem", **ours))
        async with running(a):
            await a.publish_all(100)
            await until(lambda: a.ear.has(a.source, range(1, 101)), "all")
        assert "certificate is not to be trusted" in await reason_of(NatsOptions(url, **ours))
        without = await reason_of(NatsOptions(url, ca=certificates / "ca.pem"))
        assert without.startswith(url[0])


async def test_no_password_goes_out_before_tls(tmp_path: Path) -> None:
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.9.0","max_payload":1000,"headers":true}\r\n')
        heard.extend(await reader.read())
        writer.close()

    password = secret(tmp_path / "password", "opensesame")
    async with pretended(answer) as url:
        options = NatsOptions((url.replace("nats:", "tls:"),), user="me", password=password)
        assert (await reason_of(options)).endswith("it offers no TLS")
    assert not heard


@pytest.mark.needs("nats-server")
async def test_user_and_token_let_in_and_others_do_not(tmp_path: Path) -> None:
    right, wrong = secret(tmp_path / "right", "opensesame\n"), secret(tmp_path / "wrong", "sesame\n")
    with NatsServer(tmp_path / "user", "authorization { user: me, password: opensesame }") as server:
        async with running(Uplink(options_for(server, user="me", password=right))):
            pass
        refused = f"{server.url} does not let us in: check the credentials"
        assert await reason_of(options_for(server, user="me", password=wrong)) == refused
        assert await reason_of(options_for(server)) == refused
    with NatsServer(tmp_path / "token", "authorization { token: opensesame }") as server:
        async with running(Uplink(options_for(server, token=right))):
            pass


@pytest.mark.needs("nats-server")
async def test_a_credentials_file_lets_in(tmp_path: Path) -> None:
    account = make_account()
    right, strange = (
        secret(tmp_path / "right", account.credentials),
        secret(tmp_path / "strange", account.strange),
    )
    seedless = secret(tmp_path / "seedless", account.credentials.replace("\nSU", "\nXX"))
    with NatsServer(tmp_path / "nats", account.configuration) as server:
        a = Uplink(options_for(server, credentials=right))
        async with running(a):
            await a.publish_all(10)
        refused = f"{server.url} does not let us in: check the credentials"
        assert await reason_of(options_for(server, credentials=strange)) == refused
        assert (await reason_of(options_for(server, credentials=seedless))).startswith(server.url)


@pytest.mark.needs("nats-server")
async def test_a_right_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = secret(tmp_path / "password", "p\n")
    users = (
        "authorization { users: ["
        '{ user: mute, password: p, permissions: { publish: { deny: "bccn.>" } } },'
        '{ user: deaf, password: p, permissions: { subscribe: { deny: "bccn.>" } } },'
        '{ user: none, password: p, permissions: { publish: { deny: "$JS.>" } } } ] }'
    )
    with NatsServer(tmp_path / "nats", users) as server:
        mute = Uplink(options_for(server, user="mute", password=password))
        async with running(mute):
            mute.publish(1)
            await until(lambda: 'permissions violation for publish to "bccn.s' in mute.reason, "a reason")
        deaf = Uplink(options_for(server, user="deaf", password=password))
        deaf.start()
        await until(lambda: 'permissions violation for subscription to "bccn.*"' in deaf.reason, "a reason")
        await deaf.stop()
        monkeypatch.setattr(nats_session, "ANSWER_SECONDS", 1.0)
        none = Uplink(options_for(server, user="none", password=password))
        none.start()
        refused = 'permissions violation for publish to "$js.api.stream.info.bccn"'
        await until(lambda: refused in none.reason, "a reason")
        await none.stop()


@pytest.mark.needs("nats-server")
async def test_a_server_without_jetstream_is_told(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", jetstream=False) as server:
        assert await reason_of(options_for(server)) == f"{server.url} has no JetStream for us"


@pytest.mark.needs("nats-server")
async def test_three_replicas_need_a_cluster(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        reason = await reason_of(options_for(server, replicas=3))
        why = "replicas > 1 not supported in non-clustered mode"
        assert reason == f"the stream bccn cannot be made: {server.url}: {why}"


@pytest.mark.needs("nats-server")
async def test_a_server_that_stands_still_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_session, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(nats_session, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(nats_session, "QUIET_TICKS", 100_000)
    with NatsServer(tmp_path / "nats") as server:
        a = Uplink(options_for(server))
        async with running(a):
            await until(lambda: a.carrier.facts().round_trip is not None, "a round trip")
            server.process.send_signal(signal.SIGSTOP)
            a.publish(500)
            await until(lambda: "does not answer" in a.reason, "a reason")
            server.process.send_signal(signal.SIGCONT)
            await until(lambda: len(a.ear.settled) == 500, "acknowledgements")


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def closing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def web(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


async def long(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
    writer.close()


async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a server that dies while it lets somebody in."""
    writer.write(b'INFO {"version":"2.9.0","max_payload":1000,"headers":true}\r\n')
    await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (silent, " does not answer"),
        (closing, ": "),
        (web, ": "),
        (long, ": "),
        (half, " "),
    ],
)
async def test_what_is_no_nats_server_is_one_line(
    answer: Answer, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if answer is silent:
        monkeypatch.setattr(nats_session, "CONNECT_SECONDS", 1)
    async with pretended(answer) as url:
        reason = await reason_of(NatsOptions((url,)))
    assert reason.startswith(url + why)
    assert "\n" not in reason
    assert caplog.records == []


async def test_a_host_that_is_not_there_is_told() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{nobody.getsockname()[1]}"
        assert await reason_of(NatsOptions((url,))) == f"{url} cannot be reached: Connection refused"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (AuthorizationError(), "s does not let us in: check the credentials"),
        (Error("nats: 'Authorization Violation'"), "s does not let us in: check the credentials"),
        (Error("nats: 'Maximum Connections Exceeded'"), "s: Maximum Connections Exceeded"),
        (UnexpectedEOF(), "s closed the connection"),
        (ConnectionResetError(104, "reset"), "s closed the connection"),
        (TimeoutError(), "s does not answer"),
        (socket.gaierror(-2, "Name or service not known"), "s: no such host: Name or service not known"),
        (OSError(113, "x"), "s cannot be reached: No route to host"),
        (ssl.SSLError(1, "x\ny"), "s: no TLS: "),
        (ValueError("a\nb" + "c" * 500), "s: a b" + "c" * 197),
        (KeyError(), "s: KeyError"),
    ],
)
def test_every_fault_is_explained_in_one_line(error: Exception, why: str) -> None:
    explained = explanation("s", error)
    assert explained.startswith(why)
    assert "\n" not in explained
    assert len(explained) < 250


def test_a_missing_package_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(ConfigError, match=r"install it: pip install 'bccnd\[nats\]'"):
        runpy.run_path(str(nats_session.__file__))


async def test_a_fault_of_ours_is_no_reason_but_a_fault(tmp_path: Path, monkeypatch: Any) -> None:
    with NatsServer(tmp_path / "nats") as server:
        a = Uplink(options_for(server))
        a.start()
        await until(lambda: a.is_up, "a connection")

        def broken(_position: int, _datagram: bytes) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(a.ear, "came", broken)
        a.publish(1)
        await asyncio.wait({a.task}, timeout=30.0)
        with pytest.raises(ZeroDivisionError):
            await a.task
