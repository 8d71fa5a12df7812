"""Which topics a live run reads in step, by place, and why not the others: for descriptions and for the log.

These are repartition topics, and topics of the user that tasks both write and read.

The module imports only ``core`` and ``topology`` from outside ``runtime``.
"""

import logging
from collections.abc import Mapping

from streams.core.clock import VirtualClock
from streams.core.settings.config import StreamsConfig
from streams.runtime.plan.plan import ApplicationPlan
from streams.topology import Topology, sub_topologies

log = logging.getLogger(__name__)


def steps(topology: Topology, config: StreamsConfig) -> dict[str, str | None]:
    """Return the topics that tasks write and read, each with the reason why a live run reads it as records come.

    The reason is None if it is read in step.  Some reasons only a cluster tells: partition counts, by which too many
    tasks may write a topic, and cleanup policies.
    """
    return ApplicationPlan(topology, config, VirtualClock(0), {}, sub_topologies(topology), {}).steps()


def out_of_step(topics: Mapping[str, str | None]) -> dict[str, str]:
    """Return those of ``steps`` that are not read in step, each with the reason."""
    return {topic: reason for topic, reason in topics.items() if reason is not None}


def out_of_step_text(topics: Mapping[str, str]) -> str:
    """Return the topics of ``out_of_step`` as text, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for topic, reason in topics.items():
        by_reason.setdefault(reason, []).append(topic)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def log_out_of_step(plan: ApplicationPlan) -> None:
    """Log the topics that are not read in step; nothing if all are."""
    topics = out_of_step(plan.steps())
    if topics:
        log.warning(
            "application %r: not read in step by event time, but as records come, as in Kafka Streams: %s",
            plan.config.application_id,
            out_of_step_text(topics),
        )
