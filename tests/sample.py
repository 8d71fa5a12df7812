"""What `make test` runs of all tests: one of each kind.  The rest runs with `make test-all`.

A test is left to `make test-all` where it shows more of what another one shows, at a price of seconds: the same
rule with more partitions, seeds, engines, guarantees or ways into Spark.  Each entry says what that is, which tests
it means, by the pattern of their ids, and which of these stay in the sample.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import cache

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

    def kept(self, ids: Iterable[str], keep: str) -> list[str]:
        """Return the ids that one pattern of ``keep`` keeps."""
        return [test_id for test_id in ids if _is_like(test_id, self.pattern) and _is_like(test_id, keep)]


#: Tests that one worker runs one after the other, for what they share takes seconds to make: by name, patterns of ids.
GROUPS = {
    "spark": (
        "tests/replay/test_spark*",
        "tests/replay/test_equality_spark.py::*",
        "tests/replay/test_inputs.py::*through_spark*",
        "tests/replay/test_inputs.py::*[connect]",
        "tests/replay/test_inputs.py::*[classic]",
        "tests/replay/test_sessions.py::*on_spark*",
        "tests/replay/test_table_inputs.py::*",
        "tests/replay/test_order.py::*spark*",
        "tests/replay/test_explain.py::*spark*",
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


@cache
def _matcher(pattern: str) -> Callable[[str], object]:
    # Brackets stand for themselves, as in the ids.
    return re.compile(translate(pattern.replace("[", "[[]"))).match


def _is_like(test_id: str, pattern: str) -> bool:
    return _matcher(pattern)(test_id) is not None


SPARK = "replays on Spark"
REPLAY = "replays in slices, in pieces and resumed"
WORLDS = "simulated worlds"
CASES = "cases of the reference in blocks, live and as history"
KILLED = "processes killed again and again"
EXAMPLES = "examples with more queries, partitions and data"
PROPERTIES = "properties on generated topologies, stores and logs"
WIRE = "messages of the protocol"
SCALE = "groups of thousands"
SINKS = "sinks that are killed at every step, and every sink into a lake"
COST = "costs in bytecodes"
LETTERS = "dead letters and resets from the command line"
CAPSULES = "spans of a live run, reproduced"
STORIES = "stories of traced records"
FLOODS = "floods of requests"

REST = (
    Rest("connectors with real databases", "tests/connect/test_command.py::*", keep=("*what_is_wrong_in_a_file*",)),
    Rest("connectors with real databases", "tests/connect/test_postgres_source.py::*", one_in=5),
    Rest("rows of late transactions", "tests/connect/test_postgres_polling_source.py::*", keep=("*late_is_*[id]",)),
    Rest("files that grow and appear", "tests/connect/test_file_sources.py::*", one_in=5),
    Rest("sources over HTTP", "tests/connect/test_webhook_source.py::*", keep=("*by_another_worker", "*may_send")),
    Rest("sources over HTTP", "tests/connect/test_http_source.py::*", keep=("*it_changes[ETag]",)),
    Rest("migrations of values", "tests/runtime/test_migrations.py::*", one_in=3),
    Rest("formats in more places", "tests/formats/test_everywhere.py::*in_a_replay*"),
    Rest("formats in more places", "tests/formats/test_everywhere.py::*simulation*"),
    Rest("formats in more places", "tests/formats/test_everywhere.py::*versions_are_compared*"),
    Rest("ends of processes", "tests/web/test_front.py::*of_the_application_is_killed"),
    Rest(
        "live runs in step: more threads, instances and guarantees",
        "tests/runtime/test_in_step.py::*gives_what_a_file_gives*",
        keep=("*[1-1-at least once]", "*[1-2-exactly once]", "*[1-4-at least once]"),
    ),
    Rest("queries of other instances", "tests/web/test_relay.py::*no_instance*", keep=("*responses1*",)),
    Rest(KILLED, "tests/cli/test_workers.py::test_workers_share_the_work*"),
    Rest(KILLED, "tests/cli/test_configuration.py::*list_of_processes*"),
    Rest("renewal of tokens", "tests/clients/tcp/test_oauth.py::*is_renewed_before*"),
    Rest("keys that cannot be opened", "tests/clients/tcp/test_mutual_tls.py::*cannot_be_opened*", one_in=3),
    Rest("commands on a broker's folder", "tests/cli/test_workers.py::*[folder]"),
    Rest(
        "versions that differ in more ways",
        "tests/cli/test_diff.py::*",
        keep=(
            "*nothing_differs",
            "*for_programs",
            "*take_over_alone*",
            "*mistakes*",
            "*runs_twice",
            "*inserted_filter*",
        ),
    ),
    Rest("limits of late records", "tests/cli/test_late.py::*of_their_own[replay]"),
    Rest("limits of late records", "tests/cli/test_late.py::*counts_for_each_window*"),
    Rest("inputs of streams run", "tests/cli/test_run.py::*one_file_by_name[days]"),
    Rest("inputs of streams run", "tests/cli/test_run.py::*spread_over_all_partitions*", keep=("*[4]",)),
    Rest("exit statuses of streams run", "tests/cli/test_statuses.py::*", keep=("*[3-*",)),
    Rest("projects under their type check", "tests/cli/test_new.py::*type_check"),
    Rest(KILLED, "tests/cli/test_broker.py::*killed_anywhere*"),
    Rest(CAPSULES, "tests/capsule/test_stepping.py::*from_behind"),
    Rest(CAPSULES, "tests/cli/test_capture.py::*that_was_killed*"),
    Rest(CAPSULES, "tests/capsule/test_simulated.py::*", keep=("*[0-at_least_once]",)),
    Rest("streams top in more terminals", "tests/cli/test_top.py::*", keep=("*printed*", "*text_only*", "*until_q")),
    Rest("ways to run a service", "tests/runtime/test_systemd.py::*[streams run]"),
    Rest("ways to run a service", "tests/cli/test_worker_notices.py::*the_main_process*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::test_idle_windows*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*leave_nothing_behind"),
    Rest(STORIES, "tests/why/test_calls.py::*whole_batch*"),
    Rest(STORIES, "tests/why/test_calls.py::*replay_forwards_together*"),
    Rest(KILLED, "tests/cli/test_workers.py::*end_with_the_process*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*each_snapshot_of_a_replay*"),
    Rest(REPLAY, "tests/replay/test_handlers.py::*beside_the_script*"),
    Rest(REPLAY, "tests/replay/test_golive.py::*broker_that_has_its_topics"),
    Rest(REPLAY, "tests/runtime/test_checkpoint_bounded.py::*[3-in_memory]"),
    Rest(REPLAY, "tests/replay/test_daily.py::*older_global_table*"),
    Rest(REPLAY, "tests/replay/test_order.py::*next_day_continues*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::test_standby_replicas*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::test_members_of_a_streams_group*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::test_many_members_of_streams_groups*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*keeps_its_state_in_an_attribute*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*nothing_happens_prove_nothing"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*depend_on_the_order_of_arrival_fail*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*in_a_few_worlds[at_least_once]"),
    Rest(WORLDS, "tests/state/test_own_kind.py::*after_crashes*"),
    Rest(WORLDS, "tests/state/test_headed.py::*driver_application_simulation*"),
    Rest("idle inputs of live runs", "tests/runtime/test_idle_live.py::*"),
    Rest(
        "look-ups with more guarantees", "tests/dsl_operators/test_look_up.py::*survive_a_restart*", keep=("*[exac*",)
    ),
    Rest("services that fail", "tests/lookup/test_enrichment.py::*"),
    Rest("look-ups with more partitions", "tests/dsl_operators/test_look_up.py::*slices_agree*", keep=("*[3]",)),
    Rest(
        "async calls with more orders", "tests/dsl_operators/test_asynchronous.py::*after_a_restart*", keep=("*[key]",)
    ),
    Rest("async calls with more partitions", "tests/dsl_operators/test_asynchronous.py::*slices_agree*"),
    Rest(SPARK, "tests/replay/test_equality_spark.py::*"),
    Rest(
        SPARK,
        "tests/replay/test_spark.py::*",
        keep=("*equals_the_live_run[classic]", "*equals_the_live_run[connect]"),
    ),
    Rest(SPARK, "tests/replay/test_spark_masters.py::*"),
    Rest(SPARK, "tests/replay/test_spark_cluster.py::*"),
    Rest(REPLAY, "tests/replay/test_s3.py::*"),
    Rest(SPARK, "tests/replay/test_explain.py::*tables_of_spark*"),
    Rest(EXAMPLES, "tests/examples/test_airflow.py::*each_night*"),
    Rest(SPARK, "tests/replay/test_spark_tables.py::*", keep=("*are_refused",)),
    Rest("outputs that are folders", "tests/cli/test_replay.py::*folder_is_partitioned*"),
    Rest(
        SPARK,
        "tests/replay/test_spark_failures.py::*",
    ),
    Rest(SPARK, "tests/replay/test_spark_session.py::*", keep=("*listens_on_loopback_only", "*without_*")),
    Rest(SPARK, "tests/replay/test_inputs.py::*through_spark*"),
    Rest(SPARK, "tests/replay/test_sessions.py::*on_spark*"),
    Rest(SPARK, "tests/replay/test_table_inputs.py::*", keep=("*in_order_gives[classic]",)),
    Rest(SPARK, "tests/replay/test_order.py::*spark*"),
    Rest(REPLAY, "tests/replay/test_order.py::*ordered_one_gives*"),
    Rest(REPLAY, "tests/replay/test_equality.py::*ten_slices*"),
    Rest(REPLAY, "tests/replay/test_equality.py::*subjects_have*"),
    Rest(REPLAY, "tests/replay/test_equality.py::test_replay_of_files"),
    Rest(REPLAY, "tests/replay/test_slices.py::*neighbouring*"),
    Rest(REPLAY, "tests/replay/test_slices.py::*costs_the_driver*"),
    Rest(REPLAY, "tests/replay/test_slices.py::*only_needed_files*"),
    Rest(REPLAY, "tests/replay/test_resume.py::*is_not_done_again"),
    Rest(REPLAY, "tests/replay/test_publish.py::*killed_at_any_request*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*another_order*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*end_with_records*"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::test_page[connectors]"),
    Rest(REPLAY, "tests/replay/test_wall_clock.py::*", one_in=3),
    Rest(REPLAY, "tests/replay/test_cutover.py::*", one_in=3),
    Rest(REPLAY, "tests/replay/test_golive.py::*", one_in=3),
    Rest("kinds of tables", "tests/replay/test_arrow_inputs.py::*rows_in_order_gives*", keep=("*[polars]",)),
    Rest("differences of versions", "tests/comparison/test_compare.py::*", one_in=4),
    Rest("takeovers from Java", "tests/cli/test_takeover.py::*", keep=("*status_0", "*missing*")),
    Rest("takeovers from Java", "tests/takeover/test_examination.py::*", one_in=3),
    Rest("waits of clients over TCP", "tests/kafka/test_clients.py::*unknown_topic*", keep=("*[embedded]",)),
    Rest("waits of clients over TCP", "tests/kafka/test_clients.py::*widened_and_deleted*", keep=("*[embedded]",)),
    Rest("waits of clients over TCP", "tests/kafka/test_streams.py::*told_and_not_made*"),
    Rest("waits of clients over TCP", "tests/clients/test_asyncio.py::*in_the_task_that_awaits[tcp]"),
    Rest("waits of clients over TCP", "tests/clients/test_asyncio.py::*waits_for_room"),
    Rest("waits of clients over TCP", "tests/clients/tcp/test_security.py::*is_renewed*"),
    Rest("groups of other libraries", "tests/wire/test_kafka_python.py::*shares_partitions"),
    Rest("groups of other libraries", "tests/wire/test_confluent.py::*consumer_group_shares*"),
    Rest("groups of other libraries", "tests/connect/test_sink_worker.py::*one_takes_over"),
    Rest(REPLAY, "tests/replay/test_changes.py::*"),
    Rest(REPLAY, "tests/replay/test_daily.py::*any_nights*"),
    Rest(REPLAY, "tests/replay/test_daily.py::*gives_what_one_replay_over_all_gives*"),
    Rest(REPLAY, "tests/replay/test_daily.py::*killed_at_any_call*"),
    Rest(REPLAY, "tests/replay/test_ingest.py::*any_cut*"),
    Rest(REPLAY, "tests/replay/test_structs.py::*name_itself"),
    Rest(REPLAY, "tests/replay/test_sessions.py::*fourth_live*", keep=("*[None]",)),
    Rest(REPLAY, "tests/replay/test_resume.py::*rest_of_history*", keep=("*[windows]",)),
    Rest(REPLAY, "tests/replay/test_resume.py::*manifest_of_a_slice"),
    Rest(REPLAY, "tests/replay/test_publish.py::*are_corrected_on*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*records_of_others*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*after_any_nights*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*become_one_at_a_border*"),
    Rest(REPLAY, "tests/replay/test_publish.py::*after_all_snapshots*"),
    Rest(REPLAY, "tests/replay/test_late.py::*in_slices_too"),
    Rest(REPLAY, "tests/replay/test_handlers.py::*simulated_worlds*"),
    Rest(REPLAY, "tests/dsl_operators/test_batches.py::*replay_and_simulation*"),
    Rest(REPLAY, "tests/replay/test_daily.py::*without_a_kept_state*"),
    Rest(REPLAY, "tests/replay/test_slices.py::*without_rows*", keep=("*[2-10]",)),
    Rest(
        "tables of outputs",
        "tests/replay/test_tables.py::*",
        keep=("*types_of_a_lake", "*leaves_no_row_twice[resumed-3]"),
    ),
    Rest(
        "tables of lakes in both formats",
        "tests/replay/test_lake_tables.py::*[delta*",
        keep=("*row_of_the_output_once[delta-plain]",),
    ),
    Rest(
        "tables of lakes in both formats",
        "tests/replay/test_lake_tables.py::*[iceberg*",
        keep=("*[iceberg-first call]", "*are_refused*", "*an_error*"),
    ),
    Rest(REPLAY, "tests/replay/test_equality.py::*_process*"),
    Rest(REPLAY, "tests/replay/test_equality.py::*more_threads*"),
    Rest(REPLAY, "tests/replay/test_resume.py::*that_grow*"),
    Rest(REPLAY, "tests/replay/test_resume.py::*between_two_slices*", keep=("*[3-3-3]",)),
    Rest(REPLAY, "tests/replay/test_resume.py::*manifests_of_a_group*"),
    Rest(REPLAY, "tests/replay/test_structs.py::*is_elsewhere*", keep=("*[methods_and_inheritance]",)),
    Rest(REPLAY, "tests/replay/test_resume.py::*killed_at_any_call*", keep=("*[True-None-1]",)),
    Rest(REPLAY, "tests/properties/test_replay.py::*", keep=("*killed_replay*",)),
    Rest(REPLAY, "tests/conformance/test_own.py::*as_history*"),
    Rest(WORLDS, "tests/testing/simulation/test_*.py::*bears_a_storm*"),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*may_depend_on*", keep=("*_is_*",)),
    Rest(
        WORLDS, "tests/testing/simulation/test_consumers.py::*is_stable_after_a_storm*", keep=("*[0]", "*[1]", "*[2]")
    ),
    Rest(WORLDS, "tests/testing/simulation/test_consumers.py::*have_everything"),
    Rest(
        CASES, "tests/conformance/test_blocks.py::test_no_split_shows_in_any_topic*", keep=("*[windows]", "*[tables]")
    ),
    Rest(WORLDS, "tests/testing/simulation/test_simulation.py::*repeated_after_a_crash*"),
    # One of the group, of the consumer, and of a commit.
    Rest(
        WORLDS,
        "tests/testing/simulation/test_*.py::*deliberate_bug_is_found*",
        keep=(
            "*[commits_of_anybody]",
            "*[lost_fetch_moves_the_position]",
            "*[state_before_commit]",
        ),
    ),
    Rest(WORLDS, "tests/testing/simulation/test_*.py::*decides_everything_in_any_process*"),
    Rest(WORLDS, "tests/testing/simulation/test_combined.py::*exact_in_a_storm*", keep=("*[3]",)),
    Rest(WORLDS, "tests/testing/simulation/test_combined.py::*bug_of_one_operator*"),
    Rest(CASES, "tests/conformance/test_blocks.py::test_nearly_all_cases_agree_in_everything"),
    Rest(CASES, "tests/conformance/test_blocks.py::test_what_blocks_would_reorder*"),
    Rest(CASES, "tests/conformance/test_blocks.py::*[generated]"),
    Rest(CASES, "tests/conformance/test_blocks.py::test_any_split_that_can_be_thought_of"),
    Rest(CASES, "tests/conformance/test_live.py::*", keep=("*[aggregations]", "*[join_stream]", "*[suppress]")),
    Rest(CASES, "tests/conformance/test_own.py::*on_the_embedded_broker*", keep=("*[asof]", "*[async]", "*[early]")),
    Rest(CASES, "tests/conformance/test_replay.py::test_all_cases*"),
    Rest(CASES, "tests/conformance/test_replay.py::test_history_gives*", keep=("*[join_table]",)),
    Rest(CASES, "tests/conformance/test_replay.py::test_history_in_slices*", keep=("*[cogroup]",)),
    Rest(CASES, "tests/conformance/test_replay.py::test_history_in_pieces*", keep=("*[join_tables]",)),
    Rest(CASES, "tests/conformance/test_replay.py::*same*"),
    Rest(CASES, "tests/conformance/test_replay.py::test_what_history_cannot_express"),
    Rest("losses with more guarantees", "tests/runtime/test_losses.py::*ends_before_the_last*", keep=("*[0-at_l*",)),
    Rest("losses with more guarantees", "tests/runtime/test_losses.py::*[at_least_once]"),
    Rest("refused stores", "tests/runtime/test_layout_changes.py::*of_another_meaning*", one_in=4),
    Rest("threads that start and end", "tests/runtime/test_states.py::*all_tasks_are_open[1]"),
    Rest("threads that start and end", "tests/runtime/test_states.py::*several_threads_end*"),
    Rest("threads that start and end", "tests/runtime/test_queries.py::*before_the_first_assignment*"),
    Rest("standbys over TCP", "tests/kafka/test_streams.py::*standby_takes_over*"),
    Rest(KILLED, "tests/runtime/test_crashes.py::*"),
    Rest(KILLED, "tests/replay/test_golive.py::*killed_before_each_step*"),
    Rest(KILLED, "tests/replay/test_archive.py::*is_killed*"),
    Rest(KILLED, "tests/replay/test_publish.py::*processes_that_end*"),
    Rest(KILLED, "tests/kafka/test_streams.py::*killed_process*"),
    Rest(KILLED, "tests/kafka/test_streams.py::*of_three_processes*"),
    Rest(KILLED, "tests/kafka/test_workers.py::*is_killed*"),
    Rest(KILLED, "tests/kafka/test_queries.py::*is_killed*"),
    Rest(KILLED, "tests/broker/test_disk.py::*killed_again*", keep=("*[commit]",)),
    Rest(KILLED, "tests/cli/test_workers.py::*broker_is_away*"),
    Rest(KILLED, "tests/examples/test_web_service.py::*"),
    Rest(KILLED, "tests/cli/test_workers.py::*that_fails_ends_the_run*"),
    Rest("commands on a cluster", "tests/cli/test_workers.py::*told_once"),
    Rest("commands on a cluster", "tests/cli/test_workers.py::*mistakes_are_said*"),
    Rest(EXAMPLES, "tests/test_installation.py::*[mypy]"),
    Rest(EXAMPLES, "tests/examples/test_notebook.py::*"),
    Rest(EXAMPLES, "tests/testing/test_pytest_plugin.py::*", keep=("*which_records_and_why", "*does_not_import*")),
    Rest(EXAMPLES, "tests/examples/test_nexmark.py::*all_queries*"),
    Rest(EXAMPLES, "tests/examples/test_nexmark.py::*each_query_by_itself*", keep=("*q4*",)),
    Rest(EXAMPLES, "tests/examples/test_replay.py::*", keep=("*test_counts_go_on*",)),
    Rest(EXAMPLES, "tests/examples/test_scripts.py::test_nexmark*"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[replay]"),
    Rest(
        "commands of pages with other partitions",
        "tests/examples/test_guide.py::test_commands*",
        keep=("*[getting-started]", "*[operating]"),
    ),
    Rest("commands that run on", "tests/examples/test_guide.py::test_page[README]"),
    Rest("commands that run on", "tests/examples/test_guide.py::test_page[kafka]"),
    Rest("commands that run on", "tests/examples/test_guide.py::test_page[live-page]"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[simulation]"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[why]"),
    Rest(EXAMPLES, "tests/examples/test_guide.py::*[tutorial]"),
    Rest(EXAMPLES, "tests/cli/test_why.py::*", keep=("*requests: late*", "*did you mean 'pages'*")),
    Rest(EXAMPLES, "tests/examples/test_weather.py::*no_pair*", keep=("*synthetic-7-10]",)),
    Rest(EXAMPLES, "tests/examples/test_weather.py::*polled_at_once*"),
    Rest(EXAMPLES, "tests/examples/test_*.py::*equal_those*[synthetic-*", keep=("*synthetic-4]",)),
    Rest(EXAMPLES, "tests/examples/test_sessions.py::*do_not_depend_on*"),
    Rest(EXAMPLES, "tests/examples/test_sessions.py::*lies_in_all_partitions*", keep=("*[synthetic-4]",)),
    Rest(EXAMPLES, "tests/dsl/test_typing.py::*pyright*"),
    Rest(EXAMPLES, "tests/dsl/test_typing.py::*settings_negative*"),
    Rest(EXAMPLES, "tests/dsl/test_typing.py::*is_clean*"),
    Rest(EXAMPLES, "tests/runtime/test_processor_wrapper.py::*in_a_bounded_run_a_replay*"),
    Rest("kinds of files and cuts of them", "tests/replay/test_ingest.py::*every_kind_of_file*", one_in=4),
    Rest("functions that nobody would run", "tests/test_user_functions.py::*is_refused_where*", one_in=6),
    Rest(PROPERTIES, "tests/properties/test_restore.py::*"),
    Rest(PROPERTIES, "tests/properties/test_determinism.py::*"),
    Rest(PROPERTIES, "tests/files/test_json_columns.py::*as_their_rows*"),
    Rest(PROPERTIES, "tests/topology/test_inliner.py::*that_their_functions_give_alone"),
    Rest(PROPERTIES, "tests/properties/test_drivers.py::*calls_and_batches*"),
    Rest(PROPERTIES, "tests/properties/test_drivers.py::*different_times*"),
    Rest(PROPERTIES, "tests/properties/test_drivers.py::*idle_inputs*"),
    Rest(PROPERTIES, "tests/properties/test_chains.py::*"),
    Rest(PROPERTIES, "tests/properties/test_partitions.py::*bounded_run_ends*"),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*between_any_parts*"),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*finds_all_pairs"),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*several_tasks_have*"),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*threads_and_polls*", keep=("*[rekeyed-5]",)),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*chosen_for_records*"),
    Rest(PROPERTIES, "tests/properties/test_engines.py::*"),
    Rest(PROPERTIES, "tests/properties/test_models.py::*", keep=("*windows_hold*", "*tables_end*")),
    Rest(PROPERTIES, "tests/properties/test_caches.py::*"),
    Rest(PROPERTIES, "tests/runtime/test_lanes.py::*cycle_through*"),
    Rest(PROPERTIES, "tests/replay/test_ingest.py::*grown_and_added_files*"),
    Rest(PROPERTIES, "tests/state/test_expiry.py::*however_much_is_alive[sessions-rocksdb-*]"),
    Rest(
        PROPERTIES,
        "tests/runtime/test_lanes.py::*written_and_read_loses_nothing*",
        keep=("*[with a file-2]",),
    ),
    Rest(PROPERTIES, "tests/state/test_carried.py::*", one_in=6),
    Rest(PROPERTIES, "tests/state/test_headed.py::*what_is_written_is_read*"),
    Rest(PROPERTIES, "tests/state/test_carried.py::*kv of pinned types*"),
    Rest(PROPERTIES, "tests/broker/test_maintenance.py::*between_two_steps*", keep=("*[file]",)),
    Rest(PROPERTIES, "tests/broker/test_fetch_sessions.py::*knows_all_ends*"),
    Rest(PROPERTIES, "tests/properties/test_asof.py::*"),
    Rest(PROPERTIES, "tests/state/test_expiring.py::*[rocksdb]"),
    Rest(PROPERTIES, "tests/state/test_views_against_models.py::*", one_in=5),
    Rest(PROPERTIES, "tests/testing/test_generated.py::*", keep=("*Everything*", "*formats_and*", "*remedy")),
    Rest(PROPERTIES, "tests/core/test_serdes.py::*canonical_json_does_not_depend*"),
    Rest(LETTERS, "tests/cli/test_dlq.py::*", keep=("*listed_by_reason*", "*pass_a_new_version*")),
    Rest(LETTERS, "tests/cli/test_reset.py::*", keep=("*everything_again", "*changes_nothing")),
    Rest(LETTERS, "tests/kafka/test_reset_from_snapshot.py::*"),
    Rest(LETTERS, "tests/clients/test_dead_letters.py::*killed_before_any_step*"),
    Rest(CAPSULES, "tests/capsule/test_reproduced.py::*of_three_threads*", keep=("*[smooth-exactly_once_v2]",)),
    Rest(CAPSULES, "tests/capsule/test_reproduced.py::*within_a_run*"),
    Rest(FLOODS, "tests/web/test_guard.py::*ten_thousand*"),
    Rest(FLOODS, "tests/web/test_guard.py::*of_a_gib*", keep=("*gib[/query]",)),
    Rest(STORIES, "tests/why/test_replayed.py::*", keep=("*leads_through*[3]",)),
    Rest(STORIES, "tests/properties/test_tracing.py::*", keep=("*keep_the_same",)),
    Rest(SINKS, "tests/connect/test_sink_kit.py::*", keep=("*fault_at_each_step[notebook]", "*[WithoutFence-*")),
    Rest(SINKS, "tests/connect/test_source_kit.py::*", keep=("*is_found[WithoutPositions-*",)),
    Rest(SINKS, "tests/connect/test_parquet_sink.py::*object_store*"),
    Rest(SINKS, "tests/connect/test_lake_sinks.py::*[iceberg]", keep=("*within_the_commit*",)),
    Rest(COST, "tests/bench/test_bytecodes.py::*", keep=("*executes_little_more[stateless]",)),
    Rest(SCALE, "tests/group/test_scale.py::*ten_thousand*", keep=("*-1000]",)),
    Rest(SCALE, "tests/group/test_scale.py::*thousand_consumers*", keep=("*[RangeAssignor]",)),
    Rest("groups that change their protocol under load", "tests/kafka/test_rolling.py::*"),
    Rest(WIRE, "tests/broker/tcp/test_administration.py::*every_version_of_every_api*", one_in=4),
    Rest(WIRE, "tests/protocol/wire/test_mapping.py::*said_is_what_is_heard*", one_in=4),
    Rest(WIRE, "tests/protocol/wire/test_oracle.py::*", one_in=12),
    Rest(WIRE, "tests/protocol/wire/test_codec.py::*", one_in=12),
    Rest(
        "applications in streams groups: endpoints, and over TCP",
        "tests/runtime/test_streams_group.py::*",
        keep=("*every_count_is_exact[embedded]",),
    ),
    Rest(WIRE, "tests/protocol/wire/test_derived.py::*read_and_written_again*", one_in=6),
)
