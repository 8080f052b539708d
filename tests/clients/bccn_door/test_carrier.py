"""The bus through a door: credit both ways, heartbeats, every end of a connection, fork, and the end of a program."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bccn
from bccn.transport import PACKET_LIMIT, READABLE
from bccn_door.carrier import WINDOW, StreamTransport
from tests.clients.drivers import CLIENTS
from tests.clients.scripted_door import ScriptedDoor
from tests.packet_client import PATIENCE, wait_until

NOTHING = (None, None, None, None)


def echo(door: ScriptedDoor, packet: bytes) -> bool:
    if packet.startswith(b"MSG "):
        door.say(packet)
    return False


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")


def connected(door: ScriptedDoor, **settings: object) -> bccn.Client:
    return bccn.Client(door.address, timeout=PATIENCE, **settings)  # type: ignore[arg-type]


def test_packets_go_both_ways(tmp_path: Path) -> None:
    with ScriptedDoor(tmp_path / "door", echo) as door:
        with connected(door) as bus:
            assert bus.name == "here/test/1"
            bus.subscribe("a")
            for payload in (b"", b"x" * 100_000, bytes(range(256))):
                bus.publish("a", payload)
                message = bus.receive(PATIENCE)
                assert message is not None
                assert message.payload == payload
        assert door.seen[:3] == [b"CMSG whoami", b"SUB a", b"CMSG ping"]


async def test_an_asyncio_client_goes_through_a_door(tmp_path: Path) -> None:
    with ScriptedDoor(tmp_path / "door", echo) as door:
        async with bccn.AsyncClient(door.address, timeout=PATIENCE) as bus:
            messages = await bus.subscribe("a")
            await bus.publish("a", "hello")
            message = await messages.receive(PATIENCE)
            assert message is not None
            assert message.text == "hello"


def test_what_is_not_taken_gives_no_credit(tmp_path: Path) -> None:
    """Of 4 MB no more comes than the window and a socket hold; then all of it does."""
    total, size = 400, 10_000

    def script(door: ScriptedDoor, packet: bytes) -> bool:
        for number in range(total) if packet == b"MSG go\0" else ():
            door.say(b"MSG n\0%d " % number + bytes(size))
        return False

    with ScriptedDoor(tmp_path / "door", script) as door, connected(door) as bus:
        carrier = bus._transport._carrier  # type: ignore[union-attr]
        bus.publish("go")
        wait_until(lambda: carrier._arrived and not door.bus.account.credit, "a door without credit")
        assert total * size - door.endpoint.queued < 2 * WINDOW + 256 * 1024
        got = [bus.receive(PATIENCE) for _ in range(total)]
        assert [int(each.payload.split(b" ")[0]) for each in got if each] == list(range(total))


def test_a_publisher_waits_for_credit(tmp_path: Path) -> None:
    def script(door: ScriptedDoor, packet: bytes) -> bool:
        if packet == b"CMSG whoami":
            door.endpoint.set_window(door.bus, 0)
        return False

    with ScriptedDoor(tmp_path / "door", script) as door, connected(door) as bus:
        bus._timeout = 0.3
        with pytest.raises(bccn.TimedOutError, match="takes no more"):  # noqa: PT012
            while True:
                bus.publish("a", bytes(1000))
        sent, bus._timeout = bus._published, PATIENCE
        assert sum(packet.startswith(b"MSG a\0") for packet in door.seen) < 70 < sent
        door.do(lambda: door.endpoint.set_window(door.bus, 1 << 20))
        bus.barrier()
        assert sum(packet.startswith(b"MSG a\0") for packet in door.seen) == sent


def test_heartbeats_are_answered_while_the_program_works(tmp_path: Path) -> None:
    with ScriptedDoor(tmp_path / "door") as door, connected(door):
        assert door.endpoint.chatter == 0
        door.do(lambda: door.endpoint._ping(door.endpoint.top))
        wait_until(lambda: door.endpoint.chatter == 1, "a pong")


def test_a_door_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpmux.heartbeats.IDLE_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen()
        with pytest.raises(bccn.UnavailableError, match=r"the door at .*/silent does not answer"):
            bccn.Client(f"unix:{tmp_path}/silent", timeout=PATIENCE)


def test_a_session_that_the_door_ends_is_made_again(tmp_path: Path) -> None:
    def script(door: ScriptedDoor, packet: bytes) -> bool:
        if packet == b"MSG end\0":
            door.say(b"MSG a\0last")
            door.end(b"")
        return packet.startswith(b"MSG ") or echo(door, packet)

    notices: list[bccn.Notice] = []
    with ScriptedDoor(tmp_path / "door", script) as door:
        with connected(door, on_notice=notices.append) as bus:
            bus.subscribe("a")
            bus.publish("end")
            message = bus.receive(PATIENCE)
            assert message is not None
            assert message.text == "last"
            with pytest.raises(bccn.UnconfirmedError):
                bus.barrier()
            assert [(each.kind, each.text) for each in notices] == [
                ("disconnected", "the daemon went away"),
                ("reconnected", "connected to the daemon again"),
            ]
        assert door.seen.count(b"SUB a") == 2


def test_a_connection_that_breaks_is_made_again(tmp_path: Path) -> None:
    def script(door: ScriptedDoor, packet: bytes) -> bool:
        if packet == b"MSG end\0":
            door.drop()
        return door.is_dropped

    notices: list[bccn.Notice] = []
    with ScriptedDoor(tmp_path / "door", script) as door, connected(door, on_notice=notices.append) as bus:
        bus.publish("end")
        with pytest.raises(bccn.UnconfirmedError):
            bus.barrier()
        assert notices[0].text == f"the door at {door.address} went away"
        bus.barrier()


@pytest.mark.parametrize("end", [ScriptedDoor.end, ScriptedDoor.turn_away])
@pytest.mark.parametrize(
    ("reason", "error", "text"),
    [
        (
            b"refused this certificate is nobody's",
            bccn.RefusedError,
            "this certificate is nobody's (refused)",
        ),
        (b"unavailable no daemon at /x", bccn.UnavailableError, "no daemon at /x"),
        (b"limit: too many are open", bccn.RejectedError, "too many are open (limit)"),
    ],
)
def test_a_door_that_lets_nobody_in_says_why(
    tmp_path: Path,
    reason: bytes,
    error: type[bccn.BccnError],
    text: str,
    end: Callable[[ScriptedDoor, bytes], None],
) -> None:
    def script(door: ScriptedDoor, _: bytes) -> bool:
        end(door, reason)
        return True

    with ScriptedDoor(tmp_path / "door", script) as door, pytest.raises(error) as raised:
        connected(door)
    assert str(raised.value) == text


def test_no_door_and_what_is_no_door(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError, match=r"no door at unix:.*/none: No such file"):
        bccn.Client(f"unix:{tmp_path}/none")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "web"))
        listener.listen()

        def answer() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1 << 16)
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                accepted.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(bccn.ProtocolError, match="is no door"):
            bccn.Client(f"unix:{tmp_path}/web", timeout=PATIENCE)
        thread.join()


def test_a_packet_longer_than_any_is_rejected(tmp_path: Path) -> None:
    with ScriptedDoor(tmp_path / "door") as door, connected(door) as bus:
        bus.publish("a", bytes(PACKET_LIMIT - 6))
        with pytest.raises(bccn.RejectedError, match="too many to send"):
            bus.publish("a", bytes(PACKET_LIMIT - 5))
        bus.barrier()
        assert len(door.seen[-2]) == PACKET_LIMIT


def test_what_was_sent_before_the_end_arrives(tmp_path: Path) -> None:
    with ScriptedDoor(tmp_path / "door") as door:
        bus = connected(door)
        for number in range(1000):
            bus.publish("a", b"%d" % number)
        bus.close()
        wait_until(lambda: door.ended == 1, "the end of the session")
        assert [packet[6:] for packet in door.seen[1:]] == [b"%d" % number for number in range(1000)]


def test_a_program_that_ends_takes_nothing_back(tmp_path: Path) -> None:
    program = (
        "import sys, bccn\n"
        "assert not any(name.startswith(('bpmux', 'threading')) for name in sys.modules)\n"
        "bus = bccn.Client(sys.argv[1])\n"
        "for number in range(1000):\n    bus.publish('a', str(number))"
    )
    with ScriptedDoor(tmp_path / "door") as door:
        done = subprocess.run(
            [sys.executable, "-S", "-c", program, door.address],
            env={"PYTHONPATH": str(CLIENTS / "python")},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        wait_until(lambda: door.ended == 1, "the end of the session")
        assert door.seen[-1] == b"MSG a\x00999"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_leaves_the_connection_alone(tmp_path: Path) -> None:
    with ScriptedDoor(tmp_path / "door") as door, connected(door) as bus:
        carrier = bus._transport._carrier  # type: ignore[union-attr]
        descriptors = [carrier._far.fileno(), carrier._stream.fileno(), bus._transport.fileno()]  # type: ignore[union-attr]
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = sum(Path(f"/proc/self/fd/{each}").exists() for each in descriptors)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        bus.barrier()
        assert door.ended == 0


def test_a_client_may_close_while_nothing_connects(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen()
        transport = StreamTransport(f"unix:{tmp_path}/silent", NOTHING)
        assert transport.send(b"CMSG whoami")
        assert not transport.wait(READABLE, time.monotonic() + 0.05)
        transport.close()
        transport.close()


def test_a_place_at_a_full_door_is_waited_for(tmp_path: Path) -> None:
    turned_away: list[bytes] = []

    def script(door: ScriptedDoor, packet: bytes) -> bool:
        if turned_away:
            return False
        turned_away.append(packet)
        door.end(b"limit: too many are open")
        return True

    with ScriptedDoor(tmp_path / "door", script) as door, connected(door, wait=PATIENCE) as bus:
        assert bus.name
    assert turned_away
