"""Which partition a record goes to: the producer's own function, or the topic's strategy.

A topic says its strategy in its configuration (``streams.partitioner``); topics of Kafka say
nothing and get the default.  Between the producer and its accumulator, which knows what
batches are open.  Imports protocol and core.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from attrs import define, field

from streams.clients.errors import PartitionerError
from streams.core.partitioning import Partitioner, partition_for
from streams.protocol.messages import TopicMetadata

#: Name of the strategy in a topic's configuration.
PARTITIONER_CONFIG: Final = "streams.partitioner"

#: By murmur2 of the key, records without key staying on one partition until its batch is gone
#: (Kafka's default, KIP-480); one partition after the other; only where the sender names it;
#: by a function of the user's.
STRATEGIES: Final = ("default", "round_robin", "explicit", "custom")

#: The strategies that have a name of their own.
Strategy: TypeAlias = Literal["default", "round_robin", "explicit"]


@define(eq=False)
class Partitioning:
    """Chooses for one producer; not locked, the producer does that.

    ``own`` is the producer's function, which goes before the topic's strategy; ``start`` is
    where it begins with records that could go anywhere.
    """

    own: Partitioner | None
    start: int
    # Where the last record went that could have gone anywhere.
    _current: dict[str, int] = field(factory=dict, init=False)

    def choose(
        self,
        topic: TopicMetadata,
        key: bytes | None,
        value: bytes | None,
        key_suffix: int,
        has_open_batch: Callable[[int], bool],
    ) -> int:
        """Return the partition of a record whose sender has named none.

        ``key_suffix`` counts bytes at the end of the key that do not belong to its hash.

        Raises:
            PartitionerError: the strategy is to name it, or the user's function failed or chose
                a partition that does not exist.
        """
        name, count = topic.name, len(topic.leaders)
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
            # Its batch is full or gone: time for the next partition.
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
