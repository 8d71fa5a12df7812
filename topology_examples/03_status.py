r"""Errors of a web site per status class (4xx, 5xx), in windows of an hour every quarter of an hour.

Only final results are written: ``suppress`` holds the count of a window back until the window is
closed, that is until stream time has passed its end and its grace.  In a bounded run, ``--final-flush``
closes at the end what stream time alone would leave open.

    python topology_examples/03_status.py
    streams run topology_examples/03_status.py --input access=access.log.gz \
        --output errors=errors.records.jsonl --final-flush
"""

from datetime import UTC, datetime, timedelta

from streams import StreamsBuilder, Suppressed, TimeWindows, Topic, time_windowed

SIZE = timedelta(hours=1)
ADVANCE = timedelta(minutes=15)
GRACE = timedelta(minutes=30)

SAMPLE = """\
10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 203023 "-" "Mozilla/5.0"
10.0.0.2 - - [17/May/2015:10:20:00 +0000] "GET /favicon.ico HTTP/1.1" 404 324 "-" "Mozilla/5.0"
10.0.0.3 - - [17/May/2015:10:19:00 +0000] "GET /wp-login.php HTTP/1.1" 404 324 "-" "curl/7.1"
10.0.0.3 - - [17/May/2015:10:50:00 +0000] "GET /search HTTP/1.1" 500 12 "-" "curl/7.1"
10.0.0.1 - - [17/May/2015:13:00:00 +0000] "GET /old HTTP/1.1" 404 324 "-" "Mozilla/5.0"
"""


def client_of(line: str) -> str:
    """Return the client address of a line in the combined log format."""
    return line.split(" ", 1)[0]


def time_of(line: str) -> datetime:
    """Return the time of a line in the combined log format."""
    return datetime.strptime(line[line.index("[") + 1 : line.index("]")], "%d/%b/%Y:%H:%M:%S %z")


def status_of(line: str) -> int:
    """Return the HTTP status of a line in the combined log format: the first word after the quoted request."""
    request = line.index('"')
    end = line.index('" ', request + 1)
    return int(line[end + 2 : end + 5])


access = Topic("access", key=str, value=str, timestamp=time_of, key_from=client_of)
errors = Topic("errors", key=time_windowed(str, SIZE), value=int)


def topology(builder: StreamsBuilder) -> None:
    """Count the errors of each class in each window."""
    (
        builder.stream(access)
        .map_values(status_of)
        .filter(lambda _, status: status >= 400)
        .group_by(lambda _, status: f"{status // 100}xx")
        .windowed_by(TimeWindows.of(SIZE, advance=ADVANCE, grace=GRACE))
        .count("errors-per-class")
        .suppress(Suppressed.until_window_closes())
        .to_stream()
        .to(errors)
    )


def main() -> None:
    """Print the closed windows of the sample."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    for line in SAMPLE.splitlines():
        driver.pipe(access, line, key=client_of(line))
    for (status_class, window), count in driver.read(errors, tombstones=False):
        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in window)
        print(f"{start:%H:%M}-{end:%H:%M}  {status_class}  {'#' * count} {count}")


if __name__ == "__main__":
    main()
