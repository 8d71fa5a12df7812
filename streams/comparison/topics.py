"""Comparison of an output topic in two replays, key by key.

Bytes are compared chunk by chunk, and only differences are decoded.  If a topic differs, its
records are divided by key into files, so that only the records of some keys are in memory at a time.
"""

import marshal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, count, groupby, repeat, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from attrs import define, field, frozen

from streams.comparison.differences import (
    KINDS,
    LAST,
    ONLY_NEW,
    ONLY_OLD,
    ORDER,
    RETYPED,
    TIMES,
    UPDATES,
    KeyDifference,
    Side,
    TopicComparison,
)
from streams.comparison.versions import SerdeForm
from streams.core.blocks.records import Block
from streams.core.closeable import Closeable
from streams.core.serdes.display import key_text, plain, reader
from streams.core.topic import Topic
from streams.replay.calls.outputs import output_partitions
from streams.replay.calls.work import output_topic
from streams.replay.run.result import ReplayResult

#: Approximate number of records whose keys are compared in memory at once.
_IN_MEMORY = 200_000
_MOST_BUCKETS = 256
#: Number of records in one write to the file of a bucket.
_CHUNK = 1000
#: Size in bytes of the length field of a chunk, and version of the marshal format: 2 is the fastest to read, because
#: it has no references to shared objects.
_SIZE_BYTES = 8
_MARSHAL = 2
#: Number of records compared at once.
_PIECE = 10_000

#: The position of a record: (partition, number within it).
Place: TypeAlias = tuple[int, int]


class Row(NamedTuple):
    """A record of one version: its position and its content.

    Most code uses plain tuples with these items, which are much cheaper to create.
    """

    place: Place
    #: Time, value and headers.
    content: tuple[int, bytes | None, Any]

    @property
    def timestamp_ms(self) -> int:
        """The event time in epoch milliseconds."""
        return self.content[0]

    @property
    def value(self) -> bytes | None:
        """The serialized value."""
        return self.content[1]

    @property
    def time_and_headers(self) -> tuple[int, Any]:
        """The timestamp and headers of the record."""
        return self.content[0], self.content[2]


#: The records of one key in both versions; each record is the plain tuple of a ``Row``.
_Pair: TypeAlias = tuple[bytes | None, list[Any], list[Any]]


def compare_topic(old: ReplayResult, new: ReplayResult, name: str, limit: int) -> TopicComparison:
    """Compare one output topic of two replays; ``limit`` is the maximum number of examples.

    Raises:
        ReplayError: a file of a replay is missing or damaged.
    """
    counts = _count_of(old, name), _count_of(new, name)
    if None in counts:
        return TopicComparison(name, counts)
    one = output_topic(old.session.topology, name)
    two = output_topic(new.session.topology, name)
    notes = tuple(_topic_notes(old, new, name, one, two))
    if _is_same(old, new, name):
        return TopicComparison(name, counts, notes=notes)
    total = (counts[0] or 0) + (counts[1] or 0)
    finder = _KeyFinder(_Readers.of(one), _Readers.of(two), limit, _values_may_be_equal(one, two))
    with KeyBuckets(total) as buckets:
        for side, result in enumerate((old, new)):
            for number, block in result.read(name):
                buckets.add(side, number, block)
        for rows in buckets.by_key():
            finder.take(rows)
    return TopicComparison(
        name,
        counts,
        {kind: finder.counts[kind] for kind in KINDS if finder.counts[kind]},
        finder.keys,
        tuple(finder.chosen()),
        not finder.counts,
        notes,
    )


def _count_of(result: ReplayResult, name: str) -> int | None:
    return result.records.get(name)


def _topic_notes(
    old: ReplayResult, new: ReplayResult, name: str, one: Topic[Any, Any] | None, two: Topic[Any, Any] | None
) -> Iterator[str]:
    if one is not None and two is not None:
        for what, was, now in (
            ("keys", one.key_serde, two.key_serde),
            ("values", one.value_serde, two.value_serde),
        ):
            before = SerdeForm.of(was)
            after = SerdeForm.of(now)
            if before.is_read_as(after) is not True:
                changed = (
                    f"{before.name} -> {after.name}" if before.name != after.name else f"{after.name}: other fields"
                )
                yield f"{what}: {changed}"
    partitions = [_partitions(result, name) for result in (old, new)]
    if partitions[0] != partitions[1]:
        yield f"partitions: {partitions[0]} -> {partitions[1]}"


