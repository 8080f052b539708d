"""The listener and the way to the clients, on real sockets: whose file it is, who gets in, and what went."""

import errno
import fcntl
import os
import resource
import select
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.net.mmsg import BATCH, VECTOR, Arena, ReceiveTable
from bccnd.net.seqpacket import (
    ACCEPTS,
    GONE,
    Clients,
    Listener,
    has_hung_up,
    peer_credentials,
    peer_groups,
    program_of,
)
from tests.packet_client import PATIENCE, wait_until

NOBODY = 65534
SIZE = 1000  # bytes of a packet in these tests, at most

needs_root = pytest.mark.needs("root")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sock"


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    """Opens listeners; closes them with the test."""
    with ExitStack() as opened:

        def open_one(where: Path | str, mode: int = 0o600, **permissions: str) -> Listener:
            listener = Listener.open(str(where), mode, **permissions)
            opened.callback(close_once, listener)
            return listener

        yield open_one


def close_once(listener: Listener) -> None:
    if listener.socket.fileno() >= 0:
        listener.close()


def seqpacket_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(PATIENCE)
    return made


def connected(listener: Listener) -> socket.socket:
    client = seqpacket_socket()
    name = listener.name
    client.connect("\0" + name[1:] if name.startswith("@") else name)
    return client


def serves(listener: Listener) -> bool:
    with connected(listener):
        clients = listener.accept()
        for client in clients:
            client.close()
        return len(clients) == 1


def outcome_as_nobody(attempt: Callable[[], object]) -> str:
    """What `attempt` ends with in a process without rights: ``""``, or the class and text of its exception."""
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
    with open(reading, "rb") as told:
        outcome = told.read().decode()
    os.waitpid(child, 0)
    return outcome


