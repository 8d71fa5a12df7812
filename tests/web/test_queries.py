"""Stores of several instances, asked over HTTP and in Python: every instance answers for all."""

from contextlib import ExitStack
from datetime import timedelta

import pyarrow as pa
import pytest

from streams import (
    EmbeddedBroker,
    InvalidStateStoreError,
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    Producer,
    RangeQuery,
    SessionKeyQuery,
    SessionWindows,
    State,
    Streams,
    StreamsRebalancingError,
    TimestampedKeyQuery,
    TimeWindows,
    Topic,
    VersionedKeyQuery,
    Window,
    Windowed,
    WindowKeyQuery,
    WindowRangeQuery,
)
from streams.core.blocks.records import TopicPartition
from streams.runtime import FailureReason
from tests.waiting import WATCHDOG_S
from tests.web.conftest import FAST, processed, send, until

PARTITIONS = 4
orders = Topic("orders", key=str, value=int, partitions=PARTITIONS)
prices = Topic("prices", key=str, value=int, partitions=PARTITIONS)
TEN = timedelta(milliseconds=10)
KEYS = [f"k{number:02}" for number in range(20)]


def topology(builder):
    stream = builder.stream(orders)
    grouped = stream.group_by_key()
    grouped.count("counts")
    grouped.windowed_by(TimeWindows.of(TEN, grace=timedelta(hours=1))).count("windows")
    grouped.windowed_by(SessionWindows.of(TEN, grace=timedelta(hours=1))).count("sessions")
    stream.group_by(lambda _, value: value % 3).count("by-value")
    builder.table(prices, store="prices", history=timedelta(hours=1))


class Group:
    """Three instances that serve each other, and a client of all."""

    def __init__(self, broker, client):
        self.broker, self.client = broker, client
        self.apps = [Streams(topology, application_id="app", broker=broker, **FAST) for _ in range(3)]
        # Before the start, and after it.
        self.servers = [streams.serve() for streams in self.apps[:2]]

    def start(self):
        for streams in self.apps:
            streams.start()
        self.servers.append(self.apps[2].serve())
        until(self.is_settled)

    def is_settled(self):
        if any(streams.state is not State.RUNNING or not streams.tasks() for streams in self.apps):
            return False
        owners = [streams.owner_of("counts", key) for streams in self.apps for key in KEYS]
        return all(owner.active and owner.active.application_server for owner in owners)

    def get(self, path, number=None, **arguments):
        """Ask one instance, or all, which say the same."""
        servers = self.servers if number is None else [self.servers[number]]
        found = [self.client.get(f"{server.url}/stores/{path}", params=arguments) for server in servers]
        assert len({(response.status_code, response.text) for response in found}) == 1
        return found[0]


@pytest.fixture(scope="module")
def group():
    import httpx

    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        made = Group(broker, stack.enter_context(httpx.Client(timeout=WATCHDOG_S)))
        made.start()
        for streams in made.apps:
            stack.callback(streams.close)
        send(broker, orders, [(key, number) for number, key in enumerate(KEYS * 3)])
        send(broker, prices, [("tea", 5), ("tea", 6), ("tea", 7), ("milk", 1)])
        until(lambda: processed(*made.apps) == len(KEYS) * 3 * 2 + 4)
        yield made


def test_every_instance_answers_for_every_key(group):
    for number, key in enumerate(KEYS):
        found = group.get(f"counts/keys/{key}").json()
        assert (found["key"], found["value"], found["timestamp"]) == (key, 3, 40 + number)
        missing = group.get(f"counts/keys/{key}-not").json()
        assert missing["error"] == "NO_SUCH_KEY"
    assert {streams.store("counts").get(KEYS[0]) for streams in group.apps} == {(3, 40)}
    assert {streams.store("counts").get("no") for streams in group.apps} == {None}


def test_a_store_of_undeclared_types_is_asked_on_instances_that_have_seen_no_record(group):
    for value in range(3):
        assert group.get(f"by-value/keys/{value}").json()["value"] == 20
    assert group.get("by-value/keys/x").json()["error"] == "BAD_KEY"