def _partitions(result: ReplayResult, name: str) -> int:
    schedule = result.session.schedule
    count = None if schedule is None else schedule.plan.partitions.get(name)
    return count if count is not None else len(output_partitions(result.session.outputs, name))


def _is_same(old: ReplayResult, new: ReplayResult, name: str) -> bool:
    """Return whether the topic has the same records, byte for byte, in each partition of both replays."""
    for left, right in zip_longest(_aligned(old.read(name)), _aligned(new.read(name))):
        if left is None or right is None or left != right:
            return False
    return True


def _aligned(blocks: Iterable[tuple[int, Block]]) -> Iterator[Any]:
    """Yield records as columns, in chunks whose bounds do not depend on how the records are divided into files."""
    for partition, of_partition in groupby(blocks, key=itemgetter(0)):
        keys: list[Any] = []
        values: list[Any] = []
        times: list[int] = []
        headers: list[Any] = []
        columns = (keys, values, times, headers)
        for _, block in of_partition:
            keys += block.keys
            values += block.values
            times += block.timestamps
            headers += block.headers if block.headers is not None else [()] * len(block)
            while len(keys) >= _PIECE:
                yield (partition, *(column[:_PIECE] for column in columns))
                for column in columns:
                    del column[:_PIECE]
        yield (partition, *columns)


