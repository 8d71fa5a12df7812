"""Digests in the names of permanent files, which readers check, and the places of files that extents name."""

import re
from functools import cache

from streams.replay.errors import ReplayError
from streams.replay.storage.places import Place

#: The names of permanent files contain a digest of the content, which readers check.
_SEALED = re.compile(r"-([0-9a-f]{32})\.b2\.parquet$")


def sealed_name(name: str, digest: str) -> str:
    """Return the name of a file with its digest.

    >>> sealed_name("0_1-ab.parquet", "0" * 32)
    '0_1-ab-00000000000000000000000000000000.b2.parquet'
    """
    return f"{_SEALED.sub('', name).removesuffix('.parquet')}-{digest}.b2.parquet"


def check_seal(place: Place) -> None:
    """Check a file against the digest in its name, if it has one; once per file and process.

    Raises:
        ReplayError: the file has changed since it was written, or cannot be read.
    """
    sealed = _SEALED.search(place.uri)
    if sealed is not None:
        _check_content(place, sealed[1], place.state())


@cache
def _check_content(place: Place, digest: str, _state: tuple[str, int, int]) -> None:
    """Check the digest of a file, only once per process for the same size and modification time."""
    if place.digest() != digest:
        raise ReplayError(
            f"{place}: is damaged: its bytes are not those that were written; restore a copy, or create it again"
        )


def place_of(root: Place, file: str) -> Place:
    """Return the location of an extent's file, whose name may be relative to ``root``."""
    return Place(file) if is_elsewhere(file) else root.child(file)


def is_elsewhere(file: str) -> bool:
    """Return whether an extent's file is given by an absolute path or URI: it belongs to another replay."""
    return "://" in file or file.startswith("/")
