"""The parts of a story from several instances: their serialization, and their merge into one story.

An instance traces only its own tasks. A record that it writes to a topic of the application may be read by another
instance, and records of one key in different partitions may be read by different instances. Therefore a part lists the
records that were written and read, and the partitions with records of the key. All functions are pure.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
from attrs import evolve, frozen

from streams.core.blocks.records import TaskId
from streams.topology import SinkNode
from streams.why.paths import Paths
from streams.why.reasons import Reasons, odd_of
from streams.why.story import End, Fact, Mark, Story
from streams.why.trace import Step

#: Maximum number of records of each kind in a part.
_MAX_MARKS = 1_000
#: Maximum number of topics between a source record and an output.
_MAX_HOPS = 24
#: Reasons that may only mean that the records are on another instance.
_ABSENT = ("no such key", "not at that time")
#: Reasons that say which records a part has.
_OF_PARTS = ("not asked", "task moved")


class Handoff(NamedTuple):
    """A record that was written to a topic of the application, and the record that caused it."""

    mark: Mark
    fact: Fact


class Sighting(NamedTuple):
    """A record of the traced key on one side of a join, or at the node that writes the joined table.

    ``partitioner`` is a clause of the explanation, or "" if the partitioner is not known.
    """

    node: str
    key: str
    where: str
    task: TaskId
    partitioner: str


class KeyPlace(NamedTuple):
    """A partition with source records of the traced key.

    ``partitioner`` is a clause of the explanation, or "" for the default partitioner.
    """

    topic: str
    partition: int
    node: str
    partitioner: str


@frozen
class StoryPart:
    """The explanation from one instance, with the data to merge it with the explanations of other instances.

    ``output_count`` is the number of outputs in this explanation.
    """

    story: Story
    output_count: int = 0
    #: Whether the instance has traced the key; otherwise a note of the story has the reason.
    is_asked: bool = True
    written: tuple[Handoff, ...] = ()
    read: tuple[Mark, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    places: tuple[KeyPlace, ...] = ()

    def encoded(self) -> bytes:
        """Return the part as JSON, with keys and values as text."""
        return msgspec.json.encode(self._mapped(Fact.as_text))

    @classmethod
    def decode(cls, data: bytes) -> "StoryPart":
        """Deserialize the result of ``encoded``.

        Raises:
            msgspec.DecodeError: the data is not a part, or was serialized by another version.
        """
        return msgspec.json.decode(data, type=cls)._mapped(Fact.as_shown)

    def _mapped(self, change: Callable[[Fact], Fact]) -> "StoryPart":
        written = tuple(Handoff(mark, fact.mapped(change)) for mark, fact in self.written)
        return evolve(self, story=self.story.mapped(change), written=written)


# --- the part of one instance -----------------------------------------------------------------------


def marks_of(paths: Paths, reasons: Reasons) -> tuple[tuple[Handoff, ...], tuple[Mark, ...]]:
    """Return the records that this instance wrote to topics of the application and did not read, and those it read."""
    nodes = paths.topology.nodes
    unread = [
        step
        for episode in paths.trace.traced
        for step in episode.steps
        if paths.is_waiting(step) and not step.drops and step.error is None
    ]
    written = tuple(Handoff(reasons.mark(step), reasons.lineage.of(step)) for step in unread[-_MAX_MARKS:])
    through = {node.topic for node in nodes.values() if isinstance(node, SinkNode)}
    read = [
        Mark(episode.place.topic, episode.steps[0].timestamp_ms, repr(episode.steps[0].key))
        for episode in paths.trace.episodes()
        if episode.place is not None and episode.place.topic in through and episode.producer is None and episode.steps
    ]
    return written, tuple(read[-_MAX_MARKS:])


def sightings_of(paths: Paths, reasons: Reasons) -> tuple[Sighting, ...]:
    """Return the records related to the traced key at all nodes whose records may be join partners."""
    nodes = {name for partners in map(paths.partners, paths.topology.nodes) for name in partners}
    steps = paths.at(nodes, lambda step: step.episode.is_kept and step.value is not None)
    return tuple(
        Sighting(step.node, repr(step.key), reasons.where(step), step.task_id, reasons.partitioner_of(step))
        for step in steps[-_MAX_MARKS:]
    )


def places_of_key(firsts: Iterable[Step], reasons: Reasons) -> tuple[KeyPlace, ...]:
    """Return the partitions that contain source records of the key; ``firsts`` has the first step of each record."""
    places: dict[tuple[str, int], KeyPlace] = {}
    for step in firsts:
        place = step.episode.place
        if place is not None and (place.topic, place.partition) not in places:
            text = reasons.partitioner_of(step)
            odd = text if "another partitioner" in text else ""
            places[place.topic, place.partition] = KeyPlace(place.topic, place.partition, step.node, odd)
    return tuple(places.values())


# --- one story --------------------------------------------------------------------------------


def split_places(places: Iterable[KeyPlace], key: str) -> list[End]:
    """Return a note for each topic with source records of the key in several partitions."""
    by_topic: dict[str, dict[int, KeyPlace]] = {}
    for place in places:
        by_topic.setdefault(place.topic, {})[place.partition] = place
    notes = []
    for topic, by_number in by_topic.items():
        if len(by_number) > 1:
            numbers = ", ".join(map(str, sorted(by_number)))
            odd = next((place.partitioner for place in by_number.values() if place.partitioner), "")
            text = f"records of key {key} are in partitions {numbers} of {topic}{odd}"
            notes.append(End("another partition", by_number[min(by_number)].node, text))
    return notes


def merged(parts: Sequence[StoryPart], key: str, titled: Callable[[int], str]) -> Story:
    """Merge the parts of all instances into one story; ``titled`` returns the title, given the number of outputs."""
    written: dict[Mark, list[Fact]] = {}
    for part in parts:
        for mark, fact in part.written:
            written.setdefault(mark, []).append(fact)

    def continued(fact: Fact, hops: int = 0) -> Fact:
        """Replace a record that another instance has written by the record that caused it on that instance."""
        mark = Mark(fact.topic or "", fact.timestamp_ms or 0, repr(fact.key))
        causes = written.get(mark, ()) if fact.topic is not None and not fact.causes and hops < _MAX_HOPS else ()
        if not causes:
            return fact
        cause = causes[0].mapped(lambda inner: continued(inner, hops + 1))
        return evolve(cause, via=(*fact.via, f"topic {fact.topic}", *cause.via))

    told = [part.story.mapped(continued) for part in parts]
    read = {mark for part in parts for mark in part.read}
    count = sum(part.output_count for part in parts)
    notes = _notes(told, is_found=any(story.outputs or story.ends for story in told))
    notes += [
        note for note in split_places((place for part in parts for place in part.places), key) if note not in notes
    ]
    first = told[0]
    if count:
        last = max((story for story in told if story.outputs), key=lambda story: story.outputs[-1].timestamp_ms or 0)
        return Story(titled(count), last.outputs, last.ends, tuple(notes), first.limit)
    told_ends = [end for story in told for end in story.ends]
    ends = [_elsewhere(end, parts) for end in told_ends if end.mark is None or end.mark not in read]
    if not ends and not notes:
        notes.append(_read_elsewhere([end.mark for end in told_ends if end.mark is not None], first.limit))
    return Story(titled(0), (), tuple(ends), tuple(notes), first.limit)


def _notes(told: Sequence[Story], *, is_found: bool) -> list[End]:
    """Return the distinct notes; a note that the key has no record is kept only if this is so on every instance."""
    notes: list[End] = []
    for note in (note for story in told for note in story.notes):
        is_absent = note.reason in _ABSENT and (is_found or any(other.reason not in _ABSENT for other in _all(told)))
        if not is_absent and note not in notes:
            notes.append(note)
    return notes


def _read_elsewhere(marks: Sequence[Mark], limit: int) -> End:
    """Return the note that other instances have read the records that were made of the key's, under these keys."""
    keys = list(dict.fromkeys(mark.key for mark in marks))
    topics = dict.fromkeys(mark.topic for mark in marks)
    listed = ", ".join(keys[:limit]) + (", ..." if len(keys) > limit else "")
    text = (
        f"records of the key went on through topic {', '.join(topics)} under other keys, and were read by other "
        f"instances: ask for {listed}"
    )
    return End("another key", "", text, {"keys": len(keys)})


def _all(told: Sequence[Story]) -> list[End]:
    return [end for story in told for end in (*story.ends, *story.notes) if end.reason not in _OF_PARTS]


def _elsewhere(end: End, parts: Collection[StoryPart]) -> End:
    """Return the end of a record; its reason becomes "another partition" if another instance has the join partner."""
    if not end.partners or end.record is None or end.task is None:
        return end
    key = repr(end.record.key)
    for part in parts:
        for seen in part.sightings:
            if seen.node in end.partners and seen.key == key and seen.task != end.task:
                text = (
                    f"its partner of key {key} is in another partition: {seen.where} is read by task {seen.task}, this "
                    f"record by task {end.task}{odd_of(end.partitioner, seen.partitioner)}"
                )
                numbers = {"partition": end.task.partition, "other_partition": seen.task.partition}
                return evolve(end, reason="another partition", text=text, numbers=numbers)
    return end
