"""Errors in encoding and decoding the Kafka protocol.

This module imports only ``core.errors``.
"""

from streams.core.errors import StreamsError


class MalformedError(StreamsError):
    """Received bytes do not match the schema of the message; the connection must be closed.

    Fields: ``api`` (name), ``version`` (-1 if unknown), ``field`` (dotted path, as far as it was reached),
    ``position`` (byte offset in the frame, after the length field).
    """

    def __init__(self, reason: str, *, api: str, version: int = -1, field: str = "", position: int = 0) -> None:
        where = f"{api} version {version}" if version >= 0 else api
        super().__init__(f"{where}: field {field or '(none)'} at byte {position}: {reason}; the bytes are damaged")
        self.reason = reason
        self.api = api
        self.version = version
        self.field = field
        self.position = position


class EncodingError(StreamsError):
    """A message cannot be encoded in this version: a value is missing, too large or not supported.

    Fields: ``api`` (name), ``version``, ``field`` (dotted path; several if any of these fields may be the cause).
    """

    def __init__(self, reason: str, *, api: str, version: int, field: str = "") -> None:
        super().__init__(f"{api} version {version}: field {field or '(none)'}: {reason}")
        self.reason = reason
        self.api = api
        self.version = version
        self.field = field


class UnsupportedVersionError(StreamsError):
    """An API or API version is not supported.

    Fields: ``api_key``, ``version``, ``correlation_id`` (None if it could not be read).
    """

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int | None = None) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
