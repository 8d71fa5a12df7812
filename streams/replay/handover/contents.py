"""The contents of snapshots as text, and the differences of two snapshots, for ``streams snapshot``."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from streams.core.blocks.records import TaskId
from streams.core.event_time.time_texts import stream_time_text, time_text
from streams.core.serdes.display import reader, value_text
from streams.replay.calls.outputs import counts
from streams.replay.calls.shown import described_spec, store_key_reader
from streams.replay.calls.work import StoreRef
from streams.replay.handover.snapshot import Snapshot, structure_differences

#: Key, value and timestamp_ms of a changelog record.
Entry: TypeAlias = tuple[bytes, bytes | None, int]


def shown(snapshot: Snapshot) -> Iterator[str]:
    """Yield the contents of a snapshot as lines of text."""
    yield f"snapshot {snapshot.id} of {snapshot.application_id}, {snapshot.created}"
    if snapshot.parent:
        yield f"  continues snapshot {snapshot.parent}"
    for topic in sorted(snapshot.inputs):
        ends = snapshot.ends(topic)
        yield f"  input {topic}: next offsets {', '.join(f'{number}: {end:,}' for number, end in sorted(ends.items()))}"
    for task, saved in sorted(snapshot.state.checkpoints.items()):
        timers = len(saved.get("timers", ()))
        more = f", {timers} punctuations scheduled" if timers else ""
        yield f"  task {task}: stream time {stream_time_text(saved['stream_time_ms'])}{more}"
    for name, refs in sorted(snapshot.stores().items()):
        rows = sum(ref.rows for ref in refs.values())
        changelog = snapshot.live.changelogs.get(name, "no changelog")
        yield f"  store {name}: {rows:,} entries in {len(refs)} partitions, {changelog}"
    for name, ref in sorted(snapshot.state.global_stores.items()):
        yield f"  global store {name}: {ref.rows:,} entries"
    for topic, count in sorted(counts(snapshot.outputs).items()):
        yield f"  output {topic}: {count:,} records"
    size = sum(size for size, _ in snapshot.files.values())
    yield f"  {len(snapshot.files):,} files, {size:,} bytes"


def differences(old: Snapshot, new: Snapshot, *, limit: int) -> Iterator[str]:
    """Yield the differences of two snapshots as text: structure, positions, times, and contents of stores."""
    if old.application_id != new.application_id:
        yield f"application {old.application_id!r} became {new.application_id!r}"
    yield from structure_differences(old.structure, new.structure)
    for topic in sorted({*old.inputs, *new.inputs}):
        before = old.ends(topic)
        after = new.ends(topic)
        for number in sorted({*before, *after}):
            if before.get(number, 0) != after.get(number, 0):
                yield f"{topic}-{number}: next offset {before.get(number, 0):,} became {after.get(number, 0):,}"
    tasks = {*old.state.checkpoints, *new.state.checkpoints}
    for task in sorted(tasks):
        times = [snap.state.checkpoints.get(task, {}).get("stream_time_ms", -1) for snap in (old, new)]
        if times[0] != times[1]:
            yield f"task {task}: stream time {stream_time_text(times[0])} became {stream_time_text(times[1])}"
    before_stores = old.stores()
    after_stores = new.stores()
    for name in sorted({*before_stores, *after_stores}):
        refs = before_stores.get(name, {}), after_stores.get(name, {})
        yield from _store_differences(name, old, new, refs, limit)


def _store_differences(
    name: str, old: Snapshot, new: Snapshot, refs: tuple[dict[TaskId, StoreRef], dict[TaskId, StoreRef]], limit: int
) -> Iterator[str]:
    """Yield the keys of a store whose values differ; both sides are sorted by key, so one pass is enough."""
    count = 0
    for task in sorted({*refs[0], *refs[1]}):
        before = refs[0].get(task, StoreRef())
        after = refs[1].get(task, StoreRef())
        text_before, _ = _texts(name, old, before)
        text_after, value_after = _texts(name, new, after)
        left = _entries(old, before)
        right = _entries(new, after)
        a = next(left, None)
        b = next(right, None)
        while a is not None or b is not None:
            if a == b:
                a = next(left, None)
                b = next(right, None)
                continue
            count += 1
            if b is None or (a is not None and a[0] < b[0]):
                assert a is not None, "one of the two is there"
                line = f"{text_before(a)} is gone"
                a = next(left, None)
            elif a is None or b[0] < a[0]:
                line = f"{text_after(b)} is new"
                b = next(right, None)
            else:
                line = f"{text_before(a)} became {value_after(b)} at {time_text(b[2])}"
                a = next(left, None)
                b = next(right, None)
            if count <= limit:
                yield f"store {name}, task {task}: {line}"
    if count > limit:
        yield f"store {name}: {count - limit:,} more differences"


def _entries(snapshot: Snapshot, ref: StoreRef) -> Iterator[Entry]:
    for block in snapshot.rows_of(ref):
        keys = [key or b"" for key in block.keys]
        yield from zip(keys, block.values, block.timestamps, strict=True)


def _texts(name: str, snapshot: Snapshot, ref: StoreRef) -> tuple[Callable[[Entry], str], Callable[[Entry], str]]:
    """Return two functions that convert to text: one for a store entry, one for its value."""
    described = snapshot.structure["stores"].get(name)
    if described is None:
        # The store is not in this snapshot, so it has no entries.
        return repr, repr
    spec = described_spec(name, described, ref.carried)
    key_of = store_key_reader(spec)
    value_of = reader(spec.value_serde)

    def value(entry: Entry) -> str:
        return value_text(value_of(entry[1]))

    return lambda entry: f"key {key_of(entry[0])} (value {value(entry)})", value
