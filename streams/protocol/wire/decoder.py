"""Generation of message decoders: straight-line code for one version of a message, based on its fields.

Adjacent fields of fixed size, and the length after them, are read by one ``struct`` call.
Every length and count is checked against the remaining bytes before anything is allocated.
This module imports only ``protocol.schema``, ``errors`` and ``source``.
"""

import struct
from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final, NoReturn, Protocol

from attrs import define, field

from streams.protocol.schema import UNKNOWN_TAGS, Array, Bytes, Field, Fields, Fixed, Message, Struct, Text, Type
from streams.protocol.wire.errors import MalformedError
from streams.protocol.wire.source import FieldPlace, FunctionSource

#: Default limit on array elements in a message, which is then limited only by the message size.
UNBOUNDED: Final = 1 << 31


#: Maximum bytes of a string in a request, because names are kept in memory.  Kafka rejects strings above
#: 32,767 bytes; with this higher limit, metadata that is too long still gets a proper error.
REQUEST_TEXT_BYTES: Final = 131_072


class Decode(Protocol):
    """A function that decodes one version of a message.

    It decodes the message at a position in ``data``, and returns the message and the position after it.  ``most_items``
    limits the total number of array elements and unknown tagged fields in the message.
    """

    def __call__(self, data: bytes, position: int, most_items: int = UNBOUNDED, /) -> tuple[Fields, int]:
        """Decode the message at ``position``.

        Raises:
            MalformedError: the bytes cannot be decoded.
        """
        ...


_LONGEST_VARINT_SHIFT: Final = 28


class _Fault(Exception):
    """An invalid value was read; the line of code that raised this error determines the field."""


_FAULTS: Final = (_Fault, struct.error, IndexError, UnicodeDecodeError)


def _wrong_length(length: int, room: int) -> NoReturn:
    if length < 0:
        raise _Fault(f"length {length}, and null is not allowed")
    raise _Fault(f"length {length}, {room} bytes are left")


def _wrong_count(count: int, size: int, room: int) -> NoReturn:
    if count < 0:
        raise _Fault(f"count {count}, and null is not allowed")
    raise _Fault(f"count {count} of at least {size} bytes each, {room} bytes are left")


def _too_many() -> NoReturn:
    raise _Fault("more elements in all arrays together than are taken")


def _too_long(length: int, most: int) -> NoReturn:
    raise _Fault(f"length {length}, {most} bytes are taken")


def _wrong_tag(tag: int, expected: int, actual: int) -> NoReturn:
    raise _Fault(f"tag {tag} ends at byte {actual}, its size says {expected}")


