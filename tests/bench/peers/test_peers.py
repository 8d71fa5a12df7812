"""The comparison's own arithmetic, and its queries over a few records."""

from pathlib import Path

from streams.testing import TopologyTestDriver
from tests.bench.peers import queries
from tests.bench.peers.compare import difference
from tests.bench.peers.queries import Auction, Bid, Enriched
from tests.bench.peers.results import Results, normal, ratio_table

BID = Bid(123, 7, 1000, "Google", "https://www.example.com/item/123", 5_000, "")
AUCTION = Auction(123, "item", 1, 2, 4_000, 9_000, 42, 11, "")


def run_line(query: str, system: str, number: int, cpu: float) -> dict[str, object]:
    said = {"n": 100, "cpu_per_m_committed": cpu, "rate_committed": 10, "cpu_per_m_2nd_half": cpu, "rate_2nd_half": 10}
    facts = {"kind": "run", "query": query, "system": system, "round": number}
    return {**facts, **normal(said, 100)}


def test_figures_are_per_input_record_of_the_query() -> None:
    """A system that has divided by half of the records has said twice the cost, and half of the rate."""
    line = normal({"n": 50, "cpu_per_m_committed": 8.0, "rate_committed": 10_000}, 100)

    assert (line["cpu"], line["rate"]) == (4.0, 20_000)


def test_broken_run_is_gone_on_with(tmp_path: Path) -> None:
    Results(tmp_path / "results").add(run_line("W1", "ours", 1, 5.0))

    again = Results(tmp_path / "results")

    assert again.has("W1", "ours", 1)
    assert not again.has("W1", "ours", 2)
    assert not again.has("W1", "quix", 1)


def test_misses_are_said(tmp_path: Path) -> None:
    """W1 is measured by the hand-fused program with sockets of its own."""
    results = Results(tmp_path / "results")
    for system, cpu in (("ours", 6.0), ("fused", 6.0), ("native", 5.0), ("kstreams", 14.0), ("quix", 70.0)):
        results.add(run_line("W1", system, 1, cpu))

    table = ratio_table(results, "2 cores")

    assert table.rows == [["W1", "1.20 (goal 1.15, missed)", "0.43 (goal 0.50)", "0.09 (goal 0.10)"]]


def test_outputs_are_compared_as_multisets(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("a\t1\t5\na\t1\t5\nb\t1\t6\n")
    theirs.write_text("a\t1\t5\nb\t1\t6\n")

    assert difference(ours, ours) == ""
    assert difference(ours, theirs).splitlines() == [
        "  ours only: a\t1\t5",
        "  ours only: 1 records",
        "  theirs only: 0 records",
    ]


def test_windowed_counts_go_out_under_key_and_start() -> None:
    for query, expected in (
        ("W1", [("123@0", 1)]),
        ("W2", [("123@0", 1), ("123@2000", 1), ("123@4000", 1)]),
        ("S1", [("7@5000", 1)]),
    ):
        with TopologyTestDriver(queries.QUERIES[query]) as driver:
            driver.pipe(queries.bids, BID, key="123", timestamp_ms=5_000)

            assert [(record.key, record.value) for record in driver.read_records(queries.counts)] == expected


def test_joins_enrich_bids() -> None:
    for query in ("J1", "J2"):
        with TopologyTestDriver(queries.QUERIES[query]) as driver:
            driver.pipe(queries.auctions, AUCTION, key="123", timestamp_ms=4_000)
            driver.pipe(queries.bids, BID, key="123", timestamp_ms=5_000)

            assert [record.value for record in driver.read_records(queries.pairs)] == [Enriched(123, 7, 1000, 42, 11)]
