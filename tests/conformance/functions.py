"""The function catalogue of the conformance language.

Each function of the catalogue is made from its spec ``[name, args...]`` into a plain Python
function of the arity that the DSL expects.  Pure; the values are those that records carry.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from streams import Windowed
from streams.core.serdes.serdes import canonical_json

Spec: TypeAlias = list[Any]
#: Functions of key and value: value functions, and predicates.
KeyValueFunction: TypeAlias = Callable[[Any, Any], Any]
Predicate: TypeAlias = Callable[[Any, Any], bool]
#: Joiners: key, left, right.
Joiner: TypeAlias = Callable[[Any, Any, Any], Any]
#: Aggregators: key, value, aggregate.
Aggregator: TypeAlias = Callable[[Any, Any, Any], Any]

#: What tells the DSL that a function's results have no one type: they go as JSON where no serde is declared.
Anything: TypeAlias = dict[str, Any] | list[Any] | str | int | bool | None

_INTEGER = re.compile(r"-?[0-9]{1,15}")
_LONG = 1 << 64
_HALF = 1 << 63


class CatalogueError(Exception):
    """A catalogue function that is meant to raise did so."""


def long(number: int) -> int:
    """Return a number as 64-bit arithmetic has it, wrapped around."""
    return (number + _HALF) % _LONG - _HALF


def text(x: Any) -> str:
    """Return ``str(x)`` of the catalogue."""
    if x is None:
        return "null"
    if isinstance(x, str):
        return x
    if isinstance(x, int) and not isinstance(x, bool):
        return str(x)
    if isinstance(x, Windowed):
        return f"{text(x.key)}@{x.window.start_ms}/{x.window.end_ms}"
    if isinstance(x, bytes):
        return x.hex()
    return canonical_json(x).decode()


def number(x: Any) -> int:
    """Return ``num(x)`` of the catalogue."""
    if isinstance(x, int):
        return int(x)
    if isinstance(x, str):
        return int(x) if _INTEGER.fullmatch(x) else 0
    return len(x) if isinstance(x, list) else 0


def length(x: Any) -> int:
    """Return ``len(x)`` of the catalogue."""
    return len(x) if isinstance(x, list) else len(text(x))


def words(x: Any) -> list[str]:
    """Return ``words(x)`` of the catalogue."""
    return [word for word in text(x).split(" ") if word]


def _parse_int(v: Any) -> int | None:
    shown = text(v)
    return int(shown) if _INTEGER.fullmatch(shown) else None


def _word(v: Any, index: int) -> str | None:
    found = words(v)
    return found[index] if 0 <= index < len(found) else None


def _field(v: Any, name: str) -> Any:
    return v.get(name) if isinstance(v, dict) else None


def _with_field(v: Any, name: str, value: Any) -> Any:
    return {**v, name: value} if isinstance(v, dict) else v


def _raise_if(t: str, v: Any, result: Any) -> Any:
    if t in text(v):
        raise CatalogueError(f"value {text(v)!r} contains {t!r}")
    return result


def _inside(k: Any) -> Any:
    return k.key if isinstance(k, Windowed) else k


#: Value functions that see null values: arguments -> function of (key, value).
_TOTAL: dict[str, Callable[..., KeyValueFunction]] = {
    "identity": lambda: lambda k, v: v,
    "const": lambda c: lambda k, v: c,
    "null": lambda: lambda k, v: None,
    "key": lambda: lambda k, v: k,
    "key_str": lambda: lambda k, v: text(k),
    "str_null": lambda: lambda k, v: text(v),
    "default": lambda c: lambda k, v: c if v is None else v,
    "with_key": lambda sep: lambda k, v: None if v is None else text(k) + sep + text(v),
    "of_key": lambda spec: _of_key(value_function(spec)),
    "seq": lambda *specs: _sequence([value_function(spec) for spec in specs]),
    "window_key": lambda: lambda k, v: _inside(k),
    "window_start": lambda: lambda k, v: k.window.start_ms,
    "window_end": lambda: lambda k, v: k.window.end_ms,
}

#: Value functions that give null for null.
_STRICT: dict[str, Callable[..., KeyValueFunction]] = {
    "str": lambda: lambda k, v: text(v),
    "upper": lambda: lambda k, v: text(v).upper(),
    "lower": lambda: lambda k, v: text(v).lower(),
    "reverse": lambda: lambda k, v: text(v)[::-1],
    "append": lambda t: lambda k, v: text(v) + t,
    "prepend": lambda t: lambda k, v: t + text(v),
    "len": lambda: lambda k, v: length(v),
    "num": lambda: lambda k, v: number(v),
    "parse_int": lambda: lambda k, v: _parse_int(v),
    "add": lambda n: lambda k, v: long(number(v) + n),
    "mul": lambda n: lambda k, v: long(number(v) * n),
    "mod": lambda n: lambda k, v: number(v) % n,
    "first_word": lambda: lambda k, v: _word(v, 0) or "",
    "first_char": lambda: lambda k, v: text(v)[:1],
    "word": lambda i: lambda k, v: _word(v, i),
    "wrap": lambda: lambda k, v: {"k": None if k is None else text(k), "v": v},
    "field": lambda n: lambda k, v: _field(v, n),
    "set_field": lambda n, c: lambda k, v: _with_field(v, n, c),
    "null_if_contains": lambda t: lambda k, v: None if t in text(v) else v,
    "null_if_mod": lambda m, r: lambda k, v: None if number(v) % m == r else v,
    "throw_if_contains": lambda t: lambda k, v: _raise_if(t, v, v),
}


def _of_key(function: KeyValueFunction) -> KeyValueFunction:
    return lambda k, v: function(k, k)


def _sequence(functions: list[KeyValueFunction]) -> KeyValueFunction:
    def apply(k: Any, v: Any) -> Any:
        for function in functions:
            v = function(k, v)
        return v

    return apply


def value_function(spec: Spec) -> KeyValueFunction:
    """Return the value function ``F(k, v)`` of a spec."""
    name, *arguments = spec
    if name in _TOTAL:
        return _TOTAL[name](*arguments)
    function = _STRICT[name](*arguments)
    return lambda k, v: None if v is None else function(k, v)


def pair_function(key_spec: Spec, value_spec: Spec) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return the function of ``map`` and of a table's ``group_by``."""
    key_function, function = value_function(key_spec), value_function(value_spec)
    return lambda k, v: (key_function(k, v), function(k, v))


