"""An API is three things: messages, a table and a handler.  Its translation and its versions follow from these."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import streams
from streams.broker import EmbeddedBroker
from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import ApiVersions, SaslAuthenticate, SaslHandshake
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import ClientInformation, RequestFor, Response, response_type
from streams.protocol.wire import APIS, mapping
from streams.protocol.wire.codec import coder, request_coder, response_coder
from streams.protocol.wire.fields import (
    BOOLEAN,
    ERROR,
    ERROR_MESSAGE,
    INDEX,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Api,
    Field,
    array,
    by_topic,
    struct,
)
from streams.protocol.wire.mapping.base import Incoming, Serving
from streams.protocol.wire.mapping.derived import derived
from tests.protocol.wire import messages

SERVED = [api for api in APIS.values() if api.served is not None]
DERIVED = [api for api in SERVED if api.key not in mapping.BY_HAND]
_SERVING = Serving("cluster", {0: ("host", 9092)})


# --- three places -------------------------------------------------------------------------


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_every_served_api_has_messages_versions_and_a_handler(api):
    assert api.name
    assert api.request_type is not None
    assert issubclass(response_type(api.request_type), Response)
    assert api.versions[0] <= api.served[0] <= api.served[1] <= mapping.versions_of(api.key)[1]
    with EmbeddedBroker() as broker:
        of_the_connection = {ApiVersions, SaslHandshake, SaslAuthenticate}
        assert api.request_type in broker._machine.requests | of_the_connection


@pytest.mark.parametrize(
    "name", ["ListConfigResources", "ElectLeaders", "DescribeLogDirs", "WriteTxnMarkers", "DescribeTransactions"]
)
def test_an_api_is_told_in_three_files(name):
    """Its messages, its table, its handler, and nowhere else."""
    root = Path(streams.__file__).parent
    files = {path for path in root.rglob("*.py") if re.search(rf"\b{name}\b", path.read_text())}

    assert sorted(str(path.relative_to(root).parent) for path in files) == [
        "broker",
        "protocol",
        "protocol/wire/tables",
    ]


def test_the_broker_takes_apis_by_their_messages_alone():
    """No number of an API, and no look at topics past the handlers, on the way from the socket."""
    for path in (Path(streams.__file__).parent / "broker" / "tcp").glob("*.py"):
        text = path.read_text()
        assert "machine.topics" not in text
        assert not re.search(r"api_key\s*(==|in|!=)\s*[\d({\[]|^\s*\d+: ", text, re.MULTILINE), path


def test_the_guide_names_every_api_with_its_versions():
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "broker.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) to (\d+) \|$", guide, re.MULTILINE)

    assert rows == sorted((api.name, str(api.key), *map(str, api.served)) for api in SERVED)


# --- a new one ----------------------------------------------------------------------------


@frozen
class Share:
    """A part of a message within a message."""

    topic_id: bytes
    numbers: Sequence[int]


@frozen
class Toy(RequestFor["ToyResponse"]):
    """Has each form that a message may have; ``note`` is not on the wire."""

    group_id: str
    offsets: Mapping[TopicPartition, int]
    partitions: Sequence[TopicPartition] | None
    settings: Mapping[str, str | None]
    pairs: Sequence[tuple[str, int]]
    share: Share | None
    is_new: bool = False
    note: str = "as it was"


@frozen
class ToyResponse(Response):
    """An error with its message, and one for each partition."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]
    message: str = ""


