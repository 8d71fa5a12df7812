"""Playing a case as history: its pipes lie in archives, and a replay reads them.

Two ways.  **Whole**: all pipes are one history, and the answer is that of a bounded live run over the
same records, in the order of their times.  **Piece by piece**: history comes one segment of the script
at a time (``flow.segments``), and the replay of each goes on from the snapshot of the one before; the
answer is that of Kafka Streams, as far as ``flow.agreement`` says.

What history cannot express is read off the case, never its name: see ``why_not``.
"""

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, define, frozen

from streams import StreamsBuilder, StreamsConfig, Topology, VirtualClock
from streams.core.metrics import DropReason, Tally
from streams.replay.run.session import ReplaySession
from streams.runtime.plan.plan import ApplicationPlan
from streams.state import open_store
from streams.topology import KeyFilter
from streams.topology.graph import SourceNode
from tests.conformance.agree import has_wall_clock
from tests.conformance.blocks import external_topics
from tests.conformance.flow import Agreement, Flow, Segment, agreement, has_plain_times, segments
from tests.conformance.play import REFUSALS, Observed, build, entry_of, piped_row, settings_of
from tests.conformance.stores import read_store
from tests.conformance.values import TopicSerdes, to_json
from tests.replay.outcomes import Row, archived, record_files, result_of, session_of

#: Processors whose records show the wall clock.
_WALL_CLOCK = frozenset({"ctx", "tick_meta"})
#: Processors that keep something in themselves, or schedule timers by what they get.
_REMEMBER = frozenset({"tick_cancel", "tick_counter", "toggle"})
_CACHE = "cache_max_bytes"


@frozen
class CaseTopology:
    """The topology of a case as a function of the builder, which can travel to other processes.

    What passes a ``peek`` is written to a file, for that is what all processes have in common.
    """

    line: str
    peeks: str

    def __call__(self, builder: StreamsBuilder) -> Topology:
        """Build the topology."""
        return build(json.loads(self.line), self._peeked)

    def _peeked(self, label: str, key: Any, value: Any) -> None:
        with open(self.peeks, "a") as file:
            file.write(json.dumps([label, {"key": to_json(key), "value": to_json(value)}]) + "\n")


def why_not(case: dict[str, Any], topology: Topology) -> str | None:
    """Return why history cannot express a case, None if it can."""
    if has_wall_clock(case):
        return "moves the wall clock, which history does not have"
    functions = _processors(case)
    if any(fn[0] in _WALL_CLOCK or "wall" in fn[1:2] for fn in functions):
        return "a processor looks at the wall clock"
    policies = {node.extractor for node in topology.nodes.values() if isinstance(node, SourceNode)}
    if "wall_clock" in policies or (case.get("config") or {}).get("default_ts_extractor") == "wall_clock":
        return "takes the wall clock as event time"
    return None


def cannot_be_sliced(case: dict[str, Any]) -> bool:
    """Whether a case keeps what no store holds: that is lost between two slices, or held back otherwise."""
    return any(fn[0] in _REMEMBER for fn in _processors(case)) or bool((case.get("config") or {}).get(_CACHE))


def _processors(case: dict[str, Any]) -> list[list[Any]]:
    return [op["fn"] for op in case["topology"] if op["op"] in ("process", "process_values", "add_processor")]


