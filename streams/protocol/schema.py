"""What messages are on Kafka's wire: types, fields, messages and APIs.

A message class says it with its attributes: their types and order are those of the wire, and ``wire`` in an annotation
says what differs.  ``fields_of`` derives the fields, from which ``wire.encoder``, ``wire.decoder`` and ``wire.derived``
generate functions.  The forms of attributes:

- ``Sequence[X]`` is an array, ``Mapping[K, V]`` an array of structures whose first field is the key.
- A mapping or sequence by ``TopicPartition`` is an array of topics, each with an array of partitions.
- A class, a named tuple and a tuple are structures, and ``X | None`` is nullable.
- ``error`` and ``message`` are called ``error_code`` and ``error_message``.
- ``ClassVar`` marks a field that the wire has and the message has not, with the value that is written.
- ``Unsent`` marks an attribute that the message has and the wire has not.

On the wire, a message is a plain dict from field name to value, and an array is a list.  Every decoded message has all
fields in all versions: a field that is missing in a version has its default.  Protocol types and flexible versions are
defined in Kafka's protocol guide, KIP-482 and KIP-893.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
from attrs import Factory, evolve, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, response_type

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
    - ``attribute``, ``hint``: the attribute of the message class and its type, or None for a field without one.
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
    hint: Any = field(default=None, eq=False)

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
    fields = tuple(item for item in of if isinstance(item, Field))
    return Field(name, Array(Struct(fields) if fields else of[0]), **settings)  # type: ignore[arg-type]


def struct(name: str, *of: Field, **settings: Any) -> Field:
    """Return a field whose value is a structure with the given fields."""
    return Field(name, Struct(of), **settings)


def topic_fields(name: str, ids_since: int) -> tuple[Field, ...]:
    """Return the fields that name a topic: its name, and its ID (KIP-516) in place of it from a version on."""
    if ids_since == NEVER:
        return (Field(name, STRING),)
    by_name = Field(name, STRING, until=ids_since - 1, default="", is_ignorable=True)
    return by_name, Field("topic_id", UUID, since=ids_since, default=UUID.zero, is_ignorable=True)


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


# --- what attributes say ------------------------------------------------------------------


class FieldFacts(TypedDict, total=False):
    """What ``wire`` takes by keyword: see ``Field``, and these.

    - ``before``: the attribute before which the field is on the wire.
    - ``key``, ``value``: the names of the key and of a single value in the structures of a mapping.
    - ``topic``, ``partitions``, ``index``: the names of the fields of a mapping or sequence by partition;
      a sequence has plain numbers unless ``index`` is given.
    - ``ids_since``: the first version in which topics have their IDs (KIP-516) in place of their names.
    - ``ahead``, ``more``: further fields of the structures of a mapping, before and after its value, which messages do
      not have.
    - ``since_of``: the first versions of attributes of the structures, where they differ from those of their class.
    """

    since: int
    until: int
    nullable: int
    default: Any
    tag: int
    is_ignorable: bool
    before: str
    key: str
    value: str
    topic: str
    partitions: str
    index: str
    ids_since: int
    ahead: Sequence[Field]
    more: Sequence[Field]
    since_of: Mapping[str, int]


# By identity, because ``typing`` keeps annotations by what they compare equal to.
@frozen(eq=False)
class Wire:
    """What an annotation says of a field; of several in one annotation, the last one counts."""

    name: str
    facts: FieldFacts


def wire(name: str = "", **facts: Unpack[FieldFacts]) -> Wire:
    """Return what is said of a field: its name, unless it is that of the attribute, and ``facts``."""
    return Wire(name, facts)


@frozen
class Unsent:
    """An attribute that is not on the wire.

    ``source`` is the expression of its value when a message is read: of the fields ``value``, of ``version``, and of
    ``client`` for requests or ``request`` for responses; "" stands for the default.  ``limit`` is set if the attribute
    is true from this version on, and the client may only use such versions for messages in which it is true.
    """

    source: str = ""
    limit: int | None = None


def implied(since: int) -> Unsent:
    """Return the mark of an attribute that is implied by the version: it is true from version ``since`` on."""
    return Unsent(f"version >= {since}", since)


T = TypeVar("T")
F = TypeVar("F", bound=Callable[[type[Any]], Any])
Local: TypeAlias = Annotated[T, Unsent()]
Int8: TypeAlias = Annotated[int, INT8]
Int16: TypeAlias = Annotated[int, INT16]
UInt16: TypeAlias = Annotated[int, UINT16]
Int32: TypeAlias = Annotated[int, INT32]
Int64: TypeAlias = Annotated[int, INT64]
Uuid: TypeAlias = Annotated[bytes, UUID]
#: The explanation of an error, which is None on the wire if it is empty.
ErrorText: TypeAlias = Annotated[str, wire("error_message", nullable=0, default=None)]

_TYPES: Final[Mapping[Any, Type]] = {str: STRING, bytes: BYTES, bool: BOOLEAN, float: FLOAT64, ErrorCode: INT16}


def by_class(function: F) -> F:
    """Keep the results of a function of a class; mypy takes classes that have ``__hash__`` not to be hashable."""
    return cache(function)  # type: ignore[return-value]


def split_hint(hint: Any) -> tuple[Any, bool, Sequence[Any]]:
    """Return a type hint without None and without what it is annotated with, whether it has None, and the latter."""
    notes: tuple[Any, ...] = ()
    is_optional = False
    while True:
        if get_origin(hint) is Annotated:
            notes = (*hint.__metadata__, *notes)
            hint = hint.__origin__
        elif get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
            is_optional = True
            hint = Union[tuple(kind for kind in get_args(hint) if kind is not NoneType)]  # noqa: UP007
        else:
            return hint, is_optional, notes


def is_structure(hint: Any) -> bool:
    """Whether a type is a class whose attributes are the fields of a structure."""
    return isinstance(hint, type) and (attrs.has(hint) or hasattr(hint, "_fields")) and hint is not TopicPartition


@by_class
def attributes_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the attributes of a message class or named tuple, and those of their fields alone, with their hints."""
    return {
        name: hint
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if name not in RequestFor.__annotations__
    }


