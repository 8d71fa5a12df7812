"""Dead letters: records that a handler skips and sends to the dead letter queue topic (KIP-1034).

A dead letter has the bytes, timestamp and headers of the source record; additional headers describe the error and
the source. Imports core only.
"""

import traceback

from streams.core.records import Headers

EXCEPTION_HEADER = "__streams.errors.exception"
MESSAGE_HEADER = "__streams.errors.message"
STACKTRACE_HEADER = "__streams.errors.stacktrace"
TOPIC_HEADER = "__streams.errors.topic"
PARTITION_HEADER = "__streams.errors.partition"
OFFSET_HEADER = "__streams.errors.offset"
#: Headers for a row of a file that is not a valid record: the file, the line and the error. All other headers are
#: the same as in Kafka Streams.
ROW_HEADER = "__streams.errors.row"


def error_headers(error: BaseException, topic: str | None, partition: int, offset: int) -> Headers:
    """Return the headers that describe the source record and the class, message and stack trace of an error.

    If ``topic`` is None, there is no source record.
    """
    values = {
        EXCEPTION_HEADER: f"{type(error).__module__}.{type(error).__qualname__}",
        MESSAGE_HEADER: str(error),
        STACKTRACE_HEADER: "".join(traceback.format_exception(error)),
        TOPIC_HEADER: topic,
        PARTITION_HEADER: str(partition),
        OFFSET_HEADER: str(offset),
    }
    return tuple((name, None if value is None else value.encode()) for name, value in values.items())
