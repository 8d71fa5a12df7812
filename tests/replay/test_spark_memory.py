"""What Spark gives Python workers, compared with what a replay needs; by the rules of Spark's settings."""

import pytest

from streams.core.settings.config import StreamsConfig
from streams.replay.calls.memory import PROCESS_BYTES, CallMemory, ExecutorMemory, size_of

_MIB = 1 << 20
_CALL = CallMemory.of(StreamsConfig(application_id="a", state_memory_max_bytes=100 * _MIB), has_stores=True)


def _given(master: str, **settings: str) -> ExecutorMemory | None:
    named = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
    return ExecutorMemory.of(master, lambda name: named.get(name, ""))


@pytest.mark.parametrize("master", ["local[4]", "spark://host:7077", "local-cluster[2,1,1024]", ""])
def test_where_python_may_take_what_the_machine_has(master: str) -> None:
    assert _given(master) is None


@pytest.mark.parametrize(
    ("master", "settings", "tasks", "mebibytes"),
    [
        # The default overhead of 384 MiB is for the JVM.
        ("yarn", {}, 1, 0),
        ("yarn", {"executor_cores": "4", "executor_memory": "10g"}, 4, 1024 - 384),
        ("yarn", {"executor_cores": "4", "task_cpus": "2", "executor_memoryOverhead": "2g"}, 2, 2048 - 384),
        ("yarn", {"executor_memoryOverhead": "1000"}, 1, 1000 - 384),
        ("yarn", {"executor_memoryOverheadFactor": "0.5", "executor_memory": "2g"}, 1, 1024 - 384),
        ("k8s://https://host", {"executor_memory": "10g"}, 1, 4096 - 384),
        ("k8s://https://host", {"executor_memory": "10g", "kubernetes_memoryOverheadFactor": "0.1"}, 1, 1024 - 384),
        ("spark://host:7077", {"executor_pyspark_memory": "3g", "executor_cores": "2"}, 2, 3072),
    ],
)
def test_memory_of_an_executor(master: str, settings: dict[str, str], tasks: int, mebibytes: int) -> None:
    found = _given(master, **settings)

    assert found is not None
    assert (found.tasks, found.bytes // _MIB) == (tasks, mebibytes)


def test_a_shortage_names_the_setting_that_ends_it() -> None:
    assert _CALL.bytes == PROCESS_BYTES + 100 * _MIB
    short = _given("yarn", executor_cores="2", executor_memoryOverhead="1000m")
    assert short is not None
    said = short.shortage(_CALL)

    assert said is not None
    assert "runs 2 tasks at a time; outside of the JVM each needs up to 520 MiB: 420 MiB for Python and Arrow" in said
    assert "in all 1,040 MiB, but there are 616 MiB (spark.executor.memoryOverhead=1,000 MiB" in said
    assert "give spark.executor.memoryOverhead=1424m" in said
    enough = _given("yarn", executor_cores="2", executor_memoryOverhead="1424m")
    assert enough is not None
    assert enough.shortage(_CALL) is None


def test_stores_count_only_where_there_are_any() -> None:
    assert CallMemory.of(StreamsConfig(application_id="a"), has_stores=False).bytes == PROCESS_BYTES


def test_a_size_that_spark_rejects_is_left_to_spark() -> None:
    assert size_of("much") == 0
