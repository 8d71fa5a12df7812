"""The member side of Kafka's classic group protocol: find coordinator, join, sync, heartbeat, leave.

This is a state machine without I/O.  The driver calls ``poll``, performs the returned actions in order,
passes the responses back, and repeats until there are no more actions.  The ``MembershipPolicy`` handles assignments.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from attrs import field, frozen
from attrs.validators import ge

from streams.core.errors import BrokerError, MemberFencedError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupMember,
    JoinGroupResponse,
    LeaveGroup,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse
from streams.protocol.request import Request, Response
from streams.protocol.transport import ANY_NODE

#: The generation ID of a member that is in no generation.
NO_GENERATION = -1


@frozen
class MemberConfig:
    """The IDs and timeouts of a membership."""

    group_id: str
    client_id: str = ""
    group_instance_id: str | None = None
    session_timeout_ms: int = field(default=45_000, validator=ge(1))
    heartbeat_interval_ms: int = field(default=3_000, validator=ge(1))
    max_poll_interval_ms: int = field(default=300_000, validator=ge(1))
    retry_backoff_ms: int = field(default=100, validator=ge(0))


class MemberState(Enum):
    """The states of a membership."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    LEFT = "left"
    FAILED = "failed"


_LEGAL_NEXT: Mapping[MemberState, frozenset[MemberState]] = {
    MemberState.UNJOINED: frozenset({MemberState.PREPARING}),
    MemberState.PREPARING: frozenset({MemberState.JOINING, MemberState.UNJOINED}),
    MemberState.JOINING: frozenset({MemberState.ASSIGNING, MemberState.SYNCING, MemberState.UNJOINED}),
    MemberState.ASSIGNING: frozenset({MemberState.SYNCING, MemberState.UNJOINED}),
    MemberState.SYNCING: frozenset({MemberState.STABLE, MemberState.UNJOINED}),
    MemberState.STABLE: frozenset({MemberState.UNJOINED}),
    MemberState.LEFT: frozenset(),
    MemberState.FAILED: frozenset(),
}
_ALWAYS_LEGAL = frozenset({MemberState.LEFT, MemberState.FAILED})


@frozen
class Send:
    """Send a request to the broker ``node_id``, and pass the response or error to ``on_response``."""

    node_id: int
    request: Request


@frozen
class PerformAssignment:
    """Compute the assignment as the leader, and call ``complete_assignment``."""

    generation_id: int
    protocol_name: str
    members: Sequence[JoinGroupMember]


@frozen
class Failed:
    """The membership has failed with a non-retriable error."""

    error: BrokerError


Action: TypeAlias = Send | PerformAssignment | Failed | object


def fenced_error(config: MemberConfig) -> MemberFencedError:
    """Return the error of a static member whose instance ID another process has taken."""
    return MemberFencedError(
        f"group {config.group_id!r}: another process has joined as group_instance_id {config.group_instance_id!r}; "
        "give every instance an id of its own",
        code=ErrorCode.FENCED_INSTANCE_ID,
    )


