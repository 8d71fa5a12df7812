"""The limits of a broker: memory, requests, file descriptors and logins.

``Limits`` are options of the TCP server; the constants are fixed for every broker.
This module imports no other broker module.
"""

from typing import Final

from attrs import field, frozen
from attrs.validators import ge

from streams.protocol.wire.framing import MAX_FRAME_BYTES

# --- memory -------------------------------------------------------------------------------

#: Memory for the newest batches of all file-backed partitions, from which readers near the end are served.
CACHE_BYTES: Final = 64 << 20
#: Maximum share of a single partition in ``CACHE_BYTES``.
PARTITION_CACHE_BYTES: Final = 4 << 20
#: Maximum number of partitions in all waiting fetches together; each takes up to 700 bytes of memory.  Above this
#: limit, the fetches with the most partitions are answered with the available records.
WAITING_PLACES: Final = 100_000
#: Maximum number of fetch sessions, and of partitions in all of them together (up to 700 bytes each); a session that
#: has rested for ``SESSION_REST_MS`` makes room for another.  As Kafka's ``max.incremental.fetch.session.cache.slots``.
FETCH_SESSIONS: Final = 1_000
SESSION_PLACES: Final = 200_000
SESSION_REST_MS: Final = 120_000
#: Upper bound of ``fetch.max.wait.ms``, in milliseconds.
MAX_WAIT_MS: Final = 300_000


#: Maximum bytes of a fetch response, except for its first batch (Kafka's broker setting ``fetch.max.bytes``).
FETCH_BYTES: Final = 55 << 20
#: Unsent bytes of fetch responses on all connections of a server together; above
#: this limit, a fetch gets ``SCARCE_FETCH_BYTES``.
UNSENT_BYTES: Final = 256 << 20
SCARCE_FETCH_BYTES: Final = 1 << 20
#: Upper bound of ``fetch.min.bytes``; each append recounts the available bytes.
FETCH_MIN_BYTES: Final = 1 << 20

# --- one request --------------------------------------------------------------------------

#: Maximum number of array elements in one request: topics, partitions, groups and settings together.  This bounds
#: the time for which one request delays other requests.
REQUEST_ITEMS: Final = 100_000
#: Number of partitions that one request may create; the limit, message and error (POLICY_VIOLATION) are Kafka's.
CREATED_PARTITIONS: Final = 10_000
#: Partitions that one answer describes at most, as by default in Kafka (max.request.partition.size.limit).
DESCRIBED_PARTITIONS: Final = 2_000
#: Maximum bytes of any response; a longer response closes the connection.
ANSWER_BYTES: Final = 128 << 20
#: Number of requests on one connection that are handled before those of the next connection.
REQUESTS_AT_ONCE: Final = 64

#: Maximum decompressed bytes of a batch, unless the topic's ``max.message.bytes`` is larger.
LOOKED_INTO_BYTES: Final = 16 << 20

# --- descriptors --------------------------------------------------------------------------

#: Maximum number of open log files, or a quarter of the process limit if that is lower.
OPEN_FILES: Final = 256
#: Descriptors that connections leave free, in addition to those for log files.
SPARE_DESCRIPTORS: Final = 64
#: The soft limit on open files is raised to the hard limit, but not above this value.
MOST_DESCRIPTORS: Final = 1 << 20

# --- logins -------------------------------------------------------------------------------

#: Maximum bytes of a SASL token, and attributes of a SCRAM message.
TOKEN_BYTES: Final = 16_384
TOKEN_ATTRIBUTES: Final = 16


@frozen
class Limits:
    """Limits that protect a server from its clients.

    - ``max_connections``: additional connections are closed at once, unless an unauthenticated one can be closed
      instead.  The process limit on open files applies too.
    - ``max_request_bytes``: a longer request closes its connection (Kafka's ``socket.request.max.bytes``, 100 MiB).
    - ``max_login_bytes``: the same limit before authentication (``sasl.server.max.receive.size``, 512 KiB).
    - ``login_ms``: a connection is closed if it has not completed TLS and SASL (or, without users, sent its
      first request) within this time.
    - ``failed_login_delay_ms``: failed logins from one host are answered one at a time, with this delay
      between responses (``connection.failed.authentication.delay.ms``).
    - ``idle_ms``: a connection without requests for this long is closed (``connections.max.idle.ms``).
    """

    max_connections: int = field(default=1_000, validator=ge(1))
    max_request_bytes: int = field(default=MAX_FRAME_BYTES, validator=ge(1_024))
    max_login_bytes: int = field(default=524_288, validator=ge(1_024))
    login_ms: int = field(default=30_000, validator=ge(1))
    failed_login_delay_ms: int = field(default=100, validator=ge(0))
    idle_ms: int = field(default=600_000, validator=ge(1))
