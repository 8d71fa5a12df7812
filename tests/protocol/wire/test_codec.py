"""The codec's own rules: defaults, unknown tags, damaged bytes, values without a place."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.protocol.schema import INT8, INT32, RECORDS, STRING, UNKNOWN_TAGS, Field, Message, array, struct
from streams.protocol.wire import APIS, EncodingError, MalformedError, UnsupportedVersionError
from streams.protocol.wire.apis import api_of
from streams.protocol.wire.codec import coder, request_coder, response_coder
from tests.protocol.wire import messages

HEARTBEAT = {"group_id": "g", "generation_id": 3, "member_id": "m"}
_CODERS = {"request": request_coder, "response": response_coder}


# --- what a message is --------------------------------------------------------------------


def test_a_field_that_its_version_does_not_have_has_its_default():
    data = request_coder(12, 0).to_bytes(HEARTBEAT)

    assert request_coder(12, 0).whole(data) == {**HEARTBEAT, "group_instance_id": None}


def test_bytes_are_those_of_the_protocol():
    """Heartbeat 3, laid out by hand from the protocol guide."""
    data = request_coder(12, 3).to_bytes({**HEARTBEAT, "group_instance_id": None})

    assert data == b"\x00\x01g" + b"\x00\x00\x00\x03" + b"\x00\x01m" + b"\xff\xff"


def test_flexible_bytes_are_those_of_the_protocol():
    """ApiVersions 3: compact strings, and the number of tagged fields."""
    data = request_coder(18, 3).to_bytes({"client_software_name": "ab", "client_software_version": ""})

    assert data == b"\x03ab" + b"\x01" + b"\x00"


def test_unknown_tagged_fields_are_kept_and_written_again():
    data = b"\x03ab" + b"\x01" + b"\x02" + b"\x05\x01x" + b"\x80\x01\x02yz"

    message = request_coder(18, 3).whole(data)

    assert message[UNKNOWN_TAGS] == {5: b"x", 128: b"yz"}
    assert request_coder(18, 3).to_bytes(message) == data


def test_records_may_be_given_in_chunks_that_are_not_copied():
    message = Message("Chunks", 1, (Field("records", RECORDS, nullable=0),))
    chunks = (b"abc", b"de")

    written = coder(message, 0).encode({"records": chunks})

    assert b"".join(written) == b"\x00\x00\x00\x05abcde"
    assert [part for part in written if part in chunks] == list(chunks)
    assert coder(message, 1).to_bytes({"records": None}) == b"\x00\x00"


@pytest.mark.parametrize(("key", "version"), [(1, 3), (1, 19), (999, 0), (-1, 0)])
def test_what_is_not_spoken_is_named(key, version):
    with pytest.raises(
        UnsupportedVersionError, match=rf"{APIS[key].name if key in APIS else key}.*not spoken"
    ) as caught:
        api_of(key, version)
    assert (caught.value.api_key, caught.value.version) == (key, version)


# --- values without a place -----------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"group_instance_id": "i"}, "group_instance_id", "version 3 or later"),
        ({"group_id": None}, "group_id", "None"),
        ({"group_id": "x" * 40_000}, "generation_id|group_id", "format|range"),
        ({"generation_id": 2**31}, "generation_id", "format|range"),
        ({"generation_id": "three"}, "generation_id", "integer"),
    ],
)
def test_a_value_that_cannot_be_written_names_its_field(change, field, reason):
    with pytest.raises(EncodingError, match=f"HeartbeatRequest version 1: field .*({field}).*({reason})"):
        request_coder(12, 1).to_bytes(HEARTBEAT | change)


def test_a_missing_value_names_its_field():
    with pytest.raises(EncodingError, match=r"field topics\.partitions\.committed_offset: the value is missing"):
        row = {"partition_index": 0, "committed_metadata": ""}
        request_coder(8, 2).to_bytes({"group_id": "g", "topics": [{"name": "t", "partitions": [row]}]})


# --- damaged bytes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "field", "position", "reason"),
    [
        (b"", "group_id", 0, "the bytes end here"),
        (b"\x00\x05ab", "group_id", 2, "length 5, 2 bytes are left"),
        (b"\xff\xff", "group_id", 2, "length -1, and null is not allowed"),
        (b"\x00\x01\xff", "group_id", 2, "no UTF-8"),
        (b"\x00\x01g\x00\x00", "generation_id", 3, "the bytes end here"),
        (b"\x00\x01g\x00\x00\x00\x03\x00", "member_id", 7, "the bytes end here"),
        (b"\x00\x01g\x00\x00\x00\x03\x00\x00!", "", 9, "1 bytes are left over"),
    ],
)
def test_damage_is_named_by_field_and_position(data, field, position, reason):
    with pytest.raises(MalformedError, match=re.escape(reason)) as caught:
        request_coder(12, 0).whole(data)
    error = caught.value
    assert (error.api, error.version, error.field, error.position) == ("HeartbeatRequest", 0, field, position)


def test_a_count_above_what_the_bytes_can_hold_is_refused_before_anything_is_made():
    with pytest.raises(MalformedError, match=r"field topics at byte 4: count 2147483632 of at least 2 bytes") as caught:
        request_coder(3, 1).whole(b"\x7f\xff\xff\xf0" + bytes(1000))
    assert caught.value.position == 4
    with pytest.raises(MalformedError, match="more than 5 bytes"):
        request_coder(3, 9).whole(b"\xff" * 20)


def test_a_tagged_field_must_fill_its_size():
    fields = (Field("a", STRING, tag=0, default=""), struct("b", Field("c", INT8), tag=1))
    tagged = coder(Message("Tagged", 0, fields), 0)

    assert tagged.whole(b"\x02\x00\x02\x02x\x01\x02\x05\x00") == {"a": "x", "b": {"c": 5}}
    with pytest.raises(MalformedError, match=r"field a .*ends at byte 5, its size says 6"):
        tagged.whole(b"\x01\x00\x03\x02xy")
    with pytest.raises(MalformedError, match="tagged fields"):
        tagged.whole(b"\x01\x00\x09\x02x")


def test_a_structure_that_may_be_null_is_marked_by_one_byte():
    nullable = coder(Message("Nullable", 0, (struct("s", Field("x", INT32), nullable=0, default=None),)), 0)

    assert nullable.to_bytes({"s": None}) == b"\xff\x00"
    assert nullable.to_bytes({"s": {"x": 1}}) == b"\x01\x00\x00\x00\x01\x00\x00"
    assert nullable.whole(b"\xff\x00") == {"s": None}


def test_nested_fields_are_named_with_those_around_them():
    inner = array("b", Field("y", STRING), Field("z", INT32))
    nested = coder(Message("Nested", 9, (array("a", Field("x", INT8), inner),)), 0)

    with pytest.raises(MalformedError, match=r"field a\.b\.z at byte 13"):
        nested.whole(b"\x00\x00\x00\x01" + b"\x07" + b"\x00\x00\x00\x01" + b"\x00\x02yy" + b"\x00\x00")


def whole_or_malformed(found, data):
    """Return the message, or None where the bytes are none; any other error is one of the codec."""
    try:
        return found.whole(data)
    except MalformedError as error:
        # A place within the bytes.
        return None if 0 <= error.position <= len(data) else pytest.fail(str(error))


@pytest.mark.case(12)
@pytest.mark.parametrize(("api_key", "version", "kind"), messages.ALL)
@settings(max_examples=10, deadline=None)
@given(data=st.binary(max_size=120))
def test_random_bytes_are_a_message_or_malformed(api_key, version, kind, data):
    found = _CODERS[kind](api_key, version)

    message = whole_or_malformed(found, data)

    if message is not None:
        found.to_bytes(message)


@pytest.mark.case(12)
@pytest.mark.parametrize(("api_key", "version", "kind"), messages.ALL)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_changed_and_shortened_messages_are_read_or_malformed(api_key, version, kind, data):
    found = _CODERS[kind](api_key, version)
    written = bytearray(found.to_bytes(data.draw(messages.values(messages.message_of(api_key, kind).fields, version))))
    whole = bytes(written)
    for _ in range(data.draw(st.integers(1, 3))):
        if written:
            written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))

    whole_or_malformed(found, bytes(written))

    for end in range(0, len(whole), max(1, len(whole) // 7)):
        with pytest.raises(MalformedError):
            found.whole(whole[:end])
