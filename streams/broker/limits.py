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


@frozen
class Limits:
    """Bounds that protect a server from its clients.

    - ``max_connections``: those above it are closed at once.
    - ``max_request_bytes``: a longer request closes its connection (Kafka's ``socket.request.max.bytes``, 100 MiB).
    - ``idle_ms``: a connection on which nothing has come for so long is closed (``connections.max.idle.ms``).
    """

    max_connections: int = field(default=1_000, validator=ge(1))
    max_request_bytes: int = field(default=MAX_FRAME_BYTES, validator=ge(1_024))
    idle_ms: int = field(default=600_000, validator=ge(1))
