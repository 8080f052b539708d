"""The recorder beside the daemon, and taps like it."""

import signal
from itertools import count

from tests.hostile.attack import Attack, pack
from tests.hostile.behaviour import MEMORY, MIB, behaviour
from tests.hostile.behaviours.publishing import HELD, SHORT_BLOCK
from tests.plain_bccn import datagram
from tests.recorder_process import RecorderProcess

ROOT = ("root",)
# The recorder asks for the largest queue (``queue.max_bytes``).
ITS_QUEUE = MEMORY + 64 * MIB
FLOOD = pack([b"MSG flood/x\0" + bytes(100)] * 400)


def record(attack: Attack, *flags: str) -> RecorderProcess:
    return attack.closing.enter_context(RecorderProcess(attack.folder, attack.daemon.socket, *flags))


@behaviour("a flood beside a recorder", needs=ROOT, memory=ITS_QUEUE)
def a_flood_beside_it(attack: Attack) -> None:
    record(attack)
    attack.repeat(attack.packing(), FLOOD)


@behaviour("a recorder that is stopped", needs=ROOT, memory=ITS_QUEUE)
def a_stopped_recorder(attack: Attack) -> None:
    recorder = record(attack)
    recorder.process.send_signal(signal.SIGSTOP)
    attack.repeat(attack.packing(), FLOOD)
    recorder.process.send_signal(signal.SIGCONT)


@behaviour("a recorder that is killed", needs=ROOT, memory=ITS_QUEUE)
def a_killed_recorder(attack: Attack) -> None:
    recorder = record(attack)
    publisher = attack.packing()
    publisher.offer(FLOOD)
    recorder.kill()
    attack.repeat(publisher, FLOOD)


@behaviour("datagrams of every kind beside a recorder", needs=ROOT, memory=ITS_QUEUE)
def datagrams_beside_it(attack: Attack) -> None:
    record(attack)
    kinds = (b"", b"BCCN1[9]x", datagram("far/x/1", 1, "x"), datagram("?", 1, "x"), b"\xff" * 1400)
    attack.flood(kinds[number % len(kinds)] for number in count())


@behaviour("connections to the recorder's metrics port that never ask", needs=ROOT, memory=ITS_QUEUE)
def silent_connections_to_it(attack: Attack) -> None:
    record(attack, "--metrics", f"127.0.0.1:{attack.metrics_port}")
    publisher = attack.packing()
    while attack.goes_on:
        attack.scrape().send(b"GET /met")
        publisher.offer(FLOOD)


@behaviour("taps with room for one packet", needs=ROOT, suite=True)
def small_taps(attack: Attack) -> None:
    for tap in attack.connect_many(10, uid=0):
        tap.request("queue", "packets=1")
        tap.request("tap", "interface")
    attack.repeat(attack.packing(), FLOOD)


@behaviour("a tap that holds publishers by its policy", needs=ROOT, settings=SHORT_BLOCK, p99=HELD)
def a_tap_that_holds(attack: Attack) -> None:
    tap = attack.connect(uid=0)
    tap.request("queue", "packets=10 policy=block")
    tap.request("tap", "on")


@behaviour("clients without the right that ask to tap", needs=ROOT)
def taps_without_the_right(attack: Attack) -> None:
    attack.repeat(attack.packing(), pack([b"CMSG tap\0on"] * 4000))
