"""Where settings come from, which source overrides which, and how faults are reported."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bccnd import __version__
from bccnd.errors import ConfigError, RefusedError
from bccnd.process import configuration
from bccnd.process.configuration import check, effective, load

SOCKET = {"BCCND_SOCKET": "/tmp/bus.sock"}
Write = Callable[[str], str]


@pytest.fixture(autouse=True)
def default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default file that is absent, in place of the one of this machine."""
    path = tmp_path / "default.toml"
    monkeypatch.setattr(configuration, "DEFAULT_FILE", path)
    return path


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str) -> str:
        path = tmp_path / "bccnd.toml"
        path.write_text(content)
        return str(path)

    return written


def complaint(*argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(argv, SOCKET | environ)
    assert caught.value.exit_code == 2
    return str(caught.value)


# -- sources and precedence


def test_each_source_overrides_those_below(write: Write, default_file: Path) -> None:
    file = write("port = 2\ncopies = 2\n[queue]\npackets = 2\nbytes = 200002\n")
    environ = SOCKET | {"BCCND_COPIES": "3", "BCCND_PORT": "3", "BCCND_QUEUE__PACKETS": "3"}
    settings = load(["--config", file, "--port", "4"], environ).settings
    assert settings.port == 4
    assert settings.copies == 3
    assert (settings.queue.packets, settings.queue.bytes) == (3, 200_002)
    assert settings.queue.policy == "drop-oldest"


def test_the_default_file_is_read_unless_another_is_named(write: Write, default_file: Path) -> None:
    assert load([], SOCKET).settings.port == 5400
    default_file.write_text("port = 1")
    named = write("copies = 2")
    assert load([], SOCKET).settings.port == 1
    assert load(["--config", named], SOCKET).settings.port == 5400
    assert load([], SOCKET | {"BCCND_CONFIG": named}).settings.copies == 2
    assert load(["--config", str(default_file)], SOCKET | {"BCCND_CONFIG": named}).settings.copies == 1
    assert load([], SOCKET | {"BCCND_CONFIG": ""}).settings.port == 1


def test_every_flag_gives_its_setting() -> None:
    line = """--host relay01 --socket /bus --socket-mode 0600 --broadcast 127.255.255.255 --port 7
        --interface eth0 --interface eth1 --key-file /k --exit-when-idle"""
    settings = load(line.split(), {}).settings
    assert settings.model_dump(mode="json") | {
        "host": "relay01",
        "socket": "/bus",
        "socket_mode": "0600",
        "broadcast": "127.255.255.255",
        "port": 7,
        "interfaces": ["eth0", "eth1"],
        "key_file": "/k",
        "integrity": "hmac",
        "exit_when_idle": True,
    } == settings.model_dump(mode="json")


def test_a_variable_is_read_as_the_type_of_its_setting() -> None:
    settings = load(
        [],
        SOCKET
        | {
            "BCCND_INTERFACES": "eth0, eth1",
            "BCCND_LOCAL": "",
            "BCCND_EXIT_WHEN_IDLE": "True",
            "BCCND_QUEUE__BLOCK_SECONDS": "0.5",
            "BCCND_DEDUP__UNKNOWN": "drop",
            "BCCND_LOG__LEVEL": "debug",
            "UNRELATED": "x",
        },
    ).settings
    assert settings.interfaces == ("eth0", "eth1")
    assert settings.local == ()
    assert settings.exit_when_idle is True
    assert settings.queue.block_seconds == 0.5
    assert (settings.dedup.unknown, settings.log.level) == ("drop", "debug")


@pytest.mark.parametrize(
    ("uid", "environ", "socket"),
    [
        (0, {}, "/run/bccnd/bus.sock"),
        (0, {"XDG_RUNTIME_DIR": "/run/user/0"}, "/run/bccnd/bus.sock"),
        (1000, {"XDG_RUNTIME_DIR": "/run/user/1000"}, "/run/user/1000/bccnd/bus.sock"),
    ],
)
def test_the_socket_follows_the_user(
    uid: int, environ: dict[str, str], socket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert load([], environ).settings.socket == socket


@pytest.mark.parametrize("environ", [{}, {"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": "run"}])
def test_a_user_without_a_runtime_directory_must_name_the_socket(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError) as caught:
        load([], environ)
    assert str(caught.value) == (
        "default: socket: XDG_RUNTIME_DIR does not name a directory, so there is no default; "
        "give --socket PATH"
    )


@pytest.mark.parametrize(
    ("hostname", "host"),
    [
        ("relay01", "relay01"),
        ("relay01.payments.lan", "relay01"),
        ("a b|c:d/e*f!g?h\u00e4", "a_b_c_d_e_f_g_h_"),
        ("x" * 64 + "y", "x" * 64),
        ("", "localhost"),
    ],
)
def test_the_default_host_is_the_short_host_name(
    hostname: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "gethostname", lambda: hostname)
    assert load([], SOCKET).settings.host == host


# -- faults


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("[queue]\npackets = 0", ["queue.packets: must be at least 1 (got 0)"]),
        ("port = 65536", ["port: must be at most 65535 (got 65536)"]),
        ('port = "5400"', ['port: must be a whole number (got "5400")']),
        ("port = true", ["port: must be a whole number (got true)"]),
        ("[port]\nnumber = 1", ["port: must be a whole number (got a table)"]),
        ("queue = 5", ["queue: must be a table of settings (got 5)"]),
        ("queue.block_seconds = nan", ["queue.block_seconds: must be a number (got nan)"]),
        ("exit_when_idle = 1", ["exit_when_idle: must be true or false (got 1)"]),
        ("socket_mode = 660", ["socket_mode: must be a string (got 660)"]),
        ('socket_owner = ""', ['socket_owner: must be a name (got "")']),
        ("Port = 5401", ["Port: unknown setting (did you mean port?)"]),
        ("[queue]\npackets = 5\n[Queue]\npackets = 6", ["Queue: unknown setting (did you mean queue?)"]),
        ('interfaces = "eth0"', ['interfaces: must be a list of strings (got "eth0")']),
        ("key_file = 1", ["key_file: must be a string, the path of a file (got 1)"]),
        ("rights = []", ["rights: must not be empty: leave it out, or say what is granted (got [])"]),
        ("[rights]\ntap = true", ["rights: must be [[rights]] tables, one for each grant (got a table)"]),
        ('rights = ["all"]', ['[[rights]] 1: must be a table of settings (got "all")']),
        (
            '[[rights]]\n[[rights]]\nuid = "no-such-user"\ngid = "no-such-group"\npublsh = ["a"]',
            [
                '[[rights]] 2: uid: must be a user of this machine, by name or number (got "no-such-user")',
                '[[rights]] 2: gid: must be a group of this machine, by name or number (got "no-such-group")',
                "[[rights]] 2: publsh: unknown setting (did you mean rights.publish?)",
            ],
        ),
        ('integrity = "hmac"', ['integrity: must not be hmac without a key_file (got "hmac")']),
        (
            '[queue]\npolicy = "drop"',
            [
                "queue.policy: must be 'drop-oldest', 'drop-newest', 'block' or 'disconnect' (got \"drop\")",
            ],
        ),
        ("polcy = 1", ["polcy: unknown setting"]),
        ("[queue]\npolcy = 1", ["queue.polcy: unknown setting (did you mean queue.policy?)"]),
        ("packets = 1", ["packets: unknown setting (did you mean queue.packets?)"]),
        ("[quue]\npackets = 1", ["quue: unknown setting (did you mean queue?)"]),
        ('"a\\nb" = 1', ["a\\nb: unknown setting"]),
        ("port = 0\ncopies = 9", ["port: must be at least 1 (got 0)", "copies: must be at most 4 (got 9)"]),
        ("[queue", ["line 1, column 7: expected ']' at the end of a table declaration"]),
        ("port = 1\nport = 2", ["line 2, column 9: cannot overwrite a value"]),
        ("a = " + "[" * 5000, ["nested too deeply for a settings file"]),
    ],
)
def test_each_fault_of_a_file_is_one_line(content: str, lines: list[str], write: Write) -> None:
    file = write(content)
    assert complaint("--config", file).split("\n") == [f"{file}: {line}" for line in lines]


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("BCCND_QUEUE__PACKETS", "0", "must be at least 1 (got 0)"),
        ("BCCND_PORT", "x", 'must be a whole number (got "x")'),
        ("BCCND_PORT", "", 'must be a whole number (got "")'),
        ("BCCND_EXIT_WHEN_IDLE", "maybe", 'must be true or false (got "maybe")'),
        ("BCCND_KEY_FILE", "", 'must be the path of a file, of printable characters (got "")'),
        ("BCCND_QUEU__PACKETS", "1", "unknown setting (did you mean BCCND_QUEUE__PACKETS?)"),
        ("BCCND_PROT", "1", "unknown setting (did you mean BCCND_PORT?)"),
        ("BCCND_FOO", "1", "unknown setting"),
        ("BCCND_RIGHTS", "", "can be set in the file only, as [[rights]] tables"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, problem: str) -> None:
    assert complaint(**{variable: value}) == f"{variable}: {problem}"


