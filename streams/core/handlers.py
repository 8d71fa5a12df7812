"""Arguments and responses of handlers of failed records.

A handler is a function of the context of the failure, the record and the error.  Tasks call it, see
``runtime.handling``; the settings ``deserialization_handler``, ``processing_handler`` and
``production_handler`` name it.  Imports core only.  KIP-161, KIP-210, KIP-1033, KIP-1034, KIP-1065.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from attrs import field, frozen

from streams.core.dead_letters import error_headers
from streams.core.errors import ConfigError
from streams.core.records import ConsumerRecord, Headers, Record, TaskId
from streams.core.user_code import located, refuse_unawaited

K = TypeVar("K")
V = TypeVar("V")

#: The step at which writing a record failed: serializing its key or its value, or sending it to the broker.
FailureOrigin: TypeAlias = Literal["key", "value", "send"]


@frozen
class ProducerRecord(Generic[K, V]):
    """A record to be written to a topic.

    ``timestamp_ms`` is event time in epoch milliseconds; ``partition`` None: the key chooses it.
    """

    topic: str
    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()
    partition: int | None = None


#: A record as bytes, as a handler sends it to a dead letter topic.
DeadLetter: TypeAlias = ProducerRecord[bytes | None, bytes | None]


@frozen
class ErrorHandlerContext:
    """The node at which a record failed, and its source record (KIP-1033, KIP-1034).

    Within a punctuation there is no source record: ``topic`` is None, ``partition`` and ``offset`` are -1, there are
    no headers and no bytes.  A record from a cache or a suppression buffer has no bytes either.
    """

    #: The node of the topology that failed (Kafka Streams: ``processorNodeId``).
    node: str
    task_id: TaskId
    topic: str | None
    partition: int
    offset: int
    #: Event time of the source record, epoch milliseconds; that of the clock within a punctuation.
    timestamp_ms: int
    #: Headers of the source record.
    headers: Headers = ()
    source_raw_key: bytes | None = field(default=None, repr=False)
    source_raw_value: bytes | None = field(default=None, repr=False)
    #: The step at which writing the record failed; None if it failed before.
    origin: FailureOrigin | None = None
    #: ``errors_dead_letter_queue_topic_name``; empty: none.
    dead_letter_topic: str = ""

    def dead_letter(self, error: BaseException, *, topic: str | None = None) -> DeadLetter:
        """Return the dead letter that ``continue`` sends: the source record, with headers that describe the error.

        ``topic`` is by default that of the setting ``errors_dead_letter_queue_topic_name`` (KIP-1034).

        Raises:
            ConfigError: no topic is given, and the setting is empty.
        """
        name = topic or self.dead_letter_topic
        if not name:
            raise ConfigError(
                "a dead letter needs a topic: give dead_letter(error, topic=...), or set "
                "errors_dead_letter_queue_topic_name"
            )
        origin = error_headers(error, self.topic, self.partition, self.offset)
        return ProducerRecord(
            name, self.source_raw_key, self.source_raw_value, self.timestamp_ms, (*self.headers, *origin)
        )


@frozen
class HandlerResponse:
    """What to do with a failed record, and the dead letters to send; see ``fail``, ``resume``, ``retry``.

    A handler may return a str instead (``"fail"``, ``"continue"``), with the effect of the setting of that value:
    skipped records are sent to ``errors_dead_letter_queue_topic_name``, if set.  A response sends its own dead
    letters only.
    """

    result: Literal["fail", "continue", "retry"]
    dead_letters: tuple[DeadLetter, ...] = ()

    @classmethod
    def fail(cls, dead_letters: Iterable[DeadLetter] = ()) -> "HandlerResponse":
        """Stop the application; results after the last commit are discarded.

        So are the dead letters with ``exactly_once_v2``, and in runs over files and replays.
        """
        return cls("fail", tuple(dead_letters))

    @classmethod
    def resume(cls, dead_letters: Iterable[DeadLetter] = ()) -> "HandlerResponse":
        """Drop and count the record; dead letters are written with the outputs, in the same transaction."""
        return cls("continue", tuple(dead_letters))

    @classmethod
    def retry(cls) -> "HandlerResponse":
        """Retry from the last commit what was not acknowledged in time (KIP-1065).

        Only for ``production_handler`` and a retriable error; otherwise the application stops.
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
#: Called for a record at which a node failed; the record is None within a punctuation.
ProcessingHandler: TypeAlias = Callable[[ErrorHandlerContext, Record[Any, Any] | None, Exception], HandlerAnswer]
#: Called for a record that could not be written; it has objects if serializing failed, else bytes.
ProductionHandler: TypeAlias = Callable[[ErrorHandlerContext, ProducerRecord[Any, Any], Exception], ProductionAnswer]


def check_handler(setting: str, handler: Any) -> None:
    """Refuse a handler that cannot be called.

    Raises:
        ConfigError: it is a class, async, a generator, or does not take three arguments.
    """
    form = "a function of (context, record, error)"
    if isinstance(handler, type):
        raise ConfigError(
            f"setting {setting!r}: {handler.__qualname__} is a class; give {form}, or an object that can be called"
        )
    refuse_unawaited(handler, f"setting {setting!r}", error=ConfigError)
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):
        return  # A built-in function without a signature.
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise ConfigError(f"setting {setting!r}: {located(handler)} takes {signature}; give {form}") from None
