"""Choice of a record's partition, by the producer's function or the topic's strategy.

The strategy is set by the topic configuration ``streams.partitioner``; topics without it, as on Kafka,
use the default.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from attrs import define, field

from streams.clients.errors import PartitionerError
from streams.core.blocks.partitioning import Partitioner, partition_for
from streams.protocol.messages import TopicMetadata

#: Topic configuration that names the strategy.
PARTITIONER_CONFIG: Final = "streams.partitioner"


def is_by_key(topic: TopicMetadata) -> bool:
    """Return whether the default partitioner is that of a topic; only topics of an embedded broker may have another."""
    return topic.config.get(PARTITIONER_CONFIG, "default") == "default"


#: By murmur2 of the key, and sticky per batch for records without a key
#: (Kafka's default, KIP-480); round robin; explicit partitions only;
#: a user function.
STRATEGIES: Final = ("default", "round_robin", "explicit", "custom")

#: The named strategies.
Strategy: TypeAlias = Literal["default", "round_robin", "explicit"]


@define(eq=False)
class Partitioning:
    """The partitioner of one producer, guarded by the producer's lock.

    ``own`` is the producer's partitioner, which overrides the topic's strategy; ``start`` is
    the first partition for records without a key.
    """

    own: Partitioner | None
    start: int
    # Last partition chosen for a record without a key.
    _current: dict[str, int] = field(factory=dict, init=False)

    def choose(
        self,
        topic: TopicMetadata,
        key: bytes | None,
        value: bytes | None,
        key_suffix: int,
        has_open_batch: Callable[[int], bool],
    ) -> int:
        """Return the partition of a record that was sent without an explicit partition.

        ``key_suffix`` is the number of bytes at the end of the key to exclude from the hash.

        Raises:
            PartitionerError: the strategy requires an explicit partition, or the user's function failed or chose
                a partition that does not exist.
        """
        name = topic.name
        count = len(topic.leaders)
        function = self.own
        if function is None:
            strategy = topic.config.get(PARTITIONER_CONFIG, "default")
            if strategy == "default":
                return self._by_key(name, key, count, key_suffix, has_open_batch)
            if strategy == "round_robin":
                chosen = self._current[name] = (self._current.get(name, self.start) + 1) % count
                return chosen
            if strategy == "explicit":
                raise PartitionerError(
                    f"topic {name!r} has the partitioning strategy 'explicit': name the partition of each record, "
                    f"0 to {count - 1}, with partition="
                )
            function = topic.partitioner
            if function is None:
                raise PartitionerError(
                    f"topic {name!r} has a partitioning strategy of its own, which is not known here: "
                    "give the producer its function, as partitioner="
                )
        return _checked(function, name, key, value, count)

    def _by_key(
        self, topic: str, key: bytes | None, count: int, key_suffix: int, has_open_batch: Callable[[int], bool]
    ) -> int:
        if key is not None:
            return partition_for(key[: len(key) - key_suffix] if key_suffix else key, count)
        current = self._current.get(topic, self.start) % count
        if not has_open_batch(current):
            # The batch is full or sent: use the next partition.
            current = (current + 1) % count
        self._current[topic] = current
        return current


def _checked(function: Partitioner, topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
    try:
        chosen = function(topic, key, value, count)
    except Exception as error:
        raise PartitionerError(f"the partitioner of topic {topic!r} failed for key {key!r}: {error!r}") from error
    if type(chosen) is not int or not 0 <= chosen < count:
        raise PartitionerError(
            f"the partitioner chose {chosen!r} for a record of topic {topic!r}, "
            f"which has {count} partitions; it must return an int from 0 to {count - 1}"
        )
    return chosen
