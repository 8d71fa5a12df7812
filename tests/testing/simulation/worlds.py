"""Topologies and inputs that the simulation's own tests run."""

from datetime import timedelta

from streams import (
    JoinWindows,
    Processor,
    Record,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    key_value_store,
    time_windowed,
)

SECOND = timedelta(seconds=1)

words = Topic("words", key=str, value=str)
others = Topic("others", key=str, value=str)
counts = Topic("counts", key=str, value=int)
window_counts = Topic("window-counts", key=time_windowed(str, 5 * SECOND), value=int)
pairs = Topic("pairs", key=str, value=str)

ONE = {words: [(f"k{index % 7}", f"w{index % 11}", index * 100) for index in range(200)]}
TWO = {
    words: [(f"k{index % 7}", f"w{index % 5}", index * 150) for index in range(110)],
    others: [(f"k{index % 7}", f"o{index % 5}", index * 150) for index in range(110)],
}
FOREIGN = {
    words: [(f"k{index % 9}", f"o{index % 5}", index * 150) for index in range(110)],
    others: [(f"o{index % 5}", f"v{index % 3}", index * 150) for index in range(110)],
}


def word_count(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by(lambda _, word: word).count("counts-store").to_stream().to(counts)


def two_tables(builder: StreamsBuilder) -> None:
    """A table that is grouped again: two repartitions, subtractions, three stores."""
    (
        builder.stream(words)
        .map_values(lambda word: word + "!")
        .group_by(lambda _, word: word)
        .count("words-store")
        .group_by(lambda word, count: (word[-2:], count))
        .reduce(lambda total, count: total + count, lambda total, count: total - count, "totals-store")
        .to_stream()
        .to(counts)
    )


def windows(builder: StreamsBuilder) -> None:
    counted = builder.stream(words).group_by_key()
    counted.windowed_by(TimeWindows.of(5 * SECOND, grace=100 * SECOND)).count("windows").to_stream().to(window_counts)
    sessions = counted.windowed_by(SessionWindows.of(SECOND, grace=100 * SECOND)).count("sessions")
    sessions.to_stream(lambda windowed, _: windowed.key).to(counts)


def windowed_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(2 * SECOND, grace=100 * SECOND)
    builder.stream(words).join(builder.stream(others), lambda left, right: left + right, windows).to(pairs)


def foreign_key_join(builder: StreamsBuilder) -> None:
    left, right = builder.table(words, "left"), builder.table(others, "right")
    left.join(right, lambda one, other: f"{one}/{other}", foreign_key=lambda _, word: word).to_stream().to(pairs)


class Numbering(Processor[str, str, str, int]):
    """Counts the records of each key, in a store as it should."""

    numbers = key_value_store(str, int)

    def process(self, record: Record[str, str]) -> None:
        number = (self.numbers.get(record.key) or 0) + 1
        self.numbers.put(record.key, number)
        self.context.forward(record.key, number)


class Forgetful(Processor[str, str, str, int]):
    """Counts in an attribute: right until its process dies."""

    def init(self, context) -> None:
        super().init(context)
        self.numbers: dict[str, int] = {}

    def process(self, record: Record[str, str]) -> None:
        self.numbers[record.key] = self.numbers.get(record.key, 0) + 1
        self.context.forward(record.key, self.numbers[record.key])


def numbering(builder: StreamsBuilder) -> None:
    builder.stream(words).process(Numbering).to(counts)


def forgetful(builder: StreamsBuilder) -> None:
    builder.stream(words).process(Forgetful).to(counts)


WORLDS = {
    "word count": (word_count, ONE),
    "two tables": (two_tables, ONE),
    "windows": (windows, ONE),
    "windowed join": (windowed_join, TWO),
    "numbering": (numbering, ONE),
}
