"""Connects the group coordinator to the broker: what it asks for is written, created and answered, in this order."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen

from streams.broker.catalogue import Catalogue
from streams.broker.fetches import Answer
from streams.broker.refusals import ErrorText, error_of, refusal
from streams.broker.topics import OFFSETS_TOPIC
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.core.notices import Notices
from streams.group import Coordinator, CreateInternalTopics, Effect, Persist, Reply
from streams.group.state.effects import undone
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_requests import GroupRequest
from streams.protocol.messages import CreateTopics, CreateTopicsResponse, TxnOffsetCommit
from streams.protocol.request import Response

_LOGGER = logging.getLogger(__name__)
_CREATED: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


def note_storage(notices: Notices, message: str, now_ms: int) -> None:
    """Tell of a write that failed at a monotonic time, because a disk is full for example."""
    notices.last(_LOGGER, ErrorCode.STORAGE_ERROR, now_ms, message)


@frozen(eq=False)
class _Token:
    """A request to the group coordinator with its response callback; it is passed back with the response."""

    request: GroupRequest | TxnOffsetCommit
    answer: Answer


@frozen(eq=False)
class GroupDesk:
    """The group coordinator of a broker; ``append`` writes records to its log, given the monotonic time."""

    coordinator: Coordinator
    catalogue: Catalogue
    append: Callable[[Sequence[Persist], int], None]
    notices: Notices

    def handle(self, request: GroupRequest | TxnOffsetCommit, now_ms: int, answer: Answer) -> None:
        """Handle a request; ``answer`` is called once, now or later."""
        self.perform(self.coordinator.handle(request, now_ms, _Token(request, answer)), now_ms)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]:
        """Delete committed offsets of a group; return the error for the group, and the errors by partition."""
        error, errors, effects = self.coordinator.delete_offsets(group_id, partitions)
        failure = self.perform(effects, now_ms)
        return (error, errors) if failure is None else (failure[0], {})

    def alter_configs(self, group_id: str, texts: Mapping[str, str], now_ms: int) -> None:
        """Replace the configs of a group.

        Raises:
            BrokerError: a config is unknown or invalid, or the write failed; the old configs stay in effect.
        """
        self.coordinator.configs.alter(group_id, texts)
        failure = self.perform(self.coordinator.take_effects(), now_ms)
        if failure is not None:
            raise BrokerError(failure[1], code=failure[0])

    def perform(self, effects: Sequence[Effect], now_ms: int) -> ErrorText | None:
        """Perform effects of the coordinator: append to its log, create topics, and then respond.

        A commit is therefore acknowledged only when it is in the log.  Returns the error of the append, or None.
        """
        failure: ErrorText | None = None
        if persists := [effect for effect in effects if isinstance(effect, Persist)]:
            try:
                self.append(persists, now_ms)
            except (OSError, BrokerError) as error:
                failure = error_of(error)
                note_storage(self.notices, f"writing {OFFSETS_TOPIC} failed: {error}", now_ms)
                undone(persists)
        for effect in effects:
            if isinstance(effect, CreateInternalTopics) and failure is None:
                self._create(effect, now_ms)
        for effect in effects:
            if isinstance(effect, Reply):
                token = effect.token
                assert isinstance(token, _Token)
                token.answer(effect.response if failure is None else refusal(token.request, failure[0]))
        return failure

    def _create(self, topics_to_create: CreateInternalTopics, now_ms: int) -> None:
        def note(response: Response) -> None:
            assert isinstance(response, CreateTopicsResponse)
            group_id, failures = topics_to_create.group_id, {}
            for name, (code, text) in response.errors.items():
                if code in _CREATED:
                    continue
                failures[name] = text or code.name
                message = f"group {group_id}: internal topic {name} was not created: {failures[name]}"
                if code is ErrorCode.STORAGE_ERROR:
                    note_storage(self.notices, message, now_ms)
                else:
                    _LOGGER.error("%s", message)
            self.coordinator.note_creation(group_id, failures)

        self.catalogue.create_topics(CreateTopics(topics_to_create.topics), now_ms, note)