@pytest.fixture
def open_to_all(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may use, below folders that everybody may pass."""
    changed = [(folder, folder.stat().st_mode) for folder in (tmp_path, *tmp_path.parents[:2])]
    for folder, mode in changed:
        folder.chmod(mode | 0o711)
    tmp_path.chmod(0o1777)
    yield tmp_path
    for folder, mode in changed:
        folder.chmod(mode)


# --- whose file it is ---


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


def test_even_a_removed_socket_file_is_not_made_again_by_a_second(
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


def test_so_is_one_of_another_type(path: Path, listen: Callable[..., Listener]) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as stranger:
            stranger.bind(str(path))
            if kind == socket.SOCK_STREAM:
                stranger.listen()
            with pytest.raises(UnavailableError, match="another program serves this socket"):
                listen(path)
        path.unlink()


def test_so_is_one_of_a_server_too_busy_to_accept(path: Path, listen: Callable[..., Listener]) -> None:
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
def test_anything_else_in_its_place_is_left_alone(
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


def test_a_file_that_is_gone_at_the_end_is_no_fault(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    path.unlink()
    listener.close()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_successor_serves_on_without_the_file_and_removes_no_other(
    path: Path, listen: Callable[..., Listener], replaced: bool
) -> None:
    predecessor = listen(path)
    path.unlink()
    if replaced:
        path.write_text("somebody else's")
    descriptors = [os.dup(descriptor) for descriptor in predecessor.descriptors]
    successor = Listener.succeed(predecessor.state(), descriptors)
    assert successor.accept() == []
    successor.close()
    assert path.exists() is replaced


def test_a_successor_removes_the_file_that_its_predecessor_made(
    path: Path, listen: Callable[..., Listener]
) -> None:
    predecessor = listen(path)
    successor = Listener.succeed(predecessor.state(), [os.dup(d) for d in predecessor.descriptors])
    assert serves(successor)
    successor.close()
    assert not path.exists()


def test_the_lock_ends_with_the_listener_and_its_file_stays(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listen(path).close()
    with open(f"{path}.lock", "rb") as lock:  # were it removed, two daemons could hold two locks of one name
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_file_is_not_made_through_a_link(
    path: Path, tmp_path: Path, listen: Callable[..., Listener]
) -> None:
    Path(f"{path}.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match=r"bus\.sock\.lock"):
        listen(path)
    assert not (tmp_path / "elsewhere").exists()


# --- paths that cannot be ---


def test_the_longest_path(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    longest = tmp_path / ("x" * (107 - len(str(tmp_path)) - 1))
    assert serves(listen(longest))
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        listen(f"{longest}y")


def test_the_last_folder_is_made_and_no_other(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    assert serves(listen(tmp_path / "bccnd" / "bus.sock"))
    with pytest.raises(RefusedError, match="make it or choose another --socket"):
        listen(tmp_path / "no" / "such" / "bus.sock")
    assert not (tmp_path / "no").exists()


def test_a_relative_path(
    tmp_path: Path, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert serves(listen("bus.sock"))


def test_a_file_in_place_of_the_folder(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    (tmp_path / "bccnd").touch()
    with pytest.raises(RefusedError, match="Not a directory"):
        listen(tmp_path / "bccnd" / "bus.sock")


@needs_root
def test_without_rights_to_the_folder_it_is_refused(tmp_path: Path, open_to_all: Path) -> None:
    inside = tmp_path / "closed" / "deeper"
    inside.mkdir(parents=True)
    inside.parent.chmod(0o700)
    for where in (inside / "bus.sock", inside.parent / "bus.sock", inside / "more" / "bus.sock"):
        outcome = outcome_as_nobody(lambda where=where: Listener.open(str(where), 0o600))  # type: ignore[misc]
        assert outcome.startswith("RefusedError: "), outcome
        assert "Permission denied" in outcome


@needs_root
def test_a_stale_socket_of_somebody_else_is_refused_with_what_to_do(open_to_all: Path, path: Path) -> None:
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
def test_the_mode_is_the_configured_one_whatever_the_umask(
    path: Path, listen: Callable[..., Listener], mode: int, umask: int
) -> None:
    before = os.umask(umask)
    try:
        listen(path, mode)
        assert os.umask(umask) == umask  # and it is as it was
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
def test_who_may_connect(open_to_all: Path, path: Path, listen: Callable[..., Listener]) -> None:
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
def test_a_socket_that_may_not_be_given_away_leaves_nothing_behind(open_to_all: Path, path: Path) -> None:
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


def test_an_abstract_name_that_is_too_long(listen: Callable[..., Listener]) -> None:
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


def test_descriptors_that_cannot_be_served(path: Path, listen: Callable[..., Listener]) -> None:
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
def test_what_is_no_descriptor(listen: Callable[..., Listener], number: str) -> None:
    with pytest.raises(ConfigError, match=f"--socket fd:{number}: not an open socket"):
        listen(f"fd:{number}")


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


def test_clients_that_left_before_they_were_accepted_are_seen_to_have_left(
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
    """So many descriptors more may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with ExitStack() as filling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))
        try:
            held = []
            with suppress(OSError):
                while True:  # what is free below the highest
                    held.append(filling.enter_context(open(os.devnull, "rb")))
            for file in held[-count:] if count else []:
                file.close()
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_accepting_says_so_and_loses_nobody(
    path: Path, listen: Callable[..., Listener]
) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(5):
            opened.enter_context(connected(listener))
        with descriptors_left(2):
            accepted = listener.accept()  # as many as there is room for, without a word
            assert len(accepted) == 2
            with pytest.raises(OSError, match="Too many open files"):
                listener.accept()
        accepted += listener.accept()
        for client in accepted:
            client.close()
        assert len(accepted) == 5


# --- who the clients are ---


