"""The group session of a consumer: performs the actions of the member's state machine, and commits offsets.

The session sends group requests, calls the rebalance listener, runs the assignor if this member is the leader,
and watches the group's topics.  All of this happens inside the consumer's ``poll``.
Of the other packages, this module imports only ``core``, ``group`` and ``protocol``.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from streams.clients.consumer.consumer_parts import ConsumerParts
from streams.clients.consumer.fetcher import Fetcher
from streams.clients.consumer.membership_requests import MembershipRequests
from streams.clients.errors import FORBIDDEN, RequestTimeoutError, as_error, error_for, is_final, is_transient
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Deadline
from streams.core.errors import BrokerError, ConfigError, StreamsError
from streams.core.user_code import refuse_result, refuse_unawaited_methods
from streams.group import (
    Assign,
    Assignor,
    ConsumerHeartbeats,
    ConsumerMembership,
    EpochMember,
    Failed,
    Lose,
    Member,
    MemberConfig,
    PerformAssignment,
    Revoke,
    Send,
    StreamsHeartbeats,
    TaskHost,
    decode_assignment,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    ConsumerGroupHeartbeat,
    LeaveGroup,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
)
from streams.protocol.messages import FindCoordinator, Metadata, MetadataResponse
from streams.protocol.request import Response
from streams.protocol.streams_group_messages import StreamsGroupHeartbeat
from streams.protocol.transport import ANY_NODE

log = logging.getLogger(__name__)

#: Offsets to commit, with metadata.
Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

#: Called when a commit completes, with the offsets, and the error or None.
CommitCallback: TypeAlias = Callable[[Offsets, BrokerError | None], None]


class RebalanceListener:
    """A listener for assignment changes, called inside ``poll``.  Override the methods that you need."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle newly assigned partitions; this method may call ``seek``."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle a revocation.  The partitions are still owned until this method returns, so commit here."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle lost partitions.  Another member may own them, and a commit would be rejected."""
        self.on_partitions_revoked(partitions)


_LISTENER_METHODS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


def checked_listener(listener: RebalanceListener | None) -> RebalanceListener:
    """Return ``listener``, or a listener that does nothing if it is None.

    Raises:
        ConfigError: a method of the listener is async or a generator function, which would never run.
    """
    refuse_unawaited_methods(listener, _LISTENER_METHODS, "rebalance listener", error=ConfigError)
    return RebalanceListener() if listener is None else listener


def _member_config(parts: ConsumerParts) -> MemberConfig:
    settings = parts.settings
    return MemberConfig(
        parts.group_id,
        settings.client_id,
        settings.group_instance_id or None,
        settings.session_timeout_ms,
        settings.heartbeat_interval_ms,
        settings.max_poll_interval_ms,
        settings.client.retry_backoff_ms,
    )