def test_a_scan_has_the_entries_of_all_instances_in_the_order_of_keys(group):
    assert [entry["key"] for entry in group.get("counts/range").json()["entries"]] == KEYS
    some = group.get("counts/range", **{"from": "k03", "to": "k11", "reverse": "true", "limit": 4}).json()
    assert [entry["key"] for entry in some["entries"]] == ["k11", "k10", "k09", "k08"]
    assert [entry["key"] for entry in group.get("counts/range", prefix="k1").json()["entries"]] == KEYS[10:]
    assert group.get("counts/count").json()["count"] == 20
    for streams in group.apps:
        assert [key for key, _ in streams.store("counts").all()] == KEYS
        assert streams.store("counts").range("k03", "k04") == [("k03", (3, 43)), ("k04", (3, 44))]
        assert streams.store("counts").approximate_num_entries() == 20


@pytest.mark.parametrize("store", ["counts", "windows", "sessions"])
@pytest.mark.parametrize("reverse", [False, True])
def test_pages_of_a_scan_are_the_scan(group, store, reverse):
    arguments = {"reverse": reverse}
    whole = group.get(f"{store}/range", 0, **arguments).json()["entries"]
    pages, after = [], {}
    while True:
        page = group.get(f"{store}/range", 1, limit=7, **arguments, **after).json()
        pages += page["entries"]
        if page["next"] is None:
            break
        assert len(page["entries"]) == 7
        after = {"after": page["next"]}
    assert pages == whole
    assert len(whole) == {"counts": 20}.get(store, 60)
    order = [(entry["key"], entry.get("window", {}).get("start", 0)) for entry in whole]
    assert order == sorted(order, reverse=reverse)


#: Paths and arguments of scans, and how many entries they have in all.
SCANS = [
    ("counts/range", {"prefix": "k1"}, 10),
    ("counts/range", {"prefix": "6b31", "key_format": "hex"}, 10),
    ("counts/range", {"from": "k05"}, 15),
    ("counts/range", {"to": "k05", "reverse": "1"}, 6),
    ("windows/range", {"from_time": 20, "to_time": 39}, 20),
    ("windows/range", {"from": "k01", "to": "k02", "from_time": "1970-01-01T00:00:00.020Z"}, 4),
    ("windows/range", {"from_time": 20, "reverse": ""}, 40),
    ("sessions/range", {"from_time": 25, "to_time": 44}, 20),
    ("sessions/range", {"from": "k03", "to": "k03", "reverse": "true"}, 3),
]


@pytest.fixture(scope="module")
def single(group):
    """One instance of another application, with the same topology over the same topics."""
    with Streams(topology, application_id="single", broker=group.broker, **FAST) as streams:
        with streams.serve() as server:
            until(lambda: processed(streams) == len(KEYS) * 3 * 2 + 4)
            yield server


@pytest.mark.case(3)
@pytest.mark.parametrize(("path", "arguments", "count"), SCANS)
def test_scan_of_a_group_is_that_of_one_instance_page_by_page_and_as_arrow(group, single, path, arguments, count):
    def pages(url, number, **more):
        after = {"limit": number}
        while True:
            found = group.client.get(f"{url}/stores/{path}", params=arguments | after | more)
            assert found.status_code == 200, found.text
            following = found.headers.get("streams-next") if more else found.json()["next"]
            yield pa.ipc.open_stream(found.content).read_all() if more else found.json()["entries"]
            if following is None:
                return
            after["after"] = following

    url = group.servers[0].url
    one = [entry for page in pages(single.url, 1_000) for entry in page]
    assert len(one) == count
    assert [entry for page in pages(url, 3) for entry in page] == one
    tables = pages(url, 4, format="arrow")
    assert [key for table in tables for key in table["key"].to_pylist()] == [entry["key"] for entry in one]


def test_scan_of_one_partition_has_its_keys_alone(group):
    parts = [group.get("counts/range", partition=number).json()["entries"] for number in range(PARTITIONS)]
    assert sorted(entry["key"] for part in parts for entry in part) == KEYS
    for number, part in enumerate(parts):
        for entry in part:
            assert group.get(f"counts/keys/{entry['key']}").json()["partition"] == number


