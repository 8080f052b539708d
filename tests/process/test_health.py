"""Metrics and health, as they are opened, passed on and made again."""

import asyncio
import os
from pathlib import Path

import pytest

from bccnd.errors import ConfigError
from bccnd.process.health import Health


def metrics(accept: str) -> tuple[bytes, str]:
    return b"# for " + accept.encode(), "text/strange"


async def get(where: Path, path: str) -> str:
    reader, writer = await asyncio.open_unix_connection(where)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: cats\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_it_answers_and_says_why_it_is_not_ready(tmp_path: Path) -> None:
    why = [""]
    health = Health(asyncio.get_running_loop(), metrics, lambda: why[0])
    health.open(str(tmp_path / "m"))
    health.resume()
    answer = await get(tmp_path / "m", "/metrics")
    assert "Content-Type: text/strange\r\n" in answer
    assert answer.endswith("# for cats")
    assert (await get(tmp_path / "m", "/healthz")).endswith("alive\n")
    assert (await get(tmp_path / "m", "/readyz")).endswith("ready\n")
    why[0] = "no numbers"
    unready = await get(tmp_path / "m", "/readyz")
    assert unready.startswith("HTTP/1.1 503")
    assert unready.endswith("no numbers\n")
    assert (await get(tmp_path / "m", "/")).startswith("HTTP/1.1 404")
    health.close()
    assert not (tmp_path / "m").exists()


async def test_what_a_reload_opens_is_served_unless_it_is_paused(tmp_path: Path) -> None:
    health = Health(asyncio.get_running_loop(), metrics, str)
    health.open(str(tmp_path / "m"))
    health.resume()
    health.open(str(tmp_path / "n"), 0o600)
    assert not (tmp_path / "m").exists()
    assert (tmp_path / "n").stat().st_mode & 0o777 == 0o600
    assert (await get(tmp_path / "n", "/healthz")).endswith("alive\n")
    health.pause()
    health.open(str(tmp_path / "o"))
    waiting = asyncio.create_task(get(tmp_path / "o", "/healthz"))
    await asyncio.sleep(0)
    health.resume()
    assert (await waiting).endswith("alive\n")
    health.close()


async def test_a_socket_file_that_goes_is_made_again(tmp_path: Path) -> None:
    health = Health(asyncio.get_running_loop(), metrics, str)
    health.open(str(tmp_path / "m"))
    health.resume()
    (tmp_path / "m").unlink()
    (tmp_path / "m").write_text("of another program")
    health.tick()
    assert (tmp_path / "m").read_text() == "of another program"
    (tmp_path / "m").unlink()
    health.tick()
    assert (await get(tmp_path / "m", "/healthz")).endswith("alive\n")
    health.close()


async def test_a_successor_that_cannot_listen_takes_nothing(tmp_path: Path) -> None:
    """It fails before it takes over, and what the old one listens at stays."""
    loop = asyncio.get_running_loop()
    old, failed, new = (Health(loop, metrics, str) for _ in range(3))
    old.open(str(tmp_path / "m"))

    def passed_on() -> dict[str, int]:
        return {name: os.dup(descriptor) for name, descriptor in old.descriptors.items()}

    with pytest.raises(ConfigError):
        failed.inherit(old.state(), passed_on(), str(tmp_path / "no folder" / "m"))
    assert failed._left is not None
    failed._left.close()  # as its exit does
    old.resume()
    assert (await get(tmp_path / "m", "/healthz")).endswith("alive\n")
    new.inherit(old.state(), passed_on(), str(tmp_path / "elsewhere"))
    assert (tmp_path / "m").exists()
    new.resume()
    assert not (tmp_path / "m").exists()
    assert (await get(tmp_path / "elsewhere", "/healthz")).endswith("alive\n")
    new.close()
    old.close()


async def test_a_successor_serves_the_same_socket(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    old, new = (Health(loop, metrics, str) for _ in range(2))
    old.open(str(tmp_path / "m"))
    old.resume()
    old.pause()
    new.inherit(old.state(), old.descriptors, str(tmp_path / "m"))
    new.resume()
    assert (await get(tmp_path / "m", "/healthz")).endswith("alive\n")
    assert old._listening is not None
    old._listening.detach()  # in a successor it is another number
    new.close()
