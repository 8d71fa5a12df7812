"""Deliberate bugs, each put in for the time of a ``with`` block.

What the simulation is worth shows in whether it finds them; ``FOUND`` says with which seed it does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streams.broker.logs.producers import ProducerLedger
from streams.broker.transactions import TransactionCoordinator
from streams.clients.consumer import fetcher
from streams.clients.consumer.fetch_session import Asked, FetchSession
from streams.clients.errors import DisconnectedError, RequestTimeoutError
from streams.clients.network import Backoff, Network
from streams.clients.producer.accumulator import Accumulator
from streams.clients.producer.sender import Sender
from streams.clients.producer.transactor import Transactor
from streams.clients.tcp.channel import Channel
from streams.dsl.processing import early_processor as early
from streams.dsl.processing import own_window_processor as own_windows
from streams.dsl.processing.in_flight import RecordsInFlight
from streams.dsl.processing.joins import asof_join_processor as asof_join
from streams.group.classic.coordinator import Coordinator
from streams.group.client.member import Member, MemberState
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, SyncGroup
from streams.protocol.messages import AddPartitionsToTxnResponse, EndTxn, EndTxnResponse, Produced, ProduceResponse
from streams.runtime.assignment import assignment
from streams.runtime.plan.sharing import Sharing
from streams.runtime.stores import restore
from streams.runtime.tasks.calls import TaskCalls
from streams.runtime.tasks.idle import IdleClose, IdleGroup
from streams.runtime.tasks.queues import TaskQueues
from streams.runtime.tasks.task import Task
from streams.runtime.threads.committing import Committer
from streams.runtime.threads.task_set import TaskSet
from streams.runtime.threads.thread import StreamThread
from streams.state import Store
from streams.state.views.expiring import ExpiringLayout


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def standby_replicas_ignore_tags():
    """Standby replicas are placed as if instances had no tags."""
    return _replaced(Sharing, "_tags_of", lambda self, member: [])


@contextmanager
def idle_without_looking_at_the_log():
    """Inputs count as idle while records wait in their log."""
    at_end = property(lambda self: not any(queue.size for queue in self.queues))
    with _replaced(IdleGroup, "is_at_end", at_end), _replaced(IdleClose, "waits_for_answers", lambda *_: False):
        yield


def commits_of_anybody():
    """The coordinator takes commits without looking at the generation."""
    return _replaced(Coordinator, "_validate_commit", lambda self, request, now_ms: ErrorCode.NONE)


def polls_while_records_are_fetched():
    """A thread polls without a pause while its records wait for those of another partition."""
    return _replaced(TaskQueues, "awaits_fetch", False)


def offsets_before_outputs():
    """Offsets are committed before outputs are flushed."""

    def commit(self, tasks):
        for task in tasks:
            task.prepare_commit()
            # Their changelog ends are those of the last commit.
            self._changes.setdefault(task.task_id, {})
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
    """Changelog entries of an aborted transaction stay."""

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
    """Restoring begins after the store's position."""

    def restoring(task_id, store, start, position, *rest):
        return original(task_id, store, start, position + 3, *rest)

    original = restore._Restoring
    return _replaced(restore, "_Restoring", restoring)


def zombies_write_on():
    """A transactional id keeps its epoch: zombies are not fenced."""
    return _replaced(TransactionCoordinator, "_renewed", lambda self, known: known)


def repetitions_are_appended():
    """Repetitions of an idempotent producer are appended."""
    return _replaced(ProducerLedger, "repeated", lambda self, block: None)


def entries_that_suppress_are_logged_first():
    """Ids of a deduplication are logged before the other results of their records."""

    def send_changes(self, task):
        self._changes.setdefault(task.task_id, {})
        changes = sorted(task.take_changes(), key=lambda change: not task.stores[change[0]].spec.is_logged_last)
        for name, block in changes:
            self._send_change(task, name, block)
            self.producer.flush()
        return []

    return _replaced(Committer, "_send_changes", send_changes)


def restored_rows_do_not_expire():
    """A restore does not index the expiry times of rows."""
    return _replaced(ExpiringLayout, "restore", lambda self, block: self.plain.restore(block))


def waiting_records_are_not_loaded():
    """Records that wait in an as-of join are not loaded from their store."""
    return _replaced(asof_join._Waiting, "load", lambda self: None)


def open_windows_are_not_loaded():
    """Windows with early results are not loaded from their store."""
    return _replaced(early._Windows, "load", lambda self: None)


def windows_of_a_windower_are_not_loaded():
    """Open windows of a windower are not loaded from their store."""
    return _replaced(own_windows._Closer, "load", lambda self: None)


