"""What a replay on Spark gives is what a bounded live run gives: the same subjects, and all cases, in few jobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.replay.spark.executor import SparkExecutor
from streams.replay.storage.places import Place
from tests.conformance.test_replay import FILES, compare_pieces, compare_whole, players, sampled
from tests.replay.matrix import Expected, examples, named_cases
from tests.replay.outcomes import quick_folder

pytestmark = pytest.mark.spark


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture
def executor(spark: Any, folder: Path) -> Any:
    return SparkExecutor.of(spark, None, Place(str(folder)))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """Return the examples and the named cases, and what a live run gives of them."""
    folder = tmp_path_factory.mktemp("subjects")
    return Expected.of([*examples(folder), *named_cases(folder)])


def test_examples_and_cases(expected: Expected, executor: Any, folder: Path) -> None:
    expected.check_replay(executor, folder)


@pytest.mark.exhaustive
@pytest.mark.parametrize("slices", [3, 10])
def test_examples_and_cases_in_slices(expected: Expected, executor: Any, folder: Path, slices: int) -> None:
    expected.check_replay(executor, folder, slices=slices)


def test_sample_of_all_cases(executor: Any, folder: Path) -> None:
    chosen = [player for path in FILES for player in sampled(path, folder / path.name)]

    compare_whole(chosen, executor)


@pytest.mark.exhaustive
def test_all_cases(executor: Any, folder: Path) -> None:
    """About a thousand applications, each stage of all of them one job."""
    compare_whole([player for path in FILES for player in players(path, folder / path.name)], executor)


@pytest.mark.exhaustive
def test_sample_of_all_cases_in_pieces(executor: Any, folder: Path) -> None:
    compare_pieces([player for path in FILES for player in sampled(path, folder / path.name)], executor)
