"""The settings of workers, each with its unit, default and meaning.

Of the other packages, this module imports only ``core``.
"""

from attrs import frozen

from streams.core.settings.setting import choice, text, whole

_MIB = 1 << 20


@frozen(kw_only=True)
class WorkerSettings:
    """Settings of all workers."""

    retry_backoff_ms: int = whole(100, "ms", "First pause after a passing error; each further one is twice as long.")
    retry_backoff_max_ms: int = whole(10_000, "ms", "Longest pause after a passing error.")
    retry_timeout_ms: int = whole(
        300_000, "ms", "How long passing errors are retried without success before the worker stops."
    )


@frozen(kw_only=True)
class SinkSettings(WorkerSettings):
    """Settings of a ``SinkWorker``.

    A batch is written and committed when it has ``batch_records`` records or ``batch_bytes`` bytes, or
    ``batch_ms`` milliseconds after its first record was read.
    """

    batch_records: int = whole(10_000, "records", "Records after which a batch is written.", minimum=1)
    batch_bytes: int = whole(16 * _MIB, "bytes", "Serialized size after which a batch is written.", minimum=1)
    batch_ms: int = whole(1_000, "ms", "Longest time from reading a record to writing its batch.")
    auto_offset_reset: str = choice(
        "earliest", ("earliest", "latest"), "Where to begin in a partition without a stored position."
    )
    deserialization_handler: str = choice(
        "fail", ("fail", "continue"), "Whether a record that cannot be deserialized stops the worker, or is counted."
    )
    errors_dead_letter_queue_topic_name: str = text(
        "", "Topic for records that are skipped because they cannot be deserialized; empty = none."
    )
    lost_records: str = choice(
        "fail",
        ("fail", "continue"),
        "Whether to stop if the topic no longer has the record at the position, or to go on at its first record.",
    )
    max_poll_interval_ms: int = whole(
        300_000, "ms", "Longest time for writing a batch, after which the group gives the partitions to another worker."
    )
    session_timeout_ms: int = whole(
        45_000, "ms", "Time without a sign of life after which the group gives the partitions to another worker."
    )


@frozen(kw_only=True)
class SourceSettings(WorkerSettings):
    """Settings of a ``SourceWorker``."""

    poll_ms: int = whole(500, "ms", "Longest wait of one poll of the source.", minimum=1)
    transaction_timeout_ms: int = whole(
        60_000, "ms", "After how long the broker aborts a transaction of a worker that was killed.", minimum=1
    )
