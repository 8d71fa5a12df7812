"""Records that a handler skips, on their way to the dead letter queue.

They keep their bytes, time and headers; headers of ours say what went wrong and where they came
from.  KIP-1034.  Imports core only.
"""

import traceback

from streams.core.records import Headers

EXCEPTION_HEADER = "__streams.errors.exception"
MESSAGE_HEADER = "__streams.errors.message"
STACKTRACE_HEADER = "__streams.errors.stacktrace"
TOPIC_HEADER = "__streams.errors.topic"
PARTITION_HEADER = "__streams.errors.partition"
OFFSET_HEADER = "__streams.errors.offset"


def error_headers(error: BaseException, topic: str, partition: int, offset: int) -> Headers:
    """Return the headers that describe a failure and the record's origin."""
    cause = error.__cause__ or error
    values = {
        EXCEPTION_HEADER: f"{type(cause).__module__}.{type(cause).__qualname__}",
        MESSAGE_HEADER: str(error),
        STACKTRACE_HEADER: "".join(traceback.format_exception(error)),
        TOPIC_HEADER: topic,
        PARTITION_HEADER: str(partition),
        OFFSET_HEADER: str(offset),
    }
    return tuple((name, value.encode()) for name, value in values.items())
