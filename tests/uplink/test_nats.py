"""Links by NATS, with real servers: nothing published is lost, whatever is killed, and subjects are readable."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from bccnd.uplink import nats, nats_session
from bccnd.uplink.nats import ERA
from bccnd.uplink.nats_session import BATCH
from bccnd.uplink.nats_stream import Answer
from bccnd.wire.link import Seal
from tests.packet_client import PATIENCE
from tests.uplink.nats_server import (
    NatsServer,
    Uplink,
    ask,
    cluster,
    options_for,
    running,
    until,
)

pytestmark = pytest.mark.needs("nats-server")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as running_server:
        yield running_server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone is noticed soon. Who is only slow may be taken for gone: that costs a connection, no message."""
    monkeypatch.setattr(nats_session, "TICK_SECONDS", 0.1)
    monkeypatch.setattr(nats_session, "HEARTBEAT_SECONDS", 0.5)
    monkeypatch.setattr(nats_session, "QUIET_TICKS", 30)
    monkeypatch.setattr(nats_session, "ANSWER_SECONDS", 1.0)


def made(server: NatsServer, segment: str = "siteA", **options: Any) -> Uplink:
    return Uplink(options_for(server, **options), segment)


async def exchange(server: NatsServer) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a, b):
        a.publish(50)
        b.publish(30, "office/door")
        for each in (a, b):
            await until(lambda ear=each.ear: ear.has(a.source, range(1, 51)), "what a published")
            await until(lambda ear=each.ear: ear.has(b.source, range(1, 31)), "what b published")
        await until(lambda: len(a.ear.settled) == 50 and len(b.ear.settled) == 30, "acknowledgements")
        for each in (a, b):
            assert each.ear.positions == list(range(1, 81))
            assert each.ear.completed == 81
            assert each.carrier.facts().behind == each.carrier.facts().lost == 0
            assert each.carrier.room == nats.WINDOW
        assert sorted(a.ear.settled) == list(range(1, 51))
        await until(lambda: a.carrier.facts().round_trip is not None, "a round trip")


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_two_uplinks_hear_each_other(factory: Any, server: NatsServer) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(exchange(server))


async def test_any_nats_program_reads_bccn1_by_subject(server: NatsServer) -> None:
    a = made(server)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose":false}\r\nSUB bccn.siteA.factory.> 1\r\nPING\r\n')
    await reader.readuntil(b"PONG\r\n")
    async with running(a):
        a.publish(1, "office/door")
        a.publish(1, "factory/line1")
        first = await asyncio.wait_for(reader.readline(), PATIENCE)
        assert first.split()[:3] == [b"MSG", b"bccn.siteA.factory.line1", b"1"]
        assert await reader.readexactly(int(first.split()[-1])) == a.datagram(2)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("subject", "headers"),
    [
        (b"bccn.x.y", b"NATS/1.0 409 Consumer Deleted\r\n\r\n"),
        (b"bccn.x.y", b"NATS/1.0 \xff\xff\xff\r\n\r\n"),
        (b"bccn.x.y", b"NATS/1.0\r\n\xff: \xff\r\n:\r\nx\r\n\r\n"),
        (b"bccn.x.y", b"NATS/1.0"),
        (b"bccn.x.\xff", b""),
        (b"bccn.x.a\x0bb\x0cc", b""),
        (b"bccn.x.a\x0bb\x0cc", b"NATS/1.0\r\n\r\n"),
        (b"bccn.x", b"NATS/1.0\r\nBccn-Position: 1" + b"0" * 30 + b"\r\n\r\n"),
        (b"bccn.x", b"NATS/1.0\r\nBccn-Position: x\r\n\r\n"),
        (b"bccn.\xff", b""),
    ],
)
async def test_what_strangers_publish_stops_nobody(
    subject: bytes,
    headers: bytes,
    server: NatsServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nats_session, "TICK_SECONDS", 3600.0)  # who is slow is not left for that
    a, b = made(server), made(server, "siteB")
    async with running(a, b):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
        if headers:
            writer.write(b"HPUB %s %d %d\r\n%sx\r\n" % (subject, len(headers), len(headers) + 1, headers))
        else:
            writer.write(b"PUB %s 1\r\nx\r\n" % subject)
        writer.write(b"PING\r\n")
        assert (await reader.readuntil(b"PONG\r\n")).count(b"-ERR") == 0
        connections = b.ear.changes
        await a.publish_all(20)
        await until(lambda: b.ear.has(a.source, range(1, 21)), "what is sound")
        assert b.ear.changes == connections
        assert all(position < 1 << 63 for position, _ in b.ear.said)
        writer.close()
        await writer.wait_closed()
    assert caplog.records == []


