"""What the tests of equality run: subjects with what a live run gave of them, and many sessions in one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from streams.core.blocks.partitioning import partition_for
from tests.conformance.cases import read_cases
from tests.conformance.play import settings_of
from tests.conformance.replay import ReplayPlayer
from tests.replay.corpus import PARTITIONS, Subject, example, example_names, written_subjects
from tests.replay.outcomes import Outcome, Row, archived, lived, packed_run, replayed_outcome, result_of, session_of

_CASES = Path(__file__).resolve().parents[1] / "conformance" / "cases"
#: Cases of every kind of operator by their files.
NAMED = {
    "aggregations": (
        "repartition_twice",
        "stream_reduce_concat",
        "stream_group_by_aggregate_list",
        "stream_count_table_sum",
    ),
    "cogroup": ("cogroup_repartition", "cogroup_sliding_grace", "cogroup_session_grace"),
    "combinations": ("combo_fk_count_join", "combo_global_session", "combo_window_table_join_left"),
    "errors": ("deserialization_table_continue", "error_in_process_continue", "error_continue_flat_map"),
    "generated": ("gen_00643", "gen_00094", "gen_00434"),
    "join_fk": ("join_fk_inner_views", "join_fk_left_versioned", "join_fk_fan_out_order"),
    "join_global": ("join_global_left_key",),
    "join_stream": ("join_stream_left_duplicates", "join_stream_outer_close_order", "join_stream_three"),
    "join_table": ("join_table_inner_rekey", "join_table_left_versioned_10"),
    "join_tables": ("join_tables_outer_group", "join_tables_inner_then_outer"),
    "papi": ("papi_store", "papi_pattern"),
    "processors": ("process_table_lookup", "punctuate_anchored_stream", "process_values_store"),
    "sources": ("ts_extractor_use_partition_time", "ts_extractor_table"),
    "stateless": ("merge_two", "to_topic_by_header"),
    "stores": ("versioned_store_history", "session_store_expiry_persistent"),
    "suppress": ("suppress_table_time_10_records_1", "suppress_close_sliding_grace", "suppress_tombstones"),
    "tables": ("table_versioned_100", "table_group_list"),
    "windows": ("emit_close_session_aggregate", "window_sliding_grace_aggregate"),
}


def named_cases(folder: Path) -> list[Subject]:
    """Return the cases, their pipes spread over partitions by their keys."""
    found = []
    for file, names in NAMED.items():
        for line in read_cases(_CASES / f"{file}.jsonl.gz"):
            if line.name in names:
                found.append(_spread(json.loads(line.line), folder / line.name))
    return found


def _spread(case: dict[str, Any], folder: Path) -> Subject:
    player = ReplayPlayer(case, folder).prepare()
    _, settings = settings_of(case)
    inputs = {
        topic: [row._replace(partition=_partition(row, number)) for number, row in enumerate(rows)]
        for topic, rows in player.rows().items()
    }
    return Subject(case["name"], player.source, inputs, settings)


def _partition(row: Row, number: int) -> int:
    return number % PARTITIONS if row.key is None else partition_for(row.key, PARTITIONS)


def examples(folder: Path) -> list[Subject]:
    """Return the examples, and what these do not show."""
    return [*(example(name, folder / name) for name in example_names()), *written_subjects()]


def lived_subject(subject: Subject, **settings: Any) -> Outcome:
    """Return what a bounded live run gives of a subject."""
    return lived(subject.topology, subject.inputs, partitions=PARTITIONS, **{**subject.settings, **settings})


@frozen
class Expected:
    """Subjects, and what a live run in one thread gave of each."""

    subjects: Sequence[Subject]
    outcomes: Sequence[Outcome]

    @classmethod
    def of(cls, subjects: Sequence[Subject]) -> "Expected":
        """Run all of them live."""
        return cls(subjects, [lived_subject(subject) for subject in subjects])

    def check_live(self, threads: int) -> None:
        """Run all of them live in so many threads."""
        self._check([lived_subject(subject, num_stream_threads=threads) for subject in self.subjects])

    def check_replay(self, executor: Any, folder: Path, *, files: bool = False, **options: Any) -> None:
        """Replay all of them side by side; ``files`` reads the files of those that have some, not archives."""
        sessions = []
        for subject in self.subjects:
            own = folder / subject.name
            inputs = subject.files if files and subject.files else self._archived(subject, own)
            own_options = {"partitions": PARTITIONS, **subject.settings, **options}
            sessions.append(session_of(subject.topology, inputs, own / "replay", **own_options))
        packed_run([session.steps() for session in sessions], executor)
        self._check([replayed_outcome(result_of(session)) for session in sessions])

    @staticmethod
    def _archived(subject: Subject, folder: Path) -> dict[str, Path]:
        return archived(folder / "archives", subject.inputs, dict.fromkeys(subject.inputs, PARTITIONS))

    def _check(self, found: Sequence[Outcome]) -> None:
        failures = []
        for subject, one, two in zip(self.subjects, self.outcomes, found, strict=True):
            why = one.difference(two)
            if why is not None:
                failures.append(f"{subject.name}: {why[:600]}")
        assert not failures, f"{len(failures)} differ:\n" + "\n".join(failures)
