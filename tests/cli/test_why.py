"""``streams why``: the story of a key over files."""

import json

import pytest

SESSIONS = """\
from datetime import datetime, timedelta

from streams import SessionWindows, StreamsBuilder, Suppressed, Topic, session_windowed


def client_of(line: str) -> str:
    return line.split(" ", 1)[0]


def time_of(line: str) -> datetime:
    return datetime.strptime(line[line.index("[") + 1 : line.index("]")], "%d/%b/%Y:%H:%M:%S %z")


def is_page(client: str, line: str) -> bool:
    return line.split('"')[2].split()[0] == "200"


access = Topic("access", key=str, value=str, timestamp=time_of, key_from=client_of)
sessions = Topic("sessions", key=session_windowed(str), value=int)


def topology(builder: StreamsBuilder) -> None:
    pages = builder.stream(access).filter(is_page, name="pages")
    windows = SessionWindows.of(timedelta(minutes=30), grace=timedelta(minutes=1))
    counts = pages.group_by_key().windowed_by(windows).count("requests")
    counts.suppress(Suppressed.until_window_closes(), "closed").to_stream().to(sessions)
"""
LOG = """\
192.0.2.10 - - [18/May/2015:10:05:03 +0000] "GET /blog HTTP/1.1" 200 8012 "-" "Mozilla/5.0"
192.0.2.11 - - [18/May/2015:10:05:12 +0000] "GET /missing HTTP/1.1" 404 324 "-" "Mozilla/5.0"
192.0.2.10 - - [18/May/2015:10:07:41 +0000] "GET /blog/tags HTTP/1.1" 200 5210 "-" "Mozilla/5.0"
192.0.2.12 - - [18/May/2015:11:20:00 +0000] "GET /projects HTTP/1.1" 200 2120 "-" "Mozilla/5.0"
192.0.2.13 - - [18/May/2015:10:48:30 +0000] "GET /images/logo.png HTTP/1.1" 200 877 "-" "Mozilla/5.0"
"""


@pytest.fixture
def site(streams):
    """A script that counts requests by session, and the access log of a site."""
    streams.write("sessions.py", SESSIONS)
    streams.write("access.log", LOG)

    def ask(*arguments):
        return streams("why", "sessions.py", "--input", "access=access.log", *arguments)

    return ask


@pytest.mark.slow
def test_session_of_a_visitor_is_explained_by_its_requests(site):
    done = site("--key", "192.0.2.10", "--topic", "sessions")

    assert (done.status, done.err) == (0, "")
    assert "sessions: 1 record of key '192.0.2.10'" in done.out
    assert "requests: 2 records of key '192.0.2.10' in session 2015-05-18T10:05:03Z to 2015-05-18T10:07:41Z" in done.out
    assert "access-0 offset 2" in done.out
    assert "closed: suppressed until its window had closed" in done.out


@pytest.mark.slow
def test_value_of_a_filtered_request_is_shown_up_to_its_status(site, streams):
    """Requests of a real log have paths of 60 characters before the status that the filter looks at."""
    path = "/presentations/logstash-monitorama-2013/images/kibana-search.png"
    streams.write("access.log", LOG.replace("/missing", path))
    assert f'"GET {path} HTTP/1.1" 404 324' in site("--key", "192.0.2.11").out


@pytest.mark.case
@pytest.mark.parametrize(
    ("key", "at", "reason", "text"),
    [
        ("192.0.2.11", "2015-05-18T10:05", "pages: filtered", "the condition of filter 'is_page'"),
        ("192.0.2.12", "2015-05-18T11", "closed: suppressed", "1,860,000 ms (31 min) to go"),
        ("192.0.2.13", "2015-05-18T10:48", "requests: late", "so it came 30,000 ms too late"),
        ("192.0.2.14", "2015-05-18T10:05", "no such key", "similar keys: '192.0.2.1"),
        ("192.0.2.10", "2015-05-18T12:05", "not at that time", "1 at other times"),
    ],
)
def test_missing_session_of_a_visitor_is_explained(site, key, at, reason, text):
    done = site("--key", key, "--at", at)

    assert done.status == 1
    assert done.out.startswith(f"sessions: no record of key '{key}'")
    assert reason in done.out
    assert text in done.out


@pytest.mark.slow
def test_story_is_printed_as_json(site):
    told = json.loads(site("--key", "192.0.2.13", "--json").out)

    (end,) = told["ends"]
    assert end["reason"] == "late"
    assert end["numbers"]["missed_by_ms"] == 30_000
    assert end["record"]["offset"] == 4


@pytest.mark.case
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--key", "a", "--topic", "session"), "did you mean 'sessions'?"),
        (("--key", "a", "--node", "page"), "did you mean 'pages'?"),
        (("--key", "a", "--node", "pages", "--topic", "sessions"), "--topic and --node exclude each other"),
        (("--key", "a", "--at", "noon"), "at 'noon': give a time such as 2026-01-31T12:00"),
        ((), "--key"),
    ],
)
def test_mistake_is_one_line(site, arguments, error):
    done = site(*arguments)

    assert (done.status, done.out) == (2, "")
    assert error in done.err
    assert done.err.count("\n") == 1


@pytest.mark.slow
def test_history_is_needed(streams):
    streams.write("sessions.py", SESSIONS)
    assert "give the history, --input TOPIC=PATH" in streams("why", "sessions.py", "--key", "a").err
