"""User data of subscriptions and assignments, exchanged between members and the group's leader.

The bytes travel as user data of subscriptions and assignments, beside Kafka's own fields.  Pure.
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
    """The state of a member: its process, its tasks, and the positions of its process's stores.

    ``positions`` is the sum of the changelog positions of each task with local state
    (KIP-441's task offset sums); active tasks are at the end by definition.
    """

    process_id: str
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    positions: Mapping[TaskId, int] = field(factory=dict)
    #: Whether the member requests the shutdown of all instances of the application.
    wants_shutdown: bool = False
    client_id: str = ""
    #: host:port of the setting ``application_server``; "" = none.
    application_server: str = ""

    def encode(self) -> bytes:
        """Return the bytes for the subscription."""
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
        """Read the bytes of a subscription.

        Raises:
            TopologyError: another kind of client is in the group, or another version of this one.
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
    """What one member of the group has been given: who it is, its tasks, and those of which it keeps copies."""

    client_id: str
    process_id: str
    application_server: str = ""
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


@frozen
class PartitionLayout:
    """What the partition groups of an application follow from.

    ``partitions`` are the counts of its source topics, ``groups`` the number of partition groups
    of those sub-topologies whose state exists already and is divided in so many.
    """

    partitions: Mapping[str, int]
    groups: Mapping[int, int] = field(factory=dict)

    def key(self) -> tuple[Any, ...]:
        """Return what tells layouts apart."""
        return tuple(sorted(self.partitions.items())), tuple(sorted(self.groups.items()))


@frozen
class Directive:
    """What the leader tells a member beside its partitions.

    ``standby`` are tasks whose state it follows, ``warmup`` those among them that it is to take
    over when it has caught up.
    """

    layout: PartitionLayout
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()
    is_shutdown: bool = False
    #: Whether no task waits for revocation by its old owner, so that no further rebalance is needed.
    is_final: bool = True
    #: What all members have, so that each can say where a key lies (KIP-535).
    places: tuple[AssignedTasks, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes for the assignment."""
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
        """Read the bytes of an assignment.

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
