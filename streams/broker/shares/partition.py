"""Where a share group is in one partition: which records are available, locked by a member, or done (KIP-932).

The records from ``start_offset`` up to ``end_offset`` are in flight: what lies before is done, what lies behind has
never been delivered.  Neighbours in the same state are one run, so the cost does not depend on the number of records.
Pure: the caller reads the log, passes the time, and stores the state.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from attrs import define, field

from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.share_group_messages import AcknowledgementBatch, AcquiredRecords

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class RecordState(IntEnum):
    """The states of a record, with Kafka's numbers."""

    AVAILABLE = 0
    #: Locked by a member.
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    #: Done without being processed: rejected, delivered too often, deleted, or not a record that readers see.
    ARCHIVED = 4


_DONE = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
#: The state after an acknowledgement; a renewal changes none.
_AFTER = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


class RecordRun(NamedTuple):
    """Records between two offsets, both inclusive, in one state; ``deliveries`` says how often they were delivered.

    If they are acquired, ``member_id`` has them until ``until_ms``.
    """

    first: int
    last: int
    state: RecordState
    deliveries: int = 0
    member_id: str = ""
    until_ms: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the records are delivered no more."""
        return self.state in _DONE


class StateBatch(NamedTuple):
    """Records in one state, as they are stored."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class Saved(NamedTuple):
    """The state of a share partition at some moment."""

    start_offset: int
    runs: tuple[RecordRun, ...]


