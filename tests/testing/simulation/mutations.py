"""Deliberate bugs, each put in for the time of a ``with`` block.

What the simulation is worth shows in whether it finds them; ``FOUND`` says with which seed it does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streams.broker.producers import ProducerLedger
from streams.broker.transactions import TransactionCoordinator
from streams.clients import fetcher
from streams.clients.producer import Producer
from streams.group.coordinator import Coordinator
from streams.protocol.messages import ErrorCode
from streams.runtime import assignment, restore
from streams.runtime.committing import Committer
from streams.runtime.task import Task
from streams.runtime.task_set import TaskSet
from streams.runtime.thread import StreamThread


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def commits_of_anybody():
    """The coordinator takes a commit without looking at member and generation."""
    return _replaced(Coordinator, "_validate_commit", lambda self, request, now_ms: ErrorCode.NONE)


def offsets_before_outputs():
    """Offsets are committed before what came of their records is flushed."""

    def commit(self, tasks):
        for task in tasks:
            task.flush_caches()
        if tasks and not self.is_exactly_once:
            self._consumer.commit_sync(self._offsets_of(tasks))
        original(self, tasks)

    original = Committer.commit
    return _replaced(Committer, "commit", commit)


def position_moves_on_fetch():
    """A record counts as processed when it was fetched."""

    def positions(self):
        return {queue.partition: queue.fetched for queue in self.queues if queue.fetched is not None}

    return _replaced(Task, "positions", positions)


def changelog_outside_of_the_transaction():
    """Changelog entries of a transaction that is aborted stay."""

    def repaired(self, block):
        return False if "changelog" in self.partition.topic else original(self, block)

    def aborted_between(self, start, end):
        return () if "changelog" in self.partition.topic else other(self, start, end)

    original, other = ProducerLedger.is_aborted, ProducerLedger.aborted_between

    @contextmanager
    def both():
        with (
            _replaced(ProducerLedger, "is_aborted", repaired),
            _replaced(ProducerLedger, "aborted_between", aborted_between),
        ):
            yield

    return both()


def restore_from_the_middle():
    """Restoring begins behind the position that the store has."""

    def restoring(task_id, store, start, position, end):
        return original(task_id, store, start, position + 3, end)

    original = restore._Restoring
    return _replaced(restore, "_Restoring", restoring)


def zombies_write_on():
    """Nobody is fenced: a transactional id keeps its epoch, whoever asks for it."""
    return _replaced(TransactionCoordinator, "_renewed", lambda self, known: known)


def repetitions_are_appended():
    """A log appends what an idempotent producer sends again."""
    return _replaced(ProducerLedger, "repeated", lambda self, block: None)


def state_before_commit():
    """Stores are written before the transaction that their content belongs to is committed."""

    def commit(self, tasks):
        for task in tasks:
            task.flush_caches()
            self.send(task)
            self._send_changes(task)
            task.write_state({})
        original(self, tasks)

    original = Committer.commit
    return _replaced(Committer, "commit", commit)


def two_owners():
    """Partitions are given to their new owner before the old one has given them up."""
    return _replaced(assignment, "withhold_owned", lambda wanted, members: {m: list(p) for m, p in wanted.items()})


def aborted_records_are_read():
    """A read_committed consumer hands out what was aborted."""

    def everything(blocks, aborted):
        for block in blocks:
            stamp = block.producer
            yield block, stamp is None or not stamp.is_control

    return _replaced(fetcher, "_marked", everything)


def offsets_are_forgotten():
    """A restarted coordinator knows members but no committed offsets."""

    def load(self, blocks):
        original(self, blocks)
        for group in self._groups:
            group.offsets.clear()

    original = Coordinator.load
    return _replaced(Coordinator, "load", load)


def uncommitted_state_becomes_a_copy():
    """A task that is closed without a commit leaves its stores open, uncommitted writes and all."""

    def close(self, task, *, keeps_stores=False):
        for store in task.stores.values():
            store.commit({})
        original(self, task, keeps_stores=keeps_stores)

    original = TaskSet.close
    return _replaced(TaskSet, "close", close)


def half_done_work_goes_on():
    """A task in whose processing a request timed out goes on as if nothing had happened."""

    def start_anew(self, error):
        if type(error).__name__ != "RequestTimeoutError":
            original(self, error)

    original = StreamThread._start_anew
    return _replaced(StreamThread, "_start_anew", start_anew)


def flush_does_not_wait():
    """The producer's flush returns at once."""
    return _replaced(Producer, "flush", lambda self, timeout_ms=None: None)


ALL: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        commits_of_anybody,
        offsets_before_outputs,
        position_moves_on_fetch,
        changelog_outside_of_the_transaction,
        restore_from_the_middle,
        zombies_write_on,
        repetitions_are_appended,
        state_before_commit,
        two_owners,
        aborted_records_are_read,
        offsets_are_forgotten,
        uncommitted_state_becomes_a_copy,
        half_done_work_goes_on,
        flush_does_not_wait,
    )
}

#: World, guarantee and seed with which each is found.
FOUND: dict[str, tuple[str, str, int]] = {
    "commits_of_anybody": ("word count", "at_least_once", 1),
    "offsets_before_outputs": ("word count", "at_least_once", 34),
    "position_moves_on_fetch": ("windowed join", "at_least_once", 112),
    "changelog_outside_of_the_transaction": ("word count", "exactly_once_v2", 0),
    "restore_from_the_middle": ("word count", "exactly_once_v2", 16),
    "zombies_write_on": ("word count", "exactly_once_v2", 29),
    "repetitions_are_appended": ("word count", "at_least_once", 0),
    "state_before_commit": ("word count", "exactly_once_v2", 2),
    "two_owners": ("word count", "exactly_once_v2", 4),
    "aborted_records_are_read": ("word count", "exactly_once_v2", 0),
    "offsets_are_forgotten": ("word count", "exactly_once_v2", 2),
    "uncommitted_state_becomes_a_copy": ("word count", "exactly_once_v2", 2),
    "flush_does_not_wait": ("word count", "at_least_once", 0),
}
