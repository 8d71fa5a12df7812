"""Our side of the applications that go from Kafka Streams in Java to ours and back: ``java/Takeover.java``.

    python -m tests.kafka.takeover TOPOLOGY APPLICATION SERVERS STATE_DIR GUARANTEE

Runs until SIGTERM.  The topics begin with the application id: ID-left, ID-right, ID-output.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from streams import (
    JoinWindows,
    Processor,
    Record,
    SessionWindows,
    State,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    ValueTimestampHeaders,
    key_value_store,
    run,
    session_windowed,
    time_windowed,
    timestamped_key_value_store_with_headers,
)
from streams.core.blocks.records import Headers

SIZE, GRACE = timedelta(seconds=10), timedelta(seconds=5)
Topology = Callable[[StreamsBuilder], None]


def reference(value: str) -> str | None:
    """Return the key of the right row: what is before the slash, None if there is nothing."""
    return value.partition("/")[0] or None if "/" in value else None


def both(left: str | None, right: str | None) -> str:
    return "|".join("null" if value is None else value for value in (left, right))


class Seen(Processor[str, str, str, str]):
    """Forwards the value that was seen before; a value without a reference forgets the key."""

    store = key_value_store(str, str, "seen")

    def process(self, record: Record[str, str]) -> None:
        before: str | None = self.store.get(record.key)
        self.store.put(record.key, record.value if record.value and reference(record.value) else None)
        self.context.forward(record.key, both(before, record.value).replace("|", ">"))


class Headed(Processor[str, str, str, str]):
    """As ``Seen``, with a header beside the value: forwards the headers that were seen before."""

    store = timestamped_key_value_store_with_headers(str, str, "headed")

    def process(self, record: Record[str, str]) -> None:
        before, found = self.store.get(record.key), "null"
        if before is not None:
            texts = (f",{name}={'null' if data is None else data.decode()}" for name, data in before.headers)
            found = before.value + "".join(texts)
        kept: ValueTimestampHeaders[str] | None = None
        if record.value and reference(record.value):
            headers: Headers = (("from", record.value.encode()), ("empty", b""), ("nothing", None))
            kept = ValueTimestampHeaders(record.value, record.timestamp_ms, () if "d" in record.value else headers)
        self.store.put(record.key, kept)
        self.context.forward(record.key, both(found, record.value).replace("|", ">"))


def topology_of(name: str, application_id: str) -> Topology:
    """Return the topology of this name."""
    left, right, output = (f"{application_id}-{part}" for part in ("left", "right", "output"))

    def foreign_key(builder: StreamsBuilder) -> None:
        one, two = (builder.table(Topic(topic, key=str, value=str)) for topic in (left, right))
        join = one.join if name == "fk-inner" else one.left_join
        join(two, both, foreign_key=lambda _, value: reference(value)).to_stream().to(Topic(output, key=str, value=str))

    def counts(builder: StreamsBuilder) -> None:
        grouped = builder.stream(Topic(left, key=str, value=str)).group_by_key()
        if name == "counts":
            grouped.count("counts").to_stream().to(Topic(output, key=str, value=int))
        elif name == "tumbling":
            target: Topic[Any, int] = Topic(output, key=time_windowed(str, SIZE), value=int)
            grouped.windowed_by(TimeWindows.of(SIZE)).count("tumbling").to_stream().to(target)
        else:
            target = Topic(output, key=session_windowed(str), value=int)
            windows = SessionWindows.of(SIZE, grace=timedelta(minutes=1))
            grouped.windowed_by(windows).count("sessions").to_stream().to(target)

    def versioned(builder: StreamsBuilder) -> None:
        table = builder.table(Topic(left, key=str, value=str), name="versions", history=timedelta(hours=1))
        table.to_stream().to(Topic(output, key=str, value=str))

    def suppressed(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(SIZE, grace=GRACE)
        counts = builder.stream(Topic(left, key=str, value=str)).group_by_key().windowed_by(windows).count("counts")
        target: Topic[Any, int] = Topic(output, key=time_windowed(str, SIZE), value=int)
        counts.suppress(Suppressed.until_window_closes(), name="held").to_stream().to(target)

    def joined(builder: StreamsBuilder) -> None:
        records, other, target = (
            builder.stream(Topic(left, key=str, value=str)),
            Topic(right, key=str, value=str),
            output,
        )
        if name == "grace":
            table = builder.table(other, name="versions", history=timedelta(hours=1))
            records.left_join(table, both, grace=GRACE, name="late").to(Topic(target, key=str, value=str))
            return
        join = records.outer_join if name == "outer" else records.left_join
        pairs = join(builder.stream(other), both, JoinWindows.of(SIZE, grace=GRACE), name="pairs", store="pairs")
        pairs.to(Topic(target, key=str, value=str))

    def seen(builder: StreamsBuilder) -> None:
        supplier = Headed if name == "headed" else Seen
        builder.stream(Topic(left, key=str, value=str)).process(supplier).to(Topic(output, key=str, value=str))

    found: dict[str, Topology] = dict.fromkeys(("grace", "outer", "left"), joined)
    found |= {"fk-inner": foreign_key, "fk-left": foreign_key, "versioned": versioned}
    found |= {"seen": seen, "headed": seen}
    return (found | {"suppressed": suppressed}).get(name, counts)


def main(name: str, application_id: str, servers: str, state_dir: str, guarantee: str) -> None:
    """Run until SIGTERM."""

    def on_state(now: State, before: State) -> None:
        print(f"state {now.value.upper()}", flush=True)

    run(
        topology_of(name, application_id),
        application_id=application_id,
        bootstrap_servers=servers,
        state_dir=state_dir,
        processing_guarantee=guarantee,
        on_state=on_state,
        commit_interval_ms=100,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=300,
        # What has passed through internal topics is compared too.
        repartition_purge_interval_ms=3_600_000,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
