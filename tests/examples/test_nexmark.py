"""The Nexmark queries against plain Python over the same events, and the generator itself."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from topology_examples.nexmark import TOPICS, Nexmark, auctions, bids, persons

EVENTS = 12_000
TEN_SECONDS_MS = 10_000
HOP_MS = 2_000
EXAMPLES = Path(__file__).resolve().parents[2] / "topology_examples"


@pytest.fixture(scope="module")
def events() -> dict[str, list[dict[str, Any]]]:
    return {topic.name: [json.loads(value) for _, value, _ in Nexmark().rows(topic, EVENTS)] for topic in TOPICS}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = Nexmark().write(tmp_path_factory.mktemp("nexmark"), EVENTS)
    return {path.name.partition(".")[0]: path for path in paths}


def q0(events):
    return Counter(json.dumps(bid, sort_keys=True) for bid in events["bids"])


def q1(events):
    return Counter(json.dumps(bid | {"price": bid["price"] * 908 // 1000}, sort_keys=True) for bid in events["bids"])


def q2(events):
    return Counter(
        json.dumps({"auction": bid["auction"], "price": bid["price"]}, sort_keys=True)
        for bid in events["bids"]
        if bid["auction"] % 123 == 0
    )


def q3(events):
    people = {person["id"]: person for person in events["persons"] if person["state"] in {"OR", "ID", "CA"}}
    return {
        auction["id"]: {
            "auction": auction["id"],
            **{name: people[auction["seller"]][name] for name in ("name", "city", "state")},
        }
        for auction in events["auctions"]
        if auction["category"] == 10 and auction["seller"] in people
    }


def best_prices(events):
    """Return the highest bid of each auction, of those that come while it runs."""
    of_auction = defaultdict(list)
    for bid in events["bids"]:
        of_auction[bid["auction"]].append(bid)
    best = {}
    for auction in events["auctions"]:
        in_time = [
            bid["price"]
            for bid in of_auction[auction["id"]]
            if auction["date_time"] <= bid["date_time"] <= auction["expires"]
        ]
        if in_time:
            best[auction["id"]] = auction, max(in_time)
    return best


def q4(events):
    prices = defaultdict(list)
    for auction, price in best_prices(events).values():
        prices[auction["category"]].append(price)
    return {category: sum(found) / len(found) for category, found in prices.items()}


def q5(events):
    counts = defaultdict(Counter)
    for bid in events["bids"]:
        latest = bid["date_time"] // HOP_MS * HOP_MS
        for start in range(latest, bid["date_time"] - TEN_SECONDS_MS, -HOP_MS):
            counts[start][bid["auction"]] += 1
    hottest = {}
    for start, window in counts.items():
        auction, number = min(window.items(), key=lambda item: (-item[1], item[0]))
        hottest[start] = {"auction": auction, "bids": number}
    return hottest


def q6(events):
    sold = defaultdict(list)
    for auction, price in best_prices(events).values():
        sold[auction["seller"]].append((auction["expires"], auction["id"], price))
    last = {seller: [price for _, _, price in sorted(found)[-10:]] for seller, found in sold.items()}
    return {seller: sum(prices) / len(prices) for seller, prices in last.items()}


def q7(events):
    highest = {}
    for bid in events["bids"]:
        start = bid["date_time"] // TEN_SECONDS_MS * TEN_SECONDS_MS
        place = [bid[name] for name in ("price", "auction", "bidder", "date_time")]
        if start not in highest or place > highest[start][0]:
            highest[start] = place, bid
    return {start: bid for start, (_, bid) in highest.items()}


def q8(events):
    opened = Counter((auction["seller"], auction["date_time"] // TEN_SECONDS_MS) for auction in events["auctions"])
    found = {}
    for person in events["persons"]:
        window = person["date_time"] // TEN_SECONDS_MS
        if count := opened[person["id"], window]:
            start = window * TEN_SECONDS_MS
            found[person["id"], start, start + TEN_SECONDS_MS] = {"name": person["name"], "auctions": count}
    return found


def q11(events):
    times = defaultdict(list)
    for bid in events["bids"]:
        times[bid["bidder"]].append(bid["date_time"])
    sessions = {}
    for bidder, seen in times.items():
        seen.sort()
        cuts = [0, *(i for i in range(1, len(seen)) if seen[i] - seen[i - 1] > TEN_SECONDS_MS), len(seen)]
        for start, end in pairwise(cuts):
            sessions[bidder, seen[start], seen[end - 1]] = end - start
    return sessions


STATELESS = {"q0": q0, "q1": q1, "q2": q2}
TABLES = {"q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8, "q11": q11}


def check(query, rows, events, table_of):
    """Compare what a query wrote with its oracle: as a multiset where it is a stream, by key where it is a table."""
    if query in STATELESS:
        found = Counter(json.dumps(row["value"], sort_keys=True) for row in rows)
        assert found == STATELESS[query](events)
    else:
        assert table_of(rows) == TABLES[query](events)


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.exhaustive)])
def all_at_once(request, files, make_run, tmp_path_factory):
    """Return what all queries write in one run."""
    run = make_run(tmp_path_factory.mktemp("all"))
    return run("09_nexmark.py", files, [*STATELESS, *TABLES], partitions=request.param, options=["--final-flush"])


@pytest.mark.slow
@pytest.mark.parametrize("query", [*STATELESS, *TABLES])
def test_all_queries_at_once(query, all_at_once, events, table_of):
    """Also in company: q3's foreign keys make a cycle of the sub-topologies that q8 joins in."""
    check(query, all_at_once[query], events, table_of)