def test_variables_of_the_recorder_are_ignored() -> None:
    load(["--config", os.devnull, "--socket", "@x"], {"BCCND_RECORD_KEEP_DAYS": "3", "BCCND_CONFIG": ""})


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--port 99999", "--port: must be at most 65535 (got 99999)"),
        (
            "--socket-mode rw",
            '--socket-mode: must be a string of three or four octal digits, such as "0660" (got "rw")',
        ),
        (
            "--interface a/b",
            '--interface: must be interface names of 1 to 15 ASCII characters, such as eth0 (got "a/b")',
        ),
        ("--prot 1", "unrecognized arguments: --prot 1 (see bccnd --help)"),
        ("--por 1", "unrecognized arguments: --por 1 (see bccnd --help)"),
        ("--port", "argument --port: expected one argument (see bccnd --help)"),
    ],
)
def test_a_wrong_flag_is_named(flags: str, line: str) -> None:
    assert complaint(*flags.split()) == line


def test_a_maximum_below_a_default_is_a_fault() -> None:
    assert complaint(BCCND_QUEUE__MAX_PACKETS="500") == (
        "default: queue.packets: must be at most queue.max_packets, which is 500 (got 10000)"
    )


def test_many_faults_do_not_fill_the_screen(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("".join(f"setting{number} = 1\n" for number in range(100)))
    lines = complaint("--config", file).split("\n")
    assert len(lines) == 6
    assert lines[-1] == "and 95 more"
    looked_for: list[str] = []
    monkeypatch.setattr(configuration, "_hint", lambda name, *_: looked_for.append(name) or "")
    assert complaint("--config", file).endswith("and 95 more")
    assert len(looked_for) == 5  # each costs a millisecond, and a reload stops the daemon meanwhile
    assert len(complaint(BCCND_LOCAL="!" * 9000)) < 250


def test_an_unreadable_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, binary, huge = tmp_path / "absent", tmp_path / "binary", tmp_path / "huge"
    binary.write_bytes(b"port = 1\n\xff")
    huge.write_bytes(b"#" * (configuration.FILE_LIMIT + 1))
    assert complaint("--config", str(absent)) == f"{absent}: no such file"
    assert complaint("--config", "") == "--config: must be the path of a file"
    assert complaint("--config", str(tmp_path)) == f"{tmp_path}: Is a directory"
    assert complaint("--config", str(binary)) == f"{binary}: byte 9 is not UTF-8 text"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert complaint("--config", str(fifo)) == f"{fifo}: is a pipe, which a reload could not read again"
    assert complaint("--config", str(huge)) == f"{huge}: larger than 1048576 bytes, so hardly a settings file"
    assert complaint(BCCND_CONFIG=str(absent)) == f"{absent}: no such file"


def test_an_unreadable_default_file_is_not_ignored(
    default_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(configuration, "_open", refuse)
    with pytest.raises(RefusedError, match="permission denied; make it readable or name another"):
        load([], SOCKET)


# -- --check, --help, --version


def test_check_prints_settings_that_read_back_to_the_same(write: Write, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef\nfedcba9876543210\n")
    keys.chmod(0o600)
    environ = {
        "BCCND_SOCKET": 'a "quoted" \\ path, ü',
        "BCCND_LOCAL": "local/>,a/*/c",
        "BCCND_QUEUE__BLOCK_SECONDS": "0.25",
        "BCCND_EXIT_WHEN_IDLE": "1",
    }
    invocation = load(["--check", "--key-file", str(keys), "--interface", "eth0"], environ)
    assert invocation.check_only
    printed = check(invocation)
    assert f'key_file = "{keys}"  # from --key-file\n' in printed
    assert "block_seconds = 0.25  # from BCCND_QUEUE__BLOCK_SECONDS\n" in printed
    assert "# socket_owner is not set\n" in printed
    assert "port = 5400\n" in printed
    assert "# Keys: 2; the first signs, all verify.\n" in printed
    assert "0123456789abcdef" not in printed
    again = load(["--config", write(printed)], {})
    assert again.settings == invocation.settings
    assert f"port = 5400  # from {tmp_path}/bccnd.toml\n" in effective(again)


def test_rights_read_back_to_the_same(write: Write) -> None:
    assert "\n# no [[rights]]: whoever may open the socket " in effective(load([], SOCKET))
    file = write(
        '[[rights]]\nuid = "root"\ngid = 12\nprogram = "a b*"\npublish = ["a/>", "!", "!h/>"]\n'
        '[[rights]]\n[[rights]]\nuid = "4294967294"\nsubscribe = ["!", ">"]\ntap = true\nbridge = true\nname = ["x*"]'
    )
    first = load(["--config", file], SOCKET)
    assert first.settings.rights[0].uid == 0
    again = load(["--config", write(effective(first))], {})
    assert again.settings == first.settings
    assert len(again.settings.rights) == 3


@pytest.mark.parametrize("setting", ["socket_owner", "socket_group"])
def test_check_finds_a_missing_account(setting: str, write: Write) -> None:
    file = write(f'{setting} = "no-such-account"')
    with pytest.raises(ConfigError, match=rf"^{file}: {setting}: must be a .* of this machine"):
        check(load(["--config", file], SOCKET))


@pytest.mark.parametrize("socket", ["@", "@name", "fd:3"])
def test_permissions_need_a_socket_with_a_path(socket: str) -> None:
    for setting in ("MODE", "OWNER", "GROUP"):
        said = complaint("--socket", socket, **{f"BCCND_SOCKET_{setting}": "0600"})
        assert said.startswith(
            f"BCCND_SOCKET_{setting}: must not be set for a socket that is abstract or inherited"
        )
    printed = effective(load(["--socket", socket], {}))
    assert "# socket_mode is not set\n" in printed


def test_check_refuses_what_the_daemon_refuses(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    with pytest.raises(ConfigError, match="no such file"):
        check(load(["--key-file", str(keys)], SOCKET))
    keys.write_text("0123456789abcdef")
    keys.chmod(0o644)
    with pytest.raises(RefusedError, match="chmod 600"):
        check(load(["--key-file", str(keys)], SOCKET))


def test_help_fits_a_terminal_and_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        load(["--help"], {})
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for flag in configuration.FLAGS:
        assert f"{flag.flag} {flag.metavar}" in text
    for default in ("5400", "255.255.255.255", "0660", "/run/bccnd/bus.sock"):
        assert default in text


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        load(["--version"], {})
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"bccnd {__version__}\n"


def test_importing_reads_no_file_and_no_variable() -> None:
    """A broken environment matters only to ``load``, which makes it one clear line."""
    code = "import bccnd.process.configuration, bccnd.process.logs, bccnd.process.keys"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        env=os.environ
        | {"BCCND_PORT": "x", "BCCND_CONFIG": "/absent", "PYTHONPATH": os.pathsep.join(sys.path)},
    )


# --- numbers that are none, or too long ---

NUMBERS = ["9" * 5000, "0x" + "f" * 6000, "-1", "1e999", "nan", "inf", "٣", "99999999999999999999"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:12])
@pytest.mark.parametrize(
    "toml",
    [
        "port = {}",
        "[queue]\nblock_seconds = {}",
        "[[rights]]\nuid = {}",
        '[[rights]]\nuid = "{}"',
        "copies = [{}]",
    ],
    ids=["whole", "decimal", "uid", "uid as text", "list"],
)
def test_a_wrong_number_in_the_file_is_one_line(tmp_path: Path, toml: str, number: str) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text(toml.format(number))
    with pytest.raises(ConfigError) as caught:
        load(["--config", str(file), "--socket", "/s"], {})
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("number", [*NUMBERS, "1_0", " 7", "0x10", ""], ids=lambda text: text[:12])
@pytest.mark.parametrize(
    ("setting", "prefix"),
    [
        ("BCCND_PORT", ""),
        ("BCCND_QUEUE__BLOCK_SECONDS", ""),
        ("BCCND_METRICS__LISTEN", "127.0.0.1:"),
        ("BCCND_SOCKET", "fd:"),
    ],
)
def test_a_wrong_number_as_text_is_one_line(setting: str, prefix: str, number: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}: ") as caught:
        load([], {"BCCND_SOCKET": "/s", setting: prefix + number})
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300
