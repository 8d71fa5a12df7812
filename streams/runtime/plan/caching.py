"""What the log says of the record cache at the start.

A record cache makes results depend on when commits happen.  The module imports only ``core`` and ``topology`` from
outside ``runtime``.
"""

import logging

from streams.core.settings.config import KAFKA_STREAMS_CACHE_BYTES, StreamsConfig
from streams.topology import Topology, behind_caches

log = logging.getLogger(__name__)


def log_caching(topology: Topology, config: StreamsConfig) -> None:
    """Log the nodes whose results depend on commits; without a record cache, the stores that ask for one."""
    application = config.application_id
    size = config.cache_max_bytes
    if not size:
        if asking := [repr(spec.name) for spec in topology.stores.values() if spec.has_caching]:
            log.warning(
                "application %r: caching=True of store %s has no effect: there is no record cache (cache_max_bytes=0), "
                "and each update is emitted at once; cache_max_bytes=%d gives the cache that Kafka Streams has by "
                "default",
                application,
                " and ".join(asking),
                KAFKA_STREAMS_CACHE_BYTES,
            )
        return
    if nodes := behind_caches(topology):
        behind = "; ".join(f"{name!r} behind {' and '.join(map(repr, stores))}" for name, stores in nodes.items())
        log.warning(
            "application %r: results of nodes behind a record cache (cache_max_bytes=%d) depend on commits, which pass "
            "on only the last update of each key: %s; caching=False of a store passes on each update",
            application,
            size,
            behind,
        )