@define(eq=False)
class KeyBuckets(Closeable):
    """Records of both versions, divided by key, and stored in files if there are many."""

    total: int
    _rows: list[list[Any]] = field(init=False)
    _files: list[IO[bytes]] = field(factory=list)
    _stack: ExitStack = field(factory=ExitStack)
    _numbers: dict[tuple[int, int], int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        buckets = min(_MOST_BUCKETS, self.total // _IN_MEMORY + 1)
        self._rows = [[] for _ in range(buckets)]
        if buckets > 1:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-diff-")))
            self._files = [self._stack.enter_context((folder / str(number)).open("w+b")) for number in range(buckets)]

    def close(self) -> None:
        self._stack.close()

    def add(self, side: int, partition: int, block: Block) -> None:
        """Add the records of a block; ``side`` is 0 for the old version and 1 for the new version."""
        rows = self._rows
        files = self._files
        buckets = len(self._rows)
        number = self._numbers.get((side, partition), 0)
        headers: Iterable[Any] = block.headers if block.headers is not None else repeat(())
        contents = zip(block.timestamps, block.values, headers, strict=False)
        for place, key, content in zip(count(number), block.keys, contents, strict=False):
            # Records without a key are divided by value.
            bucket = hash(content[1] if key is None else key) % buckets
            bucket_rows = rows[bucket]
            bucket_rows.append((side, key, ((partition, place), content)))
            if files and len(bucket_rows) >= _CHUNK:
                _write(files[bucket], bucket_rows)
                bucket_rows.clear()
        self._numbers[side, partition] = number + len(block)

    def by_key(self) -> Iterator[_Pair]:
        """Yield each key with its records in both versions, ordered by position."""
        for bucket, rows in enumerate(self._rows):
            keys: dict[bytes | None, tuple[list[Any], list[Any]]] = {}
            for side, key, row in chain(self._written(bucket), rows):
                pair = keys.get(key)
                if pair is None:
                    pair = keys[key] = ([], [])
                pair[side].append(row)
            rows.clear()
            for key, (olds, news) in keys.items():
                yield key, olds, news

    def _written(self, bucket: int) -> Iterator[Any]:
        if self._files:
            file = self._files[bucket]
            file.seek(0)
            while size := file.read(_SIZE_BYTES):
                yield from marshal.loads(file.read(int.from_bytes(size, "big")))


def _write(file: IO[bytes], rows: list[Any]) -> None:
    data = marshal.dumps(rows, _MARSHAL)
    file.write(len(data).to_bytes(_SIZE_BYTES, "big"))
    file.write(data)


@frozen
class _Readers:
    """The functions that decode keys and values of a topic for display."""

    key: Callable[[bytes | None], str]
    value: Callable[[bytes | None], Any]

    @classmethod
    def of(cls, topic: Topic[Any, Any] | None) -> "_Readers":
        serde = None if topic is None else topic.key_serde
        read = reader(serde)
        return cls(lambda data: key_text(read(data), serde), reader(None if topic is None else topic.value_serde))


def _values_may_be_equal(one: Topic[Any, Any] | None, two: Topic[Any, Any] | None) -> bool:
    """Return whether the types of the two topics differ, so that different bytes may represent equal values."""
    if one is None or two is None:
        return False
    return SerdeForm.of(one.value_serde).is_read_as(SerdeForm.of(two.value_serde)) is not True


@define(eq=False)
class _KeyFinder:
    """Finds the differing keys of a topic, and keeps the first examples of each kind of difference."""

    old: _Readers
    new: _Readers
    limit: int
    reads_values: bool
    keys: int = 0
    counts: Counter[str] = field(factory=Counter)
    _examples: dict[str, list[tuple[Place, int, KeyDifference]]] = field(factory=dict)

    def take(self, pair: _Pair) -> None:
        """Compare the records of one key."""
        key, olds, news = pair
        if key is not None:
            self.keys += 1
            if len(olds) == len(news) and all(one[1] == two[1] for one, two in zip(olds, news, strict=True)):
                return
        left = [Row(*row) for row in olds]
        right = [Row(*row) for row in news]
        if key is None:
            self._take_heap(left, right)
            return
        kind, index = self._kind(left, right)
        self._note(kind, key, left, right, index)

    def chosen(self) -> list[KeyDifference]:
        """Return the examples, the most severe kind first; examples of one kind are in the order of the topic."""
        result = [item for kind in KINDS for _, _, item in self._examples.get(kind, ())]
        return result[: self.limit]

    def _kind(self, left: list[Row], right: list[Row]) -> tuple[str, int]:
        """Return how the records of a key differ between the versions, and the index of the first differing record."""
        if not left or not right:
            return (ONLY_NEW if not left else ONLY_OLD), 0
        one, two = self._values(left, right)
        same_values = one == two
        ones = [row.time_and_headers for row in left]
        twos = [row.time_and_headers for row in right]
        if same_values and ones == twos:
            return RETYPED, 0
        index = next(
            (
                number
                for number, (was, now) in enumerate(
                    zip(zip(one, ones, strict=True), zip(two, twos, strict=True), strict=False)
                )
                if was != now
            ),
            min(len(left), len(right)),
        )
        if one[-1] != two[-1]:
            return LAST, index
        if same_values:
            return TIMES, index
        if len(left) == len(right) and Counter(map(repr, zip(one, ones, strict=True))) == Counter(
            map(repr, zip(two, twos, strict=True))
        ):
            return ORDER, index
        return UPDATES, index

    def _values(self, left: list[Row], right: list[Row]) -> tuple[list[Any], list[Any]]:
        """Return the values of both versions' records as bytes, or deserialized if the types differ."""
        if not self.reads_values:
            return [row.value for row in left], [row.value for row in right]
        return [plain(self.old.value(row.value)) for row in left], [plain(self.new.value(row.value)) for row in right]

    def _take_heap(self, left: list[Row], right: list[Row]) -> None:
        """Compare records without a key, and find the records that only one version has."""
        one: dict[Any, list[Row]] = {}
        two: dict[Any, list[Row]] = {}
        for rows, heap in ((left, one), (right, two)):
            for row in rows:
                heap.setdefault(row.content, []).append(row)
        for content in one.keys() | two.keys():
            olds = one.get(content, [])
            news = two.get(content, [])
            for row in olds[len(news) :]:
                self._note(ONLY_OLD, None, [row], [], 0)
            for row in news[len(olds) :]:
                self._note(ONLY_NEW, None, [], [row], 0)

    def _note(self, kind: str, key: bytes | None, left: list[Row], right: list[Row], index: int) -> None:
        self.counts[kind] += 1
        place = (left[index] if index < len(left) else right[index]).place
        examples = self._examples.setdefault(kind, [])
        if len(examples) >= self.limit and (not examples or place >= examples[-1][0]):
            return
        difference = KeyDifference(
            self._key(key, left, right),
            kind,
            self._side(self.old, left, index),
            self._side(self.new, right, index),
            (
                plain(self.old.value(left[-1].value)) if left else None,
                plain(self.new.value(right[-1].value)) if right else None,
            ),
            (len(left), len(right)),
        )
        examples.append((place, self.counts[kind], difference))
        examples.sort(key=lambda item: item[:2])
        del examples[self.limit :]

    def _key(self, key: bytes | None, left: list[Row], right: list[Row]) -> str:
        if key is None:
            return "(no key)"
        texts = [self.old.key(key)] if left else []
        texts += [self.new.key(key)] if right else []
        return " / ".join(dict.fromkeys(texts))

    def _side(self, readers: _Readers, rows: list[Row], index: int) -> Side | None:
        if index >= len(rows):
            return None
        row = rows[index]
        return Side(*row.place, row.timestamp_ms, plain(readers.value(row.value)))
