"""Errors of connectors.

Of the other packages, this module imports only ``core``.
"""

from streams.core.errors import StreamsError


class ConnectError(StreamsError):
    """A connector has failed: its external system rejects the data, or does not answer within ``retry_timeout_ms``.

    The exception's cause is the error of the external system.
    """


class SinkFencedError(ConnectError):
    """Another worker has written to a partition of this sink, so the blocks of this worker were not written."""
