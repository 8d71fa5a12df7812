"""What a replay gives is what a bounded live run gives: every example, and forty cases, in every way there is.

Outputs, stores and drops, record for record, behind repartitions too: on the embedded broker with one to
four threads; in one to four processes; with history in one piece, in three and in ten slices.  Three
partitions each; in ten slices of a case with ten records most of them have no rows.  On Spark:
``test_equality_spark``.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streams import Processor, Record, StreamsBuilder, Topic, key_value_store
from streams.replay import replay
from streams.replay.run.local import LocalExecutor
from tests.replay.matrix import NAMED, Expected, examples, named_cases
from tests.replay.outcomes import quick_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """Return the examples, and what a live run gives of them."""
    return Expected.of(examples(tmp_path_factory.mktemp("examples")))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """Return the named cases, and what a live run gives of them."""
    found = Expected.of(named_cases(tmp_path_factory.mktemp("cases")))
    assert len(found.subjects) == sum(map(len, NAMED.values())) >= 40
    return found


@pytest.fixture(params=["shown", "cases"])
def expected(request: pytest.FixtureRequest) -> Any:
    """Return both in turn."""
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_subjects_have_outputs_stores_and_drops(shown: Expected, cases: Expected) -> None:
    """Else there would be nothing to compare."""
    outcomes = [*shown.outcomes, *cases.outcomes]
    assert sum(bool(outcome.outputs) for outcome in outcomes) > len(outcomes) * 0.95
    assert sum(any(outcome.stores.values()) for outcome in outcomes) > len(outcomes) * 0.6
    assert sum(bool(outcome.dropped) for outcome in outcomes) > 8


@pytest.mark.slow
@pytest.mark.seeds("threads", [4, 2])
def test_live_run_with_more_threads(expected: Expected, threads: int) -> None:
    expected.check_live(threads)


@pytest.mark.slow
@pytest.mark.seeds("slices", [3, None])
def test_replay_in_one_process(expected: Expected, slices: int | None, folder: Path) -> None:
    expected.check_replay(LocalExecutor(1), folder, slices=slices)


@pytest.mark.exhaustive
def test_replay_in_ten_slices(expected: Expected, folder: Path) -> None:
    expected.check_replay(LocalExecutor(1), folder, slices=10)


@pytest.mark.slow
def test_replay_of_files(shown: Expected, folder: Path) -> None:
    """Lines, JSON, CSV and records, read into partitions first."""
    shown.check_replay(LocalExecutor(1), folder, files=True)


@pytest.mark.slow
def test_replay_in_several_processes(expected: Expected, folder: Path) -> None:
    with closing(LocalExecutor(4)) as executor:
        expected.check_replay(executor, folder / "four", slices=None)
    with closing(LocalExecutor(2)) as executor:
        expected.check_replay(executor, folder / "two", slices=3)


# --- what was found on the way ----------------------------------------------------------------

_numbers = Topic("numbers", key=str, value=int)
_totals = Topic("totals", key=str, value=int)


def _adder(name: str) -> Any:
    """Make a processor in a function: the names in the body of its class are those of this module."""

    class Adder(Processor[str, int, str, int]):
        totals = key_value_store(str, int, name)

        def process(self, record: Record[str, int]) -> None:
            total = (self.totals.get(record.key) or 0) + record.value
            self.totals.put(record.key, total)
            self.context.forward(record.key, total)

    return Adder


def _sums(builder: StreamsBuilder) -> None:
    builder.stream(_numbers).process(_adder("sums"), key=str, value=int).to(_totals)


@pytest.fixture
def numbers(folder: Path) -> Path:
    """Return a file of forty numbers, one of them no number."""
    path = folder / "numbers.records.jsonl"
    rows = [f'{{"key": "k{n % 7}", "value": {n}, "timestamp": {n}}}\n' for n in range(40)]
    rows[5] = '{"key": "k0", "value": {"$hex": "00"}, "timestamp": 5}\n'
    path.write_text("".join(rows))
    return path


@pytest.mark.slow
def test_processor_made_in_a_function_travels(numbers: Path) -> None:
    found = []
    for processes in (1, 2):
        with replay(
            _sums,
            {_numbers: numbers},
            executor="local",
            processes=processes,
            partitions=3,
            application_id="app",
            deserialization_handler="continue",
        ) as result:
            found.append((result.rows(_totals), dict(result.stores["sums"]), result.dropped))

    assert found[0] == found[1]
    assert len(found[0][0]) == 39


def test_class_of_the_user_stays_as_it_is(numbers: Path) -> None:
    """In the process of the driver nothing is unpickled: methods of a class would be replaced by copies."""

    class Doubling:
        def __call__(self, builder: StreamsBuilder) -> None:
            builder.stream(_numbers).map_values(lambda value: value * 2).to(_totals)

    before = Doubling.__call__
    for _ in range(2):
        with replay(
            Doubling(),
            {_numbers: numbers},
            executor="local",
            processes=1,
            application_id="app",
            deserialization_handler="continue",
        ) as result:
            assert result.records == {"totals": 39}

    assert Doubling.__call__ is before
