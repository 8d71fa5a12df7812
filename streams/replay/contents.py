"""What a snapshot holds, in words, and how two differ: for ``streams snapshot``."""

from collections.abc import Iterator
from datetime import UTC, datetime

from streams.core.records import TaskId
from streams.replay.outputs import counts
from streams.replay.snapshot import Snapshot, structure_differences
from streams.replay.work import StoreRef


def shown(snapshot: Snapshot) -> Iterator[str]:
    """Yield what a snapshot holds, line by line."""
    yield f"snapshot {snapshot.id} of {snapshot.application_id}, {snapshot.created}"
    if snapshot.parent:
        yield f"  goes on from snapshot {snapshot.parent}"
    for topic in sorted(snapshot.inputs):
        ends = snapshot.ends(topic)
        yield f"  input {topic}: next offsets {', '.join(f'{number}: {end:,}' for number, end in sorted(ends.items()))}"
    for task, saved in sorted(snapshot.state.checkpoints.items()):
        timers = len(saved.get("timers", ()))
        more = f", {timers} punctuations scheduled" if timers else ""
        yield f"  task {task}: stream time {time_text(saved['stream_time_ms'])}{more}"
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


def time_text(time_ms: int) -> str:
    """Return a time for a person to read.

    >>> time_text(1500), time_text(-1)
    ('1970-01-01T00:00:01.500Z', 'none yet')
    """
    if time_ms < 0:
        return "none yet"
    try:
        text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return text.replace("+00:00", "Z")


def differences(old: Snapshot, new: Snapshot, *, limit: int) -> Iterator[str]:
    """Yield what differs between two snapshots: structure, positions, times, contents of stores."""
    if old.application_id != new.application_id:
        yield f"application {old.application_id!r} became {new.application_id!r}"
    yield from structure_differences(old.structure, new.structure)
    for topic in sorted({*old.inputs, *new.inputs}):
        before, after = old.ends(topic), new.ends(topic)
        for number in sorted({*before, *after}):
            if before.get(number, 0) != after.get(number, 0):
                yield f"{topic}-{number}: next offset {before.get(number, 0):,} became {after.get(number, 0):,}"
    tasks = {*old.state.checkpoints, *new.state.checkpoints}
    for task in sorted(tasks):
        times = [snap.state.checkpoints.get(task, {}).get("stream_time_ms", -1) for snap in (old, new)]
        if times[0] != times[1]:
            yield f"task {task}: stream time {time_text(times[0])} became {time_text(times[1])}"
    before_stores, after_stores = old.stores(), new.stores()
    for name in sorted({*before_stores, *after_stores}):
        refs = before_stores.get(name, {}), after_stores.get(name, {})
        yield from _store_differences(name, old, new, refs, limit)


def _store_differences(
    name: str, old: Snapshot, new: Snapshot, refs: tuple[dict[TaskId, StoreRef], dict[TaskId, StoreRef]], limit: int
) -> Iterator[str]:
    """Yield keys whose values differ; both sides are sorted by key, so one pass is enough."""
    found = 0
    for task in sorted({*refs[0], *refs[1]}):
        left = _entries(old, refs[0].get(task, StoreRef()))
        right = _entries(new, refs[1].get(task, StoreRef()))
        a, b = next(left, None), next(right, None)
        while a is not None or b is not None:
            if a == b:
                a, b = next(left, None), next(right, None)
                continue
            found += 1
            if b is None or (a is not None and a[0] < b[0]):
                line, a = f"{_text(a)} is gone", next(left, None)
            elif a is None or b[0] < a[0]:
                line, b = f"{_text(b)} is new", next(right, None)
            else:
                line = f"{_text(a)} became {b[1]!r} at {time_text(b[2])}"
                a, b = next(left, None), next(right, None)
            if found <= limit:
                yield f"store {name}, task {task}: {line}"
    if found > limit:
        yield f"store {name}: {found - limit:,} more differences"


def _entries(snapshot: Snapshot, ref: StoreRef) -> Iterator[tuple[bytes, bytes | None, int]]:
    for block in snapshot.rows_of(ref):
        keys = [key or b"" for key in block.keys]
        yield from zip(keys, block.values, block.timestamps, strict=True)


def _text(entry: "tuple[bytes, bytes | None, int] | None") -> str:
    assert entry is not None
    return f"key {entry[0]!r} (value {entry[1]!r})"
