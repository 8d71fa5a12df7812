"""What can be wrong with bytes of Kafka's protocol, and with what is to become such bytes.  Imports core only."""

from streams.core.errors import StreamsError


class MalformedError(StreamsError):
    """Bytes that are no message of the kind that their header says; whoever sent them is not to be believed further.

    Fields: ``api`` (name), ``version`` (-1 where not known), ``field`` (dotted, as far as it was reached),
    ``position`` (byte within the frame, counted after its length).
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
    """A message that has no place in this version of its API: a value missing, too large or not known there yet.

    Fields: ``api`` (name), ``version``, ``field`` (dotted; several where the value is one of them).
    """

    def __init__(self, reason: str, *, api: str, version: int, field: str = "") -> None:
        super().__init__(f"{api} version {version}: field {field or '(none)'}: {reason}")
        self.reason = reason
        self.api = api
        self.version = version
        self.field = field


class UnsupportedVersionError(StreamsError):
    """An API, or a version of it, that is not spoken here.

    Fields: ``api_key``, ``version``, ``correlation_id`` (None where it could not be read).
    """

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int | None = None) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
