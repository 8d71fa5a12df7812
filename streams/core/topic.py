"""Declarations of topics: name, types, serdes and event time.

User code declares topics and passes them to the graph. Topics are compared and hashed by identity. Imports serdes
and errors.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar, overload

from typing_extensions import TypeForm

from streams.core.errors import StreamsError, TopologyError
from streams.core.serdes import Serde, serde_for
from streams.core.user_code import refuse_unawaited

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_NAME = 249


def check_topic_name(name: str) -> str:
    """Return the name if it is a valid Kafka topic name.

    Raises:
        TopologyError: the name is empty, too long, ``.`` or ``..``, or has characters other than letters, digits,
            dots, underscores and hyphens.
    """
    if not isinstance(name, str):
        raise TopologyError(f"topic name {name!r} must be text, not {type(name).__qualname__}")
    if not name:
        raise TopologyError("topic name must not be empty")
    if name in (".", ".."):
        raise TopologyError(f"topic name must not be {name!r}")
    if len(name) > _MAX_NAME:
        raise TopologyError(f"topic name {name[:40]!r}... has {len(name)} characters; Kafka allows {_MAX_NAME}")
    if _LEGAL.fullmatch(name) is None:
        strange = "".join(sorted({char for char in name if _LEGAL.fullmatch(char) is None}))
        raise TopologyError(
            f"topic name {name!r} has {strange!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
        )
    return name


class Sink(Generic[K_contra, V_contra]):
    """A topic that a stream can be written to.

    The types are contravariant, so that a stream of ints can be written to a topic of floats.
    """

    __slots__ = ("__weakref__", "_key_serde", "_value_serde", "name", "partitions")

    name: str
    partitions: int | None
    _key_serde: Serde[Any]
    _value_serde: Serde[Any]

    @property
    def key_serde(self) -> Serde[Any]:
        """Serde of the keys."""
        return self._key_serde

    @property
    def value_serde(self) -> Serde[Any]:
        """Serde of the values."""
        return self._value_serde


class Source(Generic[K_co, V_co]):
    """A topic that can be read.

    The types are covariant, so that a topic of ints is also a source of ``int | None``, as is needed for
    tombstones.
    """

    __slots__ = ()


class Topic(Sink[K, V | None], Source[K, V]):
    """The declaration of a topic, with the types of its keys and values.

    As a sink, a topic also accepts tombstones, which are records with the value None.

    ``key`` and ``value`` are type expressions or serdes; without ``key``, all keys are None. ``timestamp`` is a
    function that returns the event time of a value, as a datetime (naive = UTC) or in epoch milliseconds.
    ``key_from`` is a function that returns the key for a row of a plain file. ``partitions`` is the number of
    partitions; it defaults to that of the existing topic or to the default for the run.

    >>> orders = Topic("orders", key=str, value=dict[str, int], timestamp=lambda order: order["at"])
    >>> orders
    Topic('orders', key=string, value=json:dict[str, int])

    Raises:
        TopologyError: the name is not a valid topic name, a type has no serde, or ``partitions`` is below 1.
    """

    __slots__ = ("key_from", "timestamp")

    timestamp: Callable[[Any], datetime | int] | None
    key_from: Callable[[Any], Any] | None

    @overload
    def __init__(
        self: "Topic[None, T]",
        name: str,
        *,
        value: TypeForm[T],
        timestamp: Callable[[T], datetime | int] | None = None,
        partitions: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        key: TypeForm[K],
        value: TypeForm[V],
        timestamp: Callable[[V], datetime | int] | None = None,
        key_from: Callable[[V], K] | None = None,
        partitions: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "Topic[None, T]",
        name: str,
        *,
        value: Serde[T],
        timestamp: Callable[[T], datetime | int] | None = None,
        partitions: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        key: TypeForm[K] | Serde[K],
        value: TypeForm[V] | Serde[V],
        timestamp: Callable[[V], datetime | int] | None = None,
        key_from: Callable[[V], K] | None = None,
        partitions: int | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        key: Any = None,
        value: Any,
        timestamp: Callable[[Any], datetime | int] | None = None,
        key_from: Callable[[Any], Any] | None = None,
        partitions: int | None = None,
    ) -> None:
        self.name = check_topic_name(name)
        self._key_serde = _serde_of(name, "key", key)
        self._value_serde = _serde_of(name, "value", value)
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise TopologyError(f"topic {name!r}: partitions must be an int of at least 1, not {partitions!r}")
        self.partitions = partitions
        self.timestamp = _function(name, "timestamp", timestamp)
        self.key_from = _function(name, "key_from", key_from)
        if key_from is not None and self._key_serde.name == "null":
            raise TopologyError(f"topic {name!r}: key_from makes keys, but no type is declared for them; add key=")

    @property
    def key_serde(self) -> Serde[K]:
        """Serde of the keys."""
        return self._key_serde

    @property
    def value_serde(self) -> Serde[V]:
        """Serde of the values."""
        return self._value_serde

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, key={self._key_serde.name}, value={self._value_serde.name})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _remake, (
            type(self),
            self.name,
            self._key_serde,
            self._value_serde,
            self.timestamp,
            self.key_from,
            self.partitions,
        )


#: A topic or the name of a topic.
TopicLike: TypeAlias = Topic[Any, Any] | str


def topic_name(topic: TopicLike, what: str, error: type[StreamsError] = TopologyError) -> str:
    """Return the name of a topic, which is given as a ``Topic`` or by name; ``what`` names the caller in messages.

    Raises:
        StreamsError: the argument is neither a ``Topic`` nor a name; raised as class ``error``.
    """
    if isinstance(topic, Topic):
        return topic.name
    if isinstance(topic, str):
        return topic
    raise error(f"{what} needs a Topic or a topic's name, got {topic!r} of type {type(topic).__qualname__}")


def topic_names(topics: TopicLike | Iterable[TopicLike], what: str, error: type[StreamsError]) -> list[str]:
    """Return the names of the given topics; a single topic needs no list.

    Raises:
        StreamsError: a topic is neither a ``Topic`` nor a name; raised as class ``error``.
    """
    if isinstance(topics, Topic | str):
        return [topic_name(topics, what, error)]
    if not isinstance(topics, Iterable):
        raise error(f"{what} needs topics or their names, got {topics!r} of type {type(topics).__qualname__}")
    return [topic_name(topic, what, error) for topic in topics]


def typed_topic(topic: Any, what: str) -> Topic[Any, Any]:
    """Return a topic that must be given as a ``Topic``, because its types determine the serdes.

    Raises:
        TopologyError: the argument is not a ``Topic``.
    """
    if isinstance(topic, Topic):
        return topic
    hint = f": Topic({topic!r}, key=..., value=...) has the types" if isinstance(topic, str) else ""
    raise TopologyError(f"{what} needs a Topic, got {topic!r} of type {type(topic).__qualname__}{hint}")


def meant(topic: str, known: Iterable[str]) -> str:
    """Return the part of a message that suggests the nearest topic name, or else lists all topics."""
    names = sorted(known)
    close = difflib.get_close_matches(topic, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"


def _remake(cls: type[Topic[Any, Any]], name: str, key: Any, value: Any, *rest: Any) -> Topic[Any, Any]:
    timestamp, key_from, partitions = rest
    return cls(name, key=key, value=value, timestamp=timestamp, key_from=key_from, partitions=partitions)


def _serde_of(topic: str, side: str, form: Any) -> Serde[Any]:
    try:
        serde: Serde[Any] = serde_for(form)
    except TopologyError as error:
        raise TopologyError(f"topic {topic!r}, {side}: {error}") from error
    return serde


def _function(topic: str, what: str, function: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if function is not None and not callable(function):
        raise TopologyError(f"topic {topic!r}: {what} must be a function of the value, not {function!r}")
    refuse_unawaited(function, f"topic {topic!r}: {what}")
    return function
