"""Rows without a time are 1 ms apart if nothing in the replay needs event time, else they are refused."""

from datetime import timedelta

import pytest

from streams import (
    JoinWindows,
    Processor,
    PunctuationType,
    Suppressed,
    TimeWindows,
    Topic,
    key_value_store,
    punctuate,
)
from streams.core.errors import InputError
from streams.replay import explain, replay, why

LINES = Topic("lines", value=str)
COUNTS = Topic("counts", key=str, value=int)
SECOND = timedelta(seconds=1)


def grouped(builder):
    return builder.stream(LINES).flat_map_values(str.split).group_by(lambda _, word: word)


def word_count(builder):
    grouped(builder).count("words").to_stream().to(COUNTS)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("hello streams\nhello kafka streams\n")
    return path


class Timer(Processor[None, str, None, str]):
    @punctuate(SECOND, PunctuationType.STREAM_TIME)
    def tick(self, now_ms):
        """Nothing is done here."""


class Expiring(Processor[None, str, None, str]):
    seen = key_value_store(str, str, "seen", ttl=SECOND)


def joined(builder):
    words = grouped(builder).count("words").to_stream()
    words.join(words.map_values(lambda count: count), lambda a, b: a + b, JoinWindows.of(SECOND)).to(COUNTS)


TIMED = {
    "store 'words'": lambda b: grouped(b).windowed_by(TimeWindows.of(SECOND)).count("words"),
    "store 'KSTREAM-JOIN": joined,
    "store 'wait-store'": lambda b: grouped(b).count("n").suppress(Suppressed.until_time_limit(SECOND), name="wait"),
    "store 'kept'": lambda b: grouped(b).count("kept", history=SECOND),
    "store 'expiring'": lambda b: grouped(b).count("expiring", ttl=SECOND),
    "store 'seen'": lambda b: b.stream(LINES).process(Expiring),
    "a punctuation of node 'timer'": lambda b: b.stream(LINES).process(Timer, name="timer"),
    "a punctuation of node 'made'": lambda b: b.stream(LINES).process(lambda: Timer(), name="made"),
    "a replay with the times of topic 'orders'": lambda b: (
        b.stream(LINES),
        b.stream(Topic("orders", value=int, timestamp=lambda value: value)).to("out"),
    ),
}


def test_rows_are_a_millisecond_apart_and_this_is_said_once(lines, caplog):
    result = replay(word_count, {LINES: lines}, executor="local", processes=1)

    records = result.outputs[COUNTS].to_pylist()
    assert [(row["key"], row["value"], row["timestamp"]) for row in records][::2] == [
        ("hello", 1, 0),
        ("hello", 2, 1),
        ("streams", 2, 1),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"{lines}: rows have no times, so they are 1 ms apart from 1970-01-01T00:00:00Z on"
    ]


def test_why_and_explain_take_rows_without_times(lines):
    story = why(word_count, {LINES: lines}, "hello", executor="local")
    explanation = str(explain(word_count, {LINES: lines}, executor="local"))

    assert "offset 1: None: 'hello kafka streams'" in story.text
    assert "rows have no times, so they are 1 ms apart" in explanation


@pytest.mark.parametrize("needs", TIMED)
def test_rows_without_a_time_are_refused_if_something_uses_event_time(lines, needs):
    with pytest.raises(InputError) as caught:
        replay(TIMED[needs], {LINES: lines}, executor="local", processes=1)

    assert f"lines.txt:1: the row has no time, which {needs}" in str(caught.value)
    assert str(caught.value).endswith("declare Topic('lines', timestamp=...) or give records with a timestamp")


@pytest.mark.parametrize(
    ("options", "needs"),
    [({"until": 5}, "an end in event time"), ({"slices": "1d"}, "a span of event time")],
)
def test_options_in_event_time_need_the_times_of_rows(lines, options, needs):
    with pytest.raises(InputError, match=f"the row has no time, which {needs}"):
        replay(word_count, {LINES: lines}, executor="local", **options)


@pytest.mark.parametrize(("row", "fails"), [('{"value":"a"}', False), ('{"value":"a","timestamp":5}', True)])
def test_all_whole_records_have_a_time_or_none(tmp_path, row, fails):
    path = tmp_path / "lines.records.jsonl"
    path.write_text(f'{row}\n{{"value":"b"}}\n')
    if fails:
        with pytest.raises(InputError, match=r"1 of 2 rows have no time; give all of them one, or none"):
            replay(word_count, {LINES: path}, executor="local")
        return
    with replay(word_count, {LINES: path}, executor="local", processes=1) as result:
        assert list(result.outputs[COUNTS].to_pandas()["timestamp"]) == [0, 1]
