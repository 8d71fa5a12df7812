"""Replays in processes with a Spark of their own: other parallelism, and a local Connect."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.replay.spark_cases import live, write_orders

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("short_lived_java"),
]

_ROOT = Path(__file__).parents[2]


def run_program(program: str, *arguments: str | Path, folder: Path) -> list[Any]:
    """Run a program in a process of its own; return what it prints, a JSON value a line."""
    paths = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=given)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


_REPLAY = """
import json, sys
from streams.replay import Plan, replay
from tests.replay.spark_cases import APPLICATION, PARTITIONS, orders, per_item, replayed, topology

def tell(**where):
    given = dict(partitions=PARTITIONS, application_id=APPLICATION)
    with replay(topology, {orders: sys.argv[1]}, Plan(**where), **given) as result:
        rows, dropped = replayed(result)
        found = {topic: [[repr(part) for part in row] for row in lines] for topic, lines in rows.items()}
        print(json.dumps([found, dropped, result.outputs[per_item].count()]))
"""


def _expected(history: Path) -> list[Any]:
    rows, dropped = live(history)
    found = {topic: [[repr(part) for part in row] for row in lines] for topic, lines in rows.items()}
    return [found, dropped, len(rows["per-item"])]


def test_one_and_two_threads_and_a_local_connect_give_the_same(tmp_path: Path) -> None:
    """One JVM, sessions after each other, ended by the last replay that uses them; then a local Connect."""
    history = write_orders(tmp_path / "orders.jsonl")
    program = f"""{_REPLAY}
import os
from pyspark.sql import SparkSession
from streams.replay.storage.places import Place
from streams.replay.spark.executor import SparkExecutor

tell(master="local[1]")
assert SparkSession.getActiveSession() is None

first = SparkExecutor.of(None, "local[2]", Place(sys.argv[1]))
second = SparkExecutor.of(None, None, Place(sys.argv[1]))
tell(master="local[2]")
first.close()
assert second.session.range(3).count() == 3
second.close()
assert SparkSession.getActiveSession() is None

os.environ["SPARK_TESTING"] = "1"  # Its server takes a free port then.
builder = SparkSession.builder.remote("local[2]")
session = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
tell(spark=session, slices=2)
session.stop()
"""
    found = run_program(program, history, folder=tmp_path)

    assert found == [_expected(history)] * 3