#: Predicates that see null values.
_TOTAL_PREDICATES: dict[str, Callable[..., Predicate]] = {
    "true": lambda: lambda k, v: True,
    "false": lambda: lambda k, v: False,
    "value_null": lambda: lambda k, v: v is None,
    "key_null": lambda: lambda k, v: k is None,
    "not": lambda spec: _negated(predicate(spec)),
    "and": lambda one, two: _both(predicate(one), predicate(two)),
    "or": lambda one, two: _either(predicate(one), predicate(two)),
    "key": lambda spec: _on_key(predicate(spec)),
    "throw_if_contains": lambda t: lambda k, v: v is None or bool(_raise_if(t, v, True)),
}

#: Predicates that are false for null.
_STRICT_PREDICATES: dict[str, Callable[..., Callable[[Any], bool]]] = {
    "len_gt": lambda n: lambda v: length(v) > n,
    "gt": lambda n: lambda v: number(v) > n,
    "lt": lambda n: lambda v: number(v) < n,
    "mod": lambda m, r: lambda v: number(v) % m == r,
    "contains": lambda t: lambda v: t in text(v),
    "starts_with": lambda t: lambda v: text(v).startswith(t),
    "eq": lambda c: lambda v: text(v) == text(c),
}


def _negated(one: Predicate) -> Predicate:
    return lambda k, v: not one(k, v)


def _both(one: Predicate, two: Predicate) -> Predicate:
    return lambda k, v: one(k, v) and two(k, v)


def _either(one: Predicate, two: Predicate) -> Predicate:
    return lambda k, v: one(k, v) or two(k, v)


def _on_key(one: Predicate) -> Predicate:
    return lambda k, v: one(k, k)


def predicate(spec: Spec) -> Predicate:
    """Return the predicate ``P(k, v)`` of a spec."""
    name, *arguments = spec
    if name in _TOTAL_PREDICATES:
        return _TOTAL_PREDICATES[name](*arguments)
    holds = _STRICT_PREDICATES[name](*arguments)
    return lambda k, v: v is not None and holds(v)


