"""Calls to async functions, and the forwarding of their results; the order per key is that of FLIP-519."""

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from attrs import define, field, frozen

from streams.core.blocks.records import Headers
from streams.core.concurrency.calls import BlockingLoop, Call, CallGate, CallLoop, CallPlan
from streams.core.errors import StreamsError
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.in_flight import CallSensors, RecordsInFlight, lane_of
from streams.topology import HeldRecord, HeldState, NodeContext, Process, StoreNaming


@frozen
class AsyncMap:
    """Replaces the value with the result of an async function or, with ``is_flat``, the record with key-value pairs."""

    store_naming: ClassVar = StoreNaming("name", ("-calls",))

    store: str
    key_serde: Serde[Any]
    plan: CallPlan
    is_flat: bool = False

    @property
    def options(self) -> dict[str, int | str]:
        """The declared limits and order of calls."""
        return self.plan.options

    @property
    def periods(self) -> dict[str, int]:
        """The declared timeout of a call, in milliseconds."""
        return self.plan.periods

    def bind(self, context: NodeContext) -> Process:
        loop = context.calls.loop()
        gate = loop.gate(context.node, self.plan)
        node = _AsyncNode(self, context, RecordsInFlight(context, context.stores[self.store]), loop, gate)
        context.calls.add(node)
        return node.open()


@define(eq=False)
class _AsyncNode:
    """The async calls of one node in one task; implements ``topology.CallingNode``."""

    operator: AsyncMap
    context: NodeContext
    records: RecordsInFlight
    loop: CallLoop
    gate: CallGate
    #: Finished calls whose results have not been taken, in the order in which they finished; the event loop appends.
    done: deque[Call] = field(factory=deque)
    is_closed: bool = False
    #: All records whose results are not forwarded yet, by sequence number.
    held: dict[int, Call] = field(init=False)
    _new: list[Call] = field(factory=list)
    #: Finished calls whose results can be forwarded now.
    _ready: deque[Call] = field(factory=deque)
    #: With order "partition": the calls of each partition, in the order of their records.
    _lanes: dict[Any, deque[Call]] = field(factory=dict)
    _sensors: CallSensors = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.held = self.records.held
        self._sensors = CallSensors.of(self.context.metrics)

    def open(self) -> Process:
        """Return the process function of the node."""
        context, operator, held, records = self.context, self.operator, self.held, self.records
        lane_for = lane_of(operator.plan.order, operator.key_serde)
        origin_of = context.output.current.metadata
        raw_of = context.calls.raw_record
        submit = self._submit
        is_blocking = isinstance(self.loop, BlockingLoop)
        concurrency = operator.plan.concurrency

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            origin = origin_of()
            # Nodes that share the record may change its headers later (``topology.shared_headers``).
            call_headers = tuple(headers) if headers else None
            records.sequence = number = records.sequence + 1
            lane = lane_for(key, origin)
            submit(Call(number, key, value, timestamp_ms, call_headers, origin, self, raw_of(), lane))
            if is_blocking and len(held) >= concurrency:
                self.finish()

        def load() -> None:
            for call in records.load(self, lane_for):
                submit(call)

        context.on_init(load)
        return process

    @property
    def room(self) -> int:
        return self.records.room(self.operator.plan.concurrency)

    def hand_over(self) -> None:
        """Submit the calls for new records to the call loop, in one batch."""
        if self._new:
            calls = self._new
            self._new = []
            self.loop.submit(self.gate, calls)

    def forward(self, limit: int) -> int:
        ready, lanes = self._ready, self._lanes
        # The event loop may append further calls at the same time.
        done = [self.done.popleft() for _ in range(len(self.done))]
        self._sensors.note(done)
        for call in done:
            if self.operator.plan.order != "partition":
                ready.append(call)
                continue
            lane = lanes[call.lane]
            while lane and lane[0].is_done:
                ready.append(lane.popleft())
        count = min(limit, len(ready))
        for _ in range(count):
            self._forward(ready.popleft())
        return count

    def finish(self) -> None:
        """Wait for all calls to finish, and forward their results in the order of the input records.

        Requires a blocking loop.
        """
        assert isinstance(self.loop, BlockingLoop)
        while self.held:
            self.hand_over()
            try:
                self.loop.finish(lambda: len(self.done) == len(self.held))
            except StreamsError as error:
                stuck = next(call for call in self.held.values() if not call.is_done)
                raise self.records.failure(stuck, str(error)) from error
            self._sensors.note(self.done)
            self.done.clear()
            self._lanes.clear()
            for call in list(self.held.values()):
                self._forward(call)

    def save(self) -> None:
        """Store the records whose calls are in flight, as part of a commit.

        New calls are submitted first: ``is_stored`` of a call that is being submitted then means that the call is
        repeated after a restart.
        """
        self.hand_over()
        self.records.save()

    def close(self) -> None:
        self.is_closed = True
        self.loop.cancel(self.gate, self)

    @property
    def name(self) -> str:
        return self.context.node

    @property
    def in_flight(self) -> int:
        return sum(call.started_s is not None and not call.is_done for call in list(self.held.values()))

    def delivered(self) -> Sequence[HeldRecord]:
        return self.records.delivered()

    def waiting(self) -> Sequence[HeldRecord]:
        """Return the records that wait for their results; may be called by any thread."""
        result = []
        for call, behind in self.records.by_lane():
            if call.is_done:
                is_behind = behind is not None and self.operator.plan.order == "partition"
                state = HeldState.BEHIND_RESULT if is_behind else HeldState.DONE
            elif call.started_s is not None:
                state = HeldState.IN_FLIGHT
            else:
                is_behind = behind is not None and self.operator.plan.order == "key"
                state = HeldState.BEHIND_CALL if is_behind else HeldState.QUEUED
            took_ms = round(call.took_s * 1000) if call.is_done else self.gate.age_ms(call)
            origin = None if behind is None else behind.origin
            result.append(HeldRecord(call.origin, call.value, state, call.attempts, took_ms, behind=origin))
        return result

    def _submit(self, call: Call) -> None:
        self.held[call.sequence] = call
        self._new.append(call)
        if self.operator.plan.order == "partition":
            self._lanes.setdefault(call.lane, deque()).append(call)

    def _forward(self, call: Call) -> None:
        context = self.context
        key = call.key
        timestamp_ms = call.timestamp_ms
        headers = call.headers

        def send() -> None:
            if call.error is not None:
                context.calls.fail(call.error, key, call.value, timestamp_ms, headers)
            elif self.operator.is_flat:
                for new_key, new_value in call.result:
                    context.output.forward(new_key, new_value, timestamp_ms, headers)
            else:
                context.output.forward(key, call.result, timestamp_ms, headers)

        self.records.forward(call, send)
