"""Three hosts on one segment, with a daemon each, limited broadcast and a key: what arrives and what is refused."""

import re
from collections.abc import Callable, Iterator

import pytest

import bccn
from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import KEY, PORT, UNREPAIRED, StartDaemon
from tests.hosts.segment import BROADCAST, Host, Segment
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram

END = ("!", b"end")


@pytest.fixture
def connect() -> Iterator[Callable[..., PacketClient]]:
    """Connects clients that subscribe to the patterns given. Closes them at the end."""
    clients: list[PacketClient] = []

    def connect_one(daemon: DaemonProcess, *patterns: str) -> PacketClient:
        clients.append(PacketClient(daemon.socket))
        clients[-1].subscribe(*patterns)
        return clients[-1]

    yield connect_one
    for client in clients:
        client.close()


def until_end(client: PacketClient) -> list[tuple[str, bytes]]:
    """The messages before END, which the one sender publishes last. Messages of a source come in order."""
    messages: list[tuple[str, bytes]] = []
    while (message := client.message()) != END:
        messages.append(message)
    return messages


def counted(daemon: DaemonProcess, counter: str) -> int:
    with PacketClient(daemon.socket) as asking:
        return int(asking.status()["counters"][counter])


def wait_until_counted(daemon: DaemonProcess, counter: str, times: int) -> None:
    with PacketClient(daemon.socket) as asking:
        wait_until(
            lambda: asking.status()["counters"][counter] >= times,
            f"{times} {counter} at {daemon.socket}",
        )


