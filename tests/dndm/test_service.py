"""Real gateways beside real daemons: robots that are sockets, programs that are clients."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bccnd.commands.facts import gather
from bccnd.doctor.finding import Finding
from bccnd.doctor.programs import gateways
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.dndm.process import DndmProcess, Robot, dialled, site
from tests.dndm.pseudo_serial import PseudoSerial
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import free_address, free_port

ROUTE, CHANNEL = "Image@cam.front", "dndm/cam/front/Image"
LOCAL = f"local/{CHANNEL}"

Site = tuple[DaemonProcess, DndmProcess, str]


def finding(daemon: DaemonProcess, text: str) -> list[Finding]:
    """What ``bccn doctor`` finds of robots with this text."""
    found = gateways(gather(str(daemon.socket), None, {}))
    return [each for each in found if text in each.finding]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One daemon and one gateway for all tests that neither stop nor configure them."""
    with site(tmp_path_factory.mktemp("site")) as made:
        yield made


def wait_for_listener(program: PacketClient, channel: str) -> None:
    """Until the gateway's subscription is in force; the one who asks does not count. Drops what it has heard."""
    program.drain()
    wait_until(lambda: program.request("listeners", channel) == "1", f"a listener on {channel}")


def test_a_robot_hears_programs_of_the_bus(here: Site) -> None:
    daemon, _, where = here
    with dialled(where) as robot, PacketClient(daemon.socket) as program:
        robot.advert("INTEREST", ROUTE)
        wait_for_listener(program, CHANNEL)
        for number in range(100):
            program.publish(CHANNEL, b"%d" % number)
        robot.until(lambda: len(robot.messages()) >= 100)
        assert robot.messages() == [(ROUTE, b"%d" % number) for number in range(100)]


def test_programs_hear_a_robot_once_they_listen(here: Site) -> None:
    daemon, _, where = here
    with dialled(where) as robot, PacketClient(daemon.socket) as program:
        robot.advert("INTENT", ROUTE)
        program.subscribe(CHANNEL)
        robot.until(lambda: robot.wants(ROUTE))
        for number in range(100):
            robot.send(ROUTE, b"%d" % number)
        heard = [program.message() for _ in range(100)]
        assert heard == [(CHANNEL, b"%d" % number) for number in range(100)]
        program.send(b"UNSUB " + CHANNEL.encode())
        robot.until(lambda: not robot.wants(ROUTE))


def test_robots_hear_each_other_and_not_themselves(here: Site) -> None:
    daemon, _, where = here
    with dialled(where) as one, dialled(where) as other, PacketClient(daemon.socket) as program:
        program.subscribe(CHANNEL)
        for robot in one, other:
            robot.advert("INTENT", ROUTE)
            robot.advert("INTEREST", ROUTE)
            robot.settle()
        one.until(lambda: one.wants(ROUTE) and one.offered(ROUTE))
        one.send(ROUTE, b"from one")
        other.until(other.messages)
        other.send(ROUTE, b"from other")
        one.until(one.messages)
        assert (one.messages(), other.messages()) == ([(ROUTE, b"from other")], [(ROUTE, b"from one")])
        assert [program.message()[1] for _ in range(2)] == [b"from one", b"from other"]


def test_what_fits_no_datagram_stays_on_the_host(here: Site) -> None:
    daemon, gateway, where = here
    with dialled(where) as one, dialled(where) as other, PacketClient(daemon.socket) as program:
        program.subscribe(CHANNEL, LOCAL)
        one.advert("INTENT", ROUTE)
        other.advert("INTEREST", ROUTE)
        other.settle()
        one.until(lambda: one.wants(ROUTE))
        sizes = (100, 60_000, 70_000, 3_000_000, 5)
        for count, size in enumerate(sizes):
            one.send(ROUTE, bytes(size))
            other.until(lambda wanted=count: len(other.messages()) > wanted)  # type: ignore[misc]
        assert [len(body) for _, body in other.messages()] == list(sizes)
        messages = [program.message() for _ in range(5)]
        program.request("echo/off")
        wait_for_listener(program, LOCAL)
        heard = [(chan, len(body)) for chan, body in messages]
        assert sorted(heard) == [(CHANNEL, 5), (CHANNEL, 100), (LOCAL, 5), (LOCAL, 100), (LOCAL, 60_000)]
        program.publish(LOCAL, bytes(50_000))
        other.until(lambda: len(other.messages()) == len(sizes) + 1)
    event = "messages do not fit a datagram: only peers and programs of this host can have them"
    wait_until(lambda: gateway.logged(event), "the line about large messages")


