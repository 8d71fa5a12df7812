"""Cases of our own, of operators that Kafka Streams does not have: on every driver, the answer written by hand."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streams.replay.run.local import LocalExecutor
from tests.conformance.agree import difference_of, has_wall_clock, judged
from tests.conformance.blocks import OneBlock, RandomPace
from tests.conformance.cases import judge, read_cases
from tests.conformance.flow import Agreement
from tests.conformance.live import LivePlayer, live_parts
from tests.conformance.test_replay import compare_whole, players, sliceable
from tests.replay.outcomes import quick_folder

#: The drivers besides the test driver.
OTHERS = {"blocks", "embedded broker", "history"}
FILES = sorted(Path(__file__).with_name("own").glob("*.jsonl"))

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


def cases_of(path: Path, driver: str | None = None) -> list[dict[str, Any]]:
    """Return the cases of a file, without those whose field ``not_on`` says why they do not apply to the driver."""
    cases = [json.loads(case.line) for case in read_cases(path)]
    return [case for case in cases if driver not in case.get("not_on", ())]


@every_file
def test_case_of_our_own_gives_what_was_written_by_hand(path):
    cases = cases_of(path)
    failures = [f"{case['name']}: {why}" for case in cases if (why := judge(json.dumps(case), False)) is not None]

    assert cases
    assert not failures, "\n".join(failures)
    assert {case["origin"] for case in cases} == {"streams, not Kafka Streams"}
    # Only the test driver moves the wall clock; each other case runs on all drivers.
    assert all(case.get("not_on", {}).keys() == (OTHERS if has_wall_clock(case) else set()) for case in cases)


@pytest.mark.case(4)
@every_file
def test_case_of_our_own_gives_the_same_in_blocks_however_they_are_cut(path):
    failures = []
    for case in cases_of(path, "blocks"):
        for pace in (OneBlock(), *(RandomPace(Random(zlib.crc32(case["name"].encode()) + seed)) for seed in range(3))):
            wanted, why = judged(case, pace)
            if why is not None:
                failures.append(f"{case['name']} ({wanted}): {why}")

    assert not failures, "\n".join(failures)


@pytest.mark.case(4)
@every_file
def test_case_of_our_own_gives_the_same_on_the_embedded_broker(path):
    failures = []
    for case in cases_of(path, "embedded broker"):
        parts = None if case["expected"].get("error") else live_parts(case)
        if parts is not None:
            why = difference_of(case, LivePlayer(case, parts).play(), Agreement.EXACT)
            if why is not None:
                failures.append(f"{case['name']}: {why}")

    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.seeds("path", FILES, 4, ids=lambda path: path.stem)
def test_case_of_our_own_gives_the_same_as_history_whole_and_in_slices(path, folder):
    # By records only: in what is played as history, idle_close is never reached.
    options = {"wall_clock": "skip"} if path.stem == "idle_close" else {}
    whole = players(path, folder / "whole", **options)
    sliced = sliceable(players(path, folder / "sliced", **options))

    assert whole
    assert sliced
    compare_whole(whole, LocalExecutor(1))
    compare_whole(sliced, LocalExecutor(1), slices=3)
