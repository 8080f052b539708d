"""The JavaScript client beyond the conformance suite: its own tests, its types, its worker, what its README shows."""

import json
import os
import re
import subprocess
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from tests.clients import workers
from tests.clients.door import Door
from tests.clients.drivers import CLIENTS, Doorway
from tests.daemon_process import DaemonProcess
from tests.mux.certificates import Certificates
from tests.mux.test_record import NOON, record, rows
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import free_port

FOLDER = CLIENTS / "javascript"
README = (FOLDER / "README.md").read_text()
# A block of JavaScript, and what it prints.
EXAMPLES = re.findall(r"```js\n(.*?)```\n\n?((?: {4}[^\n]*\n)*)", README, re.DOTALL)
FIRST, *PARTS = EXAMPLES
# Where tests/run.sh puts the type checker, which is no part of the project.
CHECKER = Path(__file__).parents[2] / ".venv/typescript/node_modules"
# Node 20 has a WebSocket if it is told so, and later ones by themselves. Node 18 has none, and refuses the flag: what
# takes a WebSocket fails there.
NODE = ("node", "--no-warnings", "--experimental-websocket")
pytestmark = pytest.mark.needs("node")
run = partial(workers.run, folder=FOLDER)


def test_its_own_tests_pass() -> None:
    files = [str(path) for path in sorted(FOLDER.glob("tests/*.test.js"))]
    said = run(*NODE, "--test", "--test-reporter=tap", *files)
    assert re.search(r"^# fail 0$", said, re.MULTILINE), said
    assert int(re.findall(r"^# pass (\d+)$", said, re.MULTILINE)[0]) >= 40
    assert re.search(r"^# skipped 0$", said, re.MULTILINE)


def test_its_types_are_right() -> None:
    """Those of every line, and those that bccn.d.ts promises to programs."""
    require(str(CHECKER / ".bin/tsc"))
    said = run(CHECKER / ".bin/tsc", "--project", ".", "--typeRoots", CHECKER / "@types")
    assert said == ""


def test_it_needs_no_other_package() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    assert [key for key in package if key.endswith("ependencies")] == []
    assert not (FOLDER / "node_modules").exists()
    outside = {
        name
        for path in (FOLDER / "src").rglob("*.js")
        for name in re.findall(r'from "([^."][^"]*)"', path.read_text())
    }
    assert {name for name in outside if not name.startswith("node:")} == set()


def test_a_browser_gets_nothing_of_node() -> None:
    """Nor does anything that a module it loads imports."""
    loaded, new = set[Path](), {FOLDER / "src/browser.js"}
    while new:
        loaded |= new
        texts = {path: path.read_text() for path in new}
        new = {
            (path.parent / name).resolve()
            for path, text in texts.items()
            for name in re.findall(r'from "(\.[^"]*)"', text)
        } - loaded
    assert len(loaded) > 20
    assert [path for path in loaded if "node:" in path.read_text() or "process." in path.read_text()] == []


def test_modules_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in FOLDER.rglob("*.js")}
    assert {name: lines for name, lines in lengths.items() if lines > 420} == {}


