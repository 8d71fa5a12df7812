"""The reasons why records led to no output: each with the node where the record ended, an explanation and numbers.

Each rule is a function that returns (reason, text, numbers) for a step; the first rule that applies is used.
"""

from typing import Any

from attrs import define

from streams.core.blocks.key_places import placements
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Windowed
from streams.core.event_time.time_texts import time_text
from streams.core.metrics import LATE_REASONS, DropReason
from streams.core.user_code import located
from streams.dsl.processing import (
    AsOfLeft,
    AsOfRight,
    CountWindowAggregate,
    EarlyResults,
    JoinBuffer,
    ResponseJoin,
    SessionAggregate,
    SlidingAggregate,
    StreamGlobalTableJoin,
    StreamStreamJoin,
    StreamTableJoin,
    SubscriptionJoin,
    SubscriptionSend,
    Suppress,
    TableFilter,
    TableTableJoin,
    WindowAggregate,
    WindowerAggregate,
)
from streams.topology import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    KeyFilter,
    Peek,
    ProcessorOperator,
    SinkNode,
    TableToStream,
)
from streams.why.calls import HOLDERS, failure_text, wait_of
from streams.why.lineage import Lineage
from streams.why.paths import AGGREGATES, Paths, reach
from streams.why.question import duration, shown
from streams.why.story import End, Fact, Mark, change_value
from streams.why.trace import Step

#: The end of an unlimited window.
_NEVER_MS = (1 << 63) - 1


_AS_HERE = ", as here"


def odd_of(*partitioners: str) -> str:
    """Return the first clause that names a non-default partitioner, otherwise the first clause, or "" without any.

    The clauses are results of ``partitioner_of``.
    """
    clauses = [text for text in partitioners if text]
    return next((text for text in clauses if not text.endswith(_AS_HERE)), clauses[0] if clauses else "")


