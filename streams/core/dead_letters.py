"""Dead letters: records that a handler skips and sends to the dead letter queue.

They have the bytes, timestamp and headers of the source record; additional headers describe the
error and the source.  KIP-1034.  Imports core only.
"""

import traceback

from streams.core.records import Headers

EXCEPTION_HEADER = "__streams.errors.exception"
MESSAGE_HEADER = "__streams.errors.message"
STACKTRACE_HEADER = "__streams.errors.stacktrace"
TOPIC_HEADER = "__streams.errors.topic"
PARTITION_HEADER = "__streams.errors.partition"
OFFSET_HEADER = "__streams.errors.offset"
#: For a row of a file that is no valid record: the file, the line and the error.  Other headers are Kafka Streams' own.
ROW_HEADER = "__streams.errors.row"


def error_headers(error: BaseException, topic: str | None, partition: int, offset: int) -> Headers:
    """Return the headers that describe a failure and the source record: class, message and stack trace of one error.

    ``topic`` None: there is no source record.
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