def test_a_message_reaches_subscribers_on_every_host_once(
    shared_daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    interested = [connect(daemon, "demo/>") for daemon in shared_daemons]
    overlapping = [connect(daemon, "demo/*", ">", "demo/x", "demo/x") for daemon in shared_daemons]
    others = [connect(daemon, "other/>", "demo", "demo/x/*") for daemon in shared_daemons]
    publisher = connect(shared_daemons[0])
    before = counted(shared_daemons[0], "received")
    expected = [("demo/x", b"%d" % number) for number in range(50)]
    for chan, payload in [*expected, END]:
        publisher.publish(chan, payload)
    for client in interested + overlapping:
        assert until_end(client) == expected
    for client in others:
        assert until_end(client) == []
    # The sender's own daemon hears its datagrams come back from the network. Nobody may get them again.
    wait_until_counted(shared_daemons[0], "received", before + len(expected) + 1)
    for client in interested + overlapping + others:
        assert client.messages() == []


def is_for(target: str, src: str) -> bool:
    """As the examples in ``bccnd/wire/BCCN1.md``, "Directed targets", have it."""
    prefix, star, _ = target.partition("/*")
    if not star and re.fullmatch(r"[0-9]+", target.rpartition("/")[2]):
        return src == target
    return src == prefix or src.startswith(prefix + "/")


def test_directed_messages_reach_exactly_their_targets(
    shared_daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    listening: dict[str, PacketClient] = {}
    for daemon in shared_daemons:
        process, fork, grandchild, worker = (connect(daemon) for _ in range(4))
        for client, tail in ((fork, "4711"), (grandchild, "4711/9012"), (worker, "worker-3")):
            client.extend_name(tail)
        for client in (process, fork, grandchild, worker):
            client.request("listen")
            listening[client.request("whoami")] = client
    silent = [connect(daemon) for daemon in shared_daemons]
    names = list(listening)
    programs = {name.rpartition("/" + name.split("/")[2])[0] for name in names}
    targets = [
        *names,
        *(f"{name}/*" for name in names),
        *(name.rpartition("/")[0] for name in names),
        *programs,
        *(f"{program}/*" for program in programs),
        *("alpha", "beta", "gamma", "gamma/*", "gam", "beta/", "delta", "beta/nothing/1"),
    ]
    publisher = connect(shared_daemons[0])
    for target in targets:
        publisher.publish(f"!{target}", target.encode())
    publisher.publish(*END)
    for name, client in listening.items():
        wanted = [(f"!{target}", target.encode()) for target in targets if is_for(target, name)]
        assert until_end(client) == wanted, name
    beta = [name for name in names if name.startswith("beta/")]
    assert sum(is_for(beta[0], name) for name in names) == 1  # the table holds exact targets,
    assert sum(is_for("beta", name) for name in names) == 4  # and wildcards
    assert all(client.messages() == [] for client in silent)


def test_a_message_to_all_reaches_every_listening_client(
    shared_daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    subscribed = [connect(daemon, "no/such/channel") for daemon in shared_daemons]
    listening = [connect(daemon) for daemon in shared_daemons]
    for client in listening:
        client.request("listen")
    silent = [connect(daemon) for daemon in shared_daemons]
    connect(shared_daemons[1]).publish("!", b"emergency")
    for client in subscribed + listening:
        assert client.message() == ("!", b"emergency")
    assert all(client.messages() == [] for client in silent)


@pytest.mark.parametrize(
    ("key", "reason"),
    [(b"another key of this segment", "hmac"), (None, "unauthenticated")],
    ids=["wrong", "none"],
)
def test_a_host_without_the_key_reaches_nobody(
    segment: Segment,
    start_daemon: StartDaemon,
    connect: Callable[..., PacketClient],
    key: bytes | None,
    reason: str,
) -> None:
    alpha, beta = (start_daemon(host) for host in segment.hosts[:2])
    stranger = start_daemon(segment.hosts[2], key=key, environ=UNREPAIRED)
    subscribers = [connect(daemon, "") for daemon in (alpha, beta)]
    publisher = connect(stranger)
    for number in range(10):
        publisher.publish("demo/x", b"%d" % number)
        publisher.publish("!", b"%d" % number)
    for client in subscribers:
        wait_until(lambda client=client: client.rejected(reason) == 20, f"20 times {reason}")
        assert client.messages() == []
    assert [client.status()["counters"]["accepted"] for client in subscribers] == [0, 0]
    connect(alpha).publish("demo/x", b"from one who has it")  # the others go on
    assert [client.message() for client in subscribers] == [("demo/x", b"from one who has it")] * 2


def test_tampered_bytes_reach_nobody_and_are_counted(
    shared_segment: Segment, shared_daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    subscribers = [connect(daemon, "") for daemon in shared_daemons]
    with shared_segment.hosts[2].udp_socket(PORT) as forwarder:
        connect(shared_daemons[0]).publish("demo/x", b"pay 10 to beta")
        genuine = forwarder.recv(2048)
        assert [client.message() for client in subscribers] == [("demo/x", b"pay 10 to beta")] * 3
        body = genuine.index(b"]") + 1
        flipped = [
            genuine[:at] + bytes([genuine[at] ^ 1]) + genuine[at + 1 :] for at in range(body, len(genuine))
        ]
        resized = [genuine[:-1], genuine + b"!", genuine[:-10]]
        stripped = [b"BCCN1[%d]" % (len(genuine) - body) + genuine[body:]]
        before = [client.status()["rejected"] for client in subscribers]
        for tampered in flipped + resized + stripped:
            forwarder.sendto(tampered, (BROADCAST, PORT))
    expected = {"hmac": len(flipped), "length": len(resized), "unauthenticated": len(stripped)}
    for client, counts in zip(subscribers, before, strict=True):
        last = counts.get("unauthenticated", 0) + 1
        wait_until(lambda c=client, n=last: c.rejected("unauthenticated") == n, "the last one to be counted")
        after = client.status()["rejected"]
        assert {reason: after.get(reason, 0) - counts.get(reason, 0) for reason in expected} == expected
        assert client.messages() == []


def test_a_replayed_datagram_is_delivered_once(
    shared_segment: Segment, shared_daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    subscribers = [connect(daemon, "demo/>") for daemon in shared_daemons]
    with shared_segment.hosts[2].udp_socket(PORT) as forwarder:
        connect(shared_daemons[0]).publish("demo/x", b"once")
        genuine = forwarder.recv(2048)
        for _ in range(5):
            forwarder.sendto(genuine, (BROADCAST, PORT))
        forwarder.sendto(datagram("gamma/replayed/1", 1, "demo/y", b"end", KEY), (BROADCAST, PORT))
    for client in subscribers:
        assert [client.message(), client.message()] == [("demo/x", b"once"), ("demo/y", b"end")]


def test_two_copies_are_delivered_once(
    segment: Segment, start_daemon: StartDaemon, connect: Callable[..., PacketClient]
) -> None:
    daemons = [start_daemon(host, environ=UNREPAIRED | {"BCCND_COPIES": "2"}) for host in segment.hosts]
    subscribers = [connect(daemon, "demo/>") for daemon in daemons]
    publisher = connect(daemons[0])
    expected = [("demo/x", b"%d" % number) for number in range(20)]
    for chan, payload in expected:
        publisher.publish(chan, payload)
    for daemon in daemons:
        wait_until_counted(daemon, "received", 2 * len(expected))
    for client in subscribers:
        assert client.messages() == expected


def drop_every_second_datagram(host: Host) -> None:
    rules = (
        f"table ip loss {{ chain in {{ type filter hook input priority 0; udp dport {PORT} "
        "numgen inc mod 2 == 1 drop; }; }"
    )
    host.run(["nft", rules])


def test_two_copies_survive_the_loss_of_every_second_datagram(
    segment: Segment, start_daemon: StartDaemon, connect: Callable[..., PacketClient]
) -> None:
    alpha, beta = (
        start_daemon(host, environ=UNREPAIRED | {"BCCND_COPIES": "2"}) for host in segment.hosts[:2]
    )
    drop_every_second_datagram(segment.hosts[1])
    subscriber, publisher = connect(beta, "demo/>"), connect(alpha)
    for number in range(20):
        publisher.publish("demo/x", b"%d" % number)
        assert subscriber.message() == ("demo/x", b"%d" % number)
        wait_until_counted(alpha, "sent", 2 * (number + 1))  # so that one of each pair is dropped
    assert subscriber.messages() == []


@pytest.mark.parametrize("size", [1399, 1400])
def test_a_datagram_at_the_limit_arrives_whole(
    shared_segment: Segment,
    shared_daemons: list[DaemonProcess],
    connect: Callable[..., PacketClient],
    size: int,
) -> None:
    subscriber, publisher = connect(shared_daemons[1], "demo/>"), connect(shared_daemons[0])
    with shared_segment.hosts[2].udp_socket(PORT) as wire:
        payload = payload_for(size, publisher, wire.recv)
        publisher.publish("demo/x", payload)
        assert len(wire.recv(4096)) == size
    assert subscriber.message() == ("demo/x", b"?" * 1000)
    assert subscriber.message() == ("demo/x", payload)


def test_a_datagram_above_the_limit_is_refused_unsent(
    shared_segment: Segment, shared_daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    subscribers, publisher = (
        [connect(daemon, "demo/>") for daemon in shared_daemons[:2]],
        connect(shared_daemons[0]),
    )
    with shared_segment.hosts[2].udp_socket(PORT) as wire:
        publisher.publish("demo/x", payload_for(1401, publisher, wire.recv))
        error = publisher.receive()
        assert error.startswith(b"CMSG error\0too-large MSG demo/x:")
        assert b"1401" in error
        assert b"1400" in error
        publisher.publish("demo/x", b"after")
        assert wire.recv(4096).endswith(b"|after")
    for client in subscribers:
        assert [client.message(), client.message()] == [("demo/x", b"?" * 1000), ("demo/x", b"after")]


def payload_for(size: int, publisher: PacketClient, receive: Callable[[int], bytes]) -> bytes:
    """A payload that gives `publisher`'s next datagram `size` bytes, from the size of a similar datagram."""
    publisher.publish("demo/x", b"?" * 1000)
    return b"=" * (size - len(receive(4096)) + 1000)


@pytest.mark.parametrize("size", [1401, 1500, 2048])
def test_datagrams_arrive_up_to_the_receive_limit(
    shared_segment: Segment,
    shared_daemons: list[DaemonProcess],
    connect: Callable[..., PacketClient],
    size: int,
) -> None:
    subscriber = connect(shared_daemons[1], "demo/>")
    source, before = f"gamma/raw/{size}", subscriber.rejected("truncated")
    bare = len(datagram(source, 1, "demo/x", b"=" * 1400, KEY)) - 1400
    with shared_segment.hosts[2].udp_socket(PORT) as wire:
        wire.sendto(datagram(source, 1, "demo/x", b"=" * (size - bare), KEY), (BROADCAST, PORT))
        assert subscriber.message() == ("demo/x", b"=" * (size - bare))
        wire.sendto(datagram(source, 2, "demo/x", b"=" * (2049 - bare), KEY), (BROADCAST, PORT))
        wait_until(
            lambda: subscriber.rejected("truncated") == before + 1, "a datagram of 2049 bytes to be counted"
        )
    assert subscriber.messages() == []


def test_a_restarted_daemon_is_accepted_at_once(
    daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    subscriber = connect(daemons[1], "demo/>")
    subscriber.request("format", "full")
    first, again = connect(daemons[0]), 0
    src = first.request("whoami")
    for number in range(3):
        first.publish("demo/x", b"%d" % number)
    seen = [source_and_sequence(subscriber.receive()) for _ in range(3)]
    for _ in range(2):
        daemons[0].kill()
        daemons[0].start()
        client = connect(daemons[0])
        assert client.request("whoami") == src
        client.publish("demo/x", b"restarted")
        seen.append(source_and_sequence(subscriber.receive()))
        again += 1
    assert [name for name, _ in seen] == [src] * (3 + again)
    sequence = [number for _, number in seen]
    assert sequence == sorted(set(sequence))
    assert subscriber.messages() == []


def source_and_sequence(packet: bytes) -> tuple[str, int]:
    match = re.fullmatch(rb"RECV \S+ \d+ ok\0BCCN1\[[^]]*\]([^:]+):(\d+):.*", packet, re.DOTALL)
    assert match, packet
    return match[1].decode(), int(match[2])


def test_clients_reconnect_and_are_heard_at_once(daemons: list[DaemonProcess]) -> None:
    notices: list[bccn.Notice] = []
    with (
        bccn.Client(daemons[0].socket, format="full", echo=False, on_notice=notices.append) as near,
        bccn.Client(daemons[1].socket, format="full", echo=False) as far,
    ):
        for client in (near, far):
            client.subscribe("demo/>")
        near.publish("demo/x", "before")
        near.barrier()
        before = far.receive(PATIENCE)
        daemons[0].kill()
        daemons[0].start()
        near.publish("demo/x", "after")
        after = far.receive(PATIENCE)
        assert before is not None
        assert after is not None
        assert (before.text, after.text) == ("before", "after")
        assert after.src == before.src
        assert after.seq > before.seq
        far.publish("demo/y", "welcome back")
        answer = near.receive(PATIENCE)
        assert answer is not None
        assert (answer.channel, answer.text) == ("demo/y", "welcome back")
    assert "reconnected" in [notice.kind for notice in notices]


def test_local_messages_flow_while_the_link_is_down(
    segment: Segment, daemons: list[DaemonProcess], connect: Callable[..., PacketClient]
) -> None:
    near, far, publisher = connect(daemons[0], "demo/>"), connect(daemons[1], "demo/>"), connect(daemons[0])
    segment.hosts[0].run(["ip", "link", "set", "eth0", "down"])
    publisher.publish("demo/x", b"alone")
    assert near.message() == ("demo/x", b"alone")
    wait_until(lambda: near.status()["counters"]["unsent"] >= 1, "the unsent datagram to be counted")
    segment.hosts[0].run(["ip", "link", "set", "eth0", "up"])
    segment.hosts[0].run(["ip", "route", "replace", "default", "dev", "eth0"])

    def arrives() -> bool:
        publisher.publish("demo/x", b"together")
        assert near.message() == ("demo/x", b"together")
        return ("demo/x", b"together") in far.messages()

    wait_until(arrives, "the daemon and the bridge to use the link again")
    assert near.messages() == []


def test_a_named_interface_needs_no_route(
    segment: Segment, start_daemon: StartDaemon, connect: Callable[..., PacketClient]
) -> None:
    for host in segment.hosts[:2]:
        host.run(["ip", "route", "del", "default"])
    alpha, beta = (start_daemon(host, "--interface", "eth0") for host in segment.hosts[:2])
    subscriber = connect(beta, "demo/>")
    connect(alpha).publish("demo/x", b"by eth0")
    assert subscriber.message() == ("demo/x", b"by eth0")


def test_each_host_retains_the_values_it_has_heard(
    segment: Segment, start_daemon: StartDaemon, connect: Callable[..., PacketClient]
) -> None:
    # Without repair: a host that starts soon after a message asks for it.
    retain = UNREPAIRED | {"BCCND_RETAIN__PATTERNS": "state/>"}
    alpha, beta = (start_daemon(host, environ=retain) for host in segment.hosts[:2])
    publisher, listener = connect(alpha), connect(beta, ">")
    for payload in (b"old", b"new"):
        publisher.publish("state/door", payload)
        assert listener.message() == ("state/door", payload)
    late = connect(beta)
    late.request("format", "full")
    late.send(b"SUB state/>")
    head, _, rest = late.receive().partition(b"\0")
    assert re.fullmatch(rb"RECV 10\.99\.0\.1:%d [0-9]+ retained" % PORT, head)
    assert rest.endswith(b":state/door|new")
    gamma = start_daemon(segment.hosts[2], environ=retain)
    assert connect(gamma, "state/>").messages() == []
    connect(gamma).publish("state/door")
    assert listener.message() == ("state/door", b"")
    for daemon in (beta, gamma):
        newcomer = connect(daemon)
        newcomer.send(b"SUB state/>")
        assert newcomer.messages() == []