async def told(speaker: Uplink, hearer: Uplink, text: bytes) -> set[int]:
    """The positions with which it came. It is said until it is heard, as an uplink does: a connection that breaks
    loses what is said once.
    """
    status = speaker.status(text)

    def positions() -> set[int]:
        return {position for position, datagram in hearer.ear.said if datagram == status}

    async with asyncio.timeout(PATIENCE):
        while not positions():
            speaker.carrier.say(status)
            await asyncio.sleep(0.1)
    return positions()


async def test_what_is_said_has_a_position_and_no_place(server: NatsServer) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a, b):
        assert await told(a, b, b"floor 1") == {1}
        await a.publish_all(3)
        assert await told(a, b, b"floor 4") == {4}
    assert (await ask(server, "STREAM.INFO.bccn"))["state"]["messages"] == 3


async def test_after_a_restart_all_of_before_has_a_position(server: NatsServer) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a, b):
        await a.publish_all(3)
    again = made(server)
    async with running(again, b):
        assert await told(again, b, b"floor 4") == {4}


async def test_a_killed_server_loses_nothing_published(
    server: NatsServer, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a, b):
        for _ in range(2):
            before = len(a.ear.settled)
            load = asyncio.create_task(a.publish_all(1500))
            await until(lambda: len(a.ear.settled) >= before + 300, "some acknowledgements")  # noqa: B023
            server.kill()
            await until(lambda: not (a.is_up or b.is_up), "that both are cut off")
            assert a.reason
            server.start()
            await load
        await until(lambda: b.ear.has(a.source, range(1, 3001)), "all")
        assert sorted(a.ear.settled) == list(range(1, 3001))
        assert b.ear.positions == sorted(b.ear.positions)
        assert b.carrier.facts().lost == 0
        await until(lambda: a.reason == b.reason == "", "that both are well")
    gc.collect()  # a task of nats-py that nobody waited for would say so now
    assert caplog.records == []


async def test_a_killed_reader_goes_on_at_its_position(server: NatsServer) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a):
        async with running(b):
            await a.publish_all(1000)
            await until(lambda: len(b.ear.positions) >= 200, "some")
        await a.publish_all(500)
        again = made(server, "siteB")
        async with running(again, position=201):
            await until(lambda: again.ear.has(a.source, range(201, 1501)), "the rest")
            assert again.ear.positions == list(range(201, 1501))


async def test_a_run_begun_again_leaves_nothing_out(server: NatsServer) -> None:
    a, b = made(server), made(server, "siteB")
    b.ear.take = lambda _position: None
    async with running(a):
        async with running(b):
            await a.publish_all(10)
            await until(lambda: b.ear.has(a.source, range(1, 11)), "all")
        async with running(b):
            await until(lambda: b.ear.positions == [*range(1, 11)] * 2, "all again")


async def test_a_killed_publisher_repeats_under_the_same_id(server: NatsServer) -> None:
    a = made(server)
    async with running(a):
        await a.publish_all(100)
    again = made(server)
    async with running(again):
        await again.publish_all(150)
        assert sorted(again.ear.settled) == list(range(1, 151))
    assert (await ask(server, "STREAM.INFO.bccn"))["state"]["messages"] == 150


async def test_what_waits_while_cut_off_is_published_later(server: NatsServer, quick: None) -> None:
    a = made(server)
    async with running(a):
        server.kill()
        await until(lambda: not a.is_up, "that it is cut off")
        a.publish(10)
        assert a.carrier.room == 0
        a.carrier.say(a.status(b"floor 1"))
        server.start()
        await until(lambda: len(a.ear.settled) == 10, "acknowledgements")


async def test_what_limits_deleted_is_counted_as_lost(server: NatsServer) -> None:
    a, b = made(server, max_bytes=50_000), made(server, "siteB")
    async with running(a):
        await a.publish_all(500)
        async with running(b, position=1):
            await until(lambda: b.ear.completed == 501, "the end")
            assert 0 < len(b.ear.positions) < 300
            assert b.carrier.facts().lost == 500 - len(b.ear.positions)


async def test_a_stream_made_anew_is_read_from_its_start(server: NatsServer, quick: None) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a, b):
        await a.publish_all(20)
        await until(lambda: b.ear.completed == 21, "all")
        await ask(server, "STREAM.DELETE.bccn")
        await a.publish_all(5)
        await until(lambda: b.ear.has(a.source, range(1, 26)), "all")
        assert b.carrier.facts().lost == 0
        assert b.ear.completed == ERA + 6


