"""Hypothesis strategies of topologies and their input."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from streams import CalendarWindows, CountWindows, JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from streams.core.event_time.calendar import Calendar
from tests.properties.functions import Gaps
from tests.properties.plans import GLOBAL_TOPICS, STREAM_TOPICS, TABLE_TOPICS, Plan, Step
from tests.properties.rules import Facts, facts


class Row(NamedTuple):
    """One record of the input."""

    topic: str
    key: str | None
    value: int | None
    timestamp_ms: int


_of = st.sampled_from

_GRACE_MS = _of([0, 0, 5, 30])
_TIME_WINDOWS = st.builds(
    lambda size, hops, grace: TimeWindows(size, size // hops, grace), _of([10, 20]), _of([1, 2, 5]), _GRACE_MS
)
#: Windows of 10 and 15 ms that follow each other, and after each two of them a gap.
_OPENINGS = Calendar(
    "openings", "UTC", table=tuple(row for at in range(0, 6000, 30) for row in ((at, at + 10), (at + 10, at + 25)))
)
_WINDOWS = st.one_of(
    _TIME_WINDOWS,
    st.builds(lambda size, hops: CountWindows(size, size // hops), _of([2, 4]), _of([1, 2])),
    st.builds(lambda grace: CalendarWindows(_OPENINGS, grace), _GRACE_MS),
    st.builds(Gaps, _of([5, 15]), _GRACE_MS),
    st.builds(SlidingWindows, _of([5, 10]), _GRACE_MS),
    st.builds(SessionWindows, _of([5, 15]), _GRACE_MS),
)
_JOIN_WINDOWS = st.builds(JoinWindows, _of([0, 10]), _of([0, 10]), _GRACE_MS)
_PREDICATES = _of(["even", "not_small", "key_is_a"])
_MAPPERS = _of(["plus_one", "scrambled", "none_of_threes"])
_NEW_KEYS = _of(["by_value", "by_both", "only_one"])
_JOINS = _of(["join", "left_join"])
_ALL_JOINS = _of(["join", "left_join", "outer_join"])
_HOW = _of(["count", "chained", "highest", "followed"])
_TTL_MS = _of([1, 15, 40])
_HISTORY_MS = _of([None, None, 20])
_IDLE_MS = _of([0, 0, 5, 60])
_ORDERS = _of(["key", "partition", "none"])
_EMITS = _of(["on_update", "on_update", "on_close", "early_by_count", "early_by_time"])

#: Verbs with the kinds of their sources and their arguments, the simple ones first.
_VERBS: dict[str, tuple[tuple[str, ...], tuple[st.SearchStrategy[Any], ...]]] = {
    "map_values": (("stream",), (_MAPPERS,)),
    "filter": (("stream",), (_PREDICATES,)),
    "filter_not": (("stream",), (_PREDICATES,)),
    "select_key": (("stream",), (_of(["by_value", "by_both", "none_for_evens"]),)),
    "map": (("stream",), (_of(["pair_same_key", "pair_by_value"]),)),
    "flat_map_values": (("stream",), (_of(["twice", "as_often_as_it_says"]),)),
    "flat_map": (("stream",), (_of(["both_keys"]),)),
    "repartition": (("stream",), ()),
    "split": (("stream",), (_PREDICATES, _MAPPERS)),
    "merge": (("stream", "stream"), ()),
    "process": (("stream",), (_of(["running_total", "tick_counter"]),)),
    "process_values": (("stream",), ()),
    "deduplicate": (("stream",), (_of([None, "by_value"]), _of([1, 10, 40]), _GRACE_MS)),
    "map_async": (("stream",), (_ORDERS, _of([1, 3]))),
    "flat_map_async": (("stream",), (_ORDERS, _of([1, 3]))),
    "look_up": (("stream",), (_of([None, "by_value"]), _of([2, 100]), _of([None, 0]))),
    "map_batches": (("stream",), (_of([2, 1000]),)),
    "group": (("stream",), (st.none() | _NEW_KEYS, _HOW)),
    "group_expiring": (("stream",), (st.none() | _NEW_KEYS, _TTL_MS)),
    "to_expiring_table": (("stream",), (_TTL_MS,)),
    "windows": (("stream",), (st.none() | _NEW_KEYS, _WINDOWS, _HOW, _EMITS)),
    "cogroup": (("stream", "stream"), (st.none() | _WINDOWS,)),
    "to_table": (("stream",), (_HISTORY_MS,)),
    "join_streams": (("stream", "stream"), (_ALL_JOINS, _JOIN_WINDOWS)),
    "join_latest": (
        ("stream", "stream"),
        (_of(["join_latest", "left_join_latest"]), _of([0, 5, 30]), _of(["backward", "forward"]), _GRACE_MS),
    ),
    "join_table": (("stream", "table"), (_JOINS, st.none())),
    "join_global": (("stream", "global"), (_JOINS,)),
    "filter_table": (("table",), (_PREDICATES, st.booleans())),
    "map_table": (("table",), (_MAPPERS, st.booleans())),
    "join_tables": (("table", "table"), (_ALL_JOINS, st.booleans())),
    "join_foreign": (("table", "table"), (_JOINS,)),
    "regroup": (("table",), (_of(["members", "sum", "count"]),)),
    "to_stream": (("table",), ()),
    "suppress_time": (("table",), (_of([0, 10, 40]), _of([None, 2]))),
    "suppress_close": (("windowed",), ()),
    "rekeyed": (("windowed",), (_of(["key_and_window", "key_of_window"]),)),
}
#: Verbs whose results depend on the stream time of the task, that is, on how far its other streams are.
_TIMED_BY_TASK = {"process", "group_expiring", "to_expiring_table"}
#: Verbs that keep state of the key they see, and do not repartition by themselves.
_NEED_PARTITIONED = {"process", "process_values"}


class Demand(NamedTuple):
    """What a plan must hold; see ``rules``."""

    by_partition: bool = False
    cached: bool = False
    has_global: bool = True
    #: Whether keys may get lost on the way.
    null_keys: bool = True

    def allows(self, step: Step, result: Facts) -> bool:
        """Whether a step with this result may be in the plan."""
        if not self.null_keys and "none_for_evens" in step.arguments:
            return False
        return (result.agrees_by_partition or not self.by_partition) and (result.agrees_cached or not self.cached)


ANYTHING = Demand()


@st.composite
def plans(draw: st.DrawFn, demand: Demand = ANYTHING, *, max_steps: int = 6) -> Plan:
    """Generate a topology of some sources and up to ``max_steps`` operators."""
    idle_ms = draw(_IDLE_MS)
    steps: list[Step] = [Step("stream", (), ("a", idle_ms))]
    sources = [("stream", topic) for topic in STREAM_TOPICS[1:]] + [("table", topic) for topic in TABLE_TOPICS]
    if demand.has_global:
        sources += [("global_table", topic) for topic in GLOBAL_TOPICS]
    for verb, topic in draw(st.lists(_of(sources), max_size=3, unique=True)):
        more = {"table": (draw(_HISTORY_MS),), "stream": (idle_ms,)}.get(verb, ())
        steps.append(Step(verb, (), (topic, *more)))
    known = [facts(step, []) for step in steps]
    for _ in range(draw(st.integers(1, max_steps))):
        step = draw(_steps(known))
        result = facts(step, [known[source] for source in step.sources])
        if demand.allows(step, result):
            steps.append(step)
            known.append(result)
    return Plan(tuple(steps))


@st.composite
def _steps(draw: st.DrawFn, known: list[Facts]) -> Step:
    """Generate one more step on the results there are; later results are taken more often."""
    kinds = {fact.kind for fact in known}
    verb = draw(_of([verb for verb, (needed, _) in _VERBS.items() if kinds.issuperset(needed)]))
    needed, arguments = _VERBS[verb]
    chosen = tuple(draw(_of([n for n, fact in enumerate(known) if fact.kind == kind][::-1])) for kind in needed)
    if any(known[source].is_delayed for source in chosen) and (len(chosen) > 1 or verb in _TIMED_BY_TASK):
        # What comes first, of two streams or of a stream and time, depends on when calls and batches end.
        is_stream = known[chosen[0]].kind == "stream"
        return Step("map_values", chosen[:1], ("plus_one",)) if is_stream else Step("to_stream", chosen[:1])
    given = tuple(draw(argument) for argument in arguments)
    if verb == "join_table" and known[chosen[1]].is_versioned:
        given = (given[0], draw(_of([None, 0, 10])))
    if verb == "suppress_time" and known[chosen[0]].has_versions:
        return Step("to_stream", chosen)
    if verb == "suppress_close" and not known[chosen[0]].can_close:
        return Step("rekeyed", chosen, ("key_and_window",))
    if verb in _NEED_PARTITIONED and known[chosen[0]].is_dirty:
        return Step("repartition", chosen)
    return Step(verb, chosen, given)


_KEYS = _of(["a", "a", "a", "b", "c", "d", "e"])
_STEPS_MS = _of([0, 1, 3, 10, 25])
_LATENESS_MS = _of([0, 0, 0, 0, 2, 12, 60])
_VALUES = st.integers(0, 9) | st.none()


@st.composite
def rows(
    draw: st.DrawFn, plan: Plan, *, in_order: bool = False, max_size: int = 30, null_keys: bool = True
) -> list[Row]:
    """Generate input of a plan: skewed keys, tombstones, late records, equal times.

    With ``in_order`` each record is later than the one before.
    """
    row = st.tuples(_of(plan.inputs), st.none() | _KEYS if null_keys else _KEYS, _VALUES, _STEPS_MS, _LATENESS_MS)
    now_ms, result = 100, []
    for topic, key, value, step_ms, late_ms in draw(st.lists(row, min_size=1, max_size=max_size)):
        if topic in TABLE_TOPICS + GLOBAL_TOPICS and key is None:
            key = "a"
        now_ms += max(step_ms, 1) if in_order else step_ms
        result.append(Row(topic, key, value, now_ms if in_order else now_ms - late_ms))
    return result
