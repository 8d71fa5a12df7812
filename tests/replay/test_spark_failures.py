"""What fails on Spark is tried again, and if it cannot be helped, said in the words of the topology."""

import os
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topic
from streams.core.blocks.records import TaskId
from streams.replay import Plan, ReplayError, ReplayTaskError, replay
from streams.replay.calls.failures import TaskFailure, packed, unpacked
from streams.replay.calls.work import Application, StageWork, TaskWork
from streams.replay.spark import tasks
from streams.replay.spark.executor import readable_failure
from streams.replay.spark.worker import CallFiles
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from tests.replay.spark_cases import APPLICATION, PARTITIONS, live, orders, replayed, write_orders
from tests.replay.spark_cases import topology as both

numbers = Topic("numbers", key=None, value=str, timestamp=lambda _: 0)
halves = Topic("halves", value=float)


@pytest.mark.spark
def test_user_code_that_fails_once_is_run_again(spark: Any, tmp_path: Path) -> None:
    """It fails behind some records, whose outputs then are there once."""
    history = write_orders(tmp_path / "orders.jsonl")
    tries = tmp_path / "tries"
    tries.mkdir()

    def fail_once(_: Any, order: Any) -> None:
        if order["item"] == "i3" and not (tries / "first").exists():
            (tries / "first").touch()
            raise RuntimeError("the first attempt")

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).peek(fail_once)
        both(builder)

    with replay(topology, {orders: history}, spark=spark, partitions=PARTITIONS, application_id=APPLICATION) as result:
        assert (tries / "first").exists()
        assert replayed(result) == live(history)


@pytest.mark.spark
def test_worker_that_dies_is_replaced(any_spark: Any, tmp_path: Path) -> None:
    history = write_orders(tmp_path / "orders.jsonl")
    tries = tmp_path / "tries"
    tries.mkdir()

    def die_once(_: Any, order: Any) -> None:
        if order["item"] == "i3" and not (tries / "first").exists():
            (tries / "first").touch()
            os._exit(1)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).peek(die_once)
        both(builder)

    with replay(
        topology, {orders: history}, spark=any_spark, partitions=PARTITIONS, application_id=APPLICATION
    ) as result:
        assert (tries / "first").exists()
        assert replayed(result) == live(history)


