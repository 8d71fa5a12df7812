"""How much a server takes from its clients."""

from attrs import field, frozen
from attrs.validators import ge

from streams.protocol.wire.framing import MAX_FRAME_BYTES


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
