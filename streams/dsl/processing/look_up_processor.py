"""Look-ups: each record is paired with the result of a function for its key; results are cached in a store.

A record is forwarded immediately if the cache has a usable result.  Otherwise the record waits for a call, together
with all records of its task that look up the same key.  The task caches the result of a finished call before it
forwards the waiting records, so both are part of the same commit.  A second store keeps the records that are waiting
at a commit.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from attrs import define, field, frozen

from streams.core.blocks.marks import Format, marked
from streams.core.blocks.records import Headers
from streams.core.concurrency.calls import BlockingLoop, Call, CallGate, CallLoop, CallOrder, CallPlan
from streams.core.errors import SerializationError, StreamsError
from streams.core.metrics import Counter, table
from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.core.user_code import CheckedFunction
from streams.dsl.processing.in_flight import CallSensors, RecordsInFlight, lane_of, slot_of
from streams.dsl.processing.portable import portable
from streams.state import LRU, StoreSpec
from streams.topology import HeldRecord, HeldState, NodeContext, Process, StoreNaming

log = logging.getLogger(__name__)

CACHED_ANSWER = Format("cached answer of a look-up", "L", 1)
LOOKED_UP_KEY = Format("looked-up key with its type", "K", 1)

#: A cached answer: start of its call and start of the next permitted refresh, in epoch milliseconds (0: any time), and
#: the answer (None: not found).
_Row: TypeAlias = tuple[int, int, Any]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, bytes | None]).decode
#: Returned for a key without a usable answer.
_UNKNOWN: Final[Any] = object()


@frozen
class LookUpPlan:
    """The looked-up key, the size of the cache, the times for which cached results are used, and the output order.

    ``by(key, value)`` returns the looked-up key; with None it is the key of the record.  Times are in milliseconds of
    wall-clock time.  From the start of its call, a result is fresh for ``ttl_ms``; after that, it is used and
    refreshed for ``stale_ms``.  The result "not found" is used for ``negative_ms``.  With None, a result
    never expires.  After a failed refresh, the next refresh of the key starts ``pause_ms`` later at the earliest.
    """

    by: Callable[[Any, Any], Any] | None
    max_answers: int
    ttl_ms: int | None
    stale_ms: int
    negative_ms: int | None
    pause_ms: int
    order: CallOrder

    @property
    def is_timed(self) -> bool:
        """Whether cached results have an age, because some of them expire, but not immediately."""
        return self.ttl_ms is not None or self.negative_ms not in (None, 0)


def answers_spec(
    name: str, asked: Serde[Any], answer: Serde[Any], max_entries: int, *, has_changelog: bool = True
) -> StoreSpec:
    """Return the spec of the store of cached results, given the serdes of looked-up keys and of results."""
    write_answer, read_answer = portable(answer)

    def write(row: _Row) -> bytes:
        return _encode((row[0], row[1], None if row[2] is None else write_answer(row[2])))

    def read(data: bytes, start: int) -> _Row:
        asked_ms, paused_ms, answer_data = _decode(memoryview(data)[start:])
        return asked_ms, paused_ms, None if answer_data is None else read_answer(answer_data)

    rows = marked(CACHED_ANSWER, answer.name, write, read, is_immutable=answer.is_immutable)
    if isinstance(asked, PinnedSerde):
        # Stored keys carry their type name, since a restored store has keys before the process has seen an object.
        write_key, read_key = portable(asked)
        asked = marked(
            LOOKED_UP_KEY,
            asked.name,
            lambda key: write_key(key) or b"",
            lambda data, start: read_key(data[start:]),
            is_immutable=False,
        )
    return StoreSpec(
        name, LRU, asked, rows, has_caching=False, has_changelog=has_changelog, max_entries=max_entries, is_cache=True
    )


@frozen
class LookUp:
    """Replaces the value with the pair of the value and the result of a function for the looked-up key."""

    store_naming: ClassVar = StoreNaming("name", ("-calls", "-answers"))

    store: str
    answers: str
    key_serde: Serde[Any]
    asked_serde: Serde[Any]
    calls: CallPlan
    plan: LookUpPlan

    @property
    def periods(self) -> dict[str, int]:
        """The timeout of a call and the times for which cached results are used, in milliseconds, if limited."""
        plan = self.plan
        times = {"answer_ttl": plan.ttl_ms, "stale": plan.stale_ms or None, "negative": plan.negative_ms}
        return self.calls.periods | {name: time_ms for name, time_ms in times.items() if time_ms is not None}

    @property
    def options(self) -> dict[str, int | str]:
        """The declared limits and order of calls, and the maximum number of cached results."""
        return {**self.calls.options, "order": self.plan.order, "cache": self.plan.max_answers}

    def bind(self, context: NodeContext) -> Process:
        loop = context.calls.loop()
        gate = loop.gate(context.node, self.calls)
        clock = context.clock.running() if self.plan.is_timed else None
        node = _LookUpNode(self, context, RecordsInFlight(context, context.stores[self.store]), loop, gate, clock)
        context.calls.add(node)
        return node.open()


@define(eq=False)
class _LookUpNode:
    """The look-ups of one node in one task; implements ``topology.CallingNode``."""

    operator: LookUp
    context: NodeContext
    records: RecordsInFlight
    loop: CallLoop
    gate: CallGate
    #: Returns the wall-clock time in epoch milliseconds; None if the age of answers is not needed.
    clock: Callable[[], int] | None
    #: Finished calls whose answers have not been taken, in the order in which they finished; the event loop appends.
    done: deque[Call] = field(factory=deque)
    is_closed: bool = False
    #: All records that wait for an answer or for earlier records of their lane, by sequence number.
    held: dict[int, Call] = field(init=False)
    #: The look-ups in flight by looked-up key: each is a call, and the records that wait for its answer.
    _look_ups: dict[Any, tuple[Call, list[Call]]] = field(factory=dict)
    _new: list[Call] = field(factory=list)
    #: Records with an answer that can be forwarded now.
    _ready: deque[Call] = field(factory=deque)
    #: The waiting records of each lane, in their order.
    _lanes: dict[Any, deque[Call]] = field(factory=dict)
    #: On a blocking loop, the records whose look-up has not started, with their looked-up keys.
    _not_started: list[tuple[Call, Any]] = field(factory=list)
    _cache: Any = field(init=False)
    _slot: Callable[[Any], Any] = field(init=False)
    _by: Callable[[Any, Any], Any] = field(init=False)
    #: Returns the usable answer for a looked-up key, or ``_UNKNOWN``; starts a refresh of a stale one.
    _find: Callable[[Any], Any] = field(init=False)
    _refreshes: Counter = field(init=False)
    _errors: Counter = field(init=False)
    _sensors: CallSensors = field(init=False)
    #: Whether the last refresh failed.
    _is_failing: bool = False

    def __attrs_post_init__(self) -> None:
        operator, context = self.operator, self.context
        by = operator.plan.by
        self.held = self.records.held
        self._cache = context.stores[operator.answers]
        self._slot = slot_of(operator.asked_serde)
        self._by = _own_key if by is None else CheckedFunction(by, f"by= of node {context.node!r}")
        self._refreshes = context.metrics.counter(table.LOOK_UP_REFRESHES)
        self._errors = context.metrics.counter(table.LOOK_UP_ERRORS)
        self._sensors = CallSensors.of(context.metrics)
        self._find = self._finder()

    def open(self) -> Process:
        """Return the process function of the node."""
        context = self.context
        plan = self.operator.plan
        records = self.records
        lanes = self._lanes
        ready = self._ready
        lane_for = lane_of(plan.order, self.operator.key_serde)
        by = self._by
        find = self._find
        origin_of = context.output.current.metadata
        raw_of = context.calls.raw_record
        forward = context.output.forward
        add = self._add
        is_blocking = isinstance(self.loop, BlockingLoop)
        concurrency = self.operator.calls.concurrency

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            asked = by(key, value)
            answer = _UNKNOWN if is_blocking else find(asked)
            if answer is _UNKNOWN or lanes or ready:
                origin = origin_of()
                lane = lane_for(key, origin)
                if answer is _UNKNOWN or ready or lane in lanes:
                    # Nodes that share the record may change its headers later (``topology.shared_headers``).
                    call_headers = tuple(headers) if headers else None
                    records.sequence = number = records.sequence + 1
                    add(
                        Call(number, key, value, timestamp_ms, call_headers, origin, self, raw_of(), lane),
                        asked,
                        answer,
                    )
                    if is_blocking and len(records.held) >= concurrency:
                        self.finish()
                    answer = _UNKNOWN
            if answer is not _UNKNOWN:
                forward(key, (value, answer), timestamp_ms, headers)

        def load() -> None:
            for call in records.load(self, lane_for):
                asked = by(call.key, call.value)
                add(call, asked, _UNKNOWN if is_blocking else find(asked))

        context.on_init(load)
        return process

    # --- the cache ------------------------------------------------------------------------

    def _finder(self) -> Callable[[Any], Any]:
        counter = self.context.metrics.counter
        plan = self.operator.plan
        clock = self.clock
        get = self._cache.get
        hits = counter(table.LOOK_UP_HITS)
        stale_hits = counter(table.LOOK_UP_STALE_HITS)
        negative_hits = counter(table.LOOK_UP_NEGATIVE_HITS)
        misses = counter(table.LOOK_UP_MISSES)
        ttl_ms, negative_ms, stale_ms = plan.ttl_ms, plan.negative_ms, plan.stale_ms

        def find(asked: Any) -> Any:
            if asked is None:
                return None
            row = get(asked)
            if row is None:
                misses.value += 1
                return _UNKNOWN
            asked_ms, paused_ms, answer = row
            age_ms = 0 if clock is None else clock() - asked_ms
            if answer is None:
                if negative_ms is not None and age_ms >= negative_ms:
                    misses.value += 1
                    return _UNKNOWN
                negative_hits.value += 1
            elif ttl_ms is None or age_ms < ttl_ms:
                hits.value += 1
            elif age_ms < ttl_ms + stale_ms:
                stale_hits.value += 1
                if asked_ms + age_ms >= paused_ms:
                    self._refresh(asked)
            else:
                misses.value += 1
                return _UNKNOWN
            return answer

        return find

    def _now_ms(self) -> int:
        return 0 if self.clock is None else self.clock()

    def _refresh(self, asked: Any) -> None:
        if self._slot(asked) not in self._look_ups:
            self._refreshes.value += 1
            self._start(asked)

    def _start(self, asked: Any) -> list[Call]:
        """Create the call for a key, and return its list of waiting records, which is empty."""
        waiting: list[Call] = []
        slot = self._slot(asked)
        call = Call(0, slot, asked, self._now_ms(), None, None, self)
        self._look_ups[slot] = call, waiting
        self._new.append(call)
        return waiting

    def _take_answers(self) -> int:
        """Cache the results of finished calls, and pass them to the waiting records; return the number of calls."""
        # The event loop may append further calls at the same time.
        done = [self.done.popleft() for _ in range(len(self.done))]
        self._sensors.note(done)
        for look_up in done:
            _, waiting = self._look_ups.pop(look_up.key)
            if look_up.error is None:
                self._is_failing = self._is_failing and bool(waiting)
                try:
                    self._store_answer(look_up)
                except SerializationError as error:
                    look_up.error = SerializationError(
                        f"the answer for {look_up.value!r:.60} cannot be cached: {error} (answer= declares its type)"
                    )
            if look_up.error is not None:
                self._failed(look_up, is_refresh=not waiting)
            for number, call in enumerate(waiting):
                call.result = look_up.result
                call.error = look_up.error
                call.attempts = look_up.attempts
                call.took_s = look_up.took_s
                if number and look_up.error is None and look_up.result is not None:
                    # Each record has its own object, since a node downstream may modify it.
                    call.result = self._cache.get(look_up.value)[2]
                self._mark_answered(call)
        return len(done)

    def _store_answer(self, look_up: Call) -> None:
        is_kept = look_up.result is not None or self.operator.plan.negative_ms != 0
        self._cache.put(look_up.value, (look_up.timestamp_ms, 0, look_up.result) if is_kept else None)

    def _failed(self, look_up: Call, *, is_refresh: bool) -> None:
        """Count a failed call; after a failed refresh, keep the stale result and postpone its next refresh."""
        error = look_up.error
        context = self.context
        self._errors.value += 1
        if not is_refresh:
            return
        if not isinstance(error, Exception):
            assert error is not None
            context.calls.fail(error, None, None, look_up.timestamp_ms, None)
        if not self._is_failing:
            log.warning(
                "node %r: the refresh of %.60r failed: %r; its stale answer is used (said once until a success)",
                context.node,
                look_up.value,
                error,
            )
        self._is_failing = True
        row = self._cache.get(look_up.value)
        if row is not None:
            self._cache.put(look_up.value, (row[0], self._now_ms() + self.operator.plan.pause_ms, row[2]))

    # --- records that wait ----------------------------------------------------------------

    def _add(self, call: Call, asked: Any, answer: Any) -> None:
        """Hold a record until its result is known, and earlier records of its ordering group are forwarded."""
        self.held[call.sequence] = call
        if isinstance(self.loop, BlockingLoop):
            self._not_started.append((call, asked))
            return
        if call.lane is not None:
            self._lanes.setdefault(call.lane, deque()).append(call)
        self._wait(call, asked, answer)

    def _wait(self, call: Call, asked: Any, answer: Any) -> None:
        if answer is not _UNKNOWN:
            call.result = answer
            self._mark_answered(call)
            return
        look_up = self._look_ups.get(self._slot(asked))
        waiting = self._start(asked) if look_up is None else look_up[1]
        waiting.append(call)
        if call.is_stored:
            # The simulation counts the calls that are repeated after a restart.
            self._look_ups[self._slot(asked)][0].is_stored = True

    def _mark_answered(self, call: Call) -> None:
        """Mark a record's look-up as done, and find the records of its ordering group that can be forwarded now."""
        call.is_done = True
        if call.lane is None:
            self._ready.append(call)
        elif not isinstance(self.loop, BlockingLoop):
            lane = self._lanes[call.lane]
            while lane and lane[0].is_done:
                self._ready.append(lane.popleft())
            if not lane:
                del self._lanes[call.lane]

    def _forward(self, call: Call) -> None:
        context = self.context
        key = call.key
        timestamp_ms = call.timestamp_ms
        headers = call.headers

        def send() -> None:
            if call.error is None:
                context.output.forward(key, (call.value, call.result), timestamp_ms, headers)
            else:
                context.calls.fail(call.error, key, call.value, timestamp_ms, headers)

        self.records.forward(call, send)

    # --- ``topology.CallingNode`` ---------------------------------------------------------

    @property
    def name(self) -> str:
        return self.context.node

    @property
    def in_flight(self) -> int:
        look_ups = list(self._look_ups.values())
        return sum(look_up.started_s is not None and not look_up.is_done for look_up, _ in look_ups)

    def delivered(self) -> Sequence[HeldRecord]:
        return self.records.delivered()

    def waiting(self) -> Sequence[HeldRecord]:
        """Return the records that wait for a result or for earlier records; may be called by any thread."""
        look_ups = {id(call): pending for pending in list(self._look_ups.values()) for call in list(pending[1])}
        result = []
        for call, behind in self.records.by_lane():
            look_up, others = look_ups.get(id(call), (call, [call]))
            if call.is_done:
                state = HeldState.DONE if behind is None else HeldState.BEHIND_RESULT
            else:
                state = HeldState.QUEUED if look_up.started_s is None else HeldState.IN_FLIGHT
            took_ms = round(call.took_s * 1000) if call.is_done else self.gate.age_ms(look_up)
            origin = None if behind is None else behind.origin
            count = len(others)
            result.append(HeldRecord(call.origin, call.value, state, look_up.attempts, took_ms, count, origin))
        return result

    @property
    def room(self) -> int:
        return self.records.room(self.operator.calls.concurrency)

    def hand_over(self) -> None:
        """Submit new calls to the call loop, in one batch."""
        if self._new:
            calls = self._new
            self._new = []
            self.loop.submit(self.gate, calls)

    def forward(self, limit: int) -> int:
        """Take the results of finished calls, and forward at most ``limit`` records; return the sum of both numbers."""
        answers = self._take_answers()
        ready = self._ready
        count = min(limit, len(ready))
        for _ in range(count):
            self._forward(ready.popleft())
        return answers + count

    def finish(self) -> None:
        """Look up the keys of all records, wait for all calls, and forward the results in the order of the records.

        Requires a blocking loop.
        """
        assert isinstance(self.loop, BlockingLoop)
        not_started = self._not_started
        self._not_started = []
        for call, asked in not_started:
            self._wait(call, asked, self._find(asked))
        self.hand_over()
        try:
            self.loop.finish(lambda: len(self.done) == len(self._look_ups))
        except StreamsError as error:
            stuck = next((waiting[0] for look_up, waiting in self._look_ups.values() if waiting), None)
            raise self.records.failure(stuck, str(error)) from error
        self._take_answers()
        self._ready.clear()
        for call in list(self.held.values()):
            self._forward(call)

    def save(self) -> None:
        """Store the records that wait, as part of a commit."""
        self.hand_over()
        self.records.save()

    def close(self) -> None:
        self.is_closed = True
        self.loop.cancel(self.gate, self)


def _own_key(key: Any, value: Any) -> Any:
    return key
