"""An API is two things: messages and a handler.  Its fields, its translation and its versions follow from these."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import api_key_map

import streams
from streams.broker import EmbeddedBroker
from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import ApiVersions, SaslAuthenticate, SaslHandshake
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import ClientInformation, RequestFor, Response, response_type
from streams.protocol.schema import (
    Api,
    ErrorText,
    Int16,
    Int32,
    Int64,
    Local,
    Unsent,
    Uuid,
    api,
    fields_of,
    implied,
    wire,
)
from streams.protocol.wire import APIS, mapping
from streams.protocol.wire.by_hand import BY_HAND
from streams.protocol.wire.codec import coder, request_coder, response_coder
from streams.protocol.wire.derived import derived
from streams.protocol.wire.errors import UnsupportedVersionError
from streams.protocol.wire.translation import Incoming, Serving
from tests.protocol.wire import messages

SERVED = list(APIS.values())
DERIVED = [api for api in SERVED if api.key not in BY_HAND]
_SERVING = Serving("cluster", {0: ("host", 9092)})


# --- two places -------------------------------------------------------------------------


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_every_served_api_has_messages_versions_and_a_handler(api):
    assert api.name
    assert issubclass(response_type(api.request_type), Response)
    assert api.versions[0] <= api.versions[1]
    with EmbeddedBroker() as broker:
        of_the_connection = {ApiVersions, SaslHandshake, SaslAuthenticate}
        assert api.request_type in broker._machine.requests | of_the_connection


@pytest.mark.parametrize(
    "name", ["ListConfigResources", "ElectLeaders", "DescribeLogDirs", "WriteTxnMarkers", "DescribeTransactions"]
)
def test_an_api_is_told_in_two_files(name):
    """Its messages, its handler, and nowhere else."""
    root = Path(streams.__file__).parent
    files = {path for path in root.rglob("*.py") if re.search(rf"\b{name}\b", path.read_text())}

    assert sorted(str(path.relative_to(root).parent) for path in files) == ["broker", "protocol"]


def test_the_broker_takes_apis_by_their_messages_alone():
    """No number of an API, and no look at topics past the handlers, on the way from the socket."""
    for path in (Path(streams.__file__).parent / "broker" / "tcp").glob("*.py"):
        text = path.read_text()
        assert "machine.topics" not in text
        assert not re.search(r"api_key\s*(==|in|!=)\s*[\d({\[]|^\s*\d+: ", text, re.MULTILINE), path


def test_the_guide_names_every_api_with_its_versions():
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "broker.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) to (\d+) \|$", guide, re.MULTILINE)

    assert rows == sorted((api.name, str(api.key), *map(str, api.versions)) for api in SERVED)


#: Keys of APIs that Kafka 4.4 has no more, and of those that only its controllers have.
OF_NO_BROKER = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}


def test_the_guide_names_every_api_that_is_not_served():
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "broker.md").read_text()
    _, _, table = guide.partition("| not served | because |")
    named = {int(key): name for name, key in re.findall(r"(\w+) \((\d+)\)", table.partition("\n\n")[0])}

    assert sorted([*named, *OF_NO_BROKER, *(api.key for api in SERVED)]) == list(range(95))
    theirs = {key: name.replace("_", "") for key, name in api_key_map.items() if key in named}
    assert theirs.items() <= {key: name.lower() for key, name in named.items()}.items()


# --- a new one ----------------------------------------------------------------------------


@frozen
class Share:
    """A part of a message within a message."""

    topic_id: Uuid
    numbers: Sequence[Int32]


@api(9_999, (0, 1), flexible=1, throttled=None)
@frozen
class Toy(RequestFor["ToyResponse"]):
    """Has each form that a message may have; ``note`` and what follows it are not on the wire."""

    group_id: str
    offsets: Annotated[Mapping[TopicPartition, Int64], wire("topics", value="offset")]
    partitions: Annotated[Sequence[TopicPartition] | None, wire("named", partitions="indexes")]
    settings: Annotated[Mapping[str, str | None], wire(value="value")]
    pairs: Sequence[tuple[Annotated[str, wire("left")], Annotated[Int16, wire("right", since=1, default=0)]]]
    share: Annotated[Share | None, wire(since=1)]
    is_new: Annotated[bool, wire("fresh", since=1, tag=0)] = False
    place: Annotated[Int16, wire(before="offsets")] = 3
    spare: ClassVar[Annotated[Int16, wire(since=1)]] = 7
    note: Local[str] = "as it was"
    client_host: Annotated[str, Unsent("client.host")] = ""
    is_late: Annotated[bool, implied(since=1)] = False


@frozen
class ToyResponse(Response):
    """An error with its message, and one for each partition; ``group_id`` is not on the wire."""

    error: ErrorCode
    errors: Annotated[Mapping[TopicPartition, ErrorCode], wire("topics")]
    message: Annotated[ErrorText, wire(before="errors")] = ""
    group_id: Annotated[str, Unsent("request.group_id")] = ""


TOY: Api = Toy.api
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("partitions", [None, (A1, B0)])
def test_a_new_api_needs_messages_alone_to_be_spoken(version, partitions):
    is_late = bool(version)
    share = Share(bytes(16), (1, 2)) if is_late else None
    pairs = (("l", version),)
    toy = Toy("g", {A0: 5, B0: 7}, partitions, {"x": "1", "y": None}, pairs, share, is_new=is_late, is_late=is_late)
    response = ToyResponse(ErrorCode.NOT_COORDINATOR, {A0: ErrorCode.NONE, A1: ErrorCode.INVALID_TOPIC}, "elsewhere")
    client = ClientInformation("client", "/10.0.0.1")
    translation = derived(TOY)

    request_bytes = coder(TOY.request, version).to_bytes(translation.build_request(toy, version))
    asked = translation.parse_request(coder(TOY.request, version).whole(request_bytes), version, client)
    fields = translation.build_response(Incoming(TOY.key, version, *asked), [response], _SERVING)
    response_bytes = coder(TOY.response, version).to_bytes(fields)
    answered = translation.parse_response(coder(TOY.response, version).whole(response_bytes), version, toy)

    assert asked.requests == (evolve(toy, client_host="/10.0.0.1"),)
    assert answered == evolve(response, group_id="g")
    assert fields["topics"] == [
        {"name": "a", "partitions": [{"partition_index": 0, "error_code": 0}, {"partition_index": 1, "error_code": 17}]}
    ]


def test_the_fields_are_in_the_order_of_the_wire():
    names = [item.name for item in TOY.request_fields]

    assert names == ["group_id", "place", "topics", "named", "settings", "pairs", "share", "fresh", "spare"]
    assert [item.name for item in TOY.response_fields] == ["error_code", "error_message", "topics"]


def test_what_only_the_wire_has_is_written_as_the_class_says():
    fields = derived(TOY).build_request(Toy("g", {}, (), {}, (), None), 1)

    written = coder(TOY.request, 1).whole(coder(TOY.request, 1).to_bytes(fields))

    assert "spare" not in fields
    assert written["spare"] == 7


def test_what_a_version_implies_limits_the_versions_of_the_client():
    toy = Toy("g", {}, (), {}, (), None)

    assert derived(TOY).limit(toy, 1) == 0
    assert derived(TOY).limit(evolve(toy, is_late=True), 1) == 1
    with pytest.raises(UnsupportedVersionError, match="Toy: "):
        derived(TOY).limit(evolve(toy, is_late=True), 0)


def test_a_response_may_begin_with_a_throttle_time():
    (first, *rest) = evolve(TOY, throttled=1).response_fields

    assert (first.name, first.since, first.absent, first.is_ignorable) == ("throttle_time_ms", 1, 0, True)
    assert tuple(rest) == fields_of(ToyResponse)


def test_an_empty_message_is_none_on_the_wire():
    translation = derived(TOY)
    toy = Toy("g", {}, (), {}, (), None)

    fields = translation.build_response(
        Incoming(TOY.key, 0, (), {}, (), True), [ToyResponse(ErrorCode.NONE, {})], _SERVING
    )

    assert fields["error_message"] is None
    assert translation.parse_response(fields, 0, toy).message == ""


@frozen
class Formless(RequestFor["ToyResponse"]):
    """Has an attribute whose type says no width."""

    number: int


@frozen
class Nameless(RequestFor["ToyResponse"]):
    """Has values by partition that have no name."""

    offsets: Mapping[TopicPartition, Int64]


@pytest.mark.parametrize(
    ("request_type", "reason"),
    [
        (Formless, "Formless.number: <class 'int'> has no form on the wire"),
        (Nameless, "Nameless.offsets: <class 'int'> has no name on the wire"),
    ],
)
def test_attributes_without_a_form_are_named(request_type, reason):
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
