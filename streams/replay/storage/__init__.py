"""Files of a replay and where they are: places on file systems and object stores, segments of records."""

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
