"""Kafka's wire protocol: encoding and decoding of requests and responses.

``framing`` splits and builds frames, ``codec`` encodes and decodes messages using the tables, ``mapping``
translates between wire messages and message classes, and ``encoded`` keeps record batches as bytes until they
are read.  Nothing in this package does I/O.  See Kafka's protocol guide and KIP-482 (flexible versions).
"""

from streams.protocol.wire.apis import API_VERSIONS, APIS, all_versions, api_of, served_versions
from streams.protocol.wire.codec import Coder, request_coder, response_coder
from streams.protocol.wire.encoded import EncodedBlock, encoded, encoded_all, fetched, produced
from streams.protocol.wire.errors import EncodingError, MalformedError, UnsupportedVersionError
from streams.protocol.wire.fields import Api, Fields
from streams.protocol.wire.framing import (
    FrameReader,
    RequestHeader,
    api_ranges,
    correlation_id_of,
    encode_request,
    encode_response,
    read_request,
    read_request_header,
    read_response,
    refused_versions,
)

__all__ = [
    "APIS",
    "API_VERSIONS",
    "Api",
    "Coder",
    "EncodedBlock",
    "EncodingError",
    "Fields",
    "FrameReader",
    "MalformedError",
    "RequestHeader",
    "UnsupportedVersionError",
    "all_versions",
    "api_of",
    "api_ranges",
    "served_versions",
    "correlation_id_of",
    "encode_request",
    "encode_response",
    "encoded",
    "encoded_all",
    "fetched",
    "produced",
    "read_request",
    "read_request_header",
    "read_response",
    "refused_versions",
    "request_coder",
    "response_coder",
]
