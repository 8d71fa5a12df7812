"""The storage of a partition whose records are damaged: it gives and takes nothing, and says why."""

from collections.abc import Sequence
from typing import Final, NoReturn

from attrs import frozen

from streams.broker.storage import LogExtent
from streams.core.errors import DamagedLogError
from streams.core.records import Block


@frozen
class DamagedStorage:
    """The verbs of a storage, refused; what is on disk stays as it is."""

    error: DamagedLogError
    start_offset: Final[int] = 0
    end_offset: Final[int] = 0

    def _refuse(self) -> NoReturn:
        raise self.error

    def append(self, block: Block) -> int:
        """Refuse the records."""
        self._refuse()

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Refuse to read."""
        self._refuse()

    def truncate_before(self, offset: int) -> None:
        """Refuse to delete anything."""
        self._refuse()

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Refuse to look."""
        self._refuse()

    def extents(self) -> Sequence[LogExtent]:
        """Return nothing: what is there is not known."""
        return ()

    def flush(self) -> None:
        """There is nothing to flush."""

    def close(self) -> None:
        """There is nothing to close."""

    def delete(self) -> None:
        """Refuse: the files are left to whoever repairs them."""
        self._refuse()
