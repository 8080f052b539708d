"""The token that a door makes where the settings name none."""

import os
import stat
from pathlib import Path

import pytest

from bccnd.errors import BccndError, ConfigError
from bccnd.mux.guests import Guests
from bccnd.mux.own_token import own_bearer
from bccnd.mux.settings import Bearer, MuxSettings

WEB = "127.0.0.1:8470"


def test_it_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    settings = MuxSettings(web=WEB, socket=str(tmp_path / "bus.sock"))
    own = own_bearer(settings)
    assert own
    assert own.file == tmp_path / "mux.token"
    assert stat.S_IMODE(own.file.stat().st_mode) == 0o600
    assert (own.user, own.groups[0]) == (os.geteuid(), os.getegid())
    (token, peer) = Guests.of(settings, own).tokens.users[0]  # type: ignore[union-attr]
    assert (len(token), peer.uid) == (64, os.geteuid())
    assert own_bearer(settings) == own
    assert Guests.of(settings, own).tokens.users[0][0] == token  # type: ignore[union-attr]


@pytest.mark.needs("root")
@pytest.mark.parametrize("planted", ["of another user", "readable", "link", "fifo"])
def test_a_token_that_somebody_else_laid_there_opens_nothing(tmp_path: Path, planted: str) -> None:
    """As in a folder that others may write to."""
    settings = MuxSettings(web=WEB, socket=str(tmp_path / "bus.sock"))
    file, theirs = tmp_path / "mux.token", tmp_path / "theirs"
    if planted == "fifo":
        os.mkfifo(file, 0o600)
    else:
        target = theirs if planted == "link" else file
        target.write_text("known-to-somebody-else\n")
        target.chmod(0o644 if planted == "readable" else 0o600)
        if planted != "readable":
            os.chown(target, 4711, 4711)
        if planted == "link":
            file.symlink_to(theirs)
    with pytest.raises(BccndError):
        Guests.of(settings, own_bearer(settings))


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MuxSettings(web=WEB, socket=str(tmp_path / "bus.sock"))
    full = Path("/dev/full").open("w")  # noqa: SIM115 - whoever writes to it closes it
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", lambda made, _: (os.close(made), full)[1])
        with pytest.raises(ConfigError, match="No space left"):
            own_bearer(settings)
    assert list(tmp_path.iterdir()) == []
    assert Guests.of(settings, own_bearer(settings)).tokens


def test_it_lies_beside_the_socket_of_the_door_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "door").mkdir()
    settings = MuxSettings(
        web=WEB, socket=str(tmp_path / "bus.sock"), listen=(f"unix:{tmp_path}/door/mux.sock",)
    )
    own = own_bearer(settings)
    assert own
    assert own.file == tmp_path / "door/mux.token"


def test_none_is_made_where_it_is_not_wanted(tmp_path: Path) -> None:
    named = Bearer(name="board", file=tmp_path / "tokens", user=1000, groups=(1000,))
    where = f"unix:{tmp_path}/mux.sock"
    assert own_bearer(MuxSettings(listen=(where,))) is None
    assert own_bearer(MuxSettings(listen=(where,), web=WEB, tokens=(named,))) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("socket", "said"), [("/nowhere/bus.sock", "/nowhere/mux.token: No such file"), ("@bus", "there is none")]
)
def test_where_none_can_be_made_it_says_so(socket: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^web: the settings name no tokens.*{said}"):
        own_bearer(MuxSettings(web=WEB, socket=socket))
