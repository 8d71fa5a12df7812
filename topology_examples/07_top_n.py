"""The three most wanted pages of each hour, from an access log.

Two stages.  The first counts each page in each hour and gives out final counts only.  The second
brings all counts of an hour together under the hour's start and keeps the best three; between the two
lies a repartition topic.  Only final counts travel there: fewer records, and nothing to take back.

    python topology_examples/07_top_n.py
    streams run topology_examples/07_top_n.py --input access=access.log.gz --output top=top.records.jsonl --final-flush
"""

from datetime import UTC, datetime, timedelta

from streams import StreamsBuilder, Suppressed, TimeWindows, Topic

N = 3
SIZE = timedelta(hours=1)
GRACE = timedelta(minutes=30)

SAMPLE = """\
10.0.0.1 - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 3638 "-" "Mozilla/5.0"
10.0.0.1 - - [17/May/2015:10:01:10 +0000] "GET /blog/?page=2 HTTP/1.1" 200 4877 "-" "Mozilla/5.0"
10.0.0.2 - - [17/May/2015:10:00:40 +0000] "GET / HTTP/1.1" 200 3638 "-" "curl/7.1"
10.0.0.3 - - [17/May/2015:10:12:00 +0000] "GET /robots.txt HTTP/1.1" 404 324 "-" "Googlebot/2.1"
10.0.0.3 - - [17/May/2015:10:12:01 +0000] "GET /blog/ HTTP/1.1" 200 4877 "-" "Googlebot/2.1"
10.0.0.3 - - [17/May/2015:10:12:02 +0000] "GET /projects/ HTTP/1.1" 200 9316 "-" "Googlebot/2.1"
10.0.0.1 - - [17/May/2015:11:01:00 +0000] "GET /projects/ HTTP/1.1" 200 9316 "-" "Mozilla/5.0"
10.0.0.2 - - [17/May/2015:10:59:59 +0000] "GET / HTTP/1.1" 200 3638 "-" "curl/7.1"
10.0.0.2 - - [17/May/2015:11:45:00 +0000] "GET /projects/ HTTP/1.1" 200 9316 "-" "curl/7.1"
"""

#: Pages with their counts, best first.
Ranking = list[tuple[str, int]]


def time_of(line: str) -> datetime:
    """Return the time of a line in the combined log format."""
    return datetime.strptime(line[line.index("[") + 1 : line.index("]")], "%d/%b/%Y:%H:%M:%S %z")


def page_of(line: str) -> str:
    """Return the path that a line asks for, without its query."""
    request = line.split('"', 2)[1]
    return request.split(" ")[1].partition("?")[0] if " " in request else request


access = Topic("access", value=str, timestamp=time_of)
top = Topic("top", key=int, value=Ranking)


def best(ranking: Ranking, page: str, count: int) -> Ranking:
    """Return the ranking with one page more, cut to N; of equal counts, the first by name is better."""
    return sorted([*ranking, (page, count)], key=lambda entry: (-entry[1], entry[0]))[:N]


def topology(builder: StreamsBuilder) -> None:
    """Rank the pages of each hour; the key is the hour's start in epoch milliseconds."""
    (
        builder.stream(access)
        .group_by(lambda _, line: page_of(line))
        .windowed_by(TimeWindows.of(SIZE, grace=GRACE))
        .count("page-counts")
        .suppress(Suppressed.until_window_closes())
        .to_stream(tombstones=False)
        .map(lambda page, count: (page.window.start_ms, (page.key, count)))
        .group_by_key(value=tuple[str, int])
        .aggregate(list, lambda _, entry, ranking: best(ranking, *entry), name="rankings", value=Ranking)
        .to_stream()
        .to(top)
    )


def main() -> None:
    """Print the ranking of the sample's first hour; the second is still open."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    for line in SAMPLE.splitlines():
        driver.pipe(access, line)
    for start_ms, ranking in dict(driver.read(top, tombstones=False)).items():
        print(f"{datetime.fromtimestamp(start_ms / 1000, UTC):%d %B, %H:%M}")
        for place, (page, count) in enumerate(ranking, 1):
            print(f"  {place}. {page:12} {'#' * count} {count}")


if __name__ == "__main__":
    main()
