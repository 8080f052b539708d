"""systemd's own judgement of the units and of what is installed with them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bccnd.backbone.settings import load as load_backbone
from bccnd.dndm.settings import load as load_dndm
from bccnd.mux.settings import load as load_mux
from bccnd.pipeline import collect
from bccnd.pipeline.cli import arguments
from bccnd.process.configuration import load
from bccnd.process.descriptors import SPARE
from bccnd.recorder.settings import load as load_recorder
from bccnd.uplink.settings import load as load_uplink

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "systemd"
UNITS = sorted(path for end in ("service", "socket", "timer") for path in FOLDER.glob(f"*.{end}"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
MOST_EXPOSURE = 1.5

pytestmark = pytest.mark.needs("systemd-analyze")


def name_of(unit: Path) -> str:
    return unit.name


def settings_of(unit: Path) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        settings.setdefault(key, []).append(value)
    return settings


def test_the_units_are_all_there() -> None:
    assert [unit.name for unit in UNITS] == [
        "bccnd-backbone.service", "bccnd-collect@.service", "bccnd-collect@.timer", "bccnd-dndm.service",
        "bccnd-mux.service",
        "bccnd-pipeline.service",
        "bccnd-pipeline.timer", "bccnd-record.service", "bccnd-uplink.service", "bccnd.service", "bccnd.socket",
    ]  # fmt: skip


def test_systemd_verifies_the_units(tmp_path: Path) -> None:
    """With another program's path, as ours need not be installed where the tests run."""
    for unit in UNITS:
        text = re.sub(
            r"/usr/bin/bccnd(-record|-pipeline|-collect|-backbone|-uplink|-mux|-dndm)?\b",
            shutil.which("true") or "",
            unit.read_text(),
        )
        (tmp_path / unit.name).write_text(re.sub("^Documentation=.*\n", "", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / unit.name for unit in UNITS)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("timer", [unit for unit in UNITS if unit.suffix == ".timer"], ids=name_of)
def test_a_timer_names_times_that_systemd_knows(timer: Path) -> None:
    (when,) = settings_of(timer)["OnCalendar"]
    subprocess.run(["systemd-analyze", "calendar", when], check=True, capture_output=True)
    assert timer.with_suffix(".service") in UNITS


@pytest.mark.parametrize("unit", SERVICES, ids=name_of)
def test_a_service_exposes_little(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={int(MOST_EXPOSURE * 10)}", unit],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposure) <= MOST_EXPOSURE, done.stdout


@pytest.mark.parametrize("key", ["ExecStart", "ExecReload"])
def test_the_unit_uses_flags_that_the_program_knows(key: str) -> None:
    program, *argv = settings_of(FOLDER / "bccnd.service")[key][0].split()
    assert program == "/usr/bin/bccnd"
    invocation = load([*argv, "--config", "/dev/null"], {})
    assert invocation.settings.socket == "/run/bccnd/bus.sock"
    assert invocation.check_only == (key == "ExecReload")


def test_the_recorder_unit_fits_the_socket_and_its_folder() -> None:
    unit = settings_of(FOLDER / "bccnd-record.service")
    program, *argv = unit["ExecStart"][0].split()
    assert program == "/usr/bin/bccnd-record"
    settings = load_recorder([*argv, "--config", str(ROOT / "etc" / "record.toml")], {}).settings
    assert settings.socket == load(["--config", "/dev/null"], {}).settings.socket
    assert settings.output == Path("/var/lib") / unit["StateDirectory"][0]


@pytest.mark.parametrize("key", ["ExecStart", "ExecReload"])
def test_the_backbone_unit_uses_its_flags_and_folder(key: str) -> None:
    unit = settings_of(FOLDER / "bccnd-backbone.service")
    program, *argv = unit[key][0].replace("%S", "/var/lib").split()
    assert program == "/usr/bin/bccnd-backbone"
    invocation = load_backbone([*argv, "--config", "/dev/null"], {})
    assert invocation.settings.endpoint == ("0.0.0.0", 4900)  # noqa: S104 - behind its unit
    assert invocation.settings.state == Path("/var/lib", unit["StateDirectory"][0], "sequence")
    assert invocation.check_only == (key == "ExecReload")


@pytest.mark.parametrize("key", ["ExecStart", "ExecReload"])
def test_the_uplink_unit_uses_its_flags_and_folder(key: str) -> None:
    unit = settings_of(FOLDER / "bccnd-uplink.service")
    program, *argv = unit[key][0].replace("%S", "/var/lib").split()
    assert program == "/usr/bin/bccnd-uplink"
    sample = str(ROOT / "etc" / "uplink.toml")
    invocation = load_uplink([sample if word == "/etc/bccnd/uplink.toml" else word for word in argv], {})
    assert invocation.file == sample
    assert invocation.settings.journal == Path("/var/lib", unit["StateDirectory"][0], "journal")
    assert invocation.check_only == (key == "ExecReload")


@pytest.mark.parametrize("key", ["ExecStart", "ExecReload"])
def test_the_mux_unit_uses_its_flags_and_has_descriptors(key: str) -> None:
    unit = settings_of(FOLDER / "bccnd-mux.service")
    program, *argv = unit[key][0].split()
    assert program == "/usr/bin/bccnd-mux"
    invocation = load_mux([*argv, "--config", str(ROOT / "etc" / "mux.toml")], {})
    settings = invocation.settings
    assert settings.listen == ("unix:/run/bccnd/mux.sock",)
    assert (settings.web, settings.web_publish) == ("", False)  # there is a page if the file says so
    assert settings.connections + settings.sessions + SPARE <= int(unit["LimitNOFILE"][0])
    assert invocation.check_only == (key == "ExecReload")


@pytest.mark.parametrize("key", ["ExecStart", "ExecReload"])
def test_the_dndm_unit_uses_its_flags(key: str) -> None:
    unit = settings_of(FOLDER / "bccnd-dndm.service")
    program, *argv = unit[key][0].split()
    assert program == "/usr/bin/bccnd-dndm"
    sample = str(ROOT / "etc" / "dndm.toml")
    invocation = load_dndm([sample if word == "/etc/bccnd/dndm.toml" else word for word in argv], {})
    assert (invocation.file, invocation.check_only) == (sample, key == "ExecReload")


def test_with_serial_lines_the_dndm_unit_exposes_little(tmp_path: Path) -> None:
    """The lines of a drop-in that the unit itself has as a comment."""
    text = re.sub("^PrivateDevices=yes$", "", (FOLDER / "bccnd-dndm.service").read_text(), flags=re.MULTILINE)
    lines = "PrivateDevices|DeviceAllow|SupplementaryGroups"
    dropped = re.sub(rf"^#({lines})=", r"\1=", text, flags=re.MULTILINE)
    assert dropped.count("DeviceAllow=char-tty") == 2
    unit = tmp_path / "bccnd-dndm.service"
    unit.write_text(dropped)
    test_a_service_exposes_little(unit)


def test_the_pipeline_unit_uses_what_the_collecting_one_fetches() -> None:
    collecting, pipeline = (
        settings_of(FOLDER / f"bccnd-{name}.service") for name in ("collect@", "pipeline")
    )
    assert collecting["StateDirectory"] == pipeline["StateDirectory"]
    # The second when the first fails, too.
    runs = [command.split() for name in ("ExecStart", "ExecStopPost") for command in pipeline[name]]
    run, maintain = (arguments(argv) for program, *argv in runs if program == "/usr/bin/bccnd-pipeline")
    recorded = "/var/lib/" + collecting["StateDirectory"][0].split()[1]
    assert (run.action, maintain.action, run.input) == ("run", "maintain", recorded)
    assert run.output == maintain.output == str(Path(recorded).parent)
    assert f" --output {recorded} " in collecting["ExecStart"][0]
    (days,) = re.findall(r"parquet\* -mtime \+(\d+)", pipeline["ExecStopPost"][0])
    # What is removed would be fetched again; it was a day ahead, perhaps.
    assert int(days) >= collect.NEWEST - collect.OLDEST
    recorder = load_recorder(["--output", "x", "--config", "/dev/null"], {}).settings
    assert recorder.keep_days <= -collect.OLDEST
    assert recorder.keep_bytes < collect.size(collect.QUOTA)
    assert f"QUOTA={collect.QUOTA}" in collecting["Environment"]
    assert (
        f"(`Environment=QUOTA={collect.QUOTA}`), in {collect.MOST_FILES:,} files"
        in (ROOT / "bccnd" / "pipeline" / "README.md").read_text()
    )


def test_socket_and_service_name_the_same_path() -> None:
    socket = settings_of(FOLDER / "bccnd.socket")
    assert socket["ListenSequentialPacket"] == ["/run/bccnd/bus.sock"]
    assert socket["SocketMode"] == [load(["--config", "/dev/null"], {}).settings.socket_mode]


def test_sysctl_allows_the_buffer_that_the_daemon_asks_for() -> None:
    (allowed,) = re.findall(
        r"^net\.core\.rmem_max = (\d+)$", (FOLDER / "sysctl.d/bccnd.conf").read_text(), re.MULTILINE
    )
    assert int(allowed) == load(["--config", "/dev/null"], {}).settings.buffers.receive_bytes


def test_the_memory_is_enough_for_the_default_settings() -> None:
    settings = load(["--config", "/dev/null"], {}).settings
    kernel = settings.limits.clients * settings.buffers.client_bytes * 6 // 5
    own = settings.queue.total_bytes + 64 * settings.limits.subscription_bytes
    (allowed,) = settings_of(FOLDER / "bccnd.service")["MemoryMax"]
    gib, needed = int(allowed.removesuffix("G")), kernel + 2 * own + (1 << 29)
    assert gib << 30 >= needed
    assert f"That makes {needed / (1 << 30):.1f} GiB" in (FOLDER / "README.md").read_text()


def test_the_documented_command_installs_the_collecting_units(tmp_path: Path) -> None:
    readme = (ROOT / "bccnd" / "pipeline" / "README.md").read_text()
    (command,) = re.findall(r"```sh\n(install -Dm644.*?)```", readme, re.DOTALL)
    subprocess.run(
        ["sh", "-euc", command], cwd=ROOT, env={**os.environ, "DESTDIR": str(tmp_path)}, check=True
    )
    found = sorted(path.name for path in (tmp_path / "usr/lib/systemd/system").iterdir())
    assert found == [unit.name for unit in UNITS if re.match("bccnd-(collect|pipeline)", unit.name)]


def test_the_documented_commands_install_it(tmp_path: Path) -> None:
    """The commands of systemd/README.md, into a folder in place of the host's root."""
    readme = (ROOT / "systemd" / "README.md").read_text()
    (block,) = re.findall(r"```sh\n(install -Dm644.*?)```", readme, re.DOTALL)
    commands = block.splitlines()
    placing = [line for line in commands if line.startswith("install ")]
    subprocess.run(
        ["sh", "-euc", "\n".join(placing)], cwd=ROOT, env={**os.environ, "DESTDIR": str(tmp_path)}, check=True
    )
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {
        "usr/lib/systemd/system/bccnd.service", "usr/lib/systemd/system/bccnd.socket",
        "usr/lib/systemd/system/bccnd-record.service",
        "usr/lib/sysusers.d/bccnd.conf", "usr/lib/tmpfiles.d/bccnd.conf", "usr/lib/sysctl.d/bccnd.conf",
        "etc/bccnd/bccnd.toml",
    }  # fmt: skip
    assert "systemd-sysusers" in block
    assert "systemd-tmpfiles --create" in block
    (tmp_path / "etc/bccnd/keys").write_text("not yet private")
    (tmp_path / "etc/bccnd/keys").chmod(0o644)
    if os.geteuid() != 0:
        return
    for account in "passwd", "group":
        shutil.copy(f"/etc/{account}", tmp_path / "etc")
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}"], check=True, capture_output=True)
    assert re.search(
        r"^bccnd:x:\d+:\d+:.*:/usr/sbin/nologin$", (tmp_path / "etc/passwd").read_text(), re.MULTILINE
    )
    assert re.search(r"^bccnd:x:\d+:$", (tmp_path / "etc/group").read_text(), re.MULTILINE)
    subprocess.run(
        ["systemd-tmpfiles", f"--root={tmp_path}", "--create", "bccnd.conf"], check=True, capture_output=True
    )
    assert (tmp_path / "etc/bccnd/keys").stat().st_mode & 0o7777 == 0o600
