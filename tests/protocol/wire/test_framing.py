"""Frames: cut from any chunks, bounded, and the odd ways of ApiVersions."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.protocol.error_codes import ErrorCode
from streams.protocol.wire import (
    FrameReader,
    MalformedError,
    RequestHeader,
    UnsupportedVersionError,
    api_ranges,
    correlation_id_of,
    encode_request,
    encode_response,
    read_request,
    read_request_header,
    read_response,
    refused_versions,
    served_versions,
)

_HEARTBEAT = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": None}


def frame(chunks):
    (whole,) = FrameReader().feed(b"".join(chunks))
    return whole


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_are_the_same_however_their_bytes_arrive(contents, data):
    stream = b"".join(struct.pack(">i", len(content)) + content for content in contents)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader, found = FrameReader(), []

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])

    assert found == contents


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 0x16030100])
def test_behind_a_length_out_of_bounds_nothing_is_read(length):
    reader = FrameReader(100)

    assert reader.feed(struct.pack(">i", 2) + b"ab" + struct.pack(">i", length) + b"abc") == [b"ab"]

    assert f"length {length}, 0 to 100" in str(reader.fault)
    assert reader.feed(struct.pack(">i", 2) + b"ab") == []


def test_nothing_is_made_for_bytes_that_are_only_promised():
    reader = FrameReader()

    assert reader.feed(struct.pack(">i", 50_000_000) + bytes(100)) == []
    assert reader.feed(bytes(1000)) == []


@pytest.mark.parametrize("client_id", ["client", "", None])
@pytest.mark.parametrize(("api_key", "version", "header_version"), [(12, 3, 1), (60, 0, 2), (18, 3, 2), (18, 2, 1)])
def test_requests_come_as_they_were_sent(api_key, version, header_version, client_id):
    message = {12: _HEARTBEAT, 60: {"include_cluster_authorized_operations": True}}.get(
        api_key, {"client_software_name": "x" * (version > 2), "client_software_version": ""}
    )
    whole = frame(encode_request(api_key, version, 7, client_id, message))

    header, found = read_request(whole)

    assert header == RequestHeader(api_key, version, 7, client_id)
    assert found == message
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    assert whole.startswith(struct.pack(">hhi", api_key, version, 7) + name + b"\0" * (header_version - 1))


@pytest.mark.parametrize(("api_key", "version", "header"), [(12, 3, b""), (60, 0, b"\0")])
def test_responses_come_as_they_were_sent(api_key, version, header):
    message = {"throttle_time_ms": 0, "error_code": 27}
    if api_key == 60:
        message |= {"cluster_id": "c", "controller_id": 1, "brokers": []}
    whole = frame(encode_response(api_key, version, 9, message))

    correlation_id, found = read_response(api_key, version, whole)

    assert correlation_id == correlation_id_of(whole) == 9
    assert message.items() <= found.items()
    assert whole[4 : 4 + len(header)] == header


def test_the_header_of_an_api_versions_response_is_never_flexible():
    ranges = api_ranges(served_versions())

    whole = frame(encode_response(18, 3, 5, {"error_code": 0, "api_keys": ranges}))

    # Correlation id, then the error code at once: a flexible header would have a byte between them.
    assert whole[:6] == b"\0\0\0\5\0\0"
    assert read_response(18, 3, whole)[1]["api_keys"] == ranges


@pytest.mark.parametrize("version", [4, 99])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version):
    """KIP-511: whatever the body holds, the header can be read, and the client learns our ranges."""
    request = struct.pack(">hhih", 18, version, 7, 1) + b"x" + b"\0" + b"\1\2\3"

    header, _ = read_request_header(request)
    with pytest.raises(UnsupportedVersionError, match=f"ApiVersions version {version}"):
        read_request(request)
    whole = frame(refused_versions(header.correlation_id, served_versions()))

    assert header == RequestHeader(18, version, 7, "x")
    assert struct.unpack_from(">ihi", whole) == (7, 35, len(served_versions()))
    correlation_id, answer = read_response(18, 3, whole)
    assert (correlation_id, answer["error_code"]) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]} == served_versions()


@pytest.mark.parametrize("api_key", [999, -3])
def test_the_header_of_an_unknown_api_is_read_all_the_same(api_key):
    request = struct.pack(">hhih", api_key, 0, 7, -1)

    assert read_request_header(request)[0] == RequestHeader(api_key, 0, 7, None)
    with pytest.raises(UnsupportedVersionError, match=f"API {api_key}"):
        read_request(request)


@given(st.binary(max_size=60))
def test_random_frames_are_messages_malformed_or_not_spoken(data):
    for read in (read_request, lambda frame: read_response(1, 11, frame), correlation_id_of):
        try:
            read(data)
        except (MalformedError, UnsupportedVersionError):
            continue
