"""Retention and compaction of all logs of a broker, a little at a time.

A pass over a large log takes seconds, and whoever uses the broker waits for its lock: so a pass goes in steps of some
thousand records, with pauses in which others have their turn.  Under ``service``, above the logs.
"""

import logging
from collections.abc import Iterator
from typing import Final

from attrs import define, field

from streams.broker.log import PartitionLog
from streams.broker.steps import STEP_RECORDS
from streams.broker.topics import Topics
from streams.core.errors import BrokerError

_LOGGER = logging.getLogger(__name__)

#: Between two steps of a pass, in milliseconds: about as long as one takes.
PAUSE_MS: Final = 5


@define(eq=False)
class Maintenance:
    """The pass that is under way, if there is one."""

    topics: Topics
    _pass: Iterator[None] | None = field(default=None, init=False)

    def step(self, now_ms: int) -> bool:
        """Go on with the pass, or begin one; return whether it is at its end."""
        if self._pass is None:
            self._pass = self._steps(now_ms)
        for _ in self._pass:
            return False
        self._pass = None
        return True

    def run(self, now_ms: int) -> None:
        """Make a whole pass; one that is under way is given up."""
        self.stop()
        for _ in self._steps(now_ms):
            pass

    def stop(self) -> None:
        """Give the pass up: what it has done so far stays."""
        self._pass = None

    def _steps(self, now_ms: int) -> Iterator[None]:
        count = 0
        for log in list(self.topics.logs.values()):
            try:
                if log.damage is not None or not self._has(log):
                    continue
                log.apply_retention(now_ms)
                log.seal(now_ms)
                for seen in log.compaction(now_ms):
                    count += seen
                    if count >= STEP_RECORDS:
                        count = 0
                        yield
                        if not (self._has(log) and log.config.is_compacted):
                            break
            except (OSError, BrokerError) as error:
                _LOGGER.error("maintenance of %s failed and will be tried again: %s", log.partition, error)

    def _has(self, log: PartitionLog) -> bool:
        """Whether a log is still there: its topic may have been deleted meanwhile."""
        return self.topics.logs.get(log.partition) is log
