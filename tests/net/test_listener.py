"""The listener on real sockets: who owns its file, who may connect, and who is accepted."""

import errno
import fcntl
import os
import resource
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.net.clients import GONE, Clients
from bccnd.net.listener import ACCEPTS, Listener
from bccnd.net.mmsg import Arena
from bccnd.net.peers import has_hung_up, peer_credentials
from tests.net.connections import connected, seqpacket_socket

NOBODY = 65534

needs_root = pytest.mark.needs("root")


def serves(listener: Listener) -> bool:
    with connected(listener):
        clients = listener.accept()
        for client in clients:
            client.close()
        return len(clients) == 1


def outcome_as_nobody(attempt: Callable[[], object]) -> str:
    """How ``attempt`` ends in a process without rights: ``""``, or the class and text of its exception."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            attempt()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent judges it
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as result:
        outcome = result.read().decode()
    os.waitpid(child, 0)
    return outcome


@pytest.fixture
def open_to_all(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may use, below folders that everybody may pass."""
    above = [folder for folder in tmp_path.parents if folder.is_relative_to(tempfile.gettempdir())]
    changed = [(folder, folder.stat().st_mode) for folder in (tmp_path, *above[:-1])]
    for folder, mode in changed:
        folder.chmod(mode | 0o711)
    tmp_path.chmod(0o1777)
    yield tmp_path
    for folder, mode in changed:
        folder.chmod(mode)


# --- who owns the file ---


