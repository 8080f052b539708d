"""The stream door, by its file, by TLS and by WebSocket. What the bytes are: ``clients/BPMUX.md``."""

import random
import socket
import time
from contextlib import suppress

from tests.hostile.attack import POLITE, Attack
from tests.hostile.behaviour import MIB, behaviour
from tests.hostile.guests import GREETING, Guest, frame
from tests.mux.key_updates import KeyChanger, library
from tests.needs import cannot_run

BUS = bytes.fromhex("c00003627573")
# A user may hold so much in the door (``USER_BYTES``), beside what it is made of.
HOLDS = 64 * MIB
TEXT, BINARY, PING = 1, 2, 9


@behaviour("channels and requests that are opened and given up at once", door="unix", suite=True)
def open_and_give_up(attack: Attack) -> None:
    talkers = [attack.talker() for _ in range(8)]
    while attack.goes_on:
        for each in talkers:
            channels = [each.endpoint.open_stream(b"SUB z/>", 100) for _ in range(30)]
            requests = [each.endpoint.request(b"status") for _ in range(10)]
            for entity in (*channels, *requests):
                if entity:
                    each.endpoint.cancel(entity)
            each.turn()


@behaviour("sessions that are opened and closed, again and again", door="unix")
def open_and_close(attack: Attack) -> None:
    talkers = [attack.talker() for _ in range(8)]
    while attack.goes_on:
        for each in talkers:
            for channel in [each.endpoint.open_duplex(b"bus", 1000) for _ in range(20)]:
                if channel:
                    each.endpoint.send(channel, b"SUB z/>")
                    each.endpoint.close(channel)
            each.turn()


@behaviour("as many sessions as a user may have", door="unix", memory=96 * MIB)
def all_sessions(attack: Attack) -> None:
    talkers = [attack.talker() for _ in range(4)]
    for each in talkers:
        for _ in range(800):
            each.endpoint.open_duplex(b"bus", 1000)
    while attack.goes_on:
        for each in talkers:
            each.turn()


@behaviour("all questions at once, over and over", door="unix")
def questions(attack: Attack) -> None:
    talkers = [attack.talker() for _ in range(4)]
    while attack.goes_on:
        for each in talkers:
            while each.endpoint.request(b"who"):
                pass
            each.turn()


@behaviour("streams and sessions that get no credit", door="unix", memory=HOLDS)
def no_credit(attack: Attack) -> None:
    talkers = [attack.talker() for _ in range(2)]
    for each in talkers:
        for _ in range(200):
            each.endpoint.open_stream(b"SUB >", 0)
            if channel := each.endpoint.open_duplex(b"bus", 0):
                each.endpoint.send(channel, b"SUB >")
        each.settle()
    while attack.goes_on:
        for each in talkers:
            each.turn()


@behaviour("streams of everything whose peer no longer reads", door="unix", memory=HOLDS)
def reads_no_more(attack: Attack) -> None:
    talker = attack.talker()
    for _ in range(300):
        talker.endpoint.open_stream(b"SUB >", 1 << 20)
    talker.settle()
    attack.rest()


@behaviour("packets that are none, as fast as there is credit", door="unix")
def bad_packets(attack: Attack) -> None:
    talker = attack.talker()
    channel = talker.endpoint.open_duplex(b"bus", 1 << 20)
    assert channel
    while attack.goes_on and not talker.gone:
        for _ in range(500):
            talker.endpoint.send(channel, b"x")
        talker.turn()


def _in_sessions(attack: Attack, count: int) -> Guest:
    """One with so many sessions, which the door has given credit."""
    opened = b"".join(bytes((0xC0, number)) + b"\x03bus" for number in range(count))
    guest = attack.guest(GREETING + opened)
    guest.hear(bytes((0xF2, count - 1, 0, 1, 0, 0)))
    return guest


@behaviour("payloads in chunks of a byte that never end", door="unix")
def crumbs_of_payloads(attack: Attack) -> None:
    guests = [_in_sessions(attack, 1) for _ in range(100)]
    for each in guests:
        each.offer(bytes.fromhex("fe00020000 60000178"))
    while attack.goes_on:
        for each in guests:
            each.discard()
            each.offer(bytes.fromhex("60000178") * 10)
    assert not any(each.gone for each in guests)


@behaviour("long payloads that never end, on all sessions", door="unix", memory=HOLDS)
def endless_payloads(attack: Attack) -> None:
    guests = [_in_sessions(attack, 60) for _ in range(8)]
    for each in guests:
        begun = [bytes.fromhex(f"fe00020000 61{number:02x}4000") + bytes(0x4000) for number in range(60)]
        each.offer(b"".join(begun))
    while attack.goes_on:
        for each in guests:
            each.discard()
            each.offer(b"")
    assert not any(each.gone for each in guests)


@behaviour("chunks of no bytes without end", door="unix")
def empty_chunks(attack: Attack) -> None:
    begun = GREETING + BUS + bytes.fromhex("fc05")
    attack.pour(lambda: attack.guest(begun), bytes.fromhex("600000") * 20_000, count=4)


@behaviour("credit, a byte at a time", door="unix")
def crumbs_of_credit(attack: Attack) -> None:
    attack.pour(lambda: attack.guest(GREETING), bytes.fromhex("ec01") * 30_000, count=4)


@behaviour("pings whose pongs nobody reads", door="unix")
def unread_pongs(attack: Attack) -> None:
    attack.pour(lambda: attack.guest(GREETING), b"\xd3" * 60_000, count=4, reading=False)


