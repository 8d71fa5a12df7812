"""Visits to the parts of values at which a type has something that needs a look, such as an undeclared type.

The visits of a type are found once, from its description by msgspec; a type without such a part costs nothing.
Of other modules, this one imports none.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import define, field
from msgspec import inspect

#: Returns a part of a value, or another part to put in its place, and raises ``RefusedPart``.
Visit: TypeAlias = Callable[[Any], Any]


class RefusedPart(ValueError):
    """A part of a value that its type does not allow; ``place`` is its place below the value, such as ``.at[2]``."""

    def __init__(self, problem: str, advice: str, place: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.place = place

    def __str__(self) -> str:
        return f"{self.problem} - at `${self.place}`; {self.advice}"


def parts_of(info: inspect.Type) -> Iterator[inspect.Type]:
    """Yield msgspec's description of a type and those of all types within it, each once."""
    pending: list[Any] = [info]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        for name in ("type", "item_type", "key_type", "value_type"):
            inner = getattr(item, name, None)
            if isinstance(inner, inspect.Type):
                pending.append(inner)
        for name in ("types", "item_types"):
            pending.extend(getattr(item, name, ()))
        pending.extend(part.type for part in getattr(item, "fields", ()))


#: Returns the visit of a part that may have any of these types; None to look into them.
Leaf: TypeAlias = Callable[[Sequence[inspect.Type]], Visit | None]


def visit_of(info: inspect.Type, leaf: Leaf) -> Visit | None:
    """Return the visit of values of a type, or None if none of their parts needs one."""
    visits = _Visits(leaf)
    visit = visits.of(info)
    return visit if visits.has_any else None


@define
class _Visits:
    """The visits within one type, which may contain itself."""

    leaf: Leaf
    #: Whether the type has any part to visit.
    has_any: bool = False
    _fields: dict[int, list[tuple[str | int, str, Visit]]] = field(factory=dict)

    def of(self, info: Any) -> Visit | None:
        """Return the visit of a part of a type; None if it is not visited."""
        if isinstance(info, inspect.Metadata):
            return None if (info.extra or {}).get("is_opaque") else self.of(info.type)
        types = info.types if isinstance(info, inspect.UnionType) else (info,)
        members = [member.type if isinstance(member, inspect.Metadata) else member for member in types]
        visit = self.leaf(members)
        if visit is not None:
            self.has_any = True
            return visit
        visits = [(member, visit) for member in members if (visit := self._within(member)) is not None]
        if not visits:
            return None
        return visits[0][1] if len(members) == 1 else partial(_in_member, visits)

    def _within(self, info: Any) -> Visit | None:
        if id(info) in self._fields:  # It may be incomplete now: the type contains itself.
            return partial(_in_fields, self._fields[id(info)])
        items = getattr(info, "item_types", ())
        if isinstance(info, inspect.NamedTupleType):
            items = [part.type for part in info.fields]
        if items:
            visits = [self.of(item) for item in items]
            return partial(_in_tuple, visits) if any(visits) else None
        if fields := getattr(info, "fields", ()):
            parts = self._fields[id(info)] = []
            # The items of an array are the tag, if there is one, and the fields.
            first = int(info.tag is not None) if getattr(info, "array_like", False) else None
            for at, part in enumerate(fields):
                if (visit := self.of(part.type)) is not None:
                    name = part.encode_name if first is None else first + at
                    parts.append((name, part.name, visit))
            return partial(_in_fields, parts) if parts else None
        if isinstance(info, inspect.DictType):
            key, entry = self.of(info.key_type), self.of(info.value_type)
            return partial(_in_entries, key, entry) if key or entry else None
        entry = self.of(info.item_type) if hasattr(info, "item_type") else None
        return None if entry is None else partial(_in_items, entry)


def _in_member(visits: list[tuple[Any, Visit]], value: Any) -> Any:
    """Visit the value as the one member of a union that it is; of several classes, the tag says which."""
    for member, visit in visits:
        if not hasattr(member, "fields"):
            value = visit(value)
        elif _is_of(member, value):
            return visit(value)
    return value


def _is_of(info: Any, value: Any) -> bool:
    """Return whether a value, an object or parsed JSON, is of this class of a union."""
    tag = getattr(info, "tag", None)
    if isinstance(value, dict):
        return tag is None or value.get(info.tag_field) == tag
    if isinstance(value, list):
        return tag is None or value[:1] == [tag]
    return info.cls in type(value).__mro__  # A TypedDict has no instances.


def _in_fields(parts: list[tuple[str | int, str, Visit]], value: Any) -> Any:
    is_parsed = isinstance(value, (dict, list))
    for name, attribute, visit in parts:
        part = _parsed(value, name) if is_parsed else getattr(value, attribute, None)
        if part is not None:
            visited = _entry(f".{name}" if isinstance(name, str) else f"[{name}]", visit, part)
            if visited is not part and is_parsed:
                value = value.copy()
                value[name] = visited
    return value


def _parsed(value: Any, name: str | int) -> Any:
    """Return a field of parsed JSON, which is an object or an array; None if there is none."""
    if isinstance(name, int):
        return value[name] if isinstance(value, list) and name < len(value) else None
    return value.get(name) if isinstance(value, dict) else None


def _in_tuple(visits: list[Visit | None], value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    visited = [_entry(f"[{at}]", visit, part) for at, (visit, part) in enumerate(zip(visits, value, strict=False))]
    return [*visited, *value[len(visited) :]]


def _in_items(visit: Visit, value: Any) -> Any:
    if not isinstance(value, (list, tuple, set, frozenset)):
        return value
    return [_entry(f"[{at}]", visit, part) for at, part in enumerate(value)]


def _in_entries(key: Visit | None, entry: Visit | None, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {_entry("", key, name): _entry(f".{name}", entry, part) for name, part in value.items()}


def _entry(place: str, visit: Visit | None, part: Any) -> Any:
    try:
        return part if visit is None else visit(part)
    except RefusedPart as error:
        error.place = place + error.place
        raise
