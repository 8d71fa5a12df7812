r"""Hourly weather of three stations, three topics joined within a window: which temperatures go together?

Every observation of Newark (EWR) is paired with every one of Kennedy (JFK) and La Guardia (LGA)
that lies at most an hour away on the same day.  A join pairs records of the same key; the key here
is the day, so that the days spread over the partitions.  The three inputs are read as fast as
they come, and still no pair is lost: a task always takes the oldest of the records before it.

    python topology_examples/04_weather.py
    streams run topology_examples/04_weather.py --input ewr=ewr.csv --input jfk=jfk.csv --input lga=lga.csv \
        --output weather=weather.jsonl
"""

from datetime import datetime, timedelta

from attrs import frozen

from streams import JoinWindows, StreamsBuilder, Topic

DIFFERENCE = timedelta(hours=1)
GRACE = timedelta(days=1)

SAMPLE = """\
EWR,39.02,2013-01-01T06:00:00Z
JFK,39.02,2013-01-01T06:00:00Z
LGA,39.92,2013-01-01T06:00:00Z
EWR,39.02,2013-01-01T07:00:00Z
JFK,NA,2013-01-01T07:00:00Z
LGA,41.00,2013-01-01T08:00:00Z
"""


@frozen
class Observation:
    """One row of the weather file, as far as needed; ``temp`` is degrees Fahrenheit, or NA."""

    origin: str
    temp: str
    time_hour: datetime


@frozen
class Together:
    """Three observations that lie close together, in the order EWR, JFK, LGA."""

    times: tuple[datetime, ...]
    temps: tuple[str, ...]


def day_of(observation: Observation) -> str:
    """Return the day, UTC."""
    return observation.time_hour.date().isoformat()


def station(name: str) -> Topic[str, Observation]:
    """Return the topic of a station; plain rows get the day as key."""
    return Topic(name, key=str, value=Observation, timestamp=lambda seen: seen.time_hour, key_from=day_of)


ewr, jfk, lga = station("ewr"), station("jfk"), station("lga")
weather = Topic("weather", key=str, value=Together)


def together(left: Observation, right: Observation) -> Together:
    """Return two observations as one value."""
    return Together((left.time_hour, right.time_hour), (left.temp, right.temp))


def with_third(pair: Together, third: Observation) -> Together:
    """Return a pair with a third observation."""
    return Together((*pair.times, third.time_hour), (*pair.temps, third.temp))


def topology(builder: StreamsBuilder) -> None:
    """Join the three stations; a pair has the later time of its two."""
    windows = JoinWindows.of(DIFFERENCE, grace=GRACE)
    (
        builder.stream(ewr)
        .join(builder.stream(jfk), together, windows)
        .join(builder.stream(lga), with_third, windows)
        .to(weather)
    )


def main() -> None:
    """Print what goes together in the sample."""
    from streams.testing import TopologyTestDriver

    topics = {"EWR": ewr, "JFK": jfk, "LGA": lga}
    driver = TopologyTestDriver(topology)
    for line in SAMPLE.splitlines():
        origin, temp, time = line.split(",")
        seen = Observation(origin, temp, datetime.fromisoformat(time))
        driver.pipe(topics[origin], seen, key=day_of(seen))
    print("day         EWR           JFK           LGA")
    for day, found in driver.read(weather, tombstones=False):
        print(day + "".join(f"  {time:%H:%M} {temp:>6}" for time, temp in zip(found.times, found.temps, strict=True)))


if __name__ == "__main__":
    main()