def test_a_robot_that_disappears_takes_its_interests_with_it(here: Site) -> None:
    daemon, _, where = here
    with PacketClient(daemon.socket) as watching:
        with dialled(where) as robot:
            robot.advert("INTEREST", "Gone@a")
            robot.until(lambda: robot.offered("Gone@a"))
            wait_for_listener(watching, "dndm/a/Gone")
        wait_until(lambda: watching.request("listeners", "dndm/a/Gone") == "0", "the subscription to end")


@pytest.mark.parametrize(
    "nonsense",
    [b"GET / HTTP/1.1\r\n\r\n", bytes.fromhex("fadabedaffffffff"), bytes.fromhex("fadabeda0000001000000fff")],
    ids=["no-frame", "too-long", "sizes-that-disagree"],
)
def test_who_speaks_nonsense_is_let_go(here: Site, nonsense: bytes) -> None:
    _, _, where = here
    with dialled(where) as robot, dialled(where) as bystander:
        robot.write(nonsense)
        with pytest.raises((EOFError, ConnectionResetError)):
            robot.until(lambda: False)
        bystander.advert("INTEREST", ROUTE)
        bystander.until(lambda: bystander.offered(ROUTE))


def test_half_a_frame_makes_nobody_wait(here: Site) -> None:
    daemon, _, where = here
    with dialled(where) as robot, dialled(where) as other, PacketClient(daemon.socket) as program:
        program.subscribe("dndm/half/T")
        robot.advert("INTENT", "T@half")
        robot.until(lambda: robot.wants("T@half"))
        whole = robot.frame("MESSAGE", b"whole", route=b"T@half")
        robot.write(whole[:20])
        other.advert("INTENT", "T@half")
        other.until(lambda: other.wants("T@half"))
        other.send("T@half", b"other")
        assert program.message() == ("dndm/half/T", b"other")
        for at in range(20, len(whole)):
            robot.write(whole[at : at + 1])
        assert program.message() == ("dndm/half/T", b"whole")


def test_a_flood_is_all_taken_and_others_have_turns(here: Site) -> None:
    """What the daemon does not take at once waits at the robot: nothing of it is lost."""
    daemon, gateway, where = here
    count = 5000
    with dialled(where) as robot, dialled(where) as other, PacketClient(daemon.socket) as program:
        program.request("queue", "packets=100000 bytes=67108864")
        program.subscribe("dndm/flood/T")
        robot.advert("INTENT", "T@flood")
        robot.until(lambda: robot.wants("T@flood"))
        frames = b"".join(robot.frame("MESSAGE", b"%d" % number, route=b"T@flood") for number in range(count))
        robot.stream.settimeout(None)
        sender = os.fork()
        if not sender:
            try:
                robot.stream.sendall(frames)
            finally:
                os._exit(0)
        other.settle()
        heard = [int(program.message()[1]) for _ in range(count)]
        os.waitpid(sender, 0)
        assert heard == list(range(count))
    assert not [line for line in gateway.logged("lost") if "daemon too slow" in line]


def test_a_peer_that_does_not_read_loses_messages_alone(here: Site) -> None:
    daemon, _, where = here
    with dialled(where) as slow, dialled(where) as quick, PacketClient(daemon.socket) as program:
        for robot in slow, quick:
            robot.advert("INTEREST", "T@slow")
            robot.until(lambda robot=robot: robot.offered("T@slow"))  # type: ignore[misc]
        wait_for_listener(program, "local/dndm/slow/T")
        for number in range(100):
            program.publish("local/dndm/slow/T", b"%d|" % number + bytes(60_000))
            quick.until(lambda wanted=number: len(quick.messages()) > wanted)  # type: ignore[misc]
        assert len(quick.messages()) == 100
        program.publish("dndm/slow/T", b"end")
        quick.until(lambda: quick.messages()[-1][1] == b"end")


