"""The memory that a call of a replay needs in its process."""

from attrs import frozen

from streams.core.settings.config import StreamsConfig

_MIB = 1 << 20
#: A process with Python, the project and pyarrow, and the batches that it reads and writes; measured
#: (docs/replay-at-scale.md).
PROCESS_BYTES = 230 * _MIB


@frozen
class CallMemory:
    """The maximum memory of a worker process that executes one call at a time, without entries of in-memory stores."""

    state_bytes: int
    process_bytes: int = PROCESS_BYTES

    @classmethod
    def of(cls, config: StreamsConfig, *, has_stores: bool) -> "CallMemory":
        """Return the memory of the calls of an application."""
        return cls(config.state_memory_max_bytes if has_stores else 0)

    @property
    def bytes(self) -> int:
        """The memory in bytes."""
        return self.process_bytes + self.state_bytes

    def __str__(self) -> str:
        stores = f", {mebibytes(self.state_bytes)} for stores (state_memory_max_bytes)" if self.state_bytes else ""
        return f"{mebibytes(self.bytes)}: {mebibytes(self.process_bytes)} for Python and Arrow{stores}"


def mebibytes(count: int) -> str:
    """Return a number of bytes as text.

    >>> mebibytes(600 * 1024 * 1024)
    '600 MiB'
    """
    return f"{-(-count // _MIB):,} MiB"
