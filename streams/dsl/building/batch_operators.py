"""The operators that call a function for a batch of records, implemented as functions that take a stream reference.

The public signatures and their documentation are in ``KStream``.  The module imports only ``core`` and ``files`` from
outside ``dsl``.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence, ValuesView
from datetime import timedelta
from inspect import signature
from typing import Any

import msgspec

from streams.core.arguments import NOT_GIVEN, checked_count
from streams.core.errors import TopologyError
from streams.core.serdes.serdes import Serde
from streams.core.user_code import located
from streams.dsl.functions import (
    UNKNOWN,
    check_function,
    element_type,
    pair_types,
    pairs_of,
    result_type,
)
from streams.dsl.materialized import to_ms
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import BatchError, BatchMap, BatchPlan
from streams.dsl.ref import StreamRef
from streams.dsl.serde_variables import declared_or_annotated

#: Modules of the frames that a batch may be given as, and the extra that installs each.
_FRAMES = {"pyarrow": "table", "polars": "polars"}
#: The attribute of a table that has the names of its columns, by module.
_NAMES = {"pyarrow": "column_names", "polars": "columns"}
_WITH_FIELDS = (
    msgspec.inspect.AnyType,
    msgspec.inspect.CustomType,
    msgspec.inspect.DataclassType,
    msgspec.inspect.DictType,
    msgspec.inspect.NamedTupleType,
    msgspec.inspect.StructType,
    msgspec.inspect.TypedDictType,
)


def map_values_batches(
    stream: StreamRef,
    mapper: Callable[[Any], Any],
    name: str | None,
    max_records: int,
    max_wait: timedelta | None,
    value: Any = NOT_GIVEN,
) -> StreamRef:
    """Add the node of ``map_values_batches`` to the logical graph."""
    operator = "map_values_batches"
    check_function(mapper, operator, "(values)")
    full_name = stream.graph.names.node(name, "KSTREAM-MAPVALUESBATCHES-")
    frame = _parameter_module(mapper)
    form = result_type(mapper)
    mapped_serde = declared_or_annotated(value, element_type(form), full_name)
    row_type = None if value is NOT_GIVEN or isinstance(value, Serde) else value
    what = f"node {full_name!r}: {located(mapper)} of {operator}"

    def function(serde: Serde[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        def call(values: list[Any]) -> Sequence[Any]:
            argument = values if frame is None else _framed(serde, values, frame)
            return _values(mapper(argument), row_type, what)

        return call

    limits = _limits(operator, max_records, max_wait)
    content = LogicalOperator(lambda: BatchMap(BatchPlan(function(stream.value.resolve()), what, *limits)))
    return stream.at(stream.add(full_name, content, is_value_changing=True), value=mapped_serde)


def flat_map_batches(
    stream: StreamRef,
    mapper: Callable[[Any], Iterable[Any]],
    name: str | None,
    max_records: int,
    max_wait: timedelta | None,
    forms: tuple[Any, Any],
) -> StreamRef:
    """Add the node of ``flat_map_batches`` to the logical graph."""
    check_function(mapper, "flat_map_batches", "(records)", may_yield=True)
    full_name = stream.graph.names.node(name, "KSTREAM-FLATMAPBATCHES-")
    types = pair_types(element_type(result_type(mapper)))
    key, value = (declared_or_annotated(*each, full_name) for each in zip(forms, types, strict=True))
    what = f"{located(mapper)} of flat_map_batches"
    plan = BatchPlan(
        lambda rows: pairs_of(mapper(rows), what),
        what,
        *_limits("flat_map_batches", max_records, max_wait),
        is_flat=True,
    )
    node = stream.add(full_name, LogicalOperator(lambda: BatchMap(plan)), is_key_changing=True)
    return stream.at(node, key, value, needs_repartition=True)


def _limits(operator: str, max_records: Any, max_wait: Any) -> tuple[int, int | None]:
    """Check the limits of a batch; return (maximum record count, maximum wait in ms, None without ``max_wait``).

    Raises:
        TopologyError: ``max_records`` or ``max_wait`` is out of range.
    """
    checked_count(max_records, f"{operator}: max_records", TopologyError)
    if max_wait is None:
        return max_records, None
    wait_ms = to_ms(max_wait, f"max_wait= of {operator}")
    if wait_ms < 1:
        raise TopologyError(f"{operator}: max_wait must be at least 1 ms, not {max_wait}")
    return max_records, wait_ms


def _parameter_module(function: Any) -> str | None:
    """Return "pyarrow" or "polars" if the function's parameter is annotated with a table of that library, else None.

    Raises:
        TopologyError: the annotation is a type of ``pyarrow`` or ``polars`` other than ``pyarrow.Table`` and
            ``polars.DataFrame``.
    """
    try:
        hints = typing.get_type_hints(function)
        form = hints.get(next(iter(signature(function).parameters)), UNKNOWN)
    except Exception:  # noqa: BLE001 - annotations that cannot be evaluated are ignored: they are optional.
        return None
    module = _module(form)
    if module not in _FRAMES:
        return None
    if form.__name__ not in ("Table", "DataFrame"):
        raise TopologyError(
            f"map_values_batches: a batch is a list, a pyarrow.Table or a polars.DataFrame, not {form.__name__!r}"
        )
    return module


def _module(kind: Any) -> str:
    """Return the name of the top-level module in which a type is defined."""
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _framed(serde: Serde[Any], values: list[Any], module: str) -> Any:
    from streams.values import arrow_table

    table = arrow_table(serde, values)
    if module == "pyarrow":
        return table
    import polars

    return polars.from_arrow(table)


def _values(result: Any, row_type: Any, what: str) -> Sequence[Any]:
    """Return the values in the result of a batch function, which is a list, array, series, or table.

    The values of a table are its rows, or those of its column ``value`` if ``row_type`` has no fields.

    Raises:
        BatchError: the result is something else, such as None or a dict.
        msgspec.ValidationError: a value is not of ``row_type``.
    """
    if row_type is not None and getattr(result, _NAMES.get(_module(type(result)), ""), None) == ["value"]:
        result = result if _may_have_fields(msgspec.inspect.type_info(row_type)) else result["value"]
    values = result
    for method in ("to_pylist", "to_dicts", "to_list", "tolist"):
        convert = getattr(result, method, None)
        if convert is not None:
            values = convert()
            break
    if not isinstance(values, Sequence | Iterator | ValuesView) or isinstance(values, str | bytes):
        raise BatchError(
            f"{what} returned {result!r:.60}: return a list, array, series or table with one value for each"
        )
    values = values if isinstance(values, list | tuple) else list(values)
    if row_type is None:
        return values
    try:
        return msgspec.convert(values, list[row_type])
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{what} returned a value that is not of the type in value=: {error}") from error


def _may_have_fields(kind: msgspec.inspect.Type) -> bool:
    """Whether an object of a type may be a row with named fields."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_may_have_fields(each) for each in kind.types)
    return isinstance(kind, _WITH_FIELDS)
