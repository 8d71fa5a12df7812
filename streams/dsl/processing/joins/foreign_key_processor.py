"""Foreign-key joins of tables: each left row subscribes to the right row that it references (KIP-213).

left table -> SubscriptionSend -> topic -> SubscriptionReceive -> SubscriptionJoin -> topic -> ResponseJoin
right table -> ForeignTableJoin ---------------------------------------------------^

A subscription carries an instruction and a hash of the left value.  Every change of the right row is sent as a response
to all its subscribers, in the order of their key bytes.  A response whose hash differs from the hash of the current
left row is stale and is dropped.  The message formats are in ``subscriptions``.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from attrs import frozen

from streams.core.blocks.murmur3 import hash128
from streams.core.blocks.records import Headers
from streams.core.metrics import DropReason
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.joins.getters import TableValues
from streams.dsl.processing.joins.joining import two_value_joiner
from streams.dsl.processing.joins.subscriptions import (
    ForeignKeySubscription,
    Instruction,
    SubscriptionResponse,
    subscriber_key,
    subscriber_prefix,
)
from streams.topology import Lost, NodeContext, Process, StoreNaming


def _hash_of(serde: Serde[Any]) -> Callable[[Any], bytes | None]:
    """Return a function that hashes a value's serialized bytes; for None it returns None."""
    serialize = serde.serialize

    def hash_of(value: Any) -> bytes | None:
        if value is None:
            return None
        data = serialize(value)
        return None if data is None else hash128(data)

    return hash_of


#: Returns the subscriptions that a change leads to, as foreign keys and instructions: (key, new, old, time, headers).
_Plan: TypeAlias = Callable[[Any, Any, Any, int, Headers | None], list[tuple[Any, Instruction]]]


@frozen
class SubscriptionSend:
    """Turns changes of the left table into subscriptions, keyed by ``foreign_key(key, value)``.

    ``value_serde`` serializes left values for the hash.  With ``is_versioned``, the left table is versioned, and
    its late records are dropped (KIP-914).  The left table must send old values.
    """

    foreign_key: Callable[[Any, Any], Any]
    foreign_key_serde: Serde[Any]
    value_serde: Serde[Any]
    is_left: bool = False
    is_versioned: bool = False

    def bind(self, context: NodeContext) -> Process:
        hash_of = _hash_of(self.value_serde)
        is_versioned = self.is_versioned
        drop = dropper(context)
        forward = context.output.forward
        plan = self._plan_left() if self.is_left else self._plan_inner(drop)
        origin_of = context.output.current.metadata
        task_partition = context.task_id.partition

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new, old, is_latest = change
            if is_versioned and not is_latest:
                drop(DropReason.OUT_OF_ORDER, key, new, timestamp_ms, headers)
                return
            steps = plan(key, new, old, timestamp_ms, headers)
            if not steps:
                return
            value_hash = hash_of(new)
            origin = origin_of()
            partition = task_partition if origin is None else origin.partition
            for foreign_key, instruction in steps:
                forward(
                    foreign_key, ForeignKeySubscription(value_hash, instruction, key, partition), timestamp_ms, headers
                )

        return process

    def _has_changed(self) -> Callable[[Any, Any], bool]:
        """Return a function that compares foreign keys by their serialized bytes."""
        serialize = self.foreign_key_serde.serialize
        return lambda new, old: serialize(new) != serialize(old)

    def _plan_left(self) -> _Plan:
        """Return the function that plans the subscriptions of a left join.

        Every change of the left table requests a response, even without a right row.
        """
        extract = self.foreign_key
        has_changed = self._has_changed()

        def plan(key: Any, new: Any, old: Any, _: int, __: Headers | None) -> list[tuple[Any, Instruction]]:
            if new is None and old is None:
                return []
            old_key = None if old is None else extract(key, old)
            new_key = None if new is None else extract(key, new)
            subscribe = (new_key, Instruction.PROPAGATE_NULL_IF_NONE)
            if old_key is not None and has_changed(new_key, old_key):
                return [(old_key, Instruction.DELETE), subscribe]
            return [subscribe]

        return plan

    def _plan_inner(self, drop: Lost) -> _Plan:
        """Return the function that plans the subscriptions of an inner join.

        A response is requested only if the result may change.
        """
        extract = self.foreign_key
        has_changed = self._has_changed()

        def plan(
            key: Any, new: Any, old: Any, timestamp_ms: int, headers: Headers | None
        ) -> list[tuple[Any, Instruction]]:
            old_key = None if old is None else extract(key, old)
            new_key = None if new is None else extract(key, new)
            if new is not None and new_key is None:
                drop(DropReason.NULL_FOREIGN_KEY, key, new, timestamp_ms, headers)
            if new_key is None:
                # The response deletes the result that may exist.
                return [] if old_key is None else [(old_key, Instruction.DELETE_AND_PROPAGATE)]
            if old_key is not None and has_changed(new_key, old_key):
                return [(old_key, Instruction.DELETE), (new_key, Instruction.PROPAGATE_NULL_IF_NONE)]
            return [(new_key, Instruction.PROPAGATE_IF_ANY)]

        return plan