NEEDS = {
    "q3": ("persons", "auctions"),
    "q4": ("auctions", "bids"),
    "q6": ("auctions", "bids"),
    "q8": ("persons", "auctions"),
}


@pytest.mark.case
@pytest.mark.seeds("query", [*NEEDS, *(query for query in (*STATELESS, *TABLES) if query not in NEEDS)], 3)
def test_each_query_by_itself(query, files, events, run_stream, table_of):
    """Three partitions, so that keys move at every repartitioning."""
    inputs = {name: files[name] for name in NEEDS.get(query, ("bids",))}

    found = run_stream(f"09_nexmark.py:{query}", inputs, [query], partitions=3, options=["--final-flush"])

    check(query, found[query], events, table_of)


def test_every_query_has_something_to_answer(events):
    """An oracle of nothing would prove nothing."""
    assert all(len(oracle(events)) > 2 for oracle in (STATELESS | TABLES).values())


def test_ratio_is_one_to_three_to_forty_six():
    arrivals = Counter(name for name, _ in Nexmark().events(5000))

    assert arrivals == {"persons": 100, "auctions": 300, "bids": 4600}


def test_equal_seeds_give_equal_bytes_and_others_do_not():
    assert list(Nexmark(3).bids(1000)) == list(Nexmark(3).bids(1000))
    assert list(Nexmark(3).bids(1000)) != list(Nexmark(4).bids(1000))


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_values_are_what_the_topics_serdes_write(topic):
    """Canonical JSON, so that a pass-through gives the same bytes; times and keys are those in the value."""
    for key, value, time in Nexmark().rows(topic, 2000):
        decoded = topic.value_serde.deserialize(value)
        assert topic.value_serde.serialize(decoded) == value
        assert topic.key_serde.serialize(topic.key_from(decoded)) == key
        assert topic.timestamp(decoded) == time


def test_events_are_late_by_no_more_than_the_disorder():
    latest, worst, late = 0, 0, 0
    for _, (_, _, time) in Nexmark(disorder_ms=700).events(5000):
        late += time < latest
        worst = max(worst, latest - time)
        latest = max(latest, time)

    assert 500 < worst <= 700
    assert late > 2000


def test_every_bid_is_on_an_auction_that_was_opened_by_somebody_known():
    known: dict[str, set[int]] = {"persons": set(), "auctions": set()}
    for name, (key, value, _) in Nexmark().events(20_000):
        fields = json.loads(value)
        if name == "persons":
            known["persons"].add(fields["id"])
        elif name == "auctions":
            assert fields["seller"] in known["persons"]
            known["auctions"].add(fields["id"])
        else:
            assert fields["auction"] in known["auctions"]
            assert fields["bidder"] in known["persons"]
            assert int.from_bytes(key, "big") == fields["auction"]


def test_blocks_hold_the_rows_in_order_within_each_partition():
    rows = list(Nexmark().rows(auctions, 5000))

    blocks = [part for batch in Nexmark().blocks(auctions, 5000, partitions=3, size=77) for part in batch]

    seen = defaultdict(list)
    for partition, block in blocks:
        assert list(block.offsets) == list(range(len(seen[partition]), len(seen[partition]) + len(block)))
        seen[partition] += zip(block.keys, block.values, block.timestamps, strict=True)
    assert sorted(row for part in seen.values() for row in part) == sorted(rows)
    assert all(part == [row for row in rows if row in set(part)] for part in seen.values())


def test_a_reader_goes_on_after_the_rows_it_skips():
    def column(batches):
        found = defaultdict(list)
        for batch in batches:
            for partition, block in batch:
                found[partition] += zip(block.offsets, block.values, strict=True)
        return found

    whole = column(Nexmark().reader(bids, 5000)(4, 0))
    rest = column(Nexmark().reader(bids, 5000)(4, 1234))

    assert sum(map(len, whole.values())) - 1234 == sum(map(len, rest.values()))
    assert all(whole[partition][-len(part) :] == part for partition, part in rest.items())


def test_the_command_writes_the_files(run_module, tmp_path):
    printed = run_module("topology_examples.nexmark", "--events", 500, "--out", tmp_path / "out", "--plain")

    written = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "out").iterdir()}
    assert written == {"persons.jsonl": 10, "auctions.jsonl": 30, "bids.jsonl": 460}
    assert all(name in printed for name in written)
    assert json.loads((tmp_path / "out" / "persons.jsonl").open().readline()).keys() >= {"id", "name", "state"}
    assert persons.name == "persons"
