"""Operators inlined into a program do what their functions do alone."""

import io
import linecache
import pdb
import traceback
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import JoinWindows, ProcessingError, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, Topic
from streams.core.inlining import inlined
from streams.core.settings.config import StreamsConfig
from streams.dsl.builder import build_topology
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.plan.preview import programs
from streams.testing import TopologyTestDriver
from streams.topology.bindings import Capture, Inlined
from streams.topology.inliner import Inliner, name_of
from streams.topology.operator import Process

numbers = Topic("numbers", key=str, value=int)
others = Topic("others", key=str, value=int)

WINDOWS = {
    "tumbling": TimeWindows.of(timedelta(milliseconds=10), grace=timedelta(milliseconds=5)),
    "hopping": TimeWindows.of(
        timedelta(milliseconds=10), advance=timedelta(milliseconds=4), grace=timedelta(milliseconds=5)
    ),
    "sliding": SlidingWindows.of(timedelta(milliseconds=6), grace=timedelta(milliseconds=5)),
    "session": SessionWindows.of(timedelta(milliseconds=5), grace=timedelta(milliseconds=5)),
}
STATELESS = ("filter", "filter_not", "map_values", "map", "select_key", "flat_map", "peek", "branch", "merge")
STATEFUL = ("count", "reduce", "aggregate", "join", "left_join", "outer_join", "table", "group_table", *WINDOWS)


def stateless(stream: Any, verb: str) -> Any:
    match verb:
        case "filter":
            return stream.filter(lambda _, value: value % 3 != 0)
        case "filter_not":
            return stream.filter_not(lambda _, value: value % 5 == 0)
        case "map_values":
            return stream.map_values(lambda value: value + 1)
        case "map":
            return stream.map(lambda key, value: (key, -value))
        case "select_key":
            return stream.select_key(lambda key, value: key)
        case "flat_map":
            return stream.flat_map(lambda key, value: [(key, value), (key, value + 1)])
        case "peek":
            return stream.peek(lambda key, value: None)
        case "merge":
            return stream.merge(stream.map_values(lambda value: value * 2))
        case _:
            parts = stream.split()
            even = parts.branch(lambda _, value: value % 2 == 0)
            return even.map_values(lambda value: value * 10).merge(parts.default_branch())


def stateful(builder: StreamsBuilder, stream: Any, verb: str) -> Any:
    grouped = stream.group_by_key(key=str, value=int)
    match verb:
        case "count":
            return grouped.count().to_stream()
        case "reduce":
            return grouped.reduce(lambda old, new: None if new == 4 else old + new).to_stream()
        case "aggregate":
            return grouped.aggregate(lambda: 0, lambda key, value, total: total + value).to_stream()
        case "join" | "left_join" | "outer_join":
            windows = JoinWindows.of(timedelta(milliseconds=6), grace=timedelta(milliseconds=4))
            other = builder.stream(others)
            return getattr(stream, verb)(other, lambda left, right: (left or 0) * 100 + (right or 0), windows)
        case "table":
            return stream.left_join(builder.table(others), lambda left, right: left * 100 + (right or 0))
        case "group_table":
            table = stream.to_table().filter(lambda _, value: value != 7).map_values(lambda value: value + 1)
            return table.group_by(lambda key, value: ("all", value)).count().to_stream()
    counted = grouped.windowed_by(WINDOWS[verb]).reduce(lambda old, new: old + new)
    return counted.to_stream(lambda key, _: key.key)


