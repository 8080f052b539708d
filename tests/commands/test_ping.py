"""``bccn ping`` with a real daemon, which answers for its own host as for others."""

import re

import pytest

from tests.command_line import bccn, ended, publish, start
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE


def test_answers_are_shown_with_a_summary(daemon: DaemonProcess) -> None:
    done = bccn(daemon, "ping", "here", "-c", "3", "-i", "0.05", "-W", str(PATIENCE))
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines[0] == "PING !here/bccnd"
    for number, line in enumerate(lines[1:4], 1):
        shown = rf"here/bccnd/{daemon.process.pid}: seq={number} time=\d+\.\d{{3}} ms version=\S+"
        assert re.fullmatch(shown, line)
    assert re.fullmatch(r"3 asked, 3 answered, 0% lost, \d+\.\d{3} s", lines[5])
    assert re.fullmatch(r"round trip min/avg/max \d+\.\d{3}/\d+\.\d{3}/\d+\.\d{3} ms", lines[6])


def test_what_others_send_meanwhile_is_passed_over(daemon: DaemonProcess) -> None:
    process = start(daemon, "ping", "here", "-c", "10", "-i", "0.05", "-W", str(PATIENCE))
    while process.poll() is None:
        publish(daemon, ("!", b"\xff\xfe\x1b[31m"), ("!", b"not.1\npong"))
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert b"10 answered" in out
    assert b"\x1b" not in out


def test_no_answer_is_code_3(daemon: DaemonProcess) -> None:
    done = bccn(daemon, "ping", "nowhere", "-c", "2", "-i", "0.05", "-W", "0.1")
    assert done.returncode == 3
    assert done.stdout.decode().splitlines()[2].startswith("2 asked, 0 answered, 100% lost, ")


@pytest.mark.parametrize("words", [["here/bccnd"], ["here", "-i", "0.01"], ["here", "-c", "0"], ["a b"], []])
def test_wrong_usage_is_code_2(daemon: DaemonProcess, words: list[str]) -> None:
    done = bccn(daemon, "ping", *words)
    assert done.returncode == 2
    assert done.stderr
