"""Re-drive of dead letters: each record of a dead letter topic is sent back to its source topic exactly once.

A separate group records which letters were re-driven: the committed offset is the first letter that was not re-driven,
and the offset metadata has the ranges of re-driven letters after it.  Records and offsets are written in one
transaction, so a re-drive that is killed between any two steps has written both or neither.  Its transactional id is
the group id, so of two concurrent re-drives the earlier one is fenced.
"""

import math
import zlib
from base64 import b85decode, b85encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from attrs import define, field, frozen

from streams.clients.admin import Admin
from streams.clients.consumer.consumer import Consumer
from streams.clients.producer.producer import Producer
from streams.clients.records import GroupMetadata
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock, SystemClock
from streams.core.dead_letters import LINE_HEADER, NODE_HEADER, Letter
from streams.core.errors import ConfigError, UnknownTopicError
from streams.core.user_code import refuse_unawaited
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.transport import Cluster

#: Suffix of the group that records which letters of a topic were re-driven.
REDRIVE_GROUP: Final = "-redrive"
#: Default maximum number of letters in a transaction.
BATCH: Final = 500
#: Kafka's default limit of the metadata of a committed offset (``offset.metadata.max.bytes``).
_METADATA_BYTES: Final = 4096
_POLL_MS: Final = 100


@define
class Redriven:
    """The dead letters of a partition that were re-driven: all offsets below ``base``, and those within ``ranges``.

    Ranges include offsets without a letter, such as the end of a transaction.
    """

    base: int
    #: First offset, and offset after the last; in order, without overlap.
    ranges: list[tuple[int, int]] = field(factory=list)

    def __contains__(self, offset: int) -> bool:
        before = bisect_right(self.ranges, (offset, math.inf)) - 1
        return offset < self.base or (before >= 0 and offset < self.ranges[before][1])

    def add(self, first: int, end: int) -> None:
        """Add the offsets from ``first`` up to ``end``, exclusive; adjacent and overlapping ranges are merged.

        >>> done = Redriven(0)
        >>> done.add(3, 5); done.add(5, 6); done.add(0, 1)
        >>> done
        Redriven(base=1, ranges=[(3, 6)])
        """
        begin = bisect_left(self.ranges, (first, first))
        if begin and self.ranges[begin - 1][1] >= first:
            begin -= 1
        stop = bisect_right(self.ranges, (end, math.inf))
        touched = self.ranges[begin:stop]
        whole = min([first, *(low for low, _ in touched)]), max([end, *(high for _, high in touched)])
        if whole[0] <= self.base:
            self.base = max(self.base, whole[1])
            self.ranges[:stop] = []
        else:
            self.ranges[begin:stop] = [whole]

    def committed(self) -> OffsetAndMetadata:
        """Return the offset and metadata to commit.

        Raises:
            ConfigError: there are too many ranges for the metadata of an offset.
        """
        numbers = []
        last = self.base
        for bounds in self.ranges:
            for offset in bounds:
                numbers.append(f"{offset - last:x}")
                last = offset
        packed = b85encode(zlib.compress(",".join(numbers).encode(), 9)).decode() if numbers else ""
        if len(packed) > _METADATA_BYTES:
            raise ConfigError(
                f"{len(self.ranges):,} ranges of re-driven letters do not fit into the metadata of an offset; re-drive "
                f"earlier letters first (from offset {self.base} on), with a filter that leaves fewer gaps"
            )
        return OffsetAndMetadata(self.base, packed)

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None, start: int) -> "Redriven":
        """Parse the committed offset and metadata of a partition; ``start`` is its log start offset."""
        if committed is None:
            return cls(start)
        result = cls(committed.offset)
        last = committed.offset
        text = zlib.decompress(b85decode(committed.metadata)).decode() if committed.metadata else ""
        bounds = []
        for number in text.split(",") if text else ():
            last += int(number, 16)
            bounds.append(last)
        result.ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
        result.add(min(start, committed.offset), max(start, committed.offset))
        return result


@frozen
class RedriveResult:
    """How many dead letters were, or would be, re-driven to each source partition, and rejected for each reason."""

    sent: Mapping[TopicPartition, int]
    refused: Mapping[str, int]
    #: Whether all selected letters were read: the call was not ended early.
    is_complete: bool = True


def _ignored(step: str) -> None:
    del step


def _never() -> bool:
    return False