def outcome(steps: list[str], end: str, rows: list[Any], *, inlines: bool, cache_max_bytes: int) -> Any:
    """Return the records of a topology, and what it dropped."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        for step in steps:
            stream = stateless(stream, step)
        stateful(builder, stream, end).to("out", key=str, value=int)

    with pytest.MonkeyPatch.context() as patch:
        program = ApplicationPlan._program

        def made(plan: ApplicationPlan, sub_id: int, *, has_cache: bool) -> Any:
            return evolve(program(plan, sub_id, has_cache=has_cache), inlines=inlines)

        patch.setattr(ApplicationPlan, "_program", made)
        with TopologyTestDriver(topology, cache_max_bytes=cache_max_bytes) as driver:
            for is_other, key, value, time_ms in rows:
                driver.pipe(others if is_other and end in _TWO else numbers, value, key=key, timestamp_ms=time_ms)
            return driver.read_records(Topic("out", key=str, value=int)), driver.metrics.get("dropped-records-total")


_TWO = ("join", "left_join", "outer_join", "table")
ROWS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["a", "b"]), st.integers(0, 9), st.integers(0, 40)), max_size=12
)


@pytest.mark.world
@given(st.lists(st.sampled_from(STATELESS), max_size=3), st.sampled_from(STATEFUL), ROWS, st.sampled_from([0, 10_000]))
@settings(max_examples=60, deadline=None)
def test_inlined_operators_give_the_records_that_their_functions_give_alone(
    steps: list[str], end: str, rows: list[Any], cache_max_bytes: int
) -> None:
    inlined_one = outcome(steps, end, rows, inlines=True, cache_max_bytes=cache_max_bytes)

    assert inlined_one == outcome(steps, end, rows, inlines=False, cache_max_bytes=cache_max_bytes)


def source_of(topology: Any, **settings: Any) -> str:
    config = StreamsConfig.of(application_id="app", **settings)
    return "\n".join(programs(build_topology(topology, config), config))


@pytest.mark.parametrize("end", [end for end in STATEFUL if end != "outer_join"])
def test_operators_of_the_dsl_are_not_called_for_each_record(end: str) -> None:
    source = source_of(lambda builder: stateful(builder, builder.stream(numbers), end).to("out", key=str, value=int))

    assert not [line for line in source.splitlines() if line.strip().startswith("p") and "(k, v, t, h)" in line]


def test_plain_count_calls_neither_its_operator_nor_its_store_nor_the_next_node() -> None:
    source = source_of(
        lambda builder: stateful(builder, builder.stream(numbers), "count").to("out", key=str, value=int)
    )
    run = source[source.index("def r0") : source.index("def h0")]

    for name in ("get_", "put_", "emit_", "f1(", "p1(", "aggregator"):
        assert name not in run
    assert "+ 1" in run


def failing(builder: StreamsBuilder) -> None:
    def fail(value: int) -> int:
        raise RuntimeError("here")

    builder.stream(numbers).map_values(fail, name="fails").to("out", key=str, value=int)


def test_traceback_through_a_users_function_shows_the_generated_line() -> None:
    driver = TopologyTestDriver(failing)
    with pytest.raises(ProcessingError) as failure:
        driver.pipe(numbers, 1, key="a")

    shown = traceback.extract_tb(failure.value.__cause__.__traceback__)  # type: ignore[union-attr]
    generated = [frame for frame in shown if frame.filename.startswith("<sub-topology")]
    assert [frame.line for frame in generated] == ["new_1 = mapper_1(v)"]


def test_debugger_finds_the_source_of_a_program() -> None:
    driver = TopologyTestDriver(failing)
    program = driver._tasks[0].program
    entry: Process = next(iter(program.entries.values()))
    code = entry.__code__  # type: ignore[attr-defined]

    linecache.checkcache()
    assert linecache.getline(code.co_filename, code.co_firstlineno).startswith("def n0(")
    assert "".join(linecache.getlines(code.co_filename)) == program.source_code


def test_debugger_steps_from_a_users_function_through_the_program() -> None:
    shown = io.StringIO()
    commands = io.StringIO("up\ndown\nreturn\nnext\ncontinue\n")
    debugger = pdb.Pdb(stdin=commands, stdout=shown, nosigint=True, readrc=False)

    def stop(value: int) -> int:
        if value == 2:
            debugger.set_trace()
        return value

    def topology(builder: StreamsBuilder) -> None:
        mapped = builder.stream(numbers).map_values(stop)
        mapped.filter(lambda _, value: value > 0).to("out", key=str, value=int)

    driver = TopologyTestDriver(topology)
    for value in (1, 2):
        driver.pipe(numbers, value, key="a")

    steps = [line for line in shown.getvalue().splitlines() if line.startswith("-> ")]
    assert steps[1] == "-> new_1 = mapper_1(v)"
    assert steps[-1] == "-> if predicate_2(k, new_1):"


def test_tasks_of_a_sub_topology_share_one_program() -> None:
    driver = TopologyTestDriver(failing, partitions=3)

    assert len(driver._tasks) == 3
    assert len({id(next(iter(task.program.runs.values())).__code__) for task in driver._tasks}) == 1  # type: ignore[attr-defined]


# Functions to be inlined.


def written(function: Any, *arguments: str) -> str | None:
    import ast

    binding = Capture({}, {}).process(function, "p1", 1)
    if not isinstance(binding, Inlined):
        return None
    body = Inliner(1).body(binding, [name_of(argument) for argument in arguments])
    return None if body is None else "\n".join(map(ast.unparse, map(ast.fix_missing_locations, body)))


def test_constants_decide_which_branch_is_written() -> None:
    limit, is_open, seen = 3, False, [0]

    def process(value: int) -> None:
        if is_open:
            seen.append(value)
        elif value > limit + 1 and not is_open:
            seen.append(limit)

    assert written(process, "v") == "if v > 4:\n    seen_1.append(3)"


def test_a_call_of_an_inlined_function_is_replaced_by_its_body() -> None:
    seen: list[int] = []

    @inlined
    def half(value: int) -> int | None:
        if value % 2:
            return None
        return value // 2

    def process(value: int) -> None:
        found = half(value)
        if found is not None:
            seen.append(found)

    assert written(process, "v") == (
        "if v % 2:\n    found_1 = None\nelse:\n    found_1 = v // 2\n"
        "if found_1 is not None:\n    seen_1.append(found_1)"
    )


def test_a_return_inside_a_loop_is_left_to_a_call() -> None:
    def process(values: list[int]) -> None:
        for value in values:
            if value:
                return

    assert written(process, "v") is None


def test_a_name_that_a_neighbour_assigns_again_is_not_taken_for_a_constant() -> None:
    count = 0

    def grow() -> None:
        nonlocal count
        count += 1

    def process(value: int) -> int:
        return value + count

    grow()
    assert written(process, "v") is None


def test_a_parameter_that_the_function_assigns_gets_a_name_of_its_own() -> None:
    seen: list[int] = []

    def process(value: int) -> None:
        value = value + 1
        seen.append(value)

    assert written(process, "v") == "value_1 = v\nvalue_1 = value_1 + 1\nseen_1.append(value_1)"


def test_a_local_does_not_hide_an_object_of_the_same_name() -> None:
    hot = [0]

    @inlined
    def own(value: int) -> None:
        hot = value + 1
        seen.append(hot)

    seen: list[int] = []

    def process(value: int) -> None:
        own(value)
        hot.append(value)

    assert written(process, "v") == "hot_1_2 = v + 1\nseen_1.append(hot_1_2)\nhot_1.append(v)"
