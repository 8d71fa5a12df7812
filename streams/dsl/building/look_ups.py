"""The operator ``look_up``, implemented as a function that takes a stream reference.

The public signature and its documentation are in ``KStream``.  The module imports only ``core`` from outside ``dsl``.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict

from attrs import evolve
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN, check_flag, checked_count
from streams.core.concurrency.calls import CallOrder, CallPlan
from streams.core.errors import TopologyError
from streams.core.serdes.serdes import NULL, Serde
from streams.core.user_code import is_async
from streams.dsl.building.async_operators import CallPolicy, call_plan
from streams.dsl.building.stream_operators import map_values
from streams.dsl.functions import (
    UNKNOWN,
    check_function,
    matching_form,
    refuse_unknown,
    result_type,
    without_none,
)
from streams.dsl.materialized import to_ms
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import LookUp, LookUpPlan, answers_spec, in_flight_spec
from streams.dsl.ref import StreamRef
from streams.dsl.serde_variables import SerdeVariable, annotated, declared_or_annotated

_PREFIX = "KSTREAM-LOOKUP-"
_TTL = timedelta(hours=1)
#: The longest time between a failed refresh and the next one, in seconds.
_MAX_PAUSE_S = 60
_MAX_DOUBLINGS = 16

#: Returns the key to look up for (key, value); with None, nothing is looked up.
By: TypeAlias = Callable[[Any, Any], Any]


class LookUpOptions(TypedDict, total=False):
    """Options for ``look_up``; all are optional.

    ``cache`` is the maximum number of results that a task caches (default 10,000).  A cached result is fresh for
    ``ttl`` from the start of its call (default one hour; with None, it never expires).  After that, it is stale for
    ``stale`` (default 0): a stale result is used, and refreshed in the background.  The result "not found" is cached
    for ``negative`` (default: ``ttl``; with 0, it is not cached).  These are periods of wall-clock time.

    ``concurrency``, ``order``, ``timeout``, ``retries``, ``backoff`` and ``retry_on`` are those of
    ``map_values_async``, but ``order`` applies only to the output records.  ``logging`` (a changelog of the cache) is
    on by default.  ``asked`` is the type or serde of the looked-up key, and ``answer`` that of the result; the
    defaults are the annotations of the functions, or else the types of the first objects.
    """

    cache: int
    ttl: timedelta | None
    stale: timedelta
    negative: timedelta | None
    logging: bool
    asked: TypeForm[Any] | Serde[Any]
    answer: TypeForm[Any] | Serde[Any]
    concurrency: int
    order: CallOrder
    timeout: timedelta | None
    retries: int
    backoff: timedelta
    retry_on: type[Exception] | tuple[type[Exception], ...]


def look_up(
    stream: StreamRef,
    function: Callable[[Any], Any],
    by: By | None,
    name: str | None,
    options: LookUpOptions,
) -> StreamRef:
    """Add the node of ``look_up`` to the logical graph."""
    refuse_unknown(f"look_up of {stream!r}", options, LookUpOptions)
    has_await = is_async(function)
    matching_form(function, "look_up", ("(key)",), sync="look_up with a plain function" if has_await else None)
    if by is not None:
        check_function(by, "look_up", "(key, value)")
    elif stream.key.serde is NULL:
        raise TopologyError(f"look_up of {stream!r}, which has no keys: give by=, a function of (key, value)")
    if getattr(function, "answers_from_memory", False):
        return _from_memory(stream, function, by, name, options)
    name = stream.graph.names.node(name, _PREFIX)
    calls, plan = _plans(function, by, options, in_threads=not has_await)
    if by is None and "asked" in options:
        raise TopologyError(f"look_up of {stream!r}: asked= is the type of by=, which is not given")
    asked = stream.key
    if by is not None:
        asked = declared_or_annotated(options.get("asked", NOT_GIVEN), without_none(result_type(by)), name)
    answer = declared_or_annotated(options.get("answer", NOT_GIVEN), without_none(result_type(function)), name)
    content = _content(stream, name, (asked, answer), calls, plan, options)
    return stream.at(stream.add(name, content, is_value_changing=True), value=annotated(UNKNOWN, name))


def map_pairs(stream: StreamRef, mapper: Callable[[Any, Any], Any], name: str | None, value: Any) -> StreamRef:
    """Add the node of ``map_pairs`` to the logical graph."""
    check_function(mapper, "map_pairs", "(value, answer)")
    result = map_values(stream, lambda pair: mapper(*pair), name)
    return stream.at(result.node, value=declared_or_annotated(value, result_type(mapper), result.name))


def _plans(
    function: Callable[[Any], Any],
    by: By | None,
    options: LookUpOptions,
    *,
    in_threads: bool,
) -> tuple[CallPlan, LookUpPlan]:
    policy: Any = {name: value for name, value in options.items() if name in CallPolicy.__annotations__}
    calls = call_plan("look_up", policy, function, with_key=False, in_threads=in_threads)
    ttl = options.get("ttl", _TTL)
    ttl_ms = _lifetime(ttl, "ttl")
    if ttl_ms == 0:
        raise TopologyError("look_up: ttl must be at least 1 ms; for a call per record there is map_values_async")
    negative = options.get("negative", ttl)
    stale_ms = to_ms(options.get("stale", timedelta(0)), "stale= of look_up")
    if stale_ms and ttl_ms is None:
        raise TopologyError("look_up: with ttl=None no answer becomes stale; give a ttl, or leave out stale=")
    pause_s = min(calls.backoff_s * 2 ** min(calls.retries, _MAX_DOUBLINGS), max(_MAX_PAUSE_S, calls.backoff_s))
    pause_ms = int(pause_s * 1000)
    entries = checked_count(options.get("cache", 10_000), "look_up: cache", TopologyError)
    plan = LookUpPlan(by, entries, ttl_ms, stale_ms, _lifetime(negative, "negative"), pause_ms, calls.order)
    # The operator keeps the order of results, so the calls themselves may finish in any order.
    return evolve(calls, order="none"), plan


def _lifetime(value: timedelta | None, name: str) -> int | None:
    return None if value is None else to_ms(value, f"{name}= of look_up")


def _content(
    stream: StreamRef,
    name: str,
    asked_answer: tuple[SerdeVariable, SerdeVariable],
    calls: CallPlan,
    plan: LookUpPlan,
    options: LookUpOptions,
) -> LogicalOperator:
    store = f"{name}-calls"
    cache = f"{name}-answers"
    key = stream.key
    value = stream.value
    asked, answer = asked_answer
    has_changelog = check_flag(options.get("logging", True), "logging= of look_up")
    return LogicalOperator(
        lambda: LookUp(store, cache, key.resolve(), asked.resolve(), calls, plan),
        lambda: (
            in_flight_spec(store, key.resolve(), value.resolve()),
            answers_spec(cache, asked.resolve(), answer.resolve(), plan.max_answers, has_changelog=has_changelog),
        ),
    )


def _from_memory(
    stream: StreamRef,
    function: Callable[[Any], Any],
    by: By | None,
    name: str | None,
    options: LookUpOptions,
) -> StreamRef:
    """Add the node of a look-up in memory, which needs neither calls nor a cache."""
    if useless := options.keys():
        raise TopologyError(
            f"look_up of {stream!r}: {function!r} has all its answers in memory, so that {min(useless)}= has no "
            "effect; leave it out"
        )

    def paired(key: Any, value: Any) -> Any:
        asked = key if by is None else by(key, value)
        return value, None if asked is None else function(asked)

    return map_values(stream, paired, name)
