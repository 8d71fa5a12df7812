"""Strategies of Hypothesis for the records of a topic, from its types (extra ``hypothesis``).

A strategy generates what the serde of the type can write: ints of 64 bits, finite floats, text that is UTF-8, times in
UTC.  Of the other packages, this module imports only ``core``; Hypothesis is imported on use.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID as Uuid

import attrs
import msgspec
import typing_extensions

from streams.core.blocks.records import Window, Windowed
from streams.core.errors import ConfigError
from streams.core.installation import pip_install
from streams.core.serdes.serdes import (
    BOOLEAN,
    BYTES,
    DATETIME,
    DOUBLE,
    INT32,
    LONG,
    NULL,
    STRING,
    UUID,
    FormatSerde,
    Serde,
    WindowedSerde,
    serde_for,
)
from streams.core.topic import Topic, typed_topic

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

K = TypeVar("K")
V = TypeVar("V")

_TYPES: Final[Mapping[Serde[Any], Any]] = {
    STRING: str,
    LONG: int,
    DOUBLE: float,
    BOOLEAN: bool,
    BYTES: bytes,
    UUID: Uuid,
    DATETIME: datetime,
}
_FIRST, _LAST = datetime(1970, 1, 1), datetime(2100, 1, 1)  # noqa: DTZ001 - Hypothesis adds the time zone.
#: Constraints of ``annotated_types``, ``msgspec.Meta`` and fields of pydantic, by their names there.
_BOUNDS: Final = {
    "ge": "min_value",
    "le": "max_value",
    "min_length": "min_size",
    "max_length": "max_size",
    "pattern": "pattern",
}


def records(
    topic: Topic[K, V],
    *,
    min_size: int = 0,
    max_size: int = 20,
    keys: "SearchStrategy[K] | None" = None,
    values: "SearchStrategy[V] | None" = None,
    timestamps_ms: "SearchStrategy[int] | None" = None,
    tombstones: bool = False,
) -> "SearchStrategy[list[tuple[K, V | None, int]]]":
    """Return a strategy of lists of records of a topic, as (key, value, timestamp_ms), for ``driver.pipe_all``.

    A list has ``min_size`` to ``max_size`` records of up to four keys, in any order of time.  Keys and values are of
    the topic's types, unless ``keys`` and ``values`` are given; a topic with ``key_from`` has the keys that this
    function returns.  Times are between 0 and ten minutes, unless ``timestamps_ms`` is given.  With ``tombstones``,
    some values are None.

    Raises:
        ConfigError: Hypothesis is not installed, or there is no strategy for a type.
        TopologyError: ``topic`` is not a ``Topic``.
    """
    st = _strategies()
    topic = typed_topic(topic, "records()")
    places = _Places(st)
    if values is None:
        values = places.of_serde(topic.value_serde, f"topic {topic.name!r}: pass values=")
    times = st.integers(0, 600_000) if timestamps_ms is None else timestamps_ms
    optional: Any = st.one_of(st.none(), values) if tombstones else values
    size = {"min_size": min_size, "max_size": max_size}
    rows: SearchStrategy[list[tuple[K, V | None, int]]]
    if keys is None and topic.key_from is not None and not tombstones:
        rows = st.lists(st.builds(lambda value, at: (topic.key_of(value), value, at), values, times), **size)
    else:
        if keys is None:
            keys = places.of_serde(topic.key_serde, f"topic {topic.name!r}: pass keys=")
        some = st.lists(keys, min_size=1, max_size=4, unique_by=topic.key_serde.serialize)
        rows = some.flatmap(lambda pool: st.lists(st.tuples(st.sampled_from(pool), optional, times), **size))
    return rows


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise ConfigError(f"records() needs Hypothesis ({error}): {pip_install('hypothesis')}") from None
    return strategies


class _Places:
    """Builds the strategies of types; a recursive class refers to its own strategy."""

    def __init__(self, st: Any) -> None:
        self._st = st
        self._classes: dict[Any, Any] = {}

    def of_serde(self, serde: Serde[Any], remedy: str) -> Any:
        """Return the strategy that generates objects of a serde.

        Raises:
            ConfigError: there is none.
        """
        if serde is NULL:
            return self._st.none()
        if serde is INT32:
            return self._st.integers(-(2**31), 2**31 - 1)
        if isinstance(serde, WindowedSerde):
            return self._windowed(serde, remedy)
        maker, arguments = serde.__reduce__()
        form = _TYPES.get(serde)
        if isinstance(serde, FormatSerde):
            form = serde.format.form
        elif form is None and maker is serde_for:
            form = arguments[0]
        if form is None:
            raise ConfigError(f"{remedy}: there is no strategy for objects of serde {serde.name!r}")
        try:
            return self.of(form)
        except (TypeError, NameError, AttributeError) as error:
            raise ConfigError(f"{remedy}: there is no strategy for {form!r}: {error}") from error

    def _windowed(self, serde: WindowedSerde[Any], remedy: str) -> Any:
        st = self._st
        size_ms = serde.size_ms
        if size_ms is None or size_ms < 0:
            windows = st.tuples(st.integers(0, 600_000), st.integers(0, 600_000)).map(sorted)
        else:
            windows = st.integers(0, 600_000).map(lambda start: (start, start + size_ms))
        inner = self.of_serde(serde.inner, remedy)
        return st.builds(lambda key, window: Windowed(key, Window(*window)), inner, windows)

    def of(self, form: Any, bounds: Mapping[str, Any] | None = None) -> Any:
        """Return the strategy that generates a type; ``bounds`` are strategy arguments, such as ``min_value``."""
        st = self._st
        if isinstance(form, NewType):
            return self.of(form.__supertype__, bounds)
        if isinstance(form, typing_extensions.TypeAliasType):
            return self.of(form.__value__, bounds)
        origin = get_origin(form)
        arguments = get_args(form)
        if origin is Annotated:
            return self.of(arguments[0], {**_bounds(arguments[1:]), **(bounds or {})})
        if origin in (Required, NotRequired, typing_extensions.Required, typing_extensions.NotRequired):
            return self.of(arguments[0], bounds)
        if origin is Union or origin is types.UnionType:
            return st.one_of([self.of(member, bounds if member is not type(None) else None) for member in arguments])
        if origin is Literal:
            return st.sampled_from(arguments)
        if origin is not None and isinstance(origin, type) and not _is_class(origin):
            return self._container(origin, arguments, dict(bounds or {}))
        if form is Any or form is object:
            return self._json()
        if _is_class(origin or form):
            return self._class(form)
        return self._plain(form, dict(bounds or {}))

    def _plain(self, form: Any, bounds: dict[str, Any]) -> Any:
        st = self._st
        if form in (list, dict, tuple, set, frozenset):
            return self._container(form, (), bounds)
        if isinstance(form, type) and issubclass(form, Enum):
            return st.sampled_from(form)
        if form is str and "pattern" in bounds:
            return st.from_regex(bounds["pattern"], alphabet=st.characters(codec="utf-8"))
        if form is Decimal:
            return self._decimals(**bounds)
        if form is int:
            return self._integers(**bounds)
        strategies: dict[Any, Any] = {
            None: lambda: st.none(),
            type(None): lambda: st.none(),
            bool: lambda: st.booleans(),
            float: lambda: st.floats(**bounds, allow_nan=False, allow_infinity=False),
            str: lambda: st.text(st.characters(codec="utf-8"), **{"max_size": 20, **bounds}),
            bytes: lambda: st.binary(**{"max_size": 20, **bounds}),
            datetime: lambda: st.datetimes(_FIRST, _LAST, timezones=st.just(UTC)),
            date: lambda: st.dates(_FIRST.date(), _LAST.date()),
            time: lambda: st.times(),
            timedelta: lambda: st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
            Uuid: lambda: st.uuids(),
        }
        if form in strategies:
            return strategies[form]()
        if not isinstance(form, type):
            raise TypeError(f"{form!r} is no class")
        return st.from_type(form)

    def _integers(
        self,
        min_value: int = -(2**63),
        max_value: int = 2**63 - 1,
        *,
        exclude_min: bool = False,
        exclude_max: bool = False,
    ) -> Any:
        return self._st.integers(min_value + exclude_min, max_value - exclude_max)

    def _decimals(
        self,
        min_value: Any = -(10**9),
        max_value: Any = 10**9,
        *,
        places: int = 2,
        exclude_min: bool = False,
        exclude_max: bool = False,
    ) -> Any:
        step = Decimal(1).scaleb(-places)
        return self._st.decimals(
            min_value + step * exclude_min,
            max_value - step * exclude_max,
            places=places,
            allow_nan=False,
            allow_infinity=False,
        )

    def _container(self, kind: Any, arguments: Sequence[Any], bounds: dict[str, Any]) -> Any:
        st = self._st
        size = {"max_size": 5, **bounds}
        if issubclass(kind, tuple) and arguments and arguments[-1] is not Ellipsis:
            return st.tuples(*map(self.of, arguments))
        if issubclass(kind, Mapping):
            key, value = arguments or (str, Any)
            return st.dictionaries(self.of(key), self.of(value), **size)
        item = self.of(arguments[0]) if arguments else self._json()
        if issubclass(kind, Set):
            sets = st.frozensets(item, **size)
            return sets.map(set) if issubclass(kind, set) else sets
        if issubclass(kind, tuple):
            return st.lists(item, **size).map(tuple)
        if issubclass(kind, Sequence):
            return st.lists(item, **size)
        raise TypeError(f"{kind!r} is no known container")

    def _json(self) -> Any:
        st = self._st
        scalars = st.one_of(st.none(), st.booleans(), self.of(int), self.of(float), self.of(str))
        return st.recursive(
            scalars,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(self.of(str), inner, max_size=3),
            max_leaves=5,
        )

    def _class(self, form: Any) -> Any:
        if form not in self._classes:
            # The strategies of its fields are made when the first one is drawn.
            self._classes[form] = self._st.deferred(lambda: self._built(form))
        return self._classes[form]

    def _built(self, form: Any) -> Any:
        st = self._st
        kind = get_origin(form) or form
        parameters = dict(zip(getattr(kind, "__parameters__", ()), get_args(form), strict=False))
        fields = {name: self.of(_filled(hint, parameters), bounds) for name, hint, bounds in _fields(kind)}
        if typing_extensions.is_typeddict(kind):
            required = {name: fields.pop(name) for name in kind.__required_keys__}
            return st.fixed_dictionaries(required, optional=fields)
        return st.builds(form, **fields)


def _filled(hint: Any, parameters: Mapping[Any, Any]) -> Any:
    """Return a type with its type variables replaced by the arguments of a generic class."""
    if hint in parameters:
        return parameters[hint]
    own = getattr(hint, "__parameters__", ()) if get_origin(hint) is not None else ()
    return hint[tuple(parameters.get(one, one) for one in own)] if own and parameters else hint


def _is_class(kind: Any) -> bool:
    """Whether a type is a class with typed fields, such as a dataclass."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or attrs.has(kind)
        or issubclass(kind, msgspec.Struct)
        or hasattr(kind, "model_fields")
        or typing_extensions.is_typeddict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def _fields(kind: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield the fields of a class: argument name, type and bounds."""
    models = getattr(kind, "model_fields", None)
    if models is not None:
        for name, field in models.items():
            yield field.alias or name, field.annotation, _bounds(field.metadata)
        return
    hints = get_type_hints(kind, include_extras=True)
    if attrs.has(kind):
        for part in attrs.fields(kind):
            if part.init:
                yield part.alias or part.name, hints[part.name], {}
    elif dataclasses.is_dataclass(kind):
        for item in dataclasses.fields(kind):
            if item.init:
                yield item.name, hints[item.name], {}
    else:
        for name in getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None) or hints:
            yield name, hints[name], {}


def _bounds(metadata: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a strategy that correspond to constraints, such as ``min_value``."""
    bounds: dict[str, Any] = {}
    for item in metadata:
        for name, argument in _BOUNDS.items():
            if getattr(item, name, None) is not None:
                bounds[argument] = getattr(item, name)
        if getattr(item, "gt", None) is not None:
            bounds |= {"min_value": item.gt, "exclude_min": True}
        if getattr(item, "lt", None) is not None:
            bounds |= {"max_value": item.lt, "exclude_max": True}
        extra = getattr(item, "extra", None) or {}
        if "precision" in extra:
            places = extra["scale"]
            largest = Decimal(10 ** extra["precision"] - 1).scaleb(-places)
            bounds |= {"places": places, "min_value": -largest, "max_value": largest}
    return bounds