def numbers_are_not_restored():
    """The numbers of records of count windows begin at 0 after a restore."""

    def restore(self, block):
        if not self.spec.name.endswith("-numbers"):
            original(self, block)

    original = Store.restore
    return _replaced(Store, "restore", restore)


def state_before_commit():
    """Stores are written before the transaction is committed."""

    def commit(self, tasks):
        for task in tasks:
            task.prepare_commit()
            self.send(task)
            self._send_changes(task)
            task.write_state({})
        original(self, tasks)

    original = Committer.commit
    return _replaced(Committer, "commit", commit)


def two_owners():
    """Partitions are given before their old owner has given them up."""
    return _replaced(assignment, "withhold_owned", lambda wanted, members: {m: list(p) for m, p in wanted.items()})


def aborted_records_are_read():
    """Aborted records are handed out."""

    def everything(blocks, aborted):
        for block, end in blocks:
            stamp = block.producer
            yield block, end, bool(len(block)) and (stamp is None or not stamp.is_control)

    return _replaced(fetcher, "_marked", everything)


def offsets_are_forgotten():
    """A restarted coordinator has forgotten the committed offsets."""

    def load(self, blocks):
        original(self, blocks)
        for group in self._groups:
            group.offsets.clear()

    original = Coordinator.load
    return _replaced(Coordinator, "load", load)


def uncommitted_state_becomes_a_copy():
    """A task closed without a commit leaves its writes in the store."""

    def close(self, task, *, keeps_stores=False):
        for store in task.stores.values():
            store.commit({})
        original(self, task, keeps_stores=keeps_stores)

    original = TaskSet.close
    return _replaced(TaskSet, "close", close)


def half_done_work_goes_on():
    """A task in whose processing a request timed out goes on as if nothing had happened."""

    def restart(self, error):
        if type(error).__name__ != "RequestTimeoutError":
            original(self, error)

    original = StreamThread.restart
    return _replaced(StreamThread, "restart", restart)


def flush_does_not_wait():
    """Offsets are committed without waiting for what was sent."""
    return _replaced(Committer, "flush", lambda self: None)


# --- connections: what follows from a lost one ------------------------------------------------


def member_waits_for_a_lost_join():
    """A member waits for a join that was lost with its connection."""

    def on_response(self, request, response, now_ms):
        if not (isinstance(response, Exception) and isinstance(request, (JoinGroup, SyncGroup))):
            original(self, request, response, now_ms)

    original = Member.on_response
    return _replaced(Member, "on_response", on_response)


def heartbeats_end_with_their_connection():
    """Heartbeats end with a lost connection."""

    def on_heartbeat(self, response, sent_ms, now_ms):
        if isinstance(response, Exception):
            self._next_heartbeat_ms = now_ms + 10**9
        else:
            original(self, response, sent_ms, now_ms)

    original = Member._on_heartbeat
    return _replaced(Member, "_on_heartbeat", on_heartbeat)


def partitions_of_a_removed_member_are_kept():
    """A member that the group has removed keeps its partitions."""

    def reset(self, *, keep_member_id):
        policy, self._policy = self._policy, _Keeping(self._policy)
        original(self, keep_member_id=keep_member_id)
        self._policy = policy

    class _Keeping:
        def __init__(self, policy):
            self._policy = policy

        def lost(self):
            return []

        def __getattr__(self, name):
            return getattr(self._policy, name)

    original = Member._reset
    return _replaced(Member, "_reset", reset)


def rejoins_with_a_wrong_member_id():
    """A member joins again with an id that the group does not know."""

    def coordinator_lost(self, now_ms):
        original(self, now_ms)
        self.member_id = "unknown"
        self._reset = lambda keep_member_id: self._become(MemberState.UNJOINED)

    original = Member._coordinator_lost
    return _replaced(Member, "_coordinator_lost", coordinator_lost)


def unanswered_records_count_as_written():
    """Records whose request was not answered count as written."""

    def receive(self, batches, sent_ns, response):
        if isinstance(response, DisconnectedError):
            response = ProduceResponse({batch.partition: Produced(ErrorCode.NONE, 0) for batch in batches})
        original(self, batches, sent_ns, response)

    original = Sender._receive
    return _replaced(Sender, "_receive", receive)


def retried_with_a_new_sequence():
    """Records that are sent again get new sequence numbers."""

    def retry(self, batch, *rest):
        queue = self.accumulator._queues[batch.partition]
        if batch.block.producer is not None:
            self._stamp(queue, batch)
        original(self, batch, *rest)

    original = Sender._retry
    return _replaced(Sender, "_retry", retry)