@define(eq=False)
class SharePartition:
    """The records in flight of one group and partition.

    A ``delivery_limit`` is how often a record is delivered at most; what is given back after that is archived.
    """

    start_offset: int
    _runs: list[RecordRun] = field(factory=list)
    #: What has changed since it was stored, in this order.
    _changed: list[StateBatch] = field(factory=list)
    _stored_start: int = -1

    @classmethod
    def of(cls, start_offset: int, batches: Iterable[StateBatch]) -> "SharePartition":
        """Return a share partition as it was stored; what is not in ``batches`` has not been delivered.

        Later batches replace earlier ones.
        """
        partition = cls(start_offset)
        for batch in batches:
            partition._apply(batch)
        partition._advance()
        partition._stored_start = partition.start_offset
        return partition

    @property
    def end_offset(self) -> int:
        """The offset after the last record in flight."""
        return self._runs[-1].last + 1 if self._runs else self.start_offset

    @property
    def runs(self) -> Sequence[RecordRun]:
        """The records in flight, in the order of offsets and without gaps."""
        return self._runs

    @property
    def done(self) -> int:
        """The number of records in flight that are done."""
        return sum(run.last - run.first + 1 for run in self._runs if run.is_done)

    def next_deadline_ms(self) -> int | None:
        """Return when the first lock ends, or None if no record is locked."""
        return min((run.until_ms for run in self._runs if run.state is RecordState.ACQUIRED), default=None)

    # --- delivery ---------------------------------------------------------------------

    def next_range(self, offset: int, wanted: int, max_locks: int) -> tuple[int, int] | None:
        """Return the first range from ``offset`` on that may be acquired: its first and last offset.

        It has ``wanted`` records at most.  Behind the records in flight, it is as long as ``max_locks`` allows.
        """
        for run in self._runs:
            if run.last >= offset and run.state is RecordState.AVAILABLE:
                first = max(run.first, offset)
                return first, min(run.last, first + wanted - 1)
        first = max(self.end_offset, offset)
        room = min(wanted, max_locks - (first - self.start_offset))
        return (first, first + room - 1) if room > 0 else None

    def acquire(
        self, first: int, upto: int, visible: Iterable[tuple[int, int]], member_id: str, until_ms: int
    ) -> list[AcquiredRecords]:
        """Lock the records of a range for a member; ``upto`` is exclusive.

        ``visible`` has the offsets that have a record for readers, as ranges in order; what is between is archived.
        """
        if upto > self.end_offset:
            self._append(RecordRun(self.end_offset, upto - 1, RecordState.AVAILABLE))
        position = first
        acquired: list[AcquiredRecords] = []
        for begin, last in visible:
            if begin > position:
                self._change(position, begin - 1, _archived)
            for run in self._between(begin, last):
                assert run.state is RecordState.AVAILABLE, run
                acquired.append(AcquiredRecords(run.first, run.last, run.deliveries + 1))
            self._change(
                begin,
                last,
                lambda run: run._replace(
                    state=RecordState.ACQUIRED, deliveries=run.deliveries + 1, member_id=member_id, until_ms=until_ms
                ),
            )
            position = last + 1
        if position < upto:
            self._change(position, upto - 1, _archived)
        self._advance()
        return acquired

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], delivery_limit: int, until_ms: int
    ) -> None:
        """Apply acknowledgements of a member; renewed locks last until ``until_ms``.

        What lies before the start offset is skipped: it was deleted, or the offsets were altered.

        Raises:
            BrokerError: a record is not locked by this member (``INVALID_RECORD_STATE``); nothing is changed then.
        """
        before = self.saved()
        try:
            for batch in batches:
                for first, last, kind in _pieces(batch):
                    if last >= self.start_offset:
                        self._acknowledge(
                            member_id, max(first, self.start_offset), last, kind, delivery_limit, until_ms
                        )
        except BrokerError:
            self.restore(before)
            raise
        self._advance()

    def _acknowledge(
        self, member_id: str, first: int, last: int, kind: int, delivery_limit: int, until_ms: int
    ) -> None:
        if last >= self.end_offset:
            raise BrokerError(
                f"The records {first} to {last} cannot be acknowledged: none from {self.end_offset} on was delivered.",
                code=ErrorCode.INVALID_RECORD_STATE,
            )
        for run in self._between(first, last):
            if run.state is not RecordState.ACQUIRED or run.member_id != member_id:
                why = "another member has them" if run.state is RecordState.ACQUIRED else f"they are {run.state.name}"
                raise BrokerError(
                    f"The records {run.first} to {run.last} cannot be acknowledged by member {member_id}: {why}.",
                    code=ErrorCode.INVALID_RECORD_STATE,
                )
        if kind == RENEW:
            self._change(first, last, lambda run: run._replace(until_ms=until_ms))
        else:
            self._free(self._between(first, last), _AFTER[kind], delivery_limit)

    def release(self, member_id: str, delivery_limit: int) -> bool:
        """Make the records available that a member has locked; return whether there were any."""
        return self._release(
            [run for run in self._runs if run.state is RecordState.ACQUIRED and run.member_id == member_id],
            delivery_limit,
        )

    def expire(self, now_ms: int, delivery_limit: int) -> bool:
        """Make the records available whose locks have ended; return whether there were any."""
        return self._release(
            [run for run in self._runs if run.state is RecordState.ACQUIRED and run.until_ms <= now_ms], delivery_limit
        )

    def _release(self, found: Sequence[RecordRun], delivery_limit: int) -> bool:
        self._free(found, RecordState.AVAILABLE, delivery_limit)
        self._advance()
        return bool(found)

    def _free(self, runs: Iterable[RecordRun], state: RecordState, delivery_limit: int) -> None:
        for run in list(runs):
            is_last = state is RecordState.AVAILABLE and run.deliveries >= delivery_limit
            after = RecordState.ARCHIVED if is_last else state
            self._change(run.first, run.last, _FREED_AS[after])
            self._changed.append(StateBatch(run.first, run.last, after, run.deliveries))

    def truncate(self, offset: int) -> None:
        """Raise the start offset, because the records before it were deleted."""
        if offset <= self.start_offset:
            return
        self._runs = [
            run if run.first >= offset else run._replace(first=offset) for run in self._runs if run.last >= offset
        ]
        self.start_offset = offset
        self._advance()

    def cut(self, end_offset: int) -> None:
        """Forget the records from ``end_offset`` on, because the log has lost them."""
        self._runs = [run._replace(last=min(run.last, end_offset - 1)) for run in self._runs if run.first < end_offset]
        self.start_offset = min(self.start_offset, end_offset)

    # --- storing ----------------------------------------------------------------------

    def saved(self) -> Saved:
        """Return the present state, for ``restore``."""
        return Saved(self.start_offset, tuple(self._runs))

    def restore(self, before: Saved) -> None:
        """Return to an earlier state, because what followed could not be stored."""
        self.start_offset, self._runs = before.start_offset, list(before.runs)
        self._changed.clear()
        self._stored_start = -1

    def batches(self) -> list[StateBatch]:
        """Return the whole state as it is stored: what is locked counts as not delivered by that."""
        stored = (
            StateBatch(run.first, run.last, RecordState.AVAILABLE, run.deliveries - 1)
            if run.state is RecordState.ACQUIRED
            else StateBatch(run.first, run.last, run.state, run.deliveries)
            for run in self._runs
        )
        return [batch for batch in stored if batch.delivery_state or batch.delivery_count]

    def take_changes(self) -> list[StateBatch] | None:
        """Return what must be stored since the last call, or None if nothing has changed."""
        if not self._changed and self.start_offset == self._stored_start:
            return None
        changed = [batch for batch in self._changed if batch.last_offset >= self.start_offset]
        self._changed.clear()
        self._stored_start = self.start_offset
        return changed

    # --- runs -------------------------------------------------------------------------

    def _apply(self, batch: StateBatch) -> None:
        """Set the state of stored records; those between them and the others have not been delivered."""
        first, last = max(batch.first_offset, self.start_offset), batch.last_offset
        if last < first:
            return
        if last >= self.end_offset:
            self._append(RecordRun(self.end_offset, last, RecordState.AVAILABLE))
        state = RecordState(batch.delivery_state)
        self._change(first, last, lambda run: RecordRun(run.first, run.last, state, batch.delivery_count))

    def _between(self, first: int, last: int) -> Iterator[RecordRun]:
        """Yield the runs between two offsets in flight, cut to them."""
        for run in self._runs[self._index(first) : self._index(last) + 1]:
            yield run._replace(first=max(run.first, first), last=min(run.last, last))

    def _index(self, offset: int) -> int:
        return bisect_right(self._runs, offset, key=_first_of) - 1

    def _append(self, run: RecordRun) -> None:
        self._runs.append(run)

    def _change(self, first: int, last: int, change: Callable[[RecordRun], RecordRun]) -> None:
        """Change the records between two offsets in flight; runs that have become equal are one then."""
        low, high = self._index(first), self._index(last) + 1
        parts: list[RecordRun] = []
        if self._runs[low].first < first:
            parts.append(self._runs[low]._replace(last=first - 1))
        parts += map(change, self._between(first, last))
        if self._runs[high - 1].last > last:
            parts.append(self._runs[high - 1]._replace(first=last + 1))
        low, before = max(low - 1, 0), self._runs[max(low - 1, 0) : low]
        after = self._runs[high : high + 1]
        self._runs[low : high + len(after)] = _merged([*before, *parts, *after])

    def _advance(self) -> None:
        """Move the start offset to the first record that is not done."""
        count = next((place for place, run in enumerate(self._runs) if not run.is_done), len(self._runs))
        if count:
            self.start_offset = self._runs[count - 1].last + 1
            del self._runs[:count]


