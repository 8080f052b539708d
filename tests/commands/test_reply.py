"""``bccn reply`` with a real daemon and real commands."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from select import select

import pytest

import bccn as client
from tests.command_line import HOUR, bccn, ended, hour_passes, start, start_with_clock, subscriptions
from tests.daemon_process import DaemonProcess, runs
from tests.packet_client import PATIENCE, PacketClient, wait_until

Reply = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def reply(daemon: DaemonProcess) -> Iterator[Reply]:
    """Starts ``bccn reply`` and returns once it serves; the fixture ends what still runs."""
    with ExitStack() as running:

        def begin(*arguments: str, clock: Path | None = None) -> subprocess.Popen[bytes]:
            before = subscriptions(daemon)
            words = ("reply", *arguments)
            process = start_with_clock(daemon, clock, *words) if clock else start(daemon, *words)
            running.callback(end, process)
            wait_until(lambda: process.poll() is not None or subscriptions(daemon) > before, "to be served")
            assert process.poll() is None, process.communicate()
            return process

        yield begin


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def stopped(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """(exit code, stdout, stderr) after SIGTERM."""
    process.terminate()
    return ended(process)


def ask(daemon: DaemonProcess, channel: str, payload: bytes = b"", timeout: float = PATIENCE) -> bytes:
    with client.Client(daemon.socket) as bus:
        found = bus.request(channel, payload, timeout)
    return found.payload


def reported_and_unanswered(
    daemon: DaemonProcess,
    channel: str,
    process: subprocess.Popen[bytes],
    meanwhile: Callable[[], object] = lambda: None,
) -> str:
    """The line on stderr for a request that gets no answer. ``meanwhile``: between the two."""
    assert process.stderr is not None
    with PacketClient(daemon.socket) as asking:
        asking.request("listen")
        asking.publish(channel, b"t1\nx")
        meanwhile()
        line = process.stderr.readline().decode()
        assert stopped(process) == (0, b"", "")
        assert asking.drain() == []
    return line


def test_the_request_is_stdin_and_stdout_is_the_reply(daemon: DaemonProcess, reply: Reply) -> None:
    process = reply("up", "--", "tr", "a-z", "A-Z")
    assert [ask(daemon, "up", payload) for payload in (b"one", b"", b"t\nwo\0\xff")] == [
        b"ONE",
        b"",
        b"T\nWO\0\xff",
    ]
    assert stopped(process) == (0, b"", "")


def test_the_command_knows_source_and_channel(daemon: DaemonProcess, reply: Reply) -> None:
    reply("who/>", "--", "sh", "-c", 'echo "$BCCN_SRC $BCCN_CHANNEL $#" "$@"', "--", "--", "-v")
    with client.Client(daemon.socket) as bus:
        found = bus.request("who/is/it")
        assert found.text == f"{bus.name} who/is/it 2 -- -v\n"


def test_options_of_the_command_are_its_own(daemon: DaemonProcess, reply: Reply) -> None:
    reply("plain", "echo", "words")
    reply("-j", "2", "dashes", "-v", "--", "echo", "--socket", "x", "-j")
    assert ask(daemon, "plain") == b"words\n"
    assert ask(daemon, "dashes") == b"--socket x -j\n"


def test_requests_to_all_or_to_this_program_are_answered(daemon: DaemonProcess) -> None:
    process = start(daemon, "reply", "!", "--name", "desk/clerk/1", "--", "echo", "here")
    with PacketClient(daemon.socket) as asking:
        wait_until(lambda: asking.request("listeners", "!desk/clerk/1") == "1", "the name to be taken")
    assert ask(daemon, "!") == b"here\n"
    assert ask(daemon, "!desk") == b"here\n"
    assert stopped(process)[0] == 0


def test_no_more_than_jobs_run_at_once(daemon: DaemonProcess, reply: Reply, tmp_path: Path) -> None:
    """Each command waits until as many run as may run at once; by then no further one must have begun."""
    script = (
        f"touch {tmp_path}/$$; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; ls {tmp_path} | grep -vc go"
    )
    reply("-j", "3", "slow", "--", "sh", "-c", script)
    with PacketClient(daemon.socket) as asking:
        asking.request("listen")
        for number in range(5):
            asking.publish("slow", b"t%d\nx" % number)
        wait_until(lambda: len(list(tmp_path.glob("[0-9]*"))) == 3, "three to run")
        asking.drain()
        assert len(list(tmp_path.glob("[0-9]*"))) == 3
        (tmp_path / "go").touch()
        tokens = {asking.message()[1].partition(b"\n")[0] for _ in range(5)}
    assert tokens == {b"t%d" % number for number in range(5)}


def test_output_of_a_failed_command_is_sent_and_reported(daemon: DaemonProcess, reply: Reply) -> None:
    process = reply("some", "--", "sh", "-c", "echo partly; echo broken >&2; exit 3")
    assert ask(daemon, "some") == b"partly\n"
    code, out, err = stopped(process)
    assert (code, out) == (0, b"")
    assert err.startswith("broken\nbccn: sh ended with status 3; the request was from here/")


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        (["false"], "false ended with status 1"),
        (["sh", "-c", "echo x; kill -9 $$"], "sh was ended by signal 9 (Killed)"),
        (["yes"], "it printed more than 65536 bytes"),
        (["head", "-c", "1400", "/dev/zero"], "bytes on the wire, at most 1400"),
    ],
)
def test_a_missing_reply_is_reported_on_stderr(
    daemon: DaemonProcess, reply: Reply, command: list[str], reported: str
) -> None:
    line = reported_and_unanswered(daemon, "fail", reply("fail", "--", *command))
    assert reported in line
    assert "here/" in line


def test_a_slow_command_is_killed_with_its_processes(
    daemon: DaemonProcess, reply: Reply, tmp_path: Path
) -> None:
    pids, clock = tmp_path / "pids", tmp_path / "clock"
    # Its time runs by when it is given its request.
    command = ("sh", "-c", f"cat > /dev/null; sleep 600 & echo $$ $! > {pids}; wait")
    process = reply("-W", str(HOUR), "hang", "--", *command, clock=clock)

    def time_is_over() -> None:
        wait_until(lambda: is_written(pids), "the command")
        hour_passes(daemon, clock, "hang", lambda: select([process.stderr], [], [], 0)[0])

    line = reported_and_unanswered(daemon, "hang", process, time_is_over)
    assert f"sh was killed after {HOUR} s" in line
    assert_gone(pids)


def test_a_command_that_reads_nothing_may_reply(daemon: DaemonProcess, reply: Reply) -> None:
    process = reply("local/big", "--", "echo", "short")
    assert ask(daemon, "local/big", b"x" * 60000) == b"short\n"
    assert stopped(process) == (0, b"", "")


def test_other_messages_are_ignored(daemon: DaemonProcess, reply: Reply) -> None:
    process = reply("up", "-C", "1", "--", "cat")
    with PacketClient(daemon.socket) as publisher:
        publisher.publish("up", b"no token")
        publisher.drain()
    assert ask(daemon, "up", b"x") == b"x"
    assert ended(process) == (0, b"", "")


def test_count_ends_it(daemon: DaemonProcess, reply: Reply) -> None:
    process = reply("-C", "2", "-v", "up", "--", "cat")
    assert ask(daemon, "up", b"1") == b"1"
    assert process.poll() is None
    assert ask(daemon, "up", b"22") == b"22"
    code, _, err = ended(process)
    assert code == 0
    lines = err.splitlines()
    assert lines[0].startswith("bccn: replying to requests on up as here/")
    assert ": 2 bytes, replied 2 in " in lines[2]


def test_sigterm_lets_running_commands_finish(daemon: DaemonProcess, reply: Reply, tmp_path: Path) -> None:
    began, go_on = tmp_path / "began", tmp_path / "go"
    process = reply(
        "slow", "--", "sh", "-c", f"touch {began}; while [ ! -e {go_on} ]; do sleep 0.01; done; echo done"
    )
    with PacketClient(daemon.socket) as asking:
        asking.request("listen")
        asking.publish("slow", b"t1\nx")
        wait_until(began.exists, "the command")
        process.terminate()
        wait_until(lambda: asking.request("listeners", "slow") == "0", "it to listen no more")
        assert process.poll() is None
        go_on.touch()
        assert asking.message()[1] == b"t1\ndone\n"
        assert ended(process) == (0, b"", "")
        assert asking.drain() == []


def test_ctrl_c_kills_the_commands(daemon: DaemonProcess, reply: Reply, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process = reply("hang", "--", "sh", "-c", f"sleep 60 & echo $$ $! > {pids}; wait")
    with PacketClient(daemon.socket) as asking:
        asking.publish("hang", b"t\nx")
        wait_until(lambda: is_written(pids), "the command")
        process.send_signal(signal.SIGINT)
        assert ended(process) == (-signal.SIGINT, b"", "")
    assert_gone(pids)


def is_written(pids: Path) -> bool:
    return pids.exists() and pids.read_text().endswith("\n")


def assert_gone(pids: Path) -> None:
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not runs(int(pid)), f"{pid} to be gone")


def test_it_goes_on_after_a_restart_of_the_daemon(daemon: DaemonProcess, reply: Reply) -> None:
    process = reply("up", "--", "cat")
    daemon.kill()
    daemon.start()
    wait_until(lambda: subscriptions(daemon) == 1, "it to come back")
    assert ask(daemon, "up", b"x") == b"x"
    code, _, err = stopped(process)
    assert code == 0
    assert err.endswith("bccn: connected to the daemon again\n")


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["up"], "give the command to run, after --"),
        (["up", "--"], "give the command to run, after --"),
        (["up", "--", "/no/such/program"], "/no/such/program: no such command"),
        (["-j", "0", "up", "--", "cat"], "'0' is not a whole number"),
        (["a b", "--", "cat"], "white space"),
        ([], "CHANNEL"),
    ],
)
def test_wrong_usage_is_code_2(daemon: DaemonProcess, arguments: list[str], reported: str) -> None:
    done = bccn(daemon, "reply", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert reported in done.stderr.decode()


def test_without_a_daemon_it_is_code_5(tmp_path: Path) -> None:
    done = bccn(tmp_path / "no.sock", "reply", "up", "--", "cat")
    assert done.returncode == 5


def test_a_command_inherits_no_descriptor(daemon: DaemonProcess, reply: Reply) -> None:
    reply("fds", "--", "sh", "-c", "ls /proc/$$/fd")
    assert ask(daemon, "fds").split() == [b"0", b"1", b"2"]
