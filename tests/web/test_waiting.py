"""Tasks that wait for another one, in the status, ``streams top`` and metrics: for which, where and since when."""

import io
from datetime import timedelta
from typing import Any

from streams import Streams
from streams.cli.commands.top import screen
from streams.core.blocks.partitioning import partition_for
from streams.web.peers import Peers
from streams.web.status import Status
from streams.why import Question, Trace
from streams.why.ask import notes_of
from tests.runtime.test_in_step import PARTITIONS, Gate, backlog, spread, until
from tests.web.test_status import rows


def tasks_with(live: Streams, **values: Any) -> list[dict[str, Any]]:
    """Return the rows of the tasks that have these values in the status."""
    table = Status(live.instance, Peers()).of_instance()["tasks"]
    return [row for row in rows(table) if all(row[name] == value for name, value in values.items())]


def on_the_screen(live: Streams, text: str) -> bool:
    """Return whether ``streams top`` shows a text."""
    from rich.console import Console

    console = Console(width=200, record=True, file=io.StringIO())
    console.print(screen(Status(live.instance, Peers()).of_instance(), 200))
    return text in console.export_text()


def test_a_task_that_waits_for_one_upstream_says_for_which_and_since_when() -> None:
    gate = Gate()
    with backlog() as broker, spread(broker, gate.topology, threads=4) as (live,), gate:
        live.resume()
        until(lambda: bool(tasks_with(live, awaited="0_0", state="waiting")), live)
        task = tasks_with(live, awaited="0_0", state="waiting")[0]
        number = task["task"].removeprefix("1_")

        assert task["waits_for"] == f"live-by-group-repartition-{number}"
        until(lambda: tasks_with(live, task=task["task"])[0]["waited_ms"] > task["waited_ms"], live)
        until(lambda: live.metrics.get("input-waited-for-ms", task=task["task"]) > 0, live)
        until(lambda: on_the_screen(live, f"live-by-group-repartition-{number} of task 0_0, "), live)


def test_a_task_that_is_ahead_says_of_which() -> None:
    gate = Gate()
    settings = {"repartition_buffer_bytes": 8_192, "max_poll_records": 100}
    with backlog() as broker, spread(broker, gate.topology, threads=4, **settings) as (live,), gate:
        live.resume()
        until(lambda: bool(tasks_with(live, state="ahead", awaited="0_0", waits_for=None)), live)
        until(lambda: on_the_screen(live, " task 0_0, "), live)
        gate.is_open.set()
        until(lambda: len(tasks_with(live, awaited=None, lag=0)) == 2 * PARTITIONS, live)


def test_a_task_without_whose_records_others_go_on_is_named() -> None:
    """Until it moves again."""
    gate = Gate(timedelta(milliseconds=100))
    with backlog() as broker, spread(broker, gate.topology, threads=2 * PARTITIONS) as (live,), gate:
        live.resume()
        until(lambda: bool(tasks_with(live, passed_over="0_0")), live)
        until(lambda: on_the_screen(live, "no more for 0_0"), live)
        gate.is_open.set()
        until(lambda: not tasks_with(live, passed_over="0_0"), live)


def told(live: Streams, task: str, key: str) -> dict[str, str]:
    """Return what the thread of a task knows of records of a key, by reason; the thread of the gate cannot answer."""
    question = Question.of(key)
    thread = next(each for each in live.instance.stream_threads if task in map(str, each.tasks))
    trace = Trace(question.follows, question.mentions)
    notes = thread.ask(lambda thread: notes_of(question, trace, thread.tasks)).result()
    return {note.reason: note.text for note in notes if f"task {task}" in note.text}


def test_the_story_of_a_key_has_the_task_for_which_its_records_wait() -> None:
    gate = Gate()
    with backlog() as broker, spread(broker, gate.topology, threads=4) as (live,), gate:
        live.resume()
        until(lambda: bool(tasks_with(live, awaited="0_0", state="waiting")), live)
        task = tasks_with(live, awaited="0_0", state="waiting")[0]["task"]
        number = int(task.removeprefix("1_"))
        key = next(f"g{group}" for group in range(7) if partition_for(f"g{group}".encode(), PARTITIONS) == number)
        until(lambda: "waiting for task" in told(live, task, key), live)
        text = told(live, task, key)["waiting for task"]

        assert f"by-group-repartition-{number} offset " in text
        assert f"waits in task {task}, as task 0_0 may write earlier records; it has been waited for " in text


def test_the_story_of_a_key_has_the_tasks_that_were_not_waited_for() -> None:
    """Also when they have come on: their records may have been late."""
    gate = Gate(timedelta(milliseconds=100))
    with backlog() as broker, spread(broker, gate.topology, threads=2 * PARTITIONS) as (live,), gate:
        live.resume()
        until(lambda: bool(tasks_with(live, passed_over="0_0")), live)
        task = tasks_with(live, passed_over="0_0")[0]["task"]
        gate.is_open.set()
        until(lambda: not tasks_with(live, passed_over="0_0"), live)

        text = told(live, task, "g1")["not waited for"]
    assert text.startswith(f"task {task} read by-group-repartition-{task[-1]} on without records of task 0_0")
    assert "which did not move (repartition_patience_ms" in text