def _first_of(run: RecordRun) -> int:
    return run.first


def _freed(run: RecordRun, state: RecordState) -> RecordRun:
    return RecordRun(run.first, run.last, state, run.deliveries)


def _archived(run: RecordRun) -> RecordRun:
    return _freed(run, RecordState.ARCHIVED)


_FREED_AS: Final[Mapping[RecordState, Callable[[RecordRun], RecordRun]]] = {
    state: partial(_freed, state=state) for state in RecordState
}


def _merged(runs: Iterable[RecordRun]) -> list[RecordRun]:
    merged: list[RecordRun] = []
    for run in runs:
        if merged and merged[-1][2:] == run[2:]:
            merged[-1] = merged[-1]._replace(last=run.last)
        else:
            merged.append(run)
    return merged


def _pieces(batch: AcknowledgementBatch) -> Iterator[tuple[int, int, int]]:
    """Yield (first offset, last offset, type) of the records of a batch; neighbours with one type at once."""
    types = batch.types
    if len(types) == 1:
        yield batch.first_offset, batch.last_offset, types[0]
        return
    begin = 0
    for place in range(1, len(types) + 1):
        if place == len(types) or types[place] != types[begin]:
            yield batch.first_offset + begin, batch.first_offset + place - 1, types[begin]
            begin = place
