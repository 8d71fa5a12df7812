"""Async calls, look-ups and batches: explanations of their results, and of the records that wait for them."""

from streams.core.blocks.records import RecordMetadata
from streams.core.event_time.time_texts import time_text
from streams.core.user_code import located
from streams.dsl.processing import AsyncMap, BatchMap, LookUp
from streams.runtime import Task
from streams.topology import HeldRecord, HeldState
from streams.why.question import duration
from streams.why.trace import Step, is_from

#: Operators that hold records until a call or a batch has ended.
HOLDERS = AsyncMap | LookUp | BatchMap

#: A reason, its text and its figures.
_Reason = tuple[str, str, dict[str, int]]


def made_text(operator: AsyncMap | LookUp | BatchMap, step: Step) -> str:
    """Return a description of how the result in a step was produced."""
    held = step.ended
    if isinstance(operator, BatchMap):
        size = 1 if held is None else held.records
        return f"a result of a batch of {'1 record' if size == 1 else f'{size:,} records'}"
    if held is None or not held.attempts:
        return "a record, and the cached answer of its look-up"
    what = "a record, and the answer of its look-up" if isinstance(operator, LookUp) else "the result of a call"
    return f"{what}, which took {_call_text(held)}"


def failure_text(step: Step) -> str:
    """Return a clause about the failed call for the record of a step, or "" if no call failed."""
    held = step.ended
    if held is None or held.error is None or not held.attempts:
        return ""
    return f"; its call took {_call_text(held)}"


def _call_text(held: HeldRecord) -> str:
    return f"{held.took_ms:,} ms and {'1 attempt' if held.attempts == 1 else f'{held.attempts:,} attempts'}"


def wait_of(step: Step, operator: AsyncMap | LookUp | BatchMap, task: Task | None) -> _Reason:
    """Return the reason why the record of a step waits, or the reason that its call or batch had no result."""
    nodes = [] if task is None else [node for node in task.holding_nodes if node.name == step.node]
    for held in (held for node in nodes for held in node.waiting()):
        if task is not None and is_from(step, held) and held.value is step.value:
            return _batched(operator, held) if isinstance(operator, BatchMap) else _called(operator, held, task.now_ms)
    plan = operator.calls if isinstance(operator, LookUp) else operator.plan
    return "forwarded nothing", f"{located(plan.function)} gave no records for it", {}


def _called(operator: AsyncMap | LookUp, held: HeldRecord, now_ms: int) -> _Reason:
    calls = operator.calls if isinstance(operator, LookUp) else operator.plan
    behind = "" if held.behind is None else f", {_place(held.behind)}"
    if held.state is HeldState.IN_FLIGHT:
        since_ms = now_ms - held.took_ms
        text = f"its call has been in flight since {time_text(since_ms)}, for {duration(held.took_ms)}"
        text += f", attempt {held.attempts:,} of {calls.retries + 1:,}"
        if held.records > 1:
            text += f"; {held.records:,} records wait for its answer"
        numbers = {"since_ms": since_ms, "in_flight_ms": held.took_ms, "attempts": held.attempts}
        return "call in flight", text, numbers
    if held.state is HeldState.QUEUED:
        text = f"its call has not started: at most {calls.concurrency:,} calls run at a time (concurrency)"
        return "waiting for call", text, {"concurrency": calls.concurrency}
    if held.state is HeldState.BEHIND_CALL:
        return "waiting for call", f"its call starts when that of an earlier record of its key has ended{behind}", {}
    if held.state is HeldState.BEHIND_RESULT:
        order = operator.plan.order
        return "waiting for call", f"its result waits for that of an earlier record of its {order}{behind}", {}
    return "waiting for call", "its call has ended, and its result is forwarded next", {}


def _batched(operator: BatchMap, held: HeldRecord) -> _Reason:
    plan = operator.plan
    size = held.records
    text = f"it waits in a batch of {'1 record' if size == 1 else f'{size:,} records'}, "
    if plan.max_wait_ms is None:
        text += f"which ends with {plan.max_records:,} records, with the run of records, or with a commit"
    else:
        wait = duration(plan.max_wait_ms)
        text += f"which ends with {plan.max_records:,} records, {wait} after its first record, or with a commit"
    return "in batch", text, {"records": size, "max_records": plan.max_records}


def _place(origin: RecordMetadata) -> str:
    return f"{origin.topic}-{origin.partition} offset {origin.offset}"
