"""Bytes of messages: one pair of functions for each API, version and direction, made on first use.

The seam for a compiled codec: whatever else fulfils ``Coder`` can be returned by ``coder``.
Between ``framing`` and the tables.
"""

from functools import cache
from typing import Final

from attrs import frozen

from streams.protocol.wire.apis import APIS, api_of
from streams.protocol.wire.decoder import REQUEST_TEXT_BYTES, Decode, decoder
from streams.protocol.wire.encoder import Encode, encoder
from streams.protocol.wire.errors import MalformedError
from streams.protocol.wire.fields import Fields, Message
from streams.protocol.wire.tables.session import REQUEST_HEADER, RESPONSE_HEADER

_HEADERS: Final = {"request": REQUEST_HEADER, "response": RESPONSE_HEADER}


@frozen
class Coder:
    """Writes and reads one version of one message."""

    name: str
    version: int
    #: Message to chunks of bytes; raises ``EncodingError``.
    encode: Encode
    #: Bytes and position to message and next position; raises ``MalformedError``.
    decode: Decode

    def to_bytes(self, message: Fields) -> bytes:
        """Return the message in one piece.

        Raises:
            EncodingError: a value is missing, does not fit, or has no place in this version.
        """
        return b"".join(self.encode(message))

    def whole(self, data: bytes, position: int = 0) -> Fields:
        """Return the message that takes up all the rest of the bytes.

        Raises:
            MalformedError: it does not, or cannot be read.
        """
        message, end = self.decode(data, position)
        if end != len(data):
            raise MalformedError(
                f"{len(data) - end} bytes are left over", api=self.name, version=self.version, position=end
            )
        return message


def coder(message: Message, version: int, most_text: int | None = None) -> Coder:
    """Return the functions for one version of a message; ``most_text`` bounds each string that is read."""
    return Coder(message.name, version, encoder(message, version), decoder(message, version, most_text))


@cache
def request_coder(api_key: int, version: int) -> Coder:
    """Return the functions for a request.

    Raises:
        UnsupportedVersionError: this is not spoken here.
    """
    return coder(api_of(api_key, version).request, version, REQUEST_TEXT_BYTES)


@cache
def response_coder(api_key: int, version: int) -> Coder:
    """Return the functions for a response.

    Raises:
        UnsupportedVersionError: this is not spoken here.
    """
    return coder(api_of(api_key, version).response, version)


@cache
def header_coder(kind: str, version: int) -> Coder:
    """Return the functions for a header; ``kind`` is "request" (versions 0 to 2) or "response" (0 and 1)."""
    return coder(_HEADERS[kind], version)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the version of an API has flexible headers; False for APIs that are not known."""
    api = APIS.get(api_key)
    return api is not None and api.is_flexible(version)
