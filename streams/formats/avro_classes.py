"""Avro schemas of Python classes, and the conversion between their instances and the objects of fastavro.

attrs classes, dataclasses, msgspec structs, pydantic models, TypedDicts and NamedTuples become records; the other
supported types are those that can be written as JSON. Pure; of other packages only ``core`` and ``values``.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import attrs
import msgspec
import typing_extensions
from attrs import evolve, frozen
from msgspec import inspect

from streams.core.errors import TopologyError
from streams.formats.avro_values import (
    Convert,
    Shape,
    instance_of,
    items_of,
    leaf,
    misfit,
    one_of,
    placed,
    record_writer,
    values_of,
)
from streams.values import RULES, type_name

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NONE = frozenset({type(None)})


def _as_uuid(value: UUID | str) -> UUID:
    # Writers without the logical type write a string, of which UUID() takes more forms than JSON has.
    return msgspec.convert(value, UUID)


def _schema(avro: str) -> Any:
    kind, _, logical_type = avro.partition(": ")
    return {"type": kind, "logicalType": logical_type} if logical_type else kind


def _as_datetime(value: datetime | int) -> datetime:
    # An int is one of nanoseconds: ``fitted`` lets no other pass.
    return value if isinstance(value, datetime) else _EPOCH + timedelta(microseconds=value // 1_000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READS: dict[type[inspect.Type], Convert] = {inspect.UUIDType: _as_uuid, inspect.DateTimeType: _as_datetime}


def precision(digits: int, scale: int) -> msgspec.Meta:
    """Declare the precision (total digits) and scale (digits after the decimal point) of a decimal.

    For example, ``Annotated[Decimal, precision(18, 2)]``.

    Raises:
        ValueError: the scale is not between 0 and the number of digits.
    """
    if not 0 <= scale <= digits or digits < 1:
        raise ValueError(f"precision({digits}, {scale}): the scale must be between 0 and the number of digits")
    return msgspec.Meta(extra={"precision": digits, "scale": scale})


@frozen
class _Field:
    """A field of a class: its Avro name, attribute, constructor argument, type and default."""

    name: str
    attribute: str
    argument: str
    type: inspect.Type
    default: Any = msgspec.NODEFAULT
    is_optional_key: bool = False


class _Builder:
    """Builds the shapes of one schema; a record is defined at its first use, and referenced by name afterwards."""

    def __init__(self, root: str | None, namespace: str | None) -> None:
        self._root = root
        self._namespace = namespace
        self._records: dict[type, tuple[str, list[Convert]]] = {}
        self._enums: dict[type, Shape] = {}

    def shape(self, info: inspect.Type, where: str, extra: Mapping[str, Any] | None = None) -> Shape:
        """Return the shape of a type; ``where`` locates the type in error messages."""
        if isinstance(info, inspect.Metadata):
            return self.shape(info.type, where, {**(extra or {}), **(info.extra or {})})
        if isinstance(info, inspect.DecimalType):
            return _decimal(extra or {}, where)
        if isinstance(info, inspect.NoneType):
            return leaf("null")
        rule = RULES.get(type(info))
        if rule is not None and rule.avro:
            return evolve(leaf(_schema(rule.avro)), from_datum=_READS.get(type(info)))
        if isinstance(info, inspect.EnumType):
            return self._enum(info.cls, where)
        if isinstance(info, inspect.LiteralType):
            return _literal(info.values, where)
        if isinstance(info, inspect.UnionType):
            return self._union(info, where)
        if isinstance(info, inspect.DictType):
            return self._map(info, where)
        if isinstance(info, (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)):
            return self._array(info, where)
        fields = _fields(info)
        if fields is not None:
            return self._record(info.cls, fields)  # type: ignore[attr-defined]
        raise TopologyError(
            f"{where}: there is no Avro type for {type_name(info)}; use a class, or a type that Avro has"
        )

    def _array(self, info: Any, where: str) -> Shape:
        makes = {inspect.SetType: set, inspect.FrozenSetType: frozenset, inspect.VarTupleType: tuple}
        return items_of(self.shape(info.item_type, f"{where}[]"), makes.get(type(info)))

    def _map(self, info: inspect.DictType, where: str) -> Shape:
        if not isinstance(info.key_type, inspect.StrType):
            raise TopologyError(f"{where}: keys of an Avro map are str, not {type_name(info.key_type)}")
        return values_of(self.shape(info.value_type, f"{where}[]"))

    def _enum(self, cls: Any, where: str) -> Shape:
        if cls in self._enums:
            return self._enums[cls]
        values = [member.value for member in cls]
        if all(type(value) is int for value in values):
            return Shape("long", _value_of(cls), cls)
        for value in values:
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise TopologyError(
                    f"{where}: {value!r} of {cls.__qualname__} is no symbol of an Avro enum: use letters, digits and _"
                )
        name = self._full_name(cls)
        # In a union, a value of a named type comes with its name.
        self._enums[cls] = Shape(name, _value_of(cls), lambda datum: cls(datum[1] if type(datum) is tuple else datum))
        return evolve(self._enums[cls], schema={"type": "enum", "name": name, "symbols": values})

    def _full_name(self, cls: type) -> str:
        name = cls.__name__.partition("[")[0]
        if self._root is not None and not self._records:
            name = self._root
        return name if self._namespace is None or "." in name else f"{self._namespace}.{name}"

    def _union(self, info: inspect.UnionType, where: str) -> Shape:
        members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            inner = self.shape(members[0], where)
            cls = getattr(members[0], "cls", None)
            # With its name, fastavro does not look at all of a record to find out what it is.
            writes = _branch(*self._records[cls]) if cls in self._records else inner.to_datum
            reads = _unless_none(inner.from_datum)
            return Shape(["null", inner.schema], writes, reads, inner.plain | _NONE)
        shapes = [(member, self.shape(member, where)) for member in members]
        to: dict[type, Convert] = {}
        of: dict[str, Convert] = {}
        for member, shape in shapes:
            cls = getattr(member, "cls", None)
            if cls in self._records:
                name, functions = self._records[cls]
                to[cls], of[name] = _branch(name, functions), _late(functions, 1)
            elif not shape.plain:
                raise TopologyError(f"{where}: {type_name(member)} cannot be told apart in a union; use a class for it")
        nothing: list[Any] = ["null"] if len(members) < len(info.types) else []
        schema = [*nothing, *(shape.schema for _, shape in shapes)]
        plain = frozenset(cls for _, shape in shapes for cls in shape.plain)
        return Shape(schema, _by_class(to, info), _by_name(of), plain | (_NONE if nothing else frozenset()))

    def _record(self, cls: type, fields: list[_Field]) -> Shape:
        if cls in self._records:
            name, functions = self._records[cls]
            return Shape(name, _late(functions, 0), _late(functions, 1))
        name = self._full_name(cls)
        functions = []
        self._records[cls] = name, functions
        shapes = [(part, self.shape(_nullable(part), f"{name}.{part.name}")) for part in fields]
        functions += [_to_record(cls, shapes), _from_record(cls, shapes)]
        schema = {"type": "record", "name": name, "fields": [_declared(part, shape) for part, shape in shapes]}
        return Shape(schema, functions[0], functions[1])


def shape_of(form: Any, name: str | None = None, namespace: str | None = None) -> Shape:
    """Return the shape of a class or type expression; ``name`` is that of the record (default: that of the class).

    Raises:
        TopologyError: a type in it has no Avro equivalent.
    """
    try:
        # The fields of pydantic models are looked up as they are met.
        return _Builder(name, namespace).shape(inspect.type_info(form), getattr(form, "__qualname__", repr(form)))
    except (TypeError, NameError, ValueError, AttributeError) as error:
        raise TopologyError(f"no Avro schema for {form!r}: {error}") from error


def _decimal(extra: Mapping[str, Any], where: str) -> Shape:
    if "precision" not in extra:
        raise TopologyError(f"{where}: a Decimal needs its precision in Avro: Annotated[Decimal, precision(18, 2)]")
    return leaf({**_schema(RULES[inspect.DecimalType].avro), **extra})


def _literal(values: tuple[Any, ...], where: str) -> Shape:
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return Shape("string", one_of(values), one_of(values))
    if kinds == {int}:
        return Shape("long", one_of(values), one_of(values))
    raise TopologyError(
        f"{where}: a Literal is of str or of int in Avro, not of {', '.join(k.__name__ for k in kinds)}"
    )


def _fields(info: inspect.Type) -> list[_Field] | None:
    """Return the fields of a class, or None if the type is not a class with fields."""
    if isinstance(info, inspect.CustomType):
        return _pydantic_fields(info.cls)
    if not isinstance(info, (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType, inspect.TypedDictType)):
        return None
    cls: Any = info.cls
    aliases = {part.name: part.alias or part.name for part in attrs.fields(cls)} if attrs.has(cls) else {}
    is_dict = isinstance(info, inspect.TypedDictType)
    return [
        _Field(
            part.encode_name,
            part.name,
            aliases.get(part.name, part.name),
            part.type,
            _default(part.default, part.default_factory),
            is_dict and not part.required,
        )
        for part in info.fields
    ]


def _pydantic_fields(cls: Any) -> list[_Field] | None:
    model_fields = getattr(cls, "model_fields", None)
    if model_fields is None:
        return None
    fields = []
    for name, part in model_fields.items():
        info = inspect.type_info(part.annotation)
        for held in part.metadata:
            digits = getattr(held, "max_digits", None)
            scale = getattr(held, "decimal_places", None)
            if digits is not None and scale is not None:
                info = inspect.Metadata(info, extra={"precision": digits, "scale": scale})
            elif isinstance(held, msgspec.Meta):
                info = inspect.Metadata(info, extra=dict(held.extra or {}))
        default = msgspec.NODEFAULT if part.is_required() else _default(part.default, part.default_factory)
        fields.append(_Field(name, name, part.alias or name, info, default))
    return fields


def _default(value: Any, factory: Any) -> Any:
    """Return the default of a field as JSON, or ``NODEFAULT`` if it has none, or if Avro has no JSON form for it."""
    if factory in (list, dict, set, frozenset, tuple):
        return {} if factory is dict else []
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, (list, tuple, set, dict)) and not value:
        return {} if isinstance(value, dict) else []
    inner = getattr(value, "value", None)
    return inner if hasattr(type(value), "__members__") and type(inner) in (str, int) else msgspec.NODEFAULT


def _nullable(part: _Field) -> inspect.Type:
    """Return the type of a field; a TypedDict key that is not required is nullable in Avro."""
    if not part.is_optional_key or isinstance(part.type, inspect.UnionType):
        return part.type
    return inspect.UnionType((part.type, inspect.NoneType()))


def _declared(part: _Field, shape: Shape) -> dict[str, Any]:
    """Return the schema of a record field. A default must match the first type of a union (Avro 1.11)."""
    default = None if part.is_optional_key else part.default
    schema = shape.schema
    if isinstance(schema, list) and "null" in schema and default is not msgspec.NODEFAULT and default is not None:
        schema = [*(branch for branch in schema if branch != "null"), "null"]
    declared = {"name": part.name, "type": schema}
    return declared if default is msgspec.NODEFAULT else {**declared, "default": default}


def _to_record(cls: Any, shapes: list[tuple[_Field, Shape]]) -> Convert:
    # Typed dicts are known by their keys only.
    kind = dict if typing_extensions.is_typeddict(cls) else cls
    read = _reader(cls, [part.attribute for part, _ in shapes])

    def row_of(value: Any) -> Any:
        if type(value) is not kind:
            raise misfit(cls.__qualname__, value)
        return read(value)

    return record_writer([part.name for part, _ in shapes], [shape for _, shape in shapes], row_of)


def _value_of(cls: Any) -> Convert:
    """Return a conversion of members of an enum to their values."""
    check = instance_of(cls.__qualname__, cls)
    return lambda member: check(member).value


def _reader(cls: Any, attributes: list[str]) -> Callable[[Any], Iterable[Any]]:
    """Return a function that returns the field values of an object in declaration order."""
    if typing_extensions.is_typeddict(cls):
        return lambda value: [value.get(name) for name in attributes]
    if issubclass(cls, tuple):
        return tuple
    if len(attributes) > 1:
        return attrgetter(*attributes)
    return lambda value: [getattr(value, name) for name in attributes]


def _from_record(cls: Any, shapes: list[tuple[_Field, Shape]]) -> Convert:
    special = [(part.name, shape.from_datum) for part, shape in shapes if shape.from_datum is not None]
    renamed = [(part.name, part.argument) for part, _ in shapes if part.name != part.argument]
    left_out = [part.name for part, _ in shapes if part.is_optional_key]
    later = _set_later(cls)

    def from_record(datum: Any) -> Any:
        if type(datum) is tuple:
            datum = datum[1]
        try:
            for name, convert in special:
                datum[name] = convert(datum[name])
        except ValueError as error:
            raise placed(error, f".{name}") from error
        for name in left_out:
            if datum[name] is None:
                del datum[name]
        for name, argument in renamed:
            datum[argument] = datum.pop(name)
        if not later:
            return cls(**datum)
        rest = [(name, datum.pop(argument)) for name, argument in later]
        made_of = cls(**datum)
        for name, value in rest:
            object.__setattr__(made_of, name, value)  # Also in frozen classes.
        return made_of

    return from_record


def _set_later(cls: Any) -> list[tuple[str, str]]:
    """Return the fields with ``init=False``, which are no arguments of the class: attribute, and name in the datum."""
    if attrs.has(cls):
        return [(part.name, part.alias or part.name) for part in attrs.fields(cls) if not part.init]
    if dataclasses.is_dataclass(cls):
        return [(part.name, part.name) for part in dataclasses.fields(cls) if not part.init]
    return []


def _late(functions: list[Convert], index: int) -> Convert:
    """Return a placeholder that is resolved once its record has been built, because a record may contain itself."""
    return lambda value: functions[index](value)


def _branch(name: str, functions: list[Convert]) -> Convert:
    return lambda value: (name, functions[0](value))


def _by_class(to: Mapping[type, Convert], info: inspect.UnionType) -> Convert:
    expected = " or ".join(map(type_name, info.types))

    def to_datum(value: Any) -> Any:
        convert = to.get(type(value))
        if convert is None:
            raise misfit(expected, value)
        return convert(value)

    return to_datum


def _by_name(of: Mapping[str, Convert]) -> Convert | None:
    def from_datum(datum: Any) -> Any:
        return of[datum[0]](datum[1]) if type(datum) is tuple else datum

    return from_datum if of else None


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)
