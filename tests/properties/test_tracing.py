"""A traced run gives the same as an untraced one, and its story holds for every output."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime import Task
from streams.testing import TopologyTestDriver
from streams.topology import SinkNode
from streams.why import Question, Recorder, Trace, answer
from tests.properties.plans import TOPICS, Plan
from tests.properties.profile import examples
from tests.properties.runs import APPLICATION, drive, placed
from tests.properties.strategies import Row, plans, rows


def _recorder(question: Question) -> Recorder:
    return Recorder(Trace(question.follows, question.mentions))


@examples(20)
@given(st.data(), st.sampled_from([1, 3]), st.sampled_from([0, 300, 10_000_000]))
def test_traced_tasks_write_and_keep_the_same(data: st.DataObject, partitions: int, cache_max_bytes: int) -> None:
    plan = data.draw(plans(), label="topology")
    given_rows = data.draw(rows(plan), label="input")
    settings: dict[str, Any] = {"partitions": partitions, "cache_max_bytes": cache_max_bytes}

    plain = drive(plan, given_rows, **settings)
    traced = drive(plan, given_rows, watch=_recorder(Question("a")), **settings)

    assert (traced.outputs, traced.changelogs, traced.stores) == (plain.outputs, plain.changelogs, plain.stores)


@pytest.mark.slow
@examples(10)
@given(st.data(), st.sampled_from([1, 3]), st.sampled_from([0, 10_000_000]))
def test_every_output_has_a_story_that_leads_to_input(
    data: st.DataObject, partitions: int, cache_max_bytes: int
) -> None:
    plan: Plan = data.draw(plans(), label="topology")
    given_rows: list[Row] = data.draw(rows(plan), label="input")
    settings: dict[str, Any] = {"partitions": partitions, "cache_max_bytes": cache_max_bytes}

    with TopologyTestDriver(plan, application_id=APPLICATION, **settings) as driver:
        for row, partition in placed(given_rows, partitions):
            driver.pipe(TOPICS[row.topic], row.value, key=row.key, timestamp_ms=row.timestamp_ms, partition=partition)
        sinks = [node for node in driver.topology.nodes.values() if isinstance(node, SinkNode)]
        for sink in sinks:
            if sink.topic not in plan.outputs:
                continue
            keys = [sink.key_serde.deserialize(record.key) for record in driver.read_bytes(sink.topic)]
            found = dict.fromkeys(getattr(key, "key", key) for key in keys if key is not None)
            for key in list(found)[:2]:
                story = driver.why(key, sink.topic)
                assert story.outputs, story.text
                assert "'offset': " in str(story.as_json()), story.text
        story = driver.why("zzz")
        assert not story.outputs
        assert story.notes


class Toggling:
    """Traces tasks now and then; implements ``TaskWatch``."""

    def __init__(self) -> None:
        self.recorder = _recorder(Question("a"))
        self.tasks: list[Task] = []

    def opened(self, task: Task) -> None:
        self.tasks.append(task)

    def store(self, task: Task, node: str, name: str, view: Any) -> Any:
        return view

    def toggle(self, *, is_traced: bool) -> None:
        for task in self.tasks:
            (self.recorder.opened if is_traced else self.recorder.stop)(task)


@pytest.mark.slow
@examples(20)
@given(st.data(), st.sampled_from([0, 300, 10_000_000]))
def test_tracing_may_begin_and_end_between_any_two_records(data: st.DataObject, cache_max_bytes: int) -> None:
    """As in a running application: operators stay bound while the program is exchanged."""
    plan = data.draw(plans(), label="topology")
    given_rows = data.draw(rows(plan), label="input")
    traced = data.draw(st.lists(st.booleans(), min_size=len(given_rows), max_size=len(given_rows)), label="traced")

    def outputs(watch: Toggling | None) -> dict[str, list[Any]]:
        settings: dict[str, Any] = {"cache_max_bytes": cache_max_bytes, "watch": watch}
        with TopologyTestDriver(plan, application_id=APPLICATION, **settings) as driver:
            for (row, partition), is_traced in zip(placed(given_rows, 1), traced, strict=True):
                if watch is not None:
                    watch.toggle(is_traced=is_traced)
                topic = TOPICS[row.topic]
                driver.pipe(topic, row.value, key=row.key, timestamp_ms=row.timestamp_ms, partition=partition)
            return {topic: driver.read_bytes(topic) for topic in driver.topics()}

    assert outputs(Toggling()) == outputs(None)


@pytest.mark.slow
def test_answer_is_of_the_trace_that_it_is_given() -> None:
    """``answer`` needs no driver."""
    question = Question("a")
    recorder = _recorder(question)
    with TopologyTestDriver(lambda builder: builder.stream(TOPICS["a"]).to("out"), watch=recorder) as driver:
        driver.pipe(TOPICS["a"], 1, key="a", timestamp_ms=5)
        story = answer(question, recorder.trace, driver.topology, {})
    assert story.outputs[0].causes[0].offset == 0