@define(eq=False)
class DeadLetters:
    """The records of a dead letter topic.

    Args:
        cluster: the embedded broker, or another ``Cluster``.
        topic: the dead letter topic.
        group: the group that records which letters were re-driven; by default the topic name with ``-redrive``.
        clock: the source of time.

    Raises:
        UnknownTopicError: the topic does not exist.
    """

    cluster: Cluster
    topic: str
    group: str = ""
    clock: Clock = field(factory=SystemClock)
    _partitions: tuple[TopicPartition, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.group = self.group or self.topic + REDRIVE_GROUP
        with self._consumer() as consumer:
            self._partitions = tuple(consumer.partitions_for(self.topic))
        if not self._partitions:
            raise UnknownTopicError(
                f"there is no topic {self.topic!r}; `streams topics list` shows those that are there"
            )

    def offsets(self) -> dict[TopicPartition, range]:
        """Return the range of offsets that each partition currently has."""
        with self._consumer() as consumer:
            starts = consumer.beginning_offsets(self._partitions)
            ends = consumer.end_offsets(self._partitions)
        return {place: range(starts[place], ends[place]) for place in self._partitions}

    def letters(
        self, redriven: Mapping[TopicPartition, Redriven] | None = None, is_over: Callable[[], bool] = _never
    ) -> Iterator[Letter]:
        """Yield all dead letters up to the current end offsets, in order within each partition.

        The iteration ends early once ``is_over`` returns True.

        With ``redriven``, partitions are read from the first letter that was not re-driven.
        """
        with self._consumer() as consumer:
            starts = consumer.beginning_offsets(self._partitions)
            ends = consumer.end_offsets(self._partitions)
            if redriven is not None:
                starts |= {place: max(starts[place], done.base) for place, done in redriven.items()}
            left = {place for place in self._partitions if starts[place] < ends[place]}
            consumer.assign(left)
            for place in left:
                consumer.seek(place, starts[place])
            while left and not is_over():
                for record in consumer.poll(_POLL_MS):
                    place = TopicPartition(record.topic, record.partition)
                    if record.offset < ends[place]:
                        yield Letter(
                            place, record.offset, record.timestamp_ms, record.key, record.value, record.headers
                        )
                done = {place for place in left if (consumer.known_position(place) or 0) >= ends[place]}
                left -= done
                consumer.pause(done)

    def letter(self, partition: int, offset: int, is_over: Callable[[], bool] = _never) -> Letter | None:
        """Return the dead letter at an offset of a partition, or None if there is none, or ``is_over`` returns True."""
        place = TopicPartition(self.topic, partition)
        if place not in self._partitions:
            return None
        with self._consumer() as consumer:
            start = consumer.beginning_offsets([place])[place]
            end = consumer.end_offsets([place])[place]
            if not start <= offset < end:
                return None
            consumer.assign([place])
            consumer.seek(place, offset)
            # Another offset comes first if the one asked for has no record, such as the end of a transaction.
            while (consumer.known_position(place) or 0) < end and not is_over():
                for record in consumer.poll(_POLL_MS):
                    letter = Letter(place, offset, record.timestamp_ms, record.key, record.value, record.headers)
                    return letter if record.offset == offset else None
        return None

    def redriven(self) -> dict[TopicPartition, Redriven]:
        """Return the offsets of each partition whose dead letters were re-driven.

        The call waits for open transactions that commit offsets (KIP-447).
        """
        with self._consumer() as consumer:
            committed = consumer.committed(self._partitions)
            starts = consumer.beginning_offsets(self._partitions)
        return {place: Redriven.of(committed.get(place), starts[place]) for place in self._partitions}

    def refusal(self, max_redrives: int) -> Callable[[Letter], str]:
        """Return a function that returns why a dead letter cannot be re-driven, or "" if it can.

        A letter is rejected if its record was re-driven ``max_redrives`` times, has neither key nor value, or is a row
        of a file, or if its source is unknown or does not exist.
        """
        with Admin(self.cluster) as admin:
            counts = {topic.name: len(topic.leaders) for topic in admin.all_topics()}

        def why(letter: Letter) -> str:
            source = letter.source
            if source is not None and source.partition >= counts.get(source.topic, 0):
                return f"came from {source}, which does not exist"
            return letter.refusal(max_redrives)

        return why

    def plan(
        self,
        selected: Callable[[Letter], bool] = lambda letter: True,
        *,
        max_redrives: int = 3,
        is_over: Callable[[], bool] = _never,
    ) -> RedriveResult:
        """Return what ``redrive`` would do with the same arguments; nothing is sent.

        Reading ends early once ``is_over`` returns True.
        """
        refuse_unawaited(selected, "selected of plan", error=ConfigError)
        sent = dict[TopicPartition, int]()
        refused = dict[str, int]()
        redriven = self.redriven()
        refusal = self.refusal(max_redrives)
        for letter in self.letters(redriven, is_over):
            if letter.offset in redriven[letter.partition] or not selected(letter):
                continue
            if why := refusal(letter):
                refused[why] = refused.get(why, 0) + 1
            elif letter.source is not None:
                sent[letter.source] = sent.get(letter.source, 0) + 1
        return RedriveResult(sent, refused, not is_over())

    def redrive(
        self,
        selected: Callable[[Letter], bool] = lambda letter: True,
        *,
        max_redrives: int = 3,
        rate: int | None = None,
        batch: int = BATCH,
        on_step: Callable[[str], None] = _ignored,
        is_over: Callable[[], bool] = _never,
    ) -> RedriveResult:
        """Send each selected dead letter that was not re-driven before to its source partition.

        A re-driven record has its original key, value, timestamp and headers, and a counter in the header
        ``__streams.redrives``.  Letters that arrive during the call are left for the next one.

        Args:
            selected: whether a letter is re-driven; letters that are not selected can be re-driven later.
            max_redrives: letters whose records were re-driven this many times are rejected.
            rate: the maximum number of letters per second; unlimited by default.
            batch: the maximum number of letters in a transaction.
            on_step: called with the name of each step before it is executed.
            is_over: once it returns True, no further transaction begins; the other letters are left for the next call.

        Raises:
            ConfigError: there would be too many ranges of re-driven letters.
            ProducerFencedError: another re-drive of this group has started.
            BrokerError: a record could not be written; its transaction is aborted.
        """
        refuse_unawaited(selected, "selected of redrive", error=ConfigError)
        if max_redrives < 1 or batch < 1 or (rate is not None and rate < 1):
            raise ConfigError("redrive: max_redrives, batch and rate must be 1 or more")
        why = self.refusal(max_redrives)
        size = min(batch, rate or batch)
        with Producer(self.cluster, transactional_id=self.group, client_id=f"{self.group}-producer") as producer:
            on_step("initialize")
            producer.init_transactions()
            on_step("read offsets")
            run = _Run(producer, GroupMetadata(self.group), self.redriven(), on_step, self.clock, rate)
            #: Offset after the previous letter of each partition.
            after = {place: done.base for place, done in run.redriven.items()}
            for letter in self.letters(run.redriven, is_over):
                first = after[letter.partition]
                after[letter.partition] = letter.offset + 1
                if letter.offset in run.redriven[letter.partition] or not selected(letter):
                    continue
                refused = why(letter)
                if refused:
                    run.refused[refused] = run.refused.get(refused, 0) + 1
                    continue
                run.waiting.append((letter, first))
                if len(run.waiting) >= size:
                    run.send(is_over)
            run.send(is_over)
        return RedriveResult(run.sent, run.refused, not is_over())

    def _consumer(self) -> Consumer:
        return Consumer(
            self.cluster,
            self.group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
        )


@define(eq=False)
class _Run:
    """The state and the transactions of one re-drive."""

    producer: Producer
    group: GroupMetadata
    redriven: dict[TopicPartition, Redriven]
    on_step: Callable[[str], None]
    clock: Clock
    rate: int | None
    #: Letters of the next transaction, each with the offset after the previous letter of its partition.
    waiting: list[tuple[Letter, int]] = field(factory=list)
    sent: dict[TopicPartition, int] = field(factory=dict)
    refused: dict[str, int] = field(factory=dict)
    _next_ms: int = field(init=False, default=0)

    def send(self, is_over: Callable[[], bool]) -> None:
        """Send the collected dead letters and commit their offsets, in one transaction, unless the call is over."""
        if not self.waiting or not self._await_turn(is_over):
            return
        for letter, first in self.waiting:
            self.redriven[letter.partition].add(first, letter.offset + 1)
        places = {letter.partition for letter, _ in self.waiting}
        offsets = {place: self.redriven[place].committed() for place in places}
        self.on_step("begin")
        with self.producer.transaction():
            for letter, _ in self.waiting:
                source = letter.source
                assert source is not None
                self.on_step("send")
                self.producer.send(
                    source.topic,
                    letter.value,
                    key=letter.key,
                    timestamp_ms=letter.timestamp_ms,
                    headers=letter.redriven_headers,
                    partition=source.partition,
                )
            self.on_step("flush")
            self.producer.flush()
            self.on_step("add offsets")
            self.producer.send_offsets_to_transaction(offsets, self.group)
            self.on_step("commit")
        self.on_step("committed")
        for letter, _ in self.waiting:
            assert letter.source is not None
            self.sent[letter.source] = self.sent.get(letter.source, 0) + 1
        self.waiting.clear()

    def _await_turn(self, is_over: Callable[[], bool]) -> bool:
        """Wait until the rate permits the next transaction; return whether it may begin."""
        if self.rate is not None:
            while not is_over() and (remaining_ms := self._next_ms - self.clock.monotonic_ms()) > 0:
                self.producer.poll(min(remaining_ms, _POLL_MS))
            self._next_ms = self.clock.monotonic_ms() + 1000 * len(self.waiting) // self.rate
        return not is_over()


def grouped(letters: Sequence[Letter]) -> dict[tuple[str, str, str], list[Letter]]:
    """Group dead letters by reason, node and line of user code; the largest group is first.

    For letters that were not written by this library, the node and the line are empty.
    """
    groups: dict[tuple[str, str, str], list[Letter]] = {}
    for letter in letters:
        errors = letter.errors
        groups.setdefault((letter.reason, errors.get(NODE_HEADER, ""), errors.get(LINE_HEADER, "")), []).append(letter)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
