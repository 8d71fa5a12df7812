"""Functions that run in Spark's Python workers: one call, or one partition of an output topic.

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
from typing import Any
from uuid import uuid4

from attrs import frozen

from streams.core.clock import VirtualClock
from streams.core.records import NO_TIMESTAMP
from streams.replay.calls.application import Application
from streams.replay.calls.failures import packed
from streams.replay.calls.outputs import read_output
from streams.replay.errors import ReplayError
from streams.replay.run.drive import run_work
from streams.replay.run.result import output_topic, record_batch
from streams.replay.spark.shipping import build_digest, check_build
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent

#: A function from Arrow batches to Arrow batches, as for ``mapInArrow``.
Task = Callable[[Iterator[Any]], Iterator[Any]]


@frozen
class CallName:
    """The name of a call, readable before the call is unpickled."""

    name: str
    stage: int


@frozen
class CallFiles:
    """Files that calls and driver exchange: applications, reports, and markers to check that the folder is shared."""

    folder: Place

    def write_marker(self) -> None:
        """Write the driver's marker.

        Raises:
            ReplayError: the marker cannot be written.
        """
        self._write("driver", b"")

    def check_marker(self) -> None:
        """Check that this executor sees the driver's marker.

        Raises:
            ReplayError: the marker does not exist.
        """
        if not self.folder.child("driver").exists():
            raise ReplayError(
                f"{self.folder}: an executor of Spark cannot see files of the driver there; choose a folder "
                "that all machines share, such as one of a distributed file system"
            )

    def answer(self, index: int) -> None:
        """Write a marker of this executor."""
        self._write(f"{index}.worker", b"")

    def answers(self) -> int:
        """Return the number of executor markers that the driver sees."""
        return sum(name.endswith(".worker") for name in self.folder.files())

    def leave(self, index: int, report: bytes) -> None:
        """Write the report of a call."""
        self._write(f"{index}.report", report)

    def reports(self, known: set[int]) -> Iterator[tuple[int, Any]]:
        """Yield (index, report) of the calls that have ended and are not ``known``."""
        for name in self.folder.files():
            index, _, kind = name.partition(".")
            if kind == "report" and index and int(index) not in known:
                yield int(index), pickle.loads(self.folder.child(name).read())

    def packer(self) -> Callable[[Any], bytes]:
        """Return a function that pickles calls; each application is written to the folder once.

        The function raises ReplayError if an application cannot be written.
        """
        # Applications are compared by identity; the reference here keeps the id valid.
        left: dict[int, tuple[Application, str]] = {}
        written: set[str] = set()

        def place_of(found: Any) -> str | None:
            if not isinstance(found, Application):
                return None
            if id(found) not in left:
                data = pickle.dumps(found)
                name = f"{hashlib.blake2b(data, digest_size=16).hexdigest()}.application"
                if name not in written:
                    self._write(name, data)
                    written.add(name)
                left[id(found)] = found, name
            return left[id(found)][1]

        def pack(work: Any) -> bytes:
            stream = io.BytesIO()
            pickler = pickle.Pickler(stream)
            pickler.persistent_id = place_of  # type: ignore[method-assign]
            pickler.dump(work)
            return pickle.dumps((CallName(work.name, work.stage), stream.getvalue()))

        return pack

    def unpacked(self, call: bytes) -> Any:
        """Unpickle a call.

        Raises:
            ReplayError: its application cannot be read.
        """
        unpickler = pickle.Unpickler(io.BytesIO(call))
        unpickler.persistent_load = lambda name: pickle.loads(self.folder.child(name).read())  # type: ignore[method-assign]
        return unpickler.load()

    def forget(self) -> None:
        """Delete the folder."""
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


@frozen
class OutputPart:
    """One partition of an output topic: the extents of each task, in tie-breaking order."""

    partition: int
    lanes: Sequence[Sequence[Extent]]


def run_calls(batches: Iterator[Any], digest: str, files: CallFiles) -> Iterator[Any]:
    """Run the calls of a partition, given as (index, work), and yield their reports as (index, report).

    Raises:
        TaskFailure: a call failed; the text includes the details that the driver needs.
    """
    import pyarrow as pa

    if not gc.get_freeze_count():
        # Spark collects garbage after each task; frozen objects are skipped, which saves 75 ms a task.
        gc.freeze()
    for index, data in _items(batches):
        name, call = pickle.loads(data)
        try:
            check_build(digest, build_digest())
            files.check_marker()
            report = pickle.dumps(run_work(files.unpacked(call), scratch_folder()))
            files.leave(index, report)
        except BaseException as error:
            raise packed(name, error) from error
        yield pa.record_batch([pa.array([index], pa.int32()), pa.array([report], pa.binary())], ["index", "report"])


def check_folder(batches: Iterator[Any], digest: str, files: CallFiles) -> Iterator[Any]:
    """Check the driver's marker and write one in return; yield (index, message), with an empty message on success."""
    import pyarrow as pa

    for index, _ in _items(batches):
        message = ""
        try:
            check_build(digest, build_digest())
            files.check_marker()
            files.answer(index)
        except ReplayError as error:
            message = str(error)
        yield pa.record_batch(
            [pa.array([index], pa.int32()), pa.array([message.encode()], pa.binary())], ["index", "report"]
        )


def read_parts(batches: Iterator[Any], root: Place, application: Application, topic: str) -> Iterator[Any]:
    """Yield the records of output partitions, given as (index, part), as rows of the output table."""
    declared = output_topic(application.plan(VirtualClock(NO_TIMESTAMP)).topology, topic)
    for _, data in _items(batches):
        part: OutputPart = pickle.loads(data)
        for block in read_output(root, part.lanes):
            yield record_batch(declared, part.partition, block)


def scratch_folder() -> str | None:
    """Return the local folder of this worker (``spark.local.dir``), None outside Spark."""
    for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if folder and os.access(folder, os.W_OK):
            return folder
    return None


def _items(batches: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
