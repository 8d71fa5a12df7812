"""What is closed at the end of a ``with`` block.  This module imports no other module of the package."""

from typing import Self


class Closeable:
    """The base of clients, servers and results that have a ``close``, which the end of a ``with`` block calls."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
