"""Periodic commits of a consumer's positions (``enable_auto_commit``)."""

from collections.abc import Mapping

from attrs import define, field

from streams.clients.consumer.session import GroupSession
from streams.core.blocks.records import TopicPartition
from streams.core.settings.client_settings import ConsumerSettings
from streams.protocol.group_messages import OffsetAndMetadata


@define(eq=False)
class AutoCommit:
    """When the positions of a consumer are committed next."""

    _settings: ConsumerSettings
    _since_ms: int
    _next_ms: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next_ms = self._since_ms + self._settings.auto_commit_interval_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether the interval has passed at this monotonic time; then the next one begins."""
        if not self._settings.enable_auto_commit or now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._settings.auto_commit_interval_ms
        return True

    @staticmethod
    def commit(session: GroupSession, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets without waiting, unless the consumer is not in the group or has no coordinator."""
        is_member = session.is_manual or session.member.generation_id >= 0
        if is_member and offsets and session.member.coordinator is not None:
            session.commit(offsets, lambda _: None)
