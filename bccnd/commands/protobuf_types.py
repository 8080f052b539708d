"""Messages of protobuf as JSON, and back: for ``bccn sub --proto`` and ``bccn pub --proto``.

The types are those of a descriptor set, which protoc makes of .proto files: the library has no compiler. If none is
named it is the last token of the channel, as in those of ``bccnd-dndm`` (``bccnd/wire/DNDM.md``, "Channels").
"""

import argparse
from typing import TYPE_CHECKING

import bccn
from bccnd.commands.arguments import name
from bccnd.commands.streams import reading

if TYPE_CHECKING:
    from google.protobuf.message import Message

COMPILE = "protoc --include_imports --descriptor_set_out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proto",
        metavar="FILE",
        type=name,
        help=f"a descriptor set with the types of messages ({COMPILE}=FILE ...)",
    )
    parser.add_argument(
        "--type",
        metavar="T",
        help="with --proto: the type, such as robot.Image; by default what the last token of the channel says",
    )


def chosen(arguments: argparse.Namespace) -> "Types | None":
    """What the options ask for. Raises ``InvalidError``."""
    if arguments.proto is None:
        if arguments.type is not None:
            raise bccn.InvalidError("--type needs --proto")
        return None
    with reading(arguments.proto), open(arguments.proto, "rb") as file:  # noqa: PTH123 - as ``reading`` says it
        return Types(arguments.proto, file.read(), arguments.type or "")


class Types:
    """``file``: its name, for mistakes. Raises ``InvalidError`` for what is no descriptor set or has no such type."""

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
            what = "is a source" if file.endswith(".proto") else f"is no descriptor set ({_line(error)})"
            raise bccn.InvalidError(
                f"--proto {file}: {what}; make one: {COMPILE}=FILE SOURCE.proto"
            ) from None
        if type_name:
            self._of("")

    def to_json(self, channel: str, payload: bytes) -> bytes:
        """One line of ASCII. Raises ``InvalidError`` for a payload that is no such message."""
        made = self._of(channel)
        try:
            made.ParseFromString(payload)
            shown = self._json.MessageToJson(made, indent=None, preserving_proto_field_name=True)
        except self._faults as error:
            raise bccn.InvalidError(f"{channel}: no {made.DESCRIPTOR.full_name}: {_line(error)}") from None
        return shown.encode()

    def of_json(self, channel: str, text: str) -> bytes:
        """The message. Raises ``InvalidError`` for what is no JSON of it."""
        made = self._of(channel)
        try:
            return self._json.Parse(text, made).SerializeToString()
        except self._faults as error:
            raise bccn.InvalidError(f"--json: no {made.DESCRIPTOR.full_name}: {_line(error)}") from None

    def _of(self, channel: str) -> "Message":
        type_name = self._type or channel.rpartition("/")[2]
        try:
            return self._factory.GetMessageClass(self._pool.FindMessageTypeByName(type_name))()
        except KeyError:
            raise bccn.InvalidError(f"--proto {self._file}: has no type {type_name!r}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
