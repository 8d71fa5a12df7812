"""Handlers for topic requests: describe, create, add partitions and delete, with limits on what one request may create.

The topics are in ``topics``.  The handlers receive the current time as an argument.
"""

from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from streams.broker.fetches import Answer
from streams.broker.logs.config import INTERNAL_CONFIG, BrokerConfig
from streams.broker.logs.limits import CREATED_PARTITIONS
from streams.broker.refusals import ErrorText, error_of
from streams.broker.topics import INTERNAL_TOPICS, TopicLogs, Topics, check_name
from streams.core.errors import BrokerError, ConfigError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    Metadata,
    MetadataResponse,
    TopicMetadata,
    TopicSpec,
)


@define(eq=False)
class Catalogue:
    """The handlers for topic requests.

    ``delete`` is the function that deletes a topic, given its name and the monotonic time in milliseconds.
    """

    topics: Topics
    config: BrokerConfig
    delete: Callable[[str, int], None]
    #: Set (from any thread) when the broker is closing: bulk requests stop early, so that ``close`` is not delayed.
    is_ending: bool = field(default=False, init=False)

    def metadata(self, request: Metadata, now_ms: int, answer: Answer) -> None:
        """Respond with topic metadata; create unknown topics if both the request and the broker settings allow it."""
        if request.topics is None:
            topics = [self.described(topic) for topic in self.topics]
        else:
            may_create = request.allow_auto_topic_creation and self.config.auto_create_topics
            if may_create:
                unknown = sum(name not in self.topics.by_name for name in request.topics)
                may_create = unknown * self.config.default_partitions <= CREATED_PARTITIONS
            try:
                with self.topics.creating():
                    topics = [self.metadata_of(name, may_create=may_create) for name in request.topics]
            except OSError:
                # None of the topics was created.
                topics = [self.metadata_of(name) for name in request.topics]
            if request.topic_ids:
                by_id = self.topics.by_id()
                topics += [self._found_by_id(topic_id, by_id) for topic_id in request.topic_ids]
        node_id, rack = self.config.node_id, self.config.rack
        answer(MetadataResponse({node_id: ""}, topics, racks={} if rack is None else {node_id: rack}))

    def metadata_of(self, name: str, *, may_create: bool = False) -> TopicMetadata:
        """Return the metadata of a topic, which is created if there is none and ``may_create`` allows it."""
        topic = self.topics.by_name.get(name)
        if topic is None:
            try:
                check_name(name)
                if not may_create or self.is_ending or name in INTERNAL_TOPICS:
                    return TopicMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                topic = self.topics.create(name, self.config.default_partitions)
            except (BrokerError, ConfigError, OSError) as error:
                return TopicMetadata(name, error_of(error)[0])
        return self.described(topic)

    def _found_by_id(self, topic_id: bytes, by_id: Mapping[bytes, TopicLogs]) -> TopicMetadata:
        topic = by_id.get(topic_id)
        if topic is None:
            return TopicMetadata("", ErrorCode.UNKNOWN_TOPIC_ID, topic_id=topic_id)
        return self.described(topic)

    def described(self, topic: TopicLogs, partitions: int | None = None) -> TopicMetadata:
        """Return the metadata of a topic; ``partitions`` is the partition count, by default the current one."""
        leaders = (self.config.node_id,) * (len(topic.logs) if partitions is None else partitions)
        return TopicMetadata(
            topic.name,
            ErrorCode.NONE,
            leaders,
            topic.described(),
            topic.is_internal,
            topic.partitioner,
            topic.topic_id,
        )

    def create_topics(self, request: CreateTopics, now_ms: int, answer: Answer) -> None:
        """Create topics, each with its own result; none is created if the request exceeds the partition limit."""
        errors: dict[str, ErrorText] = {}
        created: dict[str, TopicMetadata] = {}
        create = self.topics.check_new if request.is_trial else self.topics.create

        def count(spec: TopicSpec) -> int:
            return self.config.default_partitions if spec.partitions == -1 else spec.partitions

        def make(spec: TopicSpec) -> None:
            if spec.replicas != -1 and spec.replicas < 1:
                raise BrokerError(
                    f"topic {spec.name!r} with {spec.replicas} replicas: give at least 1, or -1 for the default",
                    code=ErrorCode.INVALID_REPLICATION_FACTOR,
                )
            if spec.name in INTERNAL_TOPICS:
                spec = _own_spec(spec)
            created[spec.name] = self.described(create(spec.name, count(spec), spec.config), count(spec))

        try:
            _check_created(map(count, request.topics))
            with self.topics.creating():
                for spec in request.topics:
                    errors[spec.name] = self.attempt(make, spec)
        except (BrokerError, OSError) as error:
            # None of the topics was created: all get the same error.
            errors = {spec.name: error_of(error) for spec in request.topics}
            created = {}
        answer(CreateTopicsResponse(errors, created))

    def create_partitions(self, request: CreatePartitions, now_ms: int, answer: Answer) -> None:
        """Add partitions to topics, each with its own result; none is added if they exceed the limit per request."""
        is_trial, counts = request.is_trial, request.counts
        try:
            _check_created(count - len(self.topics.logs_of(name)) for name, count in counts.items())
            errors = {name: self.attempt(self.add_partitions, name, count, is_trial) for name, count in counts.items()}
        except BrokerError as error:
            errors = dict.fromkeys(counts, error_of(error))
        answer(CreatePartitionsResponse(errors))

    def add_partitions(self, name: str, partitions: int, is_trial: bool = False) -> None:
        """Raise the partition count of a topic; with ``is_trial``, the new count is only validated.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: the topic already has at least that many partitions, or is internal.
        """
        refuse_internal(name)
        if is_trial:
            self.topics.check_growth(name, partitions)
        else:
            self.topics.add_partitions(name, partitions)

    def delete_topics(self, request: DeleteTopics, now_ms: int, answer: Answer) -> None:
        """Delete topics by name and by ID, and respond with a result for each topic."""
        errors = {name: self.attempt(self.delete, name, now_ms)[0] for name in request.topics}
        by_id: dict[bytes, tuple[ErrorCode, str]] = {}
        topics_by_id = self.topics.by_id() if request.topic_ids else {}
        for topic_id in request.topic_ids:
            topic = topics_by_id.get(topic_id)
            if topic is None:
                by_id[topic_id] = ErrorCode.UNKNOWN_TOPIC_ID, ""
            else:
                by_id[topic_id] = self.attempt(self.delete, topic.name, now_ms)[0], topic.name
        answer(DeleteTopicsResponse(errors, by_id))

    def attempt(self, action: Callable[..., object], *arguments: object) -> ErrorText:
        """Perform one item of a bulk request, and return its error code and message.

        Nothing is done while the broker is closing.
        """
        if self.is_ending:
            return ErrorCode.REQUEST_TIMED_OUT, "the broker is closing: nothing was done"
        try:
            action(*arguments)
        except (BrokerError, ConfigError, OSError) as error:
            return error_of(error)
        return ErrorCode.NONE, ""


