"""Every message of every version: what we write kio reads, and the other way round."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.protocol.wire.codec import REQUEST_HEADER, RESPONSE_HEADER, header_coder, request_coder, response_coder
from tests.protocol.wire import messages, oracle

_CODERS = {"request": request_coder, "response": response_coder}
_HEADERS = {"request": REQUEST_HEADER, "response": RESPONSE_HEADER}


@pytest.mark.case(12)
@pytest.mark.parametrize(("api_key", "version", "kind"), [found for found in messages.ALL if oracle.knows(*found[:2])])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_both_codecs_agree_on_every_message(api_key, version, kind, data):
    fields = messages.message_of(api_key, kind).fields
    message = data.draw(messages.values(fields, version))
    coder, schema = _CODERS[kind](api_key, version), oracle.schema_of(api_key, version, kind)

    written = coder.to_bytes(message)
    read = oracle.read(schema, written)

    assert oracle.plain(read, fields, version) == message
    assert oracle.written(schema, read) == written
    assert coder.whole(written) == message


@pytest.mark.parametrize(("kind", "version"), [("request", 1), ("request", 2), ("response", 0), ("response", 1)])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_both_codecs_agree_on_headers(kind, version, data):
    fields = _HEADERS[kind].fields
    header = data.draw(messages.values(fields, version))
    coder, schema = header_coder(kind, version), oracle.header_schema(kind, version)

    written = coder.to_bytes(header)

    assert oracle.plain(oracle.read(schema, written), fields, version) == header
    assert coder.whole(written) == header
