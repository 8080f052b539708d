"""Rights of real clients: credentials from the kernel, other pid namespaces, and the socket's permissions."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import PATIENT
from tests.daemon.test_program import BCCND_AS_NOBODY, assert_one_line, bccnd
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram

NOBODY = 65534
STRANGER = 4711  # a uid that no account has
BADGE = 4712  # a gid that no group has

README = (Path(__file__).parents[1] / "etc" / "README.md").read_text()

# Runs a program in a new pid namespace, with its own /proc or that of the outer one, and passes SIGTERM on to it.
IN_A_PID_NAMESPACE = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
own_proc = sys.argv[1] == "own-proc"
if libc.unshare(0x20000000 | (0x20000 if own_proc else 0)):
    raise OSError(ctypes.get_errno(), "unshare")
child = os.fork()
if child == 0:
    libc.prctl(1, signal.SIGKILL)
    mount = own_proc and (libc.mount(b"", b"/", None, 0x44000, None) or libc.mount(b"", b"/proc", b"proc", 0, None))
    if mount:
        raise OSError(ctypes.get_errno(), "mount")
    os.execvp(sys.argv[2], sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


pytestmark = pytest.mark.needs("root")  # to become somebody else


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="bccnd-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


Start = Callable[..., DaemonProcess]


@pytest.fixture
def start(folder: Path, loopback_port: int) -> Start:
    """Makes a daemon with these rights, to be entered by the test. Everybody may connect."""

    def make(toml: str = "", prefix: Sequence[str] = ()) -> DaemonProcess:
        settings = folder / "bccnd.toml"
        settings.write_text(f'socket_mode = "0666"\nlog = {{format = "json"}}\n{toml}')
        flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
        return DaemonProcess(folder, "--config", str(settings), *flags, prefix=prefix)

    return make


@contextmanager
def acting_as(
    uid: int = STRANGER, gid: int = STRANGER, groups: Sequence[int] = (), program: str = ""
) -> Iterator[None]:
    """Credentials that the kernel reports for connections made within the block."""
    comm = Path("/proc/self/comm")
    before = os.getgroups(), comm.read_text()
    if program:
        comm.write_text(program)
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before[0])
        comm.write_text(before[1])


@contextmanager
def client(daemon: DaemonProcess, **who: Any) -> Iterator[PacketClient]:
    with acting_as(**who):
        connected = PacketClient(daemon.socket)
        connected.drain()  # the daemon has accepted it and read its credentials
    with connected:
        yield connected


def allowed(client: PacketClient, packet: bytes) -> bool:
    """Whether the daemon carries out a packet. Anything but success or a refusal fails the test."""
    client.send(packet)
    errors = [answer for answer in client.drain() if answer.startswith(b"CMSG error\0")]
    assert all(error.startswith(b"CMSG error\0refused ") for error in errors), errors
    return not errors


def refusals(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return daemon.logged("refused")


# --- the identity of a client ---


@pytest.mark.parametrize(
    ("condition", "who", "expected"),
    [
        (f"uid = {STRANGER}", {}, True),
        (f"uid = {STRANGER}", {"uid": STRANGER + 1}, False),
        ('uid = "nobody"', {"uid": NOBODY}, True),
        ("uid = 0", {"uid": 0, "gid": 0}, True),
        (f"gid = {BADGE}", {"gid": BADGE}, True),
        (f"gid = {BADGE}", {"groups": [1, BADGE]}, True),
        (f"gid = {BADGE}", {"groups": [*range(5000, 6000), BADGE]}, True),
        (f"gid = {BADGE}", {"groups": [1, BADGE + 1]}, False),
        ("gid = 0", {}, False),
        ('program = "sensord"', {"program": "sensord"}, True),
        ('program = "sensor"', {"program": "sensord"}, False),
        ('program = "sens*"', {"program": "sensord"}, True),
        (f'uid = {STRANGER}\ngid = {BADGE}\nprogram = "*"', {"groups": [BADGE]}, True),
        (f"uid = {STRANGER + 1}\ngid = {BADGE}", {"groups": [BADGE]}, False),
    ],
)
def test_conditions_use_the_kernels_credentials(
    start: Start, condition: str, who: dict[str, Any], expected: bool
) -> None:
    with start(f'[[rights]]\n{condition}\npublish = ["a"]') as daemon, client(daemon, **who) as someone:
        assert allowed(someone, b"MSG a\0x") is expected


def test_by_default_only_root_may_tap_and_bridge(start: Start) -> None:
    with start() as daemon:
        bridged = datagram("far/prog/1", 1, "a", b"x")
        for who, expected in (({}, False), ({"uid": 0, "gid": 0}, True)):
            with client(daemon, **who) as someone:
                for packet in (b"SUB >", b"MSG a\0x", b"MSG !\0x", b"MSG !here\0x"):
                    assert allowed(someone, packet)
                for packet in (b"CMSG name\0any/name", bridged, b"CMSG tap\0on"):
                    assert allowed(someone, packet) is expected


def test_with_rights_root_has_only_what_is_granted(start: Start) -> None:
    with start(f"[[rights]]\nuid = {STRANGER}\ntap = true") as daemon:
        with client(daemon, uid=0, gid=0) as root:
            for packet in (b"SUB a", b"MSG a\0x", b"CMSG tap\0on", b"CMSG name\0x", b"CMSG listen"):
                assert not allowed(root, packet)
            assert root.request("whoami").startswith("here/")
        with client(daemon) as stranger:
            assert allowed(stranger, b"CMSG tap\0on")


def test_each_right_by_itself(start: Start) -> None:
    rights = (
        '[[rights]]\npublish = ["a/>", "!", "!there/>"]\nsubscribe = ["b/*"]\nname = ["sensor/*"]\n'
        f"[[rights]]\nuid = {STRANGER}\nbridge = true\nobserve = true"
    )
    with start(rights) as daemon, client(daemon) as someone:
        for packet in (
            b"MSG a/b\0", b"MSG !\0", b"MSG !there/prog/7\0", b"SUB b/c*", b"SUB b/*", b"CMSG name\0sensor/1",
            b"CMSG listen", datagram("far", 1, "a/x", b""), b"CMSG tap\0off",
        ):  # fmt: skip
            assert allowed(someone, packet), packet
        for packet in (
            b"MSG a\0", b"MSG b/c\0", b"MSG !here/prog\0", b"SUB b/>", b"SUB >", b"SUB a/b", b"CMSG name\0sensor/1/2",
            b"CMSG tap\0on", datagram("far", 2, "b/c", b""), b"CMSG queue\0policy=block",
        ):  # fmt: skip
            assert not allowed(someone, packet), packet
        refused = {"publish": 4, "subscribe": 3, "name": 1, "tap": 1, "block": 1}
        assert someone.status()["refused"] == refused


def test_a_question_needs_the_right_to_what_it_asks_about(start: Start) -> None:
    rights = f'[[rights]]\npublish = ["!>"]\nsubscribe = ["!"]\n[[rights]]\nuid = {STRANGER}\npublish = ["b"]'
    with start(rights) as daemon:
        for uid, expected in ((STRANGER, True), (STRANGER + 1, False)):
            with client(daemon, uid=uid) as someone:
                someone.request("listen")
                assert allowed(someone, b"CMSG listeners\0b") is expected
                for question in (b"MSG !here/bccnd\0t\nlisteners b", b"MSG !there/bccnd\0t\nlisteners b"):
                    someone.send(question)
                    heard = someone.drain()
                    assert (b"CMSG error" not in b"".join(heard)) is expected
                    assert (
                        not expected or "there" in question.decode() or heard[0].endswith(b"t\nlisteners 0")
                    )


@pytest.mark.parametrize("right", ["observe", "tap"])
def test_who_may_not_observe_sees_itself_alone(start: Start, right: str) -> None:
    rights = f"[[rights]]\nuid = {STRANGER}\n{right} = true"
    with start(rights) as daemon, client(daemon) as observer, client(daemon, uid=0, gid=0) as other:
        for packet in (b"CMSG status", b"CMSG sources"):
            assert allowed(observer, packet)
            assert not allowed(other, packet)
        rows = [json.loads(each.request("clients"))["clients"] for each in (observer, other)]
        names = [each.request("whoami") for each in (observer, other)]
        assert [[row["name"] for row in seen] for seen in rows] == [names, names[1:]]
        for command in ("status", "who", "top --once", "doctor"):
            done = subprocess.run(
                [*PATIENT, "--socket", str(daemon.socket), *command.split()],
                capture_output=True, text=True, timeout=2 * PATIENCE, check=False,
            )  # fmt: skip
            assert "observe" in done.stdout + done.stderr, command
            assert "Traceback" not in done.stderr
            assert done.returncode == (0 if command == "doctor" else 4)


def test_the_example_of_the_readme(start: Start) -> None:
    (example,) = re.findall(r"^```toml\n(\[\[rights\]\].*?)^```$", README, re.DOTALL | re.MULTILINE)
    # Accounts that this machine may lack.
    assert example.count('"cardsys"') == example.count('uid = "bccnd"') == 1
    rights = example.replace('"cardsys"', str(BADGE)).replace('"bccnd"', str(STRANGER + 1))
    bridged = datagram("far/prog/1", 1, "anything/at/all", b"x")
    with (
        start(rights) as daemon,
        client(daemon, groups=[BADGE]) as card_system,
        client(daemon, uid=STRANGER + 1) as uplink,
        client(daemon) as anybody,
        client(daemon, uid=0, gid=0) as root,
    ):
        for packet in (
            b"MSG cardsys/tx\0",
            b"MSG !\0",
            b"SUB cardsys/*/failed",
            b"SUB rates/eur",
            b"SUB status/x",
        ):
            assert allowed(card_system, packet), packet
        for packet in (
            b"MSG rates/eur\0",
            b"MSG !there\0",
            b"SUB >",
            b"SUB rates/>",
            b"CMSG tap\0on",
            bridged,
        ):
            assert not allowed(card_system, packet), packet
        for packet in (b"SUB >", b"MSG !there/prog\0", bridged):
            assert allowed(uplink, packet), packet
        for someone in (anybody, root):
            assert allowed(someone, b"SUB status/>")
            for packet in (b"MSG status/x\0", b"SUB cardsys/>", b"CMSG tap\0on", bridged):
                assert not allowed(someone, packet), packet


def test_a_refusal_is_logged_once_per_client_and_right(start: Start) -> None:
    with start("[[rights]]\nobserve = true") as daemon:
        with client(daemon, program="chatterbox") as someone:
            for _ in range(100):
                assert not allowed(someone, b"MSG a\0x")
            assert not allowed(someone, b"SUB a")
            wait_until(lambda: len(refusals(daemon)) == 2, "two lines in the log")
            name = someone.request("whoami")
            assert not allowed(someone, b"MSG b\0x")
        with client(daemon) as another:
            assert not allowed(another, b"MSG a\0x")
            assert another.status()["refused"] == {"publish": 102, "subscribe": 1}
        daemon.terminate()
        lines = refusals(daemon)
    assert [(line["right"], line["reason"].partition(":")[0]) for line in lines] == [
        ("publish", "MSG a"), ("subscribe", "SUB a"), ("publish", "MSG a"),
    ]  # fmt: skip
    expected = {
        "name": name,
        "pid": os.getpid(),
        "uid": STRANGER,
        "program": "chatterbox",
        "level": "warning",
    }
    assert expected.items() <= lines[0].items()


def test_a_reload_applies_rights_to_connected_clients(start: Start, folder: Path) -> None:
    everything = '[[rights]]\npublish = [">"]\nsubscribe = [">"]\ntap = true\n'
    with start(everything) as daemon, client(daemon) as someone, client(daemon) as tap:
        someone.subscribe("a/b", "c")
        tap.request("tap", "on")
        settings = folder / "bccnd.toml"
        text = settings.read_text()
        settings.write_text(text.replace('[">"]', '["a/>"]').replace("tap = true", ""))
        daemon.process.send_signal(signal.SIGHUP)
        assert someone.receive() == b"CMSG revoked\0SUB c"
        assert tap.receive() == b"CMSG revoked\0CMSG tap"
        assert not allowed(someone, b"MSG c\0x")
        someone.publish("a/b", b"x")
        assert someone.messages() == [("a/b", b"x")]
        settings.write_text(text.replace("tap = true", "tap = maybe"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "not reloaded" in daemon.log, "the refusal of the new file")
        assert not allowed(someone, b"MSG c\0x")


def test_a_successor_applies_its_own_rights(start: Start, folder: Path) -> None:
    rights = '[[rights]]\npublish = [">"]\nsubscribe = [">"]\nobserve = true\n'
    with start(rights) as daemon, client(daemon) as someone:
        someone.subscribe("a", "b")
        settings = folder / "bccnd.toml"
        settings.write_text(settings.read_text().replace('subscribe = [">"]', 'subscribe = ["a"]'))
        before = someone.status()["pid"]
        daemon.process.send_signal(signal.SIGUSR2)
        assert someone.receive() == b"CMSG revoked\0SUB b"
        after = someone.status()["pid"]
        try:
            assert after != before
            assert daemon.process.wait(PATIENCE) == 0
            assert not allowed(someone, b"SUB b")
            someone.publish("a", b"x")
            someone.publish("b", b"y")
            assert someone.messages() == [("a", b"x")]
        finally:
            os.kill(after, signal.SIGTERM)
            wait_until(lambda: not daemon.socket.exists(), "the successor to leave")


# --- names ---

# Connects, forks a child that acts as uid argv[2] (and, with argv[3], in a pid namespace of its own), and prints what
# the child is told about a name below the parent's.
FORKING = """
import ctypes, os, socket, sys
def connect():
    bus = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); bus.connect(sys.argv[1]); return bus
