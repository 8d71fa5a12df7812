"""Digests in the names of permanent files, which readers check, and the locations of the files of extents."""

import re
from functools import cache

from streams.replay.errors import ReplayError
from streams.replay.storage.places import Place

#: The names of permanent files contain a digest of the content, which readers check.
_SEALED = re.compile(r"-([0-9a-f]{32})\.b2\.parquet$")


def sealed_name(name: str, digest: str) -> str:
    """Add a digest to the name of a file.

    >>> sealed_name("0_1-ab.parquet", "0" * 32)
    '0_1-ab-00000000000000000000000000000000.b2.parquet'
    """
    return f"{_SEALED.sub('', name).removesuffix('.parquet')}-{digest}.b2.parquet"


def check_seal(place: Place) -> None:
    """Check the content of a file against the digest in its name, if it has one; only once per process.

    Raises:
        ReplayError: the file has changed since it was written, or cannot be read.
    """
    sealed = _SEALED.search(place.uri)
    if sealed is not None:
        _check_content(place, sealed[1], place.state())


@cache
def _check_content(place: Place, digest: str, _state: tuple[str, int, int]) -> None:
    """Check the digest of a file; a file with the same size and modification time is checked once per process."""
    if place.digest() != digest:
        raise ReplayError(
            f"{place}: is damaged: its bytes are not those that were written; restore a copy, or create it again"
        )


def place_of(root: Place, file: str) -> Place:
    """Return the location of an extent's file, whose name may be relative to ``root``."""
    return Place(file) if is_elsewhere(file) else root.child(file)


def is_elsewhere(file: str) -> bool:
    """Return whether an extent's file belongs to another replay, which means that its path is absolute or a URI."""
    return "://" in file or file.startswith("/")
