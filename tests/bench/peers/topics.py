"""Topics of the comparison on its broker: made anew, counted, removed."""

import time

from streams import Admin, TopicPartition, UnknownTopicError
from streams.clients.errors import TopicExistsError
from streams.protocol.messages import LATEST_TIMESTAMP, TopicSpec

PARTITIONS = 4
_PATIENCE_S = 30.0
_PAUSE_S = 0.2


def fresh_topic(admin: Admin, name: str, partitions: int = PARTITIONS) -> None:
    """Delete a topic, make it anew, and wait until the broker knows it.

    Raises:
        TimeoutError: the broker does not come to that.
    """
    deadline_s = time.perf_counter() + _PATIENCE_S
    if name in admin.list_topics():
        admin.delete_topics([name])
    is_made = False
    while time.perf_counter() < deadline_s:
        try:
            if not is_made:
                admin.create_topics([TopicSpec(name, partitions)])
                is_made = True
            if len(admin.describe_topics([name])[name].leaders) == partitions:
                return
        except (TopicExistsError, UnknownTopicError):
            # Deletion and making take a moment to get from the controller to the broker.
            pass
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"topic {name!r} is not there after {_PATIENCE_S:.0f} s")


def records_of(admin: Admin, name: str, partitions: int = PARTITIONS) -> int:
    """Records that a topic has been given."""
    ends = {TopicPartition(name, number): LATEST_TIMESTAMP for number in range(partitions)}
    return sum(admin.list_offsets(ends).values())


def drop_topics(admin: Admin, prefix: str) -> None:
    """Delete the topics whose names begin so."""
    if found := [name for name in admin.list_topics() if name.startswith(prefix)]:
        admin.delete_topics(found)
