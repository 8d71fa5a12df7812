"""What a handler of failed records is told, and what it may answer.

A handler is a function of the failure's context, the record and the error.  The tasks ask it, see
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

#: What of a record could not be written: its key or its value became no bytes, or the broker refused it.
FailureOrigin: TypeAlias = Literal["key", "value", "send"]


@frozen
class ProducerRecord(Generic[K, V]):
    """A record to be written to a topic.

    ``timestamp_ms`` is event time in epoch milliseconds; ``partition`` None: chosen by the key.
    """

    topic: str
    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()
    partition: int | None = None


#: A record as bytes: what a handler sends to a dead letter topic.
DeadLetter: TypeAlias = ProducerRecord[bytes | None, bytes | None]


@frozen
class ErrorHandlerContext:
    """Where a record has failed, and the source record it was made of (KIP-1033, KIP-1034).

    Within a punctuation there is no source record: ``topic`` is None, ``partition`` and ``offset`` are -1, there are
    no headers and no bytes.  The same goes for the bytes of a record that a cache or a suppression held back.
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
    #: What of a record could not be written; None where it was not to be written.
    origin: FailureOrigin | None = None
    #: ``errors_dead_letter_queue_topic_name``; empty = none.
    dead_letter_topic: str = ""

    def dead_letter(self, error: BaseException, *, topic: str | None = None) -> DeadLetter:
        """Return the dead letter that ``continue`` sends: the source record, with headers that say what went wrong.

        ``topic`` is by default that of the setting ``errors_dead_letter_queue_topic_name`` (KIP-1034).

        Raises:
            ConfigError: there is no such setting, and no topic is given.
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
    """What is to become of a failed record, and the dead letters to be sent; see ``fail``, ``resume``, ``retry``.

    A handler that answers with a text instead (``"fail"``, ``"continue"``) gets what the setting of that text does:
    with ``errors_dead_letter_queue_topic_name`` what is skipped goes there.  A response sends what it says, no more.
    """

    result: Literal["fail", "continue", "retry"]
    dead_letters: tuple[DeadLetter, ...] = ()

    @classmethod
    def fail(cls, dead_letters: Iterable[DeadLetter] = ()) -> "HandlerResponse":
        """The application ends; nothing after the last commit is kept.

        With ``exactly_once_v2`` its dead letters are not either; runs over files and replays keep none at all.
        """
        return cls("fail", tuple(dead_letters))

    @classmethod
    def resume(cls, dead_letters: Iterable[DeadLetter] = ()) -> "HandlerResponse":
        """The record is dropped and counted; dead letters are written with the outputs, in the same transaction."""
        return cls("continue", tuple(dead_letters))

    @classmethod
    def retry(cls) -> "HandlerResponse":
        """What was not acknowledged in time is tried again from the last commit (KIP-1065).

        Only for ``production_handler`` and an error that may pass; anything else fails then.
        """
        return cls("retry")


#: An answer about a record that could not be read or processed.
HandlerAnswer: TypeAlias = HandlerResponse | Literal["fail", "continue"]
#: An answer about a record that could not be written.
ProductionAnswer: TypeAlias = HandlerAnswer | Literal["retry"]

#: Asked about a record that the topic's serdes cannot read.
DeserializationHandler: TypeAlias = Callable[
    [ErrorHandlerContext, ConsumerRecord[bytes | None, bytes | None], Exception], HandlerAnswer
]
#: Asked about a record on which a node has failed; None within a punctuation.
ProcessingHandler: TypeAlias = Callable[[ErrorHandlerContext, Record[Any, Any] | None, Exception], HandlerAnswer]
#: Asked about a record that could not be written: objects where these did not become bytes, else bytes.
ProductionHandler: TypeAlias = Callable[[ErrorHandlerContext, ProducerRecord[Any, Any], Exception], ProductionAnswer]


def check_handler(setting: str, handler: Any) -> None:
    """Refuse what cannot be asked.

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
