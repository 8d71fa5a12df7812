"""Offset metadata as Kafka Streams writes it (KAFKA-5510, KIP-825), with fields of our own behind it.

Base64 of a version byte (2), the partition time, the number of entries of the processor metadata, and these entries:
names with their length, and times.  Integers are big-endian.  Version 1 has no more than the partition time.

Kafka Streams does not read further; there is what only this library commits: a format version, then fields, each with
its tag, its length and its value.  Tags and lengths are unsigned varints.  A field with its default is left out.  All
fields count: a field that a release does not know is refused, like another format version, since to go on without it
would lose or repeat records.  A field whose meaning changes gets a new tag.

All of it has ``LIMIT_BYTES``.  What grows with the application are the changelogs, which may be left out, and the
lanes, which may not; ``lanes_fit`` says beforehand how many have room.  The module is pure.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from struct import Struct, error
from typing import Any, Final

import attrs
from attrs import field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, TopicPartition
from streams.core.errors import ForeignFormatError, StreamsError
from streams.core.serdes.varints import read_uvarint, read_varint, uvarint, varint

#: Length of the metadata that brokers accept by default (``offset.metadata.max.bytes``).
LIMIT_BYTES: Final = 4_096
#: Distance in records up to which ``lanes_fit`` promises room: three bytes a lane.
MOST_AHEAD: Final = (1 << 21) - 1

_VERSION = 2
_HEAD = Struct(">bq")
_COUNT = Struct(">i")
_TIME = Struct(">q")
#: Format version of our own fields.  Of version 2 they were JSON, which begins with a brace.
_OWN_VERSION = 3
_JSON = ord("{")
#: What the metadata of the first releases, which was JSON alone, begins with.
_JSON_ALONE = ('{"p":', '{"v":')


@frozen
class _Form:
    """How the value of a field is written."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _tagged(tag: int, form: _Form, **options: Any) -> Any:
    return field(metadata={"tag": tag, "form": form}, **options)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encode_lanes(lanes: Mapping[int, int]) -> bytes:
    """Return the distances of lanes 0, 1, ..., of which none is 0; 0 and a number skip so many lanes."""
    parts = []
    following = 0
    for lane, ahead in sorted(lanes.items()):
        if ahead <= 0:
            raise ValueError(f"lane {lane} is {ahead} records ahead: only lanes that are ahead have a position")
        if lane > following:
            parts += [b"\0", uvarint(lane - following)]
        parts.append(uvarint(ahead))
        following = lane + 1
    return b"".join(parts)


def _decode_lanes(data: bytes) -> dict[int, int]:
    lanes: dict[int, int] = {}
    lane = place = 0
    while place < len(data):
        ahead, place = read_uvarint(data, place)
        if ahead:
            lanes[lane] = ahead
            lane += 1
        else:
            skipped, place = read_uvarint(data, place)
            lane += skipped
    return lanes


_NUMBER = _Form(varint, lambda data: read_varint(data)[0])
_FLAG = _Form(varint, lambda data: data != b"\0")
_TEXT = _Form(str.encode, bytes.decode)
_VALUES = _Form(_json, json.loads)
_LANES = _Form(_encode_lanes, _decode_lanes)


