"""The bounds of a broker, all in one place: how much of what it takes, keeps and answers.

``Limits`` are those of a server, which whoever serves may choose; the constants are those of the machine.
Imports nothing of the broker.
"""

from typing import Final

from attrs import field, frozen
from attrs.validators import ge

from streams.protocol.wire.framing import MAX_FRAME_BYTES

# --- memory -------------------------------------------------------------------------------

#: Memory for the newest batches of all partitions in files, from which readers near the end are served.
CACHE_BYTES: Final = 64 << 20
#: The part of it that one partition may have.
PARTITION_CACHE_BYTES: Final = 4 << 20
#: Partitions that all fetches together may wait for, each of which takes up to 700 bytes.  Above it those that wait
#: for most are answered with what there is, and their clients ask again.
WAITING_PLACES: Final = 100_000
#: A fetch waits no longer, whatever it asks for (``fetch.max.wait.ms``); it is then answered with what there is.
MAX_WAIT_MS: Final = 300_000


#: Bytes that a fetch is answered with at most, but for its first batch; Kafka's ``fetch.max.bytes`` of the broker.
FETCH_BYTES: Final = 55 << 20
#: Bytes of answers to fetches that all connections of a server together hold for clients that do not take them; above
#: it a fetch gets ``SCARCE_FETCH_BYTES``.
UNSENT_BYTES: Final = 256 << 20
SCARCE_FETCH_BYTES: Final = 1 << 20
#: More bytes no fetch waits for (``fetch.min.bytes``): what is there is looked at with each record that comes.
FETCH_MIN_BYTES: Final = 1 << 20

# --- one request --------------------------------------------------------------------------

#: Elements of all arrays of a request together: topics, partitions, groups, settings.  The work of one request, during
#: which the others wait, is bounded by them.
REQUEST_ITEMS: Final = 100_000
#: Partitions that a request may create; Kafka's bound, as are its words and its error (POLICY_VIOLATION).
CREATED_PARTITIONS: Final = 10_000
#: Bytes of an answer, whatever it is to; a longer one closes its connection.
ANSWER_BYTES: Final = 128 << 20
#: Requests of one connection that are answered before others have their turn.
REQUESTS_AT_ONCE: Final = 64

#: Bytes that a compressed batch may stand for; a topic whose ``max.message.bytes`` is larger takes as much as that.
LOOKED_INTO_BYTES: Final = 16 << 20

# --- descriptors --------------------------------------------------------------------------

#: Log files that are open at once, at most; a quarter of the process's limit where that is low.
OPEN_FILES: Final = 256
#: Descriptors beside those of log files that connections leave free.
SPARE_DESCRIPTORS: Final = 64
#: The soft limit of open files is raised to the hard one, but not above this.
MOST_DESCRIPTORS: Final = 1 << 20

# --- logins -------------------------------------------------------------------------------

#: Bytes of a SASL token, and attributes of one of SCRAM.
TOKEN_BYTES: Final = 16_384
TOKEN_ATTRIBUTES: Final = 16


@frozen
class Limits:
    """Bounds that protect a server from its clients.

    - ``max_connections``: those above it are closed at once, unless one that is not in yet can go instead.  The
      process's limit of open files bounds them too.
    - ``max_request_bytes``: a longer request closes its connection (Kafka's ``socket.request.max.bytes``, 100 MiB).
    - ``max_login_bytes``: the same before a client has proved who it is (``sasl.server.max.receive.size``, 512 KiB).
    - ``login_ms``: a connection that is not in by then is closed: TLS and SASL are done, or where there are no users
      its first request has come.
    - ``failed_login_delay_ms``: failed logins from one host are answered one by one, each so long after the one
      before (``connection.failed.authentication.delay.ms``).
    - ``idle_ms``: a connection on which nothing has come for so long is closed (``connections.max.idle.ms``).
    """

    max_connections: int = field(default=1_000, validator=ge(1))
    max_request_bytes: int = field(default=MAX_FRAME_BYTES, validator=ge(1_024))
    max_login_bytes: int = field(default=524_288, validator=ge(1_024))
    login_ms: int = field(default=30_000, validator=ge(1))
    failed_login_delay_ms: int = field(default=100, validator=ge(0))
    idle_ms: int = field(default=600_000, validator=ge(1))
