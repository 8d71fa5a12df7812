"""What is left to `make test-rest`, and that the end of a run says so."""

import shlex

import pytest

from tests import programs, sample
from tests.conftest import marked
from tests.sample import Marked

ONE = [Marked("tests/a.py::one", {}), Marked("tests/a.py::two", {"slow": ()})]


PLACES = {
    "kafka": ("tests/kafka/", "tests/clients/tcp/test_security.py"),
    "collector": ("tests/telemetry/",),
    "browser": ("tests/browser/",),
    "deploy": ("tests/deploy/",),
}


def cases(*every: int) -> list[Marked]:
    """Return a test of five parameters, one case of each so many of which is in the sample."""
    return [Marked(f"tests/a.py::three[{number}]", {"case": every}) for number in range(5)]


@pytest.mark.parametrize(
    ("tests", "left"),
    [
        (ONE, [1]),
        ([*ONE, Marked("tests/b.py::four", {"world": ()}), Marked("tests/b.py::five", {"slow": ()})], [1, 3]),
        ([*ONE, Marked("tests/b.py::four", {"spark": ()}), Marked("tests/b.py::five", {"kafka": ()})], [1, 2]),
        ([Marked("tests/b.py::four", {"kafka": ()}), Marked("tests/b.py::five", {"slow": ()})], []),
        (cases(), [1, 2, 3, 4]),
        (cases(2), [1, 3]),
        ([*cases(4), Marked("tests/a.py::three[5]", {"case": (4,), "killed": ()})], [1, 2, 3, 5]),
    ],
)
def test_marks_leave_out_all_but_one_of_a_kind_and_something_of_each_module(tests, left):
    assert list(sample.left_out(tests)) == [tests[number].id for number in left]


def test_each_module_has_a_test_in_the_sample(request):
    """Where all tests were collected; but those that need a Spark, a Kafka or a browser, which starts for long."""
    if request.config.option.scope == "rest" or "::" in str(request.config.args) or len(request.session.items) < 4_000:
        pytest.skip("not all tests were collected")
    started = sample.STARTED - {"spark"}
    tests = [test for test in map(marked, request.session.items) if not started & test.marks.keys()]
    left = sample.left_out(tests)

    def modules(chosen):
        return {test.module for test in chosen}

    without = modules(tests) - modules(test for test in tests if test.id not in left)
    assert without == sample.ONE_LONG_TEST | {
        "tests/replay/test_equality_spark.py",
        "tests/replay/test_spark_cluster.py",
        "tests/replay/test_spark_masters.py",
        "tests/replay/test_table_inputs.py",
    }
    # Where the Makefile looks for them.
    for mark, places in PLACES.items():
        assert [
            test.id
            for test in map(marked, request.session.items)
            if mark in test.marks and not test.id.startswith(places)
        ] == []
    # A kind of which all is left out would not be noticed otherwise.
    assert {mark for test in tests if test.id in left for mark in test.marks} >= sample.MARKS.keys()


def test_seeds_are_as_many_as_are_asked_for(tmp_path):
    (tmp_path / "test_program.py").write_text(SEEDED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    seeds: seeds\n    exhaustive: all\n")

    def ran(*arguments):
        options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-v", *arguments]
        lines = programs.run(["-m", "pytest", *options], cwd=tmp_path).stdout.splitlines()
        return [line.partition("::")[2].split()[0] for line in lines if "PASSED" in line]

    assert ran(".") == ["test_seed[0]", "test_two[0]", "test_two[1]", "test_number"]
    assert len(ran(".", "--scope", "all", "--seeds", "3")) == 3 + 6 + 1 + 1
    assert ran("test_program.py::test_seed[8]", "test_program.py::test_all") == ["test_seed[8]", "test_all"]


SEEDED = """
import pytest

@pytest.mark.seeds("seed", range(9))
def test_seed(seed): pass

@pytest.mark.seeds("seed", range(9), 2)
def test_two(seed): pass

@pytest.mark.exhaustive
def test_all(): pass

def test_number(seeds): assert seeds in (1, 3)
"""


FAILING = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("name", ["it's", 'a "$name"'])
def test_fails(name, seeds): assert seeds < 2 or name == "it's"
"""


def test_failed_test_of_the_rest_is_named_with_the_command_that_repeats_it(tmp_path):
    (tmp_path / "test_program.py").write_text(f"def test_of_the_sample(): pass\n{FAILING}")
    options = "addopts = -p tests.conftest -p no:cacheprovider\nmarkers =\n    slow: slow\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{options}")

    done = programs.run(["-m", "pytest", "--scope", "rest", "--seeds", "2", "."], cwd=tmp_path)
    (command,) = [line for line in done.stdout.splitlines() if "python -m pytest" in line]
    again = programs.run(shlex.split(command.removeprefix("CI=1 "))[1:], cwd=tmp_path)

    assert "1 failed, 1 passed" in done.stdout.splitlines()[-1]
    assert "1 failed" in again.stdout.splitlines()[-1], again.stdout
    assert "passed" not in again.stdout.splitlines()[-1]


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


@pytest.mark.slow
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
