"""``bccn backbone`` with a real backbone, or with one that a test plays."""

import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backbone.process import BackboneProcess, client
from tests.command_line import bccn, ended, start
from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import free_port

NOWHERE = Path("/no/daemon")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackboneProcess]:
    with BackboneProcess(tmp_path_factory.mktemp("backbone")) as process:
        yield process


def url(backbone: BackboneProcess) -> str:
    return "fyrehose://{}:{}".format(*backbone.address)


def test_a_message_that_is_pushed_is_followed(backbone: BackboneProcess) -> None:
    """Each with its number, and nothing that a terminal obeys."""
    following = start(NOWHERE, "backbone", "follow", url(backbone), "-C", "3", "-W", str(PATIENCE))
    with client(backbone) as other:
        other.keepalive(2)
        number = 0
        while following.poll() is None:
            other.push(b"\x1b[31m")
            number = other.message()[0]
            threading.Event().wait(0.02)
    code, out, err = ended(following)
    assert (code, err) == (0, "")
    lines = out.decode().splitlines()
    assert [line.partition(" ")[2] for line in lines] == [r"\e[31m"] * 3
    numbers = [int(line.partition(" ")[0].removeprefix("#")) for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert numbers[-1] <= number
    done = bccn(NOWHERE, "backbone", "push", url(backbone), "hello", "-W", str(PATIENCE))
    assert (done.returncode, done.stdout) == (0, b"#%d\n" % (number + 1))


def test_status_says_whether_it_answers_and_how_fast(backbone: BackboneProcess) -> None:
    said: list[str] = []

    def answered() -> bool:  # on a busy machine not at once
        done = bccn(NOWHERE, "backbone", "status", url(backbone), "-W", "0.5")
        said[:] = done.stdout.decode().splitlines()
        return done.returncode == 0

    wait_until(answered, "an answer")
    assert re.fullmatch(r"answers    \d, round trip min/avg/max \d+\.\d{3}/\d+\.\d{3}/\d+\.\d{3} ms", said[0])
    assert said[1:] == ["delivered  0 messages, 0 bytes in 0.5 s"]


@pytest.mark.parametrize("words", [["push", "x"], ["follow"], ["status"]])
def test_no_answer_is_code_3(words: list[str]) -> None:
    action, *rest = words
    nobody = f"fyrehose://127.0.0.1:{free_port()}"
    done = bccn(NOWHERE, "backbone", action, nobody, *rest, "-W", "0.2")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode().count("\n") == 1
    assert (
        f"no answer from {nobody.removeprefix('fyrehose://')}: no backbone is there" in done.stderr.decode()
    )


def test_following_nobody_says_so_and_goes_on() -> None:
    """Without --wait it has no end, and would otherwise never say a word."""
    following = start(NOWHERE, "backbone", "follow", f"fyrehose://127.0.0.1:{free_port()}")
    try:
        assert following.stderr is not None
        assert following.stderr.readline().endswith(b"; trying on\n")
        assert following.poll() is None
    finally:
        following.kill()
        ended(following)


def test_what_is_missing_is_reported() -> None:
    """A backbone that loses number 8, and is played here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as played:
        played.bind(("127.0.0.1", 0))
        played.settimeout(PATIENCE)
        where = f"fyrehose://127.0.0.1:{played.getsockname()[1]}"
        following = start(NOWHERE, "backbone", "follow", where, "-C", "2")
        packet, address = played.recvfrom(100)
        assert (packet[0], packet[12]) == (0x10, 2)
        for number in (7, 9):
            played.sendto(b"\x01\0\1" + number.to_bytes(6, "big") + b"x", address)
        code, out, err = ended(following)
    assert (code, out) == (0, b"#7 x\n#9 x\n")
    assert "missing: #8 to #8" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "http://x:1"], "URL is fyrehose://HOST:PORT"),
        (["status", "fyrehose://127.0.0.1:0"], "URL is fyrehose://HOST:PORT"),
        (["status", "fyrehose://a..b:1"], "is no name of a host"),
        (["push", "fyrehose://127.0.0.1:1", "-m", "x", "--key-file", "/no/such"], "no such file"),
        (["push", "fyrehose://127.0.0.1:1", "-f", os.devnull, "x"], "not both"),
        (["pull", "fyrehose://127.0.0.1:1"], "invalid choice"),
        (["follow", "fyrehose://127.0.0.1:1", "hello"], "follow takes no message; push does"),
        (["status", "fyrehose://127.0.0.1:1", "-n"], "status takes no message; push does"),
        (["push", "fyrehose://127.0.0.1:1", "hello", "-C", "2"], "push takes no -C; follow does"),
    ],
)
def test_wrong_usage_is_code_2(words: list[str], said: str) -> None:
    done = bccn(NOWHERE, "backbone", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()


def test_a_key_is_proved(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a secret of sixteen bytes\n")
    keys.chmod(0o600)
    with BackboneProcess(tmp_path, "--key-file", str(keys)) as process:
        done = bccn(
            NOWHERE, "backbone", "push", url(process), "x", "--key-file", str(keys), "-W", str(PATIENCE)
        )
        assert (done.returncode, done.stdout) == (0, b"#1\n")
        assert bccn(NOWHERE, "backbone", "status", url(process), "-W", "0.2").returncode == 3
