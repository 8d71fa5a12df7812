"""A storm over the clients of one group: brokers, a network, a writer and machines, on virtual time."""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Generic, TypeVar

from attrs import define, field

from streams.clients import Producer
from streams.core.errors import BrokerError
from streams.core.topic import Topic
from streams.group import CoordinatorConfig
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.cluster import SimNodes
from streams.testing.simulation.network import SimNetwork, Weather
from streams.testing.simulation.report import Counters, EventLog, InvariantViolationError
from streams.testing.simulation.scheduler import Scheduler, SimProcess, SimThreads, SpinDetector

STORM_MS = 20_000
#: Virtual time after the storm within which all work must be done.
SETTLING_MS = 120_000
RECORDS = 120
REQUEST_MS = 2_000
_WEATHER = (0.0, 0.002, 0.01)

C = TypeVar("C")


@define(eq=False)
class Site(Generic[C]):
    """A machine with one client, which is started again after it has ended.

    ``work`` runs the client, and sets ``client`` while it is a member, until the site is asked to leave.
    """

    storm: "Storm"
    name: str
    work: Callable[[SimProcess], None]
    #: What the history says of a start.
    start_text: Callable[[], str] = field(default=lambda: "starts")
    process: SimProcess | None = None
    client: C | None = None
    is_leaving: bool = False
    starts: int = 0

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.process is not None:
            return
        self.starts += 1
        self.is_leaving = False
        spins = SpinDetector(lambda: self.storm.reads, self._on_spin)
        process = self.process = SimProcess(self.storm.scheduler, self.name, spins)
        self.storm.log(self.name, self.start_text())
        process.spawn(lambda: self._run(process))

    def crash(self) -> None:
        """End the process without a word to the brokers."""
        if self.process is not None:
            self.storm.log(self.name, "crashes")
            process, self.process, self.client = self.process, None, None
            process.is_alive = False
            self.storm.scheduler.after(0, process.kill)

    def _on_spin(self) -> None:
        self.storm.failures.append(InvariantViolationError(f"{self.name} polls on without a pause"))

    def _run(self, process: SimProcess) -> None:
        try:
            self.work(process)
        except BrokerError as error:
            # As an application would be, it is started again.
            self.storm.log(self.name, f"ends: {type(error).__name__}")
            self.storm.ended[type(error).__name__] += 1
        except Exception as error:
            self.storm.failures.append(error)
        if self.process is process:
            self.process = self.client = None
            self.storm.scheduler.after(500, self.start)


