"""Settings of topics, single offsets and leader epochs over the wire; and groups and transactions by hand."""

import pytest

from streams.core.blocks.records import Block, TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata, OffsetCommit
from streams.protocol.schema import Array, Bytes, Fixed, Struct, Text
from streams.protocol.wire.apis import APIS
from tests.broker.tcp.by_hand import METADATA, Client, batch_of, values_in

JOIN_GROUP, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 11, 19, 20, 22
DESCRIBE_GROUPS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 15, 60, 75
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS = 23, 32, 33, 37
DELETE_RECORDS, INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 21, 44, 47
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def described(client, name="words", kind=TOPIC, keys=None, version=3):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (found,) = client.call(DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True)["results"]
    return found


def settings(client, name="words"):
    return {row["name"]: row["value"] for row in described(client, name)["configs"]}


def alter(client, *changes, name="words", kind=TOPIC, validate_only=False):
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    message = {"resources": [resource], "validate_only": validate_only}
    (found,) = client.call(INCREMENTAL_ALTER_CONFIGS, 0, **message)["responses"]
    return found["error_code"]


def replace(client, configs, name="words"):
    rows = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": rows}
    (found,) = client.call(ALTER_CONFIGS, 1, resources=[resource])["responses"]
    return found["error_code"]


# --- topics with many partitions ----------------------------------------------------------


def pages(client, limit, cursor, *names):
    """The topics with the numbers of their partitions, page by page, beginning at a cursor (topic, partition)."""
    while cursor is not None:
        place = dict(zip(("topic_name", "partition_index"), cursor, strict=True)) if cursor[0] else None
        topics = [{"name": name} for name in names]
        answer = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=limit, cursor=place)
        cursor = answer["next_cursor"] and tuple(answer["next_cursor"].values())
        yield [(row["name"], [part["partition_index"] for part in row["partitions"]]) for row in answer["topics"]]


@pytest.mark.parametrize(
    ("limit", "cursor", "names", "expected"),
    [
        (2, ("", 0), (), [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("c", [0]), ("words", [0])]]),
        (3, ("", 0), (), [[("a", [0, 1, 2])], [("b", [0]), ("c", [0]), ("words", [0])]]),
        (-5, ("a", 2), ("b", "a"), [[("a", [2])], [("b", [0])]]),
        (9_999, ("a", 7), ("a", "b"), [[("a", []), ("b", [0])]]),
        (5, ("", 0), ("none", "b"), [[("b", [0]), ("none", [])]]),
    ],
)
def test_partitions_are_described_in_pages(client, broker, limit, cursor, names, expected):
    for name, count in (("c", 1), ("a", 3), ("b", 1)):
        broker.create_topic(name, count)

    assert list(pages(client, limit, cursor, *names)) == expected


def test_a_described_partition_has_its_leader_and_an_unknown_topic_its_error(client, broker):
    topics = [{"name": name} for name in ("words", "none", "no/name")]

    answer = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics)
    outside = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, cursor={"topic_name": "a", "partition_index": 0})

    wrong, unknown, words = answer["topics"]
    assert (wrong["error_code"], unknown["error_code"]) == (
        ErrorCode.INVALID_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    ((part,), has_id) = words["partitions"], any(words["topic_id"])
    assert (part["leader_id"], part["replica_nodes"], part["isr_nodes"], has_id) == (0, [0], [0], True)
    assert {row["error_code"] for row in outside["topics"]} == {ErrorCode.INVALID_REQUEST}


# --- settings -----------------------------------------------------------------------------


def test_settings_say_where_they_come_from(client, broker):
    broker.create_topic("kept", config={"retention.ms": "7200000"})

    rows = {row["name"]: row for row in described(client, "kept")["configs"]}

    assert (rows["retention.ms"]["value"], rows["retention.ms"]["config_source"]) == ("7200000", 1)
    assert (rows["cleanup.policy"]["value"], rows["cleanup.policy"]["config_source"]) == ("delete", 5)
    assert rows["retention.ms"]["synonyms"] == [{"name": "retention.ms", "value": "7200000", "source": 1}]
    assert rows["streams.storage"]["read_only"]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_settings_say_what_they_do_if_asked(client, is_asked_for):
    resource = {"resource_type": TOPIC, "resource_name": "words", "configuration_keys": ["retention.ms"]}

    answer = client.call(DESCRIBE_CONFIGS, 3, resources=[resource], include_documentation=is_asked_for)

    ((row,),) = (result["configs"] for result in answer["results"])
    assert row["documentation"] == ("How long records are kept; -1 = forever." if is_asked_for else None)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "words"), (BROKER, "0"), (GROUP, "readers")])
