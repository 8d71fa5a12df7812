"""Replays on a standalone cluster: its workers are processes apart, with folders and environments of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replay.cluster import SparkCluster
from tests.replay.packed import packed_environment
from tests.replay.spark_cases import live, write_orders
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Executors on two workers, which both are there before the first task.
TWO_CORES = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
_ROOT = Path(__file__).parents[2]

#: What every program begins with: a session on the cluster, and a replay that tells its outputs.
_PROGRAM = """
import json, os, sys
from pathlib import Path
from streams import StreamsBuilder
from streams.replay import ReplayError, replay
from streams.replay.spark.sessions import start_session
from tests.replay.spark_cases import APPLICATION, PARTITIONS, orders, replayed, topology

history, given = sys.argv[1], json.loads(sys.argv[2])
spark = start_session(given["master"], settings={
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "512m",
    "spark.executor.memory": "512m", **given["settings"],
})

def tell(source, **options):
    cases = dict(partitions=PARTITIONS, application_id=APPLICATION, spark=spark)
    with replay(source, {orders: history}, **cases, **options) as result:
        rows, dropped = replayed(result)
        print(json.dumps([{topic: [[repr(part) for part in row] for row in rows[topic]] for topic in rows}, dropped]))

def noting(note):
    # Call note with every order, before the topology of the cases.
    def build(builder: StreamsBuilder) -> None:
        builder.stream(orders).peek(note)
        topology(builder)
    return build
"""


@pytest.fixture(scope="module")
def cluster(short_lived_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster, in which each test has as many workers as it needs."""
    with SparkCluster(tmp_path_factory.mktemp("cluster").resolve()) as found:
        yield found


def start(program: str, cluster: SparkCluster, history: Path, folder: Path, **given: Any) -> "subprocess.Popen[str]":
    """Start a program with a driver of the cluster; ``python`` is that of the workers (default: this one)."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYSPARK_PYTHON": given.pop("python", sys.executable),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    arguments = [str(history), json.dumps({"master": cluster.master, **given})]
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM + program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )


def ended(program: "subprocess.Popen[str]") -> list[Any]:
    """Wait for a program, and return what it prints, a JSON value a line."""
    out, err = program.communicate()
    assert program.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def expected(history: Path) -> list[Any]:
    """Return what a bounded live run gives."""
    rows, dropped = live(history)
    return [{topic: [[repr(part) for part in row] for row in lines] for topic, lines in rows.items()}, dropped]


def test_a_worker_is_lost_in_the_middle(cluster: SparkCluster, tmp_path: Path) -> None:
    """The first task that sees a certain order waits until its worker is killed, with the executor that runs it."""
    history = write_orders(tmp_path / "orders.jsonl")
    program = """
def wait_for_the_end(_, order):
    if order["item"] == "i3":
        try:
            os.symlink(os.getcwd(), given["mark"])
        except FileExistsError:
            return
        open(given["gate"]).read()

tell(noting(wait_for_the_end), slices=2, directory=given["directory"])
spark.stop()
"""
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    os.mkfifo(gate)
    cluster.have(2)
    given = {"mark": str(mark), "gate": str(gate), "directory": str(tmp_path / "replay")}
    run = start(program, cluster, history, tmp_path, settings=TWO_CORES, **given)
    until(lambda: mark.is_symlink() or run.poll() is not None)
    if mark.is_symlink():
        cluster.kill(mark.readlink())

    assert ended(run) == [expected(history)]
    assert mark.is_symlink()


def test_workers_without_the_project(cluster: SparkCluster, tmp_path: Path) -> None:
    """They get the code of the driver; and they have another folder behind the same name, which is said."""
    history = write_orders(tmp_path / "orders.jsonl")
    program = """
def loaded(_, order):
    import streams
    Path(given["loaded"]).write_text(streams.__file__)

try:
    tell(topology, directory="/proc/self/cwd/not-shared")
except ReplayError as error:
    print(json.dumps(str(error)))
tell(noting(loaded))
spark.stop()
"""
    cluster.have(1)
    settings = {"spark.cores.max": "1", "spark.task.maxFailures": "1"}
    python = _python_without_the_project(tmp_path)
    given = {"python": python, "settings": settings, "loaded": str(tmp_path / "loaded")}
    said, found = ended(start(program, cluster, history, tmp_path, **given))

    assert "an executor of Spark cannot see files of the driver there; choose a folder that all machines share" in said
    assert [found] == [expected(history)]
    assert ".zip/streams/" in (tmp_path / "loaded").read_text()


@pytest.mark.exhaustive
def test_workers_with_a_packed_environment(cluster: SparkCluster, tmp_path: Path) -> None:
    """The archive of venv-pack is unpacked by each executor, whose Python has all packages, and the compiled loops."""
    history = write_orders(tmp_path / "orders.jsonl")
    program = """
def loaded(_, order):
    import pyarrow, streams
    compiled = any(name.startswith("streams") and name.endswith("compiled_loops") for name in sys.modules)
    found = [os.getcwd(), sys.prefix, streams.__file__, pyarrow.__file__, compiled]
    Path(given["loaded"]).write_text(json.dumps(found))

tell(noting(loaded), directory=given["directory"])
spark.stop()
"""
    cluster.have(1)
    settings = {
        "spark.cores.max": "1",
        "spark.task.maxFailures": "1",
        "spark.archives": f"{packed_environment(tmp_path)}#environment",
        "spark.executorEnv.PYTHONPATH": "",
    }
    given = {"python": "./environment/bin/python", "settings": settings, "directory": str(tmp_path / "replay")}
    found = ended(start(program, cluster, history, tmp_path, loaded=str(tmp_path / "loaded"), **given))
    folder, *places, is_compiled = json.loads((tmp_path / "loaded").read_text())

    assert found == [expected(history)]
    assert all(Path(place).is_relative_to(Path(folder, "environment").resolve()) for place in places), places
    assert Path(folder).is_relative_to(cluster.folder)
    assert is_compiled == ("streams.core.blocks.compiled_loops" in sys.modules)


def _python_without_the_project(folder: Path) -> str:
    """Return a Python that has the packages of this one, but none that a ``.pth`` file names, such as this project."""
    import attrs
    import pyarrow

    # The cases are a part of the user's program, which is installed.
    (folder / "installed").mkdir()
    (folder / "installed" / "tests").symlink_to(_ROOT / "tests")
    sites = {str(folder / "installed"), *(str(Path(module.__file__).parents[1]) for module in (attrs, pyarrow))}
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{os.pathsep.join(sites)}:$PYTHONPATH"\nexec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return str(python)