def refuse_internal(name: str) -> None:
    """Check that a topic is not internal, because clients cannot change internal topics.

    Raises:
        BrokerError: the topic is internal (``INVALID_TOPIC``).
    """
    if name in INTERNAL_TOPICS:
        raise BrokerError(
            f"topic {name!r} is internal to the broker: clients cannot change it", code=ErrorCode.INVALID_TOPIC
        )


def _check_created(counts: Iterable[int]) -> None:
    """Check the total number of partitions that one request creates.

    Raises:
        BrokerError: the count exceeds ``CREATED_PARTITIONS`` (``POLICY_VIOLATION``, with Kafka's message).
    """
    if sum(count for count in counts if count > 0) > CREATED_PARTITIONS:
        raise BrokerError("Excessively large number of partitions per request.", code=ErrorCode.POLICY_VIOLATION)


def _own_spec(spec: TopicSpec) -> TopicSpec:
    """Return the specification of an internal topic, after checking that a client requests no other settings.

    Raises:
        BrokerError: the client requests another partition count or other settings.
    """
    if spec.partitions not in (-1, 1):
        raise BrokerError(
            f"topic {spec.name!r} is internal and has 1 partition, not {spec.partitions}",
            code=ErrorCode.INVALID_PARTITIONS,
        )
    for name, value in spec.config.items():
        if value != INTERNAL_CONFIG.get(name):
            raise BrokerError(
                f"topic {spec.name!r} is internal: {name}={value!r} cannot be set for it; leave it out",
                code=ErrorCode.INVALID_CONFIG,
            )
    return TopicSpec(spec.name, 1, INTERNAL_CONFIG)
