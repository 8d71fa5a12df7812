"""Serdes: a name and four functions that convert between objects and bytes.

The functions are attributes, not methods, so that calling one takes no additional frame. None is always mapped to
None. This module imports only ``core.errors`` and ``core.user_code``.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, MethodDescriptorType, NoneType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from attrs import frozen

from streams.core.errors import SerializationError, StreamsError
from streams.core.user_code import refuse_unawaited

T = TypeVar("T")

#: Errors of C encoders and decoders for invalid input; any other error is a bug and is not caught.
CODEC_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, LookupError)

#: A callable and its arguments, which create an equal serde in another process.
Recipe: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def shown(value: object) -> str:
    """Return the repr of a value, shortened to a maximum length, for messages."""
    return _short.repr(value)


def type_name(value: object) -> str:
    """Return the type name of a value, for messages."""
    return type(value).__qualname__


class Serde(Generic[T]):
    """Serializer and deserializer of one type.

    Fields: ``name`` (for messages and metadata), ``is_immutable`` (objects may be shared without a copy),
    ``key_suffix`` (trailing bytes that the partitioner ignores: 8 and 16 for windowed keys, else 0) and the
    functions ``serialize``, ``deserialize`` and, for whole columns, ``serialize_all``, ``deserialize_all``.  All
    functions map None to None and raise SerializationError. ``quick`` is (type, function) if a C function can
    serialize objects of exactly that type; if the function fails, ``serialize`` raises the error with a message.

    Create a custom serde from two functions, which are never called with None.  Files, commands and HTTP queries have
    JSON instead of bytes: ``from_plain`` converts JSON values (dict, list, str, int, float, bool) to an object, and
    ``to_plain`` an object to such values.  Neither is needed if objects are such values, or if the bytes are a JSON
    object or array.

    >>> upper = Serde("upper", lambda text: text.upper().encode(), bytes.decode, is_immutable=True)
    >>> upper.serialize("a"), upper.serialize(None), upper.deserialize_all([b"A", None])
    (b'A', None, ['A', None])
    """

    __slots__ = (
        "__weakref__",
        "_recipe",
        "deserialize",
        "deserialize_all",
        "from_plain",
        "is_immutable",
        "key_suffix",
        "name",
        "quick",
        "serialize",
        "serialize_all",
        "to_plain",
    )

    name: str
    is_immutable: bool
    key_suffix: int
    serialize: Callable[[T | None], bytes | None]
    deserialize: Callable[[bytes | None], T | None]
    serialize_all: Callable[[Sequence[T | None]], list[bytes | None]]
    deserialize_all: Callable[[Sequence[bytes | None]], list[T | None]]
    quick: tuple[type, Callable[[T], bytes]] | None
    from_plain: Callable[[Any], T] | None
    to_plain: Callable[[T], Any] | None
    _recipe: Recipe

    def __init__(
        self,
        name: str,
        serialize: Callable[[T], bytes],
        deserialize: Callable[[bytes], T],
        *,
        is_immutable: bool = False,
        from_plain: Callable[[Any], T] | None = None,
        to_plain: Callable[[T], Any] | None = None,
    ) -> None:
        refuse_unawaited(serialize, f"serde {name!r}: serialize")
        refuse_unawaited(deserialize, f"serde {name!r}: deserialize")
        refuse_unawaited(from_plain, f"serde {name!r}: from_plain")
        refuse_unawaited(to_plain, f"serde {name!r}: to_plain")
        self.name = name
        self.is_immutable = is_immutable
        self.key_suffix = 0
        self.quick = None
        self.from_plain = from_plain
        self.to_plain = to_plain
        self._recipe = (_custom, (name, serialize, deserialize, is_immutable, from_plain, to_plain))
        self.serialize = guarded_writer(name, serialize)
        self.deserialize = guarded_reader(name, deserialize)
        self.serialize_all = one_by_one(self.serialize)
        self.deserialize_all = one_by_one(self.deserialize)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __reduce__(self) -> Recipe:
        return self._recipe


class SerdeFormat(Protocol):
    """The part of a serde that depends on its format, such as Avro: schemas by topic, and conversion from and to JSON.

    The conversion methods raise SerializationError or an error of ``CODEC_ERRORS``.
    """

    @property
    def form(self) -> Any:
        """The type of the values, such as a class; None if unknown, for example if a schema is read as dicts."""

    def on_topic(self, topic: str, side: str) -> Serde[Any]:
        """Return the serde for the keys or values (``side`` is "key" or "value") of a topic."""

    def inside(self) -> Serde[Any]:
        """Return the serde for state stores and internal topics, whose bytes depend only on schema and value."""

    def prepare(self, *, writes: bool) -> None:
        """Check the schema before the first record; with ``writes``, register it in the schema registry.

        Raises:
            SchemaError: the schema is incompatible with those of the topic, or the schema registry does not respond.
        """

    def from_json(self, text: bytes) -> Any:
        """Deserialize a value from JSON, for example from a line of a file."""

    def to_json(self, value: Any) -> bytes:
        """Serialize a value as JSON, for example for a line of a file."""


class FormatSerde(Serde[T]):
    """A serde of a format with schemas, such as Avro, which ``format`` represents."""

    __slots__ = ("format",)

    format: SerdeFormat


@frozen(eq=False)
class PartialRow:
    """A row whose record lacks values that have not changed, so that only a table can complete it.

    The other fields can be read, for event times.
    """

    row: Any
    #: The fields that have stand-ins in ``row``, with their names in JSON.
    lacking: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name in self.lacking:
            raise AttributeError(f"the record has no value of {name!r}: it did not change; the table has it")
        return getattr(self.row, name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name) if name in self.lacking else self.row[name]


class PartialSerde(FormatSerde[T]):
    """A serde that reads some records as a ``PartialRow``: ``complete`` returns the row, by the former row of a table.

    ``complete`` raises SerializationError if the table has no such row.
    """

    __slots__ = ("complete",)

    complete: Callable[[PartialRow, Any], T]


def inside(serde: Serde[Any]) -> Serde[Any]:
    """Return the serde for state stores and internal topics: the given serde, unless its format has another."""
    return serde.format.inside() if isinstance(serde, FormatSerde) else serde


def _custom(
    name: str,
    serialize: Callable[[T], bytes],
    deserialize: Callable[[bytes], T],
    is_immutable: bool,
    from_plain: Callable[[Any], T] | None,
    to_plain: Callable[[T], Any] | None,
) -> Serde[T]:
    return Serde(name, serialize, deserialize, is_immutable=is_immutable, from_plain=from_plain, to_plain=to_plain)


A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S", bound=Serde[Any])


def one_by_one(single: Callable[[A], B]) -> Callable[[Sequence[A]], list[B]]:
    """Return the column form of a function that takes a single value."""

    def block(column: Sequence[A]) -> list[B]:
        return [single(item) for item in column]

    return block


def guarded_writer(name: str, encode: Callable[[T], bytes]) -> Callable[[T | None], bytes | None]:
    """Wrap a user's encoder: None is returned unchanged, and errors name the serde, the type and the value."""

    def serialize(value: T | None) -> bytes | None:
        if value is None:
            return None
        try:
            data = encode(value)
        except StreamsError:
            raise
        except Exception as error:
            raise write_error(name, value, error) from error
        if type(data) is not bytes:
            raise SerializationError(
                f"serde {name!r} made {type_name(data)} of {shown(value)}: its serialize must return bytes"
            )
        return data

    return serialize


