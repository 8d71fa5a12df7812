"""What operators' tools ask: sizes, leaders, producers and transactions, access control; groups by state."""

import pytest

from streams.core.blocks.records import Block, ProducerStamp
from streams.protocol import batch
from streams.protocol.error_codes import ErrorCode
from tests.broker.tcp.by_hand import Client, values_in

LIST_OFFSETS, OFFSET_COMMIT, JOIN_GROUP, LEAVE_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 2, 8, 11, 13, 15, 16
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS = 22, 24, 25
END_TXN, WRITE_MARKERS, DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS = 26, 27, 29, 30, 31, 32
DESCRIBE_LOG_DIRS, ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, QUOTAS = 35, 43, 45, 46, 48
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, LIST_RESOURCES = 61, 65, 66, 74


# --- partitions ---------------------------------------------------------------------------


def sizes(client, *, topics=None, version=4):
    (folder,) = client.call(DESCRIBE_LOG_DIRS, version, topics=topics)["results"]
    rows = {(t["name"], p["partition_index"]): p["partition_size"] for t in folder["topics"] for p in t["partitions"]}
    return folder["log_dir"], rows


@pytest.mark.parametrize("version", [1, 2, 4])
def test_the_size_of_each_partition_is_told(client, version):
    client.produce("words", bytes(1000))

    log_dir, rows = sizes(client, version=version)

    assert log_dir == "memory"
    assert rows["words", 0] >= 1000


def test_sizes_of_some_partitions_and_the_folder_they_lie_in(tmp_path):
    from streams.broker import EmbeddedBroker

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words")
        broker.create_topic("others")
        with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
            client.produce("words", bytes(1000))
            asked = [{"topic": "words", "partitions": [0, 7]}, {"topic": "none", "partitions": [0]}]

            log_dir, rows = sizes(client, topics=asked)

    assert log_dir == str(tmp_path)
    assert list(rows) == [("words", 0)]
    assert rows["words", 0] == sum(path.stat().st_size for path in tmp_path.glob("logs/words-0/*.log"))


def test_every_leader_is_the_right_one(client):
    def elected(topics):
        rows = client.call(ELECT_LEADERS, 2, topic_partitions=topics)["replica_election_results"]
        return [row["error_code"] for topic in rows for row in topic["partition_result"]]

    assert elected([{"topic": "words", "partitions": [0, 5]}]) == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert elected(None) == []