async def test_a_stream_made_anew_meanwhile_loses_nothing(server: NatsServer, quick: None) -> None:
    """It has grown past the position of before, while the uplink that reads was down."""
    a, b = made(server), made(server, "siteB")
    async with running(a):
        async with running(b):
            await a.publish_all(5)
            await until(lambda: b.ear.completed == 6, "all")
        await ask(server, "STREAM.DELETE.bccn")
        await a.publish_all(20)
        again = Uplink(options_for(server), "siteB", place=b.place)
        async with running(again, position=b.ear.completed):
            await until(lambda: again.ear.has(a.source, range(6, 26)), "all")
            assert again.ear.completed == ERA + 21
        later = Uplink(options_for(server), "siteB", place=b.place)
        async with running(later, position=ERA + 11):
            await until(lambda: later.ear.completed == ERA + 21, "the rest")
            assert later.ear.positions == list(range(ERA + 11, ERA + 21))


async def test_a_stream_that_ends_before_is_read_anew(server: NatsServer) -> None:
    a, b = made(server), made(server, "siteB")
    async with running(a):
        await a.publish_all(5)
        async with running(b, position=1000):
            await until(lambda: b.ear.positions == list(range(ERA + 1, ERA + 6)), "all")


async def test_a_segment_that_takes_nothing_is_waited_for(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "AHEAD", 100)
    monkeypatch.setattr(nats_session, "TICK_SECONDS", 3600.0)
    a, b = made(server), made(server, "siteB")
    b.ear.take = lambda _position: None
    async with running(a, b):
        await a.publish_all(3000)
        await until(lambda: len(b.ear.positions) >= BATCH, "a batch")
        assert len(b.ear.positions) <= 100 + 2 * BATCH
        b.ear.take = b.carrier.taken
        b.carrier.taken(b.ear.completed)
        await until(lambda: len(b.ear.positions) == 3000, "all")


async def test_a_link_that_waits_gets_on_even_so(
    server: NatsServer, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "AHEAD", 100)
    a, b = made(server), made(server, "siteB")
    b.ear.take = lambda _position: None
    async with running(a, b):
        await a.publish_all(1500)
        await until(lambda: len(b.ear.positions) == 1500, "all, a batch each tick")


