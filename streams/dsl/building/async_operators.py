"""The operators that call async functions, implemented as functions that take a stream reference.

The public signatures and their documentation are in ``KStream``.  The module imports only ``core`` from outside
``dsl``.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, TypeVar

from streams.core.arguments import checked_count
from streams.core.concurrency.calls import CallOrder, CallPlan
from streams.core.errors import TopologyError
from streams.core.user_code import located
from streams.dsl.functions import (
    element_type,
    matching_form,
    pair_of,
    pair_types,
    pairs_of,
    refuse_unknown,
    result_type,
)
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import AsyncMap, in_flight_spec
from streams.dsl.ref import StreamRef
from streams.dsl.serde_variables import declared_or_annotated

K2 = TypeVar("K2")
V2 = TypeVar("V2")

#: Pairs of key and value.
Pairs: TypeAlias = Iterable[tuple[K2, V2]]

_ORDERS = ("key", "partition", "none")


class CallPolicy(TypedDict, total=False):
    """Options for operators that call async functions; all are optional.

    ``concurrency`` (default 100) is the maximum number of calls in flight, for this operator in one stream thread.
    ``order`` is ``"key"`` (default: calls of one key run one after another), ``"partition"`` (results are in the order
    of the records of each input partition) or ``"none"`` (results are in the order in which calls finish).  A call
    fails after ``timeout`` (default: one minute; with None, it never times out).  A failed call is retried up to
    ``retries`` times (default 0) if its error is of a type in ``retry_on`` (default all exceptions), after ``backoff``
    (default: 100 ms), which doubles with each retry, up to one minute.  The timeout applies to each attempt.

    The stream thread does not wait for calls.  A result has the timestamp and headers of its record.  A call that fails
    is passed to the ``processing_handler``.  A record whose call is in flight at a commit is kept in a state store of
    the node.  After a crash, the function is called again for this record: with exactly-once, each record has one
    result, but perhaps several calls.
    """

    concurrency: int
    order: CallOrder
    timeout: timedelta | None
    retries: int
    backoff: timedelta
    retry_on: type[Exception] | tuple[type[Exception], ...]


def map_values_async(
    stream: StreamRef, mapper: Callable[..., Any], name: str | None, value: Any, options: CallPolicy
) -> StreamRef:
    """Add the node of ``map_values_async`` to the logical graph."""
    operator = "map_values_async"
    with_key = matching_form(mapper, operator, ("(value)", "(key, value)"), sync="map_values") == 1
    full_name = stream.graph.names.node(name, "KSTREAM-MAPVALUESASYNC-")
    content = _content(stream, full_name, call_plan(operator, options, mapper, with_key=with_key))
    node = stream.add(full_name, content, is_value_changing=True)
    return stream.at(node, value=declared_or_annotated(value, result_type(mapper), full_name))


def map_async(
    stream: StreamRef, mapper: Callable[..., Any], name: str | None, forms: tuple[Any, Any], options: CallPolicy
) -> StreamRef:
    """Add the node of ``map_async`` to the logical graph."""
    matching_form(mapper, "map_async", ("(key, value)",), sync="map")
    full_name = stream.graph.names.node(name, "KSTREAM-MAPASYNC-")
    what = f"{located(mapper)} of map_async"
    plan = call_plan("map_async", options, mapper, check=lambda result: (pair_of(result, what),))
    return _with_pairs(stream, full_name, plan, forms, pair_types(result_type(mapper)))


def flat_map_async(
    stream: StreamRef, mapper: Callable[..., Any], name: str | None, forms: tuple[Any, Any], options: CallPolicy
) -> StreamRef:
    """Add the node of ``flat_map_async`` to the logical graph."""
    matching_form(mapper, "flat_map_async", ("(key, value)",), sync="flat_map")
    full_name = stream.graph.names.node(name, "KSTREAM-FLATMAPASYNC-")
    what = f"{located(mapper)} of flat_map_async"
    plan = call_plan("flat_map_async", options, mapper, check=lambda result: pairs_of(result, what))
    return _with_pairs(stream, full_name, plan, forms, pair_types(element_type(result_type(mapper))))


def call_plan(
    operator: str,
    options: CallPolicy,
    mapper: Callable[..., Any],
    *,
    with_key: bool = True,
    check: Callable[[Any], Any] | None = None,
    in_threads: bool = False,
) -> CallPlan:
    """Check the arguments of an operator that calls async functions, or look-up functions, and return its plan.

    Raises:
        TopologyError: an option is unknown, or has a value outside its range.
    """
    refuse_unknown(operator, options, CallPolicy)
    order = options.get("order", "key")
    timeout = options.get("timeout", timedelta(minutes=1))
    if order not in _ORDERS:
        raise TopologyError(f"{operator}: order must be one of {', '.join(map(repr, _ORDERS))}, not {order!r}")
    retry_on = options.get("retry_on", Exception)
    kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise TopologyError(f"{operator}: retry_on must be an exception type or a tuple of them, not {retry_on!r}")
    return CallPlan(
        mapper,
        with_key,
        checked_count(options.get("concurrency", 100), f"{operator}: concurrency", TopologyError),
        order,
        None if timeout is None else _seconds(operator, "timeout", timeout),
        checked_count(options.get("retries", 0), f"{operator}: retries", TopologyError, minimum=0),
        _seconds(operator, "backoff", options.get("backoff", timedelta(milliseconds=100))),
        kinds,
        check,
        in_threads,
    )


def _seconds(operator: str, name: str, value: Any) -> float:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise TopologyError(f"{operator}: {name} must be a timedelta above 0, not {value!r}")
    return value.total_seconds()


def _content(stream: StreamRef, name: str, plan: CallPlan) -> LogicalOperator:
    store = f"{name}-calls"
    key = stream.key
    value = stream.value
    return LogicalOperator(
        lambda: AsyncMap(store, key.resolve(), plan, is_flat=plan.check is not None),
        lambda: (in_flight_spec(store, key.resolve(), value.resolve()),),
    )


def _with_pairs(
    stream: StreamRef, name: str, plan: CallPlan, forms: tuple[Any, Any], types: tuple[Any, Any]
) -> StreamRef:
    node = stream.add(name, _content(stream, name, plan), is_key_changing=True)
    key, value = (declared_or_annotated(form, annotation, name) for form, annotation in zip(forms, types, strict=True))
    return stream.at(node, key, value, needs_repartition=True)
