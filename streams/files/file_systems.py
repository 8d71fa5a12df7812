"""The file systems of paths and URIs, as pyarrow file systems: pyarrow's own, or wrapped fsspec file systems.

Of the other packages, this module imports only ``core``; pyarrow and fsspec are imported on use.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from streams.core.errors import StreamsError
from streams.core.folders import sync_to_disk

#: File systems that pyarrow supports itself: their errors are never a missing file system.
_KNOWN = frozenset({"s3", "gs", "gcs", "abfs", "abfss"})
#: Retry limit of Google's client; its default of 15 minutes blocks signals.
_GS_RETRY_LIMIT = "retry_limit_seconds=20"
#: A small object is one request of S3, not the three of an upload in parts.
_S3_ONE_REQUEST = "allow_delayed_open=true"
#: Maximum number of characters of a file system's message in an error message.
_LONGEST_REASON = 300
#: Hadoop names of file systems -> pyarrow names.
_ALIASES = {"s3a": "s3", "s3n": "s3"}


class FileSystemError(StreamsError):
    """The file system of a URI cannot be used.

    ``is_missing`` means that Python has no file system for the URI, although Spark may have one.
    """

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing


def is_local(text: str) -> bool:
    """Return whether a path is on this machine's file system.

    >>> is_local("history/orders.jsonl"), is_local("s3a://bucket/orders")
    (True, False)
    """
    return "://" not in text or text.startswith("file://")


def file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the path within that file system.

    Raises:
        FileSystemError: there is no such file system, or it cannot be used.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

    if is_local(uri):
        return LocalFileSystem(), uri.removeprefix("file://")
    scheme, _, rest = uri.partition("://")
    scheme = _ALIASES.get(scheme, scheme)
    full_uri = f"{scheme}://{rest}"
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in rest:
        full_uri += f"{'&' if '?' in rest else '?'}{_GS_RETRY_LIMIT}"
    if scheme == "s3" and "allow_delayed_open" not in rest:
        full_uri += f"{'&' if '?' in rest else '?'}{_S3_ONE_REQUEST}"
    try:
        system, path = FileSystem.from_uri(full_uri)
    except (pa.ArrowException, OSError, ImportError) as error:
        if scheme in _KNOWN and not isinstance(error, ImportError):
            raise FileSystemError(f"{uri}: cannot be reached: {short_reason(error)}", is_missing=False) from error
        try:
            import fsspec

            fsspec_system, path = fsspec.core.url_to_fs(full_uri)
        except Exception as other:
            why = short_reason(error)
            if scheme in ("hdfs", "viewfs"):
                why = f"libhdfs of a Hadoop installation is needed, by the driver and every worker ({why})"
            raise FileSystemError(
                f"{uri}: no file system is known for it: {why}; Spark or fsspec may know it", is_missing=True
            ) from other
        system = PyFileSystem(FSSpecHandler(fsspec_system))
    return system, path


@contextmanager
def whole_file(system: Any, path: str) -> Iterator[Any]:
    """Open a file for writing; it appears under its name if the ``with`` block raises no exception.

    On this machine its folder is created if needed, and it is synced to disk before.
    """
    if system.type_name != "local":
        with system.open_output_stream(path) as stream:
            yield stream
        return
    whole = Path(path)
    whole.parent.mkdir(parents=True, exist_ok=True)
    part = whole.with_name(f"{whole.name}.{uuid4().hex}.part")
    try:
        with system.open_output_stream(str(part)) as stream:
            yield stream
        sync_to_disk(part)
        part.replace(whole)
        sync_to_disk(whole.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def short_reason(error: Exception) -> str:
    """Return the first line of a file system error's message; some errors list every attempt on its own line."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]} ..."