@by_class
def unsent_of(kind: type[Any]) -> Mapping[str, Unsent]:
    """Return the attributes of a message class that are not on the wire."""
    notes = {name: split_hint(hint)[2] for name, hint in attributes_of(kind).items()}
    return {name: note for name, some in notes.items() for note in some if isinstance(note, Unsent)}


@by_class
def fields_of(kind: type[Any]) -> Sequence[Field]:
    """Return the fields of a message class or named tuple, in the order of the wire.

    Raises:
        TypeError: the type of an attribute has no form on the wire.
    """
    fields: list[Field] = []
    names: list[str] = []
    defaults = _defaults(kind)
    for name, hint in attributes_of(kind).items():
        if name in unsent_of(kind):
            continue
        attribute: str | None = name
        if get_origin(hint) is ClassVar:
            (hint,) = get_args(hint)
            defaults[name] = getattr(kind, name, _REQUIRED)
            attribute = None
        try:
            item, facts = _field(name, hint, defaults.get(name, _REQUIRED))
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{name}: {error}") from None
        place = names.index(facts["before"]) if "before" in facts else len(names)
        names.insert(place, name)
        fields.insert(place, evolve(item, attribute=attribute))
    return tuple(fields)


def _defaults(kind: type[Any]) -> dict[str, Any]:
    if attrs.has(kind):
        return {item.name: _plain(item.default) for item in attrs.fields(kind)}
    return {name: _plain(default) for name, default in kind._field_defaults.items()}


def _plain(default: Any) -> Any:
    """Return the default of an attribute as that of its field: collections that are made anew are empty arrays."""
    if default is attrs.NOTHING:
        return _REQUIRED
    if isinstance(default, Factory):  # type: ignore[arg-type]
        return () if default.factory is dict else _REQUIRED
    return int(default) if isinstance(default, int) and not isinstance(default, bool) else default


def _field(name: str, hint: Any, default: Any = _REQUIRED) -> tuple[Field, FieldFacts]:
    """Return the field of a hint, and what is said of it."""
    kind, is_optional, notes = split_hint(hint)
    facts: FieldFacts = {}
    named = "error_code" if kind is ErrorCode and name in ("", "error") else name
    for note in notes:
        if isinstance(note, Wire):
            facts |= note.facts
            named = note.name or named
    if not named:
        raise TypeError(f"{kind} has no name on the wire")
    since = facts.get("since", 0)
    item = Field(
        named,
        _type(kind, facts, notes),
        since,
        facts.get("until", NEVER),
        facts.get("nullable", since if is_optional else None),
        _plain(facts.get("default", default)),
        facts.get("tag"),
        facts.get("is_ignorable", False),
        hint=hint,
    )
    return item, facts


