"""Splitting of sequences into chunks of bounded size.

This module imports no other module of the package.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def chunks_by_size(items: Iterable[T], size_of: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Split items into consecutive chunks with a total size of at most ``limit``; a larger item is a chunk by itself.

    >>> list(chunks_by_size([3, 4, 9, 1, 1], lambda size: size, 7))
    [[3, 4], [9], [1, 1]]
    """
    chunk: list[T] = []
    size = 0
    for item in items:
        if chunk and size + size_of(item) > limit:
            yield chunk
            chunk = []
            size = 0
        chunk.append(item)
        size += size_of(item)
    if chunk:
        yield chunk
