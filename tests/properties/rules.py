"""What Kafka Streams promises of a result, computed along a plan.

Two promises hold for some topologies only, and each step may end them:

``agrees_by_partition``: one partition and many give each key the same results in the same order,
if the input is in the order of time.  A step ends it

- if what it does depends on how far the task's *other* keys have brought stream time: emission on
  close, suppression, unmatched sides of stream-stream joins, buffers with grace;
- if it compares its records with stream time, and these may be older: windows behind sessions or
  sliding windows, whose results bear times of their windows;
- if it brings together what one record became on two ways: of these Kafka Streams says nothing;
- if it changes keys behind a topic that spread the several results of one record over partitions:
  order holds within a partition only.

``agrees_cached``: with and without record cache the last value of each key is the same.  The cache
keeps back updates of tables, so a step ends it that sees the updates themselves: one on the stream
of a table, a count or sum over rows (which keeps a 0 for groups that nobody is in any more), any
grouping of the rows of an aggregate (without cache the initial value is taken out for each new row,
though it was never put in; Kafka Streams does so), a time limit, a stream that joins a table which is
itself made from a cached one, or a join of tables with a common source (of a row deleted on both
sides at once the join hears nothing, in Kafka Streams as here).
"""

from typing import Any, Literal

from attrs import evolve, frozen

from streams import CountWindows, Windower
from tests.properties.plans import Plan, Step

Kind = Literal["stream", "table", "windowed", "global"]

_STREAM_JOINS = {"join_streams", "join_latest", "join_table", "join_global"}


@frozen
class Facts:
    """What is known about the result of a step."""

    kind: Kind
    #: Source topics that it comes from.
    topics: frozenset[str]
    #: Its sources have a topic in common.
    is_shared: bool = False
    #: The key was changed since records were last partitioned.
    is_dirty: bool = False
    #: One record may have become several.
    is_fanned: bool = False
    #: ... and these may be in several partitions.
    is_spread: bool = False
    #: Times are in order if those of the input are.
    is_timely: bool = True
    #: Behind a call or a batch: how far records are behind others of their task depends on how its work is cut.
    is_delayed: bool = False
    #: Updates of a table, which a cache keeps back.
    is_update: bool = False
    #: A table whose store is behind the updates of another one.
    is_behind: bool = False
    is_versioned: bool = False
    #: A table that is or comes from a versioned one.
    has_versions: bool = False
    #: Rows are aggregates that begin with an initial value, so they are never None; without cache each
    #: new one says that the initial value was there before.
    has_initial: bool = False
    #: Suppression may wait for its windows to close.
    can_close: bool = False
    agrees_by_partition: bool = True
    agrees_cached: bool = True


def facts_of(plan: Plan) -> list[Facts]:
    """Return the facts of each step."""
    result: list[Facts] = []
    for step in plan.steps:
        result.append(facts(step, [result[source] for source in step.sources]))
    return result


def facts(step: Step, sources: list[Facts]) -> Facts:
    """Return the facts of a step from those of its sources."""
    arguments = step.arguments
    match step.verb:
        case "stream":
            return Facts("stream", frozenset({arguments[0]}))
        case "table":
            return Facts(
                "table",
                frozenset({arguments[0]}),
                is_versioned=arguments[1] is not None,
                has_versions=arguments[1] is not None,
            )
        case "global_table":
            return Facts("global", frozenset({arguments[0]}))
    result = _together(sources)
    if sources[0].kind == "stream":
        if any(source.is_update for source in sources if source.kind == "stream"):
            result = evolve(result, agrees_cached=False)
        return _of_stream(step, sources, evolve(result, has_versions=False, has_initial=False))
    return _of_table(step, sources[0], result)


def _together(sources: list[Facts]) -> Facts:
    """Return what holds of several sources taken together, as of the first one's kind."""
    first = sources[0]
    shares = len(sources) > 1 and bool(sources[0].topics & sources[1].topics)
    return evolve(
        first,
        topics=frozenset().union(*(source.topics for source in sources)),
        is_shared=shares,
        is_dirty=any(source.is_dirty for source in sources),
        is_fanned=any(source.is_fanned for source in sources),
        is_spread=any(source.is_spread for source in sources),
        is_timely=all(source.is_timely for source in sources),
        is_delayed=any(source.is_delayed for source in sources),
        has_versions=any(source.has_versions for source in sources),
        has_initial=any(source.has_initial for source in sources),
        can_close=False,
        agrees_by_partition=not shares and all(source.agrees_by_partition for source in sources),
        agrees_cached=all(source.agrees_cached for source in sources),
    )


def _rekeyed(result: Facts) -> Facts:
    return evolve(result, is_dirty=True, agrees_by_partition=result.agrees_by_partition and not result.is_spread)


def _moved(result: Facts) -> Facts:
    """Return what holds behind a repartition topic."""
    return evolve(result, is_dirty=False, is_spread=result.is_fanned)


