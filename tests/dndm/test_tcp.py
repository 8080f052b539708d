"""TCP: where peers come in, and how they are dialled."""

import asyncio
import socket

import pytest

from bccnd.dndm import tcp
from bccnd.errors import ConfigError, UnavailableError
from bccnd.wire.dndm.peers import parse
from tests.waiting import until


async def test_who_is_dialled_is_accepted() -> None:
    loop, came = asyncio.get_running_loop(), list[tuple[socket.socket, str]]()
    listener = tcp.Listener(loop, parse("tcp://127.0.0.1:0"), lambda made, where: came.append((made, where)))
    host, port = listener.socket.getsockname()
    with await tcp.dial(loop, parse(f"tcp://{host}:{port}/arm")) as dialled:
        await until(lambda: came)
        ((accepted, where),) = came
        with accepted:
            assert where == "127.0.0.1"
            for each in accepted, dialled:
                assert each.getblocking() is False
                assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await tcp.dial(loop, parse(f"tcp://{host}:{port}/"))


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        peer = parse(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UnavailableError, match=f"listen {peer}: is taken"):
            tcp.bound(peer, socket.SOCK_STREAM).listen()
    with pytest.raises(ConfigError, match=r"listen tcp://192.0.2.1:1: "):
        tcp.bound(parse("tcp://192.0.2.1:1"), socket.SOCK_STREAM)


@pytest.mark.parametrize(
    ("text", "host", "port"), [("tcp://[::1]:80/a", "::1", 80), ("udp://robot:9/", "robot", 9)]
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert tcp.endpoint(parse(text)) == (host, port)