def _or_none(x: Any) -> str | None:
    return None if x is None else text(x)


_FLAT: dict[str, Callable[..., Callable[[Any, Any], list[tuple[Any, Any]]]]] = {
    "words": lambda: lambda k, v: [] if v is None else [(word, v) for word in words(v)],
    "words_count": lambda: lambda k, v: [] if v is None else [(word, 1) for word in words(v)],
    "chars": lambda: lambda k, v: [] if v is None else [(char, v) for char in text(v)],
    "dup": lambda n: lambda k, v: [(k, v)] * n,
    "fan": lambda n: lambda k, v: [(f"{text(k)}-{i}", v) for i in range(n)],
    "none": lambda: lambda k, v: [],
    "swap": lambda: lambda k, v: [(_or_none(v), _or_none(k))],
}

_FLAT_VALUES: dict[str, Callable[..., Callable[[Any, Any], list[Any]]]] = {
    "words": lambda: lambda k, v: [] if v is None else words(v),
    "chars": lambda: lambda k, v: [] if v is None else list(text(v)),
    "dup": lambda n: lambda k, v: [v] * n,
    "indexed": lambda n: lambda k, v: [f"{text(v)}#{i}" for i in range(n)],
    "range": lambda: lambda k, v: list(range(min(10, number(v)))),
    "key_words": lambda: lambda k, v: [] if v is None else [f"{text(k)}.{word}" for word in words(v)],
    "none": lambda: lambda k, v: [],
}


def flat_function(spec: Spec) -> Callable[[Any, Any], list[tuple[Any, Any]]]:
    """Return the function of ``flat_map`` of a spec."""
    name, *arguments = spec
    return _FLAT[name](*arguments)


def flat_value_function(spec: Spec) -> Callable[[Any, Any], list[Any]]:
    """Return the function of ``flat_map_values`` of a spec."""
    name, *arguments = spec
    return _FLAT_VALUES[name](*arguments)


def _plus(left: Any, right: Any) -> str:
    return f"{text(left)}+{text(right)}"


def _raise_for(t: str, left: Any, right: Any) -> str:
    if t in text(left) + text(right):
        raise CatalogueError(f"{text(left)!r} and {text(right)!r} contain {t!r}")
    return _plus(left, right)


_JOINERS: dict[str, Callable[..., Joiner]] = {
    "concat": lambda sep: lambda k, left, right: text(left) + sep + text(right),
    "left": lambda: lambda k, left, right: left,
    "right": lambda: lambda k, left, right: right,
    "sum": lambda: lambda k, left, right: long(number(left) + number(right)),
    "pair": lambda: lambda k, left, right: [left, right],
    "coalesce": lambda: lambda k, left, right: right if left is None else left,
    "key_concat": lambda: lambda k, left, right: f"{text(k)}:{text(left)},{text(right)}",
    "null_if": lambda t: lambda k, left, right: None if t in text(left) + text(right) else _plus(left, right),
    "throw_if": lambda t: lambda k, left, right: _raise_for(t, left, right),
}


def joiner(spec: Spec) -> Joiner:
    """Return the joiner ``J(k, l, r)`` of a spec."""
    name, *arguments = spec
    return _JOINERS[name](*arguments)


def keyless_joiner(spec: Spec) -> Callable[[Any, Any], Any]:
    """Return the joiner of a spec for joins that give it no key."""
    function = joiner(spec)

    def join(left: Any, right: Any) -> Anything:
        return function(None, left, right)

    return join


def _listed(x: Any) -> list[Any]:
    return x if isinstance(x, list) else []


def _without(found: list[Any], v: Any) -> list[Any]:
    for position, element in enumerate(found):
        if text(element) == text(v):
            return found[:position] + found[position + 1 :]
    return list(found)


def _null_when_sum(total: int, n: int) -> int | None:
    return None if total == n else total


_AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    "sum": lambda: lambda k, v, a: long(number(a) + number(v)),
    "sub": lambda: lambda k, v, a: long(number(a) - number(v)),
    "count": lambda: lambda k, v, a: long(number(a) + 1),
    "uncount": lambda: lambda k, v, a: long(number(a) - 1),
    "max": lambda: lambda k, v, a: number(v) if a is None else max(number(a), number(v)),
    "min": lambda: lambda k, v, a: number(v) if a is None else min(number(a), number(v)),
    "last": lambda: lambda k, v, a: v,
    "first": lambda: lambda k, v, a: v if a is None else a,
    "keep": lambda: lambda k, v, a: a,
    "concat": lambda t: lambda k, v, a: text(v) if a is None or a == "" else text(a) + t + text(v),
    "tag": lambda t: lambda k, v, a: text(a) + t + text(v),
    "key_tag": lambda t: lambda k, v, a: f"{text(a)}{t}{text(k)}={text(v)}",
    "append": lambda: lambda k, v, a: [*_listed(a), v],
    "remove": lambda: lambda k, v, a: _without(_listed(a), v),
    "extend": lambda: lambda k, v, a: [*_listed(a), *_listed(v)],
    "null_when": lambda t: lambda k, v, a: None if t in text(v) else _plus(a, v),
    "null_when_sum": lambda n: lambda k, v, a: _null_when_sum(long(number(a) + number(v)), n),
    "throw_if_contains": lambda t: lambda k, v, a: _raise_if(t, v, _plus(a, v)),
}


def aggregator(spec: Spec) -> Aggregator:
    """Return the aggregator ``A(k, v, agg)`` of a spec."""
    name, *arguments = spec
    return _AGGREGATORS[name](*arguments)


def reducer(spec: Spec) -> Callable[[Any, Any], Any]:
    """Return the reducer (old, new) of an aggregator's spec."""
    function = aggregator(spec)
    return lambda old, new: function(None, new, old)


def merger(spec: Spec) -> Callable[[Any, Any, Any], Any]:
    """Return the session merger (key, first, second) of an aggregator's spec."""
    function = aggregator(spec)
    return lambda k, first, second: function(k, second, first)


#: A timestamp extractor as the DSL takes it: key, value, record time, partition time.
TimestampOf: TypeAlias = Callable[[Any, Any, int, int], int]


def _or_invalid(function: KeyValueFunction) -> TimestampOf:
    def extract(k: Any, v: Any, ts: int, partition_time: int) -> int:
        result = function(k, v)
        return -1 if result is None else number(result)

    return extract


_EXTRACTORS: dict[str, Callable[..., TimestampOf]] = {
    "record": lambda: lambda k, v, ts, partition_time: ts,
    "fn": lambda spec: _or_invalid(value_function(spec)),
    "add": lambda n: lambda k, v, ts, partition_time: ts + n,
    "neg_if_contains": lambda t: lambda k, v, ts, partition_time: -1 if t in text(v) else ts,
    "partition_time": lambda: lambda k, v, ts, partition_time: partition_time,
    "partition_time_if_contains": lambda t: lambda k, v, ts, partition_time: partition_time if t in text(v) else ts,
}

#: Extractors that the project has itself, by its name for them.
BUILT_IN_EXTRACTORS = ("fail_on_invalid", "log_and_skip", "use_partition_time")


def extractor(spec: Spec) -> str | TimestampOf:
    """Return the timestamp extractor of a spec: a built-in one by name, or a function."""
    name, *arguments = spec
    return str(name) if name in BUILT_IN_EXTRACTORS else _EXTRACTORS[name](*arguments)


def last_header(headers: tuple[tuple[str, bytes | None], ...], name: str) -> str | None:
    """Return the text of the last header of a name, None if there is none."""
    found = [value for header, value in headers if header == name]
    return found[-1].decode() if found and found[-1] is not None else None


def _first_given(one: str | None, other: str) -> str:
    return other if one is None else one


def topic_function(spec: Spec) -> Callable[[Any, Any, Any], str]:
    """Return the function that chooses a record's topic: key, value, record context."""
    name, *arguments = spec
    if name == "fn":
        function = value_function(arguments[0])
        return lambda k, v, context: text(function(k, v))
    if name == "header":
        header, default = arguments
        return lambda k, v, context: _first_given(last_header(context.headers, header), default)
    if name == "source_topic":
        return lambda k, v, context: str(arguments[0]) + context.topic
    raise KeyError(name)
