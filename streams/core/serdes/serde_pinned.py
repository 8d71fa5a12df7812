"""Serdes for undeclared types, such as results of lambdas: the first object at a node pins the type.

Until then the serde is open and cannot deserialize bytes. A pinned serde writes the same bytes as the declared serde of
its type, and raises an error for objects of other types. The ``type_name`` is saved with the store and in a header
of internal records, so that readers can pin the type before the first object. This module imports only other modules of
``core``.
"""

import importlib
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from streams.core.blocks.records import Windowed
from streams.core.errors import SerializationError, TopologyError
from streams.core.serdes.serde_base import Serde, shown
from streams.core.serdes.serde_types import JSON, serde_for
from streams.core.serdes.serde_windows import count_windowed, session_windowed, time_windowed_ms

#: Headers of internal records with the pinned types of keys and values.
KEY_TYPE_HEADER = "__streams_key_type"
VALUE_TYPE_HEADER = "__streams_value_type"
#: What to do about an object that cannot be written.
_REMEDY = "declare one type for it with key=, value=, id= (of deduplicate), or asked= or answer= (of look_up)"
_JSON_KINDS = frozenset((dict, list))
_PLAIN: dict[str, type] = {
    serde_for(kind).name: kind for kind in (str, int, float, bool, bytes, uuid.UUID, datetime, tuple)
}