@behaviour("pings without end", door="unix")
def pings(attack: Attack) -> None:
    attack.pour(lambda: attack.guest(GREETING), b"\xd3" * 60_000, count=4)


@behaviour("connections that say nothing", door="unix")
def silence(attack: Attack) -> None:
    for _ in range(300):
        attack.guest()


@behaviour("connections that leave at once", door="unix")
def come_and_go(attack: Attack) -> None:
    while attack.goes_on:
        attack.guest(GREETING + BUS).close()


@behaviour("connections that open a session and leave at once", door="unix")
def open_and_go(attack: Attack) -> None:
    while attack.goes_on:
        guest = attack.guest()
        guest.offer(GREETING + BUS)
        guest.close()


@behaviour("bytes at random", door="unix")
def noise(attack: Attack) -> None:
    chance = random.Random(1)
    attack.pour(lambda: attack.guest(GREETING + BUS), chance.randbytes(64), count=4)


@behaviour("keys of TLS that change without end", door="tls", suite=True, needs=("openssl",))
def changing_keys(attack: Attack) -> None:
    libssl = library()
    if libssl is None:
        cannot_run("needs libssl")
    while attack.goes_on:
        guest = attack.far_guest()
        guest.socket.settimeout(POLITE)
        changer = KeyChanger(libssl, guest.socket.fileno(), *attack.hall.certificates.files("guest"))
        guest.socket.setblocking(True)
        assert changer.connect()
        while attack.goes_on and changer.change_key():
            pass
        changer.close()
        guest.close()


@behaviour("handshakes of TLS that stop half way", door="tls", needs=("openssl",))
def half_handshakes(attack: Attack) -> None:
    hello = bytes.fromhex("1603010200010001fc0303")
    while attack.goes_on:
        for _ in range(50):
            attack.far_guest(hello).offer(b"")
        time.sleep(0.05)


def _by_tls(attack: Attack, certificate: str) -> None:
    context = attack.hall.certificates.client(certificate)
    while attack.goes_on:
        with suppress(OSError):
            connected = socket.create_connection(("127.0.0.1", attack.hall.port), POLITE)
            with connected, context.wrap_socket(connected, server_hostname="127.0.0.1") as by_tls:
                by_tls.sendall(GREETING + BUS)


@behaviour("handshakes of TLS, one after the other", door="tls", needs=("openssl",))
def handshakes(attack: Attack) -> None:
    _by_tls(attack, "guest")


@behaviour("a certificate whose name is no text", door="tls", needs=("openssl",))
def odd_name(attack: Attack) -> None:
    attack.hall.certificates.sign("odd", "/CN=odd", b"subjectAltName=DNS:caf\xe9")
    _by_tls(attack, "odd")


@behaviour("TLS that is none", door="tls", needs=("openssl",))
def no_tls(attack: Attack) -> None:
    attack.pour(attack.far_guest, b"GET / HTTP/1.1\r\n\r\n", count=8)


@behaviour("heads of HTTP, a byte now and then", door="web")
def slow_heads(attack: Attack) -> None:
    guests = [attack.far_guest(attack.hall.upgrade[:-10]) for _ in range(200)]
    while attack.goes_on:
        for each in guests:
            each.offer(b"x")


@behaviour("heads of a megabyte", door="web")
def huge_heads(attack: Attack) -> None:
    begun = attack.hall.upgrade[:-2] + b"X: "
    attack.pour(lambda: attack.far_guest(begun), b"x" * 100_000, count=4)


@behaviour("heads of a thousand lines", door="web")
def many_heads(attack: Attack) -> None:
    begun = attack.hall.upgrade[:-2]
    attack.pour(lambda: attack.far_guest(begun), b"X: y\r\n" * 1000, count=4)


def _web(attack: Attack) -> Guest:
    """One that the door has let in."""
    guest = attack.far_guest(attack.hall.upgrade)
    guest.hear(b" 101 ")
    guest.offer(frame(BINARY, GREETING))
    return guest


@behaviour("pings of WebSocket without end", door="web", suite=True)
def web_pings(attack: Attack) -> None:
    attack.pour(lambda: _web(attack), frame(PING, b"x") * 5000, count=4)


@behaviour("frames of no bytes without end", door="web")
def empty_frames(attack: Attack) -> None:
    attack.pour(lambda: _web(attack), frame(BINARY, b"") * 5000, count=4)


@behaviour("frames of one byte", door="web")
def tiny_frames(attack: Attack) -> None:
    attack.pour(lambda: _web(attack), frame(BINARY, b"\xd3") * 5000, count=4)


@behaviour("frames of one byte on most connections of a user", door="web", memory=HOLDS)
def many_tiny_frames(attack: Attack) -> None:
    # On the top level, where it means nothing and is no chatter.
    message = bytes.fromhex("6d03e8") + bytes(1000)
    data = b"".join(frame(BINARY, bytes((each,))) for each in message)
    attack.pour(lambda: _web(attack), data, count=150)


@behaviour("long frames that never end", door="web", memory=HOLDS)
def endless_frames(attack: Attack) -> None:
    head = bytes((BINARY, 0xFF)) + (200_000).to_bytes(8) + bytes(4)
    guests = [_web(attack) for _ in range(100)]
    for each in guests:
        each.offer(head + b"x" * 100_000)
    while attack.goes_on:
        for each in guests:
            each.offer(b"")
            each.discard()
    assert not any(each.gone for each in guests)


@behaviour("text, where bytes belong", door="web")
def text_frames(attack: Attack) -> None:
    attack.pour(lambda: _web(attack), frame(TEXT, b"hello"), count=4)