def test_every_setting_is_documented(client, kind, name):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}

    (found,) = client.call(DESCRIBE_CONFIGS, 3, resources=[resource], include_documentation=True)["results"]

    assert [row["name"] for row in found["configs"] if not row["documentation"]] == []
    assert found["configs"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_single_settings_can_be_asked_for(client, version):
    rows = described(client, keys=["cleanup.policy"], version=version)["configs"]

    assert [(row["name"], row["value"]) for row in rows] == [("cleanup.policy", "delete")]


def test_the_broker_tells_the_few_settings_it_has(client, server, broker):
    with broker.serve("127.0.0.1:0", advertise="kafka.example:9092", users={"ann": "secret"}):
        rows = described(client, "0", BROKER)["configs"]

    values = {row["name"]: (row["value"], row["config_source"]) for row in rows}
    assert values["num.partitions"] == ("1", 5)
    listeners = f"PLAINTEXT://{server.address},SASL_PLAINTEXT://kafka.example:9092"
    assert values["advertised.listeners"] == (listeners, 4)
    assert all(row["read_only"] for row in rows)


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("none", TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("7", BROKER, ErrorCode.INVALID_REQUEST),
        ("x", 99, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_there_is_not_has_no_settings(client, name, kind, code):
    found = described(client, name, kind)

    assert found["error_code"] == code
    assert found["error_message"]


def test_one_setting_is_changed_and_the_others_stay(client):
    assert alter(client, ("retention.ms", SET, "1000"), ("cleanup.policy", SET, "compact")) == 0
    assert alter(client, ("retention.ms", DELETE, None)) == 0

    assert settings(client)["retention.ms"] == "-1"
    assert settings(client)["cleanup.policy"] == "compact"


def test_lists_are_added_to_and_taken_from(client):
    assert alter(client, ("cleanup.policy", APPEND, "compact")) == 0
    assert settings(client)["cleanup.policy"] == "delete,compact"

    assert alter(client, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert settings(client)["cleanup.policy"] == "compact"
    assert alter(client, ("cleanup.policy", SUBTRACT, "compact")) == 0
    assert settings(client)["cleanup.policy"] == ""
    assert alter(client, ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG


def test_all_settings_are_replaced(client):
    alter(client, ("retention.ms", SET, "1000"))

    assert replace(client, {"max.message.bytes": "2000"}) == 0

    found = settings(client)
    assert (found["max.message.bytes"], found["retention.ms"]) == ("2000", "-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("retention.ms", "soon"), ("no.such.setting", "1"), ("streams.storage", "linked"), ("retention.ms", None)],
)
def test_a_wrong_setting_changes_nothing(client, name, value):
    before = settings(client)

    assert alter(client, (name, SET, value), ("segment.bytes", SET, "5000")) != 0

    assert settings(client) == before


def test_a_change_can_be_tried_first(client):
    assert alter(client, ("retention.ms", SET, "soon"), validate_only=True) == ErrorCode.INVALID_CONFIG
    assert alter(client, ("retention.ms", SET, "1000"), validate_only=True) == 0
    assert settings(client)["retention.ms"] == "-1"


def test_settings_of_the_broker_cannot_be_changed(client):
    assert alter(client, ("num.partitions", SET, "3"), name="0", kind=BROKER) == ErrorCode.INVALID_REQUEST


def test_a_changed_setting_holds_for_the_next_records(client):
    assert client.produce("words", bytes(500))["error_code"] == 0

    alter(client, ("max.message.bytes", SET, "200"))

    assert client.produce("words", bytes(500))["error_code"] == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", ["segment.bytes", "internal.segment.bytes"])
def test_changed_settings_are_there_after_a_restart(tmp_path, name):
    from streams.broker import EmbeddedBroker

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words")
        with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
            alter(client, (name, SET, "500"), ("compression.type", SET, "zstd"))
            for _ in range(10):
                client.produce("words", bytes(900))

    with EmbeddedBroker(tmp_path) as broker:
        config = broker.describe_topic("words").config
        assert (config[name], config["compression.type"]) == ("500", "zstd")
    assert len(list((tmp_path / "logs" / "words-0").glob("*.log"))) > 1


# --- topics -------------------------------------------------------------------------------


def test_a_topic_that_is_asked_for_is_created(client, broker):
    (topic,) = client.call(METADATA, 8, topics=[{"name": "new"}])["topics"]

    assert (topic["error_code"], len(topic["partitions"])) == (0, 1)
    assert "new" in broker.topics()


def test_a_topic_that_must_not_be_created_is_not(client, broker):
    asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": False}

    (topic,) = client.call(METADATA, 8, **asked)["topics"]

    assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "new" not in broker.topics()


def topic_of(client, name, version=12, **asked):
    (topic,) = client.call(METADATA, version, topics=[{"name": name, **asked}])["topics"]
    return topic


def test_a_topic_has_an_id_and_is_asked_for_and_deleted_by_it(client, broker):
    """KIP-516: who has seen a topic knows whether it is still the same one."""
    first = topic_of(client, "words")["topic_id"]
    assert first != bytes(16)
    assert topic_of(client, None, topic_id=first)["name"] == "words"

    (gone,) = client.call(DELETE_TOPICS, 6, topics=[{"topic_id": first}], timeout_ms=1)["responses"]
    broker.create_topic("words")

    assert (gone["error_code"], gone["name"]) == (0, "words")
    assert topic_of(client, "words")["topic_id"] not in (first, bytes(16))
    unknown = topic_of(client, None, topic_id=first)
    assert (unknown["error_code"], unknown["name"]) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    (again,) = client.call(DELETE_TOPICS, 6, topics=[{"topic_id": first}], timeout_ms=1)["responses"]
    assert again["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    (named,) = client.call(DELETE_TOPICS, 6, topics=[{"name": "words"}], timeout_ms=1)["responses"]
    assert (named["error_code"], named["name"]) == (0, "words")


def test_a_topic_keeps_its_id_over_a_restart(tmp_path):
    from streams.broker import EmbeddedBroker

    found = []
    for _ in range(3):
        with EmbeddedBroker(tmp_path) as broker:
            if not broker.topics():
                broker.create_topic("words")
            with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
                found.append(topic_of(client, "words")["topic_id"])

    assert len(set(found)) == 1


def test_who_makes_a_topic_is_told_what_it_is(client):
    """KIP-525."""
    topic = {"name": "made", "num_partitions": 3, "replication_factor": 1}
    topic["configs"] = [{"name": "retention.ms", "value": "1000"}]
    (tried,) = client.call(CREATE_TOPICS, 7, topics=[topic], validate_only=True)["topics"]

    (made,) = client.call(CREATE_TOPICS, 7, topics=[topic])["topics"]

    assert (made["num_partitions"], made["replication_factor"]) == (3, 1)
    assert made["topic_id"] == topic_of(client, "made")["topic_id"]
    configs = {row["name"]: (row["value"], row["config_source"]) for row in made["configs"]}
    assert (configs["retention.ms"], configs["cleanup.policy"]) == (("1000", 1), ("delete", 5))
    assert (tried["num_partitions"], tried["topic_id"]) == (3, bytes(16))
    (twice,) = client.call(CREATE_TOPICS, 7, topics=[topic])["topics"]
    assert (twice["error_code"], twice["num_partitions"], twice["configs"]) == (36, -1, None)


def test_who_is_in_may_do_everything_and_is_told_so_if_asked(client):
    """KIP-430; sets of operations are bits."""
    answer = client.call(METADATA, 8, topics=[{"name": "words"}], include_topic_authorized_operations=True)
    cluster = client.call(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)
    (group,) = client.call(DESCRIBE_GROUPS, 4, groups=["x"], include_authorized_operations=True)["groups"]

    assert answer["topics"][0]["topic_authorized_operations"] == 0b1101_1111_1000
    assert answer["cluster_authorized_operations"] == -(2**31)
    assert cluster["cluster_authorized_operations"] == 0b1_1111_1010_0000
    assert group["authorized_operations"] == 0b1_0100_1000
    assert [(row["broker_id"], row["host"]) for row in cluster["brokers"]] == [(0, "127.0.0.1")]
    assert cluster["cluster_id"] == answer["cluster_id"]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "new", "num_partitions": 2}, ErrorCode.NONE),
        ({"name": "words", "num_partitions": 2}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a/b", "num_partitions": 2}, ErrorCode.INVALID_TOPIC),
        ({"name": "new", "num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "new", "num_partitions": 1, "configs": [{"name": "retention.ms", "value": "soon"}]}, 40),
    ],
)
def test_a_topic_can_be_tried_first(client, broker, topic, code):
    before = broker.topics()

    (tried,) = client.call(CREATE_TOPICS, 4, topics=[{"replication_factor": 1, **topic}], validate_only=True)["topics"]

    assert tried["error_code"] == code
    assert broker.topics() == before


@pytest.mark.parametrize(("count", "code"), [(3, ErrorCode.NONE), (1, ErrorCode.INVALID_PARTITIONS)])
def test_more_partitions_can_be_tried_first(client, broker, count, code):
    before = broker.topics()
    asked = {"topics": [{"name": "words", "count": count}], "timeout_ms": 1, "validate_only": True}

    (tried,) = client.call(CREATE_PARTITIONS, 1, **asked)["results"]

    assert tried["error_code"] == code
    assert broker.topics() == before


def test_records_are_deleted(client):
    for value in (b"a", b"b", b"c"):
        client.produce("words", value)
    asked = [{"name": "words", "partitions": [{"partition_index": 0, "offset": 2}]}]

    (topic,) = client.call(DELETE_RECORDS, 1, topics=asked, timeout_ms=1)["topics"]

    assert topic["partitions"][0]["low_watermark"] == 2
    assert values_in(client.fetch("words", 2)) == [b"c"]
    assert client.fetch("words", 1)["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_time_of_the_log_is_told_to_the_producer(client):
    alter(client, ("message.timestamp.type", SET, "LogAppendTime"))

    row = client.produce("words", b"a")

    assert row["log_append_time_ms"] > 1_600_000_000_000


# --- offsets ------------------------------------------------------------------------------


def test_the_only_epoch_ends_where_the_log_ends(client):
    client.produce("words", b"a", b"b")

    def end_of(epoch, current=-1, name="words"):
        row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        asked = [{"topic": name, "partitions": [row]}]
        (topic,) = client.call(OFFSET_FOR_LEADER_EPOCH, 3, topics=asked)["topics"]
        found = topic["partitions"][0]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert end_of(0) == (0, 0, 2)
    assert end_of(4) == (0, -1, -1)
    assert end_of(0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of(0, name="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def delete_offset(client, group="readers", topic="words"):
    asked = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    answer = client.call(OFFSET_DELETE, 0, group_id=group, topics=asked)
    rows = [row["error_code"] for found in answer["topics"] for row in found["partitions"]]
    return answer["error_code"], rows


def commit(broker, *topics):
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1) for topic in topics}
    broker._machine.handle(OffsetCommit("readers", offsets), 0, lambda _: None)


def test_a_committed_offset_is_deleted_for_good(client, broker):
    broker.create_topic("others")
    commit(broker, "words", "others")

    assert delete_offset(client) == (0, [0])

    offsets = broker._machine.coordinator.group("readers").offsets
    assert [partition.topic for partition in offsets] == ["others"]
    reloaded = [row[2] for part in broker.read(TopicPartition("__consumer_offsets", 0), 0) for row in part.rows()]
    assert reloaded[-1] is None


def test_offsets_of_no_group_are_none(client):
    assert delete_offset(client, "nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_offsets_that_a_member_reads_are_kept(client, broker):
    from streams.group import Subscription, encode_subscription

    broker.create_topic("others")
    commit(broker, "words", "others")
    asked = {
        "group_id": "readers",
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": encode_subscription(Subscription(("words",)))}],
    }
    assert client.call(JOIN_GROUP, 2, **asked)["error_code"] == 0

    assert delete_offset(client) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete_offset(client, topic="others") == (0, [0])


def test_offsets_of_members_of_another_kind_are_kept(client, broker):
    commit(broker, "words")
    asked = {
        "group_id": "readers",
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "connect",
        "protocols": [{"name": "x", "metadata": b"\xff\xff"}],
    }
    assert client.call(JOIN_GROUP, 2, **asked)["error_code"] == 0

    assert delete_offset(client) == (ErrorCode.NON_EMPTY_GROUP, [])


# --- idempotence --------------------------------------------------------------------------


def test_a_repeated_batch_is_there_once(client):
    from streams.core.blocks.records import ProducerStamp
    from streams.protocol import batch

    producer = client.call(INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=0)
    stamp = ProducerStamp(producer["producer_id"], producer["producer_epoch"], 0)
    data = batch.encode(Block([None], [b"a"], [0], producer=stamp), 0)

    assert [client.produce_batch("words", data)["base_offset"] for _ in range(2)] == [0, 0]
    assert values_in(client.fetch("words")) == [b"a"]


def test_a_producer_s_batch_without_sequence_is_refused(client):
    from streams.core.blocks.records import ProducerStamp
    from streams.protocol import batch

    data = batch.encode(Block([None], [b"a"], [0], producer=ProducerStamp(1, 0, -1)), 0)

    assert client.produce_batch("words", data)["error_code"] == ErrorCode.INVALID_RECORD
    assert client.produce_batch("words", batch_of(b"b"))["base_offset"] == 0


# --- every API ----------------------------------------------------------------------------


def emptiest(kind):
    match kind:
        case Fixed(zero=zero):
            return zero
        case Text():
            return ""
        case Bytes():
            return b""
        case Array():
            return []
        case Struct(fields=fields):
            return {found.name: emptiest(found.type) for found in fields}


def served():
    from streams.broker.tcp.requests import VERSIONS

    return [(key, version) for key, (low, high) in sorted(VERSIONS.items()) for version in range(low, high + 1)]


@pytest.mark.case(4)
@pytest.mark.parametrize(("key", "version"), [pair for pair in served() if pair[0] not in (17, 36)])
def test_every_version_of_every_api_is_answered(client, key, version):
    """As empty a request as can be: an answer, or an error in it, but never an end of the connection."""
    fields = {
        found.name: emptiest(found.type)
        for found in APIS[key].request_fields
        if found.is_in(version) and found.tag is None
    }
    if key == 0:
        fields["acks"] = -1
    if key == 12 + 1 and version >= 3:
        fields["members"] = [{"member_id": "nobody", "group_instance_id": None}]

    assert client.call(key, version, **fields) is not None
    assert client.call(18, 0)["error_code"] == 0


def fullest(type_):
    """A value with one of everything, about the topic, partition 0 and what begins at 0."""
    match type_:
        case Fixed():
            return type_.zero
        case Text():
            return "words"
        case Bytes():
            return batch_of(b"a") if type_.is_records else b""
        case Array(of=of):
            return [fullest(of)]
        case Struct(fields=fields):
            return {found.name: fullest(found.type) for found in fields}


def trimmed(fields, version):
    """The fields that a version has, with one of everything."""
    found = {}
    for item in fields:
        if item.is_in(version) and item.tag is None:
            match item.type:
                case Array(of=Struct(fields=inner)):
                    found[item.name] = [trimmed(inner, version)]
                case Struct(fields=inner):
                    found[item.name] = trimmed(inner, version)
                case _:
                    found[item.name] = fullest(item.type)
    return found


@pytest.mark.case(4)
@pytest.mark.parametrize(("key", "version"), [pair for pair in served() if pair[0] not in (17, 36)])
def test_every_version_of_every_api_is_answered_about_something(client, key, version):
    client.produce("words", b"a")
    fields = trimmed(APIS[key].request_fields, version)
    if key == 0:
        fields |= {"acks": -1, "transactional_id": None}
    if key == 22:
        fields["transaction_timeout_ms"] = 1000

    assert client.call(key, version, **fields) is not None
    assert client.call(18, 0)["error_code"] == 0


def test_refusals_that_scripts_look_for_are_in_kafkas_words(client, broker):
    """``kafka-topics.sh`` prints them, and what is around it greps."""
    broker.create_topic("wide", 3)

    def grown(count):
        row = {"name": "wide", "count": count, "assignments": None}
        (found,) = client.call(CREATE_PARTITIONS, 1, topics=[row], timeout_ms=1000)["results"]
        return found["error_message"]

    (created,) = client.call(CREATE_TOPICS, 2, topics=[new_topic("words")], timeout_ms=1000)["topics"]

    assert created["error_message"] == "Topic 'words' already exists."
    assert grown(3) == "Topic already has 3 partition(s)."
    assert grown(2) == "The topic wide currently has 3 partition(s); 2 would not be an increase."


def new_topic(name, partitions=1):
    return {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
