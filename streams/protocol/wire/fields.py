"""The words in which messages of Kafka's protocol are described: types, fields, messages, APIs.

The tables are in ``tables``; ``compiler`` makes functions of them.  A message is a plain dict from
field name to value, arrays are lists of such.  Absent from a version, a field has its default: it is
in every decoded message, so that who reads one need not ask for the version.
Protocol types and flexible versions: Kafka's protocol guide, KIP-482, KIP-893.  Imports core only.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen

#: One message or nested structure: values by field name.
Fields: TypeAlias = dict[str, Any]

#: Key of tagged fields that this codec does not know: bytes by tag, kept as they came.
UNKNOWN_TAGS: Final = "unknown_tags"

#: First flexible version of what never is flexible.
NEVER: Final = 32_767
_REQUIRED: Final[Any] = object()


@frozen
class Fixed:
    """A value of fixed size; ``code`` is its letter in ``struct``."""

    name: str
    code: str
    size: int
    zero: Any = 0


@frozen
class Text:
    """UTF-8 with its length; ``is_compact`` False keeps the old length in flexible versions."""

    is_compact: bool = True


@frozen
class Bytes:
    """Bytes with their length; of ``records``, several chunks may be given that are sent one after another."""

    is_records: bool = False


@frozen
class Array:
    """Values of one type, one after another."""

    of: "Type"


@frozen
class Struct:
    """Fields one after another."""

    fields: Sequence["Field"]


Type: TypeAlias = Fixed | Text | Bytes | Array | Struct

INT8: Final = Fixed("int8", "b", 1)
INT16: Final = Fixed("int16", "h", 2)
INT32: Final = Fixed("int32", "i", 4)
INT64: Final = Fixed("int64", "q", 8)
FLOAT64: Final = Fixed("float64", "d", 8, 0.0)
BOOLEAN: Final = Fixed("boolean", "?", 1, False)
#: 16 bytes, as they are.
UUID: Final = Fixed("uuid", "16s", 16, bytes(16))
STRING: Final = Text()
CLASSIC_STRING: Final = Text(is_compact=False)
BYTES: Final = Bytes()
RECORDS: Final = Bytes(is_records=True)


@frozen
class Field:
    """One field.

    - ``since``, ``until``: the versions that have it.
    - ``nullable``: the first version in which it may be None; None = in no version.
    - ``default``: its value where it is not given, or its version has none; without one it must be given.
    - ``tag``: its number where it is a tagged field, written only when it differs from the default.
    - ``is_ignorable``: may be left out silently in versions without it; any other raises ``EncodingError``
      there unless it has its default.
    - ``attribute``: the attribute of our message that holds it, where that has another name (``mapping.derived``).
    """

    name: str
    type: Type
    since: int = 0
    until: int = NEVER
    nullable: int | None = None
    default: Any = _REQUIRED
    tag: int | None = None
    is_ignorable: bool = False
    attribute: str | None = None

    def is_in(self, version: int) -> bool:
        """Whether the version has the field."""
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        """Whether the field may be None in the version."""
        return self.nullable is not None and version >= self.nullable

    @property
    def is_required(self) -> bool:
        """Whether it must be given in versions that have it."""
        return self.default is _REQUIRED and self.tag is None

    @property
    def absent(self) -> Any:
        """Value where the field is not there."""
        if self.default is not _REQUIRED:
            return self.default
        match self.type:
            case Fixed(zero=zero):
                return zero
            case Text():
                return ""
            case Bytes():
                return b""
            case Array():
                return ()
            case Struct():
                return None


def array(name: str, *of: Field | Type, **settings: Any) -> Field:
    """Return a field of many: of one type, or of structures with these fields."""
    return Field(name, Array(_type_of(of)), **settings)


def struct(name: str, *of: Field, **settings: Any) -> Field:
    """Return a field that is a structure."""
    return Field(name, Struct(of), **settings)


def _type_of(of: Sequence[Field | Type]) -> Type:
    fields = [item for item in of if isinstance(item, Field)]
    if len(fields) == len(of):
        return Struct(tuple(fields))
    (only,) = of
    assert not isinstance(only, Field)
    return only


@frozen
class Message:
    """One direction of an API, or a header: its fields in order."""

    name: str
    #: First version with compact lengths and tagged fields.
    flexible: int
    fields: Sequence[Field]


@frozen
class Api:
    """One API: its key, its versions, and its two messages, as values of ours and as fields on the wire.

    - ``versions``: lowest and highest version that can be encoded and decoded.
    - ``flexible``: first flexible version (KIP-482).
    - ``request_type``, ``response_type``: our messages; None = none yet, so that only the codec knows the API.
    - ``served``: lowest and highest version that our broker answers; None = it does not serve the API.
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible: int
    request_fields: Sequence[Field]
    response_fields: Sequence[Field]
    request_type: type[Any] | None = None
    response_type: type[Any] | None = None
    served: tuple[int, int] | None = None

    @property
    def request(self) -> Message:
        """What a client sends."""
        return Message(f"{self.name}Request", self.flexible, self.request_fields)

    @property
    def response(self) -> Message:
        """What a broker answers."""
        return Message(f"{self.name}Response", self.flexible, self.response_fields)

    def has(self, version: int) -> bool:
        """Whether the version is spoken here."""
        return self.versions[0] <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields."""
        return version >= self.flexible
