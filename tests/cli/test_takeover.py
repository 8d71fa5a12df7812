"""``streams takeover``: the command over what an application has left."""

import json
import signal

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopicPartition
from streams.clients import Admin
from tests.waiting import until

COUNTS = """\
from streams import StreamsBuilder, Topic

words = Topic("words", key=str, value=str)
totals = Topic("totals", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts").to_stream().to(totals)
"""
words = Topic("words", key=str, value=str)


def counts(builder: StreamsBuilder) -> None:
    grouped = builder.stream(words).group_by_key()
    grouped.count("counts").to_stream().to(Topic("totals", key=str, value=int))


@pytest.fixture(scope="module")
def servers():
    """A broker with an application that has counted words, and is stopped."""
    with EmbeddedBroker(auto_create_topics=False) as broker:
        for name in ("words", "totals"):
            broker.create_topic(name, 1)
        with Producer(broker) as producer:
            for number, word in enumerate("abaab"):
                producer.send(words, "x", key=word, timestamp_ms=1_000 * number)
        settings = {"default_store": "in_memory", "commit_interval_ms": 100}
        with Streams(counts, application_id="shop", broker=broker, **settings), Admin(broker) as admin:
            at = TopicPartition("words", 0)
            until(lambda: at in (found := admin.committed_offsets("shop")) and found[at].offset == 5)
        with broker.serve("127.0.0.1:0") as server:
            yield server.bootstrap_servers


@pytest.fixture
def takeover(streams, servers):
    streams.write("counts.py", COUNTS)
    where = ("--application-id", "shop", "--bootstrap-servers", servers)
    return lambda *arguments: streams("takeover", "counts.py", *where, *arguments)


def test_what_fits_is_said_with_status_0(streams, takeover):
    streams.write("java.txt", streams("describe", "counts.py").out)

    done = takeover("--topology", "java.txt", "--shadow-from", "earliest")

    assert done.err == ""
    # A changelog has the last count of each commit.
    assert [line for line in done.out.splitlines() if "entries" not in line] == [
        "shop: can go on here",
        "",
        "  group: Empty",
        "  committed offsets: 1, 1 with times of Kafka Streams",
        "  topology: the same in Java",
        "  record cache: 10,485,760 bytes, as in Java unless it was set there (--set cache_max_bytes=N)",
        "",
        "STORES",
        "",
        "SHADOW",
        "  5 input records, processed in memory",
        "  totals: 5 results, 5 here; all 2 keys equal",
        "",
        "nothing was changed; --execute starts the application here",
    ]
    assert done.status == 0


@pytest.mark.slow
def test_the_record_cache_is_that_of_java(streams, takeover):
    """Nodes behind it are named with a shadow, which has none."""
    assert "  record cache: none (cache_max_bytes=0)" in takeover("--set", "cache_max_bytes=0").out
    assert "  record cache: 1,000 bytes\n" in takeover("--set", "statestore.cache.max.bytes=1000").out
    filtered = COUNTS.replace(".to_stream()", '.to_stream().filter(lambda _, count: count > 0, name="some")')
    streams.write("counts.py", filtered)

    said = " ".join(takeover("--shadow-from", "earliest").out.split())

    assert "note: shadow: has no record cache; with one, results of these nodes depend on commits" in said
    assert "Java's may differ: some behind counts" in said
    assert "some behind" not in takeover("--shadow-from", "earliest", "--set", "cache_max_bytes=0").out


@pytest.mark.slow
def test_what_does_not_fit_is_said_with_status_1(streams, takeover):
    streams.write("java.txt", streams("describe", "counts.py").out.replace("[counts]", "[others]"))

    done = takeover("--topology", "java.txt", "--json")

    found = json.loads(done.out)
    assert (done.status, found["fits"], found["topology_differences"]) == (1, False, 2)
    assert {item["level"] for item in found["findings"]} == {"cannot", "but"}


@pytest.mark.slow
def test_a_mark_is_written_and_read(streams, takeover):
    marked = takeover("--mark", "shop.mark")

    assert (marked.status, marked.err) == (0, "streams: shop.mark: marks where the application stands\n")
    assert "0 input records" in takeover("--shadow-from", "shop.mark").out


@pytest.mark.case
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--give-back", "--execute"), "there is nothing to change"),
        (("--mark", "a", "--shadow-from", "b"), "one of them at a time"),
        (("--topology", "missing.txt"), "missing.txt"),
        (("--topology", "counts.py"), "Topology.describe()"),
        (("--shadow-from", "counts.py"), "is no mark"),
    ],
)
def test_mistakes_are_named_with_status_2(takeover, arguments, text):
    done = takeover(*arguments)

    assert (done.status, done.out) == (2, "")
    assert text in done.err


@pytest.mark.slow
def test_it_can_be_given_back(takeover):
    done = takeover("--give-back")

    assert (done.status, done.out.splitlines()[0]) == (0, "shop: Java can go on")


@pytest.mark.slow
def test_execute_starts_the_application(streams, servers):
    streams.write("counts.py", COUNTS)
    where = ("--application-id", "shop", "--bootstrap-servers", servers, "--execute")
    with streams.start("takeover", "counts.py", *where) as running:
        assert "runs on" in running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        assert "shop: can go on here" in running.communicate()[0]
    assert running.returncode == 0
