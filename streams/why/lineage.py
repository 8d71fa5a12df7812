"""The lineage of an output: source records, rows of stores, and punctuations.

For each kind of operator, a rule returns the steps that contributed to an output. If no traced step has
written a row of a store, the row counts as written before the trace began.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, frozen

from streams.core.blocks.records import Windowed
from streams.core.event_time.time_texts import time_text
from streams.dsl.processing import (
    AsOf,
    AsOfLeft,
    AsOfRight,
    CountWindowAggregate,
    EarlyResults,
    ForeignTableJoin,
    LookUp,
    ResponseJoin,
    SessionAggregate,
    StreamGlobalTableJoin,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    Suppress,
    TableTableJoin,
    WindowerAggregate,
)
from streams.topology import ProcessorOperator
from streams.why.calls import HOLDERS, made_text
from streams.why.paths import AGGREGATES, Paths, in_window, is_of, reach
from streams.why.question import duration, shown
from streams.why.story import Fact, change_value, record_text, step_text
from streams.why.trace import Output, Step

#: Maximum depth of a story, for topologies with cycles.
_MAX_DEPTH = 24


@frozen
class Derivation:
    """The origin of an output: a description ("" if the node forwarded one record), and the contributing steps."""

    text: str
    steps: Sequence[Step]
    facts: tuple[Fact, ...] = ()


@define(eq=False)
class Lineage:
    """Finds the records that contributed to outputs, and lists at most ``limit`` of them per node."""

    paths: Paths
    limit: int

    def of(self, step: Step, depth: int = 0) -> Fact:
        """Return the record of a step as a ``Fact``, whose causes are the records that contributed to it."""
        via: list[str] = []
        here = step
        while len(via) < 200:
            parent = here.parent
            if parent is None:
                place, producer = here.episode.place, here.episode.producer
                if producer is None or place is None:
                    return self._source(here, via)
                via.append(f"topic {place.topic}")
                here = producer
                continue
            origin = self._origin(parent)
            if not origin.text and len(origin.steps) == 1:
                via.append(parent.step.node)
                here = origin.steps[0]
                continue
            return self._node(parent, origin, via, depth)
        return Fact("... and so on, round a cycle", via=tuple(via[:3]))

    def result(self, step: Step, cause: Fact, note: str = "") -> Fact:
        """Return what a node forwarded in a step as a ``Fact`` with its cause; ``note`` follows its text."""
        is_counted = self.paths.is_counted(step)
        return Fact(
            f"{step_text(step, is_counted=is_counted)}{note}",
            step.node,
            key=step.key,
            value=change_value(step.value),
            timestamp_ms=step.timestamp_ms,
            causes=(cause,),
            is_counted=is_counted,
        )

    def _source(self, step: Step, via: Sequence[str]) -> Fact:
        place = step.episode.place
        where = "" if place is None else f"{place}: "
        text = f"{where}{record_text(step.key, step.value, step.timestamp_ms)}"
        if place is None:
            return Fact(text, step.node, key=step.key, timestamp_ms=step.timestamp_ms, via=tuple(via))
        return Fact(
            text, None, place.topic, place.partition, place.offset, step.key, step.value, step.timestamp_ms, tuple(via)
        )

    def _node(self, output: Output, origin: Derivation, via: Sequence[str], depth: int) -> Fact:
        step = output.step
        listed = origin.steps[-self.limit :] if depth < _MAX_DEPTH else ()
        causes = tuple(self.of(cause, depth + 1) for cause in listed)
        if not origin.steps and not origin.facts:
            causes = (Fact("nothing that the trace has seen: it was there before"),)
        text = f"{step.node}: {origin.text or 'forwarded'}"
        value = change_value(output.value)
        return Fact(
            text,
            step.node,
            key=output.key,
            value=value,
            timestamp_ms=output.timestamp_ms,
            via=tuple(via),
            causes=(*causes, *origin.facts),
            more=len(origin.steps) - len(listed),
        )

    def _origin(self, output: Output) -> Derivation:
        """Return the origin of an output: a description, and the steps that contributed to it."""
        step = output.step
        operator = self.paths.operator(step.node)
        if isinstance(operator, AGGREGATES):
            return self._aggregated(output, operator)
        if isinstance(operator, StreamStreamJoin | StreamSelfJoin):
            return self._paired(output, operator)
        if isinstance(operator, AsOfLeft | AsOfRight):
            return self._as_of(output, operator.join)
        if isinstance(operator, EarlyResults):
            return self._early(output)
        if isinstance(operator, ProcessorOperator):
            return self._processed(output)
        if isinstance(operator, HOLDERS) and (step.ended is not None or isinstance(operator, LookUp)):
            return Derivation(made_text(operator, step), step.made_of if step.cause == "flush" else [step])
        if step.cause == "flush" or (not is_of(output.key, step) and not _rekeys(operator)):
            held = self.paths.at([step.node], lambda other: other.number < step.number and is_of(output.key, other))
            is_closed = isinstance(operator, Suppress) and operator.until_window_closes
            what = "suppressed until its window had closed" if is_closed else "buffered until then"
            return Derivation(what, held[-1:])
        if isinstance(operator, StreamTableJoin | StreamGlobalTableJoin | TableTableJoin | ResponseJoin):
            table = operator.other if isinstance(operator, TableTableJoin) else operator.table
            return self._looked_up(step, table.stores, step.key)
        if isinstance(operator, SubscriptionJoin):
            return self._looked_up(step, operator.table.stores, step.key)
        if isinstance(operator, ForeignTableJoin):
            receivers = [
                name
                for name in self.paths.topology.nodes
                if isinstance(own := self.paths.operator(name), SubscriptionReceive) and own.store == operator.store
            ]
            subscribed = self.paths.at(
                receivers, lambda other: other.number < step.number and other.value.key == output.key
            )
            return Derivation(
                f"the row {shown(step.key)}, for its subscriber {shown(output.key)}", [*subscribed[-1:], step]
            )
        return Derivation("", [step])

    def _aggregated(self, output: Output, operator: Any) -> Derivation:
        step, key = output.step, output.key
        is_merged = isinstance(operator, SessionAggregate) or (
            isinstance(operator, WindowerAggregate) and not operator.emit_on_close
        )
        if is_merged and step.cause == "record" and step.key == key.key:
            return self._session(output, operator)
        window = key.window if type(key) is Windowed else None
        inner = key.key if window is not None else key

        def is_folded(other: Step) -> bool:
            return (
                other.number <= step.number
                and other.task_id == step.task_id
                and other.error is None
                and bool(other.key == inner)
                and (not other.drops or bool(other.outputs))
                and (window is None or in_window(operator, window, other.timestamp_ms))
            )

        folded = self.paths.at(self.paths.sharing(step.node), is_folded)
        if isinstance(operator, CountWindowAggregate):
            return self._counted(output, folded, operator)
        ttl_ms = self.paths.topology.stores[operator.store].ttl_ms
        is_expired = ttl_ms >= 0 and change_value(output.value) is None
        if ttl_ms >= 0:
            last_ms = output.timestamp_ms - ttl_ms if is_expired else output.timestamp_ms
            folded = _living([other for other in folded if other.timestamp_ms <= last_ms], ttl_ms)
        records = "1 record" if len(folded) == 1 else f"{len(folded):,} records"
        where = "" if window is None else f" in window {time_text(window.start_ms)} to {time_text(window.end_ms)}"
        how = " by a commit" if step.cause == "flush" else ""
        if is_expired:
            how = f", which expired {ttl_ms:,} ms after its last update"
        return Derivation(f"{records} of key {shown(inner)}{where}, store {operator.store}{how}", folded)

    def _counted(self, output: Output, folded: list[Step], operator: CountWindowAggregate) -> Derivation:
        """Return the origin of a result of a count window, given all records of its key up to the result."""
        first, last = output.key.window
        # An update names the windows of its record; otherwise the window has closed with the last record.
        is_named = not operator.emit_on_close
        steps = [other for other in folded[first - last :] if not (is_named and other.outputs) or _has(other, output)]
        records = "1 record" if len(steps) == 1 else f"{len(steps):,} records"
        text = f"{records} of key {shown(output.key.key)} in the window from its record {first:,} up to {last:,}"
        return Derivation(f"{text}, store {operator.store}", steps)

    def _early(self, output: Output) -> Derivation:
        """Return the origin of an early or final result: the last update of its window before the result."""
        step = output.step
        value = change_value(output.value)
        if value is None:
            return Derivation("its window was merged into another one", [step])
        updates = self.paths.at(
            [step.node],
            lambda other: (
                other.number <= step.number
                and bool(other.key == output.key)
                and other.timestamp_ms == output.timestamp_ms
                and bool(change_value(other.value) == value)
            ),
        )
        return Derivation("the result of its window at that time", updates[-1:])

    def _session(self, output: Output, operator: SessionAggregate | WindowerAggregate) -> Derivation:
        """Return the origin of a session: its last record, and the records of the earlier sessions that it replaced."""
        outputs = self.paths.outputs(self.paths.sharing(output.step.node), output.step)
        todo = [output]
        steps = []
        while todo:
            row = todo.pop()
            steps.append(row.step)
            gone = [other.key for other in row.step.outputs if other is not row and change_value(other.value) is None]
            for key in gone or [row.key]:
                todo += [
                    before
                    for before in outputs
                    if before.step.number < row.step.number
                    and before.key == key
                    and change_value(before.value) is not None
                ][-1:]
        steps.sort(key=lambda step: step.number)
        records = "1 record" if len(steps) == 1 else f"{len(steps):,} records"
        window = output.key.window
        where = f"{time_text(window.start_ms)} to {time_text(window.end_ms)}"
        return Derivation(f"{records} of key {shown(output.key.key)} in session {where}, store {operator.store}", steps)

    def _paired(self, output: Output, operator: Any) -> Derivation:
        step = output.step
        if not is_of(output.key, step) or step.cause == "flush":
            waited = self.paths.at(
                self.paths.sides(operator),
                lambda other: (
                    other.number <= step.number
                    and other.key == output.key
                    and other.timestamp_ms == output.timestamp_ms
                ),
            )
            return Derivation("no partner came until its window had closed", waited[-1:])
        if isinstance(operator, StreamSelfJoin):
            before_ms = after_ms = max(operator.windows.before_ms, operator.windows.after_ms)
        else:
            before_ms, after_ms = reach(operator)
        others = self.paths.sides(operator, other_than=step.node)
        partners = self.paths.at(
            others,
            lambda other: (
                other.number < step.number
                and other.task_id == step.task_id
                and other.value is not None
                and other.key == step.key
                and step.timestamp_ms - before_ms <= other.timestamp_ms <= step.timestamp_ms + after_ms
            ),
        )
        partners.sort(key=lambda other: (other.timestamp_ms, other.number))
        if len(partners) == len(step.outputs):
            partners = [partners[step.outputs.index(output)]]
        else:
            partners = [
                other for other in partners if max(other.timestamp_ms, step.timestamp_ms) == output.timestamp_ms
            ][:1]
        if not partners:
            return Derivation("no partner came until its window had closed", [step])
        apart = partners[0].timestamp_ms - step.timestamp_ms
        when = f"{duration(abs(apart))} {'later' if apart > 0 else 'earlier'}" if apart else "at the same time"
        return Derivation(f"a record and its partner, which is {when}", [step, *partners])

    def _as_of(self, output: Output, join: AsOf) -> Derivation:
        """Return the origin of an as-of join's output: a left record, and its matching right record if there is one."""
        step = output.step
        time_ms = output.timestamp_ms

        def side(kind: type[AsOfLeft | AsOfRight]) -> list[Step]:
            nodes = [name for name in self.paths.topology.nodes if self._is_side(name, kind, join)]
            return self.paths.at(
                nodes,
                lambda other: other.number <= step.number and other.key == output.key and other.value is not None,
            )

        lefts = [other for other in side(AsOfLeft) if other.timestamp_ms <= time_ms]
        at_time = [other for other in lefts if other.timestamp_ms == time_ms]
        left = (at_time or lefts or [step])[-1]
        rights = [other for other in side(AsOfRight) if other is not left]
        if join.is_forward:
            rights = [other for other in rights if left.timestamp_ms <= other.timestamp_ms == time_ms][:1]
        else:
            first_ms = left.timestamp_ms - join.tolerance_ms
            rights = [other for other in rights if first_ms <= other.timestamp_ms <= left.timestamp_ms]
            rights.sort(key=lambda other: (other.timestamp_ms, other.number))
        if not rights:
            return Derivation(f"no record within {join.tolerance_ms:,} ms", [left])
        apart_ms = abs(rights[-1].timestamp_ms - left.timestamp_ms)
        when = f"{apart_ms:,} ms {'later' if join.is_forward else 'earlier'}"
        return Derivation(
            f"a record and its {'next' if join.is_forward else 'latest'} match, {when}", [left, rights[-1]]
        )

    def _is_side(self, node: str, kind: type[AsOfLeft | AsOfRight], join: AsOf) -> bool:
        operator: Any = self.paths.operator(node)
        return isinstance(operator, kind) and operator.join.name == join.name

    def _looked_up(self, step: Step, stores: Sequence[str], key: Any) -> Derivation:
        """Return the origin of a table join's output: a record, and the last traced write of the joined row."""
        writers = self.paths.writers(stores)
        rows = self.paths.at(writers, lambda other: other.number < step.number and other.key == key)
        read = "".join(
            f", which held {shown(row[0])} of {time_text(row[1])}" if row is not None else ", which had no row"
            for _, row in step.rows
        )
        named = ", ".join(stores)
        return Derivation(f"a record, and the row {shown(key)} of store {named}{read}", [*rows[-1:], step])

    def _processed(self, output: Output) -> Derivation:
        step = output.step
        keys = {(call.store, repr(call.key)) for call in step.calls if not call.is_write}
        wrote = self.paths.at(
            self.paths.steps,
            lambda other: (
                other.number < step.number
                and other.task_id == step.task_id
                and any(call.is_write and (call.store, repr(call.key)) in keys for call in other.calls)
            ),
        )
        reads = tuple(Fact(f"store {call}", step.node) for call in step.calls[-self.limit :])
        if step.cause == "punctuation":
            if not wrote:
                wrote = self.paths.at(
                    self.paths.steps,
                    lambda other: (
                        other.number < step.number
                        and other.task_id == step.task_id
                        and any(call.is_write and call.key == output.key for call in other.calls)
                    ),
                )
            return Derivation(f"a timer, at {time_text(output.timestamp_ms)}", wrote, reads)
        if not step.calls and is_of(output.key, step):
            return Derivation("", [step])
        return Derivation(
            f"the processor forwarded it for {record_text(step.key, step.value, step.timestamp_ms)}",
            [*wrote, step],
            reads,
        )


def _has(step: Step, output: Output) -> bool:
    """Return whether a step has an output with the same key."""
    return any(other.key == output.key for other in step.outputs)


def _living(steps: list[Step], ttl_ms: int) -> list[Step]:
    """Return the steps that wrote a row of a store, without the steps before the last expiry of its TTL."""
    start = len(steps) - 1
    while start > 0 and steps[start].timestamp_ms - steps[start - 1].timestamp_ms < ttl_ms:
        start -= 1
    return steps[max(start, 0) :]


def _rekeys(operator: Any) -> bool:
    """Return whether an output of an operator may have a different key than its input record."""
    return not isinstance(operator, StreamTableJoin | TableTableJoin) and not hasattr(operator, "wait_ms")
