"""Playing a case on the embedded broker: an application with one thread, fed through its topics.

The same segments as in blocks; the next one is written when everything of the last is processed.
"""

from typing import Any

from attrs import define, field

from streams import EmbeddedBroker, Streams, TopicPartition, Topology
from streams.runtime.threads.thread import StreamThread
from streams.topology.subtopologies import sub_topologies
from tests.conformance.blocks import BlockPlayer, external_topics, joined
from tests.conformance.flow import Agreement, Segment, agreement, segments
from tests.conformance.play import Observed, Row, build, entry_of, settings_of
from tests.conformance.stores import read_store
from tests.conformance.values import TopicSerdes, to_json

#: Processors whose records show the wall clock.
_WALL_CLOCK = frozenset({"ctx", "tick_meta"})


@define
class LivePlayer:
    """Plays one case by its segments."""

    case: dict[str, Any]
    parts: list[Segment | int]
    observed: Observed = field(factory=Observed)

    def play(self) -> Observed:
        """Run the whole case."""
        topology = build(self.case, self._peeked)
        _, settings = settings_of(self.case)
        application_id = settings.pop("application_id")
        fast = {"commit_interval_ms": 5, "poll_ms": 1}
        with EmbeddedBroker() as broker:
            for name, partitions in external_topics(self.case, topology).items():
                broker.create_topic(name, partitions)
            with Streams(topology, application_id=application_id, broker=broker, **fast | settings) as streams:
                written = self._run(broker, streams, topology)
                self._read(broker, streams, written)
        return self.observed

    def _run(self, broker: EmbeddedBroker, streams: Streams, topology: Topology) -> dict[str, set[int]]:
        """Write all segments; return the offsets at which input lies."""
        written: dict[str, set[int]] = {}
        self._until_quiet(broker, streams)
        for part in self.parts:
            assert isinstance(part, Segment)
            for topic, rows in part.rows.items():
                start = broker.append(TopicPartition(topic, 0), joined(rows, 0))
                written.setdefault(topic, set()).update(range(start, start + len(rows)))
            self._until_quiet(broker, streams)
        return written

    def _until_quiet(self, broker: EmbeddedBroker, streams: Streams) -> None:
        wanted = {sub.id for sub in sub_topologies(streams.topology) if not sub.is_global}
        while True:
            if streams.failure is not None:
                raise streams.failure
            # Each question waits for a turn of the thread; there is no answer while there is no thread.
            answers = streams.instance.ask(lambda thread: _is_quiet(broker, thread, wanted))
            if answers == [True]:
                return

    def _read(self, broker: EmbeddedBroker, streams: Streams, written: dict[str, set[int]]) -> None:
        for topic, spec in self.case["topics"].items():
            forms = TopicSerdes.of(spec)
            for block in broker.read(TopicPartition(topic, 0), 0, 100_000):
                for offset, key, value, timestamp_ms, headers in block.rows():
                    row: Row = (key, value, timestamp_ms, headers)
                    if offset not in written.get(topic, ()):
                        self.observed.note(topic, entry_of(row, forms))
        requests = self.case.get("read_stores") or ()
        [stores] = streams.instance.ask(
            lambda thread: {
                request["store"]: read_store(_store(thread, request["store"]), request) for request in requests
            }
        )
        self.observed.stores.update(stores)
        self.observed.dropped = streams.metrics.get("dropped-records-total")

    def _peeked(self, label: str, key: Any, value: Any) -> None:
        self.observed.note(f"peek:{label}", {"key": to_json(key), "value": to_json(value)})


def _store(thread: StreamThread, name: str) -> Any:
    return next(task.stores[name] for task in thread.tasks.values() if name in task.stores)


def _is_quiet(broker: EmbeddedBroker, thread: StreamThread, wanted: set[int]) -> bool:
    """Whether the thread has a task of every sub-topology, and has read, processed and committed all input.

    The tasks are compared with the topology: a thread that the group has given none yet is ready, and has no
    input that is not processed.
    """
    tasks, directive = thread.tasks, thread.assignment.directive
    if directive is None or not thread.is_ready or {task_id.sub_topology for task_id in tasks} != wanted:
        return False
    if tasks.keys() != thread.shared.plans.of(directive.layout).groups.keys():
        return False
    if any(task.calls is not None and task.calls.in_flight for task in tasks.values()):
        return False
    return all(
        not queue.size and (queue.fetched or 0) >= broker.end_offset(queue.partition) and not task.is_dirty
        for task in tasks.values()
        for queue in task.queues
    )


def live_parts(case: dict[str, Any]) -> list[Segment | int] | None:
    """Return the segments of a case that agrees in everything when it is played live; None if it does not.

    A segment has one topic: which of two topics a running application hears of first is not the case's.
    """
    player = BlockPlayer(case)
    player.play()
    functions = [op["fn"][0] for op in case["topology"] if op["op"] in ("process", "process_values", "add_processor")]
    # Global stores are filled by a thread of their own, and the wall clock goes on.
    if player.flow is None or player.flow.global_topics or _WALL_CLOCK.intersection(functions):
        return None
    parts = segments(case, player.flow, joins_topics=False)
    is_exact = agreement(case, player.flow, parts) is Agreement.EXACT
    return parts if is_exact and all(isinstance(part, Segment) for part in parts) else None
