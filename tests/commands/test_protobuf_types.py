"""Messages of protobuf as JSON, and back."""

import argparse
import json
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import bccn
from bccnd.cli import main
from bccnd.commands.protobuf_types import Types, add_arguments, chosen
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
    ("file", "content", "type_name", "line"),
    [
        ("robot.proto", b'syntax = "proto3";', "T", "--proto robot.proto: is a source; make one: protoc"),
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
def test_options_that_do_not_go_together(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], line: str
) -> None:
    file = tmp_path / "set.pb"
    file.write_bytes(SET.SerializeToString())
    code = main(["pub", *(str(file) if each == "SET" else each for each in arguments)])
    err = capfd.readouterr().err
    assert (code, err.count("\n")) == (2, 1), err
    assert line in err
