"""Errors of encoding and decoding Kafka's protocol.  Imports core only."""

from streams.core.errors import StreamsError


class MalformedError(StreamsError):
    """Bytes that are not the message their header announces; the connection cannot be used any further.

    Fields: ``api`` (name), ``version`` (-1 where not known), ``field`` (dotted, as far as it was reached),
    ``position`` (byte offset within the frame, after its length).
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
    """A message that cannot be encoded in this version: a value is missing, too large or not supported.

    Fields: ``api`` (name), ``version``, ``field`` (dotted; several where the value is one of them).
    """

    def __init__(self, reason: str, *, api: str, version: int, field: str = "") -> None:
        super().__init__(f"{api} version {version}: field {field or '(none)'}: {reason}")
        self.reason = reason
        self.api = api
        self.version = version
        self.field = field


class UnsupportedVersionError(StreamsError):
    """An API, or a version of it, that is not supported.

    Fields: ``api_key``, ``version``, ``correlation_id`` (None if it could not be read).
    """

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int | None = None) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
