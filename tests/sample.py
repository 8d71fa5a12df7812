"""What `make test` runs of all tests: one of each kind.  The rest runs with `make test-all`.

A test is left to `make test-all` where it shows more of what another one shows, at a price of seconds: the same
rule with more partitions, seeds, engines, guarantees or ways into Spark.  Each entry says what that is, which tests
it means, by the pattern of their ids, and which of these stay in the sample.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from attrs import frozen


@frozen
class Rest:
    """Tests that are left to `make test-all`; ``one_in`` keeps one of so many, in the order of collection."""

    what: str
    pattern: str
    keep: tuple[str, ...] = ()
    one_in: int = 0

    def chosen(self, ids: Iterable[str]) -> list[str]:
        """Return the ids of those that are left out."""
        found = [test_id for test_id in ids if _is_like(test_id, self.pattern)]
        found = [test_id for test_id in found if not any(_is_like(test_id, keep) for keep in self.keep)]
        return [test_id for number, test_id in enumerate(found) if not self.one_in or number % self.one_in]


#: Tests that one worker runs one after the other, for what they share takes seconds to make: by name, patterns of ids.
GROUPS = {
    "spark": (
        "tests/replay/test_spark*",
        "tests/replay/test_equality_spark.py::*",
        "tests/replay/test_inputs.py::*through_spark*",
        "tests/replay/test_inputs.py::*[connect]",
        "tests/replay/test_inputs.py::*[classic]",
        "tests/replay/test_sessions.py::*on_spark*",
    ),
    "tidy": ("tests/test_tidy.py::*",),
    "nexmark": ("tests/examples/test_nexmark.py::*all_queries*",),
}


def group_of(test_id: str) -> str:
    """Return the name of a test's group; a test without one is a group of its own."""
    return next((name for name, likes in GROUPS.items() if any(_is_like(test_id, like) for like in likes)), test_id)


def left_out(ids: Iterable[str]) -> dict[str, str]:
    """Return what is left to `make test-all`: the ids, each with what it is one of."""
    ids = list(ids)
    return {test_id: rest.what for rest in REST for test_id in rest.chosen(ids)}


def _is_like(test_id: str, pattern: str) -> bool:
    # Brackets stand for themselves, as in the ids.
    return fnmatchcase(test_id.replace("[", "("), pattern.replace("[", "("))


SPARK = "replays on Spark"
REPLAY = "replays in slices, in pieces and resumed"
WORLDS = "simulated worlds"
CASES = "cases of the reference in blocks, live and as history"
KILLED = "processes killed again and again"
EXAMPLES = "examples with more queries, partitions and data"
PROPERTIES = "properties on generated topologies, stores and logs"
WIRE = "messages of the protocol"
SCALE = "groups of thousands"
COST = "costs in bytecodes"
LETTERS = "dead letters and resets from the command line"
CAPSULES = "spans of a live run, reproduced"
STORIES = "stories of traced records"