def test_a_greedy_peer_leaves_others_their_watches(tmp_path: Path) -> None:
    where, file = free_address(), tmp_path / "bccnd.toml"
    file.write_text("[limits]\nsubscriptions = 8\n")
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()), "--config", str(file))
    with (
        DaemonProcess(tmp_path, *flags) as daemon,
        DndmProcess(tmp_path / "gateway", daemon.socket, "--listen", f"tcp://{where}"),
        dialled(where) as greedy,
        dialled(where) as modest,
        PacketClient(daemon.socket) as program,
    ):
        for number in range(20):
            greedy.advert("INTENT", f"T@greedy{number}")
        greedy.until(lambda: greedy.wants("T@greedy19"))  # nobody can know, so it sends
        modest.advert("INTENT", ROUTE)
        program.subscribe(CHANNEL)
        modest.until(lambda: modest.wants(ROUTE))
        program.send(b"UNSUB " + CHANNEL.encode())
        modest.until(lambda: not modest.wants(ROUTE))
        wait_until(lambda: finding(daemon, "no room for 17 intents"), "the doctor to say so")


def test_a_peer_that_went_is_dialled_again(tmp_path: Path, here: Site) -> None:
    daemon, _, _ = here
    with socket.create_server(("127.0.0.1", free_port(socket.SOCK_STREAM))) as listening:
        listening.settimeout(PATIENCE)
        peer = f"tcp://127.0.0.1:{listening.getsockname()[1]}/arm"
        flags = ("--listen", f"tcp://{free_address()}", "--dial", peer)
        with DndmProcess(tmp_path, daemon.socket, *flags) as gateway:
            for _ in range(2):
                with Robot(listening.accept()[0], peer) as robot:
                    robot.answer()
                    robot.advert("INTEREST", ROUTE)
                    robot.until(lambda robot=robot: robot.offered(ROUTE))  # type: ignore[misc]
            assert [line["peer"] for line in gateway.logged("peer connected")] == [peer, peer]
            wait_until(lambda: finding(daemon, f"{peer} is cut off for "), "the doctor to say so")


def test_the_log_names_what_was_dialled_and_is_no_peer(tmp_path: Path, here: Site) -> None:
    daemon, _, _ = here
    with socket.create_server(("127.0.0.1", free_port(socket.SOCK_STREAM))) as listening:
        listening.settimeout(PATIENCE)
        peer = f"tcp://127.0.0.1:{listening.getsockname()[1]}/"
        flags = ("--listen", f"tcp://{free_address()}", "--dial", peer)
        with DndmProcess(tmp_path, daemon.socket, *flags) as gateway, listening.accept()[0] as other:
            other.sendall(b"HTTP/1.0 400 Bad Request\r\n")
            wait_until(lambda: gateway.logged("peer let go"), "the end of it")
            assert gateway.logged("peer let go")[0]["peer"] == peer


def test_a_board_with_noise_that_is_unplugged_and_comes_back(tmp_path: Path, here: Site) -> None:
    daemon, _, _ = here
    with PseudoSerial() as line, PacketClient(daemon.socket) as program:
        me = f"serial://{line.device}/board"
        program.subscribe("dndm/board/T")
        flags = ("--listen", f"tcp://{free_address()}", "--dial", f"{me}?baud=9600")
        with DndmProcess(tmp_path, daemon.socket, *flags) as gateway:
            for turn in range(2):
                board = Robot(line, me)
                board.write(b"booting \xfa\xda\xbe ... ")
                if turn:
                    board.write(bytes.fromhex("fadabeda0000ffff00000002"))  # the beginning of nothing
                board.answer()
                board.advert("INTENT", "T@board")
                board.until(lambda: board.wants("T@board"))  # noqa: B023
                for number in range(20):
                    board.write(b"\xfa\xda noise %d" % number)
                    board.send("T@board", b"%d %d" % (turn, number))
                heard = [program.message()[1] for _ in range(20)]
                assert heard == [b"%d %d" % (turn, number) for number in range(20)]
                if not turn:
                    line.unplug()
                    wait_until(lambda: gateway.logged("peer gone"), "the end of the line")
                    line.plug()
            gateway.terminate()
            board.until(lambda: not board.wants("T@board"))


