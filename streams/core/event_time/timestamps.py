"""Event time of input records: extractors, and policies for invalid timestamps.

Timestamps are extracted when a fetched block is added to the queue of its partition. An extractor is first called
for a whole block; if the result is None, it is called for each record, so that the records before an invalid
record are processed. A negative time means that the record is dropped and counted. The policies correspond to the
``TimestampExtractor`` classes of Kafka Streams. This module imports only ``core.arguments``, ``core.blocks.records``,
``core.clock``, ``core.errors``, ``core.concurrency.threads`` and ``core.user_code``.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias, cast

from attrs import frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Headers
from streams.core.clock import Clock
from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.errors import InvalidTimestampError
from streams.core.user_code import form_taken

#: A user's extractor: (key, value, record timestamp, partition time) -> milliseconds or datetime.
TimestampFunction: TypeAlias = Callable[[Any, Any, int, int], "int | datetime"]

#: Names of the extractors that do not need a function.
ExtractorName: TypeAlias = Literal["fail_on_invalid", "log_and_skip", "use_partition_time", "wall_clock"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = datetime(1970, 1, 1)


class Extractor(Protocol):
    """Determines the event time of records; what an application may give."""

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the event times of a block, or None if ``one`` must be called for each record; never raises."""
        ...

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int) -> int:
        """Return the event time of one record; a negative time means that the record is dropped.

        ``partition_time_ms`` is the highest time in the partition so far, -1 before the first record.

        Raises:
            InvalidTimestampError: the record has no valid time and the policy is to fail.
        """
        ...


class EventTime(Extractor, Protocol):
    """Determines the event time of records, of which it sees the headers too."""

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the event time of one record, as ``Extractor.one`` does."""
        ...


def to_milliseconds(time: object) -> int:
    """Return a datetime (naive = UTC) or an integer as epoch milliseconds, rounded down.

    >>> to_milliseconds(datetime(1970, 1, 1, 0, 0, 1))
    1000

    Raises:
        TypeError: the value is neither a datetime nor an integer.
        OverflowError: the time does not fit in 64 bits.
    """
    if isinstance(time, datetime):
        since = time - (_EPOCH_NAIVE if time.tzinfo is None else _EPOCH)
        # NaT of pandas is a datetime too: it equals nothing, and is no time.
        if since == since:
            return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    if type(time) is not int:
        if isinstance(time, bool) or not isinstance(time, SupportsIndex):
            raise TypeError(
                f"a timestamp must be a datetime or an int of epoch milliseconds, not {time!r} "
                f"of type {type(time).__qualname__}"
            )
        time = operator.index(time)
    if not -MAX_TIME_MS <= time <= MAX_TIME_MS:
        raise OverflowError(f"timestamp {time} does not fit 64 bits")
    return time


def _all_valid(timestamps: Sequence[int]) -> Sequence[int] | None:
    return timestamps if not timestamps or min(timestamps) >= 0 else None


@frozen
class FailOnInvalid:
    """Uses the record timestamp; a negative timestamp is an error. This is the default."""

    topic: str

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the timestamps if all of them are valid, else None."""
        return _all_valid(timestamps)

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the record's timestamp."""
        if timestamp_ms < 0:
            raise InvalidTimestampError(
                f"topic {self.topic!r}: a record has the invalid timestamp {timestamp_ms}; declare "
                "Topic(timestamp=...) or set default_timestamp_extractor to log_and_skip or use_partition_time"
            )
        return timestamp_ms


@frozen
class LogAndSkipInvalid:
    """Uses the record timestamp; records with a negative timestamp are dropped and logged."""

    topic: str

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the timestamps if all of them are valid, else None."""
        return _all_valid(timestamps)

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the record's timestamp, even if it is negative."""
        return timestamp_ms


@frozen
class UsePartitionTime:
    """Uses the record timestamp, or the partition time if the timestamp is negative."""

    topic: str

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the timestamps if all of them are valid, else None."""
        return _all_valid(timestamps)

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the record's timestamp or the partition time."""
        if timestamp_ms >= 0:
            return timestamp_ms
        if partition_time_ms < 0:
            raise InvalidTimestampError(
                f"topic {self.topic!r}: a record has the invalid timestamp {timestamp_ms}, and no record "
                "before it gives its partition a time to use instead"
            )
        return partition_time_ms


@frozen
class WallClock:
    """Uses the wall-clock time at which the timestamps of a block are extracted."""

    clock: Clock

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the same wall-clock time for all records of the block."""
        return [self.clock.now_ms()] * len(timestamps)

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the time at which the record is read, in epoch milliseconds; its own is ignored."""
        return self.clock.now_ms()


@frozen
class FromValue:
    """Extracts the event time from the value with ``Topic(timestamp=...)``.

    A tombstone has no value and keeps its record timestamp, which must be valid.
    """

    topic: str
    function: Callable[[Any], "int | datetime"]

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the event times of all values, or None if there is a tombstone or a time cannot be extracted."""
        if NoneType in set(map(type, values)):
            return None
        return _block(lambda: map(self.function, values))

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the event time of the value; for a tombstone, the record timestamp."""
        if value is None:
            if timestamp_ms < 0:
                raise InvalidTimestampError(
                    f"topic {self.topic!r}: a tombstone has the invalid timestamp {timestamp_ms}, "
                    "and no value from which to take its time"
                )
            return timestamp_ms
        return _one(self.topic, value, lambda: self.function(value))


