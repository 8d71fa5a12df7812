"""Descriptions of Kafka protocol messages: types, fields, messages and APIs.

The descriptions are in ``tables``; ``encoder`` and ``decoder`` generate functions from them.  A message is a plain
dict from field name to value, and an array is a list.  Every decoded message has all fields in all versions: a
field that is missing in a version has its default.  Protocol types and flexible versions are defined in Kafka's
protocol guide, KIP-482 and KIP-893.  This module imports only ``protocol.request``.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from attrs import Factory, evolve, field, frozen

from streams.protocol.request import RequestFor

#: One message or nested structure: values by field name.
Fields: TypeAlias = dict[str, Any]

#: Key of the unknown tagged fields, which are kept as unchanged bytes by tag.
UNKNOWN_TAGS: Final = "unknown_tags"

#: The value of ``flexible`` for messages without flexible versions.
NEVER: Final = 32_767
_REQUIRED: Final[Any] = object()


@frozen
class Fixed:
    """A value of fixed size; ``code`` is its format character in ``struct``."""

    name: str
    code: str
    size: int
    zero: Any = 0


@frozen
class Text:
    """A UTF-8 string, prefixed by its length.

    If ``is_compact`` is False, the length has a fixed size even in flexible versions.
    """

    is_compact: bool = True


@frozen
class Bytes:
    """Bytes, prefixed by their length; with ``is_records``, the value may consist of several chunks."""

    is_records: bool = False


@frozen
class Array:
    """An array of values of one type."""

    of: "Type"


@frozen
class Struct:
    """A structure of fields."""

    fields: Sequence["Field"]


Type: TypeAlias = Fixed | Text | Bytes | Array | Struct

INT8: Final = Fixed("int8", "b", 1)
INT16: Final = Fixed("int16", "h", 2)
UINT16: Final = Fixed("uint16", "H", 2)
INT32: Final = Fixed("int32", "i", 4)
INT64: Final = Fixed("int64", "q", 8)
FLOAT64: Final = Fixed("float64", "d", 8, 0.0)
BOOLEAN: Final = Fixed("boolean", "?", 1, False)
#: A UUID as 16 bytes.
UUID: Final = Fixed("uuid", "16s", 16, bytes(16))
STRING: Final = Text()
CLASSIC_STRING: Final = Text(is_compact=False)
BYTES: Final = Bytes()
RECORDS: Final = Bytes(is_records=True)


@frozen
class Field:
    """A field of a Kafka message.

    - ``since``, ``until``: the first and last version that have the field.
    - ``nullable``: the first version in which the field may be None; None = never.
    - ``default``: the value if the field is absent or not in the version.  A field without a default is required.
    - ``tag``: the number of a tagged field, which is written only if the value differs from the default.
    - ``is_ignorable``: the field is silently left out in versions that lack it; for other fields, a value that
      differs from the default raises ``EncodingError`` in such versions.
    - ``attribute``: the attribute of the message class, if it differs from the field name (see ``mapping.derived``).
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
        """Whether this version of the message has the field."""
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        """Whether the field may be None in this version of the message."""
        return self.nullable is not None and version >= self.nullable

    @property
    def is_required(self) -> bool:
        """Whether the field must be given in versions that have it."""
        return self.default is _REQUIRED and self.tag is None

    @property
    def absent(self) -> Any:
        """The value that is decoded if the field is absent."""
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
    """Return an array field.  Its elements are values of one type, or structures with the given fields."""
    return Field(name, Array(_type_of(of)), **settings)


def by_topic(
    name: str,
    *of: Field | Type,
    topic: str = "name",
    topic_type: Fixed | Text = STRING,
    partitions: str = "partitions",
    **settings: Any,
) -> Field:
    """Return an array of topics, given by name or by topic ID, each with an array of partitions.

    The elements of the inner array are partition numbers, or structures with the given fields.
    """
    return array(name, Field(topic, topic_type), array(partitions, *of), **settings)


def struct(name: str, *of: Field, **settings: Any) -> Field:
    """Return a field whose value is a structure with the given fields."""
    return Field(name, Struct(of), **settings)


def _type_of(of: Sequence[Field | Type]) -> Type:
    fields = [item for item in of if isinstance(item, Field)]
    if len(fields) == len(of):
        return Struct(tuple(fields))
    (only,) = of
    assert not isinstance(only, Field)
    return only


#: Fields that many messages have.
ERROR: Final = Field("error_code", INT16)
ERROR_MESSAGE: Final = Field("error_message", STRING, nullable=0, default=None)
INDEX: Final = Field("partition_index", INT32)


@frozen
class Message:
    """The schema of a request, a response or a header: its fields in wire order."""

    name: str
    #: First version with compact lengths and tagged fields.
    flexible: int
    fields: Sequence[Field]


@frozen
class Api:
    """A Kafka API: its key, its versions, and the schemas of its request and response.

    - ``request_type``: the message class, which names its response class; None if only the codec supports the API.
    - ``versions``: lowest and highest version that can be encoded and decoded.
    - ``flexible``: first flexible version (KIP-482).
    - ``served``: lowest and highest version that the embedded broker serves; the default is ``versions``, or None if
      the API has no message classes.
    - ``name``: Kafka's name; the default is the name of ``request_type``.
    """

    key: int
    request_type: type[RequestFor[Any]] | None
    versions: tuple[int, int]
    flexible: int
    served: tuple[int, int] | None = field(
        default=Factory(lambda self: self.versions if self.request_type else None, takes_self=True)
    )
    name: str = field(default=Factory(lambda self: self.request_type.__name__, takes_self=True))
    request_fields: Sequence[Field] = ()
    response_fields: Sequence[Field] = ()

    def with_fields(self, request: Sequence[Field], response: Sequence[Field]) -> "Api":
        """Return the API with the fields of its request and its response."""
        return evolve(self, request_fields=request, response_fields=response)

    @property
    def request(self) -> Message:
        """The schema of the request."""
        return Message(f"{self.name}Request", self.flexible, self.request_fields)

    @property
    def response(self) -> Message:
        """The schema of the response."""
        return Message(f"{self.name}Response", self.flexible, self.response_fields)

    def has(self, version: int) -> bool:
        """Whether this version of the API can be encoded and decoded."""
        return self.versions[0] <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        """Whether this version of the API has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible
