"""Frames: requests and responses on a connection, each preceded by its length.

This module performs no I/O.  The protocol has two special cases: the header of an ApiVersions response always has
version 0, and a broker responds to an ApiVersions request in an unsupported version with error 35 in version 0
(Kafka's protocol guide, KIP-511).
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from attrs import define, field

from streams.protocol.error_codes import ErrorCode
from streams.protocol.schema import Fields
from streams.protocol.wire.apis import API_VERSIONS, APIS
from streams.protocol.wire.codec import header_coder, is_flexible, request_coder, response_coder
from streams.protocol.wire.errors import MalformedError

#: Default maximum size of a request in bytes (Kafka's ``socket.request.max.bytes``).
MAX_FRAME_BYTES: Final = 104_857_600

_SIZE: Final = Struct(">i")
_START: Final = Struct(">hh")
_CORRELATION: Final = Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a Kafka request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None

    @property
    def api(self) -> str:
        """The name of the API, for error messages."""
        api = APIS.get(self.api_key)
        return f"API {self.api_key}" if api is None else api.name


@define(eq=False)
class FrameReader:
    """Splits the bytes received on a connection into frames.

    Memory use grows with the number of received bytes, not with the announced length of a frame.
    """

    max_bytes: int = MAX_FRAME_BYTES
    #: The reason why no further frames can be read, or None.
    fault: MalformedError | None = field(default=None, init=False)
    _chunks: list[bytes] = field(factory=list, init=False)
    _size: int = field(default=0, init=False)
    # Number of bytes required before the next frame can be read.
    _wanted: int = field(default=_SIZE.size, init=False)

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes, and return the completed frames without their length fields.

        After a length that is negative or above ``max_bytes``, no further frames can be read (see ``fault``).
        """
        if self.fault is not None:
            return []
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return []
        frames: list[bytes] = []
        if len(self._chunks) > 1:
            data = self._gathered(frames)
        position = 0
        end = len(data)
        self._wanted = _SIZE.size
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= self.max_bytes:
                reason = f"length {size}, 0 to {self.max_bytes} are allowed"
                self.fault = MalformedError(reason, api="frame", field="length")
                self._chunks = []
                self._size = 0
                return frames
            start = position + _SIZE.size
            if start + size > end:
                self._wanted = _SIZE.size + size
                break
            frames.append(data[start : start + size])
            position = start + size
        rest = data[position:] if position else data
        self._chunks = [rest] if rest else []
        self._size = len(rest)
        return frames

    def _gathered(self, frames: list[bytes]) -> bytes:
        """Return all received bytes in one piece.

        If the pending frame ends within the last chunk, it is added to ``frames``, and only the bytes after it are
        returned.  A large response that arrives in many chunks is therefore copied only once.
        """
        first, *middle, last = self._chunks
        behind = self._size - self._wanted
        if self._wanted <= _SIZE.size or len(first) < _SIZE.size or behind >= len(last):
            return b"".join(self._chunks)
        frames.append(b"".join((first[_SIZE.size :], *middle, last[: len(last) - behind])))
        return last[len(last) - behind :]


def framed(chunks: list[bytes]) -> list[bytes]:
    """Return the chunks of one message, preceded by a chunk with their total length."""
    return [_SIZE.pack(sum(map(len, chunks))), *chunks]


# --- requests -----------------------------------------------------------------------------


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Fields
) -> list[bytes]:
    """Encode a request with its header; return the chunks of the frame, including the length.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
        EncodingError: a value is missing, too large, or not supported in this version.
    """
    header = header_coder("request", 2 if is_flexible(api_key, version) else 1)
    fields = {"api_key": api_key, "api_version": version, "correlation_id": correlation_id, "client_id": client_id}
    return framed(header.encode(fields) + request_coder(api_key, version).encode(message))


def read_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """Decode the header of a request; return the header and the position after it.

    The header of an unknown API is read as a non-flexible header.

    Raises:
        MalformedError: the bytes are not a header.
    """
    if len(frame) < _START.size:
        raise MalformedError("the bytes end here", api="RequestHeader", field="api_key", position=len(frame))
    api_key, version = _START.unpack_from(frame)
    fields, position = header_coder("request", 2 if is_flexible(api_key, version) else 1).decode(frame, 0)
    return RequestHeader(api_key, version, fields["correlation_id"], fields["client_id"]), position


def read_request(frame: bytes) -> tuple[RequestHeader, Fields]:
    """Decode a request, and return its header and fields.

    Raises:
        MalformedError: the bytes are damaged.
        UnsupportedVersionError: the API or version is not supported; see ``refused_versions`` for ApiVersions.
    """
    header, position = read_request_header(frame)
    return header, request_coder(header.api_key, header.api_version).whole(frame, position)


# --- responses ----------------------------------------------------------------------------


def _response_header_version(api_key: int, version: int) -> int:
    return 1 if is_flexible(api_key, version) and api_key != API_VERSIONS else 0


def encode_response(api_key: int, version: int, correlation_id: int, message: Fields) -> list[bytes]:
    """Encode a response with its header; return the chunks of the frame, including the length.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
        EncodingError: a value is missing, too large, or not supported in this version.
    """
    header = header_coder("response", _response_header_version(api_key, version))
    return framed(header.encode({"correlation_id": correlation_id}) + response_coder(api_key, version).encode(message))


def refused_versions(correlation_id: int, versions: Mapping[int, tuple[int, int]]) -> list[bytes]:
    """Return the response to an ApiVersions request in an unsupported version: error 35 and the version ranges.

    The response has version 0.  The client retries on the same connection, in a version within the range.
    """
    message = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": api_ranges(versions)}
    return encode_response(API_VERSIONS, 0, correlation_id, message)


def api_ranges(versions: Mapping[int, tuple[int, int]]) -> list[Fields]:
    """Return version ranges by API key in the format of an ApiVersions response."""
    return [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in sorted(versions.items())]


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation ID of a response.

    Raises:
        MalformedError: the frame is too short.
    """
    if len(frame) < _CORRELATION.size:
        raise MalformedError("the bytes end here", api="ResponseHeader", field="correlation_id", position=len(frame))
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    return int(correlation_id)


def read_response(api_key: int, version: int, frame: bytes) -> tuple[int, Fields]:
    """Decode the response to a request in this version; return the correlation ID and the message.

    A broker that does not support the version of an ApiVersions request responds in version 0, with error 35.

    Raises:
        MalformedError: the bytes are damaged.
        UnsupportedVersionError: the API or this version is not supported.
    """
    header = header_coder("response", _response_header_version(api_key, version))
    fields, position = header.decode(frame, 0)
    if api_key == API_VERSIONS and frame[position : position + 2] == b"\x00\x23":
        version = 0
    return fields["correlation_id"], response_coder(api_key, version).whole(frame, position)
