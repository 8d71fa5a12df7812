"""Keys that are not in their partition: they are counted, and each topic is warned of, with what explains them.

Joins, tables and aggregates look for a key in the task of one partition. Records elsewhere, of topics that were given
more partitions or of producers with another partitioner, find no partner and are counted apart, without an error. The
module imports only ``core`` and ``topology`` from outside ``runtime``.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field

from streams.core.blocks.key_places import UNCLEAR, KeyPlaces
from streams.core.blocks.records import Block, TaskId
from streams.core.errors import ProcessingError
from streams.core.metrics import table
from streams.core.metrics.drops import MISPLACED
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.key_sampler import KeySampler
from streams.runtime.tasks.sources import TaskInput
from streams.runtime.tasks.task import Task
from streams.topology import copartitions

log = logging.getLogger(__name__)

#: Number of records of a block from which the partitioner is derived.
_WEIGHED = 1_000
_REMEDY = (
    "records of one key in two partitions find no partner in joins and are counted apart; let the producer partition "
    "by murmur2 (partitioner=murmur2_random of librdkafka), or read the topic with .repartition(); "
    "misplaced_keys='ignore' if it is meant so"
)


def _always_by_key(topic: str) -> bool:
    return True


@define(eq=False)
class _Topic:
    """The sampled keys of a topic, and what explains the misplaced ones."""

    places: KeyPlaces
    reason: str = ""
    #: What is said of the first misplaced key.
    text: str = ""
    #: Number of sampled keys at which the reason is derived again, as it takes much longer than a sample.
    derived_at: int = 0
    #: Whether the default partitioner is that of the topic; None until one of its keys is misplaced.
    is_by_key: bool | None = None


@define(eq=False)
class KeyWatch:
    """Samples the keys of the topics that tasks read into state without a repartition topic in between.

    ``policy`` is the setting ``misplaced_keys``. ``is_by_key`` returns whether the default partitioner chooses the
    partitions of a topic, and is called when the first key of the topic is misplaced. Windowed keys are placed without
    their windows, and null keys have no place.
    """

    policy: str
    is_by_key: Callable[[str], bool] = _always_by_key
    #: Whether warnings are logged; otherwise only counted, with the first one of a topic as an example.
    is_logging: bool = True
    _topics: dict[str, _Topic] = field(factory=dict, init=False)

    def attach(self, task: Task, plan: ApplicationPlan) -> None:
        """Sample the inputs of an opened task from now on."""
        if self.policy == "ignore":
            return
        for item, home in inputs_by_key(plan, task.task_id):
            task.readers[item.partition].keys = self._sampler(task, item, plan.partitions[item.topic], home)

    def _sampler(self, task: Task, item: TaskInput, count: int, home: frozenset[int]) -> KeySampler:
        topic = self._topics.get(item.name)
        if topic is None or topic.places.partitions != count:
            suffix = task.readers[item.partition].key_serde.key_suffix
            topic = self._topics[item.name] = _Topic(KeyPlaces(item.name, count, suffix))
        topic.places.place(item.number)
        return KeySampler(
            topic.places,
            item.number,
            home,
            task.metrics.counter(table.KEYS_SAMPLED, task=task.task_id, topic=item.name, partition=item.number),
            partial(self._note, task, item),
        )

    def _note(
        self, task: Task, item: TaskInput, sampler: KeySampler, block: Block, indices: Sequence[int]
    ) -> tuple[int, ProcessingError] | None:
        """Count the misplaced keys of a block, of which one of the sampled records has one at least.

        Return the index of the first one, with an error, if the task must fail.
        """
        topic = self._topics[item.name]
        places = sampler.places
        if topic.is_by_key is None:
            topic.is_by_key = self.is_by_key(item.name)
        if not topic.is_by_key:
            sampler.home = frozenset(range(places.partitions))
            return None
        is_first = places.first is None
        keys = [block.keys[index] for index in indices]
        offsets = [block.offsets[index] for index in indices]
        strays = places.look(item.number, keys, offsets, sampler.home)
        if places.needs_evidence:
            places.weigh(item.number, block.keys[:_WEIGHED], sampler.home)
        if places.sampled >= topic.derived_at:
            topic.reason = places.reason
            topic.derived_at = 2 * places.sampled
        if sampler.reason != topic.reason or sampler.misplaced is None:
            sampler.reason = topic.reason
            sampler.misplaced = task.metrics.counter(
                table.KEYS_MISPLACED, task=task.task_id, topic=item.name, partition=item.number, reason=topic.reason
            )
        sampler.misplaced.value += len(strays)
        if not is_first and self.policy != "fail":
            self._warn(task, item.name, len(strays))
            return None
        text = f"topic {item.name!r}: key {strays[0]}; {places.explanation}; {_REMEDY}"
        if topic.reason == UNCLEAR:
            text += f"; `streams topics describe {item.name} --keys` samples all partitions"
        task.metrics.note_misplaced(item.name, text)
        topic.text = text
        if self.policy == "fail":
            return indices[offsets.index(strays[0].offset)], ProcessingError(
                text,
                node=item.source,
                task_id=task.task_id,
                topic=item.name,
                partition=item.number,
                offset=strays[0].offset,
            )
        self._warn(task, item.name, len(strays))
        return None

    def _warn(self, task: Task, topic: str, count: int) -> None:
        if self.is_logging:
            metrics = task.metrics
            metrics.notices.warn(log, (topic, MISPLACED), metrics.clock.monotonic_ms(), self._topics[topic].text, count)


def inputs_by_key(plan: ApplicationPlan, task_id: TaskId) -> list[tuple[TaskInput, frozenset[int]]]:
    """Return the inputs of a task whose keys must be in their partitions, each with those of its topic that it reads.

    They are topics of other producers that reach a store directly. A topic that the application writes with a
    partitioner of its own is not one of them.
    """
    keyed = {source for joint in copartitions(plan.topology) for source in joint.sources}
    chosen = {sink.topic for sink in plan.topology.sinks() if sink.partitioner is not None}
    result = []
    for item in plan.inputs(task_id):
        home = frozenset(part.partition for part in plan.groups[task_id] if part.topic == item.topic)
        is_chosen = item.topic in chosen or None in chosen
        if item.source in keyed and not plan.is_own(item) and not is_chosen and len(home) < plan.partitions[item.topic]:
            result.append((item, home))
    return result
