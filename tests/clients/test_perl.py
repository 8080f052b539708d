"""The Perl client beyond the conformance suite: its distribution, its own tests, its worker, its README."""

import re
import shutil
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS, LANGUAGES, Driver
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.documents import ROOT
from tests.golden import VECTORS
from tests.needs import require
from tests.packet_client import PATIENCE, wait_until

FOLDER = CLIENTS / "perl"
README = (FOLDER / "README.md").read_text()
# A block of Perl, and what it prints.
EXAMPLES = re.findall(r"```perl\n(.*?)```\n\n((?: {4}[^\n]*\n)*)", README, re.DOTALL)
(FIRST, _), *_ = EXAMPLES
(SERVER,) = [code for code, _ in EXAMPLES if "->serve(" in code]
PRINTING = [(code, dedent(printed)) for code, printed in EXAMPLES if printed]
pytestmark = pytest.mark.needs("perl")
run = partial(workers.run, folder=FOLDER)


def headed(code: str) -> str:
    """An example as a program of its own: without a bus it gets one, and its ten seconds are those of a test."""
    bus = "" if "my $bus = " in code else "my $bus = Net::Bccn->new(on_notice => sub { });"
    waiting = re.sub(r"\b10\b", str(PATIENCE), code)
    return f"$| = 1; use strict; use warnings; use Net::Bccn; {bus}\n{waiting}"