def test_a_new_path_is_served_and_removed_at_the_end(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    assert listener.name == str(path)
    assert serves(listener)
    listener.close()
    assert not path.exists()


def test_the_socket_is_not_inherited_and_does_not_block(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    assert not listener.socket.get_inheritable()
    assert listener.accept() == []


def test_a_second_listener_is_refused_while_the_lock_is_held(
    path: Path, listen: Callable[..., Listener]
) -> None:
    first = listen(path)
    before = path.lstat()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="another daemon serves this socket"):
            listen(path)
    assert path.lstat().st_ino == before.st_ino
    assert serves(first)
    first.close()
    assert serves(listen(path))


def test_a_second_listener_does_not_replace_a_removed_file(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listen(path)
    path.unlink()
    with pytest.raises(UnavailableError, match="another daemon"):
        listen(path)
    assert not path.exists()


def test_a_stale_socket_is_replaced(path: Path, listen: Callable[..., Listener]) -> None:
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as stale:
            stale.bind(str(path))
        listener = listen(path)
        assert serves(listener)
        listener.close()


def test_a_socket_that_a_stranger_serves_is_left_alone(path: Path, listen: Callable[..., Listener]) -> None:
    with seqpacket_socket() as stranger:
        stranger.bind(str(path))
        stranger.listen()
        before = path.lstat()
        with pytest.raises(UnavailableError, match="another program serves this socket"):
            listen(path)
        assert path.lstat().st_ino == before.st_ino


def test_a_strangers_socket_of_another_type_is_left_alone(
    path: Path, listen: Callable[..., Listener]
) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as stranger:
            stranger.bind(str(path))
            if kind == socket.SOCK_STREAM:
                stranger.listen()
            with pytest.raises(UnavailableError, match="another program serves this socket"):
                listen(path)
        path.unlink()


def test_the_socket_of_a_busy_server_is_left_alone(path: Path, listen: Callable[..., Listener]) -> None:
    with seqpacket_socket() as stranger, ExitStack() as waiting:
        stranger.bind(str(path))
        stranger.listen(0)
        with suppress(BlockingIOError):
            while True:
                client = waiting.enter_context(seqpacket_socket())
                client.setblocking(False)
                client.connect(str(path))
        with pytest.raises(UnavailableError, match="another program serves this socket"):
            listen(path)


@pytest.mark.parametrize("link", [False, True], ids=["file", "dangling link"])
def test_a_file_that_is_no_socket_is_left_alone(
    path: Path, listen: Callable[..., Listener], link: bool
) -> None:
    if link:
        path.symlink_to("nowhere")
    else:
        path.write_text("precious")
    with pytest.raises(UnavailableError, match="exists and is not a socket; remove it or choose another"):
        listen(path)
    assert path.is_symlink() if link else path.read_text() == "precious"


def test_only_its_own_file_is_removed(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    path.unlink()
    with seqpacket_socket() as other:
        other.bind(str(path))
        listener.close()
        assert path.is_socket()


def test_closing_without_the_file_is_no_fault(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    path.unlink()
    listener.close()


def passed_on(listener: Listener) -> dict[str, int]:
    """The descriptors as another process gets them."""
    return {name: os.dup(descriptor) for name, descriptor in listener.descriptors.items()}


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_successor_without_the_file_removes_no_other(
    path: Path, listen: Callable[..., Listener], replaced: bool
) -> None:
    predecessor = listen(path)
    path.unlink()
    if replaced:
        path.write_text("somebody else's")
    successor = Listener.succeed(predecessor.state(), passed_on(predecessor))
    assert successor.accept() == []
    successor.close()
    assert path.exists() is replaced


def test_a_successor_removes_the_file_that_its_predecessor_made(
    path: Path, listen: Callable[..., Listener]
) -> None:
    predecessor = listen(path)
    successor = Listener.succeed(predecessor.state(), passed_on(predecessor))
    assert serves(successor)
    successor.close()
    assert not path.exists()


def test_the_lock_ends_with_the_listener_and_its_file_stays(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listen(path).close()
    with open(f"{path}.lock", "rb") as lock:  # without the file two daemons could hold two locks of one name
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_file_is_not_made_through_a_link(
    path: Path, tmp_path: Path, listen: Callable[..., Listener]
) -> None:
    Path(f"{path}.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match=r"bus\.sock\.lock"):
        listen(path)
    assert not (tmp_path / "elsewhere").exists()


# --- impossible paths ---


def test_the_longest_path_is_107_bytes(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    longest = tmp_path / ("x" * (107 - len(str(tmp_path)) - 1))
    assert serves(listen(longest))
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        listen(f"{longest}y")


def test_the_last_folder_is_made_and_no_other(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    assert serves(listen(tmp_path / "bccnd" / "bus.sock"))
    with pytest.raises(RefusedError, match="make it or choose another --socket"):
        listen(tmp_path / "no" / "such" / "bus.sock")
    assert not (tmp_path / "no").exists()


def test_a_relative_path_is_served(
    tmp_path: Path, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert serves(listen("bus.sock"))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    (tmp_path / "bccnd").touch()
    with pytest.raises(RefusedError, match="Not a directory"):
        listen(tmp_path / "bccnd" / "bus.sock")


@needs_root
def test_a_folder_without_write_access_is_refused(tmp_path: Path, open_to_all: Path) -> None:
    inside = tmp_path / "closed" / "deeper"
    inside.mkdir(parents=True)
    inside.parent.chmod(0o700)
    for where in (inside / "bus.sock", inside.parent / "bus.sock", inside / "more" / "bus.sock"):
        outcome = outcome_as_nobody(lambda where=where: Listener.open(str(where), 0o600))  # type: ignore[misc]
        assert outcome.startswith("RefusedError: "), outcome
        assert "Permission denied" in outcome


@needs_root
def test_a_strangers_stale_socket_is_refused_with_advice(open_to_all: Path, path: Path) -> None:
    with seqpacket_socket() as stale:
        stale.bind(str(path))
    path.chmod(0o600)
    outcome = outcome_as_nobody(lambda: Listener.open(str(path), 0o600))
    assert outcome.startswith("RefusedError: ")
    assert "remove it or run as its owner" in outcome
    assert path.exists()


# --- owner, group and mode ---


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666, 0o000])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_the_mode_does_not_depend_on_the_umask(
    path: Path, listen: Callable[..., Listener], mode: int, umask: int
) -> None:
    before = os.umask(umask)
    try:
        listen(path, mode)
        assert os.umask(umask) == umask  # unchanged
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.lstat().st_mode) == mode


@needs_root
def test_it_is_never_more_open_than_configured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int, bool]] = []

    def observe(name: str, owner: object) -> None:
        real = getattr(owner, name)

        def observed(*arguments: object) -> object:
            status = path.lstat()
            with seqpacket_socket() as client:
                refused = client.connect_ex(str(path)) == errno.ECONNREFUSED
            seen.append((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, refused))
            return real(*arguments)

        monkeypatch.setattr(owner, name, observed)

    observe("chown", os)
    observe("chmod", Path)
    before = os.umask(0)
    try:
        listener = Listener.open(str(path), 0o660, "nobody", str(NOBODY))
    finally:
        os.umask(before)
    listener.close()
    assert seen == [(0, 0, 0, True), (0, NOBODY, NOBODY, True)]


@needs_root
def test_owner_and_group_by_name_and_by_number(path: Path, listen: Callable[..., Listener]) -> None:
    for owner, group, expected in [
        ("nobody", None, (NOBODY, 0)),
        (None, "12345", (0, 12345)),
        ("12345", "daemon", (12345, 1)),
    ]:
        listener = listen(path, owner=owner, group=group)
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == expected
        listener.close()


@needs_root
def test_mode_and_group_decide_who_connects(
    open_to_all: Path, path: Path, listen: Callable[..., Listener]
) -> None:
    for mode, group, allowed in [(0o660, None, False), (0o660, str(NOBODY), True), (0o606, None, True)]:
        listener = listen(path, mode, group=group)
        outcome = outcome_as_nobody(lambda: connected(listener))  # noqa: B023
        assert (outcome == "") is allowed
        assert allowed or outcome.startswith("PermissionError")
        listener.close()


@pytest.mark.parametrize(
    ("permissions", "complaint"),
    [
        ({"owner": "no-such-user"}, "socket_owner: there is no user 'no-such-user'"),
        ({"group": "no-such-group"}, "socket_group: there is no group 'no-such-group'"),
    ],
)
def test_an_unknown_owner_leaves_nothing_behind(
    path: Path, listen: Callable[..., Listener], permissions: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        listen(path, **permissions)
    assert not path.exists()
    assert serves(listen(path))


def test_an_impossible_owner_leaves_nothing_behind(path: Path, listen: Callable[..., Listener]) -> None:
    with pytest.raises(RefusedError, match="socket_owner"):
        listen(path, owner="99999999999")
    assert not path.exists()
    assert serves(listen(path))


@needs_root
def test_a_forbidden_owner_leaves_nothing_behind(open_to_all: Path, path: Path) -> None:
    outcome = outcome_as_nobody(lambda: Listener.open(str(path), 0o660, None, "daemon"))
    assert outcome.startswith("RefusedError: ")
    assert "socket_group" in outcome
    assert not path.exists()
    assert outcome_as_nobody(lambda: Listener.open(str(path), 0o660)) == ""


# --- abstract names and inherited descriptors ---


def test_an_abstract_name_is_served_once(listen: Callable[..., Listener]) -> None:
    name = f"@bccnd-test-{os.getpid()}"
    first = listen(name)
    assert first.name == name
    assert serves(first)
    with pytest.raises(UnavailableError, match="another daemon serves this socket"):
        listen(name)
    first.close()
    assert serves(listen(name))


def test_free_abstract_names_differ(listen: Callable[..., Listener]) -> None:
    listeners = [listen("@") for _ in range(3)]
    assert len({listener.name for listener in listeners}) == 3
    assert all(listener.name.startswith("@") and serves(listener) for listener in listeners)


def test_an_abstract_name_that_is_too_long_is_refused(listen: Callable[..., Listener]) -> None:
    assert serves(listen("@" + "x" * 107))
    with pytest.raises(ConfigError, match="too long"):
        listen("@" + "x" * 108)


@pytest.mark.parametrize("listening", [False, True], ids=["bound only", "listening"])
@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_a_bound_descriptor_is_served_and_its_file_stays(
    path: Path, listen: Callable[..., Listener], listening: bool, abstract: bool
) -> None:
    with seqpacket_socket() as handed:
        handed.bind("" if abstract else str(path))
        if listening:
            handed.listen()
        handed.set_inheritable(True)
        listener = listen(f"fd:{handed.detach()}")
    assert listener.name.startswith("@") if abstract else listener.name == str(path)
    assert not listener.socket.get_inheritable()
    assert serves(listener)
    listener.close()
    assert abstract or path.exists()


def test_a_descriptor_that_cannot_be_served_is_refused(path: Path, listen: Callable[..., Listener]) -> None:
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
        with seqpacket_socket() as server, seqpacket_socket() as client:
            server.bind(str(path))
            server.listen()
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
def test_a_bad_descriptor_number_is_refused(listen: Callable[..., Listener], number: str) -> None:
    with pytest.raises(ConfigError, match=f"--socket fd:{number}: not an open socket"):
        listen(f"fd:{number}")


@pytest.mark.parametrize("raw", [b"\xff\xfe.sock", b"a\nb.sock"])
def test_a_path_that_is_no_text_is_shown_in_text(
    tmp_path: Path, listen: Callable[..., Listener], raw: bytes
) -> None:
    with _bound(os.fsencode(tmp_path) + b"/" + raw) as bound:
        listener = listen(f"fd:{bound.detach()}")
    assert listener.name.isprintable()
    assert listener.name.encode().decode() == listener.name
    assert os.fsencode(listener.beside("seq") or "").endswith(raw + b".seq")
    assert not listener.is_gone


def _bound(name: bytes) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(name)
    made.listen()
    return made


# --- a file that goes ---


def reopened(listener: Listener) -> list[socket.socket]:
    waited: list[socket.socket] = []
    listener.reopen(0o600, None, None, waited.append)
    return waited


def test_a_file_that_went_is_made_again(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    assert not listener.is_gone
    with connected(listener):
        path.unlink()
        assert listener.is_gone
        (waited,) = reopened(listener)
        waited.close()
    assert not listener.is_gone
    with connected(listener):
        (client,) = listener.accept()
        client.close()
    listener.close()
    assert not path.exists()


def test_the_lock_still_holds_after_the_file_was_made_again(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listener = listen(path)
    for gone in ([path], [path, Path(f"{path}.lock")]):
        for file in gone:
            file.unlink()
        reopened(listener)
        with pytest.raises(UnavailableError, match="another daemon serves"):
            listen(path)


def test_a_path_that_another_daemon_took_is_left_to_it(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    for file in (path, Path(f"{path}.lock")):
        file.unlink()
    other = listen(path)
    assert listener.is_gone
    with pytest.raises(UnavailableError, match="another daemon serves"):
        reopened(listener)
    assert not other.is_gone
    listener.close()
    assert not other.is_gone


def test_a_socket_that_was_handed_down_is_not_made_again(path: Path, listen: Callable[..., Listener]) -> None:
    with _bound(bytes(path)) as bound:
        listener = listen(f"fd:{bound.detach()}")
    path.unlink()
    assert listener.is_gone
    with pytest.raises(UnavailableError, match="only whoever made the socket"):
        reopened(listener)


# --- accepting ---


def test_a_burst_is_accepted_in_turns(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(ACCEPTS + 10):
            opened.enter_context(connected(listener))
        turns = []
        for _ in range(3):
            accepted = [opened.enter_context(client) for client in listener.accept()]
            assert not any(client.getblocking() for client in accepted)
            assert not any(client.get_inheritable() for client in accepted)
            turns.append(len(accepted))
        assert turns == [ACCEPTS, 10, 0]


def test_a_look_that_takes_long_leaves_the_next_waiting(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(seqpacket_socket()).connect(str(path))
        looks = iter([True, False, True])
        turns = [listener.accept(lambda _: next(looks)) for _ in range(2)]
        for client in (*turns[0], *turns[1]):
            client.close()
    assert [len(turn) for turn in turns] == [2, 1]


def test_a_client_that_left_before_it_was_accepted_is_noticed(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listener = listen(path)
    with connected(listener) as hasty:
        hasty.send(b"hello and goodbye")
    (client,) = listener.accept()
    with client:
        assert peer_credentials(client) == (os.getpid(), os.getuid(), os.getgid())
        assert has_hung_up(client.fileno())
        assert client.recv(100) == b"hello and goodbye"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        assert Clients(Arena(1 << 18), 4096).send(client.fileno(), b"too late") == GONE


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Lets this process open only as many more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with ExitStack() as filling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))
        try:
            held = []
            with suppress(OSError):
                while True:  # the free ones below the highest
                    held.append(filling.enter_context(open(os.devnull, "rb")))
            for file in held[-count:] if count else []:
                file.close()
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_accepting_without_descriptors_fails_and_loses_nobody(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(5):
            opened.enter_context(connected(listener))
        with descriptors_left(2):
            accepted = listener.accept()  # as many as there is room for, without an error
            assert len(accepted) == 2
            with pytest.raises(OSError, match="Too many open files"):
                listener.accept()
        accepted += listener.accept()
        for client in accepted:
            client.close()
        assert len(accepted) == 5


def test_every_refusal_is_one_line(path: Path, listen: Callable[..., Listener]) -> None:
    path.touch()
    for where in (path, path / "bus.sock", "fd:", "@" + "x" * 200, "/" + "x" * 200):
        with pytest.raises(BccndError) as caught:
            listen(where)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code in (2, 4, 5)