class PinnedSerde(Serde[Any]):
    """The serde at a node whose type is not declared.

    Fields: ``node``, for messages; ``type_name`` and ``settled``, the declared serde of the pinned type, None while
    open.

    >>> serde = PinnedSerde("group-by")
    >>> serde.serialize("word"), serde.type_name
    (b'word', 'string')
    >>> serde.serialize(1)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    SerializationError: node 'group-by' made 1 of type int, but first made string...
    """

    __slots__ = ("_lock", "node", "settled", "type_name")

    node: str
    settled: Serde[Any] | None
    type_name: str | None

    def __init__(self, node: str, type_name: str | None = None) -> None:
        self.node = node
        self.name = "pinned"
        self.settled = None
        self.type_name = None
        self.is_immutable = False
        self.key_suffix = 0
        self.quick = self.from_plain = self.to_plain = None
        self._lock = threading.RLock()
        self.serialize = self._serialize_first
        self.deserialize = self._deserialize_unknown
        self.serialize_all = self._serialize_all_first
        self.deserialize_all = self._deserialize_all_unknown
        if type_name is not None:
            self.pin(type_name)

    def __repr__(self) -> str:
        return f"<PinnedSerde {self.type_name or 'open'} at {self.node}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return PinnedSerde, (self.node, self.type_name)

    @property
    def is_pinned(self) -> bool:
        """Whether the type of the serde is known."""
        return self.type_name is not None

    def pin(self, type_name: str) -> None:
        """Pin the type with the given stored name, importing its class; idempotent.

        Raises:
            SerializationError: a different type is already pinned, or the class cannot be found.
        """
        with self._lock:
            if self.type_name is not None:
                if self.type_name != type_name:
                    raise SerializationError(
                        f"node {self.node!r} is pinned to {self.type_name}, but stored data is of {type_name}; "
                        "declare its type with key= or value=, or start with a new application id"
                    )
                return
            self._settle(*self._serde_named(type_name))

    def _pin_to(self, value: Any) -> None:
        with self._lock:
            if self.type_name is None:
                inner, kinds, type_name = self._serde_of(value)
                # If the object cannot be written, this raises an error and the serde remains open.
                try:
                    inner.serialize(value)
                except SerializationError as error:
                    raise self._located(error) from error
                self._settle(inner, kinds, type_name)

    def _settle(self, inner: Serde[Any], kinds: frozenset[type], type_name: str) -> None:
        """Replace the functions of the open serde with the functions for the pinned type."""
        write = inner.serialize

        def serialize(value: Any) -> bytes | None:
            if type(value) in kinds:
                try:
                    return write(value)
                except SerializationError as error:
                    raise self._located(error) from error
            if value is None:
                return None
            raise self._mismatch(value)

        def serialize_all(values: Sequence[Any]) -> list[bytes | None]:
            if set(map(type, values)) <= allowed:
                try:
                    return inner.serialize_all(values)
                except SerializationError as error:
                    raise self._located(error) from error
            return [serialize(value) for value in values]

        allowed = kinds | {type(None)}
        self.name = f"pinned:{type_name}"
        self.is_immutable = inner.is_immutable
        self.key_suffix = inner.key_suffix
        self.serialize = serialize
        self.deserialize = inner.deserialize
        self.serialize_all = serialize_all
        self.deserialize_all = inner.deserialize_all
        self.settled = inner
        # This is set last, because other threads read it.
        self.type_name = type_name

    def _located(self, error: SerializationError) -> SerializationError:
        return SerializationError(f"node {self.node!r}: {error}; {_REMEDY}")

    def _serde_of(self, value: Any) -> tuple[Serde[Any], frozenset[type], str]:
        kind = type(value)
        if kind is Windowed:
            # The windows may be sessions; this format contains both start and end.
            inner = session_windowed(PinnedSerde(self.node))
            inner.serialize(value)
            return inner, frozenset((kind,)), f"session_windowed:{inner.inner.type_name}"  # type: ignore[attr-defined]
        return self._serde_of_type(kind)

    def _serde_of_type(self, kind: type) -> tuple[Serde[Any], frozenset[type], str]:
        if kind in _JSON_KINDS:
            return JSON, _JSON_KINDS, JSON.name
        try:
            serde: Serde[Any] = serde_for(kind)
        except TopologyError as error:
            raise SerializationError(
                f"node {self.node!r} made an object of type {kind.__qualname__}: {error}; {_REMEDY}"
            ) from error
        if serde is JSON:
            raise SerializationError(
                f"node {self.node!r} made an object of type {kind.__qualname__}, which no serde can write; {_REMEDY}"
            )
        return serde, frozenset((kind,)), serde.name

    def _serde_named(self, name: str) -> tuple[Serde[Any], frozenset[type], str]:
        """Return the serde, the accepted classes and the type name for a stored type name."""
        if name == JSON.name:
            return JSON, _JSON_KINDS, name
        if name in _PLAIN:
            return self._serde_of_type(_PLAIN[name])
        form, _, rest = name.partition(":")
        if form == "session_windowed" and rest:
            return session_windowed(PinnedSerde(self.node, rest)), frozenset((Windowed,)), name
        if form in ("time_windowed", "count_windowed") and rest:
            size, _, key = rest.partition(":")
            if size.isdecimal() and key:
                make = time_windowed_ms if form == "time_windowed" else count_windowed
                return make(PinnedSerde(self.node, key), int(size)), frozenset((Windowed,)), name
        if form == "class" and rest:
            return self._serde_of_type(self._imported(name))
        raise SerializationError(f"node {self.node!r}: unknown type name {name!r} in stored data")

    def _imported(self, name: str) -> type:
        _, module, path = name.split(":", 2) if name.count(":") >= 2 else ("", "", name)
        try:
            target: Any = importlib.import_module(module)
            for part in path.split("."):
                target = getattr(target, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise SerializationError(
                f"node {self.node!r}: the class of stored data {name!r} cannot be imported ({error}); "
                "define it at the top of a module, or declare the type with key= or value="
            ) from error
        if not isinstance(target, type):
            raise SerializationError(f"node {self.node!r}: {name!r} of stored data is no class")
        return target

    def _mismatch(self, value: Any) -> SerializationError:
        return SerializationError(
            f"node {self.node!r} made {shown(value)} of type {type(value).__qualname__}, but first made "
            f"{self.type_name}; {_REMEDY}"
        )

    # The functions of the open serde. A caller may have saved a function before the type was known, so each of
    # these calls the corresponding function of the pinned type.

    def _serialize_first(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self.type_name is None:
            self._pin_to(value)
        return self.serialize(value)

    def _serialize_all_first(self, values: Sequence[Any]) -> list[bytes | None]:
        if self.type_name is None:
            first = next((value for value in values if value is not None), None)
            if first is None:
                return [None] * len(values)
            self._pin_to(first)
        return self.serialize_all(values)

    def _deserialize_unknown(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if self.type_name is None:
            raise SerializationError(
                f"node {self.node!r} has stored bytes, but no type for them yet; declare its type with key= or value="
            )
        return self.deserialize(data)

    def _deserialize_all_unknown(self, column: Sequence[bytes | None]) -> list[Any]:
        return [self._deserialize_unknown(data) for data in column]