TOY = Api(9_999, Toy, (0, 1), flexible=1).with_fields(
    (
        Field("group_id", STRING),
        by_topic("topics", INDEX, Field("offset", INT64), attribute="offsets"),
        by_topic("named", INT32, partitions="indexes", nullable=0, attribute="partitions"),
        array("settings", Field("name", STRING), Field("value", STRING, nullable=0)),
        array("pairs", Field("left", STRING), Field("right", INT16), Field("later", INT16, since=1, default=0)),
        struct("share", Field("topic_id", UUID), array("numbers", INT32), nullable=1, default=None, since=1),
        Field("fresh", BOOLEAN, since=1, default=False, tag=0, attribute="is_new"),
    ),
    (ERROR, ERROR_MESSAGE, by_topic("topics", INDEX, ERROR, attribute="errors")),
)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("partitions", [None, (A1, B0)])
def test_a_new_api_needs_messages_and_a_table_to_be_spoken(version, partitions):
    share = Share(bytes(16), (1, 2)) if version else None
    toy = Toy("g", {A0: 5, B0: 7}, partitions, {"x": "1", "y": None}, (("l", 1),), share, is_new=bool(version))
    response = ToyResponse(ErrorCode.NOT_COORDINATOR, {A0: ErrorCode.NONE, A1: ErrorCode.INVALID_TOPIC}, "elsewhere")
    translation = derived(TOY)

    request_bytes = coder(TOY.request, version).to_bytes(translation.build_request(toy, version))
    asked = translation.parse_request(coder(TOY.request, version).whole(request_bytes), version, ClientInformation())
    fields = translation.build_response(Incoming(TOY.key, version, *asked), [response], _SERVING)
    response_bytes = coder(TOY.response, version).to_bytes(fields)

    assert asked.requests == (toy,)
    assert translation.parse_response(coder(TOY.response, version).whole(response_bytes), version, toy) == response
    assert fields["topics"] == [
        {"name": "a", "partitions": [{"partition_index": 0, "error_code": 0}, {"partition_index": 1, "error_code": 17}]}
    ]


def test_an_empty_message_is_none_on_the_wire():
    translation = derived(TOY)

    fields = translation.build_response(
        Incoming(TOY.key, 0, (), {}, (), True), [ToyResponse(ErrorCode.NONE, {})], _SERVING
    )

    assert fields["error_message"] is None
    assert translation.parse_response(fields, 0, None).message == ""


@frozen
class Lacking(RequestFor["ToyResponse"]):
    """Has no place for the group."""

    offsets: Mapping[TopicPartition, int]


@frozen
class Asking(RequestFor["Demanding"]):
    """Has the fields of the table; its response has not."""

    group_id: str
    offsets: Mapping[TopicPartition, int]
    partitions: Sequence[TopicPartition]
    settings: Mapping[str, str | None]
    pairs: Sequence[tuple[str, int]]
    share: Share | None
    is_new: bool


@frozen
class Demanding(Response):
    """Has more than the table."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]
    more: int


@pytest.mark.parametrize(
    ("request_type", "reason"),
    [
        (Lacking, "Lacking has no attribute for the field group_id"),
        (Asking, "Demanding.more has no field"),
        (None, "Toy has no messages"),
    ],
)
def test_messages_that_do_not_fit_their_table_are_named(request_type, reason):
    with pytest.raises(TypeError, match=reason):
        derived(evolve(TOY, request_type=request_type))


# --- those that there are -----------------------------------------------------------------


@pytest.mark.case(6)
@pytest.mark.parametrize("api", DERIVED, ids=lambda api: api.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_is_read_and_written_again_is_the_same_message(api, data):
    version = data.draw(st.integers(*api.versions))
    translation = mapping.translation_of(api.key)
    drawn = data.draw(messages.values(api.request_fields, version))

    (request,) = translation.parse_request(drawn, version, ClientInformation()).requests
    written = request_coder(api.key, version).to_bytes(translation.build_request(request, version))
    (again,) = translation.parse_request(
        request_coder(api.key, version).whole(written), version, ClientInformation()
    ).requests
    assert _parts(again) == _parts(request)

    answered = data.draw(messages.values(api.response_fields, version))
    response = translation.parse_response(answered, version, request)
    fields = translation.build_response(Incoming(api.key, version, (request,), {}, (), True), [response], _SERVING)
    again = response_coder(api.key, version).whole(response_coder(api.key, version).to_bytes(fields))
    assert _parts(translation.parse_response(again, version, request)) == _parts(response)


def _parts(message):
    """All parts of a message: partitions come back topic by topic, and may have been in another order."""
    return sorted(re.findall(r"[^\s(){}\[\],]+", repr(message)))
