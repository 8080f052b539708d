"""Messages of protobuf as JSON, and back: for ``bccn sub --proto`` and ``bccn pub --proto``.

The types come from a .proto file, or from a descriptor set that protoc made; the library itself reads only sets.
Without ``--type``, the last token of the channel names the type, as in channels of ``bccnd-dndm``
(``bccnd/wire/DNDM.md``, "Channels"). Types of ``google.protobuf`` that come with the library need not be in the file.
"""

import argparse
from contextlib import suppress
from functools import cache

import bccn
from bccnd.commands.arguments import name
from bccnd.commands.streams import reading

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

SOURCE = ".proto"
COMPILE = "protoc --include_imports --descriptor_set_out"
WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proto",
        metavar="FILE",
        type=name,
        help="the types of messages: a .proto file, if protoc is installed, or a descriptor set made by protoc",
    )
    parser.add_argument(
        "--type",
        metavar="T",
        help="with --proto: the type, such as robot.Image; by default the last token of the channel",
    )


def chosen(arguments: argparse.Namespace) -> "Types | None":
    """The types that the options name; None without ``--proto``. Raises ``InvalidError``."""
    if arguments.proto is None:
        if arguments.type is not None:
            raise bccn.InvalidError("--type needs --proto")
        return None
    with reading(arguments.proto), open(arguments.proto, "rb") as file:  # noqa: PTH123 - as ``reading`` says it
        content = file.read()
    if arguments.proto.endswith(SOURCE):
        content = compiled(arguments.proto)
    return Types(arguments.proto, content, arguments.type or "")


def compiled(file: str) -> bytes:
    """The descriptor set of a .proto file. Its imports are looked up in its folder.

    Raises ``InvalidError`` without protoc, and with the first line of protoc's complaint.
    """
    # Imported here, so that other commands that import this module do not start more slowly.
    import importlib.util
    import shutil
    import subprocess
    import sys
    import tempfile
    from pathlib import Path

    if path := shutil.which("protoc"):
        protoc = [path]
    elif importlib.util.find_spec("grpc_tools"):
        protoc = [sys.executable, "-m", "grpc_tools.protoc"]
    else:
        text = (
            "needs protoc: install protobuf-compiler (Debian) or grpcio-tools (pip), or give a descriptor set"
        )
        raise bccn.InvalidError(f"--proto {file}: {text}")
    source = Path(file)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        command = [*protoc, "-I.", "--include_imports", f"--descriptor_set_out={made}", source.name]
        ended = subprocess.run(command, cwd=source.parent, capture_output=True, text=True, check=False)
        if ended.returncode:
            said = ended.stderr.strip().partition("\n")[0]
            raise bccn.InvalidError(f"--proto {said or f'{file}: protoc ended with {ended.returncode}'}")
        return made.read_bytes()


class Types:
    """``file``: its name, for errors. Raises ``InvalidError`` if it is no descriptor set, or lacks the type."""

    def __init__(self, file: str, content: bytes, type_name: str) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory
        except ImportError as error:
            text = f"protobuf cannot be loaded ({error}); install it: pip install 'bccnd[dndm]'"
            raise bccn.InvalidError(text) from None
        self._file, self._type = file, type_name
        self._json, self._factory = json_format, message_factory
        self._faults = message.DecodeError, message.EncodeError, json_format.Error, TypeError, ValueError
        self._pool = descriptor_pool.DescriptorPool()
        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(content)
            for each in found.file:
                self._pool.AddSerializedFile(each.SerializeToString())
        except (message.DecodeError, TypeError, ValueError) as error:
            text = f"is no descriptor set ({_line(error)}); make one: {COMPILE}=SET SOURCE.proto"
            raise bccn.InvalidError(f"--proto {file}: {text}") from None
        if type_name:
            self._of("")

    def to_json(self, channel: str, payload: bytes) -> bytes:
        """The message as one line of ASCII. Raises ``InvalidError`` for a payload that is no such message."""
        made = self._of(channel)
        try:
            made.ParseFromString(payload)
            shown = self._json.MessageToJson(made, indent=None, preserving_proto_field_name=True)
        except self._faults as error:
            raise bccn.InvalidError(f"{channel}: no {made.DESCRIPTOR.full_name}: {_line(error)}") from None
        return shown.encode()

    def of_json(self, channel: str, text: str) -> bytes:
        """The payload of a message in JSON. Raises ``InvalidError`` for any other text."""
        made = self._of(channel)
        try:
            return self._json.Parse(text, made).SerializeToString()
        except self._faults as error:
            raise bccn.InvalidError(f"--json: no {made.DESCRIPTOR.full_name}: {_line(error)}") from None

    def _of(self, channel: str) -> "Message":
        type_name = self._type or channel.rpartition("/")[2]
        for pool in (self._pool, _well_known()):
            with suppress(KeyError):
                return self._factory.GetMessageClass(pool.FindMessageTypeByName(type_name))()
        raise bccn.InvalidError(f"--proto {self._file}: has no type {type_name!r}")


@cache
def _well_known() -> "DescriptorPool":
    from importlib import import_module

    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for each in WELL_KNOWN:
        pool.AddSerializedFile(import_module(f"google.protobuf.{each}_pb2").DESCRIPTOR.serialized_pb)
    return pool


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
