"""What is left to `make test-all`, and that the end of a run says so."""

import pytest

from tests import programs, sample
from tests.sample import Rest

IDS = ["tests/a.py::one[x-1]", "tests/a.py::one[x-2]", "tests/a.py::two", "tests/b.py::three", "tests/b.py::four"]


@pytest.mark.parametrize(
    ("rest", "left"),
    [
        (Rest("w", "tests/a.py::*"), IDS[:3]),
        (Rest("w", "tests/a.py::*", keep=("*[x-1]",)), IDS[1:3]),
        (Rest("w", "tests/*", one_in=2), [IDS[1], IDS[3]]),
        (Rest("w", "tests/*", one_in=2, keep=("*one*",)), [IDS[3]]),
        (Rest("w", "tests/c.py::*"), []),
    ],
)
def test_entry_leaves_out_what_its_pattern_means_and_keeps_the_rest(rest, left):
    assert rest.chosen(IDS) == left


def test_each_entry_leaves_something_out_and_keeps_its_kind(request):
    """Where all tests were collected: no pattern is out of date, and of each kind something stays in the sample."""
    if request.config.option.scope == "rest" or "::" in str(request.config.args) or len(request.session.items) < 4_000:
        pytest.skip("not all tests were collected")
    ids = [item.nodeid for item in request.session.items]
    left = sample.left_out(ids)

    assert [rest for rest in sample.REST if not rest.chosen(ids)] == []
    assert [keep for rest in sample.REST for keep in rest.keep if not rest.kept(ids, keep)] == []
    # What these are for has tests in other modules of the sample.
    modules = {test_id.partition("::")[0] for test_id in left} - {
        test_id.partition("::")[0] for test_id in set(ids) - left.keys()
    }
    assert modules == {
        "tests/examples/test_airflow.py",
        "tests/examples/test_notebook.py",
        "tests/examples/test_web_service.py",
        "tests/kafka/test_queries.py",
        "tests/properties/test_chains.py",
        "tests/kafka/test_reset_from_snapshot.py",
        "tests/kafka/test_rolling.py",
        "tests/kafka/test_workers.py",
        "tests/lookup/test_enrichment.py",
        "tests/properties/test_asof.py",
        "tests/properties/test_caches.py",
        "tests/properties/test_determinism.py",
        "tests/properties/test_engines.py",
        "tests/properties/test_restore.py",
        "tests/replay/test_equality_spark.py",
        "tests/runtime/test_idle_live.py",
        "tests/replay/test_changes.py",
        "tests/replay/test_s3.py",
        "tests/replay/test_spark_cluster.py",
        "tests/replay/test_spark_failures.py",
        "tests/runtime/test_crashes.py",
        "tests/replay/test_spark_masters.py",
    }


PROGRAM = """
import pytest

def test_passes(): pass

@pytest.mark.parametrize("number", range(3))
def test_left_out(number): pytest.skip("of a kind (make other)")

@pytest.mark.kafka
def test_of_kafka(): raise AssertionError
"""


def test_end_of_a_run_says_what_was_left_out_and_why(tmp_path):
    (tmp_path / "test_program.py").write_text(PROGRAM)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    kafka: of a real Kafka\n")

    done = programs.run(["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "."], cwd=tmp_path)

    lines = done.stdout.splitlines()
    assert "    3 tests: of a kind (make other)" in lines, done.stdout + done.stderr
    assert "    1 test: of a real Kafka (make kafka-test)" in lines
    assert "1 passed, 4 skipped" in lines[-1]


def test_tests_of_a_group_run_in_one_worker(tmp_path):
    """They share what takes seconds to make, such as a Spark session."""
    folder = tmp_path / "tests" / "replay"
    folder.mkdir(parents=True)
    (folder / "test_spark_shared.py").write_text(
        "import os, pytest\n\n@pytest.mark.parametrize('n', range(8))\ndef test_one(n):\n"
        "    open('workers.txt', 'a').write(os.environ['PYTEST_XDIST_WORKER'] + '\\n')\n"
    )

    done = programs.run(
        ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "2", "--rootdir", ".", "tests"],
        cwd=tmp_path,
    )

    workers = (tmp_path / "workers.txt").read_text().split()
    assert (len(workers), len(set(workers))) == (8, 1), done.stdout + done.stderr
