"""Which store of one version of a topology is which in another, whatever it is called there.

Numbered names shift when an operator is added before them, so a name of the one version may be
that of quite another store in the other.  Stores are paired by what surrounds them: the operator
and its functions, the topics above and below, their place in the graph.  Pure; imports topology.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import attrs
from attrs import frozen

from streams.core.serdes import Serde
from streams.state import Family, StoreSpec
from streams.topology import ProcessorNode, SinkNode, SourceNode, Topology

#: A name that the DSL made: it has a number of ten digits.
_NUMBERED = re.compile(r"-[0-9]{10}(?![0-9])")
#: The module in the name of a class, which is that of the script.
_MODULE = re.compile(r"class:[\w.]+:")
#: How deep functions within functions are looked into.
_DEPTH = 6


def is_numbered(name: str) -> bool:
    """Whether a name holds a number of the DSL's.

    >>> is_numbered("KSTREAM-AGGREGATE-STATE-STORE-0000000003"), is_numbered("totals")
    (True, False)
    """
    return _NUMBERED.search(name) is not None


def without_module(name: str) -> str:
    """Return the name of a serde without the modules of its classes.

    >>> without_module("class:shop_v2:Order")
    'class:Order'
    """
    return _MODULE.sub("class:", name)


@frozen
class Role:
    """The place of a store in its topology, apart from its name."""

    name: str
    #: Kinds of the operators that use it, in order.
    operators: tuple[str, ...]
    family: Family
    serdes: tuple[str, str]
    window_size_ms: int
    functions: tuple[Any, ...]
    #: Operators above it, with their functions.
    above: frozenset[Any]
    sources: frozenset[str]
    sinks: frozenset[str]
    users: tuple[str, ...]
    rank: int


def paired_stores(old: Topology, new: Topology) -> dict[str, str]:
    """Return for each store of the old version its counterpart in the new one, as far as it has one."""
    result = {
        name: name
        for name in old.stores
        if name in new.stores and not is_numbered(name) and _used(old, name) and _used(new, name)
    }
    before = [role for role in roles(old) if role.name not in result]
    after = [role for role in roles(new) if role.name not in result]
    scored = [
        (-_likeness(one, two), abs(one.rank - two.rank), one.name, two.name)
        for one in before
        for two in after
        if one.operators == two.operators and one.family == two.family
    ]
    taken: set[str] = set()
    for _, _, one_name, two_name in sorted(scored):
        if one_name not in result and two_name not in taken:
            result[one_name] = two_name
            taken.add(two_name)
    return result


def paired_nodes(old: Topology, new: Topology, stores: Mapping[str, str]) -> dict[str, str]:
    """Return for each operator of the old version that has stores its counterpart in the new one."""
    result = {}
    for one, two in stores.items():
        left, right = list(old.store_users[one]), list(new.store_users[two])
        for name in left:
            if name in right:
                result[name] = name
                right.remove(name)
                continue
            kind = _operator_kind(old, name)
            found = next((other for other in right if _operator_kind(new, other) == kind and other not in left), None)
            if found is not None:
                result.setdefault(name, found)
                right.remove(found)
    return result


def roles(topology: Topology) -> Iterator[Role]:
    """Yield what each store is, in order of the graph."""
    places = {name: number for number, name in enumerate(topology.order)}
    used = [name for name in topology.stores if _used(topology, name)]
    used.sort(key=lambda name: min(places[user] for user in topology.store_users[name]))
    for rank, name in enumerate(used):
        spec, users = topology.stores[name], topology.store_users[name]
        above = _reached(topology, users, up=True)
        below = _reached(topology, users, up=False)
        nodes = [topology.nodes[user] for user in users]
        yield Role(
            name,
            tuple(_operator_kind(topology, user) for user in users),
            spec.kind.family,
            _serdes(spec),
            spec.window_size_ms,
            tuple(fingerprint(node.operator) for node in nodes if isinstance(node, ProcessorNode)),
            frozenset(
                fingerprint(node.operator)
                for node in (topology.nodes[item] for item in above)
                if isinstance(node, ProcessorNode)
            ),
            frozenset(
                topic
                for node in (topology.nodes[item] for item in above)
                if isinstance(node, SourceNode)
                for topic in node.topics
                if topic not in topology.internal_topics
            ),
            frozenset(
                node.topic
                for node in (topology.nodes[item] for item in below)
                if isinstance(node, SinkNode) and node.topic is not None and node.topic not in topology.internal_topics
            ),
            tuple(user for user in users if not is_numbered(user)),
            rank,
        )


def functions_of(topology: Topology, store: str) -> tuple[Any, ...]:
    """Return what the operators of a store do, comparable between versions."""
    nodes = [topology.nodes[user] for user in topology.store_users[store]]
    return tuple(fingerprint(node.operator) for node in nodes if isinstance(node, ProcessorNode))


def owner_of(topology: Topology, store: str) -> tuple[str, Any]:
    """Return the first node that uses a store, and its operator, None if it has none."""
    name = topology.store_users[store][0]
    node = topology.nodes[name]
    return name, node.operator if isinstance(node, ProcessorNode) else None


def stores_below(topology: Topology, topic: str) -> set[str]:
    """Return the stores of all operators that records of a repartition topic come to."""
    readers = [source.name for source in topology.sources() if topic in source.topics]
    below = _reached(topology, readers, up=False)
    return {store for store, users in topology.store_users.items() if not set(users).isdisjoint(below)}


def _used(topology: Topology, store: str) -> bool:
    return bool(topology.store_users.get(store))


def _serdes(spec: StoreSpec) -> tuple[str, str]:
    return without_module(spec.key_serde.name), without_module(spec.value_serde.name)


def _operator_kind(topology: Topology, name: str) -> str:
    node = topology.nodes[name]
    return type(node.operator).__name__ if isinstance(node, ProcessorNode) else type(node).__name__


def _likeness(one: Role, two: Role) -> float:
    """Return how likely two stores are the same: what the operators do counts most, numbered names least."""
    score = 0.0
    score += 6 * bool(set(one.users) & set(two.users))
    score += 4 * (one.functions == two.functions)
    score += 3 * (one.name == two.name)
    score += 3 * _overlap(one.sources, two.sources) + 3 * _overlap(one.sinks, two.sinks)
    score += 4 * (one.above == two.above) + 2 * _overlap(one.above, two.above)
    score += 2 * (one.serdes[0] == two.serdes[0]) + 2 * (one.serdes[1] == two.serdes[1])
    return score + 2 * (one.window_size_ms == two.window_size_ms)


def _overlap(one: frozenset[Any], two: frozenset[Any]) -> float:
    return len(one & two) / len(one | two) if one or two else 1.0


def _reached(topology: Topology, names: list[str], *, up: bool) -> list[str]:
    """Return all nodes above or below some, through repartition topics too."""
    writers: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    for node in topology.nodes.values():
        if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
            writers.setdefault(node.topic, []).append(node.name)
        elif isinstance(node, SourceNode):
            for topic in node.topics:
                readers.setdefault(topic, []).append(node.name)
    seen: dict[str, None] = {}
    pending = list(names)
    while pending:
        node = topology.nodes[pending.pop()]
        if up:
            found = [] if isinstance(node, SourceNode) else list(node.parents)
            if isinstance(node, SourceNode):
                found = [name for topic in node.topics for name in writers.get(topic, ())]
        else:
            found = list(topology.children[node.name])
            if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
                found = readers.get(node.topic, [])
        for name in found:
            if name not in seen:
                seen[name] = None
                pending.append(name)
    return [name for name in seen if name not in names]


# --- functions ----------------------------------------------------------------------------


def fingerprint(thing: Any, depth: int = _DEPTH) -> Any:
    """Return a hashable value, equal for things that do the same; names and places do not count."""
    if thing is None or isinstance(thing, bool | int | float | bytes):
        return thing
    if depth == 0:
        return type(thing).__qualname__
    inside = depth - 1
    if isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
        return (
            _code(thing.__code__),
            tuple(fingerprint(value, inside) for value in thing.__defaults__ or ()),
            tuple(fingerprint(value, inside) for value in cells),
        )
    if isinstance(thing, MethodType):
        return fingerprint(thing.__func__, inside)
    if isinstance(thing, partial):
        return fingerprint(thing.func, inside), tuple(fingerprint(value, inside) for value in thing.args)
    if isinstance(thing, type):
        methods = [value for value in vars(thing).values() if isinstance(value, FunctionType)]
        return thing.__qualname__, tuple(fingerprint(method, inside) for method in methods)
    if isinstance(thing, Serde):
        return without_module(thing.name)
    if attrs.has(type(thing)):
        fields = attrs.fields(type(thing))
        # Texts are names of stores and nodes, which may differ.
        values = [getattr(thing, field.name, None) for field in fields]
        return type(thing).__qualname__, tuple(
            fingerprint(value, inside) for value in values if not isinstance(value, str)
        )
    if isinstance(thing, list | tuple):
        return tuple(fingerprint(value, inside) for value in thing)
    return type(thing).__qualname__


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False  # Not assigned yet.
    return True


def _code(code: CodeType) -> Any:
    constants = tuple(_code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts)
    return code.co_code, code.co_names, constants