@frozen
class SubscriptionReceive:
    """Stores subscriptions in the task of the right table and forwards them to the join."""

    store_naming: ClassVar = StoreNaming("name", ("-subscription-store",))

    store: str
    key_serde: Serde[Any]
    foreign_key_serde: Serde[Any]

    def bind(self, context: NodeContext) -> Process:
        put = context.stores[self.store].put_pair
        drop = context.metrics.drop
        forward = context.output.forward
        place_of = subscriber_key(self.foreign_key_serde, self.key_serde)

        def process(key: Any, value: ForeignKeySubscription, timestamp_ms: int, headers: Headers | None) -> None:
            instruction = value.instruction
            if key is not None:
                is_end = instruction in (Instruction.DELETE, Instruction.DELETE_AND_PROPAGATE)
                put(place_of(key, value.key), None if is_end else value, timestamp_ms)
            elif instruction is not Instruction.PROPAGATE_NULL_IF_NONE:
                drop(DropReason.NULL_FOREIGN_KEY)
                return
            forward(key, value, timestamp_ms, headers)

        return process


@frozen
class SubscriptionJoin:
    """Responds to subscriptions with the current right row; ``table`` is the lookup for the right table."""

    table: TableValues

    def bind(self, context: NodeContext) -> Process:
        lookup = self.table.getter(context)
        forward = context.output.forward

        def process(key: Any, value: ForeignKeySubscription, timestamp_ms: int, headers: Headers | None) -> None:
            instruction = value.instruction
            if instruction is Instruction.DELETE:
                return
            row = None if key is None else lookup(key)
            if row is None:
                if instruction is Instruction.PROPAGATE_IF_ANY:
                    return
                answer = None
            else:
                answer = None if instruction is Instruction.DELETE_AND_PROPAGATE else row[0]
                timestamp_ms = max(timestamp_ms, row[1])
            forward(value.key, SubscriptionResponse(value.value_hash, answer, value.partition), timestamp_ms, headers)

        return process


@frozen
class ForeignTableJoin:
    """Sends each change of a right row to all subscribers of the row, in the order of their key bytes.

    With ``is_versioned``, the right table is versioned, and its late records are dropped (KIP-914).
    """

    store: str
    key_serde: Serde[Any]
    foreign_key_serde: Serde[Any]
    is_versioned: bool = False

    def bind(self, context: NodeContext) -> Process:
        scan = context.stores[self.store].prefix_scan
        drop = context.metrics.drop
        forward = context.output.forward
        prefix_of = subscriber_prefix(self.foreign_key_serde)
        is_versioned = self.is_versioned

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                drop(DropReason.NULL_KEY)
                return
            if is_versioned and not change[2]:
                drop(DropReason.OUT_OF_ORDER)
                return
            for _, row in scan(prefix_of(key)):
                value = row[0]
                forward(
                    value.key, SubscriptionResponse(value.value_hash, change[0], value.partition), timestamp_ms, headers
                )

        return process


@frozen
class ResponseJoin:
    """Joins responses with the current left row, and forwards the results as upserts to a ``TableSource``.

    ``table`` looks up rows of the left table. ``value_serde`` serializes their values, to compare hashes.
    """

    table: TableValues
    value_serde: Serde[Any]
    joiner: Callable[..., Any]
    with_key: bool
    is_left: bool = False

    def bind(self, context: NodeContext) -> Process:
        lookup = self.table.getter(context)
        drop = context.metrics.drop
        forward = context.output.forward
        hash_of = _hash_of(self.value_serde)
        is_left = self.is_left
        join = two_value_joiner(self.joiner, self.with_key)

        def process(key: Any, value: SubscriptionResponse, timestamp_ms: int, headers: Headers | None) -> None:
            row = lookup(key)
            left = None if row is None else row[0]
            if hash_of(left) != value.value_hash:
                drop(DropReason.SUPERSEDED)
                return
            right = value.value
            result = None if right is None and (not is_left or left is None) else join(key, left, right)
            forward(key, result, timestamp_ms, headers)

        return process
