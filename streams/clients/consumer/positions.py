"""Look-up of a consumer's initial position in each assigned partition.

1. The position is the committed offset.
2. Without a committed offset, the reset policy determines the position: "earliest", "latest", "by_duration:PT1H", the
   first record that is not older, else the end (KIP-1106), or "none", an error.
3. Exception for "latest": a partition of a topic for which the group has committed other offsets is read from the
   beginning.  It was added to the topic, so its records were written while the group read the others.

The third rule applies only to group members.  Several positions are looked up at once, without blocking.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable, Mapping

from streams.clients.consumer.consumer_parts import ConsumerParts
from streams.clients.consumer.session import GroupSession
from streams.clients.consumer.subscription import PartitionState
from streams.clients.errors import FORBIDDEN, NoOffsetError, as_error, error_for, is_final
from streams.clients.settings import isolation_level_of
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.core.settings.offset_reset import LATEST
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetFetch, OffsetFetchResponse
from streams.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    ListOffsets,
    ListOffsetsResponse,
)
from streams.protocol.request import Response


class Positions:
    """Looks up the positions of assigned partitions that have no position."""

    def __init__(self, parts: ConsumerParts, session: GroupSession | None) -> None:
        self._network = parts.network
        self._clock = parts.clock
        self._subscription = parts.subscription
        self._metadata = parts.metadata
        self._session = session
        self._group_id = parts.group_id
        self._resets = parts.resets
        self._retry_backoff_ms = parts.settings.client.retry_backoff_ms
        self._isolation_level = isolation_level_of(parts.settings)
        self._retry_at_ms = 0
        self._errors: list[BrokerError] = []
        #: Partitions without a committed offset under the reset policy "none".
        self._refused: Mapping[TopicPartition, PartitionState] = {}
        self.needs_metadata = False

    def update(self) -> bool:
        """Start look-ups for partitions without a position; return whether any were started.

        Raises:
            NoOffsetError: no offset is committed and no reset policy applies.
            UnknownTopicError: a partition does not exist.
        """
        if self._errors:
            raise self._errors.pop(0)
        self._raise_refused()
        if self._clock.monotonic_ms() < self._retry_at_ms:
            return False
        committed: dict[TopicPartition, PartitionState] = {}
        resets: dict[int, dict[TopicPartition, PartitionState]] = {}
        if self._session is None:
            self._reset({p: state for p, state in self._subscription.without_position() if state.reset_to is None})
        for partition, state in self._subscription.without_position():
            if state.reset_to is None:
                committed[partition] = state
                continue
            node = self._metadata.leader(partition)
            if node is None:
                self.needs_metadata = True
            else:
                resets.setdefault(node, {})[partition] = state
        has_sent = self._ask_committed(committed)
        for node, states in resets.items():
            self._ask_offsets(node, states)
        return has_sent or bool(resets)

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Return when failed look-ups are retried, in monotonic milliseconds, or None."""
        return self._retry_at_ms if self._retry_at_ms > now_ms else None

    # --- inside -----------------------------------------------------------------------

    def _ask_committed(self, states: Mapping[TopicPartition, PartitionState]) -> bool:
        coordinator = self._session.member.coordinator if self._session is not None else None
        if not states or coordinator is None:
            return False
        self._mark(states, is_looked_up=True)

        def receive(response: Response | Exception) -> None:
            self._mark(states, is_looked_up=False)
            if not isinstance(response, OffsetFetchResponse) or response.error is not ErrorCode.NONE:
                self._retry_later()
                self._note_final(response, f"committed offsets of group {self._group_id!r}")
                code = response.error if isinstance(response, OffsetFetchResponse) else ErrorCode.NONE
                if code in FORBIDDEN:
                    self._errors.append(error_for(code, f"committed offsets of group {self._group_id!r}"))
                is_unstable = code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                if self._session is not None and not is_unstable:
                    self._session.member.on_commit_error(ErrorCode.NOT_COORDINATOR)
                return
            missing: dict[TopicPartition, PartitionState] = {}
            for partition, state in self._waiting(states):
                committed = response.offsets.get(partition)
                if committed is not None:
                    state.seek(committed.offset)
                elif state.reset_to is None:
                    missing[partition] = state
            is_member = self._session is not None and not self._session.is_manual
            latest = {
                partition: state
                for partition, state in missing.items()
                if is_member and self._resets.policy(partition.topic) == LATEST
            }
            if latest:
                self._ask_siblings(coordinator, latest)
            self._reset({partition: state for partition, state in missing.items() if partition not in latest})

        require_stable = self._isolation_level == READ_COMMITTED
        self._network.send(coordinator, OffsetFetch(self._group_id, tuple(states), require_stable), receive)
        return True

    def _ask_siblings(self, coordinator: int, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Look up whether the group has committed offsets in the topics of ``states``.

        Partitions of a topic with committed offsets are then known to be new to the group.
        """
        self._mark(states, is_looked_up=True)
        topics = dict.fromkeys(partition.topic for partition in states)
        counts = self._metadata.counts(topics)
        asked = tuple(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))

        def receive(response: Response | Exception) -> None:
            self._mark(states, is_looked_up=False)
            if not isinstance(response, OffsetFetchResponse) or response.error is not ErrorCode.NONE:
                # Retry the whole look-up.
                self._retry_later()
                return
            committed_topics = {partition.topic for partition in response.offsets}
            waiting = [(partition, state) for partition, state in self._waiting(states) if state.reset_to is None]
            for partition, state in waiting:
                if partition.topic in committed_topics:
                    state.request_reset(EARLIEST_TIMESTAMP)
            self._reset({partition: state for partition, state in waiting if partition.topic not in committed_topics})

        # An offset in an open transaction is sufficient, so do not wait for stable offsets.
        self._network.send(coordinator, OffsetFetch(self._group_id, asked), receive)

    def _reset(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Apply the reset policies to partitions without a committed offset."""
        refused = {}
        for partition, state in states.items():
            reset_to = self._resets.timestamp(partition.topic)
            if reset_to is None:
                refused[partition] = state
            else:
                state.request_reset(reset_to)
        if refused:
            self._retry_later()
            self._refused = refused

    def _raise_refused(self) -> None:
        """Raise an error for partitions without a committed offset that the application has not set since.

        Raises:
            NoOffsetError: no offset is committed, and the reset policy is "none".
        """
        refused = tuple(partition for partition, _ in self._waiting(self._refused))
        self._refused = {}
        if refused:
            raise NoOffsetError(
                f"group {self._group_id!r} has no committed offset for {', '.join(map(str, refused))}, and "
                "auto_offset_reset is 'none': seek, or commit an offset first",
                refused,
            )

    def _ask_offsets(self, node: int, states: Mapping[TopicPartition, PartitionState]) -> None:
        asked = {partition: state.reset_to for partition, state in states.items() if state.reset_to is not None}
        self._mark(states, is_looked_up=True)
        self._network.send(node, ListOffsets(asked, self._isolation_level), self._offsets_receiver(states, asked))

    def _offsets_receiver(
        self, states: Mapping[TopicPartition, PartitionState], asked: Mapping[TopicPartition, int]
    ) -> Callable[[Response | Exception], None]:
        def receive(response: Response | Exception) -> None:
            self._mark(states, is_looked_up=False)
            if not isinstance(response, ListOffsetsResponse):
                self._retry_later()
                self._note_final(response, "look-up of positions")
                return
            for partition, state in self._waiting(states):
                answer = response.partitions[partition]
                error = answer.error
                if error is ErrorCode.NONE and state.reset_to == asked[partition]:
                    if answer.offset >= 0:
                        state.seek(answer.offset)
                    else:
                        # All records are older than the time of the policy ``by_duration``.
                        state.request_reset(LATEST_TIMESTAMP)
                elif error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or error in self._network.traits.retriable:
                    self._retry_later()
                elif error is not ErrorCode.NONE:
                    self._retry_later()
                    self._errors.append(error_for(error, f"look-up of the position of {partition}"))

        return receive

    def _waiting(self, states: Mapping[TopicPartition, PartitionState]) -> list[tuple[TopicPartition, PartitionState]]:
        """Return those partitions of ``states`` that are still assigned and have no position."""
        current = self._subscription.partitions
        return [(p, state) for p, state in states.items() if current.get(p) is state and state.position is None]

    def _note_final(self, response: Response | Exception, what: str) -> None:
        if isinstance(response, Exception) and is_final(response):
            self._errors.append(as_error(response, what))

    def _retry_later(self) -> None:
        self.needs_metadata = True
        self._retry_at_ms = self._clock.monotonic_ms() + self._retry_backoff_ms

    @staticmethod
    def _mark(states: Mapping[TopicPartition, PartitionState], *, is_looked_up: bool) -> None:
        for state in states.values():
            state.is_looked_up = is_looked_up