def test_windows_and_sessions_of_a_key_by_time(group):
    found = group.get("windows/windows/k01", **{"from": 0, "to": 20}).json()["entries"]
    assert [(entry["window"], entry["value"]) for entry in found] == [
        ({"start": 0, "end": 10}, 1),
        ({"start": 20, "end": 30}, 1),
    ]
    back = group.get("windows/windows/k01", **{"from": "1970-01-01T00:00:00.020Z", "reverse": ""}).json()["entries"]
    assert [entry["window"]["start"] for entry in back] == [40, 20]
    sessions = group.get("sessions/sessions/k01", **{"from": 21}).json()["entries"]
    assert [entry["window"] for entry in sessions] == [{"start": 21, "end": 21}, {"start": 41, "end": 41}]
    for streams in group.apps:
        assert streams.store("windows").fetch("k01", 20) == (1, 21)
        assert streams.store("windows").fetch("k01", 0, 20) == [(0, (1, 1)), (20, (1, 21))]
        assert [key.window.start_ms for key, _ in streams.store("sessions").fetch("k01")] == [1, 21, 41]


def test_versions_of_a_key_as_of_a_time(group):
    assert group.get("prices/keys/tea").json()["value"] == 7
    old = group.get("prices/keys/tea", as_of=1).json()
    assert (old["value"], old["timestamp"], old["valid_to"]) == (6, 1, 2)
    found = group.get("prices/versions/tea", **{"from": 0, "to": 1}).json()["entries"]
    assert [(entry["value"], entry["timestamp"], entry["valid_to"]) for entry in found] == [(5, 0, 1), (6, 1, 2)]
    streams = group.apps[0]
    assert streams.query("prices", VersionedKeyQuery("tea", 0)).value.value == 5
    assert [
        version.value for version in streams.query("prices", MultiVersionedKeyQuery("tea", reverse=True)).value
    ] == [7, 6, 5]


def test_queries_have_results_with_partitions_and_positions(group):
    for streams in group.apps:
        found = streams.query("counts", KeyQuery("k01"))
        assert found.value == 3
        assert streams.query("counts", TimestampedKeyQuery("k01")).value == (3, 41)
        assert found.only.partition == streams.owner_of("counts", "k01").partition
        assert found.position.offsets.keys() == {TopicPartition("orders", found.only.partition)}
        ranged = streams.query("counts", RangeQuery("k01", "k02"))
        assert ranged.value == [("k01", 3), ("k02", 3)]
        assert sorted(ranged.partitions) == list(range(PARTITIONS))
        assert sum(offset + 1 for offset in ranged.position.offsets.values()) == 60
        one = streams.query("counts", RangeQuery(), partitions=[found.only.partition])
        assert ("k01", 3) in one.value
        assert len(one.partitions) == 1
        assert streams.query("windows", WindowKeyQuery("k01", 0, 10)).value == [(0, (1, 1))]
        windows = streams.query("windows", WindowRangeQuery(0, 0, "k01", "k01")).value
        assert windows == [(Windowed("k01", Window(0, 10)), (1, 1))]
        assert len(streams.query("sessions", SessionKeyQuery("k01")).value) == 3