class MembershipPolicy(Protocol):
    """The policy of a membership: the metadata it sends, and the actions for its assignments.

    The policy's actions are returned to the driver in order, together with those of the ``Member``.
    """

    @property
    def protocol_type(self) -> str:
        """The protocol type of the group."""
        ...

    def prepare_join(self) -> list[object]:
        """Return the actions to perform before a join or rejoin, for example revocations."""
        ...

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Return (name, metadata) for each supported protocol, in order of preference."""
        ...

    def assigned(self, protocol_name: str, generation_id: int, assignment: bytes) -> tuple[list[object], bool]:
        """Apply an assignment; return the actions and whether to rejoin afterwards."""
        ...

    def lost(self) -> list[object]:
        """Return the actions to perform after the coordinator has removed this member."""
        ...

    def leaving(self) -> list[object]:
        """Return the actions to perform before the member leaves the group."""
        ...


#: Heartbeat responses that extend the session.
_ALIVE = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})

#: Errors after which the coordinator is looked up again.
_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
#: Retriable errors after which the same coordinator is usually available again by the end of the lookup.
_PASSING = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class Member:
    """The membership of one client in one group, as a state machine."""

    def __init__(self, config: MemberConfig, policy: MembershipPolicy) -> None:
        self.config = config
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.leader = ""
        self.coordinator: int | None = None
        self._policy = policy
        self._protocol_name = ""
        self._todo: list[Action] = []
        self._rejoin_reason: str | None = None
        self._finding: Request | None = None
        self._awaited: Request | None = None
        self._heartbeats: list[tuple[Heartbeat, int]] = []
        self._next_heartbeat_ms = 0
        self._session_timeout_ms = config.session_timeout_ms
        self._awaited_since_ms = 0
        #: Time until which the session certainly lasts: send time of the last answered request plus session timeout.
        self.alive_until_ms = 0
        self._retry_at_ms = 0
        self._polled_ms: int | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this member is the leader."""
        return self.leader != "" and self.leader == self.member_id

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is joining a generation."""
        return self.state in (MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING)

    @property
    def heartbeat_interval_ms(self) -> int:
        """The heartbeat interval, at most a third of the session timeout, which the group may have shortened."""
        return max(1, min(self.config.heartbeat_interval_ms, self._session_timeout_ms // 3))

    # --- driver interface -------------------------------------------------------------

    def poll(self, now_ms: int, *, by_application: bool = True) -> list[Action]:
        """Return the due actions, in order; all earlier actions must have been performed.

        ``by_application`` is set if the application polls, which it must do at least every
        ``max_poll_interval_ms``.  Without it there are only heartbeats, look-ups of the coordinator and, after that
        interval, the request to leave: a join calls the assignor, and is left to the application.
        """
        self._check_poll_interval(now_ms, by_application)
        todo = self._todo
        self._todo = []
        if todo or self.state in (MemberState.LEFT, MemberState.FAILED):
            return todo
        if self.coordinator is None:
            return self.find_coordinator(now_ms)
        if by_application:
            if self.state is MemberState.STABLE and self._rejoin_reason is not None:
                self._become(MemberState.UNJOINED)
            if self.state is MemberState.UNJOINED and now_ms >= self._retry_at_ms:
                self._become(MemberState.PREPARING)
                if actions := self._policy.prepare_join():
                    return actions
            if self.state is MemberState.PREPARING:
                return [self._join(now_ms)]
        if self.state is MemberState.STABLE and now_ms >= self._next_heartbeat_ms:
            config = self.config
            heartbeat = Heartbeat(config.group_id, self.generation_id, self.member_id, config.group_instance_id)
            # The next heartbeat does not wait for the response, which may be slow.  A response that arrives after the
            # session timeout is ignored, because the session may have expired.
            current = [pair for pair in self._heartbeats if now_ms - pair[1] < self._session_timeout_ms]
            self._heartbeats = [*current, (heartbeat, now_ms)]
            self._next_heartbeat_ms = now_ms + self.heartbeat_interval_ms
            return [Send(self.coordinator, heartbeat)]
        return []

    def sign_of_life(self, now_ms: int) -> Send | None:
        """Return a heartbeat whose response is not awaited, for while the application has not performed actions yet."""
        if self.coordinator is None or self.generation_id < 0:
            return None
        config = self.config
        heartbeat = Heartbeat(config.group_id, self.generation_id, self.member_id, config.group_instance_id)
        return Send(self.coordinator, heartbeat)

    def next_deadline_ms(self) -> int | None:
        """Return when ``poll`` is due next if no response arrives, or None if it is not due."""
        if self.state in (MemberState.LEFT, MemberState.FAILED):
            return None
        if self.coordinator is None:
            return self._retry_at_ms if self._finding is None else None
        if self.state is MemberState.UNJOINED:
            return self._retry_at_ms
        if self.state is MemberState.STABLE:
            return self._next_heartbeat_ms
        return None

    def on_response(self, request: Request, response: Response | Exception, now_ms: int) -> None:
        """Handle a response or error; responses to outdated requests are ignored."""
        if self.state in (MemberState.LEFT, MemberState.FAILED):
            return  # The response was in flight when the member left.
        if request is self._finding:
            self._finding = None
            if isinstance(response, FindCoordinatorResponse) and not response.error:
                self.coordinator = response.node_id
            else:
                self._retry_at_ms = now_ms + self.config.retry_backoff_ms
        elif isinstance(request, Heartbeat):
            sent_ms = next((at for sent, at in self._heartbeats if sent is request), None)
            if sent_ms is not None and self.state is MemberState.STABLE:
                self._heartbeats = [pair for pair in self._heartbeats if pair[0] is not request]
                self._on_heartbeat(response, sent_ms, now_ms)
        elif request is self._awaited:
            self._awaited = None
            if isinstance(response, JoinGroupResponse):
                self._on_joined(response, now_ms)
            elif isinstance(response, SyncGroupResponse):
                self._on_synced(response, now_ms)
            else:
                self._coordinator_lost(now_ms)

    def complete_assignment(self, generation_id: int, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Complete the action ``PerformAssignment``; results for an earlier generation are ignored."""
        if self.state is MemberState.ASSIGNING and generation_id == self.generation_id:
            self._sync(assignments, now_ms)

    def fail_assignment(self, now_ms: int) -> None:
        """Rejoin after the backoff, because the assignment failed."""
        if self.state is MemberState.ASSIGNING:
            self._retry(now_ms)

    def request_rejoin(self, reason: str) -> None:
        """Rejoin at the next ``poll``, because the subscription or partitions have changed."""
        self._rejoin_reason = reason

    def leave(self) -> list[Action]:
        """Return the actions for leaving; a static member sends no request, so it can return within its session."""
        actions: list[Action] = [*self._todo, *self._policy.leaving()]
        self._todo = []
        if (request := self._leave_request()) is not None:
            actions.append(request)
        self._become(MemberState.LEFT)
        return actions

    def on_commit_error(self, error: ErrorCode) -> None:
        """Update the membership after a rejected commit in the current generation."""
        if error in _MOVED:
            self.coordinator = None
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif self.state is MemberState.STABLE and error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._reset(keep_member_id=error is ErrorCode.ILLEGAL_GENERATION)

    # --- internal ---------------------------------------------------------------------

    def _check_poll_interval(self, now_ms: int, by_application: bool) -> None:
        """Leave if the application has stalled, so that other members get its partitions (KIP-62)."""
        polled = self._polled_ms
        if by_application or polled is None:
            self._polled_ms = now_ms
        is_stalled = polled is not None and now_ms - polled > self.config.max_poll_interval_ms
        if is_stalled and self.generation_id != NO_GENERATION and self.config.group_instance_id is None:
            if (request := self._leave_request()) is not None:
                self._todo.append(request)
            self._reset(keep_member_id=False)

    def _leave_request(self) -> Send | None:
        config = self.config
        if self.coordinator is None or not self.member_id or config.group_instance_id is not None:
            return None
        return Send(self.coordinator, LeaveGroup(config.group_id, self.member_id))

    def find_coordinator(self, now_ms: int) -> list[Action]:
        """Return a FindCoordinator request if the coordinator is unknown; also used for commits without membership."""
        if self.coordinator is not None or self._finding is not None or now_ms < self._retry_at_ms:
            return []
        self._finding = FindCoordinator(self.config.group_id)
        return [Send(ANY_NODE, self._finding)]

    def _join(self, now_ms: int) -> Action:
        config = self.config
        assert self.coordinator is not None
        self._rejoin_reason = None
        request = JoinGroup(
            config.group_id,
            self.member_id,
            self._policy.protocol_type,
            self._policy.metadata(),
            config.session_timeout_ms,
            config.max_poll_interval_ms,
            config.group_instance_id,
            config.client_id,
            takes_member_id=True,
        )
        self._become(MemberState.JOINING)
        self._await(request, now_ms)
        return Send(self.coordinator, request)

    def _on_joined(self, response: JoinGroupResponse, now_ms: int) -> None:
        error = response.error
        if error is ErrorCode.NONE:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            self.leader = response.leader
            self._protocol_name = response.protocol_name
            self._session_timeout_ms = response.session_timeout_ms or self.config.session_timeout_ms
            if self.is_leader and not response.skip_assignment:
                self._become(MemberState.ASSIGNING)
                self._todo.append(PerformAssignment(response.generation_id, response.protocol_name, response.members))
            else:
                self._sync({}, now_ms)
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._become(MemberState.UNJOINED)
        else:
            self._on_error(error, "joining", now_ms)

    def _sync(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        config = self.config
        if self.coordinator is None:
            # The coordinator was lost during the assignment; the generation will be outdated when it is found again.
            self._become(MemberState.UNJOINED)
            return
        request = SyncGroup(
            config.group_id,
            self.generation_id,
            self.member_id,
            config.group_instance_id,
            assignments,
            self._policy.protocol_type,
            self._protocol_name,
            config.max_poll_interval_ms,
        )
        self._become(MemberState.SYNCING)
        self._await(request, now_ms)
        self._todo.append(Send(self.coordinator, request))

    def _await(self, request: Request, now_ms: int) -> None:
        """Store the pending request; its response may be delayed until the slowest member has joined or synced."""
        self._awaited = request
        self._awaited_since_ms = now_ms

    def _on_synced(self, response: SyncGroupResponse, now_ms: int) -> None:
        if response.error is not ErrorCode.NONE:
            self._on_error(response.error, "syncing", now_ms)
            return
        actions, is_rejoin_needed = self._policy.assigned(self._protocol_name, self.generation_id, response.assignment)
        self._become(MemberState.STABLE)
        self._heartbeats = []
        self._next_heartbeat_ms = now_ms + self.heartbeat_interval_ms
        self.alive_until_ms = self._awaited_since_ms + self._session_timeout_ms
        self._todo += actions
        if is_rejoin_needed:
            self.request_rejoin("partitions were revoked for other members")

    def _on_heartbeat(self, response: Response | Exception, sent_ms: int, now_ms: int) -> None:
        if isinstance(response, HeartbeatResponse) and response.error in _ALIVE:
            self.alive_until_ms = max(self.alive_until_ms, sent_ms + self._session_timeout_ms)
        if not isinstance(response, HeartbeatResponse):
            self._coordinator_lost(now_ms)
        elif response.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
        elif response.error is not ErrorCode.NONE:
            self._on_error(response.error, "sending a heartbeat", now_ms)

    def _on_error(self, error: ErrorCode, doing: str, now_ms: int) -> None:
        """Update the membership after an error code in any response; ``doing`` describes the request."""
        if error in _MOVED or error in _PASSING:
            self._coordinator_lost(now_ms)
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._reset(keep_member_id=error is ErrorCode.ILLEGAL_GENERATION)
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._become(MemberState.UNJOINED)
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        else:
            self._fail(
                BrokerError(
                    f"group {self.config.group_id!r}, member {self.member_id or self.config.client_id!r}: "
                    f"{doing} was rejected with {error.name}; {_ADVICE.get(error, 'see the log of the broker')}",
                    code=error,
                )
            )

    def _fenced(self) -> None:
        self._fail(fenced_error(self.config))

    def _fail(self, error: BrokerError) -> None:
        self._todo += [*self._policy.lost(), Failed(error)]
        self._forget_generation()
        self._become(MemberState.FAILED)

    def _coordinator_lost(self, now_ms: int) -> None:
        self.coordinator = None
        self._awaited = None
        self._retry_at_ms = now_ms + self.config.retry_backoff_ms
        if self.is_rebalancing:
            self._become(MemberState.UNJOINED)

    def _retry(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + self.config.retry_backoff_ms
        self._become(MemberState.UNJOINED)

    def _reset(self, *, keep_member_id: bool) -> None:
        """Clear the membership after removal from the group; other members may already own the partitions."""
        self._todo += self._policy.lost()
        self._forget_generation()
        if not keep_member_id:
            self.member_id = ""
        self._become(MemberState.UNJOINED)

    def _forget_generation(self) -> None:
        self.generation_id = NO_GENERATION
        self.leader = ""
        self._awaited = None
        self._heartbeats = []
        self.alive_until_ms = 0

    def _become(self, state: MemberState) -> None:
        was = self.state
        legal = state is was or state in _ALWAYS_LEGAL or state in _LEGAL_NEXT[was]
        assert legal, f"member {self.member_id!r}: {was.value} -> {state.value}"
        self.state = state


_ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members share no assignor with this one, or are no consumers: "
    "use one assignor in all of them, or another group id",
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose session_timeout_ms within the broker's group.min.session.timeout.ms "
    "and group.max.session.timeout.ms",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "have the broker allow this user to read the group (ACL)",
    ErrorCode.INVALID_GROUP_ID: "a group id must not be empty",
}
