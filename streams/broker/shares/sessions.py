"""Share sessions: the partitions that a member gets records of, so that a request names only changes (KIP-932).

A session has an epoch, by which a request is recognized that was sent twice or for an earlier session.
Pure: no clock, no I/O.
"""

from attrs import define, field

from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FINAL_EPOCH, INITIAL_EPOCH
from streams.protocol.share_group_messages import ShareAcknowledge, ShareFetch, TopicIdPartition

_MOST = 0x7FFF_FFFF


@define(eq=False)
class ShareSession:
    """What one member of a share group reads from this broker."""

    group_id: str
    member_id: str
    #: Epoch of the next request.
    epoch: int = 1
    #: Those that were served last are the last.
    partitions: dict[TopicIdPartition, None] = field(factory=dict)


@define(eq=False)
class ShareSessions:
    """The share sessions of all members."""

    _by_member: dict[tuple[str, str], ShareSession] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._by_member)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return the session of a member, or None if it has none."""
        return self._by_member.get((group_id, member_id))

    def of_fetch(self, request: ShareFetch, max_sessions: int) -> ShareSession:
        """Return the session of a fetch, brought up to date; the initial epoch begins a new one.

        Raises:
            BrokerError: see ``of_acknowledgement``; or there are ``max_sessions`` (``SHARE_SESSION_LIMIT_REACHED``).
        """
        key = request.group_id, request.member_id
        if request.session_epoch == INITIAL_EPOCH:
            if any(request.partitions.values()):
                raise BrokerError(
                    "The first request of a share session cannot acknowledge records.", code=ErrorCode.INVALID_REQUEST
                )
            if key not in self._by_member and len(self._by_member) >= max_sessions:
                raise BrokerError(
                    f"There are {max_sessions} share sessions (group.share.max.share.sessions).",
                    code=ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                )
            session = self._by_member[key] = ShareSession(*key)
        else:
            session = self._continued(request)
        session.partitions.update(dict.fromkeys(request.partitions))
        for place in request.forgotten:
            session.partitions.pop(place, None)
        return session

    def of_acknowledgement(self, request: ShareAcknowledge) -> ShareSession:
        """Return the session of a request that acknowledges records.

        Raises:
            BrokerError: there is no session (``SHARE_SESSION_NOT_FOUND``), or the epoch is not that of the next
                request (``INVALID_SHARE_SESSION_EPOCH``).
        """
        if request.session_epoch == INITIAL_EPOCH:
            raise BrokerError(
                "A share session cannot begin with an acknowledgement.", code=ErrorCode.INVALID_SHARE_SESSION_EPOCH
            )
        return self._continued(request)

    def end(self, session: ShareSession) -> bool:
        """End a session; return whether it is that of its member."""
        key = session.group_id, session.member_id
        if self._by_member.get(key) is not session:
            return False
        del self._by_member[key]
        return True

    def _continued(self, request: ShareFetch | ShareAcknowledge) -> ShareSession:
        session = self.get(request.group_id, request.member_id)
        if session is None:
            raise BrokerError(
                f"Member {request.member_id} of group {request.group_id} has no share session.",
                code=ErrorCode.SHARE_SESSION_NOT_FOUND,
            )
        if request.session_epoch == FINAL_EPOCH:
            return session
        if request.session_epoch != session.epoch:
            raise BrokerError(
                f"The share session of member {request.member_id} is in epoch {session.epoch}, not "
                f"{request.session_epoch}.",
                code=ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            )
        session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        return session
