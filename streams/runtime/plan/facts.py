"""User data of subscriptions and assignments, exchanged between the members and the leader of a group.

User data is a field of Kafka's consumer protocol.  Here it contains a format version and an object, in MessagePack.
The module is pure.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from attrs import field, frozen

from streams.core.blocks.records import TaskId
from streams.core.errors import TopologyError

_VERSION = 5
T = TypeVar("T")


@frozen
class MemberFacts:
    """The state that a member sends to the group leader: its process id, its tasks, and its changelog positions.

    ``positions`` has, for each task with local state, the sum of its changelog positions (task offset sums in KIP-441);
    active tasks are at the end of their changelogs by definition.
    """

    process_id: str
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    positions: Mapping[TaskId, int] = field(factory=dict)
    #: Whether the member requests the shutdown of all instances of the application.
    wants_shutdown: bool = False
    client_id: str = ""
    #: The host:port of the setting ``application_server``, or "" if there is none.
    application_server: str = ""
    #: The setting ``client_tags`` (KIP-708).
    client_tags: Mapping[str, str] = field(factory=dict)

    def encode(self) -> bytes:
        """Encode the state of the member as the user data of its subscription."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes | None) -> "MemberFacts":
        """Decode the user data of a subscription.

        Raises:
            TopologyError: a member of the group is another kind of client, or runs another version of ``streams``.
        """
        return _decode(data, cls)


@frozen
class AssignedTasks:
    """The active tasks and standby replicas of one member, with its client id, process id and address."""

    client_id: str
    process_id: str
    application_server: str = ""
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


@frozen
class PartitionLayout:
    """The partition counts from which the partition groups of an application are derived.

    ``partitions`` has the partition counts of the source topics.  ``groups`` has, for each topic of a sub-topology with
    existing state, the number of partition groups among which the keys of the topic are divided.
    """

    partitions: Mapping[str, int]
    groups: Mapping[str, int] = field(factory=dict)
    #: Topics that tasks write and read, and that may be compacted.
    compacted: tuple[str, ...] = ()

    def key(self) -> tuple[Any, ...]:
        """Return a hashable key that identifies the layout."""
        return tuple(sorted(self.partitions.items())), tuple(sorted(self.groups.items())), self.compacted


@frozen
class Directive:
    """The leader's instructions to a member, in addition to its partitions.

    ``standby`` contains the tasks for which the member keeps standby replicas.  ``warmup`` contains the tasks that the
    member takes over once its replica has caught up.
    """

    layout: PartitionLayout
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()
    is_shutdown: bool = False
    #: Whether no task is withheld until its old owner has revoked it, so that no further rebalance is needed.
    is_final: bool = True
    #: The assignments of all members, so that each member can locate any key (KIP-535).
    places: tuple[AssignedTasks, ...] = ()

    def encode(self) -> bytes:
        """Encode this directive as the user data of an assignment."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes | None) -> "Directive":
        """Decode the user data of an assignment.

        Raises:
            TopologyError: the leader is another kind of client, or runs another version of ``streams``.
        """
        return _decode(data, cls)


def _encode(value: Any) -> bytes:
    return msgspec.msgpack.encode((_VERSION, value))


def _decode(data: bytes | None, kind: type[T]) -> T:
    try:
        version, value = msgspec.msgpack.decode(data or b"", type=tuple[int, kind])  # type: ignore[valid-type]
    except msgspec.MsgspecError as error:
        raise _foreign_member() from error
    if version != _VERSION:
        raise _foreign_member()
    decoded: T = value
    return decoded


def _foreign_member() -> TopologyError:
    return TopologyError(
        "a member of the group is not an instance of this application in this version: another client uses the "
        "application id as its group id, or instances of two versions of streams run at the same time; give the "
        "application an id of its own, and stop the old instances before the new ones start"
    )
