"""Word count: split lines, group by word, count.

Shows a stateless step, a change of key (which goes through a repartition topic) and a count whose
every update goes to a topic.

    python topology_examples/01_word_count.py
    streams run topology_examples/01_word_count.py --input lines=README.txt --output counts=-
"""

from streams import StreamsBuilder, Topic

lines = Topic("lines", value=str)
counts = Topic("counts", key=str, value=int)

SAMPLE = (
    "all streams lead to kafka",
    "hello kafka streams",
    "join kafka summit",
)


def topology(builder: StreamsBuilder) -> None:
    """Count the words of all lines."""
    (
        builder.stream(lines)
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda _, word: word)
        .count("word-counts")
        .to_stream()
        .to(counts)
    )


def main() -> None:
    """Count the words of the sample and print every update, then the table."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    for second, line in enumerate(SAMPLE):
        driver.pipe(lines, line, timestamp_ms=second * 1000)
    updates = driver.read(counts, tombstones=False)
    print("updates:", " ".join(f"{word}={count}" for word, count in updates))
    for word, count in sorted(dict(updates).items(), key=lambda item: (-item[1], item[0])):
        print(f"{word:10} {'#' * count} {count}")


if __name__ == "__main__":
    main()
