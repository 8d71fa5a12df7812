"""The simulated broker: the production state machine in virtual time, which can crash and restart.

Acknowledged records survive a crash of the broker. Members, pending requests and timers are lost; the state is rebuilt
from the logs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from attrs import define, field

from streams.broker import HANDLERS, AssignableTopics, Broker, BrokerConfig, FetchSessions, Storages, Topics
from streams.core.blocks.records import Block, TopicPartition
from streams.group import Coordinator, CoordinatorConfig
from streams.protocol.request import Request, Response
from streams.testing.simulation.report import InvariantViolationError
from streams.testing.simulation.scheduler import Scheduler


@define(eq=False)
class SimBroker:
    """A simulated broker, which can crash, and restart with the records that were acknowledged."""

    scheduler: Scheduler
    rng: Random
    group_config: CoordinatorConfig = field(factory=CoordinatorConfig)
    machine: Broker = field(init=False)
    is_up: bool = True
    #: Called with every request and its response, in the same event.
    on_answer: Callable[[Request, Response | Exception], None] = lambda request, response: None
    #: Called after every event that may have changed the state machine.
    on_change: Callable[[], None] = lambda: None
    #: Called with the number of group members whose sessions have timed out.
    on_eviction: Callable[[int], None] = lambda count: None
    group_id: str = ""
    _life: int = 0
    #: The next deadline of the state machine, which only events of the broker change.
    _deadline_ms: int | None = None
    #: The time of the earliest event that is scheduled for a deadline.
    _armed_ms: int | None = None

    def __attrs_post_init__(self) -> None:
        self.machine = self._broker(Topics(Storages()))

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics, given by name with their partition counts."""
        for name, partitions in topics.items():
            self.machine.topics.create(name, partitions)

    def add_partitions(self, name: str, count: int) -> None:
        """Increase the partition count of a topic."""
        self.machine.topics.add_partitions(name, count)

    def serve(self, request: Request, answer: Callable[[Response | Exception], None]) -> None:
        """Handle a request; ``answer`` is called with the response, unless the broker crashes first."""
        self._act(partial(self._handle, request, answer))

    def crash(self) -> None:
        """Crash the broker: pending requests get no response, and the network closes the connections."""
        self.is_up = False
        self._life += 1

    def restart(self) -> None:
        """Restart the broker from its logs."""
        self.machine = self._broker(self.machine.topics.reopened())
        self.machine.load(self.scheduler.now_ms)
        self.is_up = True
        self._arm()

    def read(self, partition: TopicPartition, *, committed_only: bool) -> list[Block]:
        """Return the records of a partition's log, without markers; with ``committed_only``, only committed records."""
        log = self.machine.topics.log(partition)
        blocks: list[Block] = []
        offset = log.start_offset
        end = log.last_stable_offset if committed_only else log.high_watermark
        while offset < end:
            for block in log.read(offset, end - offset):
                offset = block.offsets[-1] + 1
                stamp = block.producer
                if stamp is not None and (stamp.is_control or (committed_only and log.producers.is_aborted(block))):
                    continue
                blocks.append(block)
        return blocks

    def _broker(self, topics: Topics) -> Broker:
        coordinator = Coordinator(self.group_config, Random(self.rng.getrandbits(64)), AssignableTopics(topics))
        sessions = FetchSessions(Random(self.rng.getrandbits(64)))
        config = BrokerConfig(maintenance_interval_ms=None)
        return Broker(topics, coordinator, config, handlers=HANDLERS, fetch_sessions=sessions)

    def _handle(self, request: Request, answer: Callable[[Response | Exception], None]) -> None:
        life = self._life

        def reply(response: Response | Exception) -> None:
            if self._life == life:
                self.on_answer(request, response)
                answer(response)

        try:
            self.machine.handle_remote(request, self.scheduler.now_ms, reply)
        except InvariantViolationError:
            raise
        except Exception as error:  # noqa: BLE001
            # The network closes the connection of the client.
            reply(error)

    def _act(self, action: Callable[[], None]) -> None:
        self._tick()
        action()
        self.on_change()
        self._arm()

    def _tick(self) -> None:
        if self._deadline_ms is None or self._deadline_ms > self.scheduler.now_ms:
            return
        before = self._members()
        self.machine.tick(self.scheduler.now_ms)
        lost = len(before - self._members())
        if lost:
            self.on_eviction(lost)

    def _members(self) -> set[str]:
        group = self.machine.coordinator.group(self.group_id)
        return set() if group is None else set((group.epoch_group or group).members)

    def _arm(self) -> None:
        """Schedule an event for the next deadline of the broker's state machine."""
        self._deadline_ms = deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or (self._armed_ms is not None and self._armed_ms <= deadline_ms):
            return
        self._armed_ms = deadline_ms
        life = self._life
        self.scheduler.at(deadline_ms, lambda: self._on_deadline(deadline_ms, life))

    def _on_deadline(self, deadline_ms: int, life: int) -> None:
        if self._armed_ms == deadline_ms:
            self._armed_ms = None
        if self.is_up and self._life == life:
            self._act(lambda: None)