def test_what_cannot_be_answered_says_why(group):
    streams = group.apps[0]
    found = streams.query("counts", WindowKeyQuery("k01"))
    assert found.only.failure is FailureReason.UNKNOWN_QUERY_TYPE
    with pytest.raises(LookupError, match="does not support WindowKeyQuery"):
        found.value  # noqa: B018
    with pytest.raises(InvalidStateStoreError, match="no partition 9: they are 0 to 3"):
        streams.query("counts", RangeQuery(), partitions=[9])
    for path, other in (
        ("counts/windows/k01", "/stores/counts/keys/K"),
        ("windows/keys/a", "/stores/windows/windows/K"),
    ):
        refused = group.get(path).json()
        assert refused["error"] == "UNKNOWN_QUERY_TYPE"
        assert other in refused["message"]
    for path, arguments in [
        ("counts/range", {"limit": "-1"}),
        # A page without entries would say that no more follow.
        ("counts/range", {"limit": "0"}),
        ("windows/windows/a", {"limit": "0"}),
        ("counts/range", {"limit": "1000000"}),
        ("counts/range", {"after": "###"}),
        ("counts/range", {"frm": "a"}),
        ("counts/keys/a", {"position": "x"}),
        ("counts/keys/a", {"position": "elsewhere:0:1"}),
        ("counts/keys/a", {"position": "orders:99:0"}),
        ("counts/range", {"position": "orders:99:0"}),
        ("counts/keys/a", {"partition": "9"}),
        ("windows/windows/a", {"from": "yesterday"}),
        # An argument that the answer would not heed.
        ("counts/keys/a", {"as_of": "2026-01-31"}),
        ("counts/keys/a", {"from": "5"}),
        ("windows/windows/a", {"as_of": "5"}),
        ("windows/range", {"prefix": "a"}),
    ]:
        assert group.get(path, **arguments).status_code == 400, (path, arguments)


def test_a_position_is_contained_or_refused_with_how_far_it_is(group):
    partition = group.apps[0].owner_of("counts", "k01").partition
    at = group.apps[0].query("counts", KeyQuery("k01")).position
    reached = at.offsets[TopicPartition("orders", partition)]

    assert group.get("counts/keys/k01", position=at.text()).json()["position"] == at.text()
    ahead = group.get("counts/keys/k01", position=f"orders:{partition}:{reached + 1}")
    assert (ahead.status_code, ahead.headers["retry-after"]) == (503, "1")
    assert (ahead.json()["error"], ahead.json()["position"]) == ("NOT_UP_TO_BOUND", at.text())
    bound = Position({TopicPartition("orders", partition): reached + 1})
    for streams in group.apps:
        assert streams.query("counts", KeyQuery("k01"), position=bound).only.failure is FailureReason.NOT_UP_TO_BOUND


def test_a_scan_as_arrow_has_windows_and_times_as_columns(group):
    headers = {"accept": "application/vnd.apache.arrow.stream"}
    raw = group.client.get(f"{group.servers[0].url}/stores/windows/range", headers=headers)
    table = pa.ipc.open_stream(raw.content).read_all()
    assert table.schema.names == ["key", "window_start", "window_end", "value", "timestamp"]
    assert table.schema.field("window_start").type == pa.timestamp("ms", "UTC")
    assert table.num_rows == 60
    for streams in group.apps:
        assert streams.store("windows").to_arrow().equals(table)
        assert streams.store("counts").to_arrow()["value"].to_pylist() == [3] * 20


def regrouped(builder):
    """Two repartitions, the second one of a table that the record cache holds back until the commit."""
    by_value = builder.stream(orders).group_by(lambda _, value: f"v{value % 3}").count("by-value")
    by_value.group_by(lambda key, count: ("all", count)).reduce(int.__add__, int.__sub__, name="total")
    builder.stream(orders).to("copies")
    builder.stream("copies", key=str, value=int).group_by_key().count("of-copies")


@pytest.mark.case
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_position_upstream_of_repartitions_is_read_your_write(broker, client, guarantee):
    settings = FAST | {"processing_guarantee": guarantee, "cache_max_bytes": 1_000_000}
    broker.create_topic("copies", PARTITIONS)
    with ExitStack() as stack:
        apps = [Streams(regrouped, application_id="app", broker=broker, **settings) for _ in range(2)]
        servers = [streams.serve() for streams in apps]
        for streams in apps:
            stack.enter_context(streams)
        until(lambda: all(streams.state is State.RUNNING and streams.tasks() for streams in apps))
        producer = stack.enter_context(Producer(broker))
        refused = 0
        for number, (store, key) in enumerate([("by-value", "v0"), ("total", "all"), ("of-copies", "k1")] * 4, 1):
            if number == 1:
                # However fast the application is: what it has not committed is refused.
                for streams in apps:
                    streams.pause()
            sent = producer.send(orders, 3, key="k1").result()
            bound = f"orders:{sent.partition}:{sent.offset}"
            path = f"{servers[number % 2].url}/stores/{store}/keys/{key}"
            while (found := client.get(path, params={"position": bound})).status_code == 503:
                assert found.json()["error"] in ("NOT_UP_TO_BOUND", "NOT_PRESENT")
                refused += 1
                for streams in apps:
                    streams.resume()
            assert found.json().get("value") == number, (store, found.status_code, found.json())
            # The position of an answer is a bound as well.
            again = client.get(path, params={"position": found.json()["position"]})
            assert again.json()["value"] == number
            scan = apps[number % 2].query(store, RangeQuery(), position=Position.parse(bound))
            assert scan.value == [(key, number)]
        assert refused
        ahead = client.get(path, params={"position": f"orders:{sent.partition}:{sent.offset + 1}"})
        assert (ahead.status_code, ahead.json()["position"]) == (503, bound)
        assert "not committed yet" in ahead.json()["message"]


