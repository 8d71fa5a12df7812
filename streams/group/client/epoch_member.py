"""The member side of groups whose coordinator assigns the work: KIP-848 and KIP-1071 (streams).

All that a member sends is heartbeats, with the epoch of its assignment.  A response may change the assignment: the
member revokes what it no longer has, confirms that with its next heartbeat, and is then assigned what it gains.
This is a state machine without I/O, with the interface of ``Member``: the driver calls ``poll``, performs the returned
actions in order, and passes the responses back.  What heartbeats say, and what is done for an assignment, depends on
the kind of group (``Heartbeats``).  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import logging
import uuid
from typing import Final, Protocol, TypeAlias

from attrs import Factory, define, field

from streams.core.errors import BrokerError
from streams.group.client.member import NO_GENERATION, Action, Failed, MemberConfig, MemberState, Send, fenced_error
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
)
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse
from streams.protocol.request import Request, Response
from streams.protocol.streams_group_messages import (
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
)
from streams.protocol.transport import ANY_NODE

log = logging.getLogger(__name__)

#: Heartbeats of all kinds of groups, and their responses.
GroupHeartbeat: TypeAlias = ConsumerGroupHeartbeat | StreamsGroupHeartbeat
GroupHeartbeatResponse: TypeAlias = ConsumerGroupHeartbeatResponse | StreamsGroupHeartbeatResponse

#: Errors after which the coordinator is looked up again.
_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
#: Errors after which the assignment is lost, and the member joins again.
_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class Heartbeats(Protocol):
    """What the member of one kind of group says in its heartbeats, and what it does for its assignment."""

    @property
    def needs_metadata(self) -> bool:
        """Whether an assignment waits for metadata of its topics."""
        ...

    def heartbeat(self, member_id: str, epoch: int, *, is_full: bool) -> GroupHeartbeat:
        """Return a heartbeat with what has changed, or with everything if an earlier one may have been lost."""
        ...

    def bare(self, member_id: str, epoch: int) -> GroupHeartbeat:
        """Return a heartbeat that confirms nothing."""
        ...

    def advice(self, error: ErrorCode) -> str:
        """Return what to do about a rejected heartbeat, or "" if only the broker knows."""
        ...

    def receive(self, response: GroupHeartbeatResponse) -> None:
        """Store what a response without error says of the assignment."""
        ...

    def renew(self) -> None:
        """Compare the assignment with the current metadata again."""
        ...

    def move(self, now_ms: int) -> list[Action]:
        """Return the actions that lead to the assignment received last; empty if it is reached or must wait."""
        ...

    def lose(self) -> list[Action]:
        """Forget the assignment, which other members may already have; return the actions for that."""
        ...

    def leaving(self) -> list[Action]:
        """Give up the assignment, because the member is leaving the group; return the actions for that."""
        ...


@define(eq=False)
class EpochMember:
    """The membership of one client in one group, as a state machine."""

    config: MemberConfig
    _heartbeats: Heartbeats
    state: MemberState = field(default=MemberState.UNJOINED, init=False)
    member_id: str = field(factory=lambda: str(uuid.uuid4()), init=False)
    #: The member epoch, which takes the place of the generation of classic groups.
    generation_id: int = field(default=NO_GENERATION, init=False)
    coordinator: int | None = field(default=None, init=False)
    heartbeat_interval_ms: int = field(
        default=Factory(lambda self: self.config.heartbeat_interval_ms, takes_self=True), init=False
    )
    #: Time until which the session certainly lasts: send time of the last answered heartbeat plus session timeout.
    alive_until_ms: int = field(default=0, init=False)
    _is_full: bool = field(default=True, init=False)
    _is_due: bool = field(default=False, init=False)
    _todo: list[Action] = field(factory=list, init=False)
    _finding: Request | None = field(default=None, init=False)
    _awaited: GroupHeartbeat | None = field(default=None, init=False)
    _sent_ms: int = field(default=0, init=False)
    _next_heartbeat_ms: int = field(default=0, init=False)
    _retry_at_ms: int = field(default=0, init=False)
    _polled_ms: int | None = field(default=None, init=False)

    @property
    def is_leader(self) -> bool:
        """False, because the coordinator assigns the work."""
        return False

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is joining the group."""
        return self.state is MemberState.JOINING

    @property
    def needs_metadata(self) -> bool:
        return self._heartbeats.needs_metadata

    # --- driver interface -------------------------------------------------------------

    def poll(self, now_ms: int, *, by_application: bool = True) -> list[Action]:
        """Return the due actions, in order; all earlier actions must have been performed.

        ``by_application`` is set if the application polls, which it must do at least every ``max_poll_interval_ms``.
        Without it, the member neither joins nor moves to a new assignment.
        """
        self._check_poll_interval(now_ms, by_application)
        if by_application and (moves := self._heartbeats.move(now_ms)):
            self._todo += moves
            self._is_due = True
        todo = self._todo
        self._todo = []
        if todo or self.state in (MemberState.LEFT, MemberState.FAILED):
            return todo
        if self.coordinator is None:
            return self.find_coordinator(now_ms)
        if self._awaited is not None or now_ms < self._retry_at_ms:
            return []
        if self.state is MemberState.UNJOINED:
            if not by_application:
                return []
            self.state = MemberState.JOINING
            return [self._send(self._heartbeat(JOIN_EPOCH), now_ms)]
        if self._is_due or now_ms >= self._next_heartbeat_ms:
            return [self._send(self._heartbeat(max(self.generation_id, JOIN_EPOCH)), now_ms)]
        return []

    def sign_of_life(self, now_ms: int) -> Send | None:
        """Return a heartbeat that confirms nothing, for while the application has not performed actions yet."""
        if self.coordinator is None or self._awaited is not None or self.generation_id < 0:
            return None
        return self._send(self._heartbeats.bare(self.member_id, self.generation_id), now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when ``poll`` is due next if no response arrives, or None if it is not due."""
        if self.state in (MemberState.LEFT, MemberState.FAILED):
            return None
        if self.coordinator is None:
            return self._retry_at_ms if self._finding is None else None
        if self._awaited is not None:
            return None
        is_joining = self.state is MemberState.UNJOINED
        return self._retry_at_ms if is_joining or self._is_due else max(self._next_heartbeat_ms, self._retry_at_ms)

    def on_response(self, request: Request, response: Response | Exception, now_ms: int) -> None:
        """Handle a response or error; responses to outdated requests are ignored."""
        if self.state in (MemberState.LEFT, MemberState.FAILED):
            return
        if request is self._finding:
            self._finding = None
            if isinstance(response, FindCoordinatorResponse) and not response.error:
                self.coordinator = response.node_id
            else:
                self._retry_at_ms = now_ms + self.config.retry_backoff_ms
        elif request is self._awaited:
            self._awaited = None
            if not isinstance(response, GroupHeartbeatResponse) or response.error in _MOVED:
                self._coordinator_lost(now_ms)
            elif response.error is ErrorCode.NONE:
                self._on_heartbeat(response, now_ms)
            else:
                self._on_error(response, now_ms)

    def request_rejoin(self, reason: str) -> None:
        """Send everything again at the next ``poll``; the assignment stays, and is compared with current metadata."""
        log.debug("member %s reports to its group again: %s", self.member_id, reason)
        self._is_full = self._is_due = True
        self._heartbeats.renew()

    def leave(self) -> list[Action]:
        """Return the actions for leaving; a static member keeps its assignment until its session has ended."""
        events: list[Action] = [*self._todo, *self._heartbeats.leaving()]
        self._todo = []
        if (request := self._leave_request()) is not None:
            events.append(request)
        self.state = MemberState.LEFT
        return events

    def on_commit_error(self, error: ErrorCode) -> None:
        """Update the membership after a rejected commit in the current epoch."""
        if error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            self.coordinator = None
        elif error is ErrorCode.STALE_MEMBER_EPOCH:
            # The response that advances the epoch may have been lost.
            self._is_due = True
        elif error in _REMOVED and self.generation_id >= 0:
            self._reset()

    def find_coordinator(self, now_ms: int) -> list[Action]:
        """Return a FindCoordinator request if the coordinator is unknown; also used for commits without membership."""
        if self.coordinator is not None or self._finding is not None or now_ms < self._retry_at_ms:
            return []
        self._finding = FindCoordinator(self.config.group_id)
        return [Send(ANY_NODE, self._finding)]

    # --- internal ---------------------------------------------------------------------

    def _heartbeat(self, epoch: int) -> GroupHeartbeat:
        is_full = self._is_full or epoch == JOIN_EPOCH
        self._is_full = False
        self._is_due = False
        return self._heartbeats.heartbeat(self.member_id, epoch, is_full=is_full)

    def _send(self, request: GroupHeartbeat, now_ms: int) -> Send:
        assert self.coordinator is not None
        self._awaited = request
        self._sent_ms = now_ms
        return Send(self.coordinator, request)

    def _on_heartbeat(self, response: GroupHeartbeatResponse, now_ms: int) -> None:
        self.state = MemberState.STABLE
        self.member_id = response.member_id or self.member_id
        self.generation_id = response.member_epoch
        self.heartbeat_interval_ms = max(1, response.heartbeat_interval_ms)
        self._next_heartbeat_ms = now_ms + self.heartbeat_interval_ms
        self.alive_until_ms = self._sent_ms + self.config.session_timeout_ms
        self._heartbeats.receive(response)

    def _on_error(self, response: GroupHeartbeatResponse, now_ms: int) -> None:
        error = response.error
        config = self.config
        # A join makes a group; it is not found if the group must remain one of another kind.
        is_refused = error is ErrorCode.GROUP_ID_NOT_FOUND and self.generation_id < 0
        if error in _REMOVED and not is_refused:
            self._retry_at_ms = now_ms + config.retry_backoff_ms
            self._reset()
        elif error is ErrorCode.UNRELEASED_INSTANCE_ID:
            log.warning(
                "group %r: group_instance_id %r belongs to another member until it leaves or its session ends; joining "
                "again",
                config.group_id,
                config.group_instance_id,
            )
            self.state = MemberState.UNJOINED
            self._retry_at_ms = now_ms + self.heartbeat_interval_ms
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(fenced_error(config))
        else:
            reason = "; ".join(filter(None, (response.message, self._heartbeats.advice(error))))
            self._fail(
                BrokerError(
                    f"group {config.group_id!r}, member {self.member_id}: a heartbeat was rejected with {error.name}: "
                    f"{reason or 'see the log of the broker'}",
                    code=error,
                )
            )

    def _fail(self, error: BrokerError) -> None:
        self._lose()
        self._todo.append(Failed(error))
        self.state = MemberState.FAILED

    def _reset(self) -> None:
        """Clear the membership after removal from the group; other members may already own the assignment."""
        self._lose()
        self.state = MemberState.UNJOINED

    def _lose(self) -> None:
        self._todo += self._heartbeats.lose()
        self.generation_id = NO_GENERATION
        self.alive_until_ms = 0
        self._awaited = None

    def _coordinator_lost(self, now_ms: int) -> None:
        self.coordinator = None
        self._retry_at_ms = now_ms + self.config.retry_backoff_ms
        # Whether the heartbeat was handled is unknown, so the next one says everything again.
        self._is_full = self._is_due = True
        if self.state is MemberState.JOINING:
            self.state = MemberState.UNJOINED

    def _check_poll_interval(self, now_ms: int, by_application: bool) -> None:
        """Leave if the application has stalled, so that other members get its assignment (KIP-62)."""
        polled = self._polled_ms
        if by_application or polled is None:
            self._polled_ms = now_ms
        is_stalled = polled is not None and now_ms - polled > self.config.max_poll_interval_ms
        if is_stalled and self.generation_id >= 0 and self.config.group_instance_id is None:
            if (request := self._leave_request()) is not None:
                self._todo.append(request)
            self._reset()

    def _leave_request(self) -> Send | None:
        """Return the request to leave; a static member leaves for a while only."""
        if self.coordinator is None or self.generation_id < 0:
            return None
        epoch = LEAVE_EPOCH if self.config.group_instance_id is None else LEAVE_STATIC_EPOCH
        return Send(self.coordinator, self._heartbeats.bare(self.member_id, epoch))
