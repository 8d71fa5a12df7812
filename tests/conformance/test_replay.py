"""The cases once more, as history that a replay reads.

Of the 1,076 cases of the reference that are no descriptions, history cannot express 18, for what they
have in them (``replay.why_not``): 10 move the wall clock, 8 look at it.  Another 18 are refused when
they are built.  All others are replayed whole, against a bounded live run over the same records: equal
record for record, with stores and drops, also in slices; and piece by piece, each going on from the
snapshot of the one before, against Kafka Streams' own answer.

Beyond that, slices cannot divide what is not in a store: what processors keep in themselves, and timers
that they schedule outside of ``init`` (``cannot_be_sliced``: 4 cases with those of a cache).  A record cache is flushed
at the end of each slice, so that of cached updates only the last of each key are the same.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from streams import StreamsError
from streams.replay.calls.failures import explained_failure
from streams.replay.run.local import LocalExecutor
from tests.conformance.agree import difference_of
from tests.conformance.cases import read_cases
from tests.conformance.play import play, settings_of
from tests.conformance.replay import ReplayPlayer, cannot_be_sliced, why_not
from tests.replay.outcomes import drive, lived, packed_run, quick_folder, replayed_outcome, result_of

_SHARED = Path(__file__).resolve().parents[3] / "shared" / "conformance"
_OWN = Path(__file__).with_name("cases")
FILES = sorted(
    path
    for path in (_SHARED if _SHARED.exists() else _OWN).glob("*.jsonl*")
    if not path.name.startswith(("describe", "partitioner"))
)
#: Of the generated cases and of the others one in so many, where not all of them are asked for.
_EVERY, _EVERY_NAMED = 80, 6


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
#: All files, the generated cases in parts, so that they can be run side by side: (file, number of the part, parts).
_PARTS = [
    (path, number, count)
    for path in FILES
    for count in [6 if path.name.startswith("generated") else 1]
    for number in range(count)
]
every_part = pytest.mark.parametrize("part", _PARTS, ids=lambda part: f"{part[0].name.partition('.')[0]}-{part[1]}")


def players(path: Path, folder: Path, every: int = 1, first: int = 0, **options) -> list[ReplayPlayer]:
    """Return players of each so many cases of a file, of those that history can express and that do not fail."""
    found = []
    for number, line in enumerate(read_cases(path)):
        case = json.loads(line.line)
        if number % every != first or case["expected"].get("error"):
            continue
        player = ReplayPlayer(case, folder / str(number), options=options).prepare()
        if player.topology is not None and why_not(case, player.topology) is None:
            found.append(player)
    return found


def sampled(path: Path, folder: Path, **options) -> list[ReplayPlayer]:
    return players(path, folder, _EVERY if path.name.startswith("generated") else _EVERY_NAMED, **options)


def compare_whole(chosen: Sequence[ReplayPlayer], executor, **options) -> None:
    """Replay the history of each case whole, all of them side by side, and compare with bounded live runs."""
    sessions = [(player, player.session(rows, **options)) for player in chosen if (rows := player.rows())]
    packed_run([session.steps() for _, session in sessions], executor)
    failures = []
    for player, session in sessions:
        _, settings = settings_of(player.case)
        live = lived(player.source, player.rows(), **settings)
        why = live.difference(replayed_outcome(result_of(session)))
        if why is not None:
            failures.append(f"{player.case['name']}: {why}")
    assert not failures, f"{len(failures)} cases differ:\n" + "\n".join(failures)


def compare_pieces(chosen: Sequence[ReplayPlayer], executor) -> Counter:
    """Replay each case a segment of its script at a time, and compare with Kafka Streams' answer."""
    packed_run([player.steps() for player in chosen], executor)
    failures = []
    for player in chosen:
        assert player.wanted is not None
        why = difference_of(player.case, player.observed, player.wanted)
        if why is not None:
            failures.append(f"{player.case['name']} ({player.wanted}): {why}")
    assert not failures, f"{len(failures)} cases differ:\n" + "\n".join(failures)
    return Counter(player.wanted for player in chosen)


def sliceable(chosen: Sequence[ReplayPlayer]) -> list[ReplayPlayer]:
    return [player for player in chosen if not cannot_be_sliced(player.case)]


@pytest.mark.slow
@every_file
def test_history_gives_what_a_bounded_run_gives(path, folder):
    compare_whole(sampled(path, folder), LocalExecutor(1))


@pytest.mark.case
@every_file
def test_history_in_slices_gives_what_a_bounded_run_gives(path, folder):
    compare_whole(sliceable(sampled(path, folder)), LocalExecutor(1), slices=4)


@pytest.mark.slow
@every_file
def test_history_in_pieces_gives_what_kafka_streams_gives(path, folder):
    compare_pieces(sampled(path, folder), LocalExecutor(1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("slices", [None, 4])
@every_part
def test_all_cases_as_history(part, slices, folder):
    path, number, count = part
    chosen = players(path, folder, count, number)
    compare_whole(sliceable(chosen) if slices else chosen, LocalExecutor(1), slices=slices)


@pytest.mark.exhaustive
@every_part
def test_all_cases_in_pieces(part, folder, monkeypatch):
    """With a call for each task, which small tasks would share otherwise."""
    monkeypatch.setattr("streams.replay.calls.schedule.TASK_CALL_ROWS", 0)
    path, number, count = part
    compare_pieces(players(path, folder, count, number), LocalExecutor(1))


@pytest.mark.slow
def test_case_that_fails_is_refused_with_the_same_words(folder):
    """The replay says what the test driver says of the record, the node and the cause."""
    count = 0
    for path in FILES:
        for number, line in enumerate(read_cases(path)):
            case = json.loads(line.line)
            if not case["expected"].get("error") or case["expected"]["error"]["phase"] == "build":
                continue
            player = ReplayPlayer(case, folder / path.name / str(number)).prepare()
            if player.topology is None or why_not(case, player.topology) is not None:
                continue
            count += 1
            message = play(case).message.partition(": ")[2]
            with pytest.raises(Exception) as raised:
                drive(player.steps())

            failure = explained_failure(player.current, raised.value)
            assert isinstance(failure, StreamsError), case["name"]
            assert message in str(failure), case["name"]
    assert count > 10


@pytest.mark.slow
def test_what_history_cannot_express(folder, capsys):
    """Counted, and shown with ``pytest -s``; each for what is in the case."""
    reasons: Counter = Counter()
    for path in FILES:
        for number, line in enumerate(read_cases(path)):
            case = json.loads(line.line)
            player = ReplayPlayer(case, folder / path.name / str(number)).prepare()
            if player.topology is None:
                reasons["refused when built, as it must be"] += 1
            else:
                reasons[why_not(case, player.topology) or "replayed"] += 1
                reasons["of these, not in slices"] += cannot_be_sliced(case)
    with capsys.disabled():
        print("\n" + "\n".join(f"{count:6,} cases: {reason}" for reason, count in reasons.most_common()))

    assert reasons["replayed"] / sum(reasons.values()) > 0.95
