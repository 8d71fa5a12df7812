"""A simulated world: brokers, machines and a producer, with a phase with faults and then one without.

The seed determines all events.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from itertools import cycle
from random import Random
from typing import Any

from streams.broker import Broker
from streams.core.blocks.records import TopicPartition
from streams.core.settings.config import StreamsConfig
from streams.dsl import build_topology
from streams.group import CoordinatorConfig
from streams.protocol.request import Request, Response
from streams.testing.histories import Anomaly, check_history
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.cluster import SimNodes
from streams.testing.simulation.conditions import Conditions, Scenario, divided, tagged
from streams.testing.simulation.disk import SimDisk
from streams.testing.simulation.faults import AT_REQUEST_MS, BROKER_FAULTS, Fault
from streams.testing.simulation.network import SimNetwork
from streams.testing.simulation.outcome import Expectation, Outcome, collect
from streams.testing.simulation.processes import SESSION_MS, Machine
from streams.testing.simulation.recorder import HistoryRecorder
from streams.testing.simulation.report import Counters, EventLog, InvariantViolationError, Verdict
from streams.testing.simulation.scheduler import Scheduler
from streams.testing.simulation.states import StateWatch
from streams.testing.simulation.watch import Watch
from streams.testing.simulation.writer import InputWriter
from streams.topology import Topology, sub_topologies

#: One record in a log: key, value, timestamp and headers.
LoggedRecord = tuple[bytes | None, bytes | None, int, Any]

_APPLICATION = "sim"
#: The application id with a hyphen, which is the prefix of internal topics.
_OWN = f"{_APPLICATION}-"
#: Maximum time in milliseconds, after the faults have stopped, until the group is stable and all records are processed.
_SETTLING_MS = 180_000
#: Length in bytes of the sequence number at the end of a key that distinguishes its duplicates.
_SEQUENCE_BYTES = 4
#: Probability that a request in a restore triggers a fault that is to occur there.
_IN_RESTORE = 0.1
#: Interval in milliseconds of the checks whether all work is complete.
_LOOK_MS = 200

#: Timeouts in a world, short enough that faults may exceed them.
_TIMES: Mapping[str, Any] = {
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 1_000,
    "max_poll_interval_ms": 15_000,
    "request_timeout_ms": 2_000,
    "max_block_ms": 4_000,
    "delivery_timeout_ms": 8_000,
    "metadata_max_age_ms": 2_000,
    "fetch_max_wait_ms": 1_000,
    "poll_ms": 1_000,
    "transaction_timeout_ms": 5_000,
    "probing_rebalance_interval_ms": 60_000,
    "task_timeout_ms": 600_000,
}


class World:
    """One simulated world, which can be run once."""

    def __init__(self, seed: int, scenario: Scenario, conditions: Conditions) -> None:
        self.seed = seed
        self.scenario = scenario
        self.conditions = conditions
        self.counters = Counters()
        self.history = EventLog()
        self.scheduler = Scheduler()
        self.recorder = HistoryRecorder()
        self.states = StateWatch()
        merged = dict(_TIMES) | dict(conditions.settings) | dict(scenario.settings)
        settings, group_config = divided(merged, conditions.assignment_interval_ms)
        self._connect(group_config)
        settings |= {
            "application_id": _APPLICATION,
            "processing_guarantee": "exactly_once_v2" if scenario.is_exactly_once else "at_least_once",
        }
        config = StreamsConfig.of(**tagged(settings, 1))
        self.topology: Topology = build_topology(scenario.topology, config)
        subs = [sub for sub in sub_topologies(self.topology, scenario.partitions) if not sub.is_global]
        self._watch({sub.id for sub in subs if sub.stores}, config)
        self.machines = dict(self._new_machines(settings))
        self._sinks = sorted({topic for sub in subs for topic in sub.sink_topics} - set(self.topology.internal_topics))
        self._stores = {
            name: _SEQUENCE_BYTES if spec.retain_duplicates else 0
            for name, spec in sorted(self.topology.stores.items())
            if spec.has_changelog and not spec.is_cache
        }
        self.writer = InputWriter(scenario, conditions, self.network)
        #: Faults that are triggered by a request of their machine.
        self._armed: list[Fault] = []

    def _connect(self, group_config: CoordinatorConfig) -> None:
        """Create the brokers and the network."""
        seed, conditions = self.seed, self.conditions
        self.broker = SimBroker(self.scheduler, Random(f"broker {seed}"), group_config)
        self.broker.group_id = _APPLICATION
        self.broker.create(self.scenario.partitions)
        self.nodes = SimNodes(
            self.scheduler,
            self.broker,
            Random(f"nodes {seed}"),
            self.counters,
            conditions.brokers,
            conditions.metadata_lag_ms,
            conditions.markers_ms,
            conditions.has_second_version,
            conditions.fetched_records,
        )
        self.network = SimNetwork(
            self.scheduler,
            self.nodes,
            Random(f"network {seed}"),
            conditions.weather,
            self.counters,
            _TIMES["request_timeout_ms"],
            conditions.max_idle_ms,
        )

    def _watch(self, stateful: Set[int], config: StreamsConfig) -> None:
        """Check the invariants at each event; ``stateful`` are the sub-topologies with stores."""
        tags = config.assignment_tags
        self.watch = Watch(self.broker, _APPLICATION, self.counters, self._log_event, frozenset(stateful), tags)
        self.broker.on_answer = self.watch.on_answer
        self.broker.on_change = self.watch.on_change
        self.broker.on_eviction = self.watch.on_eviction
        self.network.on_late = self.watch.on_late
        self.network.on_send = self._on_send
        self.network.on_received = self._on_received

    def _new_machines(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, Machine]]:
        """Yield the machines by name."""
        conditions = self.conditions
        names = [f"m{number}" for number in range(1, conditions.machines + 1)]
        for name, value in zip(names, cycle(conditions.tag_values)):
            yield (
                name,
                Machine(
                    name,
                    self.scheduler,
                    self.network,
                    SimDisk(name, Random(f"disk {self.seed} {name}"), is_kept=name not in conditions.without_disk),
                    self.scenario.topology,
                    tagged(settings, value),
                    self.counters,
                    self._log_event,
                    seed=self.seed,
                    paces_ms=conditions.paces_ms,
                    max_request_bytes=conditions.max_request_bytes,
                    is_static=name in conditions.static,
                    on_settled=self.watch.on_settled,
                    states=self.states,
                    on_client=self.recorder.watch,
                ),
            )

    def run(self) -> tuple[Outcome, str | None]:
        """Run the world; return its outcome, and the violated invariant, or None if there is none."""
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            return self._run()
        except InvariantViolationError as violation:
            return Outcome(), str(violation)
        finally:
            for machine in self.machines.values():
                machine.end()
            logging.disable(before)

    def records(self) -> dict[TopicPartition, list[LoggedRecord]]:
        """Return the records that the application has written: output topics first, then internal topics."""
        internal = sorted(name for name in self.broker.machine.topics.by_name if name.startswith(_OWN))
        return {
            partition: [
                (key, value, time_ms, headers)
                for block in self.broker.read(partition, committed_only=self.scenario.is_exactly_once)
                for _, key, value, time_ms, headers in block.rows()
            ]
            for name in (*self._outputs(), *internal)
            for partition in (
                TopicPartition(name, number) for number in range(len(self.broker.machine.topics.by_name[name].logs))
            )
        }

    def verdict(self, expectation: Expectation | None) -> Verdict:
        """Run the world, and compare its outcome with the expected one, if given."""
        outcome, violation = self.run()
        self._sum_up()
        if violation is None and expectation is not None:
            if self.scenario.is_exactly_once:
                violation = expectation.violation_of_exactly_once(outcome)
            else:
                violation = expectation.violation_of_at_least_once(outcome, self.counters.reprocessed)
        return Verdict(
            self.seed,
            self.counters,
            self.scheduler.now_ms,
            len(self.scenario.rows),
            self.digest(outcome),
            () if expectation is None else expectation.order_dependent(),
            violation,
            tuple(self.history.last()),
        )

    def digest(self, outcome: Outcome) -> str:
        """Return a digest of all events and results."""
        told = hashlib.sha256("\n".join(self.history.lines).encode())
        for place in sorted(outcome.finals, key=str):
            for key, value in sorted(outcome.finals[place].items(), key=lambda item: item[0] or b""):
                told.update(repr((str(place), key, value)).encode())
        return told.hexdigest()[:16]

    # --- events -----------------------------------------------------------------------------

    def _run(self) -> tuple[Outcome, str | None]:
        scheduler = self.scheduler
        storm_ms = self.scenario.storm_ms
        self.writer.start(2 * _SETTLING_MS)
        while self.scenario.is_backlog and not self.writer.has_written:
            scheduler.run_until(scheduler.now_ms + _LOOK_MS)
            self._check_failures()
        begin_ms = scheduler.now_ms
        for index, machine in enumerate(self.machines.values()):
            scheduler.at(begin_ms + index * 100, machine.start)
        for fault in self.conditions.faults:
            scheduler.at(begin_ms + fault.at_ms, lambda fault=fault: self._arm(fault))  # type: ignore[misc]
        scheduler.run_until(begin_ms + storm_ms)
        self._calm()
        self._settle()
        if self.scenario.rest_ms:
            scheduler.run_until(scheduler.now_ms + self.scenario.rest_ms)
            self._settle()
        self._check_deliveries()
        outcome = collect(
            self.broker,
            self.machines.values(),
            self._outputs(),
            self._stores,
            committed_only=self.scenario.is_exactly_once,
        )
        anomalies = self.anomalies()
        return outcome, f"history: {anomalies[0]}" if anomalies else None

    def anomalies(self) -> list[Anomaly]:
        """Return what in the history of the clients no log may do."""
        partitions = self.broker.machine.topics.logs
        logs = ((at, self.broker.read(at, committed_only=self.scenario.is_exactly_once)) for at in partitions)
        return check_history(self.recorder.history(logs), is_drained=True)

    def _settle(self) -> None:
        """Run the world until all work is complete.

        Raises:
            InvariantViolationError: an application has failed, or the work is not complete after ``_SETTLING_MS``.
        """
        scheduler = self.scheduler
        limit_ms = scheduler.now_ms + _SETTLING_MS
        while reasons := self._unfinished():
            if scheduler.now_ms >= limit_ms:
                raise InvariantViolationError(f"{_SETTLING_MS // 1000} s after the storm it is not settled: {reasons}")
            scheduler.run_until(scheduler.now_ms + _LOOK_MS)
            self._check_failures()

    def _outputs(self) -> list[str]:
        """Return the output topics: those that the topology names, and those that a sink chooses per record."""
        names = self.broker.machine.topics.by_name
        chosen = (name for name in names if name not in self.scenario.partitions and not name.startswith((_OWN, "__")))
        return sorted({*self._sinks, *chosen})

    def _arm(self, fault: Fault) -> None:
        """Apply a fault: now, or when its machine sends the request that triggers it."""
        if fault.request is None and not fault.is_in_restore:
            self._apply(fault)
            return
        self._armed.append(fault)
        if fault.request is not None:
            self.scheduler.after(AT_REQUEST_MS, lambda: self._disarm(fault))

    def _disarm(self, fault: Fault) -> None:
        """Apply a fault now if no request has triggered it yet."""
        if fault in self._armed:
            self._armed.remove(fault)
            self._apply(fault)

    def _on_send(self, name: str, request: Request) -> None:
        """Record a request, and apply the faults that it triggers: before it is sent, in flight, or later."""
        self.recorder.on_send(name, request)
        machine = self.machines.get(name)
        if machine is not None and machine.instance is not None:
            self.states.look(name, machine.instance)
        for fault in [fault for fault in self._armed if fault.target == name and self._triggers(request, fault)]:
            rng, weather = self.network.rng, self.network.weather
            # A fault that ends or suspends the calling coroutine must be a separate event.
            if fault.kind in ("cut", "silence") and rng.random() < 0.5:
                self._disarm(fault)
            else:
                self.scheduler.after(rng.randint(0, 2 * weather.delay_ms), lambda fault=fault: self._disarm(fault))  # type: ignore[misc]

    def _triggers(self, request: Request, fault: Fault) -> bool:
        """Return whether a request of a fault's machine triggers it; any request in a restore may, early or late."""
        if fault.is_in_restore:
            return self.machines[fault.target].is_restoring and self.network.rng.random() < _IN_RESTORE
        return fault.request is type(request)

    def _on_received(self, request: Request, response: Response) -> None:
        self.recorder.on_received(request, response)
        self.states.on_received(request, response)

    def _apply(self, fault: Fault) -> None:
        now_ms = self.scheduler.now_ms
        counters = self.counters
        until_ms = now_ms + fault.value
        self._log_event("fault", str(fault).partition(": ")[2])
        if fault.kind in BROKER_FAULTS:
            self._apply_to_brokers(fault, until_ms)
            return
        machine = self.machines[fault.target]
        match fault.kind:
            case "crash":
                self.states.note("crash with an open transaction", count=self.recorder.open_transactions(machine.name))
                self.recorder.on_crash(machine.name)
                counters.crashes += machine.crash()
                self.scheduler.at(until_ms, machine.start)
            case "restart":
                counters.clean_restarts += machine.stop(lambda: self.scheduler.at(until_ms, machine.start))
            case "stall":
                counters.stalls += machine.stall(until_ms)
            case "cut":
                self.network.cut_until_ms[fault.target] = until_ms
                counters.cuts += 1
            case "reset":
                self.network.reset(fault.target)
            case "silence":
                self.network.silence(fault.target)
            case "pause":
                counters.pauses += machine.do(lambda instance: instance.pause())
                self.scheduler.at(until_ms, lambda: self._resume(machine))
            case "add_thread":
                counters.added_threads += machine.do(lambda instance: instance.add_thread())
            case "remove_thread":
                instance = machine.instance
                if instance is not None and len(instance.stream_threads) > 1:
                    counters.removed_threads += machine.do(lambda instance: instance.remove_thread())

    def _apply_to_brokers(self, fault: Fault, until_ms: int) -> None:
        match fault.kind:
            case "broker_restart" | "broker_host_restart" if self.broker.is_up:
                self.states.note("brokers down with an open transaction", count=self.recorder.open_transactions())
                self.broker.crash()
                self.network.server_died(is_silent=fault.kind == "broker_host_restart")
                self.counters.broker_restarts += 1
                self.scheduler.at(until_ms, self.broker.restart)
            case "move_leaders":
                self.nodes.move_leaders(until_ms)
            case "move_coordinators":
                self.nodes.move_coordinators(until_ms)
            case "add_partitions":
                topics = self.broker.machine.topics
                topics.add_partitions(fault.target, 2 * len(topics.by_name[fault.target].logs))
                self.counters.added_partitions += 1

    @staticmethod
    def _resume(machine: Machine) -> None:
        machine.do(lambda instance: instance.resume())

    def _calm(self) -> None:
        """End the phase with faults: pending restarts still happen, but no new faults."""
        self._log_event("world", "the storm is over")
        self.conditions.weather.calm()
        self.network.cut_until_ms.clear()
        self._armed.clear()

    # --- invariants ---------------------------------------------------------------------------

    def _check_failures(self) -> None:
        failure = self.writer.failure
        if failure is not None:
            raise InvariantViolationError(f"writer: {type(failure).__name__}: {failure}") from failure
        for machine in self.machines.values():
            if machine.failures:
                error = machine.failures[0]
                raise InvariantViolationError(f"{machine.name}: {type(error).__name__}: {error}") from error

    def _unfinished(self) -> str:
        """Return a description of incomplete work, or "" if all work is complete."""
        if not self.broker.is_up:
            return "the broker is down"
        if not self.writer.has_written:
            return "the writer has records to write"
        if not all(machine.is_running for machine in self.machines.values()):
            return "instances are not running: " + ", ".join(
                f"{machine.name} {machine.instance.state.value if machine.instance else 'is down'}"
                for machine in self.machines.values()
                if not machine.is_running
            )
        machine: Broker = self.broker.machine
        owners: dict[TopicPartition, int] = {}
        for owner in self.machines.values():
            for thread in owner.instance.stream_threads if owner.instance else ():
                if not thread.is_ready:
                    return f"{thread.name} is opening tasks"
            for task in owner.tasks():
                for queue in task.queues:
                    owners[queue.partition] = owners.get(queue.partition, 0) + 1
                    log = machine.topics.log(queue.partition)
                    if queue.waiting or (queue.fetched or 0) < log.high_watermark:
                        return (
                            f"task {task.task_id} of {owner.name} is at {queue.position} of {queue.partition}, "
                            f"which ends at {log.high_watermark}"
                        )
                if task.calls is not None and task.calls.in_flight:
                    return f"task {task.task_id} of {owner.name} has calls in flight"
                if task.is_dirty:
                    return f"task {task.task_id} of {owner.name} has not committed"
        for partition, log in machine.topics.logs.items():
            if log.last_stable_offset < log.high_watermark:
                return f"a transaction is open in {partition}"
            is_read = partition.topic in self._read_topics()
            if is_read and owners.get(partition, 0) != 1:
                return f"{partition} has {owners.get(partition, 0)} owners"
        return ""

    def _read_topics(self) -> set[str]:
        internal = {f"{_APPLICATION}-{name}" for name in self.topology.internal_topics}
        sources = {row[0].name for row in self.scenario.rows}
        globals_ = {topic for item in self.topology.global_stores.values() for topic in item.source.topics}
        return (internal | sources) - globals_

    def _check_deliveries(self) -> None:
        """Check that the writer has got its acknowledgements, and that nobody else writes to the inputs.

        Raises:
            InvariantViolationError: a record failed, was never acknowledged, or was not sent by the writer.
        """
        counts: Counter[TopicPartition] = Counter()
        for (topic, key, *_), delivery in self.writer.deliveries:
            error = delivery.exception() if delivery.done() else "it was never acknowledged"
            if error is not None:
                raise InvariantViolationError(f"the writer's record {key!r} for {topic.name} failed: {error}")
            counts[delivery.partition] += 1
        for partition, count in counts.items():
            end = self.broker.machine.topics.log(partition).high_watermark
            if partition.topic not in self._sinks and count != end:
                raise InvariantViolationError(f"{partition} has {end} records, of which {count} were sent")

    def _sum_up(self) -> None:
        metrics = [metrics for machine in self.machines.values() for metrics in machine.past]
        counters = self.counters
        counters.restores += sum(each.get("restored-tasks-total") for each in metrics)
        counters.standby_takeovers += sum(each.get("standby-takeover-total") for each in metrics)
        counters.fencings += sum(each.get("fenced-total") for each in metrics)
        processed = sum(each.get("process-total") for each in metrics)
        logs = self.broker.machine.topics.logs
        there = sum(
            sum(len(block) for block in self.broker.read(partition, committed_only=self.scenario.is_exactly_once))
            for partition in logs
            if partition.topic in self._read_topics()
        )
        counters.reprocessed += max(0, processed - there)
        self.states.note("commit whose outcome is unknown", count=self.recorder.unknown_commits)
        self.states.note("records sent again after an unknown outcome", count=self.recorder.unknown_sends)
        counters.states += self.states.counts

    def _log_event(self, who: str, what: str) -> None:
        self.history.append(self.scheduler.now_ms, who, what)