def ask(bus, packet):
    bus.send(packet); return bus.recv(65536).replace(b"\\0", b" ").decode()
first, second = connect(), connect()
names = [ask(bus, b"CMSG whoami").split()[2] for bus in (first, second)]
if sys.argv[3:] and ctypes.CDLL(None).unshare(0x20000000):
    raise OSError("unshare")
child = os.fork()
if child == 0:
    os.setuid(int(sys.argv[2]))
    bus = connect()
    for name in names:
        print(ask(bus, b"CMSG name\\0%b/%d" % (name.encode(), os.getpid())).replace(f"{name}/{os.getpid()}", "CHILD"))
    os._exit(0)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def told_after_fork(daemon: DaemonProcess, *how: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-u", "-c", FORKING, daemon.socket, *how],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_child_of_fork_takes_a_name_below_its_parents(start: Start) -> None:
    with start("[[rights]]") as daemon:
        assert told_after_fork(daemon, "0") == ["CMSG name CHILD"] * 2


def test_a_child_in_a_pid_namespace_takes_that_name_too(start: Start) -> None:
    """It sees itself as pid 1; the kernel knows."""
    with start("[[rights]]") as daemon:
        assert told_after_fork(daemon, "0", "unshare") == ["CMSG name CHILD"] * 2


def test_a_child_that_gave_up_its_uid_does_not(start: Start) -> None:
    with start() as daemon:
        refused = "CMSG error refused CMSG name: no right to CHILD, which is not below the client's own name"
        assert told_after_fork(daemon, str(STRANGER)) == [refused] * 2


def test_another_user_hears_no_replies(start: Start) -> None:
    """It wants to stand below root's connections, before they come and after."""
    with start() as daemon:
        mine = f"here/{Path('/proc/self/comm').read_text().strip()}"
        pid = os.getpid()
        wanted = [
            f"{mine}/{os.getppid()}/{pid}",
            f"{mine}/1/c/2/{pid}",
            f"{mine}/1/{pid}",
            f"{mine}/{pid + 1}",
        ]
        with client(daemon) as early, client(daemon, uid=0, gid=0) as root, client(daemon) as late:
            names = [each.request("whoami") for each in (early, root, late)]
            assert names[0] == f"{mine}/{pid}"
            assert names[1].startswith(f"{mine}/n"), "the pid is that of another user's connection"
            assert names[2] == f"{mine}/{pid}/c/2"
            for spy in (early, late):
                spy.send(b"CMSG listen")
                spy.drain()
                for name in [*wanted, f"{names[1]}/x", f"{names[1]}/{pid}"]:
                    assert not allowed(spy, f"CMSG name\0{name}".encode()), name
            root.request("listen")
            for target in (names[1], f"{names[1]}/*"):
                root.publish(f"!{target}", b"secret")
            assert root.messages() == [(f"!{names[1]}", b"secret"), (f"!{names[1]}/*", b"secret")]
            assert early.messages() == late.messages() == []


def test_a_program_called_bccnd_is_not_the_daemon(start: Start) -> None:
    with start() as daemon, client(daemon, program="bccnd", uid=0, gid=0) as someone:
        assert someone.request("whoami") == f"here/bccnd_/{os.getpid()}"
        assert not allowed(someone, b"CMSG name\0here/bccnd/7")


# --- peers of other pid namespaces ---


@pytest.mark.parametrize("proc", ["own-proc", "outer-proc"])
def test_a_client_of_another_pid_namespace_has_no_program(start: Start, proc: str) -> None:
    """The daemon is inside; a process outside has no pid there."""
    prefix = [sys.executable, "-c", IN_A_PID_NAMESPACE, proc]
    rights = (
        f'[[rights]]\nuid = {STRANGER}\npublish = ["a"]\n'
        '[[rights]]\nprogram = "*"\npublish = ["b"]\n[[rights]]\nuid = 0\ntap = true'
    )
    with start(rights, prefix) as daemon:
        with client(daemon, program="sensord") as one, client(daemon, program="sensord") as two:
            numbers = [int(c.request("whoami").removeprefix("here/unknown/n")) for c in (one, two)]
            assert numbers[1] > numbers[0]
            assert allowed(one, b"MSG a\0")
            for packet in (b"MSG b\0", b"CMSG tap\0on", b"CMSG name\0here/unknown/%d" % os.getpid()):
                assert not allowed(one, packet)
        with client(daemon) as three, client(daemon, uid=0, gid=0) as root:
            assert int(three.request("whoami").removeprefix("here/unknown/n")) > numbers[1]
            assert allowed(root, b"CMSG tap\0on")
            assert not allowed(root, b"MSG a\0")


def test_root_outside_the_pid_namespace_has_no_privileges(start: Start) -> None:
    with (
        start("", [sys.executable, "-c", IN_A_PID_NAMESPACE, "own-proc"]) as daemon,
        client(daemon, uid=0, gid=0) as root,
    ):
        assert allowed(root, b"SUB >")
        assert allowed(root, b"MSG a\0x")
        for packet in (b"CMSG tap\0on", b"CMSG name\0any/name", datagram("far", 1, "a", b"")):
            assert not allowed(root, packet)


def test_root_in_a_nested_pid_namespace_has_no_privileges(start: Start) -> None:
    """As in a container: the daemon sees the pid, and that the process has another one in its namespace."""
    program = (
        "import os, socket, sys\n"
        "bus = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); bus.connect(sys.argv[1])\n"
        "def ask(packet): bus.send(packet); return bus.recv(65536).decode()\n"
        r"print(os.getpid(), ask(b'CMSG whoami\0'), ask(b'CMSG tap\0on'), sep='\n')"
    )
    with start() as daemon:
        command = [sys.executable, "-c", IN_A_PID_NAMESPACE, "own-proc", sys.executable, "-c", program]
        done = subprocess.run(
            [*command, daemon.socket], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    shown = done.stdout.replace("\0", " ").splitlines()
    assert shown[0] == "1"
    assert int(shown[1].rpartition("/")[2]) > 1
    assert shown[2] == "CMSG error refused CMSG tap: no right to tap"


# --- the socket itself ---


@pytest.mark.parametrize(
    ("toml", "code", "words"),
    [
        ('socket_owner = "no-such-user"', 2, ["socket_owner", "no-such-user"]),
        ('socket_group = "no-such-group"', 2, ["socket_group", "no-such-group"]),
        ('socket_owner = "99999999999"', 4, ["socket_owner"]),
        ('socket_mode = "0999"', 2, ["socket_mode", "0999"]),
        ('socket_mode = ""', 2, ["socket_mode"]),
        ("socket_mode = 660", 2, ["socket_mode", "660"]),
        ('socket_mode = "4666"', 2, ["socket_mode", "4666"]),
        ('[[rights]]\nuid = "no-such-user"', 2, ["[[rights]] 1: uid", "no-such-user"]),
        ('[[rights]]\ngid = "no-such-group"', 2, ["[[rights]] 1: gid", "no-such-group"]),
        ("rights = []", 2, ["rights", "empty"]),
    ],
)
def test_a_mistake_opens_nothing(
    folder: Path, loopback_port: int, toml: str, code: int, words: list[str]
) -> None:
    settings = folder / "bccnd.toml"
    settings.write_text(f'broadcast = "{LOOPBACK_BROADCAST}"\nport = {loopback_port}\n{toml}')
    path = folder / "bus.sock"
    assert_one_line(bccnd("--config", settings, "--socket", path), code, *words)
    assert not path.exists()


@pytest.mark.parametrize("setting", ['socket_owner = "root"', 'socket_group = "root"'])
def test_without_the_right_to_chown_nothing_opens(folder: Path, loopback_port: int, setting: str) -> None:
    folder.chmod(0o777)
    settings = folder / "bccnd.toml"
    settings.write_text(f'broadcast = "{LOOPBACK_BROADCAST}"\nport = {loopback_port}\n{setting}')
    path = folder / "bus.sock"
    command = [sys.executable, "-c", BCCND_AS_NOBODY]
    assert_one_line(bccnd("--config", settings, "--socket", path, command=command), 4, path, "socket_group")
    assert not path.exists()


@pytest.mark.parametrize("socket", ["@bccnd-test-permissions", "@"])
def test_permissions_for_an_abstract_socket_open_nothing(socket: str) -> None:
    assert_one_line(bccnd("--socket", socket, "--socket-mode", "0600"), 2, "--socket-mode", "no effect")


def test_owner_group_and_mode_are_right_from_the_start(folder: Path, start: Start) -> None:
    """An observer during the start, without a umask, never sees other permissions."""
    daemon = start()
    settings = folder / "bccnd.toml"
    settings.write_text(
        settings.read_text().replace('"0666"', f'"0640"\nsocket_owner = "nobody"\nsocket_group = "{BADGE}"')
    )
    final = (0o640, NOBODY, BADGE)
    seen: set[tuple[int, int, int]] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                status = daemon.socket.lstat()
            except FileNotFoundError:
                continue
            seen.add((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid))

    observer = threading.Thread(target=look)
    before = os.umask(0)
    observer.start()
    try:
        with daemon:
            status = daemon.socket.lstat()
            wait_until(lambda: final in seen, "the observer")
    finally:
        done.set()
        observer.join()
        os.umask(before)
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == final
    assert seen <= {(0, 0, 0), (0, NOBODY, BADGE), final}


# --- speaking for others


def speak_for(door: PacketClient, uid: int, pid: int) -> bytes:
    door.send(f"CMSG peer\0{uid} {uid} {pid} node".encode())
    return door.receive()


def test_root_may_speak_for_a_process_of_this_host(start: Start) -> None:
    """A pid counts as resident only with the uid that the kernel knows it by."""
    own = os.getpid()
    with start() as daemon:
        for uid, may_tap in ((0, True), (STRANGER, False)):
            with client(daemon, uid=0, gid=0) as door:
                assert speak_for(door, uid, own) == f"CMSG peer\0here/node/{own}".encode()
                assert allowed(door, b"CMSG tap\0on") is may_tap


def test_who_is_spoken_for_takes_a_place_of_its_own(start: Start) -> None:
    with start("limits = {clients_per_user = 1}") as daemon, client(daemon, uid=0, gid=0) as root:
        with client(daemon, uid=0, gid=0) as first, client(daemon, uid=0, gid=0) as second:
            assert speak_for(first, STRANGER, 0) == b"CMSG peer\0here/node/n1"
            assert speak_for(second, STRANGER, 0) == b"CMSG closing\0limit: at most 1 clients of one user"
        wait_until(lambda: root.status()["clients"] == 1, "both to have left")
        with client(daemon, uid=0, gid=0) as third:
            assert speak_for(third, STRANGER, 0).startswith(b"CMSG peer\0here/node/n")