def half_of_a_large_request_is_dropped():
    """Half of a request that was too large is dropped."""

    def split(self, batch):
        is_split = original(self, batch)
        queue = self._queues[batch.partition]
        if is_split:
            self.finish(queue.parcels[-1], is_acknowledged=True)
        return is_split

    original = Accumulator.split
    return _replaced(Accumulator, "split", split)


def partitions_count_as_added_without_an_answer():
    """Partitions count as part of a transaction although adding them was not answered."""

    def on_partitions(self, serial, question, response):
        if isinstance(response, DisconnectedError):
            response = AddPartitionsToTxnResponse(
                dict.fromkeys(self.transaction.add_request().partitions, ErrorCode.NONE)
            )
        original(self, serial, question, response)

    original = Sender._on_partitions
    return _replaced(Sender, "_on_partitions", on_partitions)


def transaction_ends_without_an_answer():
    """A commit or abort that got no response counts as done."""

    def attempt(self, group_id, request, *others):
        response = original(self, group_id, request, *others)
        if isinstance(request, EndTxn) and isinstance(response, RequestTimeoutError):
            return EndTxnResponse(ErrorCode.NONE)
        return response

    original = Transactor._attempt
    return _replaced(Transactor, "_attempt", attempt)


def lost_fetch_stays_in_flight():
    """A lost fetch is waited for."""

    def receiver(self, node, session):
        receive = original(self, node, session)
        return lambda response: None if isinstance(response, DisconnectedError) else receive(response)

    original = fetcher.Fetcher._receiver
    return _replaced(fetcher.Fetcher, "_receiver", receiver)


def lost_fetch_moves_the_position():
    """A lost fetch moves the position."""

    def receiver(self, node, session):
        def act(response):
            if isinstance(response, DisconnectedError):
                for state, position in session.asked.values():
                    state.position = position + 1
            receive(response)

        receive = original(self, node, session)
        return act

    original = fetcher.Fetcher._receiver
    return _replaced(fetcher.Fetcher, "_receiver", receiver)


def response_for_an_earlier_position_is_taken():
    """A fetch response counts for the position at which the partition is now."""

    def receiver(self, node, session):
        def act(response):
            states, asked = self._subscription.partitions, session.asked
            session.asked = {p: Asked(states[p], states[p].position) for p in asked if p in states}
            receive(response)

        receive = original(self, node, session)
        return act

    original = fetcher.Fetcher._receiver
    return _replaced(fetcher.Fetcher, "_receiver", receiver)


def lost_fetch_leaves_the_session_as_it_was():
    """A fetch that got no response is followed by the next epoch of its session."""

    def on_failure(self):
        self.is_open = False
        self._epoch += 1

    return _replaced(FetchSession, "on_failure", on_failure)


def lost_address_is_not_tried_again():
    """An address whose connection was lost is not tried again."""
    return _replaced(Backoff, "after", lambda self, attempts: 10**9)


def requests_in_flight_are_forgotten():
    """Requests in flight on a lost connection get no outcome, and neither do those that time out."""

    def expire(self):
        now = self.now_ms()
        for pending in self._pending.values():
            if pending.deadline_ms <= now:
                pending.on_done = None
        return original(self)

    @contextmanager
    def both():
        with _replaced(Channel, "unanswered", lambda self, error: []), _replaced(Network, "_expire", expire):
            yield

    original = Network._expire
    return both()


def calls_in_flight_are_not_stored():
    """A commit does not store the records whose calls are in flight."""
    return _replaced(TaskCalls, "save", lambda self: None)


def batches_do_not_end_with_a_commit():
    """A commit does not process the records of a batch that waits for more."""

    def prepare_commit(self):
        waiting, self.batches = self.batches, []
        original(self)
        self.batches = waiting

    original = Task.prepare_commit
    return _replaced(Task, "prepare_commit", prepare_commit)


def records_that_wait_are_not_loaded():
    """Records that waited for a look-up at a commit are not looked up again."""
    return _replaced(RecordsInFlight, "load", lambda self, owner, lane: iter(()))