def test_credentials_are_those_of_who_connected(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    with connected(listener):
        (client,) = listener.accept()
        with client:
            pid, uid, gid = peer_credentials(client)
    assert (pid, uid, gid) == (os.getpid(), os.getuid(), os.getgid())
    assert program_of(pid) == (Path("/proc/self/comm").read_bytes().rstrip(b"\n"), True)


@needs_root
def test_the_highest_ids_are_not_negative(listen: Callable[..., Listener]) -> None:
    listener = listen("@")
    highest = 2**32 - 2
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setresgid(highest, highest, highest)
            os.setresuid(highest, highest, highest)
            connected(listener)
        os._exit(0)
    os.waitpid(child, 0)
    (client,) = listener.accept()
    with client:
        assert peer_credentials(client)[1:] == (highest, highest)


def test_a_process_that_is_gone_or_unknown_has_no_program() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert program_of(child) == (b"", False)
    assert program_of(0) == (b"", False)  # what SO_PEERCRED says of another pid namespace


@needs_root
@pytest.mark.parametrize("groups", [[], [1], range(1000, 2000), range(65536)], ids=len)
def test_groups_are_those_of_who_connected(listen: Callable[..., Listener], groups: Sequence[int]) -> None:
    listener = listen("@")
    before = os.getgroups()
    os.setgroups(groups)
    try:
        connection = connected(listener)
    finally:
        os.setgroups(before)
    with connection:
        (client,) = listener.accept()
        with client:
            assert peer_groups(client) == frozenset(groups)


def test_who_is_no_peer_has_no_groups() -> None:
    with socket.socket(socket.AF_INET) as lonely:
        assert peer_groups(lonely) == frozenset()


# --- the end of a client ---


def test_an_empty_packet_is_not_the_end_of_a_client() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    table = ReceiveTable(arena := Arena(BATCH * 512), 100)
    with ours, theirs:
        theirs.send(b"")
        starts, ends = table.read(ours.fileno())
        assert [end - start for start, end in zip(starts, ends, strict=True)] == [0]
        assert not has_hung_up(ours.fileno())
        theirs.send(b"")
        theirs.send(b"last")
        theirs.close()
        starts, ends = table.read(ours.fileno())
        assert [arena.memory[start:end] for start, end in zip(starts, ends, strict=True)][:3] == [
            b"",
            b"last",
            b"",
        ]
        assert has_hung_up(ours.fileno())


@pytest.mark.parametrize(("how", "ended"), [(socket.SHUT_WR, True), (socket.SHUT_RD, False)])
def test_half_a_close(how: int, ended: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.shutdown(how)
        assert has_hung_up(ours.fileno()) is ended
        assert Clients(Arena(1 << 18), 4096).send(ours.fileno(), b"x") == (1 if ended else GONE)


# --- the way to the clients ---


class Bus:
    """Clients of a daemon by pairs: ``ports`` are the daemon's ends, ``read(i)`` what the i-th client got."""

    def __init__(self, opened: ExitStack, clients: int, packets: int = 0) -> None:
        self.arena = Arena((packets + 8) * (SIZE + 256))
        self.clients = Clients(self.arena, 4096)
        self.packets = [b"%d:" % number + b"." * (number % 7) for number in range(packets)]
        self.starts = self.arena.slots(packets, SIZE)
        self.ends = [start + len(packet) for start, packet in zip(self.starts, self.packets, strict=True)]
        for start, end, packet in zip(self.starts, self.ends, self.packets, strict=True):
            self.arena.memory[start:end] = packet
        self.theirs: list[socket.socket] = []
        self.ports: list[int] = []
        for _ in range(clients):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.enter_context(ours)
            self.theirs.append(opened.enter_context(theirs))
            ours.setblocking(False)
            theirs.setblocking(False)
            self.ports.append(ours.fileno())

    def run(self) -> dict[int, int]:
        return self.clients.send_run(self.ports, self.starts, self.ends)

    def read(self, index: int) -> list[bytes]:
        packets = []
        with suppress(BlockingIOError):
            while packet := self.theirs[index].recv(SIZE):
                packets.append(packet)
        return packets

    def fill(self, index: int) -> int:
        """Fill the socket of a client to the last packet; how many that took."""
        count = 0
        while self.clients.send(self.ports[index], b"full") == 1:
            count += 1
        return count


@pytest.fixture
def bus() -> Iterator[Callable[..., Bus]]:
    with ExitStack() as opened:
        yield lambda clients, packets=0: Bus(opened, clients, packets)


@pytest.mark.parametrize(
    "packet", [b"", b"x", b"y" * 66_000, memoryview(b"abc")[1:]], ids=["0", "1", "66k", "view"]
)
def test_one_packet_to_one_client(bus: Callable[..., Bus], packet: bytes) -> None:
    made = bus(1)
    assert made.clients.send(made.ports[0], packet) == 1
    assert made.theirs[0].recv(1 << 17) == bytes(packet)


@pytest.mark.parametrize("count", [1, 2, 64, 200])
def test_a_run_reaches_every_client(bus: Callable[..., Bus], count: int) -> None:
    made = bus(5, count)
    assert made.run() == {}
    assert all(made.read(index) == made.packets for index in range(5))


@pytest.mark.parametrize("count", [1, 900, 3 * VECTOR])
def test_a_full_client_gets_the_rest_later_and_the_others_all_at_once(
    bus: Callable[..., Bus], count: int
) -> None:
    made = bus(3, count)
    made.theirs[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    filled = made.fill(1)
    for port in (made.ports[0], made.ports[2]):
        with socket.socket(fileno=os.dup(port)) as ours:
            ours.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)  # SO_SNDBUFFORCE
    assert made.run() == {made.ports[1]: 0}
    assert made.read(0) == made.packets == made.read(2)
    assert made.read(1) == [b"full"] * filled
    # The outbox hands over what did not go: some now, the rest at the next turn.
    went, turns, arrived = 0, 0, []
    while went < count:
        went += made.clients.send_each(made.ports[1], made.packets[went:])
        arrived += made.read(1)
        turns += 1
    assert arrived == made.packets
    assert turns > 1 or count == 1


def test_a_run_that_fits_in_part_says_how_much(bus: Callable[..., Bus]) -> None:
    made = bus(1, 3 * VECTOR)
    (went,) = made.run().values()
    assert 0 < went < 3 * VECTOR
    assert made.read(0) == made.packets[:went]


def test_clients_that_have_left_are_told_from_those_that_are_full(bus: Callable[..., Bus]) -> None:
    made = bus(6, 300)
    made.fill(1)
    made.theirs[2].close()
    made.theirs[4].close()
    made.theirs[5].send(b"unread by us, which makes the end a reset")
    made.clients.send(made.ports[5], b"unread by them")
    made.theirs[5].close()
    fell_short = made.run()
    gone = {made.ports[index] for index in (2, 4, 5)}
    assert {port for port, went in fell_short.items() if went == GONE} == gone
    assert fell_short[made.ports[1]] == 0
    for index in (0, 3):
        went = fell_short.get(made.ports[index], 300)
        assert made.read(index) == made.packets[:went]
        assert went > 200


def test_a_lone_packet_to_the_gone_and_the_full(bus: Callable[..., Bus]) -> None:
    made = bus(4, 1)
    made.fill(1)
    made.theirs[2].close()
    assert made.run() == {made.ports[1]: 0, made.ports[2]: GONE}
    assert made.read(0) == made.packets == made.read(3)


def test_a_client_that_leaves_in_the_middle_of_a_run(
    bus: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket is full after a part; when the rest is tried, it has left."""
    made = bus(2, 3 * VECTOR)
    table = made.clients._table
    real = table.send

    def leave_after_a_part(fd: int, count: int, first: int = 0) -> int:
        went = real(fd, count, first)
        if fd == made.ports[0] and 0 < went < count:
            made.theirs[0].close()
        return went

    monkeypatch.setattr(table, "send", leave_after_a_part)
    fell_short = made.run()
    assert fell_short[made.ports[0]] == GONE
    assert made.read(1) == made.packets[: fell_short[made.ports[1]]]


def test_a_client_that_was_full_in_one_table_gets_nothing_of_the_next(
    bus: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it tried again, it could get later packets in front of those that wait."""
    made = bus(1, 2 * VECTOR)
    real = made.clients._table.send

    def drain_after_full(fd: int, count: int, first: int = 0) -> int:
        went = real(fd, count, first)
        if went < 0:
            arrived.extend(made.read(0))
        return went

    arrived: list[bytes] = []
    monkeypatch.setattr(made.clients._table, "send", drain_after_full)
    (went,) = made.run().values()
    assert 0 < went < VECTOR
    assert arrived + made.read(0) == made.packets[:went]


def test_send_each_stops_at_the_first_that_does_not_go(bus: Callable[..., Bus]) -> None:
    made = bus(2)
    packets = [b"%d" % number for number in range(2000)]
    went = made.clients.send_each(made.ports[0], packets)
    assert 0 < went < 2000
    assert made.read(0) == packets[:went]
    assert made.clients.send_each(made.ports[0], []) == 0
    made.theirs[1].close()
    assert made.clients.send_each(made.ports[1], packets) == GONE


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 100, 4095, 4096, 4097, 9000]), max_size=300), st.integers(1, 300))
def test_send_each_with_packets_around_the_size_of_the_scratch(sizes: list[int], reads: int) -> None:
    """Those that fit go side by side, a longer one alone; through a socket that is full now and then."""
    packets = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    with ExitStack() as opened:
        made = Bus(opened, 1)
        arrived: list[bytes] = []
        went = 0
        while went < len(packets):
            more = made.clients.send_each(made.ports[0], packets[went:])
            assert more >= 0
            went += more
            arrived += [made.theirs[0].recv(10_000) for _ in range(min(reads, went - len(arrived)))]
        arrived += [made.theirs[0].recv(10_000) for _ in range(went - len(arrived))]
        assert arrived == packets


