"""Dead letters: failed records that a handler sends to the dead letter queue topic (KIP-1034).

A dead letter has the bytes, timestamp and headers of the source record; additional headers describe the error and
the source. ``Letter`` reads them. This module imports only other modules of ``core``.
"""

import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from attrs import field, frozen

from streams.core.blocks.records import Headers, TopicPartition
from streams.core.user_code import place_in_user_code

#: Prefix of the names of the headers that describe the error and the source.
_PREFIX: Final = "__streams.errors."

EXCEPTION_HEADER = "__streams.errors.exception"
MESSAGE_HEADER = "__streams.errors.message"
STACKTRACE_HEADER = "__streams.errors.stacktrace"
TOPIC_HEADER = "__streams.errors.topic"
PARTITION_HEADER = "__streams.errors.partition"
OFFSET_HEADER = "__streams.errors.offset"
# The headers above are those of Kafka Streams, the following are not.
#: The node of the topology that failed.
NODE_HEADER = "__streams.errors.node"
#: Where in user code the error was raised: file, line, function and text.
LINE_HEADER = "__streams.errors.line"
#: For a row of a file that is not a valid record: the file, the line and the error.
ROW_HEADER = "__streams.errors.row"
#: Number of times that the record was re-driven from a dead letter topic; the re-driven record has this header too.
REDRIVES_HEADER = "__streams.redrives"


def error_headers(
    error: BaseException, topic: str | None, partition: int, offset: int, node: str | None = None
) -> Headers:
    """Return the headers that describe the source record and the class, message and stack trace of an error.

    If ``topic`` is None, there is no source record. ``node`` is None outside of a topology.
    """
    values = {
        EXCEPTION_HEADER: f"{type(error).__module__}.{type(error).__qualname__}",
        MESSAGE_HEADER: str(error),
        STACKTRACE_HEADER: "".join(traceback.format_exception(error)),
        TOPIC_HEADER: topic,
        PARTITION_HEADER: str(partition),
        OFFSET_HEADER: str(offset),
    }
    ours = {NODE_HEADER: node, LINE_HEADER: place_in_user_code(error)}
    values |= {name: value for name, value in ours.items() if value}
    return tuple((name, None if value is None else value.encode(errors="replace")) for name, value in values.items())


@frozen
class Letter:
    """A record of a dead letter topic, written by this library or by Kafka Streams.

    ``partition`` and ``offset`` are its position in the dead letter topic; ``timestamp_ms`` is the event time of the
    source record in epoch milliseconds.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)

    @property
    def place(self) -> str:
        """The position of the letter as ``partition:offset``, the form that ``streams dlq`` accepts."""
        return f"{self.partition.partition}:{self.offset}"

    @property
    def errors(self) -> Mapping[str, str]:
        """The headers that describe the error and the source, as text by name; of repeated headers, the last one."""
        return {
            name: value.decode(errors="replace")
            for name, value in self.headers
            if value is not None and name.startswith(_PREFIX)
        }

    @property
    def reason(self) -> str:
        """The class name of the error without its module, or "unknown"."""
        return self.errors.get(EXCEPTION_HEADER, "unknown").rpartition(".")[2]

    @property
    def source(self) -> TopicPartition | None:
        """The partition from which the source record was read; None if the failure was in a punctuation."""
        topic = self.errors.get(TOPIC_HEADER)
        number = self.errors.get(PARTITION_HEADER, "-1")
        return TopicPartition(topic, int(number)) if topic and number.isdecimal() else None

    @property
    def redrives(self) -> int:
        """The number of times that the letter's record was re-driven before this failure."""
        counts = [value or b"" for name, value in self.headers if name == REDRIVES_HEADER]
        return int(counts[-1]) if counts and counts[-1].isdigit() else 0

    @property
    def redriven_headers(self) -> Headers:
        """The headers for re-driving the record: those of the source record, with the redrive count incremented."""
        own = tuple(
            (name, value) for name, value in self.headers if name != REDRIVES_HEADER and not name.startswith(_PREFIX)
        )
        return (*own, (REDRIVES_HEADER, b"%d" % (self.redrives + 1)))

    def refusal(self, max_redrives: int) -> str:
        """Return the reason why the letter's record cannot be re-driven, or an empty string if it can be."""
        if self.source is None:
            return "has no source record (it failed within a punctuation, or its headers are missing)"
        if ROW_HEADER in self.errors:
            return "is a row of a file: correct the file"
        if self.key is None and self.value is None:
            return "has no bytes (its record came from a cache or a suppression buffer, or was empty)"
        if self.redrives >= max_redrives:
            return f"was re-driven {self.redrives} times (--max-redrives {max_redrives})"
        return ""


@frozen
class LetterFilter:
    """Selects dead letters that match every given filter; a filter with several values matches if one value does.

    ``reasons`` are class names of errors, or texts within their messages; ``lines`` are texts within the header with
    the line of user code.  ``from_ms`` (inclusive) and ``until_ms`` (exclusive) are event times in epoch milliseconds.
    ``offsets`` are ranges (partition, first offset, last offset) in the dead letter topic, inclusive.
    """

    reasons: Collection[str] = ()
    nodes: Collection[str] = ()
    lines: Collection[str] = ()
    sources: Collection[str] = ()
    keys: Collection[str] = ()
    from_ms: int | None = None
    until_ms: int | None = None
    offsets: Collection[tuple[int, int, int]] = ()

    def __call__(self, letter: Letter) -> bool:
        """Return whether a letter is selected."""
        errors, source = letter.errors, letter.source
        names = (letter.reason, errors.get(EXCEPTION_HEADER))
        message = errors.get(MESSAGE_HEADER, "")
        number = letter.partition.partition
        offset = letter.offset
        time_ms = letter.timestamp_ms
        return (
            _any(self.reasons, lambda text: text in names or text in message)
            and _any(self.nodes, lambda name: name == errors.get(NODE_HEADER))
            and _any(self.lines, lambda text: text in errors.get(LINE_HEADER, ""))
            and _any(self.sources, lambda name: source is not None and name == source.topic)
            and _any(self.keys, lambda text: letter.key is not None and text.encode() == letter.key)
            and _any(self.offsets, lambda place: place[0] == number and place[1] <= offset <= place[2])
            and (self.from_ms is None or time_ms >= self.from_ms)
            and (self.until_ms is None or time_ms < self.until_ms)
        )


def _any(accepted: Collection[Any], fits: Callable[[Any], bool]) -> bool:
    return not accepted or any(map(fits, accepted))
