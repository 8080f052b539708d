"""Robots on different hosts of one segment, each at the gateway of its host: the bus joins them."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.daemon_process import DaemonProcess
from tests.dndm.process import DndmProcess, Robot, dialled
from tests.hosts.segment import BROADCAST, Segment
from tests.packet_client import wait_until

ROUTE = "Image@cam.front"
PORT = 5420
MEDIUM = 9999


def test_robots_on_two_hosts_hear_each_other(
    shared_segment: Segment, shared_daemons: list[DaemonProcess], tmp_path: Path
) -> None:
    """The one sends from when the other is known to listen; a robot that comes back is heard again."""
    with ExitStack() as running:
        robots: list[Robot] = []
        gateways = []
        for host, daemon in zip(shared_segment.hosts[:2], shared_daemons[:2], strict=True):
            flags = ("--listen", f"tcp://127.0.0.1:{PORT}")
            gateways.append(DndmProcess(tmp_path / host.name, daemon.socket, *flags, prefix=host.command([])))
            gateways[-1].launch()
            running.push(gateways[-1])
        for host, gateway in zip(shared_segment.hosts[:2], gateways, strict=True):
            gateway.wait_until_ready()
            wait_until(partial(gateway.logged, "connected to the daemon"), "the daemon")
            robots.append(running.enter_context(host.make(partial(dialled, f"127.0.0.1:{PORT}"))))
        camera, viewer = robots
        camera.advert("INTENT", ROUTE)
        for turn in range(2):
            viewer.advert("INTEREST", ROUTE)
            camera.until(lambda: camera.wants(ROUTE))
            for number in range(50):
                camera.send(ROUTE, b"%d %d" % (turn, number))
            viewer.until(lambda: len(viewer.messages()) >= 50)  # noqa: B023
            assert viewer.messages() == [(ROUTE, b"%d %d" % (turn, number)) for number in range(50)]
            assert camera.messages() == []
            viewer.close()
            camera.until(lambda: not camera.wants(ROUTE))
            if not turn:
                viewer = running.enter_context(
                    shared_segment.hosts[1].make(partial(dialled, f"127.0.0.1:{PORT}"))
                )


def test_gateways_of_two_buses_meet_at_a_broadcast_address(shared_segment: Segment, tmp_path: Path) -> None:
    """What a robot at the one says goes out once, and comes to a robot at the other; no bus has a part in it."""
    hosts = shared_segment.hosts[:2]
    with ExitStack() as running:
        robots = []
        for host in hosts:
            flags = ("--listen", f"tcp://127.0.0.1:{PORT}", "--dial", f"udp://{BROADCAST}:{MEDIUM}")
            gateway = DndmProcess(
                tmp_path / host.name,
                tmp_path / "no daemon",
                *flags,
                "--bus",
                host.name,
                prefix=host.command([]),
            )
            gateway.launch()
            running.push(gateway)
            gateway.wait_until_ready()
            robots.append(running.enter_context(host.make(partial(dialled, f"127.0.0.1:{PORT}"))))
        camera, viewer = robots
        camera.advert("INTENT", ROUTE)
        viewer.until(lambda: viewer.offered(ROUTE))
        viewer.advert("INTEREST", ROUTE)
        camera.until(lambda: camera.wants(ROUTE))
        for number in range(50):
            camera.send(ROUTE, b"%d" % number)
        viewer.until(lambda: len(viewer.messages()) >= 50)
        assert viewer.messages() == [(ROUTE, b"%d" % number) for number in range(50)]
        assert camera.messages() == []
