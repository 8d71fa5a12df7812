"""The published records of a snapshot's outputs, and of earlier snapshots of the same replay.

Progress is stored as committed offsets of a consumer group for each snapshot.  A replay that is resumed has a snapshot
after each run.  Its outputs are those of the previous snapshot plus further records, unless late rows were repaired or
the end of the history was computed again.  A digest of the published records shows whether this is so.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import repeat

from attrs import astuple, define, evolve, field, frozen

from streams.clients import Admin
from streams.core.blocks.records import Block, TopicPartition
from streams.protocol.group_messages import OffsetAndMetadata
from streams.replay.errors import ReplayError
from streams.replay.handover.snapshot import Snapshot

#: Maximum number of points of a partition: metadata of a committed offset is limited to 4096 bytes by default.
_POINTS = 12


@frozen
class Point:
    """A point of an output partition from which a run has published: the outputs before it, and the topic's end."""

    #: Number of records of the outputs, and their digest.
    count: int
    digest: str
    #: Number of records that were sent to the topic before, and the offset at its end.
    sent: int
    offset: int


@frozen
class Published:
    """The published records of one output partition: the first ``count`` records of the outputs of a snapshot."""

    snapshot: str
    count: int
    #: Digest of these records; "" if an earlier version has published them.
    digest: str = ""
    #: Number of records that were sent to the topic, including corrections.
    sent: int = 0
    #: Whether the partition is being corrected: further records of it would be out of place.
    is_correcting: bool = False
    #: The points from which the latest runs have published, and the first one, oldest first.
    points: tuple[Point, ...] = ()
    parent: str | None = None
    replay: str = ""
    #: The position of the snapshot among those of its replay: the number of repairs, and of records read.
    order: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, committed: OffsetAndMetadata) -> "Published":
        """Decode the progress stored in a committed offset."""
        content = json.loads(committed.metadata)
        return cls(
            content["snapshot"],
            committed.offset,
            content.get("digest", ""),
            content.get("sent", committed.offset),
            content.get("correcting", False),
            tuple(Point(*point) for point in content.get("points", ())),
            content["parent"],
            content.get("replay", ""),
            tuple(content.get("order", (0, 0))),
        )

    def after(self, point: Point) -> "Published":
        """Return this progress with a further point, from which the next records are published."""
        points = (*self.points, point)
        return evolve(self, points=points if len(points) <= _POINTS else (points[0], *points[2:]))

    def committed(self) -> OffsetAndMetadata:
        """Encode the progress as an offset to commit."""
        content = {
            "snapshot": self.snapshot,
            "parent": self.parent,
            "replay": self.replay,
            "order": self.order,
            "digest": self.digest,
            "sent": self.sent,
            "correcting": self.is_correcting,
            "points": [astuple(point) for point in self.points],
        }
        return OffsetAndMetadata(self.count, json.dumps(content))


@define(eq=False)
class OutputDigest:
    """A digest of a sequence of records, independent of their division into blocks."""

    count: int = 0
    _hash: "blake2b" = field(factory=lambda: blake2b(digest_size=16))

    def add(self, block: Block) -> None:
        headers = repeat(()) if block.headers is None else (tuple(map(tuple, pairs)) for pairs in block.headers)
        rows = zip(block.keys, block.values, block.timestamps, headers, strict=False)
        self._hash.update("".join(map(repr, rows)).encode())
        self.count += len(block)

    def text(self) -> str:
        """Return the digest of the records so far."""
        return self._hash.hexdigest()

    def copy(self) -> "OutputDigest":
        """Return an independent copy."""
        return OutputDigest(self.count, self._hash.copy())


def group_prefix(snapshot: Snapshot) -> str:
    """Return the prefix of the consumer groups that store the progress of publishing for an application."""
    return f"{snapshot.application_id}-publish-"


def find_published(
    admin: Admin, snapshot: Snapshot, names: Iterable[str], own_group: str
) -> dict[TopicPartition, Published]:
    """Return the published records by partition, from this snapshot or an earlier one of the same replay.

    Raises:
        ReplayError: a topic has outputs of a snapshot that this one does not continue, so that records would be
            duplicated, or of a later snapshot of the same replay.
    """
    prefix = group_prefix(snapshot)
    topics = frozenset(names)
    newest: dict[TopicPartition, Published] = {}
    others: dict[str, tuple[Published, str]] = {}
    for group in admin.list_groups():
        if not group.group_id.startswith(prefix):
            continue
        for at, committed in admin.committed_offsets(group.group_id).items():
            if at.topic not in topics:
                continue
            progress = Published.of(committed)
            is_own = group.group_id == own_group
            if not is_own:
                others[progress.snapshot] = progress, min(at.topic, others.get(progress.snapshot, (0, at.topic))[1])
            if is_own or (snapshot.replay and progress.replay == snapshot.replay):
                before = newest.get(at)
                if before is None or (progress.order, is_own) >= (before.order, before.snapshot == snapshot.id):
                    newest[at] = progress
    _refuse_others(snapshot, others)
    return newest


def _refuse_others(snapshot: Snapshot, others: Mapping[str, tuple[Published, str]]) -> None:
    line = set(_line(snapshot, {name: progress for name, (progress, _) in others.items()}))
    for name, (progress, topic) in sorted(others.items()):
        if name in line:
            continue
        if snapshot.replay and progress.replay == snapshot.replay:
            raise ReplayError(
                f"topic {topic!r} has the outputs of snapshot {name} of {snapshot.application_id!r}, which is a later "
                f"one of the same replay than {snapshot.id}; publish the latest one"
            )
        raise ReplayError(
            f"topic {topic!r} has the outputs of snapshot {name} of {snapshot.application_id!r} already, "
            f"which is no ancestor of {snapshot.id}: records would be duplicated; publish to another broker, or "
            "delete the topic first"
        )


def _line(snapshot: Snapshot, snapshots: Mapping[str, Published]) -> Iterator[str]:
    """Yield the IDs of a snapshot and of those it continues: earlier ones of its replay, those of its parent, etc."""
    number: str | None = snapshot.id
    own = Published(snapshot.id, 0, parent=snapshot.parent, replay=snapshot.replay, order=snapshot.order)
    seen: set[str] = set()
    while number is not None and number not in seen:
        seen.add(number)
        yield number
        place = own if number == snapshot.id else snapshots.get(number)
        if place is None:
            return
        for name, other in snapshots.items():
            if place.replay and other.replay == place.replay and other.order <= place.order:
                yield name
        number = place.parent
