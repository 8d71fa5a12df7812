"""Files of a replay: folders on file systems and object stores, and segments of records."""

from streams.replay.storage.places import NoFileSystemError, Place, is_local
from streams.replay.storage.segments import (
    Extent,
    ExtentReader,
    Kind,
    SegmentWriter,
    check_seal,
    headers_array,
    place_of,
    schema,
    sealed_name,
)

__all__ = [
    "Extent",
    "ExtentReader",
    "Kind",
    "NoFileSystemError",
    "Place",
    "SegmentWriter",
    "check_seal",
    "headers_array",
    "is_local",
    "place_of",
    "schema",
    "sealed_name",
]
