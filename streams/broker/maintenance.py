"""Retention and compaction of all logs in a broker, in small steps.

A pass over a large log can last seconds, and would block all clients, because it needs the broker lock.  A pass is
therefore split into steps of a few thousand records, with pauses for requests.
"""

import logging
from collections.abc import Iterator
from typing import Final

from attrs import define, field

from streams.broker.logs.log import PartitionLog
from streams.broker.logs.steps import STEP_RECORDS
from streams.broker.topics import Topics
from streams.core.errors import BrokerError

_LOGGER = logging.getLogger(__name__)

#: Pause between two steps of a pass, in milliseconds: about the duration of a step.
PAUSE_MS: Final = 5


@define(eq=False)
class Maintenance:
    """Retention and compaction of all logs of a broker, in passes; at most one pass is in progress."""

    topics: Topics
    _pass: Iterator[None] | None = field(default=None, init=False)

    def step(self, now_ms: int) -> bool:
        """Start a pass, or run the next step of the current pass; return whether the pass is finished."""
        if self._pass is None:
            self._pass = self._steps(now_ms)
        for _ in self._pass:
            return False
        self._pass = None
        return True

    def run(self, now_ms: int) -> None:
        """Run a whole pass over all logs; a pass in progress is abandoned."""
        self.stop()
        for _ in self._steps(now_ms):
            pass

    def stop(self) -> None:
        """Abandon the current pass; the results of finished steps are kept."""
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
                _LOGGER.error("maintenance of %s failed and will be retried: %s", log.partition, error)

    def _has(self, log: PartitionLog) -> bool:
        """Whether a log still exists; its topic may have been deleted since the pass started."""
        return self.topics.logs.get(log.partition) is log
