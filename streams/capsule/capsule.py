"""A capsule: one file with everything that is needed to re-run a time span of a live application.

The file is a ZIP archive: ``manifest.json``, the recordings of each task (one frame per commit), the records of each
partition as lines of JSON, and the source code of the script.  Keys and values of records are not masked.
"""

import base64
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import Block, Headers, TaskId, TopicPartition
from streams.core.errors import InputError, StreamsError
from streams.runtime import Frame

_VERSION = 1
_MANIFEST = "manifest.json"
#: What a damaged file raises; RuntimeError and NotImplementedError are zipfile's for encrypted and unknown members.
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError, RuntimeError)

#: Key, value, timestamp_ms and headers of a record.
Row = tuple[bytes | None, bytes | None, int, Headers]


@frozen
class TaskSpan:
    """The recorded frames from which one task is run again; a frame covers the time between two commits.

    ``before`` is the preceding frame, whose end offsets are the start positions, or None if the first frame begins when
    the task was created.
    """

    task_id: TaskId
    frames: tuple[Frame, ...]
    before: Frame | None = None

    @property
    def count(self) -> int:
        """The number of input records that the task processed."""
        return sum(frame.count for frame in self.frames)


@define(eq=False)
class Capsule:
    """A captured time span of an application; ``capture`` creates it, and ``Reproduction`` re-runs it.

    Args:
        partition_counts: Partition counts by topic.
        records: The needed records of inputs, outputs and changelogs, by partition.
        settings: Settings that differ from their defaults, without connections, secrets and callables.
        left_out: Names of the other settings that differ from their defaults.
        versions: Versions of this package, of Python, and of the format.
        script: The path of the script in ``sources``, and the name of its topology function, or None without a script.
        sources: Python sources by path.
        notes: Reasons why a re-run may differ from the recorded run.
    """

    application_id: str
    partition_counts: dict[str, int]
    spans: dict[TaskId, TaskSpan]
    records: dict[TopicPartition, Block]
    settings: dict[str, Any] = field(factory=dict)
    left_out: list[str] = field(factory=list)
    versions: dict[str, str] = field(factory=dict)
    script: tuple[str, str] | None = None
    sources: dict[str, str] = field(factory=dict)
    notes: list[str] = field(factory=list)

    def rows(self, partition: TopicPartition, start: int, stop: int) -> Block:
        """Return the records of a partition from offset ``start`` up to ``stop`` (exclusive)."""
        block = self.records.get(partition, Block([], [], []))
        first = sum(1 for offset in block.offsets if offset < start)
        return block.slice(first, sum(1 for offset in block.offsets if offset < stop))

    def write(self, path: Path) -> None:
        """Write the capsule to a file; an existing file is replaced when the new one is complete.

        Raises:
            StreamsError: the file cannot be written.
        """
        partial = path.with_name(f"{path.name}.partial")
        try:
            self._write(partial)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StreamsError(
                f"{path}: the capsule cannot be written: {error.strerror or error}; give a file in a folder that is "
                "there, with room on its disk"
            ) from error

    def _write(self, path: Path) -> None:
        manifest = {
            "capsule": _VERSION,
            "application_id": self.application_id,
            "known": self.partition_counts,
            "tasks": [[list(span.task_id), span.before is not None] for span in self.spans.values()],
            "partitions": [list(partition) for partition in self.records],
            "settings": self.settings,
            "left_out": self.left_out,
            "versions": self.versions,
            "script": self.script,
            "sources": list(self.sources),
            "notes": self.notes,
        }
        # Keys and values are in clear: for this user alone.
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
            for span in self.spans.values():
                frames = (*([span.before] if span.before else []), *span.frames)
                archive.writestr(f"tasks/{span.task_id}", b"\n".join(base64.b64encode(f.encoded()) for f in frames))
            for partition, block in self.records.items():
                archive.writestr(f"records/{partition}", "\n".join(map(_line, block.rows())))
            for name, text in self.sources.items():
                archive.writestr(f"sources/{name}", text)

    @classmethod
    def read(cls, path: Path) -> "Capsule":
        """Read a capsule.

        Raises:
            InputError: the file does not exist, is damaged, or has another format.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                manifest = json.loads(archive.read(_MANIFEST))
                if manifest["capsule"] != _VERSION:
                    raise InputError(
                        f"{path}: a capsule of format {manifest['capsule']}; this release reads {_VERSION}"
                    )
                return cls._of(archive, manifest)
        except FileNotFoundError as error:
            raise InputError(f"{path}: there is no such file") from error
        except _DAMAGED as error:
            raise InputError(f"{path}: not a capsule that `streams capture` has written: {error}") from error

    @classmethod
    def _of(cls, archive: zipfile.ZipFile, manifest: Mapping[str, Any]) -> "Capsule":
        spans = {}
        for number, has_before in manifest["tasks"]:
            task_id = TaskId(*number)
            lines = archive.read(f"tasks/{task_id}").split(b"\n")
            frames = tuple(Frame.decoded(base64.b64decode(line)) for line in lines)
            spans[task_id] = TaskSpan(task_id, frames[has_before:], frames[0] if has_before else None)
        records = {}
        for topic, number in manifest["partitions"]:
            partition = TopicPartition(topic, number)
            records[partition] = _block(archive.read(f"records/{partition}").decode().splitlines())
        script = manifest["script"]
        return cls(
            manifest["application_id"],
            manifest["known"],
            spans,
            records,
            manifest["settings"],
            manifest["left_out"],
            manifest["versions"],
            script and (script[0], script[1]),
            {name: archive.read(f"sources/{name}").decode() for name in manifest["sources"]},
            manifest["notes"],
        )

    def only(self, tasks: Iterable[TaskId]) -> "Capsule":
        """Return the capsule with only the given tasks, or with all tasks if none are given.

        Raises:
            InputError: a given task is not in the capsule.
        """
        task_ids = list(tasks)
        for task_id in task_ids:
            if task_id not in self.spans:
                recorded = ", ".join(map(str, self.spans)) or "no tasks"
                raise InputError(f"the capsule has no task {task_id}; it has {recorded}")
        return evolve(self, spans={task_id: self.spans[task_id] for task_id in task_ids}) if task_ids else self


def _line(row: tuple[int, bytes | None, bytes | None, int, Headers]) -> str:
    offset, key, value, timestamp_ms, headers = row
    texts = [[name, _text(data)] for name, data in headers]
    return json.dumps([offset, _text(key), _text(value), timestamp_ms, texts], separators=(",", ":"))


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _block(lines: Iterable[str]) -> Block:
    rows = [json.loads(line) for line in lines]
    headers: list[Headers] = [tuple((name, _data(text)) for name, text in row[4]) for row in rows]
    return Block(
        [_data(row[1]) for row in rows],
        [_data(row[2]) for row in rows],
        [row[3] for row in rows],
        headers if any(headers) else None,
        [row[0] for row in rows],
    )