@frozen
class FromRecord:
    """Extracts the event time with a ``Topic(timestamp=...)`` of key, value, headers and record timestamp.

    The value of a tombstone is None, as is the timestamp of a record that has none.  The result None stands for the
    timestamp of the record.
    """

    topic: str
    function: Callable[[Any, Any, Headers, int | None], "int | datetime | None"]

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return None, because keys and headers are those of each record."""
        return None

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the event time that the function returns for the record."""
        own = None if timestamp_ms < 0 else timestamp_ms

        def extract() -> int | datetime | None:
            time = self.function(key, value, headers, own)
            return own if time is None else time

        return _one(self.topic, value, extract)

    def of_row(self, key: Any, value: Any, headers: Headers) -> int | None:
        """Return the event time of a row without a timestamp, or None if the function has none either."""
        times: list[Any] = []

        def extract() -> int | datetime:
            times.append(self.function(key, value, headers, None))
            return 0 if times[0] is None else times[0]

        time = _one(self.topic, value, extract)
        return None if times[0] is None else time


def declared_time(topic: str, function: Any) -> FromValue | FromRecord:
    """Return the extractor of a ``Topic(timestamp=function)``, which is chosen by the parameters of the function.

    Raises:
        TopologyError: the function takes neither (value) nor (key, value, headers, timestamp).
    """
    forms = ("(value)", "(key, value, headers, timestamp)")
    is_of_value = form_taken(function, f"topic {topic!r}: timestamp", forms) == 0
    return FromValue(topic, function) if is_of_value else FromRecord(topic, function)


@frozen
class Custom:
    """Extracts the event time with a user function of key, value, record timestamp and partition time."""

    topic: str
    function: TimestampFunction

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return None, because the partition time changes with each record."""
        return None

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the event time that the user function returns for the record."""
        return _one(self.topic, value, lambda: self.function(key, value, timestamp_ms, partition_time_ms))


@frozen
class Own:
    """Extracts event times with an extractor of the application, whose failures and results are checked."""

    topic: str
    extractor: Extractor

    def block(self, values: Sequence[Any], timestamps: Sequence[int]) -> Sequence[int] | None:
        """Return the event times of all values, or None if the extractor returns None, fails or returns no times."""
        times = _block(lambda: () if (extracted := self.extractor.block(values, timestamps)) is None else extracted)
        return times if times is not None and len(times) == len(values) else None

    def one(self, key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, headers: Headers = ()) -> int:
        """Return the event time that the extractor returns for the record."""
        return _one(self.topic, value, lambda: self.extractor.one(key, value, timestamp_ms, partition_time_ms))


def _block(extract: Callable[[], Iterable[Any]]) -> list[int] | None:
    """Return the times of a block, or None if user code fails or a result is no time."""
    try:
        times = list(extract())
        if set(map(type, times)) == {int} and min(times) >= -MAX_TIME_MS and max(times) <= MAX_TIME_MS:
            return times
        return list(map(to_milliseconds, times))
    except INTERRUPTIONS:
        raise
    except BaseException:
        return None  # ``one`` is called for each record instead, and raises the error.


def _one(topic: str, value: object, extract: Callable[[], Any]) -> int:
    """Return the time of one record.

    Raises:
        InvalidTimestampError: user code failed, or its result is no time.
    """
    try:
        return to_milliseconds(extract())
    except (InvalidTimestampError, *INTERRUPTIONS):
        raise
    except BaseException as error:
        raise InvalidTimestampError(
            f"topic {topic!r}: the timestamp extractor failed on a value of type {type(value).__qualname__}: "
            f"{type(error).__name__}: {error}"
        ) from error


_BUILT_IN = (FailOnInvalid, LogAndSkipInvalid, UsePartitionTime, WallClock, FromValue, FromRecord, Custom)


def extractor_for(
    topic: str,
    *,
    policy: ExtractorName | TimestampFunction | Extractor = "fail_on_invalid",
    clock: Clock,
) -> EventTime:
    """Return the extractor for a topic.

    Raises:
        ValueError: the policy is unknown.
    """
    if isinstance(policy, str):
        if policy == "fail_on_invalid":
            return FailOnInvalid(topic)
        if policy == "log_and_skip":
            return LogAndSkipInvalid(topic)
        if policy == "use_partition_time":
            return UsePartitionTime(topic)
        if policy == "wall_clock":
            return WallClock(clock)
        raise ValueError(f"unknown timestamp extractor {policy!r}")
    if hasattr(policy, "block"):
        return cast(EventTime, policy) if isinstance(policy, _BUILT_IN) else Own(topic, cast(Extractor, policy))
    return Custom(topic, cast(Any, policy))
