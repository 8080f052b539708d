"""Questions about listeners on the other hosts of a segment, and requests that those answer."""

import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import bccn
from bccn import operations
from bccn.exchange import QUESTIONS
from tests import command_line
from tests.daemon.in_process import stopped
from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import PORT, StartDaemon
from tests.hosts.segment import BROADCAST, Segment
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram
from tests.request_server import serving

SO_RCVBUFFORCE = 33
LONG = 60.0  # seconds; only a failing test waits so long


def ask(client: PacketClient, chan: str, token: str) -> str:
    return client.request("listeners", f"{chan} {token}")


def test_daemons_answer_each_other_about_listeners(start_daemon: StartDaemon, segment: Segment) -> None:
    here, there = (start_daemon(host) for host in segment.hosts[:2])
    with (
        PacketClient(here.socket) as asking,
        PacketClient(there.socket) as first,
        PacketClient(there.socket) as second,
    ):
        first.subscribe("demo/x", "local/x")
        second.subscribe("demo/>")
        name, far = asking.request("whoami"), first.request("whoami")
        asking.request("listen")
        for token, chan, listeners in (
            ("t1", "demo/x", 2),
            ("t2", "demo/y", 1),
            ("t3", f"!{far}", 1),
            ("t4", "!", 2),
        ):
            assert ask(asking, chan, token) == "0 asked"
            assert asking.message() == (f"!{name}", f"{token}\nlisteners {listeners}".encode())
        for chan in ("local/x", f"!{name}"):
            assert ask(asking, chan, "t5") == "0"

        # Nobody listens. A daemon that is asked directly says so, any other is silent.
        assert ask(asking, "demos", "t6") == "0 asked"
        asking.publish(f"!{segment.hosts[1].name}/bccnd", b"t7\nlisteners demos")
        asking.publish(f"!{segment.hosts[1].name}/bccnd", b"t8\nlisteners local/x")
        answers = [asking.message()[1] for _ in range(2)]
        assert answers == [b"t7\nlisteners 0", b"t8\nlisteners 0"]


def test_a_plain_program_may_ask_for_listeners(start_daemon: StartDaemon, segment: Segment) -> None:
    alpha, beta = segment.hosts[:2]
    daemon = start_daemon(alpha, key=None)
    with PacketClient(daemon.socket) as client, beta.udp_socket(PORT) as plain:
        client.subscribe("demo/x")
        question = datagram("beta/plain/1", 1, "bccnd/ask", b"t1\nlisteners demo/x")
        plain.sendto(question, (BROADCAST, PORT))
        heard = b""
        while b":!beta/plain/1|" not in heard:
            heard = plain.recv(2048)
        assert heard.endswith(b":!beta/plain/1|t1\nlisteners 1")
        assert b"]alpha/bccnd/" in heard