@define
class ReplayPlayer:
    """Plays one case as history that grows by a segment at a time."""

    case: dict[str, Any]
    folder: Path
    observed: Observed = Factory(Observed)
    #: What the replay must have in common with Kafka Streams; None: it is refused when built.
    wanted: Agreement | None = None
    parts: list[Segment | int] = Factory(list)
    topology: Topology | None = None
    counts: dict[str, int] = Factory(dict)
    options: dict[str, Any] = Factory(dict)
    #: The session of the piece in work, or of the last one.
    current: ReplaySession | None = None
    _dropped: int = 0

    def prepare(self) -> "ReplayPlayer":
        """Build the topology and cut the script."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.topology = build(self.case, lambda *_: None)
        except REFUSALS as error:
            self.observed.fail("build", None, error)
            return self
        _, settings = settings_of(self.case)
        self.counts = external_topics(self.case, self.topology)
        config = StreamsConfig.of(**settings)
        plan = ApplicationPlan.make(self.topology, config, VirtualClock(0), self.counts)
        flow = Flow(self.topology, plan.subs)
        plain = has_plain_times(self.topology, self.case.get("config") or {})
        self.parts = segments(self.case, flow, joins_topics=plain)
        self.wanted = agreement(self.case, flow, self.parts)
        return self

    @property
    def source(self) -> CaseTopology:
        """The topology as it travels."""
        return CaseTopology(json.dumps(self.case), str(self.folder / "peeks"))

    def rows(self, until: int | None = None) -> dict[str, list[Row]]:
        """Return the records of the script's first steps, all by default, of topics that the topology reads."""
        assert self.topology is not None
        serdes = {name: TopicSerdes.of(spec) for name, spec in self.case["topics"].items()}
        result: dict[str, list[Row]] = {}
        for step in self.case["script"][:until]:
            if "pipe" in step:
                topic, row = piped_row(step["pipe"], serdes)
                if self._is_read(topic):
                    result.setdefault(topic, []).append(Row(0, *row))
        return result

    def _is_read(self, topic: str) -> bool:
        assert self.topology is not None
        sources = [*self.topology.sources(), *(store.source for store in self.topology.global_stores.values())]
        return any(topic in node.topics or (node.pattern and node.pattern.fullmatch(topic)) for node in sources)

    def session(self, rows: dict[str, list[Row]], name: str = "replay", **options: Any) -> ReplaySession:
        """Return a session over these records, in a folder of its own."""
        places = archived(self.folder / "archives", rows, self.counts)
        _, settings = settings_of(self.case)
        return session_of(self.source, places, self.folder / name, **settings | self.options | options)

    def session_of_files(self, rows: dict[str, list[Row]]) -> ReplaySession:
        """Return a session over the same records in record files."""
        _, settings = settings_of(self.case)
        assert self.topology is not None
        files = record_files(self.folder / "files", rows, self.topology)
        return session_of(self.source, files, self.folder / "replay-files", **settings | self.options)

    def steps(self) -> Generator[list[Any], list[Any], None]:
        """Yield the calls of all pieces, and take note of what they give."""
        # A case without input has no segment to replay, and nothing to drop.
        self.observed.dropped = 0
        snapshot: Path | None = None
        for number, part in enumerate(self.parts):
            if isinstance(part, int):
                request = self.case["script"][part]["read_store"]
                self.observed.note(f"store:{request['store']}", {"entries": self._read(request)})
            elif rows := self.rows(part.steps[-1] + 1):
                self.current = self.session(rows, f"replay-{number}", state_from=snapshot)
                yield from self.current.steps()
                self._observe()
                snapshot = self.folder / f"snapshot-{number}"
                result_of(self.current).save(snapshot, with_outputs=False)
        if self.current is not None:
            self._end()

    def _observe(self) -> None:
        """Take note of what a piece has written."""
        assert self.current is not None
        result = result_of(self.current)
        for topic, spec in self.case["topics"].items():
            forms = TopicSerdes.of(spec)
            if topic in set(result.outputs):
                for _, block in result.read(topic):
                    for _, key, value, timestamp_ms, headers in block.rows():
                        self.observed.note(topic, entry_of((key, value, timestamp_ms, headers), forms))
        self._dropped += self._dropped_in(self.current.state.tallies())

    def _end(self) -> None:
        """Take note of what is there at the end."""
        assert self.current is not None
        peeks = self.folder / "peeks"
        for line in peeks.read_text().splitlines() if peeks.exists() else ():
            label, entry = json.loads(line)
            self.observed.note(f"peek:{label}", entry)
        for request in self.case.get("read_stores") or ():
            self.observed.stores[request["store"]] = self._read(request)
        # Global stores are filled anew for each piece.
        counters = self.current.global_counters
        self.observed.dropped = self._dropped + self._dropped_in(counters)

    def _dropped_in(self, counters: Mapping[Tally, int]) -> int:
        """Return the dropped records that Kafka Streams counts too."""
        assert self.topology is not None
        return sum(
            count
            for tally, count in counters.items()
            if tally.is_drop
            and tally.reason != DropReason.UNJOINED
            and not isinstance(getattr(self.topology.nodes.get(tally.place), "operator", None), KeyFilter)
        )

    def _read(self, request: dict[str, Any]) -> list[Any]:
        """Read a store as it lies in the folder of the replay."""
        assert self.current is not None
        topology, state = self.current.topology, self.current.state
        name = request["store"]
        if name in topology.global_stores:
            spec, ref = topology.global_stores[name].spec, state.global_stores[name]
        else:
            spec, ref = topology.stores[name], next(found[name] for found in state.stores.values() if name in found)
        store = open_store(spec, None, default_engine="in_memory")
        for _, block in result_of(self.current).stores[name].blocks():
            store.restore(block)
        store.restore_carried(ref.carried)
        return read_store(store, request)
