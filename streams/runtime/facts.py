"""User data of subscriptions and assignments, exchanged between the members and the leader of a group.

The user data travels beside Kafka's own fields.  Pure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from streams.core.errors import TopologyError
from streams.core.records import TaskId

_VERSION = 2


@frozen
class MemberFacts:
    """The state of a member: its process, its tasks, and the store positions of its process.

    ``positions`` has, for each task with local state, the sum of its changelog positions
    (KIP-441's task offset sums); active tasks are at the end by definition.
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

    def encode(self) -> bytes:
        """Return the user data of the subscription."""
        return _dump(
            {
                "process": self.process_id,
                "active": self.active,
                "standby": self.standby,
                "positions": [(*task, position) for task, position in self.positions.items()],
                "shutdown": self.wants_shutdown,
                "client": self.client_id,
                "server": self.application_server,
            }
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "MemberFacts":
        """Decode the user data of a subscription.

        Raises:
            TopologyError: a member of the group is another kind of client, or another version of ``streams``.
        """
        read = _load(data)
        try:
            return cls(
                read["process"],
                _task_ids(read["active"]),
                _task_ids(read["standby"]),
                {TaskId(sub, partition): position for sub, partition, position in read["positions"]},
                read["shutdown"],
                read["client"],
                read["server"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _stranger() from error


@frozen
class AssignedTasks:
    """The assignment of one member: its identity, its active tasks, and its standby replicas."""

    client_id: str
    process_id: str
    application_server: str = ""
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


@frozen
class PartitionLayout:
    """The input from which the partition groups of an application are derived.

    ``partitions`` has the partition counts of the source topics.  ``groups`` has the number of partition
    groups of each sub-topology that has existing state, which is divided into that many groups.
    """

    partitions: Mapping[str, int]
    groups: Mapping[int, int] = field(factory=dict)

    def key(self) -> tuple[Any, ...]:
        """Return a hashable key that identifies the layout."""
        return tuple(sorted(self.partitions.items())), tuple(sorted(self.groups.items()))


@frozen
class Directive:
    """The leader's instructions to a member, in addition to its partitions.

    ``standby`` are the tasks for which the member keeps standby replicas.  ``warmup`` are the tasks that the
    member is to take over when its replica has caught up.
    """

    layout: PartitionLayout
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()
    is_shutdown: bool = False
    #: Whether no task waits for its old owner to revoke it, so that no further rebalance is needed.
    is_final: bool = True
    #: The assignments of all members, so that each member can locate any key (KIP-535).
    places: tuple[AssignedTasks, ...] = ()

    def encode(self) -> bytes:
        """Return the user data of the assignment."""
        return _dump(
            {
                "partitions": dict(self.layout.partitions),
                "groups": list(self.layout.groups.items()),
                "active": self.active,
                "standby": self.standby,
                "warmup": self.warmup,
                "shutdown": self.is_shutdown,
                "final": self.is_final,
                "places": [
                    (place.client_id, place.process_id, place.application_server, place.active, place.standby)
                    for place in self.places
                ],
            }
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "Directive":
        """Decode the user data of an assignment.

        Raises:
            TopologyError: the leader is another kind of client.
        """
        read = _load(data)
        try:
            return cls(
                PartitionLayout(dict(read["partitions"]), dict(read["groups"])),
                _task_ids(read["active"]),
                _task_ids(read["standby"]),
                _task_ids(read["warmup"]),
                read["shutdown"],
                read["final"],
                tuple(
                    AssignedTasks(client, process, server, _task_ids(active), _task_ids(standby))
                    for client, process, server, active, standby in read["places"]
                ),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _stranger() from error


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps({"v": _VERSION} | document, separators=(",", ":")).encode()


def _load(data: bytes | None) -> dict[str, Any]:
    try:
        read = json.loads(data or b"")
    except ValueError as error:
        raise _stranger() from error
    if not isinstance(read, dict) or read.get("v") != _VERSION:
        raise _stranger()
    return read


def _stranger() -> TopologyError:
    return TopologyError(
        "a member of the group is no instance of this application in this version: another client uses its "
        "application id as group id, or instances of two versions of streams run at once; give the application "
        "an id of its own, and stop the old instances before the new ones start"
    )


def _task_ids(pairs: Iterable[Sequence[int]]) -> tuple[TaskId, ...]:
    return tuple(TaskId(*pair) for pair in pairs)
