"""Which repartition topics a live run does not read in step, by place, and why: for descriptions and for the log.

The module imports only ``core`` and ``topology`` from outside ``runtime``.
"""

import logging
from collections.abc import Mapping

from streams.core.clock import VirtualClock
from streams.core.config import StreamsConfig
from streams.runtime.plan import ApplicationPlan
from streams.topology import Topology, sub_topologies

log = logging.getLogger(__name__)


def out_of_step(topology: Topology, config: StreamsConfig) -> dict[str, str]:
    """Return the repartition topics that a live run reads as records come, each with the reason.

    Topics that are written by too many tasks are not among them, since partition counts are not known here.
    """
    return ApplicationPlan(topology, config, VirtualClock(0), {}, sub_topologies(topology), {}).out_of_step()


def out_of_step_text(topics: Mapping[str, str]) -> str:
    """Return the topics of ``out_of_step`` as text, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for topic, reason in topics.items():
        by_reason.setdefault(reason, []).append(topic)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def log_out_of_step(plan: ApplicationPlan) -> None:
    """Log the repartition topics that are not read in step; nothing if all are."""
    topics = plan.out_of_step()
    if topics:
        log.warning(
            "application %r: not read in step by event time, but as records come, as in Kafka Streams: %s",
            plan.config.application_id,
            out_of_step_text(topics),
        )
