"""Functions that run in Spark's Python workers: they execute a call, or read a partition of an output topic.

Workers are reused for later tasks, so no state of a task is global.  The functions map Arrow batches to
Arrow batches, without importing pyspark.
"""

import gc
import hashlib
import io
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any
from uuid import uuid4

from attrs import frozen

from streams.replay.calls.failures import packed
from streams.replay.calls.outputs import OutputPart, check_kept
from streams.replay.calls.work import Application
from streams.replay.errors import ReplayError
from streams.replay.run.drive import run_work
from streams.replay.spark.tasks import CallName
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from streams.values import ArrowRecords


@frozen
class Items:
    """The pickled items of a job, one for each of its tasks, in one file; each task reads its item from the file.

    Each task gets its number from ``range(n)``, which works in any version of Spark and with any session settings.
    """

    place: Place
    #: Number of the first item.
    first: int
    #: First byte of each item, and the end of the last one.
    bounds: tuple[int, ...]

    @classmethod
    def write(cls, folder: Place, items: Sequence[bytes], first: int = 0) -> "Items":
        """Write items to a file in the folder, whose name is a digest of its content.

        Raises:
            ReplayError: the file cannot be written.
        """
        data = b"".join(items)
        place = folder.child(f"{hashlib.blake2b(data, digest_size=16).hexdigest()}.items")
        place.write(data)
        return cls(place, first, tuple(accumulate(map(len, items), initial=0)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def read(self, index: int) -> bytes:
        """Return the item with the number ``index``.

        Raises:
            ReplayError: the file cannot be read.
        """
        start = self.bounds[index]
        end = self.bounds[index + 1]
        with self.place.open_input() as stream:
            return bytes(stream.read_at(end - start, start))


@frozen
class CallFiles:
    """Files that calls and driver exchange: applications, reports, and markers to check that the folder is shared."""

    folder: Place

    def write_marker(self) -> None:
        """Write the marker file of the driver.

        Raises:
            ReplayError: the marker cannot be written.
        """
        self._write("driver", b"")

    def check_marker(self) -> None:
        """Check that this executor can access the marker file of the driver.

        Raises:
            ReplayError: the marker does not exist.
        """
        if not self.folder.child("driver").exists():
            raise ReplayError(
                f"{self.folder}: an executor of Spark cannot see files of the driver there; choose a folder "
                "that all machines share, such as one of a distributed file system"
            )

    def answer(self, index: int) -> None:
        """Write the marker of this executor, with its index, for the driver."""
        self._write(f"{index}.worker", b"")

    def answers(self) -> int:
        """Return the number of executor marker files in the folder."""
        return sum(name.endswith(".worker") for name in self.folder.files())

    def leave(self, index: int, report: bytes) -> None:
        """Write the report of a call to the folder, for the driver."""
        self._write(f"{index}.report", report)

    def reports(self, before: set[int]) -> Iterator[tuple[int, Any]]:
        """Yield (index, report) of the calls that have ended and are not ``before``."""
        for name in self.folder.files():
            index, _, kind = name.partition(".")
            if kind == "report" and index and int(index) not in before:
                yield int(index), pickle.loads(self.folder.child(name).read())

    def packer(self) -> Callable[[Any], bytes]:
        """Return a function that pickles calls; each application is written to the folder once.

        The function raises ReplayError if an application cannot be written.
        """
        # Applications are compared by identity; the reference here keeps the id valid.
        left: dict[int, tuple[Application, str]] = {}
        written: set[str] = set()

        def place_of(thing: Any) -> str | None:
            if not isinstance(thing, Application):
                return None
            if id(thing) not in left:
                data = pickle.dumps(thing)
                name = f"{hashlib.blake2b(data, digest_size=16).hexdigest()}.application"
                if name not in written:
                    self._write(name, data)
                    written.add(name)
                left[id(thing)] = thing, name
            return left[id(thing)][1]

        def pack(work: Any) -> bytes:
            stream = io.BytesIO()
            pickler = pickle.Pickler(stream)
            pickler.persistent_id = place_of  # type: ignore[method-assign]
            pickler.dump(work)
            return pickle.dumps((CallName(work.name, work.stage), stream.getvalue()))

        return pack

    def unpacked(self, call: bytes) -> Any:
        """Unpickle a call, whose application is read from the folder.

        Raises:
            ReplayError: the application of the call cannot be read.
        """
        unpickler = pickle.Unpickler(io.BytesIO(call))
        unpickler.persistent_load = lambda name: pickle.loads(self.folder.child(name).read())  # type: ignore[method-assign]
        return unpickler.load()

    def forget(self) -> None:
        """Delete the folder of these files."""
        # An abandoned task may still write a file, which is never read.
        with suppress(OSError):
            self.folder.delete()

    def _write(self, name: str, data: bytes) -> None:
        place = self.folder.child(name)
        if not place.is_local:
            place.write(data)
            return
        # The write is atomic, but not synced to disk: after a crash of the machine there are no readers.
        place.path.parent.mkdir(parents=True, exist_ok=True)
        part = place.path.with_name(f".{uuid4().hex}.part")
        part.write_bytes(data)
        part.replace(place.path)


def run_calls(files: CallFiles, items: Items, batches: Iterator[Any]) -> Iterator[Any]:
    """Execute the calls of a Spark partition, given by number, and yield their reports as (number, report).

    Raises:
        TaskFailure: a call failed; the text includes the details that the driver needs.
    """
    import pyarrow as pa

    if not gc.get_freeze_count():
        # Spark collects garbage after each task; frozen objects are skipped, which saves 75 ms a task.
        gc.freeze()
    for number in _numbers(batches):
        index = items.first + number
        name = CallName(f"call {number}")
        try:
            files.check_marker()
            name, call = pickle.loads(items.read(number))
            report = pickle.dumps(run_work(files.unpacked(call), scratch_folder()))
            files.leave(index, report)
        except BaseException as error:
            raise packed(name, error) from error
        yield pa.record_batch([pa.array([index], pa.int32()), pa.array([report], pa.binary())], ["index", "report"])


def check_folder(files: CallFiles, batches: Iterator[Any]) -> Iterator[Any]:
    """Check the driver's marker file and write one for the driver; yield (number, message), where "" means success."""
    import pyarrow as pa

    for index in _numbers(batches):
        message = ""
        try:
            files.check_marker()
            files.answer(index)
        except ReplayError as error:
            message = str(error)
        yield pa.record_batch(
            [pa.array([index], pa.int32()), pa.array([message.encode()], pa.binary())], ["index", "report"]
        )


def read_parts(
    items: Items, segments: Segments, application: Application, topic: str, as_table: bool, batches: Iterator[Any]
) -> Iterator[Any]:
    """Yield the records of output partitions, given by number, as rows of the output table."""
    check_kept(segments.root)
    columns = ArrowRecords(application.output_topic(topic), as_table, has_json=False)
    for number in _numbers(batches):
        part: OutputPart = pickle.loads(items.read(number))
        for block in segments.merged(part.lanes, part.first):
            yield columns.batch(part.partition, block)


def scratch_folder() -> str | None:
    """Return the local folder of this worker (``spark.local.dir``), None outside Spark."""
    for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if folder and os.access(folder, os.W_OK):
            return folder
    return None


def _numbers(batches: Iterator[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
