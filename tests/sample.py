"""What `make test` runs of all tests, by their marks: one of each kind, and something of every module.

A mark says why a test is left to `make test-rest`: it shows more of what another one shows, at a price of seconds.
A test without a mark is in the sample.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from itertools import count

from attrs import frozen

#: Marks of tests that are left out, and what such tests are.
MARKS = {
    "spark": "replays on Spark",
    "killed": "processes that are killed again and again",
    "world": "simulated worlds, and generated topologies, stores and logs",
    "exhaustive": "all of what others try some of",
    "slow": "more of what others show, mostly for seconds",
    "case": "more cases of what others show",
}
#: Of what has one of these marks, the sample may have nothing: a Spark or a Kafka takes longer to start than a test.
STARTED = {"spark", "kafka", "browser", "collector", "deploy"}
#: Modules whose tests have several processes under load, or several days, each for a quarter of a minute and more.
ONE_LONG_TEST = {
    "tests/examples/test_airflow.py",
    "tests/examples/test_web_service.py",
    "tests/kafka/test_in_step_processes.py",
    "tests/kafka/test_queries.py",
    "tests/kafka/test_reset_from_snapshot.py",
    "tests/kafka/test_workers.py",
}
#: Tests that one worker runs one after the other, for what they share takes seconds to make: by name, patterns of ids.
GROUPS = {
    "spark": (
        "tests/replay/test_spark*",
        "tests/replay/test_equality_spark.py::*",
        "tests/replay/test_inputs.py::*through_spark*",
        "tests/replay/test_inputs.py::*connect]",
        "tests/replay/test_inputs.py::*classic]",
        "tests/replay/test_sessions.py::*on_spark*",
        "tests/replay/test_table_inputs.py::*",
        "tests/replay/test_order.py::*spark*",
        "tests/replay/test_explain.py::*spark*",
        "tests/values/test_tables.py::*of_spark*",
    ),
    "tidy": ("tests/test_tidy.py::*",),
    "nexmark": ("tests/examples/test_nexmark.py::*all_queries*",),
}


@frozen
class Marked:
    """A test: its id, and its marks, each with its arguments."""

    id: str
    marks: Mapping[str, tuple[object, ...]]

    @property
    def module(self) -> str:
        """The path of its module; what is no test of ours, such as a doctest, has its file."""
        return self.id.partition("::")[0]

    @property
    def function(self) -> str:
        """Its id without parameters."""
        return self.id.partition("[")[0]


def group_of(test_id: str) -> str:
    """Return the name of a test's group; a test without one is a group of its own."""
    return next((name for name, likes in GROUPS.items() if any(_is_like(test_id, like) for like in likes)), test_id)


def left_out(tests: Iterable[Marked]) -> dict[str, str]:
    """Return what is left to `make test-rest`: the ids, each with what it is one of.

    Of a test that is marked with ``case`` the first of its parameters stays, with ``case(12)`` the first of each
    twelve.  Of a module that has only tests to leave out the first one stays.
    """
    tests = list(tests)
    numbers: dict[str, Iterable[int]] = {}
    left: dict[str, str] = {}
    for test in tests:
        mark = next((mark for mark in MARKS if mark in test.marks), None)
        if mark == "case":
            number = next(iter(numbers.setdefault(test.function, count())))
            every = test.marks["case"]
            mark = "case" if (number % int(str(every[0])) if every else number) else None
        if mark is not None:
            left[test.id] = MARKS[mark]
    modules = {test.module for test in tests if test.id not in left and not STARTED & test.marks.keys()} | ONE_LONG_TEST
    for test in tests:
        if test.module not in modules and not STARTED & test.marks.keys():
            modules.add(test.module)
            del left[test.id]
    return left


def _is_like(test_id: str, pattern: str) -> bool:
    # Brackets stand for themselves, as in the ids.
    return fnmatch(test_id, pattern.replace("[", "[[]"))
