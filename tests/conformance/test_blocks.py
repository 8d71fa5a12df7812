"""One path: the cases once more, as blocks through the tasks and programs that a running application has.

What a case must have in common with the answer of Kafka Streams is read off its graph
(``flow.agreement``), never its name; for nine of ten that is everything.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.agree import has_wall_clock, judged, judged_singly
from tests.conformance.blocks import BlockPlayer, OneBlock, RandomPace
from tests.conformance.cases import read_cases
from tests.conformance.flow import Agreement, agreement

_FILES = sorted(
    path
    for path in Path(__file__).with_name("cases").glob("*.jsonl.gz")
    if not path.name.startswith(("describe", "partitioner"))
)


#: Of the generated cases one in so many, with one seed.
_EVERY_GENERATED = 8


def cases_of(path: Path, seeds: int) -> list[dict]:
    """Return the cases of a file that do not move the wall clock."""
    cases = [json.loads(case.line) for case in read_cases(path)]
    every = max(1, _EVERY_GENERATED // seeds) if path.name.startswith("generated") else 1
    return [case for case in cases if not has_wall_clock(case)][::every]


def played(path: Path, pace, seeds: int) -> Counter:
    """Judge all cases of a file; return how many there are of each agreement."""
    counts: Counter = Counter()
    failures = []
    for case in cases_of(path, seeds):
        wanted, why = judged(case, pace(case))
        counts[wanted] += 1
        if why is not None:
            failures.append(f"{case['name']} ({wanted}): {why}")
    assert not failures, f"{len(failures)} cases differ:\n" + "\n".join(failures)
    return counts


@pytest.mark.case(5)
@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_case_as_one_block_gives_what_it_gave_record_by_record(path, seeds):
    assert played(path, lambda case: OneBlock(), seeds)


@pytest.mark.slow
def test_nearly_all_cases_agree_in_everything(seeds):
    """Those that cannot: several ways from one block into one task, stream time shared by the driver, caches."""
    counts: Counter = Counter()
    for path in _FILES:
        for case in cases_of(path, seeds):
            player = BlockPlayer(case)
            player.play()
            if player.flow is not None:  # what is refused at build has nothing to agree in
                counts[agreement(case, player.flow, player.parts)] += 1

    assert counts[Agreement.EXACT] / sum(counts.values()) > 0.85


@pytest.mark.case(5)
@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_every_split_of_a_run_gives_the_same(path, seeds):
    """Blocks cut anywhere, runs of any length, any task first, commits anywhere."""
    played(path, lambda case: RandomPace(Random(zlib.crc32(case["name"].encode()))), seeds)


@pytest.mark.case(10)
@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_no_split_shows_in_any_topic(path, seeds):
    """Nor in internal ones: each has the same records, and each changelog leaves the same content.

    A session that comes and goes between two commits is in no changelog; one that was committed is deleted there.
    """
    for case in cases_of(path, seeds):
        whole = BlockPlayer(case)
        whole.play()
        if whole.flow is None or whole.error or agreement(case, whole.flow, whole.parts) is not Agreement.EXACT:
            continue
        cut = BlockPlayer(case, RandomPace(Random(zlib.crc32(case["name"].encode()) + 1)))
        cut.play()
        assert _logs(cut) == _logs(whole), case["name"]


def _logs(player: BlockPlayer) -> dict[str, object]:
    return {topic: _content(rows) if topic.endswith("-changelog") else rows for topic, rows in player.logs.items()}


def _content(rows: Iterable[tuple[Any, ...]]) -> dict[bytes, tuple[Any, ...]]:
    """Return the last record of each key, where it is no deletion."""
    last = {row[0]: row for row in rows}
    return {key: row for key, row in last.items() if row[1] is not None}


@pytest.mark.slow
def test_what_blocks_would_reorder_gives_the_same_record_by_record(seeds):
    """Where several ways meet in one task: the same tasks and programs, a record at a time."""
    widths: Counter = Counter()
    failures = []
    for path in _FILES:
        for case in cases_of(path, seeds):
            if judged(case)[0] in (Agreement.MEETING, Agreement.CACHED) and not case["expected"].get("error"):
                width, why = judged_singly(case)
                widths[width > 1] += 1
                if why is not None:
                    failures.append(f"{case['name']}: {why}")

    assert widths[False]
    assert not failures, "\n".join(failures)


_SPLIT = [
    case
    for path in _FILES
    if path.name.startswith(("windows", "join_stream", "suppress", "aggregations"))
    for case in cases_of(path, 1)[::6]
]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(_SPLIT), st.randoms(use_true_random=False))
def test_any_split_that_can_be_thought_of(case, random):
    wanted, why = judged(case, RandomPace(random))

    assert why is None, f"{case['name']} ({wanted}): {why}"


def test_comparison_sees_a_difference():
    """A record too many is not overlooked."""
    case = cases_of(next(path for path in _FILES if path.name.startswith("stateless")), 1)[0]
    topic = next(iter(case["expected"]["outputs"]))
    case["expected"]["outputs"][topic].append(case["expected"]["outputs"][topic][-1])

    assert judged(case, OneBlock())[1] is not None
