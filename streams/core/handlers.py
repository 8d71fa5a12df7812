"""Arguments and responses of the handlers for failed records.

A handler is a function that takes the context of the failure, the record and the error. It is set by
``deserialization_handler``, ``processing_handler`` or ``production_handler``, and called by the tasks (see
``runtime.tasks.handling``). See KIP-161, KIP-210, KIP-1033, KIP-1034 and KIP-1065. This module imports only other
modules of ``core``.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from attrs import field, frozen

from streams.core.blocks.records import ConsumerRecord, Headers, Record, TaskId
from streams.core.dead_letters import error_headers
from streams.core.errors import ConfigError
from streams.core.user_code import check_arity

K = TypeVar("K")
V = TypeVar("V")

#: The step at which writing a record failed: the choice of its topic, whose name no topic can have, serializing its key
#: or its value, or sending it to the broker.
FailureOrigin: TypeAlias = Literal["topic", "key", "value", "send"]


@frozen
class ProducerRecord(Generic[K, V]):
    """A record to be written to a topic.

    ``timestamp_ms`` is event time in epoch milliseconds. If ``partition`` is None, the key determines the
    partition.
    """

    topic: str
    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()
    partition: int | None = None


#: A record as bytes, in the form in which a handler sends it to a dead letter queue topic.
DeadLetter: TypeAlias = ProducerRecord[bytes | None, bytes | None]


@frozen
class ErrorHandlerContext:
    """The node at which a record failed, and its source record (KIP-1033, KIP-1034).

    Within a punctuation there is no source record: ``topic`` is None, ``partition`` and ``offset`` are -1, and
    there are no headers and no bytes. Records from a cache or a suppression buffer have no bytes either.
    """

    #: The node of the topology that failed (Kafka Streams: ``processorNodeId``).
    node: str
    task_id: TaskId
    topic: str | None
    partition: int
    offset: int
    #: Event time of the source record in epoch milliseconds; within a punctuation, the time of the punctuation.
    timestamp_ms: int
    #: Headers of the source record.
    headers: Headers = ()
    source_raw_key: bytes | None = field(default=None, repr=False)
    source_raw_value: bytes | None = field(default=None, repr=False)
    #: The step at which writing the record failed, or None if it failed before it was written.
    origin: FailureOrigin | None = None
    #: The setting ``errors_dead_letter_queue_topic_name``, which is empty if there is no such topic.
    dead_letter_topic: str = ""

    def dead_letter(self, error: BaseException, *, topic: str | None = None) -> DeadLetter:
        """Return the dead letter that ``continue`` sends: the source record with headers that describe the error.

        ``topic`` defaults to the setting ``errors_dead_letter_queue_topic_name`` (KIP-1034).

        Raises:
            ConfigError: ``topic`` is not given and the setting is empty.
        """
        name = topic or self.dead_letter_topic
        if not name:
            raise ConfigError(
                "a dead letter needs a topic: give dead_letter(error, topic=...), or set "
                "errors_dead_letter_queue_topic_name"
            )
        origin = error_headers(error, self.topic, self.partition, self.offset, self.node)
        return ProducerRecord(
            name, self.source_raw_key, self.source_raw_value, self.timestamp_ms, (*self.headers, *origin)
        )


@frozen
class HandlerResponse:
    """The response of a handler, with the dead letters to send. Create one with ``fail``, ``resume`` or ``retry``.

    A handler may also return ``"fail"`` or ``"continue"``, with the same effect as that value of the setting:
    skipped records are sent to ``errors_dead_letter_queue_topic_name``, if set. A ``HandlerResponse`` sends only
    its own dead letters.
    """

    result: Literal["fail", "continue", "retry"]
    dead_letters: tuple[DeadLetter, ...] = ()

    @classmethod
    def fail(cls, dead_letters: Iterable[DeadLetter] = ()) -> "HandlerResponse":
        """Fail the stream thread without a commit; after a restart, input since the last commit is processed again.

        The dead letters are sent, except with ``exactly_once_v2``, in runs over files, and in replays.
        """
        return cls("fail", tuple(dead_letters))

    @classmethod
    def resume(cls, dead_letters: Iterable[DeadLetter] = ()) -> "HandlerResponse":
        """Drop and count the record. The dead letters are written with the outputs, in the same transaction, if any."""
        return cls("continue", tuple(dead_letters))

    @classmethod
    def retry(cls) -> "HandlerResponse":
        """Retry records that were not acknowledged in time, starting from the last commit (KIP-1065).

        Valid only for ``production_handler`` and retriable errors; otherwise the application stops.
        """
        return cls("retry")


#: The response for a record that could not be deserialized or processed.
HandlerAnswer: TypeAlias = HandlerResponse | Literal["fail", "continue"]
#: The response for a record that could not be written.
ProductionAnswer: TypeAlias = HandlerAnswer | Literal["retry"]

#: Called for a record that the serdes of its topic cannot read.
DeserializationHandler: TypeAlias = Callable[
    [ErrorHandlerContext, ConsumerRecord[bytes | None, bytes | None], Exception], HandlerAnswer
]
#: Called for a record on which a node failed; within a punctuation the record is None.
ProcessingHandler: TypeAlias = Callable[[ErrorHandlerContext, Record[Any, Any] | None, Exception], HandlerAnswer]
#: Called for a record that could not be written; the record has objects if serialization failed, else bytes.
ProductionHandler: TypeAlias = Callable[[ErrorHandlerContext, ProducerRecord[Any, Any], Exception], ProductionAnswer]


def check_handler(setting: str, handler: Any) -> None:
    """Check that the handler given for ``setting`` can be called.

    Raises:
        ConfigError: the handler is a class, async or a generator, or does not take three arguments.
    """
    check_arity(handler, f"setting {setting!r}", 3, "a function of (context, record, error)")
