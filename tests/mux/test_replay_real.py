"""A replay from a real door, of what a recorder wrote and of what the test did."""

import time
from pathlib import Path

from bccnd.mux import limits
from bccnd.mux.archive import TOO_MANY_OF_USER
from bccnd.mux.portion import time_of
from bccnd.mux.span import SECOND_NS
from tests.clients.door import Door
from tests.daemon_process import DaemonProcess
from tests.mux.mux_client import MuxClient
from tests.mux.test_record import NOON, record, rows
from tests.mux.test_replay import number_of
from tests.packet_client import PacketClient
from tests.recorder_process import RecorderProcess


def test_a_real_record_is_replayed_and_the_live_bus_follows(
    shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Nothing is recorded after the recorder's end: what comes then is live."""
    recorder = RecorderProcess(tmp_path, shared_daemon.socket, "--rotate-seconds", "1")
    door = Door(tmp_path, shared_daemon.socket, "--recorded", str(recorder.output))
    with recorder, door, MuxClient(door.socket) as client, PacketClient(shared_daemon.socket) as publisher:
        begin = time.time() - 1

        def publish(*numbers: int) -> None:
            for number in numbers:
                publisher.publish("seam/x", b"%d" % number)
            publisher.drain()

        publish(*range(1, 501))
        following = client.open(f"REPLAY {begin:.3f}  seam/>")
        refused = client.open(f"REPLAY {begin:.3f}  a*b")
        assert client.ending(refused).startswith(b"bad-pattern SUB a*b")
        seen: list[int] = []

        def read(most: int) -> None:
            while len(seen) < most:
                packet = client.message(following)
                if packet.startswith(b"RECV local "):
                    seen.append(number_of(packet))
                else:
                    assert packet.startswith(b"CMSG unrecorded\0"), packet

        for number in range(501, 1001):
            publish(number)
            if number == 750:
                read(500)
        read(1000)
        ending = client.open(f"REPLAY {begin:.3f} -0s seam/>")
        packets = []
        while len(packets) < 1000:
            packets += [packet for packet in [client.message(ending)] if packet.startswith(b"RECV ")]
        assert client.ending(ending) == b""
        assert [number_of(packet) for packet in packets] == list(range(1, 1001))
        recorder.terminate()
        publish(1001, 1002)
        read(1002)
        assert seen == list(range(1, 1003))


def test_replays_that_nobody_reads_hold_up_nobody(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """The whole range, to who gives no credit and to who wants none of it, as often as one user may and once more."""
    many = [rows(*range(at, at + 5_000)) for at in range(1, 40_000, 5_000)]
    record(tmp_path / "recorded", (0, 40_000, many), (40_000, 50_000, [])).end()
    door = Door(tmp_path, shared_daemon.socket, "--recorded", str(tmp_path / "recorded"))
    with door, MuxClient(door.socket) as greedy, MuxClient(door.socket) as other:
        unread = [greedy.open("REPLAY 0  >", 0) for _ in range(limits.USER_REPLAYS - 1)]
        unread.append(greedy.open("REPLAY 0  none"))
        assert greedy.ending(greedy.open("REPLAY 0  >")) == TOO_MANY_OF_USER
        bus = other.bus()
        assert [bus.drain() for _ in range(20)] == [[]] * 20
        assert greedy.message(unread[-1]).startswith(b"CMSG unrecorded\x000 ")
        for channel in unread:
            greedy.endpoint.cancel(channel)
        greedy.flush()
        last = NOON + 40_000 - 5
        since, until = (f"{each // SECOND_NS}.{each % SECOND_NS:09}" for each in (last, last + 3))
        replay = other.open(f"REPLAY {since} {until} >")
        packets = [other.message(replay) for _ in range(4)]
        assert [time_of(packet) - last for packet in packets] == [0, 1, 2, 3]
        assert other.ending(replay) == b""
