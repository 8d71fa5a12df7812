"""All groups of one broker with their committed offsets, as stored in the ``__consumer_offsets`` log.

This module is part of the coordinator, whose effects include the records to append.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attrs import define, field

from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.group.state.effects import Effect, Persist
from streams.group.state.epoch_log import GroupLog
from streams.group.state.group_configs import GroupConfigs
from streams.group.state.offsets import (
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
    read_settings,
    settings_key,
    settings_value,
)
from streams.group.state.pending_offsets import PendingOffsets
from streams.group.state.states import AnyEpochGroup, Group, GroupSettings, GroupState
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata, OffsetFetch, OffsetFetchResponse
from streams.protocol.markers import is_commit_marker
from streams.protocol.messages import TxnOffsetCommit


@define(eq=False)
class Groups:
    """Groups by ID, and the pending offsets in open transactions."""

    effects: list[Effect]
    configs: GroupConfigs
    #: The records of each kind of group with epochs.
    logs: Sequence[GroupLog]
    by_id: dict[str, Group] = field(factory=dict)
    _pending: PendingOffsets = field(factory=PendingOffsets)

    def __iter__(self) -> Iterator[Group]:
        """Iterate over the groups in order of creation."""
        return iter(self.by_id.values())

    def get(self, group_id: str) -> Group | None:
        """Return a group, or None if it does not exist."""
        return self.by_id.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        """Return a group; create it if it does not exist."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = Group(group_id)
        return group

    def delete(self, group: Group) -> None:
        """Delete a group with its committed offsets."""
        group.become(GroupState.DEAD)
        self._forget_epoch_group(group)
        del self.by_id[group.group_id]
        self._pending.forget_group(group.group_id)
        for partition in group.offsets:
            self.effects.append(Persist(offset_key(group.group_id, partition), None))
        if group.settings is not None:
            self.effects.append(Persist(settings_key(group.group_id), None))
        self.effects.append(Persist(group_key(group.group_id), None))

    def discard(self, group: Group) -> None:
        """Drop a group that has never had a member, an offset or settings."""
        is_used = group.generation_id or group.members or group.epoch_group is not None or group.pending
        if not (is_used or group.offsets or group.settings):
            self.by_id.pop(group.group_id, None)

    def persist(self, group: Group, now_ms: int, *, is_settled: bool = True) -> None:
        """Append a group's metadata (members and generation) to the ``__consumer_offsets`` log.

        ``is_settled`` is False within a rebalance: the rebalance is begun again when the record is read.
        """
        self.effects.append(Persist(group_key(group.group_id), group_value(group, now_ms, is_settled=is_settled)))

    def become_epoch_group(self, group: Group, epoch_group: AnyEpochGroup) -> None:
        """Convert a classic group without members to one whose coordinator assigns; committed offsets are kept.

        The caller appends the first record of the new group.
        """
        if group.generation_id:
            self.effects.append(Persist(group_key(group.group_id), None))
        group.generation_id = 0
        group.protocol_type = ""
        group.protocol_name = ""
        group.epoch_group = epoch_group

    def become_classic(self, group: Group) -> None:
        """Convert a consumer or streams group without members to a classic one; committed offsets are kept."""
        assert group.epoch_group is not None
        self._forget_epoch_group(group)
        group.generation_id = group.epoch_group.epoch
        group.epoch_group = None

    def _forget_epoch_group(self, group: Group) -> None:
        """Delete the records of a group without members whose coordinator assigns, if it is one."""
        for log in self.logs:
            if isinstance(group.epoch_group, log.group_type):
                self.effects += (Persist(key, None) for key in log.keys_of_group(group.group_id))

    def set_up(self, group: Group, settings: GroupSettings) -> None:
        """Replace the settings of an explicitly created group, and append them to the ``__consumer_offsets`` log."""
        group.settings = settings
        self.effects.append(Persist(settings_key(group.group_id), settings_value(settings)))

    # --- offsets ----------------------------------------------------------------------

    def commit(self, group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> None:
        """Set committed offsets and append them to ``__consumer_offsets``; they supersede pending transactional
        offsets.
        """
        before = {partition: group.offsets.get(partition) for partition in offsets}

        def undo() -> None:
            for partition, previous in before.items():
                if previous is None:
                    group.offsets.pop(partition, None)
                else:
                    group.offsets[partition] = previous

        group.offsets.update(offsets)
        self._pending.supersede(group.group_id, offsets)
        for partition, committed in offsets.items():
            value = offset_value(committed, now_ms)
            self.effects.append(Persist(offset_key(group.group_id, partition), value, undo=undo))

    def hold(self, request: TxnOffsetCommit, now_ms: int) -> None:
        """Add the pending offsets of a transaction, and append them to the ``__consumer_offsets`` log."""
        self._pending.add(request.producer_id, request.group_id, request.offsets)
        stamp = ProducerStamp(request.producer_id, request.producer_epoch, is_transactional=True)
        self.effects += (
            Persist(offset_key(request.group_id, partition), offset_value(committed, now_ms), stamp)
            for partition, committed in request.offsets.items()
        )

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop the offsets in a producer's transaction after its marker has been appended to the log."""
        for group_id, offsets in self._pending.end(producer_id):
            if is_commit and offsets:
                self.get_or_create(group_id).offsets.update(offsets)

    def fetch(self, request: OffsetFetch) -> OffsetFetchResponse:
        """Return the requested committed offsets of a group."""
        if request.require_stable and self._pending.is_unstable(request.group_id, request.partitions):
            return OffsetFetchResponse(ErrorCode.UNSTABLE_OFFSET_COMMIT, {})
        group = self.by_id.get(request.group_id)
        offsets: Mapping[TopicPartition, OffsetAndMetadata] = {} if group is None else group.offsets
        if request.partitions is None:
            return OffsetFetchResponse(ErrorCode.NONE, dict(offsets))
        return OffsetFetchResponse(ErrorCode.NONE, {p: offsets[p] for p in request.partitions if p in offsets})

    def forget_topics(self, topics: Collection[str]) -> None:
        """Drop the committed offsets of deleted topics."""
        self._pending.forget_topics(topics)
        for group in self:
            self.forget_offsets(group, [p for p in group.offsets if p.topic in topics])

    def forget_offsets(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        """Drop a group's committed offsets."""
        for partition in partitions:
            if group.offsets.pop(partition, None) is not None:
                self.effects.append(Persist(offset_key(group.group_id, partition), None))

    # --- the log ----------------------------------------------------------------------

    def load(self, blocks: Iterable[Block]) -> None:
        """Rebuild all groups from the records of the ``__consumer_offsets`` log, in order."""
        for block in blocks:
            stamp = block.producer
            if stamp is not None and stamp.is_control:
                self.end_transaction(stamp.producer_id, is_commit=is_commit_marker(block))
                continue
            for key, value in zip(block.keys, block.values, strict=True):
                if key is not None:
                    self._load_one(key, value, None if stamp is None else stamp.producer_id)

    def _load_one(self, key_bytes: bytes, value: bytes | None, producer_id: int | None) -> None:
        for log in self.logs:
            if (parts := log.read_key(key_bytes)) is not None:
                self._load_epoch_group(log, *parts, value)
                return
        key = read_key(key_bytes)
        match key:
            case (str(group_id), TopicPartition() as partition):
                self._load_offset(group_id, partition, value, producer_id)
            case (str(group_id), "group"):
                self._load_group(group_id, value)
            case (str(group_id), "configs"):
                self.configs.load(group_id, value)
            case (str(group_id), "settings"):
                if value is not None:
                    self.get_or_create(group_id).settings = read_settings(value)
                elif group_id in self.by_id:
                    self.by_id[group_id].settings = None

    def _load_group(self, group_id: str, value: bytes | None) -> None:
        former = self.get_or_create(group_id)
        # Without a value, the group was deleted, or it became a consumer group.
        loaded = Group(group_id) if value is None else read_group(group_id, value)
        loaded.offsets = former.offsets
        loaded.settings = former.settings
        loaded.epoch_group = former.epoch_group
        self.by_id[group_id] = loaded
        self.discard(loaded)

    def _load_epoch_group(
        self, log: GroupLog, version: int, group_id: str, member_id: str, value: bytes | None
    ) -> None:
        group = self.get_or_create(group_id)
        epoch_group = group.epoch_group if isinstance(group.epoch_group, log.group_type) else log.group_type()
        log.load(epoch_group, version, member_id, value)
        if not epoch_group.is_blank:
            group.epoch_group = epoch_group
        elif isinstance(group.epoch_group, log.group_type):
            group.epoch_group = None
        self.discard(group)

    def _load_offset(
        self, group_id: str, partition: TopicPartition, value: bytes | None, producer_id: int | None
    ) -> None:
        if value is None:
            if group_id in self.by_id:
                self.by_id[group_id].offsets.pop(partition, None)
        elif producer_id is not None:
            self._pending.add(producer_id, group_id, {partition: read_offset(value)})
        else:
            self.get_or_create(group_id).offsets[partition] = read_offset(value)
            self._pending.supersede(group_id, (partition,))