@pytest.mark.spark
def test_error_names_node_file_and_row_and_shows_no_foreign_stack(any_spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2\n0\n4\n")
    with pytest.raises(ReplayTaskError) as raised:
        replay(_inverse, {numbers: path}, spark=any_spark)

    error = raised.value
    assert error.node is not None
    assert error.node in str(error)
    assert f"row 3 of {path}" in str(error)
    assert "ZeroDivisionError" in str(error)
    assert (error.topic, error.partition, error.offset) == ("numbers", 0, 2)
    # What a script prints that does not catch it: the traceback of the worker, and nothing of the JVM.
    printed = "".join(traceback.format_exception(error))
    assert "1 / int(number)" in printed
    for foreign in ("java", "py4j", "org.apache", "scala", "sparkexception"):
        assert foreign not in printed.lower(), foreign


@pytest.mark.spark
def test_records_of_a_failed_replay_stay_unharmed(spark: Any, tmp_path: Path) -> None:
    """A row that was repaired does not hinder a replay into another folder."""
    path = tmp_path / "numbers.txt"
    path.write_text("1\n0\n")
    with pytest.raises(ReplayTaskError):
        replay(_inverse, {numbers: path}, spark=spark, directory=tmp_path / "first")
    path.write_text("1\n2\n")

    with replay(_inverse, {numbers: path}, spark=spark, directory=tmp_path / "second") as result:
        assert [row.value for row in result.rows(halves)] == [1.0, 0.5]


@pytest.mark.spark
def test_worker_that_dies_each_time_is_an_error_that_says_so(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n")

    with pytest.raises(ReplayError, match="a Python worker of Spark was killed in each attempt of its task"):
        replay(_deadly, {numbers: tmp_path / "numbers.txt"}, spark=spark)


@pytest.mark.spark
def test_interrupted_replay_ends_its_job(any_spark: Any, tmp_path: Path) -> None:
    """A person's Ctrl-C, while a call waits for what never comes."""
    (tmp_path / "numbers.txt").write_text("1\n")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    looks = iter(range(1_000))

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).map_values(lambda _: float(gate.read_text())).to(halves)

    def interrupt(progress: Any) -> None:
        if progress.stage == 0 and next(looks) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(topology, {numbers: tmp_path / "numbers.txt"}, spark=any_spark, plan=Plan(progress=interrupt))

    (tmp_path / "numbers.txt").write_text("4\n")
    with replay(_inverse, {numbers: tmp_path / "numbers.txt"}, spark=any_spark) as result:
        assert [row.value for row in result.rows(halves)] == [0.25]


def test_folder_that_an_executor_does_not_see_is_refused(tmp_path: Path) -> None:
    """No marker of the driver's lies there, as on a machine with a disk of its own."""
    files = CallFiles(Place(str(tmp_path / "elsewhere")))

    with pytest.raises(
        ReplayError,
        match="an executor of Spark cannot see files of the driver there; choose a folder that all machines",
    ):
        files.check_marker()

    files.write_marker()
    files.check_marker()


def test_application_travels_once_for_all_its_calls(tmp_path: Path) -> None:
    """What a driver of Spark holds of a call is small, however large the user's code is."""
    files = CallFiles(Place(str(tmp_path)))
    ballast = bytes(1_000_000)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).map_values(lambda value: value + len(ballast)).to(halves)

    application = Application.of(topology, {"application_id": "app"}, {"numbers": 2})
    pack = files.packer()
    tasks = (TaskWork(TaskId(0, 0), ()),)
    calls = [pack(StageWork(application, tasks, Segments(Place("replay")), "run", number)) for number in range(3)]

    assert max(map(len, calls)) < 1_000
    assert len(list(tmp_path.iterdir())) == 1
    name, call = pickle.loads(calls[2])
    assert name.stage == 2
    assert files.unpacked(call).application == application


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Job aborted due to stage failure: Task 3 in stage 5.0 failed 4 times, most recent failure: Lost task 3.3 "
            "in stage 5.0 (TID 9) (host executor 1): java.io.IOException: No space left on device\n\tat java.base/x",
            "Spark failed: No space left on device",
        ),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", "an executor of Spark was lost"),
        (
            "PythonException: Traceback\n  File x\nModuleNotFoundError: No module named 'attrs'\n\tat org.apache",
            "cannot load the project: No module named 'attrs'; install the same packages",
        ),
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.\n\tat org.apache",
            "run Python 3.12, this driver 3.11; set PYSPARK_PYTHON",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 12) than that in driver 3.11, x",
            "run Python 3.12, this driver 3.11; set PYSPARK_PYTHON",
        ),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or '
            "directory\n\tat java.base",
            "the executors of Spark cannot run Python as './environment/bin/python': No such file or directory; set",
        ),
        ("[SPARK_JOB_CANCELLED] Job 1 cancelled part of cancelled job tags", "was cancelled in Spark"),
        (
            '<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = UNAVAILABLE\n\tdetails = "no route"\n>',
            "Spark Connect failed: no route; run the replay again with resume",
        ),
        ("", "Spark failed: RuntimeError"),
    ],
)
def test_failures_of_spark_itself_are_said_in_one_line(text: str, said: str) -> None:
    error = readable_failure(RuntimeError(text))

    assert isinstance(error, ReplayError)
    assert said in str(error)
    assert "\n" not in str(error)
    assert "java" not in str(error)


def test_failure_of_a_task_keeps_what_the_task_packed() -> None:
    class Work:
        name, stage = "0_1", 0

    text = f"PythonException: {packed(Work, ValueError('bad'))}\n\tat org.apache.spark"
    error = readable_failure(RuntimeError(text))

    assert isinstance(error, TaskFailure)
    assert (unpacked(str(error)) or {})["message"] == "bad"


def _inverse(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda number: 1 / int(number)).to(halves)


def _deadly(builder: StreamsBuilder) -> None:
    builder.stream(numbers).peek(lambda _, number: os._exit(1)).to(halves)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["file", "table", "output"])
def test_another_build_in_a_worker_reaches_the_user(
    any_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As in a session whose workers have loaded an earlier version: in calls, in jobs over tables, and in outputs."""
    history = write_orders(tmp_path / "orders.jsonl")
    given: Any = history if kind != "table" else any_spark.read.json(str(history))
    options: dict[str, Any] = {"spark": any_spark, "partitions": PARTITIONS, "application_id": APPLICATION}
    said = "the workers of Spark have another build of streams (.*) than the driver (of-the-driver); install the same"
    if kind == "output":
        with replay(both, {orders: given}, **options) as result:
            monkeypatch.setattr(tasks, "build_digest", lambda: "of-the-driver")
            frame = result.outputs["per-item"]
            with pytest.raises(Exception, match=said.replace("(", r"\(").replace(")", r"\)")):
                frame.collect()
        return
    monkeypatch.setattr(tasks, "build_digest", lambda: "of-the-driver")
    with pytest.raises(ReplayError, match=said.replace("(", r"\(").replace(")", r"\)")):
        replay(both, {orders: given}, **options)
