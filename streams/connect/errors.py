"""Errors of connectors.

Of the other packages, this module imports only ``core``.
"""

from streams.core.errors import StreamsError


class ConnectError(StreamsError):
    """A connector cannot go on: its system rejects the data, or does not answer within ``retry_timeout_ms``.

    The cause is the error of the system.
    """


class SinkFencedError(ConnectError):
    """Another worker has written to a partition of this sink, so that the blocks of this one were not written."""