def _long_varint(data: bytes, position: int, low: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte was ``low``.

    Returns the value and the position after it.
    """
    result = low & 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
        shift += 7
        if shift > _LONGEST_VARINT_SHIFT:
            raise _Fault("an integer of more than 5 bytes")


def least_size(type_: Type, version: int, is_flexible: bool, *, is_nullable: bool = False) -> int:
    """Return the minimum encoded size of a value of this type in bytes."""
    match type_:
        case Fixed(size=size):
            return size
        case Text(is_compact=is_compact):
            return 1 if is_flexible and is_compact else 2
        case Bytes() | Array():
            return 1 if is_flexible else 4
        case Struct(fields=fields):
            if is_nullable:
                return 1
            return is_flexible + sum(
                least_size(inner.type, version, is_flexible, is_nullable=inner.is_nullable(version))
                for inner in fields
                if inner.is_in(version) and inner.tag is None
            )


def decoder(message: Message, version: int, most_text: int | None = None) -> Decode:
    """Return a function that decodes this version of the message.

    The function raises ``MalformedError``.  ``most_text`` limits the size of each string in bytes; None means no limit.
    """
    return _Decoder(message, version, most_text).compiled()


@define(eq=False)
class _Decoder:
    message: Message
    version: int
    most_text: int | None = None
    source: FunctionSource = field(factory=FunctionSource)
    # Pending fixed values: variable, layout letter, size, field.
    pending: list[tuple[str, str, int, str]] = field(factory=list)

    @property
    def is_flexible(self) -> bool:
        return self.version >= self.message.flexible

    def compiled(self) -> Decode:
        source = self.source
        source.names.update(
            FAULTS=_FAULTS,
            malformed=self._malformed,
            wrong_length=_wrong_length,
            wrong_count=_wrong_count,
            wrong_tag=_wrong_tag,
            too_many=_too_many,
            too_long=_too_long,
            long_varint=_long_varint,
            unpack_from=struct.unpack_from,
        )
        with source.block(f"def decode(d, p, room={UNBOUNDED}):"):
            source.add("n = len(d)")
            with source.block("try:"):
                result = self._struct(self.message.fields, "")
                source.add(f"return {result}, p")
            with source.block("except FAULTS as fault:"):
                source.add("raise malformed(fault, p, n) from fault")
        return source.compiled("decode", f"<decode {self.message.name} {self.version}>")

    def _malformed(self, fault: Exception, position: int, end: int) -> MalformedError:
        place = self.source.place_of(fault.__traceback__)
        # A position beyond the end means that the last value is cut off.
        name, behind = place.at(max(end - position, 0))
        if isinstance(fault, UnicodeDecodeError):
            reason = "no UTF-8"
        elif isinstance(fault, _Fault):
            reason = str(fault)
        else:
            reason = "the bytes end here"
        return MalformedError(
            reason, api=self.message.name, version=self.version, field=name, position=min(position + behind, end)
        )

    # --- values ---------------------------------------------------------------------------

    def _struct(self, fields: Sequence[Field], path: str) -> str:
        """Generate code that reads the fields in order; return the name of the variable with the result."""
        source = self.source
        items: list[str] = []
        tagged: list[Field] = []
        for item in fields:
            if not item.is_in(self.version):
                items.append(f"{item.name!r}: {item.absent!r}")
            elif item.tag is not None:
                tagged.append(item)
            else:
                items.append(f"{item.name!r}: {self._value(item, f'{path}{item.name}')}")
        self._flush()
        result = source.fresh("s")
        if not self.is_flexible:
            source.add(f"{result} = {{{', '.join(items)}}}")
            return result
        unknown, variables = self._tags(tagged, path)
        items += (f"{item.name!r}: {variable}" for item, variable in zip(tagged, variables, strict=True))
        source.add(f"{result} = {{{', '.join(items)}}}")
        with source.block(f"if {unknown}:"):
            source.add(f"{result}[{UNKNOWN_TAGS!r}] = {unknown}")
        return result

    def _value(self, item: Field, path: str) -> str:
        return self._typed(item.type, path, item.is_nullable(self.version))

    def _typed(self, type_: Type, path: str, is_nullable: bool) -> str:
        """Generate code that reads a value, and return the name of its variable.

        The variable is set only after the code that the next ``_flush`` call generates.
        """
        match type_:
            case Fixed(code=code, size=size):
                variable = self.source.fresh("v")
                self.pending.append((variable, code, size, path))
                return variable
            case Text(is_compact=is_compact):
                length = self._length("h", 2, path, is_compact=is_compact)
                if self.most_text is not None and self.is_flexible and is_compact:
                    limit = f"if {length} > {self.most_text}: too_long({length}, {self.most_text})"
                    self.source.add(limit, FieldPlace((path,)))
                return self._chunk(length, path, is_nullable, "str({}, 'utf-8')")
            case Bytes():
                length = self._length("i", 4, path)
                return self._chunk(length, path, is_nullable, "{}")
            case Array(of=of):
                return self._array(of, path, is_nullable)
            case Struct(fields=fields):
                if not is_nullable:
                    self._flush()
                    return self._struct(fields, f"{path}.")
                return self._nullable_struct(fields, path)

    def _length(self, code: str, size: int, path: str, *, is_compact: bool = True) -> str:
        """Generate code that reads a length or count; return the name of its variable, which is -1 for null."""
        variable = self.source.fresh("k")
        if self.is_flexible and is_compact:
            self._flush()
            self._varint(variable, path)
            self.source.add(f"{variable} -= 1")
        else:
            self.pending.append((variable, code, size, path))
            self._flush()
        return variable

    def _varint(self, variable: str, path: str) -> None:
        source = self.source
        place = FieldPlace((path,))
        source.add(f"{variable} = d[p]; p += 1", place)
        source.add(f"if {variable} > 127: {variable}, p = long_varint(d, p, {variable})", place)

    def _chunk(self, length: str, path: str, is_nullable: bool, form: str) -> str:
        """Generate code that reads as many bytes as the variable ``length`` specifies."""
        source = self.source
        place = FieldPlace((path,))
        variable = source.fresh("v")
        with source.unless(f"{length} == -1", f"{variable} = None", is_needed=is_nullable):
            source.add("q = p + " + length)
            source.add(f"if q > n or {length} < 0: wrong_length({length}, n - p)", place)
            source.add(f"{variable} = {form.format('d[p:q]')}", place)
            source.add("p = q")
        return variable

    def _array(self, of: Type, path: str, is_nullable: bool) -> str:
        source = self.source
        count = self._length("i", 4, path)
        variable = source.fresh("l")
        least = least_size(of, self.version, self.is_flexible)
        with source.unless(f"{count} == -1", f"{variable} = None", is_needed=is_nullable):
            source.add(
                f"if {count} < 0 or {count} * {least} > n - p: wrong_count({count}, {least}, n - p)",
                FieldPlace((path,)),
            )
            source.add(f"room -= {count}")
            source.add("if room < 0: too_many()", FieldPlace((path,)))
            if isinstance(of, Fixed):
                source.add(f"{variable} = list(unpack_from('>%d{of.code}' % {count}, d, p)); p += {of.size} * {count}")
            else:
                add = source.fresh("a")
                source.add(f"{variable} = []; {add} = {variable}.append")
                with source.block(f"for _ in range({count}):"):
                    element = self._typed(of, path, is_nullable=False)
                    self._flush()
                    source.add(f"{add}({element})")
        return variable

    def _nullable_struct(self, fields: Sequence[Field], path: str) -> str:
        source = self.source
        self._flush()
        variable = source.fresh("v")
        marker = source.fresh("k")
        source.add(f"{marker} = d[p]; p += 1", FieldPlace((path,)))
        # One signed byte: negative for null (KIP-893).
        with source.unless(f"{marker} > 127", f"{variable} = None"):
            source.add(f"{variable} = {self._struct(fields, f'{path}.')}")
        return variable

    def _tags(self, tagged: list[Field], path: str) -> tuple[str, list[str]]:
        """Generate code that reads the tagged fields of a structure.

        Returns the name of the variable with the unknown fields, and of one variable for each known field.
        """
        source = self.source
        place = FieldPlace((f"{path}(tagged fields)",))
        unknown = source.fresh("u")
        count = source.fresh("k")
        variables = [source.fresh("t") for _ in tagged]
        for item, variable in zip(tagged, variables, strict=True):
            source.add(f"{variable} = {item.absent!r}")
        source.add(f"{unknown} = None")
        source.add(f"{count} = d[p]; p += 1", place)
        with source.block(f"if {count}:"):
            source.add(f"if {count} > 127: {count}, p = long_varint(d, p, {count})", place)
            source.add(f"if {count} * 2 > n - p: wrong_count({count}, 2, n - p)", place)
            source.add(f"room -= {count}")
            source.add("if room < 0: too_many()", place)
            with source.block(f"for _ in range({count}):"):
                tag = source.fresh("g")
                size = source.fresh("k")
                end = source.fresh("e")
                self._varint(tag, place.names[0])
                self._varint(size, place.names[0])
                source.add(f"{end} = p + {size}")
                source.add(f"if {end} > n: wrong_length({size}, n - p)", place)
                for item, variable in zip(tagged, variables, strict=True):
                    with source.block(f"if {tag} == {item.tag}:"):
                        value = self._value(item, f"{path}{item.name}")
                        self._flush()
                        source.add(f"{variable} = {value}")
                        source.add(f"if p != {end}: wrong_tag({tag}, {end}, p)", FieldPlace((f"{path}{item.name}",)))
                        source.add("continue")
                source.add(f"if {unknown} is None: {unknown} = {{}}")
                source.add(f"{unknown}[{tag}] = d[p:{end}]; p = {end}")
        return unknown, variables

    def _flush(self) -> None:
        """Generate one ``struct`` call that reads all pending values of fixed size."""
        if not self.pending:
            return
        layout = Layout(">" + "".join(code for _, code, _, _ in self.pending))
        unpack = self.source.constant(layout.unpack_from, "U")
        variables = ", ".join(variable for variable, _, _, _ in self.pending)
        place = FieldPlace(tuple(path for _, _, _, path in self.pending), tuple(size for _, _, size, _ in self.pending))
        self.source.add(f"{variables}, = {unpack}(d, p); p += {layout.size}", place)
        self.pending.clear()
