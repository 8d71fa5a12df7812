"""The resources used by a call of a replay: time, CPU and memory."""

import resource
from uuid import uuid4

from attrs import define, field

from streams.core.clock import SystemClock


@define
class Meter:
    """Measures a call, starting when the meter is created; ``attempt`` is a unique name."""

    attempt: str = field(factory=lambda: uuid4().hex[:12])
    _started_ms: int = field(factory=lambda: SystemClock().monotonic_ms())
    _cpu_before_ms: int = field(factory=lambda: _cpu_ms())

    @property
    def elapsed_ms(self) -> int:
        """Wall-clock time since the start in milliseconds."""
        return SystemClock().monotonic_ms() - self._started_ms

    @property
    def cpu_ms(self) -> int:
        """CPU time of this process since the start in milliseconds."""
        return _cpu_ms() - self._cpu_before_ms

    @property
    def peak_bytes(self) -> int:
        """Peak resident memory of this process in bytes."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpu_ms() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1000)
