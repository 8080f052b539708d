"""Messages of protobuf as JSON, and back."""

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

import bccn
from bccnd.cli import main
from bccnd.commands.protobuf_types import Types, add_arguments, chosen, compiled
from bccnd.wire.dndm import messages_pb2 as pb

SET = FileDescriptorSet()
pb.DESCRIPTOR.CopyToProto(SET.file.add())
PACKAGE = pb.DESCRIPTOR.package
PING = f"{PACKAGE}.Intent" if PACKAGE else "Intent"
MESSAGE = pb.Intent(route="T@a\x1b[1m", hops=3, ttl=7, register=True)


def test_a_message_is_one_line_of_json_and_back() -> None:
    types = Types("set.pb", SET.SerializeToString(), PING)
    shown = types.to_json("any/channel", MESSAGE.SerializeToString())
    assert json.loads(shown) == {"route": "T@a\x1b[1m", "hops": "3", "ttl": "7", "register": True}
    assert b"\n" not in shown
    assert b"\x1b" not in shown
    assert pb.Intent.FromString(types.of_json("any/channel", shown.decode())) == MESSAGE


def test_without_a_name_the_channel_says_the_type() -> None:
    types = Types("set.pb", SET.SerializeToString(), "")
    assert types.to_json(f"dndm/a/b/{PING}", b"") == b"{}"
    with pytest.raises(bccn.InvalidError, match=r"^--proto set.pb: has no type 'Unknown'$"):
        types.to_json("dndm/a/b/Unknown", b"")


@pytest.mark.parametrize(
    ("type_name", "text"),
    [("DoubleValue", "2.5"), ("Timestamp", '"2026-01-01T00:00:00Z"'), ("Struct", '{"a": [1.0, null]}')],
)
def test_the_types_of_the_library_are_known_without_a_file(type_name: str, text: str) -> None:
    types = Types("set.pb", SET.SerializeToString(), "")
    channel = f"dndm/room/google.protobuf.{type_name}"
    assert types.to_json(channel, types.of_json(channel, text)).decode() == text


@pytest.mark.parametrize(
    ("file", "content", "type_name", "line"),
    [
        ("set.pb", b"\xff", "T", "--proto set.pb: is no descriptor set"),
        ("set.pb", SET.SerializeToString(), "No", "--proto set.pb: has no type 'No'"),
    ],
)
def test_each_mistake_is_one_line(file: str, content: bytes, type_name: str, line: str) -> None:
    with pytest.raises(bccn.InvalidError) as caught:
        Types(file, content, type_name)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_what_is_no_such_message_is_said_in_one_line() -> None:
    types = Types("set.pb", SET.SerializeToString(), PING)
    for wrong in (lambda: types.to_json("c", b"\xff"), lambda: types.of_json("c", '{"no": 1}')):
        with pytest.raises(bccn.InvalidError) as caught:
            wrong()
        assert f"no {PING}: " in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(bccn.InvalidError, match=r"install it: pip install 'bccnd\[dndm\]'$"):
        Types("set.pb", b"", "T")


def types_of(file: Path, type_name: str) -> Types:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    types = chosen(parser.parse_args(["--proto", str(file), "--type", type_name]))
    assert types is not None
    return types


SOURCE = """syntax = "proto3";
package robot;
import "parts.proto";
import "google/protobuf/timestamp.proto";
message Arm { Hand hand = 1; google.protobuf.Timestamp at = 2; }
"""


def test_a_proto_file_is_compiled_with_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "parts.proto").write_text(
        'syntax = "proto3"; package robot; message Hand { int32 fingers = 1; }'
    )
    (tmp_path / "arm.proto").write_text(SOURCE)
    types = types_of(tmp_path / "arm.proto", "robot.Arm")
    made = types.of_json("c", '{"hand": {"fingers": 5}, "at": "2026-01-01T00:00:00Z"}')
    assert json.loads(types.to_json("c", made)) == {"hand": {"fingers": 5}, "at": "2026-01-01T00:00:00Z"}


def test_a_proto_file_with_a_mistake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "arm.proto").write_text('syntax = "proto3";\nmessage Arm {\n  Nothing hand = 1;\n}')
    with pytest.raises(bccn.InvalidError) as caught:
        types_of(tmp_path / "arm.proto", "Arm")
    assert str(caught.value) == '--proto arm.proto:3:3: "Nothing" is not defined.'


def test_a_proto_file_without_protoc_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arm.proto").write_text(SOURCE)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(bccn.InvalidError, match="needs protoc: install protobuf-compiler"):
        types_of(tmp_path / "arm.proto", "robot.Arm")


def test_the_definitions_of_dndm_are_compiled_from_their_source() -> None:
    source = Path(pb.__file__).with_name("messages.proto")
    (made,) = FileDescriptorSet.FromString(compiled(str(source))).file
    made.name = pb.DESCRIPTOR.name
    for field in [field for message in made.message_type for field in message.field]:
        field.ClearField("json_name")  # which is kept where it is not what follows from the name
    expected = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(expected)
    assert made == expected


def test_options_choose_the_file_and_the_type(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    file = tmp_path / "set.pb"
    file.write_bytes(SET.SerializeToString())
    types = chosen(parser.parse_args(["--proto", str(file), "--type", PING]))
    assert types is not None
    assert types.to_json("c", b"") == b"{}"
    assert chosen(parser.parse_args([])) is None
    with pytest.raises(bccn.InvalidError, match="--type needs --proto"):
        chosen(parser.parse_args(["--type", "T"]))
    with pytest.raises(FileNotFoundError, match="no-such"):
        chosen(parser.parse_args(["--proto", str(tmp_path / "no-such")]))


@pytest.fixture
def signals() -> Iterator[None]:
    """Those that ``main`` has end the process mean afterwards what they did before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGPIPE)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--json", "{}", "a"], "pub: --proto and --json go together"),
        (["--proto", "SET", "a", "x"], "pub: --proto and --json go together"),
        (["--type", "T", "a", "x"], "--type needs --proto"),
        (["--proto", "SET", "--json", "{}", "a", "x"], "pub: give PAYLOAD or an option"),
        (["--proto", "SET", "--json", "{}", "-t", "a"], "pub: --template does not go with --proto"),
        (["--proto", "no-such", "--json", "{}", "a"], "No such file or directory"),
    ],
)
@pytest.mark.usefixtures("signals")
def test_options_that_do_not_go_together(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], line: str
) -> None:
    file = tmp_path / "set.pb"
    file.write_bytes(SET.SerializeToString())
    code = main(["pub", *(str(file) if each == "SET" else each for each in arguments)])
    err = capfd.readouterr().err
    assert (code, err.count("\n")) == (2, 1), err
    assert line in err