@frozen
class OwnMetadata:
    """What only this library commits with an offset.

    Times are epoch milliseconds.  A tag is never used again for something else.
    """

    #: Number of the partition group of the task; a rebalance checks that the partition stays in this group.
    group: int | None = _tagged(1, _NUMBER, default=None)
    #: Number of partition groups among which the keys of the topic are divided; None if its records reach no store.
    groups: int | None = _tagged(2, _NUMBER, default=None)
    #: Stream time of the task; -1 but on the task's first partition.
    stream_time_ms: int = _tagged(3, _NUMBER, default=NO_TIMESTAMP)
    #: Stream time by node, or by node and operator; empty but on the task's first partition.
    operator_times: Mapping[str, int] = _tagged(4, _VALUES, factory=dict)
    #: Punctuations, as JSON rows; empty but on the task's first partition.
    timers: Sequence[list[Any]] = _tagged(5, _VALUES, factory=list)
    #: By store: the end offset of its changelog at the commit (None if unknown), and its format, as a JSON row.  Those
    #: of a task are spread over its partitions; what has no room is left out.
    changelogs: Mapping[str, list[Any]] = _tagged(6, _VALUES, factory=dict)
    #: The snapshot that the offset comes from; empty if it comes from processing.
    origin: str = _tagged(7, _TEXT, default="")
    #: By lane of a repartition partition (the partition group of the task that writes it): how many offsets its next
    #: record to process is ahead of the committed offset.  The committed offset is the lowest one that is unprocessed.
    #: Lanes that are not ahead are left out.
    lanes: Mapping[int, int] = _tagged(8, _LANES, factory=dict)
    #: Whether offsets and changelogs were committed in one transaction, so that neither is ahead of the other.
    is_exactly_once: bool = _tagged(9, _FLAG, default=False)
    #: Highest place among the inputs that the task had processed, if its outputs are merged by place; -1 but on the
    #: task's first partition.
    place_ms: int = _tagged(10, _NUMBER, default=NO_TIMESTAMP)
    #: Number of this commit of the task, which its stores note too; 0 but on the task's first partition.
    commits: int = _tagged(11, _NUMBER, default=0)

    def sections(self) -> dict[str, bytes]:
        """Return the bytes of each field by its name, in order; fields with their default are left out."""
        sections = {}
        for name, (tag, form) in _FIELDS.items():
            value = getattr(self, name)
            if value != _DEFAULTS[name]:
                data = form.encode(value)
                sections[name] = uvarint(tag) + uvarint(len(data)) + data
        return sections

    @classmethod
    def decode(cls, data: bytes, where: str) -> "OwnMetadata":
        """Parse what is behind the metadata of Kafka Streams.

        Raises:
            ForeignFormatError: another release has written it.
            IndexError, ValueError: it is incomplete.
        """
        if data[0] != _OWN_VERSION:
            raise _other_release(where, f"format version {2 if data[0] == _JSON else data[0]}, not {_OWN_VERSION}")
        fields: dict[str, Any] = {}
        place = 1
        while place < len(data):
            tag, place = read_uvarint(data, place)
            size, place = read_uvarint(data, place)
            if tag not in _NAMES:
                raise _other_release(where, f"field {tag}, which this release does not know")
            if place + size > len(data):
                raise ValueError(f"field {tag} ends behind the metadata")
            fields[_NAMES[tag]] = _FIELDS[_NAMES[tag]][1].decode(data[place : place + size])
            place += size
        return cls(**fields)


_FIELDS: Final = {item.name: (item.metadata["tag"], item.metadata["form"]) for item in attrs.fields(OwnMetadata)}
_NAMES: Final = {tag: name for name, (tag, _) in _FIELDS.items()}
_DEFAULTS: Final = attrs.asdict(OwnMetadata())