@define(eq=False)
class Storm:
    """The brokers, the network and the writer of a world, and the faults that it draws for its sites.

    ``weights`` has the kinds of faults with their weights; ``rng`` decides all that the storm draws.
    """

    seed: int
    rng: Random
    group_id: str
    topics: Mapping[str, int]
    config: CoordinatorConfig
    weights: Mapping[str, int]
    is_calm: bool
    brokers: int = 1
    #: Called for each fault of a kind that is the world's own.
    apply_own: Callable[[str], None] = field(default=lambda kind: None)
    scheduler: Scheduler = field(factory=Scheduler)
    counters: Counters = field(factory=Counters)
    history: EventLog = field(factory=EventLog)
    failures: list[Exception] = field(factory=list)
    sites: list[Site[Any]] = field(factory=list)
    reads: int = 0
    ended: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    faults: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    _has_written: bool = False
    broker: SimBroker = field(init=False)
    nodes: SimNodes = field(init=False)
    network: SimNetwork = field(init=False)
    writer: SimProcess = field(init=False)

    def __attrs_post_init__(self) -> None:
        scheduler, rng, seed = self.scheduler, self.rng, self.seed
        self.broker = SimBroker(scheduler, Random(f"broker {seed}"), self.config)
        self.broker.group_id = self.group_id
        self.broker.create(self.topics)
        self.nodes = SimNodes(scheduler, self.broker, Random(f"nodes {seed}"), self.counters, self.brokers, 1_000)
        weather = (
            Weather() if self.is_calm else Weather(rng.choice(_WEATHER), rng.choice(_WEATHER), rng.choice((0.0, 0.05)))
        )
        self.network = SimNetwork(scheduler, self.nodes, Random(f"network {seed}"), weather, self.counters, REQUEST_MS)
        self.writer = SimProcess(scheduler, "writer", SpinDetector(lambda: 0, lambda: None))

    def log(self, who: str, what: str) -> None:
        """Add an event to the history."""
        self.history.append(self.scheduler.now_ms, who, what)

    def fail(self, what: str) -> None:
        """Note that an invariant is violated."""
        self.failures.append(InvariantViolationError(f"{what}, at {self.scheduler.now_ms} ms"))

    # --- the run ----------------------------------------------------------------------------

    def run(self, unfinished: Callable[[], str]) -> str:
        """Run the storm until its work is done; return the digest of its events.

        ``unfinished`` returns what is not settled yet, or an empty string.

        Raises:
            InvariantViolationError: an invariant is violated.
        """
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._run(unfinished)
        finally:
            for site in self.sites:
                site.crash()
            self.scheduler.run_until(self.scheduler.now_ms)
            self.writer.kill()
            logging.disable(before)
        return hashlib.sha256("\n".join(self.history.lines).encode()).hexdigest()[:16]

    def _run(self, unfinished: Callable[[], str]) -> None:
        scheduler = self.scheduler
        self.writer.spawn(self._write)
        for number, site in enumerate(self.sites):
            scheduler.at(100 * number, site.start)
        if not self.is_calm:
            self._draw()
        scheduler.run_until(STORM_MS)
        self.log("world", "the storm is over")
        self.network.weather.calm()
        self.network.cut_until_ms.clear()
        limit_ms = scheduler.now_ms + SETTLING_MS
        while not self.failures and (why := self._unwritten() or unfinished()):
            if scheduler.now_ms >= limit_ms:
                raise InvariantViolationError(f"{SETTLING_MS // 1000} s after the storm: {why}")
            scheduler.run_until(scheduler.now_ms + 200)
        if self.failures:
            raise self.failures[0]

    def _unwritten(self) -> str:
        if not self._has_written:
            return "not all is written"
        is_up = self.broker.is_up and all(site.client is not None for site in self.sites)
        return "" if is_up else "not everybody is up"

    def _write(self) -> None:
        producer = Producer(
            self.network.cluster(self.writer),
            client_id="writer",
            request_timeout_ms=REQUEST_MS,
            metadata_max_age_ms=2_000,
            delivery_timeout_ms=SETTLING_MS,
            background_sender=False,
            clock=self.scheduler.clock,
            threads=SimThreads(self.writer),
        )
        pause = SimThreads(self.writer).signal()
        topics = [Topic(name, key=bytes, value=bytes) for name in self.topics]
        for number in range(RECORDS):
            producer.poll(0)
            pause.wait(STORM_MS // RECORDS)
            producer.send(topics[number % 2], b"%d" % number, key=b"%d" % number, timestamp_ms=number)
        producer.flush(SETTLING_MS)
        self._has_written = True

    # --- faults -----------------------------------------------------------------------------

    def _draw(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(4, 12)):
            kind = rng.choices(list(self.weights), list(self.weights.values()))[0]
            site, lasts_ms = rng.choice(self.sites), rng.randint(50, 9_000)
            at_ms = rng.randrange(500, STORM_MS - 500)
            self.scheduler.at(at_ms, lambda args=(kind, site, lasts_ms): self._apply(*args))

    def _apply(self, kind: str, site: Site[Any], lasts_ms: int) -> None:
        now_ms, scheduler = self.scheduler.now_ms, self.scheduler
        self.log("fault", f"{kind} {site.name} {lasts_ms}")
        self.faults[kind] += 1
        match kind:
            case "crash":
                site.crash()
                scheduler.after(lasts_ms, site.start)
            case "leave":
                site.is_leaving = True
            case "stall" if site.process is not None:
                site.process.stalled_until_ms = max(site.process.stalled_until_ms, now_ms + lasts_ms)
            case "cut":
                self.network.cut_until_ms[site.name] = now_ms + lasts_ms
            case "reset":
                self.network.reset(site.name)
            case "silence":
                self.network.silence(site.name)
            case "broker" | "host" if self.broker.is_up:
                self.broker.crash()
                self.network.server_died(is_silent=kind == "host")
                scheduler.after(lasts_ms // 2, self.broker.restart)
            case "coordinators":
                self.nodes.move_coordinators(now_ms + lasts_ms // 2)
            case "leaders":
                self.nodes.move_leaders(now_ms + lasts_ms // 2)
            case _:
                self.apply_own(kind)
