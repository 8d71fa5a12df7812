"""Batch functions: the records of a task are collected in batches, and a function is called with a whole batch.

A batch ends when it is full, after ``max_wait``, and before each commit, so that all records whose offsets are
committed have been processed. Without ``max_wait``, it also ends with each run of records that the task takes from its
queues. If the function fails, it is called again for each half of the batch, recursively, until the records that fail
by themselves are found.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import Headers, RecordContext, RecordMetadata
from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.errors import StreamsError
from streams.core.metrics import Amounts, Counter, Stopwatch, table
from streams.topology import Cancellable, HeldRecord, HeldState, NodeContext, Process, PunctuationType

#: Key, value, timestamp, headers, origin, raw key and value.
_Row: TypeAlias = tuple[Any, Any, int, Headers | None, RecordMetadata | None, tuple[bytes | None, bytes | None]]


@frozen
class BatchPlan:
    """The limits of batches, and the function that is called with each batch.

    ``function`` takes the values of a batch and returns one value for each. With ``is_flat``, it takes key-value pairs
    and returns any number of pairs. ``what`` names the user's function in messages. ``max_wait_ms`` is wall-clock time
    in milliseconds; with None, a batch ends with each run of records.
    """

    function: Callable[[list[Any]], Sequence[Any]]
    what: str
    max_records: int
    max_wait_ms: int | None = None
    is_flat: bool = False


@frozen
class BatchMap:
    """Replaces the records of a batch with the results of a function that is called for the whole batch."""

    plan: BatchPlan

    @property
    def options(self) -> dict[str, int | str]:
        """The declared maximum number of records of a batch."""
        return {"max_records": self.plan.max_records}

    @property
    def periods(self) -> dict[str, int]:
        """The declared maximum age of a batch, in milliseconds."""
        return {} if self.plan.max_wait_ms is None else {"max_wait": self.plan.max_wait_ms}

    def bind(self, context: NodeContext) -> Process:
        node = _BatchNode(self.plan, context)
        context.calls.add_batches(node)
        return node.open()


@define(eq=False)
class _BatchNode:
    """The current batch of one node in one task; implements ``topology.BatchingNode``."""

    plan: BatchPlan
    context: NodeContext
    #: The records of the current batch, whose results have not been forwarded.
    held: list[_Row] = field(factory=list)
    _timer: Cancellable | None = None
    #: The records of the batch whose results are being forwarded, and those from which the current result was made.
    _batch: Sequence[_Row] = ()
    _delivered: Sequence[_Row] = ()
    _latency: Stopwatch = field(init=False)
    _sizes: Amounts = field(init=False)
    _failures: Counter = field(init=False)

    def __attrs_post_init__(self) -> None:
        context = self.context
        self._latency = context.metrics.stopwatch(table.BATCHED)
        self._sizes = context.metrics.amounts(table.BATCH_SIZE)
        self._failures = context.metrics.counter(table.BATCHES_FAILED)

    @property
    def name(self) -> str:
        return self.context.node

    def waiting(self) -> Sequence[HeldRecord]:
        """Return the records of the current batch; may be called by any thread."""
        rows = list(self.held)
        return [HeldRecord(row[4], row[1], HeldState.IN_BATCH, records=len(rows)) for row in rows]

    def delivered(self) -> Sequence[HeldRecord]:
        count = len(self._batch)
        return [HeldRecord(row[4], row[1], HeldState.DELIVERED, records=count) for row in self._delivered]

    def open(self) -> Process:
        """Return the process function of the node."""
        plan, context, held, flush = self.plan, self.context, self.held, self.flush
        origin_of = context.output.current.metadata
        raw_of = context.calls.raw_record
        max_records = plan.max_records
        waits = plan.max_wait_ms is not None and not context.calls.ends_runs

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            # Nodes that share the record may change its headers later (``topology.shared_headers``).
            if waits and not held:
                self._start_timer()
            held.append((key, value, timestamp_ms, tuple(headers) if headers else None, origin_of(), raw_of()))
            if len(held) >= max_records:
                flush()

        return process

    def end_run(self) -> None:
        if self.held and (self.plan.max_wait_ms is None or self.context.calls.ends_runs):
            self.flush()

    def flush(self) -> None:
        """Process the batch, and forward its results."""
        rows = self.held[:]
        self.held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if rows:
            self._process(rows)

    def _start_timer(self) -> None:
        """Schedule the end of the batch, ``max_wait_ms`` after its first record."""
        wait_ms = self.plan.max_wait_ms
        assert wait_ms is not None
        self._timer = self.context.clock.schedule(wait_ms, PunctuationType.WALL_CLOCK_TIME, lambda _: self.flush())

    def _process(self, rows: Sequence[_Row]) -> None:
        plan = self.plan
        self._sizes.record(len(rows))
        try:
            with self._latency:
                results = plan.function([row[:2] if plan.is_flat else row[1] for row in rows])
        except (*INTERRUPTIONS, BatchError):
            raise
        except Exception as error:  # noqa: BLE001 - the record that fails alone goes to the processing handler.
            self._failures.value += 1
            if len(rows) == 1:
                key, value, timestamp_ms, headers, _, _ = rows[0]
                self._batch = rows
                self._deliver(rows[0], rows, partial(self.context.calls.fail, error, key, value, timestamp_ms, headers))
                return
            middle = len(rows) // 2
            self._process(rows[:middle])
            self._process(rows[middle:])
            return
        self._batch = rows
        if plan.is_flat:
            self._deliver_all(rows, results)
            return
        forward = self.context.output.forward
        if len(results) != len(rows):
            raise BatchError(
                f"{plan.what} returned {len(results)} values for {len(rows)}: return one for each value, in the same "
                "order, or use flat_map_batches"
            )
        for row, result in zip(rows, results, strict=True):
            key, _, timestamp_ms, headers, _, _ = row
            self._deliver(row, (row,), partial(forward, key, result, timestamp_ms, headers))

    def _deliver_all(self, rows: Sequence[_Row], results: Sequence[Any]) -> None:
        """Forward the results of a batch with its highest timestamp, as results of its last record."""
        forward = self.context.output.forward
        last = rows[-1]
        time_ms = max(row[2] for row in rows)

        def all_results() -> None:
            for key, value in results:
                forward(key, value, time_ms, None)

        self._deliver((*last[:2], time_ms, None, *last[4:]), rows, all_results)

    def _deliver(self, row: _Row, made_of: Sequence[_Row], forward: Callable[[], None]) -> None:
        _, _, timestamp_ms, headers, origin, raw = row
        self._delivered = made_of
        try:
            self.context.calls.deliver(RecordContext.of(origin, timestamp_ms, headers), raw, forward)
        finally:
            self._delivered = ()


class BatchError(StreamsError):
    """Raised if a batch function does not return a list, or the like, with one value for each record."""
