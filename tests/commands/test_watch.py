"""``bccn watch`` with a real daemon."""

import json
import os

from tests.command_line import bccn, ended, start
from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient


def test_each_change_is_a_line(shared_daemon: DaemonProcess) -> None:
    watching = start(shared_daemon, "watch", "demo/>", "-C", "3")
    assert watching.stdout
    assert os.read(watching.stdout.fileno(), 100) == b"no  demo/>\n"
    with PacketClient(shared_daemon.socket) as client:
        client.subscribe("demo/x")
        assert os.read(watching.stdout.fileno(), 100) == b"yes demo/>\n"
    assert ended(watching) == (0, b"no  demo/>\n", "")


def test_json_has_pattern_state_and_time(shared_daemon: DaemonProcess) -> None:
    with PacketClient(shared_daemon.socket) as client:
        client.subscribe("demo/x")
        done = bccn(shared_daemon, "watch", "--json", "-C", "1", "demo/*")
    told = json.loads(done.stdout)
    assert (told.pop("time") > 1e9, told) == (True, {"pattern": "demo/*", "wanted": True})


def test_it_gives_up_in_time_with_exit_code_3(shared_daemon: DaemonProcess) -> None:
    done = bccn(shared_daemon, "watch", "-C", "2", "-W", "0", "nobody/here")
    assert (done.returncode, done.stderr) == (3, b"bccn: watch: timed out after 0 s\n")


def test_what_cannot_be_watched_is_refused(shared_daemon: DaemonProcess) -> None:
    done = bccn(shared_daemon, "watch", "!here")
    assert done.returncode == 2
    assert done.stderr.startswith(b"bccn: CMSG watch: directed")