def test_it_waits_for_the_daemon_and_outlives_it(tmp_path: Path) -> None:
    where = free_address()
    segment = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    daemon = DaemonProcess(tmp_path, *segment)
    with (
        DndmProcess(tmp_path / "gateway", daemon.socket, "--listen", f"tcp://{where}") as gateway,
        dialled(where) as one,
        dialled(where) as other,
        ExitStack() as programs,
    ):
        other.advert("INTEREST", ROUTE)
        one.advert("INTENT", ROUTE)
        one.until(lambda: one.wants(ROUTE))
        one.send(ROUTE, b"without a daemon")
        other.until(other.messages)
        for turn in range(2):
            with daemon:
                wait_until(
                    lambda: len(gateway.logged("connected to the daemon")) > turn,  # noqa: B023
                    "the connection to the daemon",
                )
                program = programs.enter_context(PacketClient(daemon.socket))
                program.request("echo/off")
                program.subscribe(CHANNEL)
                wait_for_listener(program, CHANNEL)
                program.publish(CHANNEL, b"to robots %d" % turn)
                other.until(lambda: other.messages()[-1][1] == b"to robots %d" % turn)  # noqa: B023
                one.send(ROUTE, b"to programs %d" % turn)
                assert program.message() == (CHANNEL, b"to programs %d" % turn)
            other.until(lambda: other.messages()[-1][1] == b"to programs %d" % turn)  # noqa: B023
        lines = gateway.logged("not connected to the daemon, trying again")
        assert len(lines) >= 2


def test_who_comes_from_elsewhere_is_not_let_in(tmp_path: Path, here: Site) -> None:
    daemon, _, _ = here
    where = free_address()
    flags = ("--listen", f"tcp://{where}", "--accept", "192.0.2.0/24")
    with DndmProcess(tmp_path, daemon.socket, *flags) as gateway:
        host, _, port = where.rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE) as refused:
            assert refused.recv(1) == b""
        gateway.config.write_text('[dndm]\nlinks = 3\nstrict = true\naccept = ["127.0.0.0/8"]\n')
        os.kill(gateway.process.pid, signal.SIGHUP)
        wait_until(lambda: gateway.logged("reloaded"), "the reload")  # --accept wins over the file
        assert gateway.logged("needs a restart")[0]["settings"] == ["links"]
        assert gateway.logged("reloaded")[0]["changed"] == ["strict"]
        gateway.config.write_text("[dndm]\nstrict = 3\n")
        os.kill(gateway.process.pid, signal.SIGHUP)
        wait_until(lambda: gateway.logged("not reloaded, the old settings stay"), "the refusal")


def _scraped(metrics: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(PATIENCE)
        asking.connect(str(metrics))
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        with asking.makefile("rb") as answer:
            return answer.read()


def test_metrics_say_what_happens(tmp_path: Path, here: Site) -> None:
    daemon, _, _ = here
    where, metrics = free_address(), tmp_path / "metrics"
    flags = ("--listen", f"tcp://{where}", "--metrics", str(metrics))
    with DndmProcess(tmp_path / "g", daemon.socket, *flags), dialled(where) as robot:
        robot.advert("INTEREST", ROUTE)
        robot.until(lambda: robot.offered(ROUTE))
        text = _scraped(metrics)
        assert b"bccnd_dndm_peers 1.0" in text
        assert b"bccnd_dndm_interests 1.0" in text
        assert b"bccnd_dndm_daemon_connected 1.0" in text

        def is_measured() -> bool:
            robot.settle()  # it answers a PING of the gateway, too
            return b'bccnd_dndm_peer_latency_seconds{peer="others"} ' in _scraped(metrics)

        wait_until(is_measured, "the latency")
