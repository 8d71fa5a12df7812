"""A parser for Protobuf's language (proto2 and proto3), from the text of a file to its descriptor. Pure.

Messages, enums, maps, oneofs, and imports are parsed; services, extensions and custom options are skipped, since they
do not affect the encoding of messages. Type names stay as written; the descriptor pool resolves them.
"""

import re
from collections.abc import Callable, Iterator

from attrs import define, field
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from streams.registry.errors import invalid_schema

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>[\w.+-]+)|(?P<sign>.)""",
    re.DOTALL,
)
_SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def parse(text: str) -> FileDescriptorProto:
    """Return the descriptor of a file in Protobuf's language.

    Raises:
        RegistryError: the text is not a Protobuf file.
    """
    return _Parser(list(_tokens(text))).file()


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            yield match.group()


def _unquoted(token: str) -> str:
    return token[1:-1]


@define
class _Parser:
    _tokens: list[str]
    _at: int = 0
    _is_proto3: bool = False
    _file: FileDescriptorProto = field(factory=FileDescriptorProto)

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise invalid_schema("the file ends within a declaration")
        self._at += 1
        return self._tokens[self._at - 1]

    def _is(self, token: str) -> bool:
        """Consume the next token if it is the given one, and return whether it was."""
        if self._at < len(self._tokens) and self._tokens[self._at] == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        actual = self._next()
        if actual != token:
            raise invalid_schema(
                f"expected {token!r}, found {actual!r} after {' '.join(self._tokens[self._at - 5 : self._at - 1])!r}"
            )

    def _skip(self) -> None:
        """Skip a declaration, up to its semicolon or the end of its block."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in "{[") - (token in "}]")
            if depth == 0 and token in (";", "}"):
                return

    def file(self) -> FileDescriptorProto:
        file = self._file
        while self._at < len(self._tokens):
            word = self._next()
            if word in ("syntax", "edition"):
                self._expect("=")
                file.syntax = _unquoted(self._next())
                self._is_proto3 = file.syntax == "proto3"
                self._expect(";")
            elif word == "package":
                file.package = self._next()
                self._expect(";")
            elif word == "import":
                self._import()
            elif word == "message":
                self._message(file.message_type.add())
            elif word == "enum":
                self._enum(file.enum_type.add())
            elif word in ("option", "service", "extend"):
                self._skip()
            elif word != ";":
                raise invalid_schema(f"{word!r} is no declaration of a Protobuf file")
        return file

    def _import(self) -> None:
        is_public = self._is("public")
        if not is_public:
            self._is("weak")
        self._file.dependency.append(_unquoted(self._next()))
        if is_public:
            self._file.public_dependency.append(len(self._file.dependency) - 1)
        self._expect(";")

    def _block(self, member: Callable[[str], None]) -> None:
        self._expect("{")
        while not self._is("}"):
            word = self._next()
            if word in ("option", "reserved", "extensions", "extend"):
                self._skip()
            elif word != ";":
                member(word)

    def _message(self, message: DescriptorProto) -> None:
        message.name = self._next()
        optional: list[FieldDescriptorProto] = []

        def member(word: str) -> None:
            if word == "message":
                self._message(message.nested_type.add())
            elif word == "enum":
                self._enum(message.enum_type.add())
            elif word == "oneof":
                self._oneof(message)
            elif word == "map" and self._is("<"):
                self._map(message)
            else:
                part = self._field(message, word)
                if self._is_proto3 and word == "optional":
                    optional.append(part)

        self._block(member)
        # The presence of an optional field of proto3 is a oneof of its own, after those that are declared.
        for part in optional:
            part.proto3_optional = True
            part.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{part.name}")

    def _field(self, message: DescriptorProto, word: str) -> FieldDescriptorProto:
        label = _LABELS.get(word, FieldDescriptorProto.LABEL_OPTIONAL)
        kind = self._next() if word in _LABELS else word
        part = message.field.add(label=label)
        _set_type(part, kind)
        self._rest(part)
        return part

    def _rest(self, part: FieldDescriptorProto) -> None:
        """Read the name, number and options of a field."""
        part.name = self._next()
        self._expect("=")
        part.number = self._number()
        if self._is("["):
            self._options(part)
        self._expect(";")

    def _options(self, part: FieldDescriptorProto) -> None:
        depth = 1
        name = ""
        is_name = True
        while True:
            token = self._next()
            depth += (token in "[{") - (token in "]}")
            if depth == 0:
                return
            if depth == 1 and token == ",":
                name = ""
                is_name = True
            elif depth == 1 and token == "=":
                is_name = False
            elif is_name:
                name += token
            elif name == "default":
                part.default_value = _unquoted(token) if token[0] in "\"'" else token
            elif name == "packed":
                part.options.packed = token == "true"

    def _number(self) -> int:
        token = self._next()
        try:
            return int(token, 0)
        except ValueError:
            raise invalid_schema(f"expected a number, found {token!r}") from None

    def _map(self, message: DescriptorProto) -> None:
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        part = message.field.add(label=FieldDescriptorProto.LABEL_REPEATED)
        self._rest(part)
        entry = message.nested_type.add(name=f"{part.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for name, number, kind in (("key", 1, key), ("value", 2, value)):
            inner = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            _set_type(inner, kind)
        part.type_name = entry.name

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())

        def member(word: str) -> None:
            self._field(message, word).oneof_index = index

        self._block(member)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()

        def member(word: str) -> None:
            self._expect("=")
            enum.value.add(name=word, number=self._number())
            if self._is("["):
                self._options(FieldDescriptorProto())
            self._expect(";")

        self._block(member)


def _set_type(part: FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        part.type = FieldDescriptorProto.Type.ValueType(_SCALARS[kind])
    else:
        part.type_name = kind
