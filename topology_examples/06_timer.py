"""Devices that fall silent: a processor with a store and a timer.

The processor remembers when it last heard of each device.  Every minute of stream time it looks for
devices that have said nothing for five minutes, reports each once, and forgets it.  Stream time is
the highest event time seen, so a replay of old data reports the same silences.

    python topology_examples/06_timer.py
    streams run topology_examples/06_timer.py --input readings=readings.records.jsonl --output silences=-
"""

from datetime import timedelta

from streams import (
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Topic,
    key_value_store,
    punctuate,
)

PATIENCE_MS = 5 * 60_000

readings = Topic("readings", key=str, value=float)
silences = Topic("silences", key=str, value=int)


class SilenceDetector(Processor[str, float, str, int]):
    """Forwards (device, milliseconds of silence) once for every device that falls silent."""

    last_heard = key_value_store(str, int)

    def process(self, record: Record[str, float]) -> None:
        """Note when the device was heard; a late reading must not set the clock back."""
        known = self.last_heard.get(record.key)
        if known is None or record.timestamp_ms > known:
            self.last_heard.put(record.key, record.timestamp_ms)

    @punctuate(timedelta(minutes=1), PunctuationType.STREAM_TIME)
    def report(self, now_ms: int) -> None:
        """Report who is silent, and forget them."""
        silent = [(device, heard) for device, heard in self.last_heard.all() if now_ms - heard >= PATIENCE_MS]
        for device, heard in silent:
            self.last_heard.delete(device)
            self.context.forward(device, now_ms - heard)


def topology(builder: StreamsBuilder) -> None:
    """Report devices that fall silent."""
    builder.stream(readings).process(SilenceDetector).to(silences)


def main() -> None:
    """Let three devices speak; one of them stops after two minutes, another comes back."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    for minute in range(20):
        driver.pipe(readings, 20.0 + minute, key="attic", timestamp_ms=minute * 60_000)
        if minute < 3:
            driver.pipe(readings, 15.5, key="cellar", timestamp_ms=minute * 60_000)
        if minute < 2 or minute > 10:
            driver.pipe(readings, 18.0, key="garden", timestamp_ms=minute * 60_000)
        for device, silence_ms in driver.read(silences, tombstones=False):
            print(f"minute {minute:2}: {device} has been silent for {silence_ms // 60_000} minutes")


if __name__ == "__main__":
    main()