def _of_stream(step: Step, sources: list[Facts], result: Facts) -> Facts:
    verb, arguments = step.verb, step.arguments
    is_ready = _moved(result) if any(source.is_dirty for source in sources) else result
    match verb:
        case "select_key" | "map":
            return _rekeyed(result)
        case "flat_map":
            return evolve(_rekeyed(result), is_fanned=True)
        case "flat_map_values":
            return evolve(result, is_fanned=True)
        case "repartition":
            return _moved(result)
        case "map_async" | "look_up" | "map_batches":
            return evolve(result, is_delayed=True)
        case "flat_map_async":
            return evolve(_rekeyed(result), is_fanned=True, is_delayed=True)
        case "process" | "process_values":
            # Tied to stream time, a processor depends on the other keys of its task.
            is_timed = arguments[:1] == ("tick_counter",)
            return evolve(
                result, agrees_by_partition=result.agrees_by_partition and not is_timed, is_timely=not is_timed
            )
        case "deduplicate":
            # Among records that are older than stream time, a duplicate may be forgotten earlier.
            return evolve(is_ready, agrees_by_partition=is_ready.agrees_by_partition and is_ready.is_timely)
        case "group":
            ready = is_ready if arguments[0] is None else _moved(_rekeyed(result))
            return evolve(ready, kind="table", is_update=True, has_initial=arguments[1] in ("count", "followed"))
        case "group_expiring" | "to_expiring_table":
            # When a row is removed depends on how far other keys have brought stream time.
            is_group = verb == "group_expiring"
            ready = _moved(_rekeyed(result)) if is_group and arguments[0] is not None else is_ready
            return evolve(
                ready, kind="table", is_update=True, has_initial=is_group, agrees_by_partition=False, is_timely=False
            )
        case "windows":
            ready = is_ready if arguments[0] is None else _moved(_rekeyed(result))
            counted = evolve(ready, has_initial=arguments[2] in ("count", "followed"))
            return _windowed(counted, arguments[1], arguments[3])
        case "cogroup":
            if arguments[0] is None:
                return evolve(is_ready, kind="table", is_update=True, has_initial=True)
            return _windowed(evolve(is_ready, has_initial=True), arguments[0], "on_update")
        case "join_streams":
            agrees = is_ready.agrees_by_partition and is_ready.is_timely and arguments[0] == "join"
            return evolve(is_ready, is_fanned=True, agrees_by_partition=agrees)
        case "join_latest":
            # It waits for stream time, which the other keys of its task advance.
            return evolve(is_ready, is_timely=False, agrees_by_partition=False)
        case "join_table":
            is_held = arguments[1] is not None
            return evolve(
                is_ready,
                agrees_by_partition=is_ready.agrees_by_partition and not is_held,
                agrees_cached=is_ready.agrees_cached and not sources[1].is_behind,
            )
        case "to_table":
            has_versions = arguments[0] is not None
            return evolve(is_ready, kind="table", is_update=True, is_versioned=has_versions, has_versions=has_versions)
    return result


def _windowed(result: Facts, windows: Any, emits: str) -> Facts:
    is_time = hasattr(windows, "advance_ms")
    is_counted, is_own = isinstance(windows, CountWindows), isinstance(windows, Windower)
    agrees = result.agrees_by_partition and (
        emits != "early_by_time" if is_counted else result.is_timely and emits == "on_update"
    )
    return evolve(
        result,
        kind="windowed",
        is_update=True,
        is_fanned=result.is_fanned or not is_time or windows.advance_ms < windows.size_ms,
        is_timely=result.is_timely and is_time and not emits.startswith("early"),
        is_behind=emits.startswith("early"),
        can_close=not (is_counted or is_own),
        agrees_by_partition=agrees,
    )


def _of_table(step: Step, source: Facts, result: Facts) -> Facts:
    verb, arguments = step.verb, step.arguments
    match verb:
        case "filter_table" | "map_table":
            return evolve(result, is_behind=result.is_behind or arguments[1], is_versioned=False)
        case "join_tables":
            agrees = result.agrees_cached and not result.is_shared
            return evolve(result, is_behind=result.is_behind or arguments[1], is_versioned=False, agrees_cached=agrees)
        case "join_foreign":
            # Two changes of a row may overtake each other on the way over different foreign keys.
            agrees = result.agrees_by_partition and not source.is_fanned
            return evolve(
                result, is_fanned=True, is_spread=True, is_behind=True, is_versioned=False, agrees_by_partition=agrees
            )
        case "regroup":
            fanned = evolve(_rekeyed(result), is_fanned=True)
            return evolve(
                _moved(fanned),
                is_behind=True,
                is_versioned=False,
                has_versions=False,
                has_initial=arguments[0] == "count",
                agrees_cached=result.agrees_cached and arguments[0] == "members" and not source.has_initial,
            )
        case "to_stream":
            return evolve(result, kind="stream", is_update=True, is_versioned=False, has_versions=False)
        case "rekeyed":
            return evolve(_moved(_rekeyed(result)), kind="stream", is_update=True)
        case "suppress_time":
            return evolve(result, agrees_by_partition=False, agrees_cached=False, is_behind=True, is_timely=False)
        case "suppress_close":
            return evolve(
                result,
                agrees_by_partition=False,
                # Where the cache passes over a None, suppression is not told of its time.
                agrees_cached=result.agrees_cached and source.can_close and source.has_initial,
                is_behind=True,
                is_timely=False,
            )
    raise KeyError(verb)