def test_programs_on_other_hosts_reply_to_requests(
    shared_daemons: list[DaemonProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the other daemons take to say that somebody listens."""
    monkeypatch.setattr(operations, "ASK_EVERY", LONG / QUESTIONS)
    here, *others = shared_daemons

    def slowly(request: bccn.Request) -> bytes:
        """Not before the requester has asked all shared_daemons."""
        assert f"]{request.src}:".encode() in watching.receive()
        return request.payload.upper()

    with (
        bccn.Client(here.socket, format="full") as bus,
        PacketClient(here.socket) as watching,
        serving(others[0], "up", lambda request: request.payload.upper()) as first,
        serving(others[1], "up", lambda request: request.payload.upper()) as second,
        serving(others[1], "slow", slowly) as slow,
    ):
        watching.request("format", "full")
        watching.subscribe("bccnd/ask")
        replies = [*bus.request_many("up", "x", LONG, 2)]
        assert {(reply.src, reply.payload) for reply in replies} == {(first, b"X"), (second, b"X")}
        watching.drain()  # the questions of the requests above
        reply = bus.request("slow", "y", LONG)
        assert (reply.src, reply.payload) == (slow, b"Y")


def test_a_request_nobody_listens_to_fails_early(shared_daemons: list[DaemonProcess]) -> None:
    with bccn.Client(shared_daemons[0].socket) as bus, PacketClient(shared_daemons[1].socket) as local:
        local.subscribe("local/x", "other")
        for channel in ("nobody", "local/x", "!beta/program/1", "!gamma"):
            with pytest.raises(bccn.NobodyListensError):
                bus.request(channel, timeout=LONG)


def test_bccn_req_tells_a_silent_listener_from_none(shared_daemons: list[DaemonProcess]) -> None:
    with PacketClient(shared_daemons[1].socket) as silent:
        silent.subscribe("silent")
        # A daemon that says too late that somebody listens is as good as none.
        wait_until(
            lambda: command_line.bccn(shared_daemons[0], "req", "-W", "1", "silent", "x").returncode == 3,
            "that the listener is known of in time",
        )
        assert command_line.bccn(shared_daemons[0], "req", "-W", "60", "nobody", "x").returncode == 6


def test_a_flood_of_questions_makes_nobody_else_wait(start_daemon: StartDaemon, segment: Segment) -> None:
    """Neither for the count nor for a ping: those who flood are told that they do, the others are answered."""
    alpha, beta, gamma = segment.hosts
    daemons = [start_daemon(host, key=None) for host in (alpha, beta)]
    with (
        PacketClient(daemons[0].socket) as service,
        PacketClient(daemons[1].socket) as asking,
        gamma.udp_socket(PORT) as flood,
    ):
        service.subscribe("demo/x")
        asking.request("listen")
        name = asking.request("whoami")
        flood.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 23)  # it hears itself, too
        now = time.time_ns() // 1000
        with stopped(daemons[0]):
            for number in range(600):
                flood.sendto(
                    datagram("gamma/flood/1", now + 2 * number, "bccnd/ask", b"t\nlisteners demo/x"),
                    (BROADCAST, PORT),
                )
                flood.sendto(
                    datagram("gamma/flood/1", now + 2 * number + 1, f"!{alpha.name}/bccnd", b"t\nping"),
                    (BROADCAST, PORT),
                )
        assert ask(asking, "demo/x", "t1") == "0 asked"
        assert asking.message() == (f"!{name}", b"t1\nlisteners 1")
        asking.publish(f"!{alpha.name}/bccnd", b"t2\nping")
        assert asking.message()[1].startswith(b"t2\npong ")
        said = set()
        while b"listeners busy" not in said or b"busy" not in said:
            heard = flood.recv(2048)
            if b":!gamma/flood/1|t\n" in heard:
                said.add(heard.partition(b"|t\n")[2])
        assert b"listeners 1" in said


def test_requests_in_a_crowd_find_their_service(start_daemon: StartDaemon, segment: Segment) -> None:
    """Three hundred a second were too many for one answer each: one answer serves all who ask at once."""
    here, there = (start_daemon(host) for host in segment.hosts[:2])
    with PacketClient(there.socket) as service, ExitStack() as clients:
        service.subscribe("demo/x")
        asking = [clients.enter_context(PacketClient(here.socket)) for _ in range(100)]
        for client in asking:
            client.request("listen")
        assert {ask(client, "demo/x", f"t{number}") for number, client in enumerate(asking)} <= {
            "0 asked",
            "1 asked",
        }
        for again in range(4):
            for number, client in enumerate(asking):
                client.send(f"CMSG listeners\0demo/x u{again}.{number}".encode())
                while not (answer := client.receive()).startswith(b"CMSG"):
                    assert answer.endswith(b"listeners 1")
                assert answer.split(b"\0")[1] in (b"0 asked", b"1 asked")

        def knows(client: PacketClient, tokens: Iterator[int]) -> bool:
            client.send(f"CMSG listeners\0demo/x v{next(tokens)}".encode())
            while not (answer := client.receive()).startswith(b"CMSG"):
                assert answer.endswith(b"listeners 1")
            return answer == b"CMSG listeners\x001 asked"

        for client in asking:
            tokens = itertools.count()
            wait_until(lambda c=client, t=tokens: knows(c, t), "that what one has heard, all know")


def test_a_watch_learns_of_listeners_on_other_hosts(shared_daemons: list[DaemonProcess]) -> None:
    told: list[bool] = []

    def seen(count: int) -> bool:
        bus.dispatch()
        return len(told) >= count

    with bccn.Client(shared_daemons[0].socket) as bus:
        bus.watch("watched/>", lambda _pattern, wanted: told.append(wanted))
        wait_until(lambda: seen(1), "that nobody listens")
        with PacketClient(shared_daemons[1].socket) as first:
            first.subscribe("watched/x")
            wait_until(lambda: seen(2), "the first listener")
            with PacketClient(shared_daemons[2].socket) as second:
                second.subscribe(">")
        wait_until(lambda: seen(3), "that the last has gone")
    assert told == [False, True, False]
