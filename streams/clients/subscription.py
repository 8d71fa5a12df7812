"""Which partitions a consumer has and where it stands in each: position apart from committed.

Pure state; the fetcher and the group session change it.  Imports protocol and core.
"""

from collections.abc import Iterable, Iterator

from attrs import define, field

from streams.core.records import TopicPartition


@define(eq=False)
class PartitionState:
    """Where the consumer stands in one assigned partition.

    ``position`` is the next offset to hand out, None until it is determined; ``reset_to`` is
    a pending look-up (-2 earliest, -1 latest).  A partition that comes back later gets a new
    state, so that answers to earlier questions find nobody.
    """

    position: int | None = None
    reset_to: int | None = None
    is_paused: bool = False
    is_leaving: bool = False
    is_looked_up: bool = False
    known_end: int | None = None
    log_start_offset: int | None = None

    @property
    def is_fetchable(self) -> bool:
        """Whether its records are wanted and it is known from where."""
        return self.position is not None and not self.is_paused and not self.is_leaving

    def seek(self, position: int) -> None:
        """Go on at an offset."""
        self.position = position
        self.reset_to = None

    def request_reset(self, to: int) -> None:
        """Have the position looked up: -2 earliest, -1 latest."""
        self.position = None
        self.reset_to = to


@define(eq=False)
class SubscriptionState:
    """All assigned partitions, in the order of their assignment."""

    partitions: dict[TopicPartition, PartitionState] = field(factory=dict)

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assignment; who stays keeps its position."""
        old = self.partitions
        self.partitions = {partition: old.get(partition) or PartitionState() for partition in partitions}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions out."""
        for partition in partitions:
            self.partitions.pop(partition, None)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the position of each partition that has one."""
        return {p: state.position for p, state in self.partitions.items() if state.position is not None}

    def without_position(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yield partitions whose position nobody is looking up yet."""
        for partition, state in self.partitions.items():
            if state.position is None and not state.is_looked_up and not state.is_leaving:
                yield partition, state
