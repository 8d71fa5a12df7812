"""Kafka's wire protocol: encoding and decoding of requests and responses.

``framing`` splits and builds frames, ``codec`` encodes and decodes messages by the fields that ``protocol.schema``
derives from their classes, ``mapping`` translates between wire messages and message classes, and ``encoded`` keeps
record batches as bytes until they are read.  Nothing in this package does I/O.  See Kafka's protocol guide and KIP-482
(flexible versions).
"""

from streams.protocol.wire.apis import API_VERSIONS as API_VERSIONS
from streams.protocol.wire.apis import APIS as APIS
from streams.protocol.wire.apis import api_of as api_of
from streams.protocol.wire.apis import served_versions as served_versions
from streams.protocol.wire.codec import Coder as Coder
from streams.protocol.wire.codec import coder as coder
from streams.protocol.wire.codec import request_coder as request_coder
from streams.protocol.wire.codec import response_coder as response_coder
from streams.protocol.wire.encoded import EncodedBlock as EncodedBlock
from streams.protocol.wire.encoded import encoded as encoded
from streams.protocol.wire.encoded import encoded_all as encoded_all
from streams.protocol.wire.encoded import fetched as fetched
from streams.protocol.wire.encoded import produced as produced
from streams.protocol.wire.errors import EncodingError as EncodingError
from streams.protocol.wire.errors import MalformedError as MalformedError
from streams.protocol.wire.errors import UnsupportedVersionError as UnsupportedVersionError
from streams.protocol.wire.framing import FrameReader as FrameReader
from streams.protocol.wire.framing import RequestHeader as RequestHeader
from streams.protocol.wire.framing import api_ranges as api_ranges
from streams.protocol.wire.framing import correlation_id_of as correlation_id_of
from streams.protocol.wire.framing import encode_request as encode_request
from streams.protocol.wire.framing import encode_response as encode_response
from streams.protocol.wire.framing import read_request as read_request
from streams.protocol.wire.framing import read_request_header as read_request_header
from streams.protocol.wire.framing import read_response as read_response
from streams.protocol.wire.framing import refused_versions as refused_versions