def test_partitions_stay_where_they_are(client):
    def moved(partition, replicas):
        rows = [{"name": "words", "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        (topic,) = client.call(ALTER_REASSIGNMENTS, 0, topics=rows)["responses"]
        return topic["partitions"][0]["error_code"]

    assert moved(0, [0]) == 0
    assert moved(0, [1]) == moved(0, [0, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert moved(0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert moved(3, [0]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.call(LIST_REASSIGNMENTS, 0)["topics"] == []


def offset_for(client, timestamp):
    partition = {"partition_index": 0, "timestamp": timestamp}
    (topic,) = client.call(LIST_OFFSETS, 9, topics=[{"name": "words", "partitions": [partition]}])["topics"]
    found = topic["partitions"][0]
    assert found["leader_epoch"] == (0 if found["offset"] >= 0 else -1)
    return found["error_code"], found["timestamp"], found["offset"]


def test_the_first_record_with_the_highest_time_is_found(client):
    assert offset_for(client, -3) == (0, -1, -1)

    for times in ([5, 9], [9, 3], [7, 1]):
        client.produce_batch("words", batch.encode(Block([None] * 2, [b"a", b"b"], times), 0))

    assert offset_for(client, -3) == (0, 9, 1)
    assert offset_for(client, -4) == (0, -1, 0)
    assert offset_for(client, -5) == (0, -1, -1)


# --- producers and transactions -----------------------------------------------------------


def begun(client, transactional_id="payments", *values):
    """Begin a transaction with records in "words"; return who writes."""
    asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    found = client.call(INIT_PRODUCER_ID, 4, **asked)
    producer_id, epoch = found["producer_id"], found["producer_epoch"]
    owner = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
    client.call(ADD_PARTITIONS, 0, **owner, topics=[{"name": "words", "partitions": [0]}])
    stamp = ProducerStamp(producer_id, epoch, 0, is_transactional=True)
    data = batch.encode(Block([None] * len(values), list(values), [1] * len(values), producer=stamp), 0)
    rows = [{"name": "words", "partition_data": [{"index": 0, "records": data}]}]
    answer = client.call(0, 8, transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=rows)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return owner


def producers(client, partition=0):
    asked = [{"name": "words", "partition_indexes": [partition]}]
    (topic,) = client.call(DESCRIBE_PRODUCERS, 0, topics=asked)["topics"]
    return topic["partitions"][0]


def test_who_writes_is_told_and_where_their_transactions_began(client):
    client.produce("words", b"before")
    owner = begun(client, "payments", b"a", b"b")

    (found,) = producers(client)["active_producers"]

    assert (found["producer_id"], found["producer_epoch"]) == (owner["producer_id"], owner["producer_epoch"])
    assert (found["last_sequence"], found["current_txn_start_offset"]) == (1, 1)
    client.call(END_TXN, 0, **owner, committed=True)
    assert producers(client)["active_producers"][0]["current_txn_start_offset"] == -1
    assert producers(client, 5)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_transactions_are_listed_and_described(client):
    owner = begun(client, "payments", b"a")
    begun(client, "orders", b"b")
    client.call(END_TXN, 0, **owner, committed=False)

    def listed(**asked):
        answer = client.call(LIST_TRANSACTIONS, 1, **{"state_filters": [], "producer_id_filters": []} | asked)
        found = {row["transactional_id"]: row["transaction_state"] for row in answer["transaction_states"]}
        return found, list(answer["unknown_state_filters"])

    assert listed() == ({"payments": "CompleteAbort", "orders": "Ongoing"}, [])
    assert listed(state_filters=["Ongoing", "Strange"]) == ({"orders": "Ongoing"}, ["Strange"])
    assert listed(producer_id_filters=[owner["producer_id"]]) == ({"payments": "CompleteAbort"}, [])
    assert listed(duration_filter=3_600_000) == ({}, [])

    asked = ["orders", "none"]
    orders, none = client.call(DESCRIBE_TRANSACTIONS, 0, transactional_ids=asked)["transaction_states"]
    assert (orders["transaction_state"], orders["transaction_timeout_ms"]) == ("Ongoing", 60_000)
    assert [(row["topic"], list(row["partitions"])) for row in orders["topics"]] == [("words", [0])]
    assert none["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_hanging_transaction_can_be_aborted(client):
    owner = begun(client, "payments", b"hangs")
    client.produce("words", b"behind")
    assert values_in(client.fetch("words", isolation_level=1)) == []

    def abort(epoch, topic="words"):
        marker = {
            "producer_id": owner["producer_id"],
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        (found,) = client.call(WRITE_MARKERS, 1, markers=[marker])["markers"]
        return found["topics"][0]["partitions"][0]["error_code"]

    assert abort(owner["producer_epoch"] - 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert abort(0, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert abort(owner["producer_epoch"]) == 0

    row = client.fetch("words", isolation_level=1)
    assert row["last_stable_offset"] == 3
    assert [item["first_offset"] for item in row["aborted_transactions"]] == [0]
    assert abort(owner["producer_epoch"]) == 0, "and once more changes nothing"
    assert client.fetch("words")["high_watermark"] == 3


def test_a_producer_goes_on_in_its_next_epoch(client):
    """KIP-360: after an error it asks for one, naming the epoch it has; who names another is fenced."""
    owner = begun(client, "payments", b"a")
    client.call(END_TXN, 0, **owner, committed=False)
    asked = {"transactional_id": "payments", "transaction_timeout_ms": 60_000, "producer_id": owner["producer_id"]}

    found = client.call(INIT_PRODUCER_ID, 4, **asked, producer_epoch=owner["producer_epoch"])
    again = client.call(INIT_PRODUCER_ID, 4, **asked, producer_epoch=owner["producer_epoch"])
    other = client.call(INIT_PRODUCER_ID, 4, **asked, producer_epoch=7)

    assert (found["error_code"], found["producer_epoch"]) == (0, owner["producer_epoch"] + 1)
    assert again == found
    assert other["error_code"] == ErrorCode.PRODUCER_FENCED


# --- groups and settings ------------------------------------------------------------------


def join(client, group="readers"):
    asked = {
        "group_id": group,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert client.call(JOIN_GROUP, 2, **asked)["error_code"] == 0


def test_groups_are_listed_by_state_and_type(client):
    join(client)

    def listed(version=5, **asked):
        answer = client.call(LIST_GROUPS, version, **asked)
        return [(row["group_id"], row["group_state"], row["group_type"]) for row in answer["groups"]]

    everything = [("readers", "CompletingRebalance", "Classic")]
    assert listed() == listed(states_filter=["completingrebalance"]) == listed(types_filter=["classic"]) == everything
    assert listed(states_filter=["Stable", "Empty"]) == listed(types_filter=["Consumer"]) == []
    assert listed(2) == [("readers", "", "")]


def test_a_member_is_shown_with_the_address_it_comes_from(client):
    join(client)

    (group,) = client.call(DESCRIBE_GROUPS, 4, groups=["readers"])["groups"]

    assert group["members"][0]["client_host"] == "/127.0.0.1"


def test_a_note_that_is_too_long_is_answered(client):
    """The classic string has 32,767 bytes at most; a client that cannot write a longer one does not even ask."""
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 100_000}
    asked = [{"name": "words", "partitions": [partition]}]

    (topic,) = client.call(8, 8, group_id="readers", topics=asked)["topics"]

    assert topic["partitions"][0]["error_code"] == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_offsets_are_committed_for_partitions_that_there_are(client):
    def committed(*partitions):
        topics = [
            {"name": name, "partitions": [{"partition_index": number, "committed_offset": 1, "committed_metadata": ""}]}
            for name, number in partitions
        ]
        answer = client.call(8, 8, group_id="readers", topics=topics)
        return {(t["name"], p["partition_index"]): p["error_code"] for t in answer["topics"] for p in t["partitions"]}

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(("none", 0)) == {("none", 0): unknown}
    assert client.call(LIST_GROUPS, 5)["groups"] == []
    found = committed(("words", 0), ("none", 0), ("words", 9))

    assert found == {("words", 0): 0, ("none", 0): unknown, ("words", 9): unknown}
    (group,) = client.call(9, 8, groups=[{"group_id": "readers", "topics": None}])["groups"]
    assert [topic["name"] for topic in group["topics"]] == ["words"]


def test_a_committed_offset_comes_back_as_it_was_committed(tmp_path):
    """With the leader epoch of the last record read (KIP-320), after a restart too."""
    from streams.broker import EmbeddedBroker

    row = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "n", "committed_leader_epoch": 0}
    for is_first in (True, False):
        with EmbeddedBroker(tmp_path) as broker, broker.serve("127.0.0.1:0") as server:
            with Client(server.bootstrap_servers) as client:
                if is_first:
                    broker.create_topic("words")
                    client.call(8, 8, group_id="readers", topics=[{"name": "words", "partitions": [row]}])
                (group,) = client.call(9, 8, groups=[{"group_id": "readers", "topics": None}])["groups"]
                (found,) = group["topics"][0]["partitions"]

        assert {name: found[name.replace("committed_metadata", "metadata")] for name in row} == row


def described(client, kind, name):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (found,) = client.call(DESCRIBE_CONFIGS, 3, resources=[resource])["results"]
    return found["error_code"], {row["name"]: row["value"] for row in found["configs"]}


def test_settings_without_effect_are_shown_because_tools_read_them(client):
    """kafka-topics --at-min-isr-partitions fails without the first one."""
    found = described(client, 2, "words")[1]

    assert (found["min.insync.replicas"], found["unclean.leader.election.enable"]) == ("1", "false")
    assert found["cleanup.policy"] == "delete"


def test_what_has_no_settings_here_has_none(client):
    assert described(client, 8, "0") == (0, {})


def test_what_has_settings_is_listed_by_kind(client):
    join(client)

    def listed(*kinds):
        answer = client.call(LIST_RESOURCES, 1, resource_types=kinds)
        return answer["error_code"], [
            (row["resource_type"], row["resource_name"]) for row in answer["config_resources"]
        ]

    assert listed(2, 4, 32) == (0, [(2, "words"), (4, "0"), (32, "readers")])
    assert listed() == (0, [(2, "words"), (4, "0"), (8, "0"), (32, "readers")])  # all
    assert listed(16) == (0, [])  # client metrics
    assert listed(77)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert client.call(LIST_RESOURCES, 0)["config_resources"] == []


# --- who may do what ----------------------------------------------------------------------


def test_there_is_no_access_control_and_there_are_no_quotas(client):
    rule = {"principal": "User:a", "host": "*", "operation": 2, "permission_type": 3}
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    creation = {"resource_type": 2, "resource_name": "words", **rule}

    (created,) = client.call(CREATE_ACLS, 3, creations=[creation])["results"]
    (deleted,) = client.call(DELETE_ACLS, 3, filters=[anything])["filter_results"]
    shown = client.call(DESCRIBE_ACLS, 3, **anything)

    assert {found["error_code"] for found in (created, deleted, shown)} == {ErrorCode.SECURITY_DISABLED}
    assert client.call(QUOTAS, 1, components=[], strict=False)["entries"] == []


# --- what older clients know --------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_gets_a_code_that_its_version_knows(client, version, code):
    """The code PRODUCER_FENCED is known from version 2 on, and from version 4 on in InitProducerId (KIP-588)."""
    owner = begun(client, "payments", b"a")
    for _ in range(2):  # The first one aborts the transaction.
        client.call(INIT_PRODUCER_ID, 4, transactional_id="payments", transaction_timeout_ms=60_000)
    initialized = client.call(INIT_PRODUCER_ID, 3 if version == 0 else 4, **owner, transaction_timeout_ms=60_000)

    added = client.call(ADD_PARTITIONS, version, **owner, topics=[{"name": "words", "partitions": [0]}])
    group_added = client.call(ADD_OFFSETS, version, **owner, group_id="readers")
    ended = client.call(END_TXN, version, **owner, committed=True)

    assert added["results"][0]["results_by_partition"][0]["partition_error_code"] == code
    assert [group_added["error_code"], ended["error_code"], initialized["error_code"]] == [code, code, code]


def test_refused_records_of_a_batch_are_named(client, broker):
    """KIP-467: a producer may send the others again."""
    broker.create_topic("latest", config={"cleanup.policy": "compact"})
    keys = [None, b"b", b"c", None]
    data = batch.encode(Block(keys, [b"v"] * 4, [1] * 4), 0)
    rows = [{"name": "latest", "partition_data": [{"index": 0, "records": data}]}]

    answer = client.call(0, 8, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=rows)

    (result,) = answer["responses"][0]["partition_responses"]
    assert result["error_code"] == ErrorCode.INVALID_RECORD
    assert [row["batch_index"] for row in result["record_errors"]] == [0, 3]
    assert all("without a key" in row["batch_index_error_message"] for row in result["record_errors"])


@pytest.mark.parametrize("is_of_group", [False, True], ids=["no group", "empty group"])
def test_a_consumer_that_assigns_its_partitions_commits_under_any_member_id(client, is_of_group):
    if is_of_group:
        join(client)
        (group,) = client.call(DESCRIBE_GROUPS, 0, groups=["readers"])["groups"]
        client.call(LEAVE_GROUP, 0, group_id="readers", member_id=group["members"][0]["member_id"])
    partition = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
    rows = [{"name": "words", "partitions": [partition]}]
    owner = {"group_id": "readers", "generation_id_or_member_epoch": -1, "member_id": "its-own"}

    answer = client.call(OFFSET_COMMIT, 9, **owner, group_instance_id=None, topics=rows)

    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