REST = (
    Rest("exit statuses of streams run", "tests/cli/test_statuses.py::*", keep=("*(3-*",)),
    Rest("ways to run a service", "tests/runtime/test_systemd.py::*[streams run]"),
    Rest(SPARK, "tests/replay/test_equality_spark.py::*"),
    Rest(
        SPARK,
        "tests/replay/test_spark.py::*",
        keep=("*equals_the_live_run[classic]", "*equals_the_live_run[connect]", "*names_node_file_and_row*[classic]"),
    ),
    Rest(SPARK, "tests/replay/test_spark_masters.py::*"),
    Rest(
        SPARK,
        "tests/replay/test_spark_failures.py::*",
    ),
    Rest(SPARK, "tests/replay/test_spark_session.py::*", keep=("*listens_on_loopback_only", "*without_*")),
    Rest(SPARK, "tests/replay/test_inputs.py::*through_spark*", keep=("*same_records[classic]",)),
    Rest(SPARK, "tests/replay/test_sessions.py::*on_spark*"),
    Rest(REPLAY, "tests/replay/test_equality.py::*ten_slices*"),
    Rest(REPLAY, "tests/replay/test_equality.py::*_process*", keep=("*one_process[shown-3]",)),
    Rest(REPLAY, "tests/replay/test_equality.py::*more_threads*", keep=("*shown-2*",)),
    Rest(REPLAY, "tests/replay/test_resume.py::*archives_that_grow*", keep=("*[chosen_topics]",)),
    Rest(REPLAY, "tests/replay/test_structs.py::*is_elsewhere*", keep=("*[methods_and_inheritance]",)),
    Rest(REPLAY, "tests/replay/test_resume.py::*killed_at_any_call*", keep=("*[True-None]", "*[False-None]")),
    Rest(REPLAY, "tests/properties/test_replay.py::*", one_in=3),
    Rest(
        WORLDS,
        "tests/testing/simulation/test_*.py::*bears_a_storm*",
        keep=("*[word-count-exactly_once_v2-range(0,-50)]",),
    ),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*may_depend_on*", keep=("*_is_*",)),
    Rest(
        CASES, "tests/conformance/test_blocks.py::test_no_split_shows_in_any_topic*", keep=("*[windows]", "*[tables]")
    ),
    Rest(WORLDS, "tests/testing/simulation/test_*.py::*deliberate_bug_is_found*", one_in=6),
    Rest(WORLDS, "tests/testing/simulation/test_*.py::*decides_everything_in_any_process*"),
    Rest(CASES, "tests/conformance/test_blocks.py::test_nearly_all_cases_agree_in_everything"),
    Rest(CASES, "tests/conformance/test_blocks.py::test_what_blocks_would_reorder*"),
    Rest(CASES, "tests/conformance/test_blocks.py::*[generated]"),
    Rest(CASES, "tests/conformance/test_blocks.py::test_any_split_that_can_be_thought_of"),
    Rest(CASES, "tests/conformance/test_live.py::*", keep=("*[aggregations]", "*[join_*", "*[windows]", "*[suppress]")),
    Rest(CASES, "tests/conformance/test_replay.py::test_all_cases*"),
    Rest(CASES, "tests/conformance/test_replay.py::test_history_gives*", keep=("*[windows]", "*[join_stream]")),
    Rest(CASES, "tests/conformance/test_replay.py::test_history_in_slices*", keep=("*[windows]", "*[aggregations]")),
    Rest(CASES, "tests/conformance/test_replay.py::test_history_in_pieces*", keep=("*[tables]", "*[join_fk]")),
    Rest(CASES, "tests/conformance/test_replay.py::*same*"),
    Rest(CASES, "tests/conformance/test_replay.py::test_what_history_cannot_express"),
    Rest(KILLED, "tests/runtime/test_crashes.py::*"),
    Rest(KILLED, "tests/replay/test_golive.py::*killed_before_each_step*"),
    Rest(KILLED, "tests/replay/test_archive.py::*is_killed*"),
    Rest(KILLED, "tests/replay/test_publish.py::*processes_that_end*"),
    Rest(KILLED, "tests/replay/test_publish.py::*killed_at_any_request*", keep=("*[before]",)),
    Rest(KILLED, "tests/kafka/test_streams.py::*killed_process*"),
    Rest(KILLED, "tests/kafka/test_streams.py::*of_three_processes*"),
    Rest(KILLED, "tests/kafka/test_workers.py::*is_killed*"),
    Rest(KILLED, "tests/kafka/test_queries.py::*is_killed*"),
    Rest(KILLED, "tests/broker/test_disk.py::*killed_again*", keep=("*[commit]",)),
    Rest(KILLED, "tests/cli/test_workers.py::*broker_is_away*"),
    Rest(EXAMPLES, "tests/examples/test_nexmark.py::*all_queries*"),
    Rest(EXAMPLES, "tests/examples/test_nexmark.py::*each_query_by_itself*", keep=("*q4*",)),
    Rest(EXAMPLES, "tests/examples/test_replay.py::*", keep=("*test_counts_go_on*",)),
    Rest(EXAMPLES, "tests/examples/test_scripts.py::test_nexmark*"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[replay]"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[simulation]"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[why]"),
    Rest(EXAMPLES, "tests/cli/test_why.py::*", keep=("*requests: late*", "*did you mean 'pages'*")),
    Rest(EXAMPLES, "tests/examples/test_weather.py::*no_pair*", keep=("*synthetic-7-10]",)),
    Rest(EXAMPLES, "tests/dsl/test_typing.py::*pyright*"),
    Rest(PROPERTIES, "tests/properties/test_restore.py::*", keep=("*that_was_stopped*",)),
    Rest(PROPERTIES, "tests/properties/test_determinism.py::*polls_threads*"),
    Rest(PROPERTIES, "tests/properties/test_engines.py::*"),
    Rest(PROPERTIES, "tests/properties/test_caches.py::*"),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*cycle_through*", keep=("*[1-counted_down-words]",)),
    Rest(PROPERTIES, "tests/state/test_carried.py::*", one_in=4),
    Rest(PROPERTIES, "tests/state/test_carried.py::*kv of pinned types*"),
    Rest(PROPERTIES, "tests/broker/test_maintenance.py::*between_two_steps*", keep=("*[file]",)),
    Rest(PROPERTIES, "tests/state/test_views_against_models.py::*", one_in=3),
    Rest(PROPERTIES, "tests/core/test_serdes.py::*canonical_json_does_not_depend*"),
    Rest(LETTERS, "tests/cli/test_dlq.py::*", keep=("*listed_by_reason*", "*pass_a_new_version*")),
    Rest(LETTERS, "tests/cli/test_reset.py::*", keep=("*everything_again", "*changes_nothing")),
    Rest(LETTERS, "tests/clients/test_dead_letters.py::*killed_before_any_step*"),
    Rest(CAPSULES, "tests/capsule/test_reproduced.py::*of_three_threads*", keep=("*[smooth-exactly_once_v2]",)),
    Rest(CAPSULES, "tests/capsule/test_reproduced.py::*within_a_run*"),
    Rest(STORIES, "tests/why/test_replayed.py::*", keep=("*leads_through*[3]",)),
    Rest(STORIES, "tests/properties/test_tracing.py::*", keep=("*keep_the_same",)),
    Rest(COST, "tests/bench/test_bytecodes.py::*", keep=("*stateless*",)),
    Rest(SCALE, "tests/group/test_scale.py::*ten_thousand*", keep=("*-1000]",)),
    Rest(SCALE, "tests/group/test_scale.py::*thousand_consumers*", keep=("*[RangeAssignor]",)),
    Rest(WIRE, "tests/protocol/wire/test_oracle.py::*", one_in=8),
    Rest(WIRE, "tests/protocol/wire/test_codec.py::*", one_in=8),
    Rest(WIRE, "tests/protocol/wire/test_derived.py::*read_and_written_again*", one_in=4),
)
