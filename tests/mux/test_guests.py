"""Who may come in from elsewhere, by the settings and their files."""

from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import ConfigError
from bccnd.mux.guests import Guests
from bccnd.mux.peer import Peer
from bccnd.mux.settings import Bearer, MuxSettings
from bccnd.mux.websocket import WebSocket

WORD = "sixteen-letters-1"


@pytest.fixture
def bearer(tmp_path: Path) -> Bearer:
    file = tmp_path / "tokens"
    file.write_text(f"{WORD}\nsixteen-letters-2\n")
    file.chmod(0o600)
    return Bearer(name="board", file=file, user=1000, groups=(1000, 27))


def of(**values: Any) -> Guests:
    return Guests.of(MuxSettings(listen=("unix:/x",), **values))


def test_each_token_of_a_file_is_its_user(bearer: Bearer) -> None:
    guests = of(web="127.0.0.1:5480", tokens=(bearer,), hosts=("board:1",), origins=("https://b",))
    assert guests.tokens
    board = Peer(1000, (1000, 27), 0, b"board")
    assert list(guests.tokens.users) == [(WORD.encode(), board), (b"sixteen-letters-2", board)]
    assert guests.tokens.hosts == {"127.0.0.1:5480", "localhost:5480", "board:1"}
    far = guests.by_web()
    assert isinstance(far.carrier, WebSocket)
    assert far.who() == b"refused that token is nobody's"


def test_files_are_read_only_where_they_are_needed(bearer: Bearer) -> None:
    bearer.file.unlink()
    assert of(tokens=(bearer,)).tokens is None
    with pytest.raises(ConfigError):
        of(web="127.0.0.1:5480", tokens=(bearer,))


def test_a_token_goes_over_no_network_in_clear(bearer: Bearer) -> None:
    for far in ("10.0.0.1:5480", "[2001:db8::1]:5480"):
        with pytest.raises(ConfigError, match=r"web: others than this host .* needs certificate and key"):
            of(web=far, tokens=(bearer,))
    for near in ("127.0.0.2:5480", "[::1]:5480"):
        assert of(web=near, tokens=(bearer,)).tokens


def test_a_file_of_tokens_at_fault_is_called_so(bearer: Bearer) -> None:
    bearer.file.write_text("short\n")
    with pytest.raises(ConfigError, match=r"token file .*/tokens: line 1: a token has 16 to"):
        of(web="127.0.0.1:5480", tokens=(bearer,))