async def test_a_message_too_large_is_given_up_in_one_line(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", "max_payload: 2000") as server:
        a = made(server)
        with structlog.testing.capture_logs() as logs:
            async with running(a):
                for number in range(1, 4):
                    a.carrier.publish(number, a.datagram(number, payload=b"x" * 2000), b"factory/line1")
                a.carrier.publish(4, a.datagram(4), b"factory/line1")
                await until(lambda: sorted(a.ear.settled) == [1, 2, 3, 4], "an end")
                await until(lambda: a.ear.has(a.source, range(4, 5)), "what fits")
        assert a.carrier.facts().given_up == 3
        assert [line["event"] for line in logs] == ["too large for NATS"]


async def test_a_full_stream_says_so_and_loses_nothing(server: NatsServer, quick: None) -> None:
    full = {"name": "bccn", "subjects": ["bccn.*.>"], "discard": "new", "max_msgs": 5}
    await ask(server, "STREAM.CREATE.bccn", full)
    a = made(server)
    async with running(a):
        a.publish(10)
        await until(lambda: "maximum messages exceeded" in a.reason, "a reason")
        await ask(server, "STREAM.UPDATE.bccn", full | {"max_msgs": 100})
        await until(lambda: len(a.ear.settled) == 10, "acknowledgements")
        await until(lambda: a.reason == "", "that all is well")


async def test_a_stream_that_cannot_serve_is_told(server: NatsServer) -> None:
    wide = {"name": "bccn", "subjects": ["bccn.>"]}
    await ask(server, "STREAM.CREATE.bccn", wide)
    a = made(server)
    a.start()
    await until(lambda: "the stream bccn cannot carry a link: it takes bccn.*" in a.reason, "a reason")
    await ask(server, "STREAM.UPDATE.bccn", wide | {"subjects": ["bccn.*.>"]})
    await until(lambda: a.is_up, "a connection")
    await a.stop()


async def test_another_stream_that_takes_the_subject_is_told(server: NatsServer, quick: None) -> None:
    a = made(server)
    async with running(a):
        await ask(server, "STREAM.UPDATE.bccn", {"name": "bccn", "subjects": ["elsewhere"]})
        a.publish(1)
        await until(lambda: a.reason == "bccn.siteA.factory.line1: nobody takes it", "a reason")
        await ask(server, "STREAM.CREATE.other", {"name": "other", "subjects": ["bccn.siteA.>"]})
        await until(lambda: a.ear.settled == [] and "the stream other takes it" in a.carrier._trouble, "it")


class Wire:
    """In place of a session: what is sent, and no server."""

    message_limit = 1 << 20

    def __init__(self) -> None:
        self.ids: list[str] = []

    def send(self, _subject: str, _datagram: bytes, _reply: str, headers: dict[str, str]) -> None:
        self.ids.append(headers["Nats-Msg-Id"])

    def reply_to(self, number: int) -> str:
        return str(number)


async def test_what_a_stranger_answers_ends_nothing(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hears a message sees where its acknowledgement is to go, and where pulled ones come."""
    monkeypatch.setattr(nats_session, "TICK_SECONDS", 3600.0)  # who is slow is not left for that
    a = made(server)
    async with running(a):
        session = a.carrier._session
        assert session is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
        for answer in (b'{"stream":"bccn","seq":"x"}', b'{"error":"x"}', b"[" * 100_000):
            writer.write(b"PUB %s %d\r\n%s\r\n" % (session.reply_to(1).encode(), len(answer), answer))
        status = b"NATS/1.0 408 x\r\nNats-Pending-Messages: x\r\n\r\n"
        to = session.reply_to(1).encode().replace(b".ack.1", b".message")
        writer.write(b"HPUB %s %d %d\r\n%s\r\n" % (to, len(status), len(status), status))
        writer.write(b"PUB %s 0\r\n\r\n" % to)
        writer.write(b"PING\r\n")
        await reader.readuntil(b"PONG\r\n")
        a.carrier.publish(1, a.datagram(1), b"a")
        await until(lambda: a.ear.settled == [1] and a.ear.has(a.source, range(1, 2)), "what is sound")
        assert a.carrier._session is session
        writer.close()
        await writer.wait_closed()


async def test_what_nats_py_cannot_read_ends_nothing(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a parser of mails is installed, nats-py reads headers by it."""

    def refusing(_headers: bytes) -> None:
        raise ArithmeticError

    monkeypatch.setattr(nats_session, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(nats_session, "SILENT_TICKS", 100_000)
    monkeypatch.setattr(nats_session, "QUIET_TICKS", 100_000)
    a = made(server)
    async with running(a):
        monkeypatch.setattr("nats.aio.client.parse_email", refusing)
        a.carrier.say(b"what has a header")
        await a.publish_all(3)
        await until(lambda: a.ear.has(a.source, range(1, 4)), "what is sound")
        assert not a.task.done()


async def test_a_status_overtakes_nothing_that_is_in_the_stream(server: NatsServer) -> None:
    """Its position is not signed: a stranger says what he has heard again, at a position of his own."""
    a, b = made(server), made(server, "siteB")
    async with running(a):
        await a.publish_all(20)
        async with running(b, position=1):
            b.carrier.heard(0, a.status(b"floor 21"))
            assert b.ear.said == [(21, a.status(b"floor 21"))]


def test_the_id_of_a_signed_message_is_not_foretold() -> None:
    sealed = Seal([b"k" * 32]).numbered(b"siteA/uplink/0123456789abcdef", 7, 7, b"")
    assert nats._sum_of(sealed) == ":" + sealed.partition(b"hmac=")[2][:16].decode()
    assert nats._sum_of(Seal().numbered(b"siteA/uplink/0123456789abcdef", 7, 7, b"=]")) == ""


async def test_a_duplicate_of_nothing_is_no_acknowledgement(server: NatsServer) -> None:
    a, wire = made(server), Wire()
    a.carrier._session = wire  # type: ignore[assignment]
    a.publish(1)
    for _ in range(3):
        a.carrier.acknowledged(1, Answer("bccn", 0))
        a.carrier._window[1].due = 0.0
        a.carrier._send_overdue()
    assert a.ear.settled == []
    link = f"{a.source}:1"
    assert wire.ids == [link, link, f"{link}:3", f"{link}:4"]
    a.carrier.acknowledged(1, Answer("bccn", 7))
    assert a.ear.settled == [1]


async def test_three_servers_and_the_leader_killed(tmp_path: Path, quick: None) -> None:
    with cluster(tmp_path) as servers:
        a = Uplink(options_for(*servers))
        b = Uplink(options_for(*servers), "siteB")
        async with running(a, b):
            load = asyncio.create_task(a.publish_all(5000))
            await until(lambda: len(a.ear.settled) >= 500, "some acknowledgements")
            described = await ask(servers[0], "STREAM.INFO.bccn")
            assert described["config"]["num_replicas"] == 3
            leader = described["cluster"]["leader"]
            servers[int(leader.removeprefix("n"))].kill()
            await load
            await until(lambda: b.ear.has(a.source, range(1, 5001)), "all")
            assert b.carrier.facts().lost == 0
