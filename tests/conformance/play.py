"""Playing a case: build its topology, run its script on the test driver, note what came out.

The driver is the project's own; nothing here knows what an operator does.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import Factory, define

from streams import Headers, StreamsBuilder, StreamsError, Topology
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe
from tests.conformance.dsl_operators import DslInterpreter
from tests.conformance.processor_operators import add_processor_operator
from tests.conformance.stores import read_store
from tests.conformance.values import TopicSerdes, encoded, headers_of, headers_to_json, to_json

#: What the project raises where it refuses a topology: its own errors, and those of window values.
REFUSALS = (StreamsError, ValueError)

#: Settings of a case that have another name in the project.
_SETTING_NAMES = {"default_ts_extractor": "default_timestamp_extractor"}

#: Key, value, timestamp and headers of a record as bytes.
Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]


@define
class Observed:
    """What a case gave: as ``expected`` of a case, plus the message of an error."""

    outputs: dict[str, list[dict[str, Any]]] = Factory(dict)
    stores: dict[str, list[Any]] = Factory(dict)
    describe: dict[str, Any] | None = None
    dropped: int | None = None
    phase: str | None = None
    step: int | None = None
    message: str = ""

    def note(self, name: str, entry: dict[str, Any]) -> None:
        """Append an entry to a list of the outputs."""
        self.outputs.setdefault(name, []).append(entry)

    def fail(self, phase: str, step: int | None, error: Exception) -> "Observed":
        """Note the error that ended the case."""
        self.phase, self.step, self.message = phase, step, f"{type(error).__name__}: {error}"
        return self


def settings_of(case: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return where the wall clock of a case starts, and its settings as the project names them."""
    settings = {"application_id": "app", **(case.get("config") or {})}
    now_ms = settings.pop("initial_wall_clock_ms", 0)
    return now_ms, {_SETTING_NAMES.get(name, name): value for name, value in settings.items()}


def build(case: dict[str, Any], peeked: Callable[[str, Any, Any], None]) -> Topology:
    """Build the topology of a case; ``peeked`` is told label, key and value of what passes a ``peek``.

    Raises:
        StreamsError: the topology is refused.
        ValueError: a value of it is refused.
    """
    operators = case["topology"]
    if any(op["op"] == "add_source" for op in operators):
        topology = Topology()
        for op in operators:
            add_processor_operator(topology, op)
        return topology
    builder = StreamsBuilder()
    interpreter = DslInterpreter(builder, peeked)
    for op in operators:
        interpreter.add(op)
    return builder.build(topology_optimization=(case.get("config") or {}).get("topology_optimization", "none"))


def piped_row(record: dict[str, Any], serdes: dict[str, TopicSerdes]) -> tuple[str, Row]:
    """Return topic, and key, value, timestamp and headers, of a ``pipe`` step."""
    topic = record["topic"]
    key, value = encoded(record["key"], serdes[topic].key), encoded(record["value"], serdes[topic].value)
    return topic, (key, value, record["ts"], headers_of(record.get("headers", [])))


def entry_of(row: Row, forms: TopicSerdes) -> dict[str, Any]:
    """Return a record of a topic as ``outputs`` states it, but for the step."""
    key, value, timestamp_ms, headers = row
    entry = {
        "key": to_json(forms.key.deserialize(key)),
        "value": to_json(forms.value.deserialize(value)),
        "ts": timestamp_ms,
    }
    return entry | {"headers": headers_to_json(headers)} if headers else entry


@define
class Player:
    """Plays one case."""

    case: dict[str, Any]
    observed: Observed = Factory(Observed)
    #: Step that now runs; -1 while the driver is made.
    _step: int = -1

    def play(self) -> Observed:
        """Run the whole case.

        Raises:
            Exception: the runner or the project does not support the case; that is no result.
        """
        try:
            topology = build(self.case, self._peeked)
            if self.case["expected"].get("describe") is not None:
                self.observed.describe = describe(topology).to_dict()
            driver = self._driver(topology)
        except REFUSALS as error:
            return self.observed.fail("build", None, error)
        with driver:
            return self._run(driver)

    def _driver(self, topology: Topology) -> TopologyTestDriver:
        now_ms, settings = settings_of(self.case)
        return TopologyTestDriver(topology, now_ms=now_ms, **settings)

    def _peeked(self, label: str, key: Any, value: Any) -> None:
        self.observed.note(f"peek:{label}", {"step": self._step, "key": to_json(key), "value": to_json(value)})

    def _run(self, driver: TopologyTestDriver) -> Observed:
        serdes = {name: TopicSerdes.of(spec) for name, spec in self.case["topics"].items()}
        for number, step in enumerate(self.case["script"]):
            self._step = number
            perform, piped = self._action(driver, step, serdes)
            try:
                perform()
            except StreamsError as error:
                return self.observed.fail("run", self._step, error)
            self._collect(driver, serdes, piped)
        for request in self.case.get("read_stores") or ():
            self.observed.stores[request["store"]] = read_store(driver.store(request["store"]), request)
        if "dropped" in self.case["expected"]:
            self.observed.dropped = driver.metric("dropped-records-total")
        return self.observed

    def _action(
        self, driver: TopologyTestDriver, step: dict[str, Any], serdes: dict[str, TopicSerdes]
    ) -> tuple[Callable[[], None], str | None]:
        """Return what a step does, and the topic that it writes its own record to."""
        if "pipe" in step:
            topic, row = piped_row(step["pipe"], serdes)
            return lambda: driver.pipe_bytes(topic, *row), topic
        if "advance_wall_clock_ms" in step:
            return lambda: driver.advance_wall_clock(step["advance_wall_clock_ms"]), None
        if "read_store" in step:
            return lambda: self._read(driver, step["read_store"]), None
        raise KeyError(f"unknown step {step!r}")

    def _read(self, driver: TopologyTestDriver, request: dict[str, Any]) -> None:
        entries = read_store(driver.store(request["store"]), request)
        self.observed.note(f"store:{request['store']}", {"step": self._step, "entries": entries})

    def _collect(self, driver: TopologyTestDriver, serdes: dict[str, TopicSerdes], piped: str | None) -> None:
        """Note what the step wrote to the topics of the case."""
        for topic, forms in serdes.items():
            records = driver.read_bytes(topic)
            # The driver's log of a topic begins with the record that was piped into it.
            for record in records[1:] if topic == piped else records:
                row = (record.key, record.value, record.timestamp_ms, record.headers)
                self.observed.note(topic, {"step": self._step, **entry_of(row, forms)})


def play(case: dict[str, Any]) -> Observed:
    """Play a case and return what it gave."""
    return Player(case).play()