def _type(kind: Any, facts: FieldFacts, notes: Sequence[Any] = ()) -> Type:
    for note in notes:
        if isinstance(note, Type):
            return note
    if kind in _TYPES:
        return _TYPES[kind]
    if is_structure(kind):
        return Struct(fields_of(kind))
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin not in (Mapping, Sequence):
        raise TypeError(f"{kind} has no form on the wire")
    if arguments[0] is TopicPartition:
        return _by_topic(arguments[1:], facts)
    if origin is Mapping:
        key = _field(facts.get("key", "name"), arguments[0])[0]
        return Array(Struct((key, *_row(arguments[1], facts))))
    of, _, of_elements = split_hint(arguments[0])
    return Array(Struct(_row(of, facts)) if is_structure(of) or get_origin(of) is tuple else _type(of, {}, of_elements))


def _by_topic(arguments: Sequence[Any], facts: FieldFacts) -> Array:
    """Return an array of topics; ``arguments`` has the type of values by partition, if there are any."""
    index = facts.get("index", "partition_index" if arguments else "")
    of: Type = INT32
    if index:
        number = Field(index, INT32, hint=TopicPartition)
        row = _row(arguments[0], facts) if arguments else ()
        of = Struct(tuple(number if item.name == index else item for item in row))
        if number not in of.fields:
            of = Struct((number, *row))
    topics = topic_fields(facts.get("topic", "name"), facts.get("ids_since", NEVER))
    return Array(Struct((*topics, Field(facts.get("partitions", "partitions"), Array(of)))))


def _row(hint: Any, facts: FieldFacts) -> Sequence[Field]:
    """Return the fields of the structure of a value: those of its class, of the items of a tuple, or a single one."""
    if is_structure(hint):
        sinces = facts.get("since_of", {})
        return tuple(evolve(item, since=sinces.get(item.attribute or "", item.since)) for item in fields_of(hint))
    if get_origin(hint) is tuple:
        return tuple(_field("", part)[0] for part in get_args(hint))
    value, _ = _field(facts.get("value", ""), hint)
    return (*facts.get("ahead", ()), value, *facts.get("more", ()))


# --- APIs ---------------------------------------------------------------------------------


@frozen
class Api:
    """A Kafka API: its key, its versions, and the schemas of its request and response.

    - ``request_type``: the message class, which names its response class.
    - ``versions``: lowest and highest version, of clients as of the embedded broker.
    - ``flexible``: first flexible version (KIP-482).
    - ``name``: Kafka's name; the default is the name of ``request_type``.
    - ``throttled``: the first version whose response begins with a throttle time; None for those that do not.
    - ``by_hand``: the fields of request and response, if they are not derived from the message classes.
    - ``later_errors``: error codes that clients do not know before a version, with that version and the code that they
      get instead.
    """

    key: int
    request_type: type[RequestFor[Any]]
    versions: tuple[int, int]
    flexible: int
    name: str = field(default=Factory(lambda self: self.request_type.__name__, takes_self=True))
    throttled: int | None = 0
    by_hand: tuple[Sequence[Field], Sequence[Field]] | None = None
    later_errors: Mapping[ErrorCode, tuple[int, ErrorCode]] = field(factory=dict)

    def with_fields(self, request: Sequence[Field], response: Sequence[Field]) -> "Api":
        """Return the API with fields of its request and its response that are not those of the classes."""
        return evolve(self, by_hand=(request, response))

    @property
    def request_fields(self) -> Sequence[Field]:
        """In wire order: those of ``request_type``, unless they are written by hand."""
        return fields_of(self.request_type) if self.by_hand is None else self.by_hand[0]

    @property
    def response_fields(self) -> Sequence[Field]:
        """In wire order: those of the response class, unless they are written by hand, after the throttle time."""
        fields = fields_of(response_type(self.request_type)) if self.by_hand is None else self.by_hand[1]
        if self.throttled is None:
            return fields
        throttle = Field("throttle_time_ms", INT32, self.throttled, default=0, is_ignorable=self.throttled > 0)
        return (throttle, *fields)

    @property
    def request(self) -> Message:
        """The schema of the request."""
        return Message(f"{self.name}Request", self.flexible, self.request_fields)

    @property
    def response(self) -> Message:
        """The schema of the response."""
        return Message(f"{self.name}Response", self.flexible, self.response_fields)

    def is_flexible(self, version: int) -> bool:
        """Whether this version of the API has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible


Q = TypeVar("Q", bound=RequestFor[Any])


def api(key: int, versions: tuple[int, int], flexible: int, **settings: Any) -> Callable[[type[Q]], type[Q]]:
    """Return the decorator of a request class that declares its API; ``settings`` are attributes of ``Api``."""

    def declared(kind: type[Q]) -> type[Q]:
        kind.api = Api(key, kind, versions, flexible, **settings)
        return kind

    return declared
