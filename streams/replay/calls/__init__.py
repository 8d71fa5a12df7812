"""The calls of a replay as values: input, work and report, independent of the executor."""

from streams.replay.calls.application import Application, fingerprint, logical_of, pickled, source_digest
from streams.replay.calls.failures import TaskFailure, explained_failure, failure_text, packed, unpacked
from streams.replay.calls.outputs import counts, lanes_of, output_partitions, output_topics, read_output, read_topic
from streams.replay.calls.plan import Options, Pass, ReplayPlan, explained
from streams.replay.calls.progress import CallHeartbeat, Listener, ReplayProgress, Reporter
from streams.replay.calls.shown import (
    described_kind,
    described_spec,
    key_text,
    plain,
    reader,
    store_key_reader,
    value_text,
)
from streams.replay.calls.state import (
    MANIFEST,
    Outputs,
    ReplayState,
    outputs_from_json,
    outputs_to_json,
    read_manifest,
    write_manifest,
)
from streams.replay.calls.stores import MAX_UNCOMMITTED_BYTES, open_all, open_contents, write_back, write_contents
from streams.replay.calls.work import GlobalWork, InputWork, StageReport, StageWork, StoreRef, TaskReport, TaskWork

__all__ = [
    "Application",
    "GlobalWork",
    "CallHeartbeat",
    "InputWork",
    "Listener",
    "MANIFEST",
    "MAX_UNCOMMITTED_BYTES",
    "Options",
    "Outputs",
    "Pass",
    "ReplayPlan",
    "ReplayProgress",
    "ReplayState",
    "Reporter",
    "StageReport",
    "StageWork",
    "StoreRef",
    "TaskFailure",
    "TaskReport",
    "TaskWork",
    "counts",
    "described_kind",
    "described_spec",
    "explained",
    "explained_failure",
    "failure_text",
    "fingerprint",
    "key_text",
    "lanes_of",
    "logical_of",
    "open_all",
    "open_contents",
    "output_partitions",
    "output_topics",
    "outputs_from_json",
    "outputs_to_json",
    "packed",
    "pickled",
    "plain",
    "read_manifest",
    "read_output",
    "read_topic",
    "reader",
    "source_digest",
    "store_key_reader",
    "unpacked",
    "value_text",
    "write_back",
    "write_contents",
    "write_manifest",
]
