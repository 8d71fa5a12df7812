"""A coordinator as the tests use it: with its topics, its clock and its log, from which it is started again."""

from collections.abc import Iterable
from random import Random

from attrs import define, field
from hypothesis import strategies as st

from streams.core.blocks.records import Block
from streams.group import Coordinator, CoordinatorConfig, CreateInternalTopics, Persist, Reply
from streams.protocol.group_messages import ConsumerGroupDescribe
from streams.protocol.streams_group_messages import StreamsGroupDescribe

#: How long a group waits between assignments, in properties: not at all, less than a heartbeat, and several of them.
INTERVALS_MS = st.sampled_from([0, 1_000, 12_000])


@define
class Topics:
    """A directory of topics that a test changes."""

    by_name: dict[str, tuple[bytes, int]] = field(factory=dict)
    version: int = 0

    def put(self, name: str, count: int) -> None:
        """Create a topic, or raise its number of partitions."""
        topic_id = self.by_name.get(name, (name.encode().ljust(16, b"-"), 0))[0]
        self.by_name[name] = (topic_id, count)
        self.version += 1

    def names(self):
        """All names."""
        return list(self.by_name)

    def topic(self, name: str):
        """The ID and the number of partitions."""
        return self.by_name.get(name)

    def partitions(self) -> set[tuple[bytes, int]]:
        """All partitions."""
        return {(topic_id, number) for topic_id, count in self.by_name.values() for number in range(count)}


def started(
    config: CoordinatorConfig, rng: Random, topics: Topics, log: Iterable[tuple[bytes, bytes | None]]
) -> Coordinator:
    """Start a coordinator from the log, compacted: the last record of each key is left, in the order of the log."""
    kept: dict[bytes, bytes | None] = {}
    for key, value in log:
        kept.pop(key, None)
        kept[key] = value
    coordinator = Coordinator(config, rng, topics)
    coordinator.load([Block(list(kept), list(kept.values()), [0] * len(kept))])
    return coordinator


@define
class Desk:
    """A coordinator of one group, whose requests are answered at once."""

    describe: type[ConsumerGroupDescribe] | type[StreamsGroupDescribe] = ConsumerGroupDescribe
    config: CoordinatorConfig = field(factory=CoordinatorConfig)
    topics: Topics = field(factory=Topics)
    now_ms: int = 1_000
    log: list[tuple[bytes, bytes | None]] = field(factory=list)
    #: Why internal topics are not created, if they are not.
    failure: str = ""
    coordinator: Coordinator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start a new coordinator from the log."""
        self.coordinator = started(self.config, Random(7), self.topics, self.log)

    def ask(self, request):
        """Send a request that is answered at once."""
        effects = self.coordinator.handle(request, self.now_ms, "token")
        self._keep(effects)
        (reply,) = (effect.response for effect in effects if isinstance(effect, Reply))
        return reply

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self.now_ms += milliseconds
        self._keep(self.coordinator.tick(self.now_ms))

    def configure(self, **configs: str) -> None:
        """Set configs of the group, with dots for underscores."""
        self.coordinator.configs.alter("g", {name.replace("_", "."): value for name, value in configs.items()})
        self._keep(self.coordinator.take_effects())

    def _keep(self, effects) -> None:
        self.log += ((effect.key, effect.value) for effect in effects if isinstance(effect, Persist))
        for effect in effects:
            if isinstance(effect, CreateInternalTopics):
                for spec in effect.topics:
                    if not self.failure:
                        self.topics.put(spec.name, spec.partitions)
                self.coordinator.note_creation(
                    effect.group_id, {spec.name: self.failure for spec in effect.topics if self.failure}
                )

    def described(self):
        """The description of the group."""
        return self.ask(self.describe("g"))
