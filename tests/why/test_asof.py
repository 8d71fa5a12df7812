"""Why an as-of join has a result, or none yet, or none at all."""

from datetime import timedelta

import pytest

from streams import StreamsBuilder, Topic
from streams.testing import TopologyTestDriver

left = Topic("left", key=str, value=str)
right = Topic("right", key=str, value=str)
out = Topic("out", key=str, value=str)
SECOND = timedelta(seconds=1)


def driver_of(direction: str) -> TopologyTestDriver:
    def topology(builder: StreamsBuilder) -> None:
        sides = builder.stream(left), builder.stream(right)
        options = {"tolerance": SECOND, "name": "quoted", "direction": direction}
        sides[0].join_latest(sides[1], lambda one, two: one + two, **options).to(out)

    driver = TopologyTestDriver(topology)
    for topic, value, key, time_ms in (
        (right, "r", "a", 0),
        (left, "l", "a", 400),
        (right, "s", "a", 600),
        (left, "m", "b", 2000),
        (left, "n", "c", 5000),
    ):
        driver.pipe(topic, value, key=key, timestamp_ms=time_ms)
    return driver


@pytest.mark.parametrize(
    ("direction", "text", "offsets"),
    [
        ("backward", "a record and its latest match, 400 ms earlier", [("left", 0), ("right", 0)]),
        ("forward", "a record and its next match, 200 ms later", [("left", 0), ("right", 1)]),
    ],
)
def test_result_names_both_records(direction: str, text: str, offsets: list[tuple[str, int]]) -> None:
    (output,) = driver_of(direction).why("a", out).outputs

    (made,) = output.causes
    assert text in made.text
    assert sorted((cause.topic, cause.offset) for cause in made.causes) == offsets


def test_record_without_a_match_and_one_that_waits_are_told_apart() -> None:
    driver = driver_of("backward")

    assert driver.why("b", out).reasons == ("no partner",)
    assert driver.why("c", out).reasons == ("window open",)
