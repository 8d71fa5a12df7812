"""Sessions of the visitors of a web site, from its access log.

Requests of one client address belong to one session as long as no more than half an hour lies
between them.  Event time is in the line itself, and the lines are not in order: a line may be older
than the one before it, and may join two sessions into one.  The grace says how long a session waits
for such lines.  A session's key is its client and its window; when a session grows, its old window
is deleted (None) and the new one written.

    python topology_examples/02_sessions.py
    streams run topology_examples/02_sessions.py --input access=access.log.gz --output sessions=sessions.records.jsonl
"""

from datetime import datetime, timedelta

from streams import SessionWindows, StreamsBuilder, Topic, session_windowed

GAP = timedelta(minutes=30)
GRACE = timedelta(hours=1)

SAMPLE = """\
83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /images/kibana-search.png HTTP/1.1" 200 203023 "-" "Mozilla/5.0"
83.149.9.216 - - [17/May/2015:10:05:43 +0000] "GET /images/kibana-dashboard.png HTTP/1.1" 200 171717 "-" "Mozilla/5.0"
66.249.73.135 - - [17/May/2015:10:05:37 +0000] "GET /robots.txt HTTP/1.1" 200 - "-" "Googlebot/2.1"
83.149.9.216 - - [17/May/2015:11:02:10 +0000] "GET /projects/xdotool/ HTTP/1.1" 200 12292 "-" "Mozilla/5.0"
66.249.73.135 - - [17/May/2015:11:05:09 +0000] "GET /blog/tags/web HTTP/1.1" 404 324 "-" "Googlebot/2.1"
83.149.9.216 - - [17/May/2015:10:33:00 +0000] "GET /style.css HTTP/1.1" 200 4877 "-" "Mozilla/5.0"
"""


def client_of(line: str) -> str:
    """Return the client address of a line in the combined log format."""
    return line.split(" ", 1)[0]


def time_of(line: str) -> datetime:
    """Return the time of a line in the combined log format."""
    return datetime.strptime(line[line.index("[") + 1 : line.index("]")], "%d/%b/%Y:%H:%M:%S %z")


access = Topic("access", key=str, value=str, timestamp=time_of, key_from=client_of)
sessions = Topic("sessions", key=session_windowed(str), value=int)


def topology(builder: StreamsBuilder) -> None:
    """Count the requests in each session of each client."""
    (
        builder.stream(access)
        .group_by_key()
        .windowed_by(SessionWindows.of(GAP, grace=GRACE))
        .count("requests-per-session")
        .to_stream()
        .to(sessions)
    )


def main() -> None:
    """Print the updates of the sample's sessions; the last line of the log joins two of them."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    for line in SAMPLE.splitlines():
        driver.pipe(access, line, key=client_of(line))
        print(line[:50].replace(" - - ", " "), "...")
        for (client, window), count in driver.read(sessions):
            minutes = (window.end_ms - window.start_ms) / 60_000
            what = "deleted" if count is None else f"{count} requests"
            print(f"    {client:14} {minutes:5.1f} minutes  {what}")


if __name__ == "__main__":
    main()
