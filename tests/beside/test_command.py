"""From arguments to a program that serves: what it prints, and how it ends."""

from pathlib import Path

import pytest

from bccnd.beside.command import run
from bccnd.beside.program import Start
from bccnd.errors import ConfigError, UnavailableError
from tests.beside.lamp import TABLE, LampSettings, doubts

pytestmark = pytest.mark.usefixtures("own_signals")


def sound(settings: LampSettings) -> str:
    if settings.colour == "none":
        raise ConfigError("no such colour\nthere never was")
    return f"It is {settings.colour}."


async def serve(start: Start[LampSettings]) -> None:
    if start.settings.colour == "taken":
        raise UnavailableError("another lamp has the socket")


def ran(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(TABLE, argv, serve, sound, doubts)
    return code, *capfd.readouterr()


def test_check_prints_the_settings_and_does_not_serve(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capfd, "--check", "--colour", "taken", "--watts", "0")
    assert (code, err) == (0, "")
    head, doubt, *rest = out.splitlines()
    assert head.endswith(": these settings are sound. It is taken.")
    assert doubt == "# it gives no light (more watts)"
    assert 'colour = "taken"  # from --colour' in rest
    assert ran(capfd, "--check", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("--watts", "101"), 2, ["--watts: must be at most 100 (got 101)"]),
        (("--colour", "none"), 2, ["no such colour", "there never was"]),
        (("--colour", "taken"), 5, ["another lamp has the socket"]),
        ((), 0, []),
    ],
)
def test_a_fault_is_a_line_and_an_exit_code(
    capfd: pytest.CaptureFixture[str], argv: tuple[str, ...], code: int, said: list[str]
) -> None:
    assert ran(capfd, *argv) == (code, "", "".join(f"lamp: {line}\n" for line in said))


def test_a_reload_reads_the_file_and_looks_at_it_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, read = tmp_path / "lamp.toml", list[object]()
    file.write_text("[lamp]\nwatts = 7\n")

    async def reload(start: Start[LampSettings]) -> None:
        read.append(start.settings.watts)
        for text in ("watts = 9", 'colour = "none"'):
            file.write_text(f"[lamp]\n{text}\n")
            try:
                read.append(start.read_again().watts)
            except ConfigError as error:
                read.append(str(error).partition("\n")[0])

    assert run(TABLE, ["--config", str(file)], reload, sound, doubts) == 0
    assert read == [7, 9, "no such colour"]
    assert capfd.readouterr() == ("", "")
