"""The topic ``_schemas`` of the embedded broker, as the log of a schema registry."""

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from streams.broker.registry.schema_records import TOPIC, Record
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import Clock

PARTITION = TopicPartition(TOPIC, 0)
#: The newest record of each key stays.
CONFIG = {"cleanup.policy": "compact"}


class _Log(Protocol):
    """The methods of the broker that the schema log uses."""

    def append(self, partition: TopicPartition, block: Block) -> int: ...

    def read(self, partition: TopicPartition, offset: int) -> list[Block]: ...


@frozen
class SchemaTopic:
    """Records of ``_schemas``, which has one partition."""

    _broker: _Log
    _clock: Clock

    def append(self, record: Record) -> None:
        key, value = record
        self._broker.append(PARTITION, Block([key], [value], [self._clock.now_ms()]))

    def since(self, offset: int) -> tuple[Sequence[Record], int]:
        records: list[Record] = []
        while blocks := self._broker.read(PARTITION, offset):
            for block in blocks:
                records += [
                    (key, value) for key, value in zip(block.keys, block.values, strict=True) if key is not None
                ]
            offset = blocks[-1].offsets[-1] + 1
        return records, offset