@frozen
class OffsetMetadata:
    """The metadata of one committed offset; times are epoch milliseconds, -1 if unknown.

    ``times`` is the processor metadata: by store, the time up to which closed windows have been emitted.
    """

    partition_time_ms: int = NO_TIMESTAMP
    times: Mapping[str, int] = field(factory=dict)
    #: What only this library commits; None if Kafka Streams has committed.
    own: OwnMetadata | None = None

    def encode(self, limit: int = LIMIT_BYTES) -> str:
        """Return the metadata as text of at most ``limit`` bytes.

        Raises:
            StreamsError: it is longer; the message has the size of each part.
        """
        text = b64encode(b"".join(self._sections().values())).decode()
        if len(text) > limit:
            sizes = ", ".join(f"{name}: {_in_base64(len(data))}" for name, data in self._sections().items() if data)
            raise StreamsError(
                f"the metadata of an offset has {len(text)} bytes, more than the {limit} that a broker accepts "
                f"(bytes of each part: {sizes}); use fewer stores and punctuations in one task, or fewer partitions "
                "that write to a repartition topic"
            )
        return text

    def room(self, limit: int = LIMIT_BYTES) -> int:
        """Return how many bytes have room beside this metadata, the tag and the length of a further field included."""
        # Four characters of base64 stand for three bytes.
        return limit // 4 * 3 - sum(map(len, self._sections().values()))

    def with_changelogs(self, rows: dict[str, list[Any]]) -> "OffsetMetadata":
        """Return the metadata with as many of ``rows``, changelogs by store, as have room; remove these from it."""
        # A tag, a length of two bytes, and the braces; an entry has a comma in place of its braces.
        room = self.room() - 5
        taken: dict[str, list[Any]] = {}
        for name, row in list(rows.items()):
            size = len(_json({name: row})) - 1
            if size <= room:
                room -= size
                taken[name] = rows.pop(name)
        return attrs.evolve(self, own=attrs.evolve(self.own or OwnMetadata(), changelogs=taken))

    def _sections(self) -> dict[str, bytes]:
        parts = [_HEAD.pack(_VERSION, self.partition_time_ms), _COUNT.pack(len(self.times))]
        for name, time_ms in self.times.items():
            data = name.encode()
            parts += [_COUNT.pack(len(data)), data, _TIME.pack(time_ms)]
        sections = {"times": b"".join(parts)}
        if self.own is not None:
            sections |= {"version": bytes([_OWN_VERSION]), **self.own.sections()}
        return sections

    @classmethod
    def decode(cls, text: str, partition: TopicPartition | None = None) -> "OffsetMetadata | None":
        """Parse the metadata of a committed offset; return None if another client or tool has committed it.

        Raises:
            ForeignFormatError: another release of this library has committed it; the message names ``partition``.
        """
        where = "a committed offset" if partition is None else f"the committed offset of {partition}"
        if text.startswith(_JSON_ALONE):
            raise _other_release(where, f"format version 0 or 1, not {_OWN_VERSION}")
        try:
            data = b64decode(text, validate=True)
            version, partition_time_ms = _HEAD.unpack_from(data)
            if version == 1:
                return cls(partition_time_ms)
            if version != _VERSION:
                return None
            times, place = _times(data, _HEAD.size) if len(data) > _HEAD.size else ({}, len(data))
            own = OwnMetadata.decode(data[place:], where) if len(data) > place else None
            return cls(partition_time_ms, times, own)
        except ForeignFormatError:
            raise
        except (ValueError, IndexError, error):
            return None


def lanes_fit(count: int, beside: OffsetMetadata | None = None, limit: int = LIMIT_BYTES) -> bool:
    """Return whether the positions of ``count`` lanes have room, each up to ``MOST_AHEAD`` records ahead.

    ``beside`` is what else the metadata of the partition has; the least by default: about 1,000 lanes have room.
    """
    fixed = beside or OffsetMetadata(own=OwnMetadata(0, count))
    own = attrs.evolve(fixed.own or OwnMetadata(), lanes=dict.fromkeys(range(count), MOST_AHEAD))
    return attrs.evolve(fixed, own=own).room(limit) >= 0


def _in_base64(size: int) -> int:
    return (size + 2) // 3 * 4


def _other_release(where: str, what: str) -> ForeignFormatError:
    return ForeignFormatError(
        f"{where} has metadata of another release of streams ({what}); run the application with that release, or start "
        "over with another application id (or state directory)",
        what="metadata of a committed offset",
    )


def _times(data: bytes, place: int) -> tuple[dict[str, int], int]:
    """Return the entries of the processor metadata from ``place``, and the place behind them."""
    times: dict[str, int] = {}
    (count,) = _COUNT.unpack_from(data, place)
    place += _COUNT.size
    for _ in range(count):
        (size,) = _COUNT.unpack_from(data, place)
        if size < 0:
            raise ValueError(f"a name of {size} bytes")
        place += _COUNT.size
        name = data[place : place + size].decode()
        (times[name],) = _TIME.unpack_from(data, place + size)
        place += size + _TIME.size
    return times, place
