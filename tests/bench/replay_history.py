"""History to replay: Nexmark bids and auctions as archives and as JSON lines, made once per size.

All forms hold the same records.  They lie in a cache folder and get their names when they are whole.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import frozen

from streams import Topic, TopicPartition
from streams.core.blocks.records import Block
from streams.replay.calls.state import write_manifest
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from topology_examples.nexmark import Nexmark, auctions, bids

PARTITIONS = 4
#: Counted up when histories are written in another way: old ones are made anew.
_EDITION = 2
#: Of fifty events 46 are bids.
_BIDS_OF_50 = 46


@frozen
class History:
    """So many bids, and the auctions that they are for.

    ``archive`` has four partitions, ``lines`` is ``TOPIC.jsonl`` with no more than values, and ``single`` the
    archive of a partition of ``single_bids`` bids.
    """

    folder: Path
    bids: int

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def lines(self) -> Path:
        return self.folder / "lines"

    @property
    def events(self) -> int:
        return -(-self.bids * 50 // _BIDS_OF_50)


def history_of(cache: Path, count: int) -> History:
    """Return a history of so many bids, made if the cache has none."""
    history = History(cache / f"bids-{count}", count)
    if not history.folder.exists():
        making = cache / f"bids-{count}-{_EDITION}.part"
        shutil.rmtree(making, ignore_errors=True)
        write_history(History(making, count))
        making.rename(history.folder)
    return history


def single_partition(cache: Path, raw_bytes: int) -> tuple[Path, int, int]:
    """Return an archive of bids in one partition, of so many bytes at least, with its records and bytes."""
    folder = cache / f"single-{raw_bytes}-{_EDITION}"
    note = folder / "size"
    if not note.exists():
        making = cache / f"single-{raw_bytes}-{_EDITION}.part"
        shutil.rmtree(making, ignore_errors=True)
        taken, size = write_archive(making, [bids], 1 << 60, 1, raw_bytes)
        (making / "size").write_text(f"{taken} {size}")
        making.rename(folder)
    count, size = map(int, note.read_text().split())
    return folder, count, size


def write_history(history: History) -> None:
    """Write all forms in one pass over the generator."""
    history.lines.mkdir(parents=True)
    write_archive(history.archive, [bids, auctions], history.events, PARTITIONS, lines=history.lines)


def write_archive(
    folder: Path,
    topics: list[Topic[Any, Any]],
    events: int,
    partitions: int,
    raw_bytes: int | None = None,
    lines: Path | None = None,
) -> tuple[int, int]:
    """Write an archive, up to so many bytes of a topic; return records and bytes.

    Files of lines have the values in the order of the generator.
    """
    content: dict[str, Any] = {"kind": "archive", "topics": {}}
    records = size = 0
    for topic in topics:
        ends: dict[str, int] = {}
        with ExitStack() as stack:
            writer = stack.enter_context(Segments(Place(str(folder))).writer(f"archived-{topic.name}.parquet"))
            file = None if lines is None else stack.enter_context((lines / f"{topic.name}.jsonl").open("wb"))
            for batch in _batches(topic, events, partitions, file):
                for number, block in batch:
                    writer.append("source", TopicPartition(topic.name, number), block, keeps_offsets=True)
                    ends[str(number)] = block.offsets[-1] + 1
                    records += len(block)
                    size += sum(map(len, block.values)) + 16 * len(block)  # type: ignore[arg-type]
                if raw_bytes is not None and size >= raw_bytes:
                    break
        extents: dict[str, list[Any]] = {}
        for _, at, extent in writer.written:
            extents.setdefault(str(at.partition), []).append(list(extent))
        content["topics"][topic.name] = {"partitions": partitions, "extents": extents, "ends": ends}
    write_manifest(Place(str(folder)), content)
    return records, size


def _batches(topic: Topic[Any, Any], events: int, partitions: int, file: Any) -> Iterator[list[tuple[int, Block]]]:
    nexmark = Nexmark()
    if file is not None:
        # Rows and blocks come from equal generators, each with a random sequence of its own.
        file.writelines(value + b"\n" for _, value, _ in nexmark.rows(topic, events))
    yield from nexmark.blocks(topic, events, partitions=partitions)