@define(eq=False)
class Reasons:
    """Finds the reasons why records did not lead to an output."""

    paths: Paths
    lineage: Lineage

    def of(self, step: Step) -> End:
        """Return the node where the record of a step ended, and the reason."""
        reason, text, numbers = self._reason(step)
        operator = self.paths.operator(step.node)
        is_row = isinstance(operator, Suppress | EarlyResults) or reason == "in record cache"
        mark = self.mark(step) if reason == "not yet read" else None
        partners = tuple(self.paths.partners(step.node)) if reason == "no partner" and not numbers else ()
        partitioner = self.partitioner_of(step) if partners else ""
        record = self._record(step)
        return End(reason, step.node, text, numbers, record, is_row, mark, step.task_id, partners, partitioner)

    def mark(self, step: Step) -> Mark:
        """Return the identification of the record that the sink has written in this step."""
        topic = getattr(self.paths.topology.nodes[step.node], "topic", None)
        return Mark(topic or "", step.timestamp_ms, repr(step.key))

    def _record(self, step: Step) -> Fact:
        cause = self.lineage.of(step)
        if cause.offset is not None and cause.key == step.key:
            return cause
        return self.lineage.result(step, cause)

    def _reason(self, step: Step) -> tuple[str, str, dict[str, int]]:
        if step.error is not None:
            return self._failed(step)
        for reason, example in step.drops:
            return self._dropped(step, reason, example)
        operator = self.paths.operator(step.node)
        if operator is None:
            return self._unread(step)
        if isinstance(operator, HOLDERS):
            return wait_of(step, operator, self.paths.tasks.get(step.task_id))
        if isinstance(operator, AGGREGATES) or hasattr(operator, "wait_ms"):
            return self._held(step, operator)
        if isinstance(operator, EarlyResults):
            return self._early(step, operator)
        if isinstance(operator, AsOfLeft | AsOfRight):
            return self._unmatched(step, operator)
        if self._is_cached(step, operator):
            return self._in_cache(step, operator)
        if isinstance(operator, StreamStreamJoin):
            return self._no_partner(step, operator)
        if isinstance(operator, StreamTableJoin | StreamGlobalTableJoin | TableTableJoin | SubscriptionJoin):
            return self._no_row(step, operator)
        return self._stateless(step, operator)

    # --- errors and drops -------------------------------------------------------------------

    def _failed(self, step: Step) -> tuple[str, str, dict[str, int]]:
        what = f"{type(step.error).__name__}: {step.error}"
        task = self.paths.tasks.get(step.task_id)
        settings = None if task is None else task.handlers.settings
        if settings is not None and settings.may_skip("processing_handler"):
            letters = settings.dead_letter_topic
            if letters:
                return "dead letter", f"{what}; the processing handler wrote it to topic {letters!r}", {}
            return "failed", f"{what}; the processing handler dropped it", {}
        return "failed", f"{what}; the task stopped here", {}

    def _dropped(self, step: Step, reason: DropReason, example: str) -> tuple[str, str, dict[str, int]]:
        if reason in LATE_REASONS:
            return self._late(step, reason)
        if reason is DropReason.DUPLICATE:
            return self._duplicate(step)
        if reason is DropReason.NULL_VALUE:
            return "tombstone", reason.meaning, {}
        if reason in (DropReason.NULL_KEY, DropReason.NULL_FOREIGN_KEY):
            return "null key", reason.meaning, {}
        task = self.paths.tasks.get(step.task_id)
        letters = task.handlers.settings.dead_letter_topic if task is not None else ""
        text = f"{reason.meaning}{f' ({example})' if example else ''}{failure_text(step)}"
        if letters and reason in (DropReason.UNREADABLE, DropReason.FAILED, DropReason.UNWRITABLE):
            return "dead letter", f"{text}; it was written to topic {letters!r}", {}
        return "dropped", text, {}

    def _duplicate(self, step: Step) -> tuple[str, str, dict[str, int]]:
        operator: Any = self.paths.operator(step.node)
        within_ms = operator.within_ms
        record_id = operator.id_of(step.key, step.value)
        passed = self.paths.at(
            [step.node],
            lambda other: (
                other.number < step.number
                and other.task_id == step.task_id
                and bool(other.outputs)
                and abs(other.timestamp_ms - step.timestamp_ms) <= within_ms
                and bool(operator.id_of(other.key, other.value) == record_id)
            ),
        )
        text = f"a record with the id {shown(record_id)} has passed within {within_ms:,} ms"
        if not passed:
            return "duplicate", f"{text}, before the trace", {"within_ms": within_ms}
        apart_ms = step.timestamp_ms - passed[-1].timestamp_ms
        when = f"{duration(abs(apart_ms))} {'later' if apart_ms < 0 else 'earlier'}"
        return "duplicate", f"{text}: {self.where(passed[-1])}, {when}", {"within_ms": within_ms, "apart_ms": apart_ms}

    def _late(self, step: Step, reason: DropReason) -> tuple[str, str, dict[str, int]]:
        operator = self.paths.operator(step.node)
        time_ms = max(step.node_time_ms, step.stream_time_ms if step.node_time_ms < 0 else -1)
        numbers = {"late_ms": time_ms - step.timestamp_ms, "stream_time_ms": time_ms}
        late = duration(time_ms - step.timestamp_ms)
        text = f"late by {late} behind stream time {time_text(time_ms)} of task {step.task_id}"
        closed_ms = self._closed_ms(operator, step)
        if closed_ms is not None and reason is not DropReason.EXPIRED:
            grace_ms = operator.windows.grace_ms
            numbers |= {"closed_ms": closed_ms, "grace_ms": grace_ms, "missed_by_ms": time_ms - closed_ms}
            text += (
                f"; its window was open until {time_text(closed_ms)} (grace {grace_ms:,} ms), so it came "
                f"{duration(time_ms - closed_ms)} too late"
            )
        elif reason is not DropReason.LATE:
            text += f"; {reason.meaning}"
        return "late", text, numbers

    def _closed_ms(self, operator: Any, step: Step) -> int | None:
        """Return the stream time at which the last window of a step's record closes; None without windows."""
        if isinstance(operator, WindowAggregate):
            windows = operator.windows
            starts = windows.windows_for(step.timestamp_ms)
            return windows.end_of(starts[-1]) + windows.grace_ms if starts else None
        if isinstance(operator, SlidingAggregate):
            return int(step.timestamp_ms + operator.windows.difference_ms + operator.windows.grace_ms)
        if isinstance(operator, SessionAggregate):
            return int(step.timestamp_ms + operator.windows.gap_ms + operator.windows.grace_ms)
        return None

    # --- buffered -----------------------------------------------------------------------------

    def _held(self, step: Step, operator: Any) -> tuple[str, str, dict[str, int]]:
        if isinstance(operator, Suppress):
            return self._suppressed(step, operator)
        if isinstance(operator, CountWindowAggregate) and operator.emit_on_close:
            text = f"its windows are open until there are {operator.windows.size:,} records, and emit when they close"
            return "window open", text, {"size": operator.windows.size}
        if isinstance(operator, WindowerAggregate) and operator.emit_on_close:
            now_ms = self._now_ms(step)
            text = f"its windows emit when the windower closes them; stream time is {time_text(now_ms)}"
            return "window open", text, {"stream_time_ms": now_ms}
        if getattr(operator, "emit_on_close", False):
            closes_ms = self._closed_ms(operator, step)
            now_ms = self._now_ms(step)
            if closes_ms is not None:
                windows = operator.windows
                text = (
                    f"its window is open until stream time {time_text(closes_ms)} (end, grace {windows.grace_ms:,} "
                    f"ms), and emits when it closes; stream time of task {step.task_id} is {time_text(now_ms)}, "
                    f"{duration(max(0, closes_ms - now_ms))} to go"
                )
                return "window open", text, {"closes_ms": closes_ms, "stream_time_ms": now_ms}
        if self._is_cached(step, operator):
            return self._in_cache(step, operator)
        return "forwarded nothing", f"store {operator.store} has a later version of the row", {}

    def _suppressed(self, step: Step, operator: Suppress) -> tuple[str, str, dict[str, int]]:
        is_window = operator.until_window_closes and type(step.key) is Windowed
        due_ms = (step.key.window.end_ms if is_window else self._held_since_ms(step)) + operator.wait_ms
        now_ms = self._now_ms(step)
        if is_window and change_value(step.value) is None:
            return "tombstone", "a deletion before its window has closed: nothing was emitted for it yet", {}
        what = "its window closes" if is_window else f"it has waited for {operator.wait_ms:,} ms"
        text = (
            f"suppressed until stream time {time_text(due_ms)}, when {what}; stream time of task {step.task_id} is "
            f"{time_text(now_ms)}, {duration(max(0, due_ms - now_ms))} to go"
        )
        return "suppressed", text, {"due_ms": due_ms, "stream_time_ms": now_ms}

    def _early(self, step: Step, operator: EarlyResults) -> tuple[str, str, dict[str, int]]:
        if change_value(step.value) is None:
            return "tombstone", "a deletion before a result of its window was forwarded", {}
        now_ms = self._now_ms(step)
        window = step.key.window
        every = f"{operator.every.ms:,} ms" if operator.every.ms is not None else f"{operator.every.records:,} records"
        text = f"results of its window are forwarded every {every}"
        if operator.closes_ms is None:
            return "window open", f"{text} and with its record {window.end_ms:,}", {"end": window.end_ms}
        closes_ms = operator.closes_ms(window)
        text = (
            f"{text} and when it closes at {time_text(closes_ms)}; "
            f"stream time of task {step.task_id} is {time_text(now_ms)}, {duration(max(0, closes_ms - now_ms))} to go"
        )
        return "window open", text, {"closes_ms": closes_ms, "stream_time_ms": now_ms}

    def _held_since_ms(self, step: Step) -> int:
        """Return the timestamp of the first update of a row since its last output, when its suppression began."""
        emitted = [output.step.number for output in self.paths.outputs([step.node], step) if output.key == step.key]
        last = max(emitted, default=-1)
        held = self.paths.at(
            [step.node], lambda other: last <= other.number <= step.number and bool(other.key == step.key)
        )
        return held[0].timestamp_ms if held else step.timestamp_ms

    def _now_ms(self, step: Step) -> int:
        """Return the stream time of a node at the end of the trace."""
        task = self.paths.tasks.get(step.task_id)
        times = [step.node_time_ms, step.stream_time_ms]
        if task is not None:
            own = task.operator_times.get(step.node)
            times = [own.ms] if own is not None and own.ms >= 0 else [*times, task.queues.stream_time_ms]
        return max(times)

    def _is_cached(self, step: Step, operator: Any) -> bool:
        task = self.paths.tasks.get(step.task_id)
        store = self.paths.topology.stores.get(getattr(operator, "store", None) or "")
        return task is not None and task.cache is not None and store is not None and store.is_cacheable

    def _in_cache(self, step: Step, operator: Any) -> tuple[str, str, dict[str, int]]:
        task = self.paths.tasks[step.task_id]
        size = task.cache.size_bytes if task.cache is not None else 0
        text = (
            f"its update of store {operator.store} is in the record cache of task {step.task_id} ({size:,} bytes) "
            "until the next commit"
        )
        return "in record cache", text, {"cache_bytes": size}

    # --- joins ------------------------------------------------------------------------------

    def _no_partner(self, step: Step, operator: StreamStreamJoin) -> tuple[str, str, dict[str, int]]:
        windows = operator.windows
        before_ms, after_ms = reach(operator)
        first_ms = step.timestamp_ms - before_ms
        last_ms = step.timestamp_ms + after_ms
        others = self.paths.at(
            self.paths.sides(operator, other_than=step.node),
            lambda other: other.key == step.key and other.value is not None,
        )
        own = [other for other in others if other.task_id == step.task_id]
        side = "right" if operator.is_left_side else "left"
        if others and not own:
            return self._elsewhere(step, others[-1], f"the {side} record of key {shown(step.key)}")
        if not own:
            text = f"no record of key {shown(step.key)} came on the {side} side of join {operator.name}"
        else:

            def miss(other: Step) -> int:
                return max(first_ms - other.timestamp_ms, other.timestamp_ms - last_ms, 0)

            nearest = min(own, key=miss)
            apart_ms = nearest.timestamp_ms - step.timestamp_ms
            when = "later" if apart_ms > 0 else "earlier"
            text = (
                f"the nearest record of key {shown(step.key)} on the {side} side, {self.where(nearest)}, is "
                f"{duration(abs(apart_ms))} {when}: {duration(miss(nearest))} outside of the window "
                f"(up to {before_ms:,} ms before and {after_ms:,} ms after)"
            )
            if operator.is_outer:
                text += "; the record alone is emitted when its window has closed"
            return "no partner", text, {"missed_by_ms": miss(nearest), "apart_ms": apart_ms}
        if operator.is_outer:
            due_ms = last_ms + windows.grace_ms
            now_ms = self._now_ms(step)
            text += (
                f"; it is emitted alone once stream time is past {time_text(due_ms)}, and stream time of task "
                f"{step.task_id} is {time_text(now_ms)}"
            )
            return "window open", text, {"closes_ms": due_ms, "stream_time_ms": now_ms}
        return "no partner", text, {}

    def _unmatched(self, step: Step, operator: AsOfLeft | AsOfRight) -> tuple[str, str, dict[str, int]]:
        join = operator.join
        if isinstance(operator, AsOfRight):
            return "forwarded nothing", f"it was stored for records of the left side of join {join.name}", {}
        closes_ms = step.timestamp_ms + operator.keeps_back_ms
        now_ms = self._now_ms(step)
        if closes_ms >= now_ms:
            text = f"it waits for its match until stream time is past {time_text(closes_ms)}; it is {time_text(now_ms)}"
            return "window open", text, {"closes_ms": closes_ms, "stream_time_ms": now_ms}
        where = "after" if join.is_forward else "before"
        text = f"the right side of join {join.name} had no record of key {shown(step.key)} up to "
        return "no partner", f"{text}{join.tolerance_ms:,} ms {where} it", {"tolerance_ms": join.tolerance_ms}

    def _no_row(self, step: Step, operator: Any) -> tuple[str, str, dict[str, int]]:
        table = operator.other if isinstance(operator, TableTableJoin) else operator.table
        named = ", ".join(table.stores)
        key = step.key
        if isinstance(operator, StreamTableJoin) and operator.grace_ms is not None:
            due_ms = step.timestamp_ms + operator.grace_ms
            now_ms = self._now_ms(step)
            if due_ms >= now_ms:
                due = time_text(due_ms)
                text = f"it waits for its table until stream time is past {due}; it is {time_text(now_ms)}"
                return "window open", text, {"closes_ms": due_ms, "stream_time_ms": now_ms}
        if isinstance(operator, StreamGlobalTableJoin):
            row_key = operator.table_key(key, step.value)
            return "no partner", f"global table {named} had no row {shown(row_key)} when it came", {}
        if change_value(step.value) is None:
            return "tombstone", "a deletion of a row that had no partner", {}
        writes = self.paths.at(
            self.paths.writers(table.stores), lambda other: other.key == key and change_value(other.value) is not None
        )
        own = [other for other in writes if other.task_id == step.task_id]
        if writes and not own:
            return self._elsewhere(step, writes[-1], f"the row {shown(key)} of store {named}")
        before = [other for other in own if other.number < step.number]
        after = [other for other in own if other.number > step.number]
        text = f"store {named} had no row {shown(key)} when it came"
        if before:
            return "no partner", f"{text}: the row was deleted, or its filter does not keep it", {}
        if after:
            late_ms = after[0].timestamp_ms - step.timestamp_ms
            text += f": its row came after it, {self.where(after[0])}, with a time {duration(abs(late_ms))} "
            return "no partner", text + ("later" if late_ms > 0 else "earlier"), {"missed_by_ms": late_ms}
        return "no partner", text, {}

    def _elsewhere(self, step: Step, other: Step, what: str) -> tuple[str, str, dict[str, int]]:
        """Return the reason for two records of one key that should be joined, but are in different partitions."""
        mine = step.task_id
        its = other.task_id
        text = f"{what} is in another partition: {self.where(other)} is read by task {its}, this record by task {mine}"
        text += odd_of(self.partitioner_of(step), self.partitioner_of(other))
        return "another partition", text, {"partition": mine.partition, "other_partition": its.partition}

    def partitioner_of(self, step: Step) -> str:
        """Return a clause that names the partitioner of a step's source record, "" if it is not known."""
        task = self.paths.tasks.get(step.task_id)
        place = step.episode.place
        if task is None or place is None:
            return ""
        count = self.paths.trace.partition_counts.get(place.topic) or len(self._partitions_of(place.topic))
        raw = self._raw_key(step)
        if raw is None or not count:
            return ""
        producer = step.episode.producer
        sink = None if producer is None else self.paths.topology.nodes[producer.node]
        if isinstance(sink, SinkNode) and sink.partitioner is not None:
            return f"; {sink.name} wrote {place} with its own partitioner {located(sink.partitioner)}"
        by_default = partition_for(raw, count)
        if by_default == place.partition:
            return f"; the default partitioner puts the key into partition {by_default} of {count}{_AS_HERE}"
        others = placements({raw: place.partition}, count)
        hint = f", such as {' or '.join(placement.name(count) for placement in others[:3])}" if others else ""
        return (
            f"; the default partitioner puts the key into partition {by_default} of {count} of {place.topic}, so "
            f"{place} was written with another partitioner{hint}"
        )

    def _partitions_of(self, topic: str) -> set[int]:
        return {
            item.number for task in self.paths.tasks.values() for item in task.inputs.values() if item.topic == topic
        }

    def _raw_key(self, step: Step) -> bytes | None:
        place = step.episode.place
        source = next((node for node in self.paths.topology.sources() if place and place.topic in node.topics), None)
        try:
            return None if source is None else source.key_serde.serialize(step.key)
        except Exception:  # noqa: BLE001 - a key of another type: there is nothing to say about its partition.
            return None

    # --- everything else ------------------------------------------------------------------------

    def _stateless(self, step: Step, operator: Any) -> tuple[str, str, dict[str, int]]:
        match operator:
            case KeyFilter():
                return "null key", f"{DropReason.NULL_KEY.meaning}, so it has no group and no partition to go to", {}
            case Filter() | TableFilter():
                condition = "true" if operator.negate else "not true"
                verb = "filter_not" if operator.negate else "filter"
                return "filtered", f"the condition of {verb} {located(operator.predicate)} is {condition} for it", {}
            case Branch():
                return "filtered", "no branch takes it, and there is no default branch", {}
            case FlatMap() | FlatMapValues():
                return "forwarded nothing", f"{located(operator.mapper)} gave no records for it", {}
            case TableToStream():
                return "tombstone", "a deletion, which is not passed on", {}
            case Peek():
                return "forwarded nothing", "the stream ends here: for_each", {}
            case ProcessorOperator():
                wrote = f"; it called {step.calls[-1]}" if step.calls else ""
                return "forwarded nothing", f"the processor forwarded nothing for it{wrote}", {}
            case SubscriptionSend():
                return "forwarded nothing", "the row and its foreign key did not change, or there is none", {}
            case ResponseJoin() | JoinBuffer():
                return "forwarded nothing", "it went no further", {}
            case _ if change_value(step.value) is None:
                return "tombstone", "a deletion of a row that was not there", {}
            case _:
                return "forwarded nothing", "the node forwarded nothing for it", {}

    def _unread(self, step: Step) -> tuple[str, str, dict[str, int]]:
        node = self.paths.topology.nodes[step.node]
        topic = node.topic if isinstance(node, SinkNode) else None
        return "not yet read", f"it was written to topic {topic!r}, from where it is not read yet", {}

    def where(self, step: Step) -> str:
        """Return a step's source record as topic, partition and offset in text, or the node if there is none."""
        place = step.episode.place
        return f"{place}" if place is not None else f"at {step.node}"
