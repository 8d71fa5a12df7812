"""One format for what travels with a committed offset, and its room."""

from base64 import b64decode, b64encode
from random import Random
from struct import pack

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from streams import ForeignFormatError, StreamsError
from streams.core.blocks.records import TopicPartition
from streams.core.serdes.varints import uvarint
from streams.runtime.tasks.offset_metadata import LIMIT_BYTES, MOST_AHEAD, OffsetMetadata, OwnMetadata, lanes_fit

ORDERS = TopicPartition("orders", 0)
#: Metadata of Kafka Streams without stores; our own follows.
HEAD = b"\x02" + pack(">qi", 70, 0)

names = st.text(max_size=12)
times = st.integers(-1, 1 << 62)
numbers = st.none() | st.integers(0, 1 << 31)
own = st.builds(
    OwnMetadata,
    group=numbers,
    groups=numbers,
    stream_time_ms=times,
    operator_times=st.dictionaries(names, times, max_size=3),
    timers=st.lists(st.tuples(names, st.integers(0, 9), st.none() | times).map(list), max_size=3),
    changelogs=st.dictionaries(names, st.lists(st.none() | names | times, max_size=4), max_size=3),
    origin=names,
    lanes=st.dictionaries(st.integers(0, 2_000), st.integers(1, 1 << 40), max_size=20),
)
metadata = st.builds(OffsetMetadata, times, st.dictionaries(names, times, max_size=3), st.none() | own)


@given(metadata)
def test_what_is_encoded_is_decoded(entry):
    assert OffsetMetadata.decode(entry.encode(limit=1 << 20)) == entry


@given(metadata, st.integers(0, 1 << 16))
def test_room_is_what_encode_heeds(entry, limit):
    if entry.room(limit) >= 0:
        assert len(entry.encode(limit)) <= limit
    else:
        with pytest.raises(StreamsError, match=f"more than the {limit} that a broker accepts"):
            entry.encode(limit)


@given(metadata, st.dictionaries(names, st.lists(names | times, max_size=300), max_size=60))
def test_changelogs_take_the_room_that_is_left(entry, rows):
    left = dict(rows)
    full = entry.with_changelogs(left)

    assert full.own.changelogs | left == rows
    assert entry.room() < 0 or full.room() >= 0


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda data: b64encode(data).decode()))
def test_metadata_of_any_client_is_decoded_or_refused(text):
    try:
        found = OffsetMetadata.decode(text)
    except ForeignFormatError:
        return
    assert found is None or found.partition_time_ms is not None


@given(own, st.data())
def test_fields_that_end_early_are_of_nobody(fields, data):
    whole = b64decode(OffsetMetadata(own=fields).encode(limit=1 << 20))
    part = whole[: data.draw(st.integers(len(HEAD) + 2, len(whole)))]

    found = OffsetMetadata.decode(b64encode(part).decode())

    assert found is None or set(found.own.sections().items()) <= set(fields.sections().items())


@pytest.mark.parametrize(
    ("behind", "what"),
    [
        (b'{"v":2,"g":3}', "format version 2, not 3"),
        (b"\x04", "format version 4, not 3"),
        (b"\x03" + uvarint(60) + uvarint(1) + b"x", "field 60, which this release does not know"),
    ],
)
def test_another_release_is_refused_with_the_partition(behind, what):
    with pytest.raises(ForeignFormatError) as raised:
        OffsetMetadata.decode(b64encode(HEAD + behind).decode(), ORDERS)

    assert str(raised.value) == (
        f"the committed offset of orders-0 has metadata of another release of streams ({what}); run the application "
        "with that release, or start over with another application id (or state directory)"
    )


def test_metadata_too_long_names_its_parts():
    entry = OffsetMetadata(70, {"closed": 60}, OwnMetadata(3, origin="x" * 3_100))

    with pytest.raises(StreamsError, match=r"has 4184 bytes.* \(bytes of each part: times: 44, .*origin: 4140\)"):
        entry.encode()


# --- lanes ------------------------------------------------------------------------------


def lanes_of(count: int, ahead: int) -> dict[int, int]:
    random = Random(7)
    return {lane: random.randrange(1, ahead + 1) for lane in range(count)}


@pytest.mark.parametrize(
    ("count", "ahead", "size"),
    [(4, 100, 36), (100, 1_000, 276), (1_000, 1_000, 2_512), (1_000, 100_000, 3_796), (1_000, MOST_AHEAD, 4_024)],
)
def test_the_positions_of_lanes_have_room(count, ahead, size):
    """With the numbers of group and groups, which each metadata has."""
    text = OffsetMetadata(70, {}, OwnMetadata(7, count, lanes=lanes_of(count, ahead))).encode()

    assert len(text) == size
    assert lanes_fit(count)


def test_some_lanes_that_are_ahead_cost_no_more_than_they_need():
    """999 of 1,000 lanes are where the committed offset is."""
    apart = OwnMetadata(lanes={0: 5, 700: 3, 999: 1_000_000})

    assert apart.sections()["lanes"][2:] == b"\x05" + b"\0" + uvarint(699) + b"\x03" + b"\0" + uvarint(298) + uvarint(
        1_000_000
    )


@given(st.integers(0, 1_100), st.integers(0, 1_000))
def test_what_is_promised_has_room(count, beside):
    entry = OffsetMetadata(70, {"x" * beside: 60}, OwnMetadata(7, 1_000, 70))
    full = evolve(entry, own=evolve(entry.own, lanes=dict.fromkeys(range(count), MOST_AHEAD)))

    assert lanes_fit(count, entry) == (len(b64encode(bytes(3 * LIMIT_BYTES // 4 - full.room()))) <= LIMIT_BYTES)


def test_about_a_thousand_lanes_fit():
    assert [lanes_fit(count) for count in (1_000, 1_015, 1_020)] == [True, True, False]


@pytest.mark.parametrize("ahead", [0, -1])
def test_a_lane_that_is_not_ahead_has_no_position(ahead):
    with pytest.raises(ValueError, match="only lanes that are ahead have a position"):
        OwnMetadata(lanes={3: ahead}).sections()
