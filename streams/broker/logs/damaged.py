"""The storage of a partition with damaged records: every read and append fails with the reason."""

from collections.abc import Sequence
from typing import Final, NoReturn

from attrs import frozen

from streams.broker.logs.storage import LogExtent
from streams.core.blocks.records import Block
from streams.core.errors import DamagedLogError


@frozen
class DamagedStorage:
    """The storage of an offline partition, on which every read and write fails; the files stay unchanged."""

    error: DamagedLogError
    start_offset: Final[int] = 0
    end_offset: Final[int] = 0

    def _refuse(self) -> NoReturn:
        raise self.error

    def append(self, block: Block) -> int:
        """Raise the error of the partition, because it accepts no records."""
        self._refuse()

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Raise the error of the partition, because its records cannot be read."""
        self._refuse()

    def truncate_before(self, offset: int) -> None:
        """Raise the error of the partition, because its files must not be changed."""
        self._refuse()

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Raise the error of the partition, because its records cannot be searched."""
        self._refuse()

    def extents(self) -> Sequence[LogExtent]:
        """Return no extents, because the content is unknown."""
        return ()

    def flush(self) -> None:
        """Do nothing, because there are no appends."""

    def close(self) -> None:
        """Do nothing, because no file is open."""

    def delete(self) -> None:
        """Raise the error of the partition, because its files are kept for a repair."""
        self._refuse()