def test_a_position_upstream_of_a_cycle_cannot_be_known_and_says_so(broker, client):
    def cyclic(builder):
        stream = builder.stream(orders).merge(builder.stream("round", key=str, value=int))
        stream.filter(lambda _, value: value > 0).to("round")
        builder.stream("again", key=str, value=int).merge(builder.stream("back", key=str, value=int)).to("again")
        stream.to("again")
        builder.stream("again", key=str, value=int).group_by_key().count("kept")

    for topic in ("round", "again", "back"):
        broker.create_topic(topic, PARTITIONS)
    with Streams(cyclic, application_id="app", broker=broker, **FAST) as streams, streams.serve() as server:
        until(lambda: streams.state is State.RUNNING and streams.tasks())
        found = client.get(f"{server.url}/stores/kept/keys/a", params={"position": "orders:0:1"})
        assert found.status_code == 400, found.text
        assert "form a cycle" in found.json()["message"]


@pytest.mark.slow
def test_a_server_that_is_closed_leaves_the_group_without_an_endpoint(broker, client):
    with Streams(topology, application_id="app", broker=broker, **FAST) as one:
        server = one.serve()
        with Streams(topology, application_id="app", broker=broker, **FAST) as two:
            with two.serve() as other:
                until(lambda: one.state is two.state is State.RUNNING and one.tasks() and two.tasks())
                theirs = next(key for key in KEYS if two.owner_of("counts", key).active.is_local)
                until(lambda: client.get(f"{server.url}/stores/counts/keys/{theirs}").status_code == 404)
                assert other.url
            until(lambda: "serves no HTTP" in client.get(f"{server.url}/stores/counts/keys/{theirs}").text)
            with pytest.raises(StreamsRebalancingError, match="serves no HTTP"):
                one.store("counts").get(theirs)


def test_a_standby_copy_answers_only_if_it_may_be_that_old(broker, client):
    settings = {"num_standby_replicas": 1, "session_timeout_ms": 60_000}
    with Streams(topology, application_id="app", broker=broker, **FAST | settings) as one:
        server = one.serve()
        two = Streams(topology, application_id="app", broker=broker, **FAST | settings)
        two.serve()
        two.start()
        try:
            until(lambda: one.state is two.state is State.RUNNING and one.copies() and two.copies())
            send(broker, orders, [(key, 0) for key in KEYS])
            until(lambda: processed(one, two) == 2 * len(KEYS))
            theirs = next(key for key in KEYS if two.owner_of("counts", key).active.is_local)
            path = f"{server.url}/stores/counts/keys/{theirs}"
            until(lambda: one.query("counts", KeyQuery(theirs), stale_ms=60_000).value == 1)
            # The other instance is gone for its peers, and the group does not know yet.
            two._servers[0]._server.close()

            assert client.get(path).json()["error"] == "NOT_PRESENT"
            until(lambda: client.get(path, params={"stale_ms": 60_000}).status_code == 200)
            found = client.get(path, params={"stale_ms": 60_000}).json()
            assert (found["value"], found["position"]) == (1, "")
            assert 0 <= found["stale_ms"] <= 60_000
            bound = {"stale_ms": 60_000, "position": "orders:0:0"}
            assert client.get(path, params=bound).json()["error"] == "NOT_UP_TO_BOUND"
        finally:
            two.close()
