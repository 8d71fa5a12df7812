"""Records of groups with epochs in the ``__consumer_offsets`` log, in Kafka's format.

A key has the number of its kind of record as its version; a value has a version of its own, which is 0.  A group has a
record with its epoch and one with the epoch of its target assignment.  A member has a record with what it says about
itself, one with its target assignment, and one with its current assignment.  This module performs no I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final

from attrs import evolve, field, frozen

from streams.group.assignment.wire import Reader, Writer
from streams.group.state.effects import Persist
from streams.group.state.epoch_group import ReconciliationState
from streams.protocol.schema import INT8, INT32, STRING, Field, Fields, Message
from streams.protocol.wire import Coder, coder

_VALUE_VERSION: Final = b"\x00\x00"


def _as_it_is(value: Any) -> Any:
    return value


@frozen
class Column:
    """A field of a record, the attribute that has it, and its two forms."""

    field: Field
    attribute: str
    recorded: Callable[[Any], Any] = _as_it_is
    read: Callable[[Any], Any] = _as_it_is


@frozen(eq=False)
class GroupRecord:
    """One kind of record: the version of its key, and its value as attributes of a group or member."""

    version: int
    message: Message
    #: Returns the fields of an object, and its attributes from these.
    write: Callable[[Any], Fields]
    read: Callable[[Fields], Mapping[str, Any]]
    attributes: tuple[str, ...] = ()

    def encoded(self, value: Any) -> bytes:
        """Return the record of an object as bytes."""
        return _VALUE_VERSION + _coder(self.message).to_bytes(self.write(value))

    def decoded(self, data: bytes) -> Mapping[str, Any]:
        """Return the attributes in a record.

        Raises:
            ValueError: the record has a version that is unknown here.
        """
        version = Reader(data).int16()
        if version:
            raise ValueError(f"{self.message.name}: version {version} is unknown, written by a later version")
        return self.read(_coder(self.message).whole(data, len(_VALUE_VERSION)))


@cache
def _coder(message: Message) -> Coder:
    return coder(message, 0)


def record(version: int, name: str, *columns: Column, unused: Iterable[Field] = ()) -> GroupRecord:
    """Return a record of columns; ``unused`` fields at its end have their defaults."""
    getters = [(column.field.name, attrgetter(column.attribute), column.recorded) for column in columns]
    return GroupRecord(
        version,
        Message(name, 0, (*(column.field for column in columns), *unused)),
        lambda value: {name: recorded(get(value)) for name, get, recorded in getters},
        lambda fields: {column.attribute: column.read(fields[column.field.name]) for column in columns},
        tuple(column.attribute for column in columns),
    )


#: What members of all kinds say about themselves.
WHO: Final = (
    Column(Field("instance_id", STRING, nullable=0), "group_instance_id"),
    Column(Field("rack_id", STRING, nullable=0), "rack_id"),
    Column(Field("client_id", STRING), "client_id"),
    Column(Field("client_host", STRING), "client_host"),
)
REBALANCE_TIMEOUT: Final = Column(Field("rebalance_timeout_ms", INT32), "rebalance_timeout_ms")
EPOCH: Final = Column(Field("epoch", INT32), "epoch")
ASSIGNMENT_EPOCH: Final = Column(Field("assignment_epoch", INT32), "assignment_epoch")


def progress(stable: int) -> tuple[Column, ...]:
    """Return the columns of a member's epoch and of its state; ``stable`` is Kafka's number of its first state."""
    state = Field("state", INT8)
    return (
        Column(Field("member_epoch", INT32), "epoch"),
        Column(Field("previous_member_epoch", INT32), "previous_epoch"),
        Column(state, "state", lambda value: value + stable, lambda number: ReconciliationState(number - stable)),
    )


@frozen(eq=False)
class GroupLog:
    """The records of one kind of group, whose groups and members are of two classes."""

    group_type: type[Any]
    member_type: type[Any]
    group: GroupRecord
    target: GroupRecord
    member: GroupRecord
    current: GroupRecord
    #: Its value is the work of a member, read as the attribute ``target``.
    target_member: GroupRecord
    #: Further records of a group.
    more: tuple[GroupRecord, ...] = ()
    _by_version: Mapping[int, GroupRecord] = field(init=False)
    _of_members: frozenset[int] = field(init=False)

    @_by_version.default
    def _versions(self) -> Mapping[int, GroupRecord]:
        records = (self.group, self.target, self.member, self.current, self.target_member, *self.more)
        return {one.version: one for one in records}

    @_of_members.default
    def _member_versions(self) -> frozenset[int]:
        return frozenset(one.version for one in (self.current, self.target_member, self.member))

    def of_group(self, kind: GroupRecord, group_id: str, group: Any) -> Persist:
        """Return a record of a group."""
        return Persist(_key(kind.version, group_id), kind.encoded(group))

    def of_member(self, kind: GroupRecord, group_id: str, member: Any) -> Persist:
        """Return a record of a member."""
        return Persist(_key(kind.version, group_id, member.member_id), kind.encoded(member))

    def of_target(self, group_id: str, member_id: str, target: Any) -> Persist:
        """Return the record of a member's target assignment."""
        return Persist(_key(self.target_member.version, group_id, member_id), self.target_member.encoded(target))

    def keys_of_member(self, group_id: str, member_id: str) -> list[bytes]:
        """Return the keys of all records of a member."""
        return [_key(one.version, group_id, member_id) for one in (self.current, self.target_member, self.member)]

    def keys_of_group(self, group_id: str) -> list[bytes]:
        """Return the keys of the records of a group without members."""
        return [_key(one.version, group_id) for one in (self.target, self.group, *self.more)]

    def read_key(self, data: bytes) -> tuple[int, str, str] | None:
        """Decode a record key: its version, group ID, and member ID or ""; None if it is not of this log."""
        reader = Reader(data)
        version = reader.int16()
        if version not in self._by_version:
            return None
        return version, reader.string(), reader.string() if version in self._of_members else ""

    def load(self, group: Any, version: int, member_id: str, value: bytes | None) -> None:
        """Apply a record to the state of a group.  Compaction keeps the records of a member in any order."""
        kind = self._by_version[version]
        target = group.target.get(member_id)
        member = group.members.get(member_id)
        if kind is self.target_member:
            if value is not None:
                group.target[member_id] = kind.decoded(value)["target"]
            elif target is not None:
                del group.target[member_id]
        elif version not in self._of_members:
            blank = self.group_type()
            attributes = {name: getattr(blank, name) for name in kind.attributes}
            for name, attribute in (attributes if value is None else kind.decoded(value)).items():
                setattr(group, name, attribute)
        elif value is not None:
            group.put(evolve(member or self.member_type(member_id), **kind.decoded(value)))
        elif member is not None:
            group.remove(member)
            if target is not None:
                group.target[member_id] = target


def _key(version: int, group_id: str, member_id: str | None = None) -> bytes:
    writer = Writer().int16(version).string(group_id)
    return (writer if member_id is None else writer.string(member_id)).finish()
