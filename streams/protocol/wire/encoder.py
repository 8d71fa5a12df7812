"""Generation of message encoders: straight-line code for one version of a message, based on its fields.

An encoder returns a list of chunks, so that record batches are sent without copying.
This module imports only ``protocol.schema``, ``errors``, ``source`` and ``core.serdes.varints``.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from struct import Struct as Layout
from typing import Any, Final, TypeAlias

from attrs import define, field

from streams.core.serdes.varints import uvarint
from streams.protocol.schema import UNKNOWN_TAGS, Array, Bytes, Field, Fields, Fixed, Message, Struct, Text, Type
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.source import FieldPlace, FunctionSource

#: Encodes a message as chunks of bytes.
Encode: TypeAlias = Callable[[Fields], list[bytes]]


class _Fault(Exception):
    """A value cannot be encoded; the line of code that raised this error determines the field."""


_FAULTS: Final = (_Fault, struct.error, KeyError, TypeError, AttributeError, ValueError, OverflowError)


class _Uvarints(dict[int, bytes]):
    """Unsigned varints by number, which are cached for small numbers and computed for others."""

    def __missing__(self, number: int) -> bytes:
        if number < 0:
            raise _Fault(f"length {number}")
        encoded = uvarint(number)
        if number < 16_384:
            self[number] = encoded
        return encoded


_UVARINTS: Final = _Uvarints()


def _null() -> None:
    raise _Fault("None is not allowed")


def _unknown_to(version: int, since: int, until: int) -> None:
    """Raise ``_Fault``, because this version does not support a value."""
    versions = f"{since} or later" if version < since else f"{until} or earlier"
    raise _Fault(f"not supported by this version, but by version {versions}")


def _chunks(records: Any) -> tuple[int, Sequence[bytes]]:
    """Return the total size and the chunks of encoded record batches; the size is -1 if ``records`` is None."""
    if records is None:
        return -1, ()
    if isinstance(records, list | tuple):
        return sum(map(len, records)), records
    return len(records), (records,)


def _tagged(fields: Sequence[tuple[int, list[bytes]]], unknown: Mapping[int, bytes]) -> bytes:
    """Return the encoded tagged fields, ordered by tag."""
    values = {tag: b"".join(chunks) for tag, chunks in fields} | dict(unknown)
    parts = [_UVARINTS[len(values)]]
    for tag in sorted(values):
        parts += (_UVARINTS[tag], _UVARINTS[len(values[tag])], values[tag])
    return b"".join(parts)


def _differs(expression: str, item: Field) -> str:
    """Return the Python condition that is true if the value of a field differs from its default."""
    # An empty array may be a list or a tuple.
    return expression if item.absent == () else f"{expression} != {item.absent!r}"


def encoder(message: Message, version: int) -> Encode:
    """Return a function that encodes this version of the message; the function raises ``EncodingError``."""
    return _Encoder(message, version).compiled()


@define(eq=False)
class _Encoder:
    message: Message
    version: int
    source: FunctionSource = field(factory=FunctionSource)
    # Pending fixed values: expression, layout letter, size, field.
    pending: list[tuple[str, str, int, str]] = field(factory=list)
    # The variable that holds the current list of chunks.
    out: str = "o"

    @property
    def is_flexible(self) -> bool:
        return self.version >= self.message.flexible

    def compiled(self) -> Encode:
        source = self.source
        source.names.update(
            FAULTS=_FAULTS,
            unencodable=self._unencodable,
            null=_null,
            unknown_to=_unknown_to,
            chunks=_chunks,
            tagged=_tagged,
            pack=struct.pack,
            UV=_UVARINTS,
        )
        with source.block("def encode(m):"):
            with source.block("try:"):
                source.add("o = []")
                self._struct(self.message.fields, "m", "")
                source.add("return o")
            with source.block("except FAULTS as fault:"):
                source.add("raise unencodable(fault) from fault")
        return source.compiled("encode", f"<encode {self.message.name} {self.version}>")

    def _unencodable(self, fault: Exception) -> EncodingError:
        place = self.source.place_of(fault.__traceback__)
        if isinstance(fault, KeyError):
            missing = str(fault.args[0])
            name = next((name for name in place.names if name.split(".")[-1] == missing), missing)
            reason = "the value is missing"
        else:
            name = " or ".join(place.names)
            reason = str(fault) if isinstance(fault, _Fault) else f"the value does not fit: {fault}"
        return EncodingError(reason, api=self.message.name, version=self.version, field=name)

    # --- values ---------------------------------------------------------------------------

    def _struct(self, fields: Sequence[Field], holder: str, path: str) -> None:
        """Generate code that writes the fields of the dict in the variable ``holder``, in order."""
        tagged: list[Field] = []
        for item in fields:
            if not item.is_in(self.version):
                self._refuse(item, holder, f"{path}{item.name}")
            elif item.tag is not None:
                tagged.append(item)
            else:
                self._typed(item.type, self._get(item, holder), f"{path}{item.name}", item.is_nullable(self.version))
        self._flush()
        if self.is_flexible:
            self._tags(tagged, holder, path)
        else:
            assert not tagged, f"{self.message.name}: tagged fields need a flexible version"

    def _get(self, item: Field, holder: str) -> str:
        if item.is_required:
            return f"{holder}[{item.name!r}]"
        return f"{holder}.get({item.name!r}, {item.absent!r})"

    def _refuse(self, item: Field, holder: str, path: str) -> None:
        """Generate code that rejects a value for a field that this version does not have."""
        if item.is_ignorable:
            return
        value = f"{holder}.get({item.name!r}, {item.absent!r})"
        is_given = _differs(value, item)
        self.source.add(f"if {is_given}: unknown_to({self.version}, {item.since}, {item.until})", FieldPlace((path,)))

    def _typed(self, type_: Type, expression: str, path: str, is_nullable: bool) -> None:
        match type_:
            case Fixed(code=code, size=size):
                self.pending.append((expression, code, size, path))
            case Text(is_compact=is_compact):
                self._chunk(expression, path, is_nullable, "h" if not (self.is_flexible and is_compact) else "")
            case Bytes(is_records=is_records):
                code = "" if self.is_flexible else "i"
                if is_records:
                    self._records(expression, path, is_nullable, code)
                else:
                    self._chunk(expression, path, is_nullable, code, is_text=False)
            case Array(of=of):
                self._array(of, expression, path, is_nullable)
            case Struct(fields=fields):
                self._nested(fields, expression, path, is_nullable)

    def _length(self, expression: str, code: str, path: str) -> None:
        """Generate code that writes a length; ``code`` is "" for a compact length."""
        if code:
            self.pending.append((expression, code, 2 if code == "h" else 4, path))
            self._flush()
        else:
            self._flush()
            self.source.add(f"{self.out}.append(UV[{expression} + 1])", FieldPlace((path,)))

    def _chunk(self, expression: str, path: str, is_nullable: bool, code: str, *, is_text: bool = True) -> None:
        source = self.source
        place = FieldPlace((path,))
        value = source.fresh("b")
        length = source.fresh("k")
        encoded = f"{value}.encode()" if is_text else value
        source.add(f"{value} = {expression}", place)
        with source.unless(f"{value} is None", f"{value} = b''; {length} = -1", is_needed=is_nullable):
            source.add(f"{value} = {encoded}; {length} = len({value})", place)
        self._length(length, code, path)
        source.add(f"{self.out}.append({value})")

    def _records(self, expression: str, path: str, is_nullable: bool, code: str) -> None:
        source = self.source
        place = FieldPlace((path,))
        size = source.fresh("k")
        parts = source.fresh("b")
        source.add(f"{size}, {parts} = chunks({expression})", place)
        if not is_nullable:
            source.add(f"if {size} < 0: null()", place)
        self._length(size, code, path)
        source.add(f"{self.out}.extend({parts})")

    def _array(self, of: Type, expression: str, path: str, is_nullable: bool) -> None:
        source = self.source
        place = FieldPlace((path,))
        values = source.fresh("l")
        count = source.fresh("k")
        source.add(f"{values} = {expression}", place)
        with source.unless(f"{values} is None", f"{values} = (); {count} = -1", is_needed=is_nullable):
            source.add(f"{count} = len({values})", place)
        self._length(count, "" if self.is_flexible else "i", path)
        if isinstance(of, Fixed):
            source.add(f"{self.out}.append(pack('>%d{of.code}' % len({values}), *{values}))", place)
            return
        element = source.fresh("e")
        with source.block(f"for {element} in {values}:", place):
            if isinstance(of, Struct):
                self._struct(of.fields, element, f"{path}.")
            else:
                self._typed(of, element, path, is_nullable=False)
                self._flush()

    def _nested(self, fields: Sequence[Field], expression: str, path: str, is_nullable: bool) -> None:
        source = self.source
        place = FieldPlace((path,))
        self._flush()
        value = source.fresh("e")
        source.add(f"{value} = {expression}", place)
        with source.unless(f"{value} is None", f"{self.out}.append(b'\\xff')", is_needed=is_nullable):
            if is_nullable:
                source.add(f"{self.out}.append(b'\\x01')")
            self._struct(fields, value, f"{path}.")

    def _tags(self, tagged: Sequence[Field], holder: str, path: str) -> None:
        source, out = self.source, self.out
        unknown = source.fresh("u")
        source.add(f"{unknown} = {holder}.get({UNKNOWN_TAGS!r})")
        present = source.fresh("t")
        if tagged:
            source.add(f"{present} = []")
        for item in tagged:
            name = f"{path}{item.name}"
            value = source.fresh("v")
            source.add(f"{value} = {holder}.get({item.name!r}, {item.absent!r})")
            with source.block(f"if {_differs(value, item)}:"):
                self.out = source.fresh("o")
                source.add(f"{self.out} = []")
                self._typed(item.type, value, name, item.is_nullable(self.version))
                self._flush()
                source.add(f"{present}.append(({item.tag}, {self.out}))")
                self.out = out
        is_any = f"{present} or {unknown}" if tagged else unknown
        some = present if tagged else "()"
        place = FieldPlace((f"{path}(tagged fields)",))
        source.add(f"{out}.append(tagged({some}, {unknown} or {{}}) if {is_any} else b'\\0')", place)

    def _flush(self) -> None:
        """Generate one ``struct`` call that writes all pending values of fixed size."""
        if not self.pending:
            return
        layout = Layout(">" + "".join(code for _, code, _, _ in self.pending))
        pack = self.source.constant(layout.pack, "P")
        values = ", ".join(expression for expression, _, _, _ in self.pending)
        place = FieldPlace(tuple(path for _, _, _, path in self.pending))
        self.source.add(f"{self.out}.append({pack}({values}))", place)
        self.pending.clear()
