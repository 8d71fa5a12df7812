"""Who takes over a state directory removes the members of the process before: nobody waits for their sessions."""

import logging
from pathlib import Path

import pytest

from streams import EmbeddedBroker, State, Streams, StreamsBuilder, Topic
from streams.state import StateDirectory
from tests.waiting import until

words = Topic("words", key=str, value=str)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts")


@pytest.mark.parametrize("is_same", [True, False])
def test_members_of_the_process_before_are_removed_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_same: bool
) -> None:
    """The one before still runs here, and says that it was removed; another state directory removes nobody."""
    caplog.set_level(logging.INFO, "streams")
    after = StateDirectory.of(tmp_path / "after", "app")
    if is_same:
        before = StateDirectory.of(tmp_path / "before", "app")
        after.path.mkdir(parents=True)
        (after.path / ".process").write_text(before.process_id())
    with EmbeddedBroker() as broker:
        broker.create_topic(words, partitions=2)
        settings = {"application_id": "app", "broker": broker, "poll_ms": 10, "heartbeat_interval_ms": 20}
        with Streams(topology, state_dir=str(tmp_path / "before"), **settings) as first:
            until(lambda: first.state is State.RUNNING)
            with Streams(topology, state_dir=str(tmp_path / "after"), **settings) as second:
                until(lambda: second.state is State.RUNNING and first.state is State.RUNNING)

    assert any("the group has rebalanced without this member" in message for message in caplog.messages) == is_same
