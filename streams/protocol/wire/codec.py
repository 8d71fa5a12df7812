"""Message codecs, each with an encoding and a decoding function for one version of a message.

The functions are generated from the fields on first use.  ``coder`` may return any other implementation of
``Coder``, such as a compiled one.
"""

from functools import cache
from typing import Final

from attrs import frozen

from streams.protocol.schema import CLASSIC_STRING, INT16, INT32, Field, Fields, Message
from streams.protocol.wire.apis import APIS, api_of
from streams.protocol.wire.decoder import REQUEST_TEXT_BYTES, Decode, decoder
from streams.protocol.wire.encoder import Encode, encoder
from streams.protocol.wire.errors import MalformedError

REQUEST_HEADER: Final = Message(
    "RequestHeader",
    2,
    (
        Field("api_key", INT16),
        Field("api_version", INT16),
        Field("correlation_id", INT32),
        # The length of this field is never compact, so that a broker can read the header of an unknown version.
        Field("client_id", CLASSIC_STRING, since=1, nullable=1, default=None, is_ignorable=True),
    ),
)
RESPONSE_HEADER: Final = Message("ResponseHeader", 1, (Field("correlation_id", INT32),))
_HEADERS: Final = {"request": REQUEST_HEADER, "response": RESPONSE_HEADER}


@frozen
class Coder:
    """The codec for one version of one message."""

    name: str
    version: int
    #: Encodes a message as chunks of bytes; raises ``EncodingError``.
    encode: Encode
    #: Decodes the message at a position, and returns it with the next position; raises ``MalformedError``.
    decode: Decode

    def to_bytes(self, message: Fields) -> bytes:
        """Encode a message, and return the bytes in one piece.

        Raises:
            EncodingError: a value is missing, invalid, or not supported in this version.
        """
        return b"".join(self.encode(message))

    def whole(self, data: bytes, position: int = 0) -> Fields:
        """Decode the message at ``position``, which must end at the end of ``data``.

        Raises:
            MalformedError: the bytes cannot be decoded, or bytes are left over.
        """
        message, end = self.decode(data, position)
        if end != len(data):
            raise MalformedError(
                f"{len(data) - end} bytes are left over", api=self.name, version=self.version, position=end
            )
        return message


def coder(message: Message, version: int, most_text: int | None = None) -> Coder:
    """Return the codec for one version of a message; ``most_text`` limits the bytes of each decoded string."""
    return Coder(message.name, version, encoder(message, version), decoder(message, version, most_text))


@cache
def request_coder(api_key: int, version: int) -> Coder:
    """Return the codec for one version of a request.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
    """
    return coder(api_of(api_key, version).request, version, REQUEST_TEXT_BYTES)


@cache
def response_coder(api_key: int, version: int) -> Coder:
    """Return the codec for one version of a response.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
    """
    return coder(api_of(api_key, version).response, version)


@cache
def header_coder(kind: str, version: int) -> Coder:
    """Return the codec for a header; ``kind`` is "request" (versions 0 to 2) or "response" (versions 0 and 1)."""
    return coder(_HEADERS[kind], version)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a version of an API has flexible headers; False for unknown APIs."""
    api = APIS.get(api_key)
    return api is not None and api.is_flexible(version)