@pytest.mark.needs("make", "tar", "gzip")
def test_the_distribution_tests_and_installs_itself(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Made in a copy of the checkout, with its links, and unpacked where there is nothing else."""
    checkout, empty, root = tmp_path / "checkout", tmp_path / "empty", tmp_path / "root"
    empty.mkdir()
    perl = checkout / "clients/perl"
    shutil.copytree(FOLDER, perl, symlinks=True)
    shutil.copytree(VECTORS, checkout / "clients/vectors")
    shutil.copy(ROOT / "LICENSE", checkout)
    run("perl", "Makefile.PL", folder=perl)
    run("make", "dist", folder=perl)
    (tarball,) = perl.glob("*.tar.gz")
    run("tar", "-xf", tarball, folder=empty)
    (source,) = empty.iterdir()
    assert tarball.name == f"{source.name}.tar.gz" == "Net-Bccn-0.1.0.tar.gz"
    packed = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert packed == {*(FOLDER / "MANIFEST").read_text().split(), "META.json", "META.yml"}
    assert not [path for path in source.rglob("*") if path.is_symlink()]

    told = run(
        "perl", "Makefile.PL", f"INSTALL_BASE={root}", "NO_PACKLIST=1", "NO_PERLLOCAL=1", folder=source
    )
    assert "Looks good" in told
    told = run("make", "test", folder=source, BCCN_SOCKET=str(daemon.socket))
    assert re.findall(r"^t/(\w+)\.t \.+ (.*)$", told, re.MULTILINE) == [
        ("bus", "ok"),
        ("pod", "ok"),
        ("vectors", "ok"),
    ]
    run("make", "install", folder=source)
    program = "print Net::Bccn->new->name"
    name = run("perl", f"-I{root}/lib/perl5", "-MNet::Bccn", "-e", program, BCCN_SOCKET=str(daemon.socket))
    assert name.startswith("here/perl/")
    assert (root / "man/man3/Net::Bccn.3pm").exists()


def test_the_manifest_lists_every_file() -> None:
    """What is in the folder is in MANIFEST; that what is there exists, Makefile.PL looks after."""
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert found == set((FOLDER / "MANIFEST").read_text().split())


def test_closed_streams_do_not_get_the_bus(daemon: DaemonProcess, tmp_path: Path) -> None:
    command = ["perl", "-Ilib", "examples/worker.pl", daemon.socket]
    assert workers.sockets_for_streams(command, FOLDER, tmp_path / "log", daemon, "perl") == []


def test_the_worker_serves_beats_and_survives_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    command = ["perl", "-Ilib", "examples/worker.pl", daemon.socket]
    with workers.running(command, FOLDER, log) as worker:
        name = f"here/perl/{worker.pid}"
        assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("bccn: ")


def test_the_first_program_of_the_readme_works(daemon: DaemonProcess, tmp_path: Path) -> None:
    program, log = tmp_path / "readme.pl", tmp_path / "stderr"
    program.write_text(f"$ENV{{BCCN_SOCKET}} = '{daemon.socket}'; {headed(FIRST)}")
    with workers.running(["perl", "-Ilib", program], FOLDER, log) as process:
        assert process.stdout
        assert process.stdout.readline() == b"sensors/kitchen/temperature 21.5\n"
    assert log.read_text() == ""


@pytest.mark.needs("AnyEvent.pm", "IO/Async.pm")
@pytest.mark.parametrize(("code", "printed"), PRINTING, ids=[said.split("\n")[0] for _, said in PRINTING])
def test_the_examples_of_the_readme_work(
    daemon: DaemonProcess, tmp_path: Path, code: str, printed: str
) -> None:
    with ExitStack() as stack:
        if "->request(" in code:
            (tmp_path / "server.pl").write_text(f"$ENV{{BCCN_SOCKET}} = '{daemon.socket}'; {headed(SERVER)}")
            command = ["perl", "-Ilib", tmp_path / "server.pl"]
            server = stack.enter_context(workers.running(command, FOLDER, tmp_path / "stderr"))
            wait_until(lambda: workers.is_subscribed(daemon, f"here/perl/{server.pid}"), "the server")
        assert run("perl", "-Ilib", "-e", headed(code), BCCN_SOCKET=str(daemon.socket)) == printed


def test_the_manual_has_the_same_event_loops() -> None:
    manual = (FOLDER / "lib/Net/Bccn.pm").read_text()
    loops = [code for code, _ in EXAMPLES if "fileno" in code]
    assert [code for code in loops if indent(code, "    ") not in manual] == []
    assert len(loops) == 3


def test_a_poll_loop_waits_for_the_daemon_without_spinning(daemon: DaemonProcess, tmp_path: Path) -> None:
    program = tmp_path / "loop.pl"
    program.write_text(
        "use strict; use warnings; use Net::Bccn; use IO::Select; $| = 1;\n"
        "my $back = 0;\n"
        "my $bus = Net::Bccn->new(path => $ARGV[0], on_notice => sub { $back++ if $_[0]{kind} eq 'reconnected' });\n"
        "$bus->subscribe('a'); my $inputs = IO::Select->new($bus->fileno); print \"ready\\n\";\n"
        "my $turns = 0;\n"
        "until ($back) { $inputs->can_read; $bus->dispatch; $turns++ }\n"
        'print "$turns\\n";\n'
    )
    with workers.running(["perl", "-Ilib", program, daemon.socket], FOLDER, tmp_path / "stderr") as process:
        assert workers.turns_over_a_restart(daemon, process) < 100


def test_a_missing_module_of_perl_is_named() -> None:
    require("Socket.pm", "JSON/PP.pm")
    with pytest.raises(pytest.fail.Exception, match=r"^needs No/Such\.pm$"):
        require("Socket.pm", "No/Such.pm")


def test_an_unreadable_packet_ends_the_connection(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"SUB a":
            connection.send(b"PACK \0\0\1\0")
        return False

    (perl,) = [each for each in LANGUAGES if each.name == "perl"]
    with ScriptedDaemon(tmp_path / "bus", script) as scripted, Driver(perl, tmp_path / "log") as driver:
        driver.open(scripted.path)
        driver("pub", "b", "x")
        assert driver.error("sub", "a") == "protocol"
        driver("sub", "c")
        assert driver.error("barrier") == "unconfirmed"
        assert len([packet for packet in scripted.seen if packet == b"CMSG whoami"]) > 1
