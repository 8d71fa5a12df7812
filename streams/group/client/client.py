"""A member of a group with any protocol type, for work other than reading topics.

The client runs the ``Member`` state machine over a connection, in ``poll`` or in a separate thread, and calls a
listener.  Rebalancing is eager: members revoke their assignment before each rebalance, so no work has two owners.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Unpack

from attrs import frozen

from streams.core.clock import Clock, Deadline, SystemClock
from streams.core.closeable import Closeable
from streams.core.concurrency.threads import Signal, SystemThreads, ThreadKilled, Threads, Worker
from streams.core.errors import BrokerError, ClientClosedError, ConfigError
from streams.core.settings.client_settings import GroupClientSettings
from streams.core.settings.setting import changed
from streams.core.settings.settings import GroupClientOptions
from streams.core.user_code import refuse_unawaited_methods
from streams.group.client.member import Failed, Member, MemberConfig, MemberState, PerformAssignment, Send
from streams.protocol.group_messages import LeaveGroup
from streams.protocol.request import Request, Response
from streams.protocol.transport import Cluster, response_timeout_ms

#: Protocol type for groups without topics.
WORK_PROTOCOL_TYPE: Final = "work"


class GroupListener:
    """The listener and assignor of a group.  Override the methods that you need; they are called inside
    ``GroupClient.poll``.
    """

    def metadata(self) -> bytes:
        """Return this member's metadata for the leader; called at every join."""
        return b""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return each member's assignment from the members' metadata; called on the leader only."""
        return {}

    def on_assigned(self, assignment: bytes) -> None:
        """Handle a new assignment, which was encoded by ``assign``."""

    def on_revoked(self) -> None:
        """Handle a revocation: finish or stop the work.  The assignment is owned until this method returns."""

    def on_lost(self) -> None:
        """Handle a lost assignment, which another member may already own."""
        self.on_revoked()

    def is_rejoin_needed(self) -> bool:
        """Whether to rejoin the group because ``metadata`` or the work has changed; called at every poll."""
        return False


_LISTENER_METHODS = ("metadata", "assign", "on_assigned", "on_revoked", "on_lost", "is_rejoin_needed")


@frozen
class _Assigned:
    assignment: bytes


@frozen
class _Revoked:
    pass


@frozen
class _Lost:
    pass


class _Policy:
    """The membership policy for eager rebalancing."""

    def __init__(self, protocol_type: str, protocol_name: str, listener: GroupListener) -> None:
        self.protocol_type = protocol_type
        self._protocol_name = protocol_name
        self._listener = listener
        self._has_assignment = False

    def prepare_join(self) -> list[object]:
        return self.leaving()

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        return ((self._protocol_name, self._listener.metadata()),)

    def assigned(self, protocol_name: str, generation_id: int, assignment: bytes) -> tuple[list[object], bool]:
        self._has_assignment = True
        return [_Assigned(assignment)], False

    def lost(self) -> list[object]:
        had = self._has_assignment
        self._has_assignment = False
        return [_Lost()] if had else []

    def leaving(self) -> list[object]:
        had = self._has_assignment
        self._has_assignment = False
        return [_Revoked()] if had else []


def _member_config(group_id: str, settings: GroupClientSettings) -> MemberConfig:
    if not group_id:
        raise ConfigError("a group member needs a group id that is not empty")
    return MemberConfig(
        group_id,
        settings.client_id,
        settings.group_instance_id or None,
        settings.session_timeout_ms,
        settings.heartbeat_interval_ms,
        settings.rebalance_timeout_ms,
        settings.retry_backoff_ms,
    )


class GroupClient(Closeable):
    """A member of a group; call ``poll`` regularly, or ``start`` to poll in a thread.

    All members of a group have the same ``protocol_type`` and ``protocol_name``.  Times are milliseconds.
    A member without heartbeats for ``session_timeout_ms`` is removed from the group; in a rebalance members have
    ``rebalance_timeout_ms`` to revoke their assignment and rejoin.  ``options`` are fields of ``GroupClientSettings``.

    Raises:
        ConfigError: ``broker`` is missing, or a setting is invalid.
    """

    def __init__(
        self,
        broker: Cluster | None,
        group_id: str,
        listener: GroupListener,
        *,
        protocol_type: str = WORK_PROTOCOL_TYPE,
        protocol_name: str = "default",
        clock: Clock | None = None,
        threads: Threads | None = None,
        **options: Unpack[GroupClientOptions],
    ) -> None:
        if broker is None:
            raise ConfigError("a group member needs a broker; pass an EmbeddedBroker() or another cluster")
        refuse_unawaited_methods(listener, _LISTENER_METHODS, f"listener of group {group_id!r}", error=ConfigError)
        self._config = _member_config(group_id, changed(GroupClientSettings(), options))
        self._clock = clock or SystemClock()
        self._threads = threads or SystemThreads()
        self._listener = listener
        self._member = Member(self._config, _Policy(protocol_type, protocol_name, listener))
        self._connection = broker.connect(self._config.client_id)
        self._pending: dict[int, tuple[Request, int]] = {}
        self._actions: deque[object] = deque()
        self._has_assignment = False
        self._error: BaseException | None = None
        self._worker: Worker | None = None
        self._stop: Signal | None = None
        self._is_closed = False

    # --- state ------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """The member id assigned by the coordinator, or "" before that."""
        return self._member.member_id

    @property
    def generation_id(self) -> int:
        """The generation ID, or -1 if the member is in no generation."""
        return self._member.generation_id

    @property
    def has_assignment(self) -> bool:
        """Whether this member certainly owns its assignment at this time.

        This becomes False after a session timeout without a response from the coordinator, because another member
        may then own the assignment.
        """
        is_alive = self._clock.monotonic_ms() < self._member.alive_until_ms
        return self._has_assignment and is_alive

    # --- operation --------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> None:
        """Perform membership actions for up to the timeout in milliseconds, and call the listener.

        Raises:
            MemberFencedError: another process has this ``group_instance_id``.
            BrokerError: the group cannot be joined.
            ClientClosedError: the client is closed, or ``start`` was called.
        """
        self._check_open()
        if self._worker is not None and not self._worker.is_current:
            raise ClientClosedError("a thread polls this group member already; do not call poll() after start()")
        deadline = Deadline(self._clock, self._clock.monotonic_ms() + timeout_ms)
        while True:
            has_progress = self._receive(0) or self._act()
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if has_progress:
                continue
            if not remaining_ms or (self._stop is not None and self._stop.is_set()):
                return
            self._receive(self._wait_ms(remaining_ms))

    def start(self) -> None:
        """Start a thread that polls the group until ``close``; ``check`` and ``close`` raise its errors."""
        self._check_open()
        if self._worker is None:
            self._stop = self._threads.signal()
            self._worker = self._threads.start(f"{self._config.client_id}-group", self._run)

    def check(self) -> None:
        """Raise the error that ended the polling thread, if any."""
        if self._error is not None:
            raise self._error

    def rejoin(self) -> None:
        """Trigger a rebalance of the group."""
        self._member.request_rejoin("requested by the application")
        self._connection.wakeup()

    def close(self, timeout_ms: int = 10_000) -> None:
        """Revoke the assignment, and leave the group unless the member is static; closing again has no effect."""
        if self._is_closed:
            return
        if self._worker is not None and self._stop is not None:
            self._stop.set()
            self._connection.wakeup()
            if not self._worker.is_current:
                self._worker.join(timeout_ms)
        self._is_closed = True
        try:
            self._actions.extend(self._member.leave())
            while self._actions:
                action = self._actions.popleft()
                self._perform(action)
                if isinstance(action, Send) and isinstance(action.request, LeaveGroup):
                    # If the request is lost, the other members wait for the session timeout.
                    self._receive(min(timeout_ms, self._config.session_timeout_ms))
        finally:
            self._connection.close()
        self.check()

    # --- internal ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._stop is not None and not self._stop.is_set():
                self.poll(self._member.heartbeat_interval_ms)
        except ThreadKilled:
            raise
        except BaseException as error:  # noqa: BLE001
            # check() or close() raises this error.
            self._error = error

    def _act(self) -> bool:
        if self._listener.is_rejoin_needed():
            self._member.request_rejoin("the listener wants it")
        if not self._actions:
            self._actions.extend(self._member.poll(self._clock.monotonic_ms()))
        has_progress = bool(self._actions)
        while self._actions:
            self._perform(self._actions.popleft())
        return has_progress

    def _perform(self, action: object) -> None:
        match action:
            case Send(node_id, request):
                self._send(node_id, request)
            case PerformAssignment(generation_id, _, members):
                self._assign(generation_id, {member.member_id: member.metadata for member in members})
            case _Assigned(assignment):
                self._has_assignment = True
                self._listener.on_assigned(assignment)
            case _Revoked():
                # ``has_assignment`` is already False while the listener revokes.
                self._has_assignment = False
                self._listener.on_revoked()
            case _Lost():
                self._has_assignment = False
                self._listener.on_lost()
            case Failed(error):
                raise error

    def _assign(self, generation_id: int, members: Mapping[str, bytes]) -> None:
        is_done = False
        try:
            assignments = self._listener.assign(members)
            unknown = sorted(set(assignments) - set(members))
            if unknown:
                raise ConfigError(f"group {self._config.group_id!r}: assign() named {unknown}, which are not members")
            is_done = True
        finally:
            if not is_done:
                self._member.fail_assignment(self._clock.monotonic_ms())
        self._member.complete_assignment(generation_id, assignments, self._clock.monotonic_ms())

    def _send(self, node_id: int, request: Request) -> None:
        now = self._clock.monotonic_ms()
        try:
            number = self._connection.send(node_id, request)
        except Exception as error:  # noqa: BLE001
            # After any transport failure, the member looks up the coordinator again.
            self._member.on_response(request, error, now)
            return
        self._pending[number] = (request, now + response_timeout_ms(request, self._config.session_timeout_ms))

    def _receive(self, timeout_ms: int) -> bool:
        arrived = self._connection.poll(timeout_ms)
        now = self._clock.monotonic_ms()
        expired: list[tuple[int, Response | Exception]] = [
            (number, BrokerError("no response in time")) for number, (_, until) in self._pending.items() if until <= now
        ]
        for number, response in [*arrived, *expired]:
            request, _ = self._pending.pop(number, (None, 0))
            if request is not None:
                self._member.on_response(request, response, now)
        return bool(arrived or expired)

    def _wait_ms(self, remaining_ms: int) -> int:
        now = self._clock.monotonic_ms()
        due = [until for _, until in self._pending.values()]
        if (deadline_ms := self._member.next_deadline_ms()) is not None:
            due.append(deadline_ms)
        return max(0, min([remaining_ms, *(at - now for at in due)]))

    def _check_open(self) -> None:
        if self._is_closed or self._member.state is MemberState.FAILED:
            raise ClientClosedError("this group member is closed, or was rejected; create a new one")