class GroupSession:
    """The group membership and offset commits of one consumer.

    ``assignors`` are those of a classic group.  With ``host``, the consumer is that of a stream thread in a streams
    group.
    """

    def __init__(
        self, parts: ConsumerParts, fetcher: Fetcher, assignors: Sequence[Assignor], host: TaskHost | None = None
    ) -> None:
        self._config = _member_config(parts)
        self._settings = parts.settings
        self._host = host
        self.policy = ConsumerMembership(assignors, self._config.group_instance_id, self._settings.client_rack or None)
        self._metadata = parts.metadata
        self.member = self._new_member()
        self.listener = RebalanceListener()
        #: Called before partitions are revoked, for auto-commit.
        self.before_revoke: Callable[[], None] = lambda: None
        self.group_topics: set[str] = set()
        #: Whether partitions are assigned manually, so that the group only stores offsets.
        self.is_manual = True
        self._network = parts.network
        self._sensors = parts.sensors
        self._clock = parts.clock
        self._subscription = parts.subscription
        self._fetcher = fetcher
        self._actions: deque[object] = deque()
        self._snapshot: dict[str, int] | None = None
        self._assignment_due: tuple[PerformAssignment, Response | Exception] | None = None
        self._requests = MembershipRequests(parts.network, parts.clock, parts.group_id, lambda: self.member)
        self._next_plain_ms = 0

    def _new_member(self) -> Member | EpochMember:
        config, settings = self._config, self._settings
        rack_id = settings.client_rack or None
        if self._host is not None:
            return EpochMember(config, StreamsHeartbeats(config, self._host, rack_id))
        if settings.group_protocol == "classic":
            return Member(config, self.policy)
        assignor = settings.group_remote_assignor or None
        names = self._metadata.names_by_id
        heartbeats = ConsumerHeartbeats(config, self.policy, names, rack_id=rack_id, server_assignor=assignor)
        return EpochMember(config, heartbeats)

    # --- membership -------------------------------------------------------------------

    @property
    def needs_metadata(self) -> bool:
        return isinstance(self.member, EpochMember) and self.member.needs_metadata

    def poll(self, *, by_application: bool = True) -> bool:
        """Perform due membership actions; return whether there were any.

        Raises:
            MemberFencedError: another process has this group instance id.
            BrokerError: the group cannot be joined, or the broker does not support it.
        """
        self._requests.check()
        if self.is_manual:
            return self._find_coordinator()
        if not self.policy.topics and not self.member.member_id:
            # The pattern matches no topic yet.
            return False
        has_progress = self._run_assignor()
        while True:
            if not self._actions:
                self._actions.extend(self.member.poll(self._clock.monotonic_ms(), by_application=by_application))
                if not self._actions:
                    return has_progress
            has_progress = True
            # The action is removed first, so that a listener that raises is not called again for the same event.
            self._perform(self._actions.popleft())

    def keep_alive(self) -> int:
        """Perform membership actions while the application is busy; return the milliseconds until the next call.

        This sends heartbeats, and leaves the group if the application exceeds ``max_poll_interval_ms``.  A rebalance
        needs the application's next ``poll``; until then heartbeats keep the session alive.
        """
        self._network.poll(0)
        now = self._clock.monotonic_ms()
        member = self.member
        config = self._config
        interval_ms = max(1, config.heartbeat_interval_ms // 3)
        if self._requests.is_over or self.is_manual or member.generation_id < 0 or member.coordinator is None:
            return interval_ms
        if not self._actions:
            self._actions.extend(member.poll(now, by_application=False))
        while self._actions and isinstance(self._actions[0], Send):
            self._perform(self._actions.popleft())
        if (self._actions or self._assignment_due is not None) and now >= self._next_plain_ms:
            self._next_plain_ms = now + config.heartbeat_interval_ms
            if (heartbeat := member.sign_of_life(now)) is not None:
                self._perform(heartbeat)
        self._network.poll(0)
        deadline_ms = member.next_deadline_ms()
        # What is due already is left to the application.
        return interval_ms if deadline_ms is None or deadline_ms <= now else min(interval_ms, deadline_ms - now)

    def next_deadline_ms(self) -> int | None:
        """Return when the next membership action is due, or None."""
        if self.is_manual:
            return self.member.next_deadline_ms() if self.member.coordinator is None else None
        return self.member.next_deadline_ms() if self.policy.topics or self.member.member_id else None

    def _find_coordinator(self) -> bool:
        actions = self.member.find_coordinator(self._clock.monotonic_ms())
        for action in actions:
            self._perform(action)
        return bool(actions)

    def subscribe(self, topics: Sequence[str], topic_regex: str = "") -> None:
        """Set the subscribed topics; join or rejoin the group if they have changed."""
        self.is_manual = False
        if (tuple(topics), topic_regex) != (self.policy.topics, self.policy.topic_regex):
            self.policy.topics = tuple(topics)
            self.policy.topic_regex = topic_regex
            self.member.request_rejoin("the subscription has changed")

    def leave(self, deadline: Deadline) -> None:
        """Revoke all partitions, and leave the group unless the member is static; ``subscribe`` may be called again."""
        # A join response may have arrived; leaving needs the member id in it.
        self._network.poll(0)
        self._actions.extend(self.member.leave())
        try:
            self._perform_leave(deadline)
        finally:
            coordinator = self.member.coordinator
            self.policy.topics = ()
            self.policy.topic_regex = ""
            self.member = self._new_member()
            self.member.coordinator = coordinator
            self.group_topics = set()
            self._snapshot = None
            self._assignment_due = None
            self._requests.forget_error()
            self.is_manual = True

    def _perform_leave(self, deadline: Deadline) -> None:
        while self._actions:
            match self._actions.popleft():
                case Send(node_id, (LeaveGroup() | ConsumerGroupHeartbeat() | StreamsGroupHeartbeat()) as request):
                    left: list[Response | Exception] = []
                    self._network.send(node_id, request, left.append)
                    # If the request is lost, the other members wait for the session timeout.
                    self._network.wait(left, deadline)
                case action:
                    try:
                        self._perform(action)
                    except Exception:
                        # A member whose listener fails leaves too, or the others wait for its session timeout.
                        self._perform_leave(deadline)
                        raise

    def check_topics(self) -> None:
        """Rejoin the group if its topics have changed since partitions were assigned.

        The leader checks the topics of all members; a static member may have become leader without notice.
        """
        if self._snapshot is not None and self._metadata.counts(self._snapshot_topics()) != self._snapshot:
            self._snapshot = None
            self.member.request_rejoin("topics or partition counts have changed")

    def _snapshot_topics(self) -> set[str]:
        return self.group_topics if self.member.is_leader else set(self.policy.topics)

    def _perform(self, action: object) -> None:
        match action:
            case Send(node_id, request):
                self._requests.send(node_id, request)
            case Revoke(partitions):
                self._revoke(partitions)
            case Assign(partitions, added):
                self._assign(partitions, added)
            case Lose(partitions):
                self._subscription.remove(partitions)
                self._fetcher.drop(partitions)
                refuse_result(self.listener.on_partitions_lost(partitions), "on_partitions_lost")  # type: ignore[func-returns-value]
            case PerformAssignment():
                self._ask_metadata(action)
            case Failed(error):
                self._requests.fail(error)

    def _revoke(self, partitions: tuple[TopicPartition, ...]) -> None:
        states = self._subscription.partitions
        for partition in partitions:
            if partition in states:
                states[partition].is_leaving = True
        try:
            self.before_revoke()
            refuse_result(self.listener.on_partitions_revoked(partitions), "on_partitions_revoked")  # type: ignore[func-returns-value]
        finally:
            self._subscription.remove(partitions)
            self._fetcher.drop(partitions)

    def _assign(self, partitions: tuple[TopicPartition, ...], added: tuple[TopicPartition, ...]) -> None:
        self._subscription.replace(partitions)
        if not self.member.is_leader:
            is_static = self._config.group_instance_id is not None
            self._snapshot = self._metadata.counts(self.policy.topics) if is_static else None
            self.group_topics = set()
        refuse_result(self.listener.on_partitions_assigned(added), "on_partitions_assigned")  # type: ignore[func-returns-value]

    # --- leader -----------------------------------------------------------------------

    def _ask_metadata(self, action: PerformAssignment) -> None:
        self.group_topics = self.policy.wanted_topics(action.members)
        topics = sorted(self.group_topics)

        def receive(response: Response | Exception) -> None:
            if isinstance(response, MetadataResponse):
                self._metadata.update(response, topics)
            self._assignment_due = (action, response)

        self._network.send(ANY_NODE, Metadata(topics), receive)

    def _run_assignor(self) -> bool:
        """Run the assignor outside of response callbacks, because it may be user code, raise, or send requests."""
        member = self.member
        if self._assignment_due is None or not isinstance(member, Member):
            return False
        (action, response), self._assignment_due = self._assignment_due, None
        if isinstance(response, Exception):
            member.fail_assignment(self._clock.monotonic_ms())
            return True
        counts = self._metadata.counts(self.group_topics)
        is_done = False
        try:
            assignments = self.policy.assign(action.protocol_name, action.members, counts)
            is_done = True
        finally:
            if not is_done:
                member.fail_assignment(self._clock.monotonic_ms())
        # Topics that the assignor has created or extended must not cause a rejoin.
        for data in assignments.values():
            for topic, number in decode_assignment(data).partitions:
                if topic in self.group_topics and number >= counts.get(topic, 0):
                    counts[topic] = number + 1
        self._snapshot = dict(sorted(counts.items()))
        member.complete_assignment(action.generation_id, assignments, self._clock.monotonic_ms())
        return True

    # --- commits ----------------------------------------------------------------------

    def ensure_coordinator(self, deadline: Deadline) -> int:
        """Return the coordinator's broker ID, looking it up until the deadline.

        Raises:
            BrokerError: no coordinator is available.
        """
        what = f"coordinator of group {self._config.group_id!r}"
        has_progress = True
        error: BrokerError | None = None
        while self.member.coordinator is None:
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms:
                raise error or error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, what)
            try:
                request = FindCoordinator(self._config.group_id)
                response = self._network.request(ANY_NODE, request, remaining_ms, what=what)
            except BrokerError as failure:
                if is_final(failure):
                    raise
                error = failure
                has_progress = False
                continue
            has_progress = False
            if response.error is ErrorCode.NONE:
                self.member.coordinator = response.node_id
            elif response.error in FORBIDDEN:
                raise error_for(response.error, what)
            else:
                self._network.poll(min(remaining_ms, self._config.retry_backoff_ms))
        return self.member.coordinator

    def fetch_committed(
        self, partitions: Sequence[TopicPartition], deadline: Deadline, *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets, retrying until the deadline.

        Raises:
            RequestTimeoutError: no response came by the deadline, or an open transaction still commits an offset.
            BrokerError: the request was rejected.
        """
        what = f"committed offsets of group {self._config.group_id!r}"
        request = OffsetFetch(self._config.group_id, partitions, require_stable)
        while True:
            coordinator = self.ensure_coordinator(deadline)
            remaining_ms = deadline.remaining_ms(has_progress=False)
            try:
                response = self._network.request(coordinator, request, remaining_ms, what=what)
                if response.error is ErrorCode.NONE:
                    return dict(response.offsets)
                failure: BrokerError = error_for(response.error, what)
                is_moved = response.error in self._network.traits.retriable
                if response.error is not ErrorCode.UNSTABLE_OFFSET_COMMIT and not is_moved:
                    raise failure
            except RequestTimeoutError as error:
                failure = error
                is_moved = True
            if is_moved:
                self.member.on_commit_error(ErrorCode.NOT_COORDINATOR)
            remaining_ms = deadline.remaining_ms(has_progress=False)
            if not remaining_ms:
                raise RequestTimeoutError(f"{what}: not known in time") from failure
            self._network.poll(min(remaining_ms, self._config.retry_backoff_ms))

    def commit(self, offsets: Offsets, on_done: Callable[[BrokerError | None], None]) -> None:
        """Send a commit to the known coordinator; a later poll calls ``on_done`` with None or the error."""
        member, config = self.member, self._config
        assert member.coordinator is not None
        request = OffsetCommit(
            config.group_id, offsets, member.generation_id, member.member_id, config.group_instance_id
        )
        if self.is_manual:
            # A commit without a member id is rejected if the group has members.
            request = OffsetCommit(config.group_id, offsets)
        elif member.generation_id < 0:
            code = ErrorCode.REBALANCE_IN_PROGRESS if member.is_rebalancing else ErrorCode.UNKNOWN_MEMBER_ID
            on_done(error_for(code, f"commit of group {config.group_id!r}, of which this consumer is not a member"))
            return
        sent_ns = self._clock.monotonic_ns()

        def receive(response: Response | Exception) -> None:
            self._sensors.committed.record(self._clock.monotonic_ns() - sent_ns)
            on_done(self._committed(request, response))

        self._network.send(member.coordinator, request, receive)

    def _committed(self, request: OffsetCommit, response: Response | Exception) -> BrokerError | None:
        what = f"commit of group {self._config.group_id!r}"
        member = self.member
        if not isinstance(response, OffsetCommitResponse):
            member.on_commit_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return (
                as_error(response, what)
                if isinstance(response, Exception)
                else error_for(ErrorCode.UNKNOWN_SERVER_ERROR, what)
            )
        for partition, code in response.errors.items():
            if code is ErrorCode.NONE:
                continue
            if code is ErrorCode.STALE_MEMBER_EPOCH and member.generation_id >= 0:
                # The epoch has advanced on the coordinator or here: poll, and commit again.
                member.on_commit_error(code)
                is_joining = True
            elif request.generation_id == member.generation_id:
                is_joining = member.is_rebalancing and code is ErrorCode.ILLEGAL_GENERATION
                if not is_joining:
                    member.on_commit_error(code)
            else:
                # The member has a newer generation: it is still in the group, but the commit is late.
                is_joining = member.generation_id >= 0 and code is ErrorCode.ILLEGAL_GENERATION
            code = ErrorCode.REBALANCE_IN_PROGRESS if is_joining else code
            return error_for(code, f"{what}, {partition} at {request.offsets[partition].offset}")
        return None

    def commit_now(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit offsets and wait for the response.

        Raises:
            MemberFencedError: the member is no longer in the group.
            RebalanceInProgressError: the group is rebalancing; poll, then retry.
            BrokerError: the commit failed otherwise.
        """
        if not offsets:
            return
        while True:
            self.ensure_coordinator(deadline)
            done: list[BrokerError | None] = []
            self.commit(offsets, done.append)
            if not self._network.wait(done, deadline):
                raise RequestTimeoutError(f"commit of group {self._config.group_id!r}: no answer in time")
            error = done[0]
            if error is None:
                return
            remaining_ms = deadline.remaining_ms(has_progress=False)
            if not remaining_ms or not (error.code in self._network.traits.retriable or is_transient(error)):
                raise error
            # A retry commits the same offsets, so it is safe if the first request was applied.
            self._network.poll(min(remaining_ms, self._config.retry_backoff_ms))

    def commit_quietly(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit offsets and wait; log any error, after which the records are redelivered."""
        try:
            self.commit_now(offsets, deadline)
        except StreamsError as error:
            log.warning("auto-commit before the revocation of partitions: %s", error)
