"""Settings of internal topics."""

import pytest

from streams import StreamsBuilder, Topic, UnlimitedWindows
from streams.bounded import run_bounded
from streams.runtime.plan.topic_configs import changelog_config
from streams.state import kinds
from streams.testing import TopologyTestDriver

WORDS = Topic("words", key=str, value=int)


def for_ever(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).group_by_key().windowed_by(UnlimitedWindows.of()).count("s")


def test_unlimited_windows_have_the_maximum_retention_of_kafka():
    (spec,) = TopologyTestDriver(for_ever).topology.stores.values()

    assert spec.kind is kinds.TIMESTAMPED_WINDOW
    assert changelog_config(spec)["retention.ms"] == str((1 << 63) - 1)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_changelog_without_end_can_be_made(partitions):
    run_bounded(for_ever, {"words": lambda count, skip: iter(())}, application_id="app", partitions=partitions).close()
