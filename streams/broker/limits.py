"""All limits of a broker: memory, requests, descriptors and logins.

``Limits`` can be set per server; the constants apply to the broker itself.
Imports nothing of the broker.
"""

from typing import Final

from attrs import field, frozen
from attrs.validators import ge

from streams.protocol.wire.framing import MAX_FRAME_BYTES

# --- memory -------------------------------------------------------------------------------

#: Memory for the newest batches of all partitions in files, from which readers near the end are served.
CACHE_BYTES: Final = 64 << 20
#: The share of one partition.
PARTITION_CACHE_BYTES: Final = 4 << 20
#: Partitions that all fetches together may wait for, each of which takes up to 700 bytes.  Above it, the fetches with
#: the most partitions are answered with the available records.
WAITING_PLACES: Final = 100_000
#: Upper bound of ``fetch.max.wait.ms``, in milliseconds.
MAX_WAIT_MS: Final = 300_000


#: Maximum bytes of a fetch response, except for its first batch; Kafka's ``fetch.max.bytes`` of the broker.
FETCH_BYTES: Final = 55 << 20
#: Unsent bytes of fetch responses on all connections of a server together; above
#: it a fetch gets ``SCARCE_FETCH_BYTES``.
UNSENT_BYTES: Final = 256 << 20
SCARCE_FETCH_BYTES: Final = 1 << 20
#: Upper bound of ``fetch.min.bytes``: available records are checked with each append.
FETCH_MIN_BYTES: Final = 1 << 20

# --- one request --------------------------------------------------------------------------

#: Elements of all arrays of a request together: topics, partitions, groups, settings.  They bound the work of one
#: request, during which others wait.
REQUEST_ITEMS: Final = 100_000
#: Partitions that a request may create; limit, message and error (POLICY_VIOLATION) are Kafka's.
CREATED_PARTITIONS: Final = 10_000
#: Maximum bytes of any response; a longer one closes its connection.
ANSWER_BYTES: Final = 128 << 20
#: Requests of one connection that are handled before those of others.
REQUESTS_AT_ONCE: Final = 64

#: Maximum decompressed bytes of a batch, or ``max.message.bytes`` of the topic if that is larger.
LOOKED_INTO_BYTES: Final = 16 << 20

# --- descriptors --------------------------------------------------------------------------

#: Maximum number of open log files; a quarter of the process's limit if that is lower.
OPEN_FILES: Final = 256
#: Descriptors that connections leave free, in addition to those of log files.
SPARE_DESCRIPTORS: Final = 64
#: The soft limit of open files is raised to the hard one, but not above this.
MOST_DESCRIPTORS: Final = 1 << 20

# --- logins -------------------------------------------------------------------------------

#: Maximum bytes of a SASL token, and attributes of a SCRAM message.
TOKEN_BYTES: Final = 16_384
TOKEN_ATTRIBUTES: Final = 16


@frozen
class Limits:
    """Limits that protect a server from its clients.

    - ``max_connections``: further ones are closed at once, unless an unauthenticated one can be closed instead.  The
      process's limit of open files applies too.
    - ``max_request_bytes``: a longer request closes its connection (Kafka's ``socket.request.max.bytes``, 100 MiB).
    - ``max_login_bytes``: the same before a client is authenticated (``sasl.server.max.receive.size``, 512 KiB).
    - ``login_ms``: time for a connection to complete TLS and SASL, or, without users, to send
      its first request; then it is closed.
    - ``failed_login_delay_ms``: failed logins from one host are answered one by one, with this delay
      between them (``connection.failed.authentication.delay.ms``).
    - ``idle_ms``: a connection without requests for this long is closed (``connections.max.idle.ms``).
    """

    max_connections: int = field(default=1_000, validator=ge(1))
    max_request_bytes: int = field(default=MAX_FRAME_BYTES, validator=ge(1_024))
    max_login_bytes: int = field(default=524_288, validator=ge(1_024))
    login_ms: int = field(default=30_000, validator=ge(1))
    failed_login_delay_ms: int = field(default=100, validator=ge(0))
    idle_ms: int = field(default=600_000, validator=ge(1))
