"""The Perl client beyond the conformance suite: its own tests, its worker, the program of its README, its package."""

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS
from tests.daemon_process import DaemonProcess

FOLDER = CLIENTS / "perl"
pytestmark = pytest.mark.needs("perl", "prove")
run = partial(workers.run, folder=FOLDER)


def test_its_own_tests_pass(daemon: DaemonProcess) -> None:
    said = run("prove", "--lib", "t", BCCN_SOCKET=str(daemon.socket))
    assert re.findall(r"^t/(\w+)\.t \.+ (.*)$", said, re.MULTILINE) == [
        ("bus", "ok"),
        ("pod", "ok"),
        ("vectors", "ok"),
    ]


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


def test_the_readme_program_works(daemon: DaemonProcess, tmp_path: Path) -> None:
    found = re.search(r"```perl\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert found
    program = tmp_path / "readme.pl"
    program.write_text(
        f"$| = 1; $ENV{{BCCN_SOCKET}} = '{daemon.socket}';\nuse strict; use warnings;\n{found[1]}"
    )
    log = tmp_path / "stderr"
    with workers.running(["perl", "-Ilib", program], FOLDER, log) as process:
        assert process.stdout
        assert process.stdout.readline() == b"sensors/kitchen/temperature 21.5\n"
    assert log.read_text() == ""


@pytest.mark.needs("make")
def test_the_installed_module_works(daemon: DaemonProcess, tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    listed = (FOLDER / "MANIFEST").read_text().split()
    for name in listed:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FOLDER / name, source / name)
    said = run(
        "perl", "Makefile.PL", f"INSTALL_BASE={root}", "NO_PACKLIST=1", "NO_PERLLOCAL=1", folder=source
    )
    assert "Looks good" in said
    run("make", "install", folder=source)
    program = "print Bccn->new->whoami"
    name = run("perl", f"-I{root}/lib/perl5", "-MBccn", "-e", program, BCCN_SOCKET=str(daemon.socket))
    assert name.startswith("here/perl/")
    assert (root / "man/man3/Bccn.3pm").exists()


def test_the_manifest_lists_every_file() -> None:
    """What is in the folder is in MANIFEST; that what is there exists, Makefile.PL looks after."""
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert found == set((FOLDER / "MANIFEST").read_text().split())


def test_a_poll_loop_waits_for_the_daemon_without_spinning(daemon: DaemonProcess, tmp_path: Path) -> None:
    program = tmp_path / "loop.pl"
    program.write_text(
        "use strict; use warnings; use Bccn; use IO::Select; $| = 1;\n"
        "my $back = 0;\n"
        "my $bus = Bccn->new(address => $ARGV[0], on_notice => sub { $back++ if $_[0]{kind} eq 'reconnected' });\n"
        "$bus->subscribe('a'); my $inputs = IO::Select->new($bus->fileno); print \"ready\\n\";\n"
        "my $turns = 0;\n"
        "until ($back) { $inputs->can_read; $bus->dispatch; $turns++ }\n"
        'print "$turns\\n";\n'
    )
    with workers.running(["perl", "-Ilib", program, daemon.socket], FOLDER, tmp_path / "stderr") as process:
        assert workers.turns_over_a_restart(daemon, process) < 100