ALL: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        standby_replicas_ignore_tags,
        batches_do_not_end_with_a_commit,
        calls_in_flight_are_not_stored,
        records_that_wait_are_not_loaded,
        commits_of_anybody,
        offsets_before_outputs,
        position_moves_on_fetch,
        changelog_outside_of_the_transaction,
        restore_from_the_middle,
        zombies_write_on,
        repetitions_are_appended,
        entries_that_suppress_are_logged_first,
        restored_rows_do_not_expire,
        waiting_records_are_not_loaded,
        open_windows_are_not_loaded,
        numbers_are_not_restored,
        windows_of_a_windower_are_not_loaded,
        state_before_commit,
        two_owners,
        aborted_records_are_read,
        offsets_are_forgotten,
        uncommitted_state_becomes_a_copy,
        half_done_work_goes_on,
        flush_does_not_wait,
        member_waits_for_a_lost_join,
        heartbeats_end_with_their_connection,
        partitions_of_a_removed_member_are_kept,
        rejoins_with_a_wrong_member_id,
        unanswered_records_count_as_written,
        retried_with_a_new_sequence,
        half_of_a_large_request_is_dropped,
        partitions_count_as_added_without_an_answer,
        transaction_ends_without_an_answer,
        lost_fetch_stays_in_flight,
        lost_fetch_moves_the_position,
        response_for_an_earlier_position_is_taken,
        lost_fetch_leaves_the_session_as_it_was,
        lost_address_is_not_tried_again,
        idle_without_looking_at_the_log,
        requests_in_flight_are_forgotten,
        polls_while_records_are_fetched,
    )
}

#: World, guarantee and seed with which each is found; worlds without faults do not show it.  Those of ``ALL`` that are
#: missing here are listed as not found in docs/guide/rules-simulation.md.
FOUND: dict[str, tuple[str, str, int]] = {
    "commits_of_anybody": ("word count", "exactly_once_v2", 4),
    "offsets_before_outputs": ("windowed join", "at_least_once", 0),
    "changelog_outside_of_the_transaction": ("word count", "exactly_once_v2", 1),
    "restore_from_the_middle": ("word count", "exactly_once_v2", 6),
    "zombies_write_on": ("two tables", "exactly_once_v2", 23),
    "repetitions_are_appended": ("word count", "at_least_once", 1),
    "entries_that_suppress_are_logged_first": ("deduplicated", "at_least_once", 17),
    "state_before_commit": ("word count", "exactly_once_v2", 0),
    "two_owners": ("two tables", "exactly_once_v2", 120),
    "aborted_records_are_read": ("word count", "exactly_once_v2", 1),
    "offsets_are_forgotten": ("word count", "exactly_once_v2", 0),
    "uncommitted_state_becomes_a_copy": ("word count", "exactly_once_v2", 0),
    "restored_rows_do_not_expire": ("expiring", "exactly_once_v2", 2),
    "waiting_records_are_not_loaded": ("latest", "exactly_once_v2", 0),
    "open_windows_are_not_loaded": ("early results", "exactly_once_v2", 0),
    "numbers_are_not_restored": ("count windows", "exactly_once_v2", 4),
    "windows_of_a_windower_are_not_loaded": ("own windows", "exactly_once_v2", 2),
    "half_done_work_goes_on": ("routed", "exactly_once_v2", 97),
    "flush_does_not_wait": ("two tables", "at_least_once", 33),
    "member_waits_for_a_lost_join": ("word count", "exactly_once_v2", 3),
    "heartbeats_end_with_their_connection": ("word count", "exactly_once_v2", 5),
    "partitions_of_a_removed_member_are_kept": ("two tables", "exactly_once_v2", 52),
    "rejoins_with_a_wrong_member_id": ("word count", "exactly_once_v2", 0),
    "unanswered_records_count_as_written": ("word count", "exactly_once_v2", 0),
    "retried_with_a_new_sequence": ("word count", "exactly_once_v2", 1),
    "half_of_a_large_request_is_dropped": ("word count", "exactly_once_v2", 1),
    "lost_fetch_stays_in_flight": ("word count", "exactly_once_v2", 0),
    "lost_fetch_moves_the_position": ("word count", "exactly_once_v2", 0),
    "lost_fetch_leaves_the_session_as_it_was": ("word count", "exactly_once_v2", 0),
    "lost_address_is_not_tried_again": ("word count", "at_least_once", 0),
    "requests_in_flight_are_forgotten": ("word count", "exactly_once_v2", 0),
    "position_moves_on_fetch": ("windowed join", "exactly_once_v2", 1),
    "partitions_count_as_added_without_an_answer": ("word count", "exactly_once_v2", 3),
    "transaction_ends_without_an_answer": ("word count", "exactly_once_v2", 7),
    "batches_do_not_end_with_a_commit": ("batches", "exactly_once_v2", 0),
    "records_that_wait_are_not_loaded": ("look-ups", "exactly_once_v2", 0),
    "calls_in_flight_are_not_stored": ("async calls", "exactly_once_v2", 0),
    "polls_while_records_are_fetched": ("look-ups", "exactly_once_v2", 22),
    "standby_replicas_ignore_tags": ("zones", "exactly_once_v2", 0),
    "idle_without_looking_at_the_log": ("closed windows", "exactly_once_v2", 0),
}