def test_a_worker_that_is_interrupted_leaves_in_order(
    shared_daemon: DaemonProcess, doorway: Doorway, tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    command = ["node", "examples/worker.js", doorway.to(str(shared_daemon.socket))]
    assert workers.end_at_ctrl_c(command, FOLDER, log) == ("0 done\n", 0)
    assert log.read_text() == ""
    once_it_listens = "const look = () => listenerCount('SIGINT') ? kill(pid, 'SIGINT') : setImmediate(look)"
    interrupted = f"with (process) {{ {once_it_listens}; look() }}; import('./examples/worker.js')"
    assert run("node", "--eval", interrupted, BCCN_CONNECT=f"unix:{tmp_path}/none.sock") == ""


def test_the_worker_serves_beats_and_survives_a_restart(
    daemon: DaemonProcess, doorway: Doorway, tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    command = ["node", "examples/worker.js", doorway.to(str(daemon.socket))]
    with workers.running(command, FOLDER, log) as worker:
        name = f"here/node/{worker.pid}"
        assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("worker: ")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of a program that has the package."""
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/bccn").symlink_to(FOLDER)
    return tmp_path


def test_the_first_program_of_the_readme_works(
    daemon: DaemonProcess, doorway: Doorway, installed: Path
) -> None:
    (installed / "first.mjs").write_text(FIRST[0])
    with subprocess.Popen(
        ["node", "first.mjs"],
        cwd=installed,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BCCN_CONNECT": doorway.to(str(daemon.socket))},
    ) as example:
        assert example.stdout
        assert example.stdout.readline() == "sensors/kitchen/temperature 21.5\n"
        with PacketClient(daemon.socket) as client:
            client.publish("sensors/cellar/temperature", b"12")
            client.drain()
        assert example.stdout.readline() == "sensors/cellar/temperature 12\n"
        example.kill()
        example.wait(PATIENCE)


def test_the_examples_of_the_readme_work(daemon: DaemonProcess, doorway: Doorway, installed: Path) -> None:
    """All in one program, each in a block of its own; imports go first."""
    imports = "".join(re.findall(r"^import .*\n", "".join(code for code, _ in PARTS), re.MULTILINE))
    bodies = "".join(f"{{\n{re.sub(r'^import .*$', '', code, flags=re.MULTILINE)}}}\n" for code, _ in PARTS)
    program = (
        'import { connect } from "bccn";\n' + imports
        + "const bus = await connect({ pack: true, onNotice() {} });\n" + bodies + "await bus.close();\n"
    )  # fmt: skip
    (installed / "examples.mjs").write_text(program)
    said = run("node", "examples.mjs", folder=installed, BCCN_CONNECT=doorway.to(str(daemon.socket)))
    assert said == "".join(dedent(printed) for _, printed in PARTS)


@pytest.mark.needs("openssl")
def test_by_tls_it_is_the_user_of_its_certificate(
    shared_daemon: DaemonProcess, tmp_path: Path, installed: Path
) -> None:
    made, port = Certificates(tmp_path / "made", "door", "reports", "stranger"), free_port()
    certificate, key = made.files("door")
    files = ["--certificate", str(certificate), "--key", str(key), "--authorities", str(made.ca)]
    door = Door(tmp_path, shared_daemon.socket, "--listen", f"tls://127.0.0.1:{port}", *files)
    door.config.write_text('[[mux.peers]]\nname = "reports"\nuser = 1000\ngroups = [1000]\n')
    (installed / "come.mjs").write_text(
        'import { connect } from "bccn";\n'
        "const [ca, cert, key] = process.argv.slice(2);\n"
        "try {\n"
        '  const bus = await connect({ ca, cert, key, serverName: "door" });\n'
        "  console.log(bus.name);\n"
        "  await bus.close();\n"
        "} catch (error) {\n"
        "  console.log(error.code, error.message);\n"
        "}\n"
    )
    with door:
        names = [
            run(
                "node",
                "come.mjs",
                made.ca,
                *made.files(name),
                folder=installed,
                BCCN_CONNECT=f"tls://127.0.0.1:{port}",
            )
            for name in ("reports", "stranger")
        ]
    assert re.fullmatch(r"here/reports/n\d+\n", names[0])
    assert names[1] == "refused the certificate of stranger is no user's here (refused)\n"


def test_by_websocket_it_is_the_user_of_its_token(
    shared_daemon: DaemonProcess, tmp_path: Path, installed: Path
) -> None:
    port, tokens = free_port(), tmp_path / "tokens"
    tokens.write_text("sixteen-letters-1\n")
    tokens.chmod(0o600)
    door = Door(tmp_path, shared_daemon.socket, "--web", f"127.0.0.1:{port}")
    door.config.write_text(
        f'[[mux.tokens]]\nname = "board"\nfile = "{tokens}"\nuser = 1000\ngroups = [1000]\n'
    )
    (installed / "come.mjs").write_text(
        'import { connect } from "bccn";\n'
        "const [token] = process.argv.slice(2);\n"
        "try {\n"
        "  const bus = await connect({ token });\n"
        '  await bus.subscribe("local/web");\n'
        '  await bus.publish("local/web", "x".repeat(60_000));\n'
        "  console.log(bus.name, (await bus.receive()).payload.length);\n"
        "  await bus.close();\n"
        "} catch (error) {\n"
        "  console.log(error.code);\n"
        "}\n"
    )
    with door:
        said = [
            run(
                *NODE,
                "come.mjs",
                f"sixteen-letters-{number}",
                folder=installed,
                BCCN_CONNECT=f"ws://127.0.0.1:{port}/bus",
            )
            for number in (1, 2)
        ]
    assert re.fullmatch(r"here/board/n\d+ 60000\n", said[0]), said[0]
    assert said[1] == "unavailable\n"


def test_a_recording_is_replayed_from_a_real_door(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    record(tmp_path / "recorded", (0, 10, [rows(1, payload=b"one"), rows(2, payload=b"two")])).end()
    program = f"""
        import {{ connect }} from "{FOLDER}/src/node.js";
        const bus = await connect({{ address: process.argv[1], onNotice: ({{ kind }}) => console.log(kind) }});
        const span = {{ from: {NOON}n, to: {NOON + 10}n }};
        const replayed = bus.replay("a/>", span);
        for await (const {{ timeNs, seq, text }} of replayed) console.log(`${{timeNs}} ${{seq}} ${{text}}`);
        await bus.replay("a*b", span).next().catch((error) => console.log(error.code));
        await bus.close();
    """
    with Door(tmp_path, shared_daemon.socket, "--recorded", str(tmp_path / "recorded")) as door:
        said = run("node", "--no-warnings", "--input-type=module", "-e", program, door.address)
    assert said.splitlines() == [f"{NOON + 1} 1 one", f"{NOON + 2} 2 two", "bad-pattern"]
