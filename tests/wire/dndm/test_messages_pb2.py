"""What is generated is what ``messages.proto`` gives: field by field, without its compiler."""

import re

from google.protobuf.descriptor import FieldDescriptor

from bccnd.wire.dndm.messages_pb2 import DESCRIPTOR
from tests.documents import ROOT

SOURCE = (ROOT / "bccnd/wire/dndm/messages.proto").read_text()
BLOCK = re.compile(r"^(message|enum) (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"  (repeated )?(\w+) (\w+) = (\d+);\n")
VALUE = re.compile(r"  (\w+) = (\d+);\n")
TYPES = {
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_FLOAT: "float",
}


def blocks(kind: str) -> dict[str, str]:
    return {name: body for found, name, body in BLOCK.findall(SOURCE) if found == kind}


def type_of(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    return named.name if named else TYPES[field.type]


def test_messages_have_the_fields_of_the_source() -> None:
    source = {name: FIELD.findall(body) for name, body in blocks("message").items()}
    assert {name: "".join(body) for name, body in blocks("message").items()} == {
        name: "".join(
            f"  {repeated}{kind} {field} = {number};\n" for repeated, kind, field, number in source[name]
        )
        for name in source
    }
    assert source == {
        name: [
            ("repeated " if field.is_repeated else "", type_of(field), field.name, str(field.number))
            for field in message.fields
        ]
        for name, message in DESCRIPTOR.message_types_by_name.items()
    }


def test_enums_have_the_values_of_the_source() -> None:
    source = {name: VALUE.findall(body) for name, body in blocks("enum").items()}
    assert source == {
        name: [(value.name, str(value.number)) for value in enum.values]
        for name, enum in DESCRIPTOR.enum_types_by_name.items()
    }


def test_it_is_of_this_source_and_package() -> None:
    assert DESCRIPTOR.name == "bccnd/wire/dndm/messages.proto"
    assert f"\npackage {DESCRIPTOR.package};\n" in SOURCE
    assert '\nsyntax = "proto3";\n' in SOURCE
    assert f"--python_out=. --pyi_out=. {DESCRIPTOR.name}" in SOURCE
    assert not DESCRIPTOR.dependencies
