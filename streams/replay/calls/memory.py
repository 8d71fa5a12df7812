"""The memory that a call of a replay needs in its process, compared with what Spark allows for its Python workers."""

import re
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.settings.config import StreamsConfig

_MIB = 1 << 20
#: A process with Python, the project and pyarrow, and the batches that it reads and writes; the calls that read inputs
#: have most; measured (docs/replay-at-scale.md).
PROCESS_BYTES = 420 * _MIB


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


_MIB = 1 << 20
#: Spark's defaults: the least overhead, which the JVM itself uses up, and its share of the heap.
_LEAST_OVERHEAD = 384 * _MIB
_SHARE = 0.1
_SHARE_KUBERNETES = 0.4
_HEAP = "1g"
_UNITS = {"b": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30, "t": 1 << 40, "": _MIB}


@frozen
class ExecutorMemory:
    """The memory of all Python workers of one executor, which run ``tasks`` tasks at a time."""

    tasks: int
    bytes: int
    #: The setting that determines this memory.
    setting: str

    @classmethod
    def of(cls, master: str, conf: Callable[[str], Any]) -> "ExecutorMemory | None":
        """Return the memory according to the settings of a session, or None if Spark does not limit it.

        YARN and Kubernetes limit a container to heap and overhead.  On other clusters, and on this machine, Python may
        use all memory of the machine, unless ``spark.executor.pyspark.memory`` is set.
        """
        tasks = max(1, int(conf("spark.executor.cores") or 1) // int(conf("spark.task.cpus") or 1))
        if setting := conf("spark.executor.pyspark.memory"):
            return cls(tasks, size_of(setting), "spark.executor.pyspark.memory")
        is_kubernetes = master.startswith("k8s://")
        if master != "yarn" and not is_kubernetes:
            return None
        name = "spark.executor.memoryOverhead"
        if setting := conf(name):
            overhead = size_of(setting)
        else:
            factor = conf(f"{name}Factor") or (is_kubernetes and conf("spark.kubernetes.memoryOverheadFactor"))
            share = float(factor or (_SHARE_KUBERNETES if is_kubernetes else _SHARE))
            least = size_of(conf("spark.executor.minMemoryOverhead") or _LEAST_OVERHEAD // _MIB)
            overhead = max(least, int(share * size_of(conf("spark.executor.memory") or _HEAP)))
        return cls(tasks, max(0, overhead - _LEAST_OVERHEAD), f"{name}={mebibytes(overhead)}, less that of the JVM")

    def shortage(self, call: CallMemory) -> str | None:
        """Return a message if the workers need more memory than they have, otherwise None."""
        needed = self.tasks * call.bytes
        if needed <= self.bytes:
            return None
        overhead = needed + _LEAST_OVERHEAD
        return (
            f"an executor of Spark runs {self.tasks} tasks at a time; outside of the JVM each needs up to {call}; in "
            f"all {mebibytes(needed)}, but there are {mebibytes(self.bytes)} ({self.setting}); give "
            f"spark.executor.memoryOverhead={-(-overhead // _MIB)}m, fewer spark.executor.cores, or a smaller "
            "state_memory_max_bytes"
        )


def size_of(text: Any) -> int:
    """Convert a size in a Spark setting to bytes; a number without a unit is in MiB.

    >>> size_of("2g"), size_of(384), size_of("1024k")
    (2147483648, 402653184, 1048576)
    """
    match = re.fullmatch(r"\s*(\d+)\s*([bkmgt]?)b?\s*", str(text).lower())
    if match is None:
        return 0  # Spark itself rejects it.
    return int(match[1]) * _UNITS[match[2]]
