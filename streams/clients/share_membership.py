"""The membership of a share consumer in its group: performs the actions of the member's state machine.

Of the other packages, this module imports only ``core``, ``group`` and ``protocol``.
"""

from collections import deque

from streams.clients.membership_requests import MembershipRequests
from streams.clients.share_parts import ShareParts
from streams.core.clock import Deadline
from streams.core.records import TopicPartition
from streams.group import Assign, EpochMember, Failed, Lose, MemberConfig, Revoke, Send, ShareHeartbeats
from streams.protocol.request import Response
from streams.protocol.share_group_messages import ShareGroupHeartbeat


class ShareMembership:
    """The membership of one share consumer; ``assigned`` are the partitions of which it may acquire records.

    The member id stays the same for as long as the consumer lives: brokers know the locks of its records by it.
    """

    def __init__(self, parts: ShareParts) -> None:
        settings = parts.settings
        self._network, self._clock = parts.network, parts.clock
        self._config = MemberConfig(
            parts.group_id,
            settings.client_id,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            retry_backoff_ms=settings.client.retry_backoff_ms,
        )
        self._names, self._rack = parts.metadata.names_by_id, settings.client_rack or None
        self._begin()
        self.assigned: tuple[TopicPartition, ...] = ()
        self._actions: deque[object] = deque()
        self._requests = MembershipRequests(parts.network, parts.clock, parts.group_id, lambda: self.member)

    def _begin(self) -> None:
        self._heartbeats = ShareHeartbeats(self._config, self._names, self._rack)
        self.member = EpochMember(self._config, self._heartbeats)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the subscribed topics."""
        return self._heartbeats.topics

    @property
    def needs_metadata(self) -> bool:
        """Whether an assignment waits for metadata of its topics."""
        return self.member.needs_metadata

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Set the subscribed topics; the next ``poll`` tells the group."""
        if topics != self._heartbeats.topics:
            self._heartbeats.topics = topics
            self.member.request_rejoin("the subscription has changed")

    def poll(self) -> bool:
        """Perform due actions; return whether there were any.

        Raises:
            BrokerError: the group cannot be joined, or the broker does not support share groups.
        """
        self._requests.check()
        has_progress = False
        while self.topics and (actions := self.member.poll(self._clock.monotonic_ms())):
            self._actions.extend(actions)
            self._perform_all()
            has_progress = True
        return has_progress

    def keep_alive(self) -> int:
        """Send due heartbeats while the application is busy; return the milliseconds until the next call."""
        self._network.poll(0)
        now, member = self._clock.monotonic_ms(), self.member
        interval_ms = max(1, member.heartbeat_interval_ms // 3)
        if self._requests.is_over or member.generation_id < 0 or member.coordinator is None:
            return interval_ms
        self._actions.extend(member.poll(now, by_application=False))
        while self._actions and not isinstance(self._actions[0], Failed):
            self._perform(self._actions.popleft())
        self._network.poll(0)
        deadline_ms = member.next_deadline_ms()
        return interval_ms if deadline_ms is None or deadline_ms <= now else min(interval_ms, deadline_ms - now)

    def next_deadline_ms(self) -> int | None:
        """Return when the next action is due, or None."""
        return self.member.next_deadline_ms() if self.topics else None

    def leave(self, deadline: Deadline) -> None:
        """Leave the group; ``subscribe`` may be called again."""
        left: list[Response | Exception] = []
        # A response to the join may have arrived.
        self._network.poll(0)
        self._actions.extend(self.member.leave())
        while self._actions:
            match self._actions.popleft():
                case Send(node_id, ShareGroupHeartbeat() as request):
                    self._network.send(node_id, request, left.append)
                    # If the request is lost, the broker removes the member when its session times out.
                    self._network.wait(left, deadline)
                case action:
                    self._perform(action)
        before = self.member
        self._begin()
        self.member.member_id, self.member.coordinator = before.member_id, before.coordinator
        self.assigned = ()
        self._requests.forget_error()

    def _perform_all(self) -> None:
        while self._actions:
            self._perform(self._actions.popleft())

    def _perform(self, action: object) -> None:
        match action:
            case Send(node_id, request):
                self._requests.send(node_id, request)
            case Assign(partitions, _):
                self.assigned = partitions
            case Revoke(partitions) | Lose(partitions):
                # Records that were acquired before stay locked by this member.
                self.assigned = tuple(partition for partition in self.assigned if partition not in set(partitions))
            case Failed(error):
                self._requests.fail(error)