def test_a_kernel_short_of_memory_makes_a_client_wait_not_leave(
    bus: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bus(1, 3)
    for reason in (errno.ENOBUFS, errno.ENOMEM):

        def refuse(*_: object, reason: int = reason) -> int:
            raise OSError(reason, os.strerror(reason))

        with monkeypatch.context() as short:
            short.setattr(os, "write", refuse)
            assert made.clients.send(made.ports[0], b"x") == 0
        with monkeypatch.context() as short:
            short.setattr(made.clients._table, "send", lambda *_, reason=reason: -reason)
            assert made.run() == {made.ports[0]: 0}
    assert made.run() == {}


def test_a_client_blocked_in_send_is_freed_by_the_end_of_its_connection(
    path: Path, listen: Callable[..., Listener]
) -> None:
    """What a client sees when the daemon is killed: an error, not an endless wait."""
    listener = listen(path)
    errors: list[OSError] = []
    sent = threading.Event()

    def flood(client: socket.socket) -> None:
        try:
            while True:
                client.send(bytes(1000))
                sent.set()
        except OSError as error:
            errors.append(error)

    with connected(listener) as client:
        client.settimeout(None)
        (ours,) = listener.accept()
        thread = threading.Thread(target=flood, args=[client])
        thread.start()
        assert sent.wait(PATIENCE)
        wait_until(lambda: not select.select([], [client], [], 0)[1], "a full socket")
        ours.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert isinstance(errors[0], BrokenPipeError | ConnectionResetError)


def test_signals_in_the_middle_of_calls_are_nobodys_end(bus: Callable[..., Bus]) -> None:
    made = bus(3, 100)
    signals: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda signum, _: signals.append(signum))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(signals) < 20:
            assert made.run() == {}
            assert all(made.read(index) == made.packets for index in range(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_every_refusal_is_one_line(path: Path, listen: Callable[..., Listener]) -> None:
    path.touch()
    for where in (path, path / "bus.sock", "fd:", "@" + "x" * 200, "/" + "x" * 200):
        with pytest.raises(BccndError) as caught:
            listen(where)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code in (2, 4, 5)