def guarded_reader(name: str, decode: Callable[[bytes], T]) -> Callable[[bytes | None], T | None]:
    """Wrap a user's decoder: None is returned unchanged, and errors name the serde and the bytes."""

    def deserialize(data: bytes | None) -> T | None:
        if data is None:
            return None
        try:
            return decode(data)
        except StreamsError:
            raise
        except Exception as error:
            raise read_error(name, data, error) from error

    return deserialize


def write_error(name: str, value: object, why: object) -> SerializationError:
    """Return the error for a value that a serde cannot write."""
    return SerializationError(f"serde {name!r} cannot write {shown(value)} of type {type_name(value)}: {why}")


def read_error(name: str, data: bytes, why: object) -> SerializationError:
    """Return the error for bytes that a serde cannot read."""
    return SerializationError(f"serde {name!r} cannot read {len(data)} bytes {shown(data)}: {why}")


def assemble(
    serde: Serde[T],
    name: str,
    recipe: Recipe,
    *,
    exact: type,
    encode: Callable[[T], bytes],
    decode: Callable[[bytes], T],
    convert: Callable[[Any], T],
    decode_all: Callable[[Sequence[bytes | None]], list[T | None]] | None = None,
) -> Serde[T]:
    """Set the functions of a serde for one immutable type, with a fast path for exactly that type.

    ``encode`` and ``decode`` may be C functions. ``convert`` takes a value of any other type, such as a subclass,
    and returns a value of the exact type, or raises TypeError with the expected type.
    """

    def serialize(value: T | None) -> bytes | None:
        if value is None:
            return None
        try:
            return encode(value if type(value) is exact else convert(value))
        except CODEC_ERRORS as error:
            raise write_error(name, value, error) from error

    def deserialize(data: bytes | None) -> T | None:
        if data is None:
            return None
        try:
            return decode(data)
        except CODEC_ERRORS as error:
            raise read_error(name, data, error) from error

    only_exact = {exact}
    exact_or_none = {exact, NoneType}

    def serialize_all(values: Sequence[T | None]) -> list[bytes | None]:
        kinds = set(map(type, values))
        try:
            if kinds == only_exact:
                return list(map(encode, values))  # type: ignore[arg-type]
            if kinds <= exact_or_none:
                return [None if value is None else encode(value) for value in values]
        except CODEC_ERRORS:
            pass  # Serialize again one by one, so that the message names the value.
        return [serialize(value) for value in values]

    def deserialize_all(column: Sequence[bytes | None]) -> list[T | None]:
        try:
            return [None if data is None else decode(data) for data in column]
        except CODEC_ERRORS:
            return [deserialize(data) for data in column]

    return fill(
        serde,
        name,
        recipe,
        (serialize, deserialize),
        (serialize_all, decode_all or deserialize_all),
        quick=(exact, encode) if isinstance(encode, _IN_C) else None,
    )


#: Types of functions and methods that are implemented in C.
_IN_C = (BuiltinFunctionType, MethodDescriptorType)


def blank(kind: type[S]) -> S:
    """Create a serde of a class without setting its functions, which the caller sets."""
    serde = kind.__new__(kind)
    serde.quick = serde.from_plain = serde.to_plain = None
    return serde


def fill(
    serde: S,
    name: str,
    recipe: Recipe,
    single: tuple[Callable[[Any], bytes | None], Callable[[bytes | None], Any]],
    columns: tuple[Callable[[Any], list[bytes | None]], Callable[[Any], list[Any]]] | None = None,
    *,
    is_immutable: bool = True,
    key_suffix: int = 0,
    quick: tuple[type, Callable[[Any], bytes]] | None = None,
) -> S:
    """Set the functions of a serde, ``single`` and those of ``columns``, to write and to read; return the serde.

    By default, the values of columns are converted one by one.
    """
    serde.name = name
    serde.is_immutable = is_immutable
    serde.key_suffix = key_suffix
    serde.serialize, serde.deserialize = single
    serde.serialize_all, serde.deserialize_all = columns or (one_by_one(single[0]), one_by_one(single[1]))
    serde.quick = quick
    serde._recipe = recipe
    return serde
