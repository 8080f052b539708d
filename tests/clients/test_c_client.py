"""libbccn beyond the conformance suite: vectors, both headers, workers, pages, installation, older programs."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

import bccn
from tests.clients import workers
from tests.clients.drivers import CLIENTS, LATEST, Driver, Language, building
from tests.daemon_process import DaemonProcess, die_with_parent
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until

FOLDER = CLIENTS / "c"
TOOLS = ("make", "gcc", "g++")

pytestmark = pytest.mark.needs(*TOOLS)
run = partial(workers.run, folder=FOLDER)


def make(*targets: str) -> str:
    with building(FOLDER):
        return run("make", "--silent", "CC=gcc", "CXX=g++", *targets)


def prototypes() -> dict[str, str]:
    """The public functions of bccn.h, each with its prototype on one line."""
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / "bccn.h").read_text(), flags=re.DOTALL)
    found = re.findall(r"^(?!typedef)[\w ]+\*?(bccn_\w+)(\([^;{]*\);)", text, re.MULTILINE)
    assert len(found) > 30
    return {name: " ".join((name + rest).split()) for name, rest in found}


def test_each_function_is_on_a_page_as_in_the_header() -> None:
    pages = {path: path.read_text() for path in (FOLDER / "man").iterdir()}
    shown: dict[str, str] = {}
    for path, text in pages.items():
        synopsis, _, _ = text.partition(".SH DESCRIPTION")
        for line in re.findall(
            r'^\.BI? "?(?!typedef)[\w ]*?[ *](bccn_\w+\(.*\);)"?$', synopsis, re.MULTILINE
        ):
            prototype = re.sub(r'" ?(\w+) ?"', r"\1", line)
            name = prototype.partition("(")[0]
            shown[name] = prototype
            assert re.search(rf"^\.SH NAME\n.*\b{name}\b", text, re.MULTILINE), f"{path.name}: {name}"
        assert f'"libbccn {bccn.__version__}"' in text
    assert shown == prototypes()
    words = " ".join(pages.values())
    constants = re.findall(r"\bBCCN_(?:E|NOTICE|FORMAT|TAP|POLICY)_\w+", (FOLDER / "bccn.h").read_text())
    assert [name for name in constants if name not in words and not name.endswith(("_PLAIN", "_OFF"))] == []


def test_the_pages_render_without_a_warning() -> None:
    require("man")
    for path in sorted((FOLDER / "man").iterdir()):
        said = run(
            "man", "--warnings=w", "-l", "-Tutf8", path, LC_ALL="C.UTF-8", MANWIDTH="100", MAN_KEEP_STDERR="1"
        )
        assert "warning" not in said
        assert path.stem in said


@pytest.mark.parametrize(
    ("header", "setting", "outcome"),
    [
        ("today's", "", "0 ok"),
        ("older", "", "0 ok"),
        ("older", "options.echo = 0;", "0 ok"),
        ("newer", "", "0 ok"),
        ("newer", "options.future = 1;", "-1 an option that version 0.1.0 of the library does not know"),
    ],
)
def test_programs_of_other_versions_run(
    shared_daemon: DaemonProcess, tmp_path: Path, header: str, setting: str, outcome: str
) -> None:
    """Of one that knows fewer options, and of one that knows more."""
    make("build/libbccn.a")
    text = (FOLDER / "bccn.h").read_text()
    if header == "older":
        text, cut = re.subn(r"    int (reconnect|separator|timeout|wait);.*\n", "", text)
        text, left_out = re.subn(r", 1, '/', 5000, 0 }", " }", text)
        assert (cut, left_out) == (4, 1)
    if header == "newer":
        text = text.replace("} bccn_options;", "    int future, more;\n} bccn_options;")
        text = text.replace("5000, 0 }", "5000, 0, 0, 0 }")
    (tmp_path / "bccn.h").write_text(text)
    (tmp_path / "program.c").write_text(f"""
        #include "bccn.h"
        #include <stdio.h>
        #include <string.h>
        int main(int count, char **words)
        {{
            struct {{ bccn_options options; unsigned char behind[64]; }} all = {{ BCCN_OPTIONS_INIT, {{ 0 }} }};
            bccn_bus *bus;
            const bccn_message *message;
            memset(all.behind, 255, sizeof all.behind); /* what no option is */
            bccn_options *at = &all.options;
            #define options (*at)
            {setting}
            int code = bccn_open(&bus, words[count - 1], at);
            printf("%d %s", code, code ? bccn_error_text(bus) : "ok");
            if (code == 0 && (bccn_barrier(bus) || bccn_receive(bus, &message, 0)))
                printf(" %s", bccn_error_text(bus));
            bccn_close(bus);
            return 0;
        }}""")
    library = str(FOLDER / "build/libbccn.a")
    run(
        "gcc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        "program",
        "program.c",
        library,
        folder=tmp_path,
    )
    assert run(tmp_path / "program", shared_daemon.socket) == outcome


def test_the_numbers_of_the_version_agree() -> None:
    text = (FOLDER / "bccn.h").read_text()
    found = re.search(
        r'#define BCCN_VERSION "(\d+)\.(\d+)\.(\d+)"\n#define BCCN_VERSION_NUMBER (\d+)\n', text
    )
    assert found
    major, minor, patch, number = map(int, found.groups())
    assert number == 10000 * major + 100 * minor + patch
    assert f"{major}.{minor}.{patch}" == bccn.__version__


def test_golden_vectors() -> None:
    said = make("check")
    count, _, rest = said.partition(" ")
    assert int(count) > 700
    assert rest == "vectors, 0 wrong\n"


def test_callbacks_descriptors_signals_and_errors(daemon: DaemonProcess) -> None:
    make("build/behaviour")
    assert run("build/behaviour", daemon.socket) == ""


def test_broken_connections_full_sockets_and_malformed_packets(daemon: DaemonProcess) -> None:
    make("build/inside")
    said = run("build/inside", daemon.socket).splitlines()
    # Of fifty notices that nobody asked for.
    assert said == ["bccn: no longer allowed: x"] * 10 + ["bccn: 40 more notices were not printed"]


def test_the_cpp_header(daemon: DaemonProcess) -> None:
    make("build/headers")
    unclaimed, rejected, sound = run("build/headers", daemon.socket).splitlines()
    assert unclaimed == "bccn: 1 message without a callback dropped: nobody receives"
    assert rejected.startswith("bccn: MSG no channel: ")
    assert sound == "sound"


def test_closed_streams_do_not_get_the_bus(daemon: DaemonProcess, tmp_path: Path) -> None:
    make("build/worker")
    command = ["build/worker", daemon.socket]
    assert workers.sockets_for_streams(command, FOLDER, tmp_path / "log", daemon, "worker") == []


@pytest.mark.parametrize("program", ["worker", "worker-cpp"])
def test_a_worker_serves_beats_and_survives_a_restart(
    daemon: DaemonProcess, tmp_path: Path, program: str
) -> None:
    make(f"build/{program}")
    log = tmp_path / "worker.log"
    with workers.running([f"build/{program}", daemon.socket], FOLDER, log) as worker:
        name = f"here/{program}/{worker.pid}"
        assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("bccn: ")


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_an_installed_library_serves_programs(daemon: DaemonProcess, tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    for prefix in ("/opt/earlier", "/usr"):
        make("install", f"DESTDIR={root}", f"PREFIX={prefix}")
    assert (root / "usr/lib/pkgconfig/bccn.pc").read_text().startswith("prefix=/usr\n")
    settings = dict(
        line.split(": ", 1)
        for line in (root / "usr/lib/pkgconfig/bccn.pc").read_text().splitlines()
        if ": " in line
    )
    assert settings["Libs"] == "-L${libdir} -lbccn"
    version = settings["Version"]
    assert (root / "usr/lib/libbccn.so").resolve().name == f"libbccn.so.{version}"
    assert (root / f"usr/lib/libbccn.so.{version.split('.')[0]}").is_symlink()
    licence = root / "usr/share/doc/bccn/LICENSE"
    assert licence.read_text() == (CLIENTS.parent / "LICENSE").read_text()
    pages = {path.stem for path in (root / "usr/share/man/man3").iterdir() if path.resolve().exists()}
    assert pages == {"bccn", *prototypes()}
    libraries, headers = root / "usr/lib", root / "usr/include"
    program = tmp_path / "driver"
    # The driver includes the header beside its own folder; here it has to be the installed one.
    (tmp_path / "src").mkdir()
    source = (FOLDER / "conformance/driver.c").read_text().replace('"../bccn.h"', "<bccn.h>")
    (tmp_path / "src/driver.c").write_text(source)
    library = [str(libraries / "libbccn.a")] if kind == "static" else [f"-L{libraries}", "-lbccn"]
    run(
        "gcc",
        "-std=c99",
        "-Wall",
        "-Werror",
        f"-I{headers}",
        "-o",
        program,
        tmp_path / "src/driver.c",
        *library,
    )
    language = Language(
        "c", folder="c", toolchain=TOOLS, run=(str(program),), environ={"LD_LIBRARY_PATH": str(libraries)}
    )
    with Driver(language, tmp_path / "stderr") as driver:
        driver.open(daemon.socket)
        driver("sub", "a")
        driver("pub", "a", "hello")
        assert driver("recv", LATEST) == [b"msg", b"a", b"hello"]


@pytest.mark.parametrize(("language", "compiler"), [("c", "gcc -std=c99"), ("cpp", "g++ -std=c++17")])
def test_the_readme_programs_work(
    daemon: DaemonProcess, tmp_path: Path, language: str, compiler: str
) -> None:
    make("build/libbccn.a")
    found = re.search(rf"```{language}\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / f"readme.{language}").write_text(found[1])
    program = [f"-I{FOLDER}", "-o", "readme", f"readme.{language}", str(FOLDER / "build/libbccn.a")]
    run(*compiler.split(), "-Wall", "-Wextra", "-Werror", *program, folder=tmp_path)
    command, environ = [tmp_path / "readme"], {**os.environ, "BCCN_SOCKET": str(daemon.socket)}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, preexec_fn=die_with_parent
    ) as process:
        if language == "cpp":  # which only receives
            wait_until(
                lambda: workers.is_subscribed(daemon, f"here/readme/{process.pid}"),
                "the program to subscribe",
            )
            with PacketClient(daemon.socket) as client:
                client.publish("sensors/kitchen/temperature", b"21.5")
                client.drain()
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert output.decode().strip().endswith(" 21.5")


C_AROUND = """
#include <bccn.h>
#include <poll.h>
#include <stdio.h>
{functions}
int main(void)
{{
    bccn_bus *bus = NULL;
    const bccn_message *message;
    unsigned long count = 0;
{statements}
    return count > 0;
}}
"""
CPP_AROUND = """
#include <bccn.hpp>
#include <iostream>
using namespace std::chrono_literals;
void pieces(bccn::Bus &bus)
{{
{statements}
}}
"""


@pytest.mark.parametrize(
    ("language", "compiler", "around"),
    [("c", "gcc -std=c99", C_AROUND), ("cpp", "g++ -std=c++17", CPP_AROUND)],
)
def test_the_pieces_of_the_readme_compile(tmp_path: Path, language: str, compiler: str, around: str) -> None:
    _, *pieces = re.findall(rf"```{language}\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    functions = "".join(each for each in pieces if each.startswith("static"))
    statements = "".join(f"{{\n{each}}}\n" for each in pieces if not each.startswith("static"))
    (tmp_path / f"pieces.{language}").write_text(around.format(functions=functions, statements=statements))
    command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", f"-I{FOLDER}", "-fsyntax-only"]
    run(*command, f"pieces.{language}", folder=tmp_path)
