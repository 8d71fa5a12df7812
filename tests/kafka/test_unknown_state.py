"""A changed topology over the state of a cluster: what it does not know is named."""

from pathlib import Path
from typing import Any

import pytest

from streams import Streams, StreamsBuilder, Topic, UnknownStateError
from streams.clients import Admin, Producer, StatefulGroupError
from streams.clients.admin import EARLIEST
from streams.core.blocks.records import TopicPartition
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from tests.waiting import until

FIRST = "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
CLICKS = Topic("unknown-state-clicks", key=str, value=int)
AT = TopicPartition(CLICKS.name, 0)


def counting(filtered: bool = False, **options: Any) -> Any:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(CLICKS)
        if filtered:
            stream = stream.filter(lambda key, value: value > 0)
        stream.group_by_key().count(**options)

    return topology


def counted(cluster: Cluster, folder: Path, topology: Any, offset: int) -> list[Any]:
    """Run an application until it has committed an offset; return what its store has."""
    given = {"state_dir": str(folder), "commit_interval_ms": 100, "poll_ms": 20}
    with Streams(topology, application_id="unknown", broker=cluster, **given) as app, Admin(cluster) as admin:

        def is_done() -> bool:
            found = admin.committed_offsets("unknown").get(AT)
            return found is not None and found.offset >= offset

        until(is_done, lambda: app.wait(50))
        return [(key, value.value) for key, value in app.store(FIRST).all()]


def test_a_moved_name_is_refused_and_offsets_are_not_moved_without_the_state(cluster: Cluster, tmp_path: Path) -> None:
    with Admin(cluster) as admin:
        admin.create_topics([TopicSpec(CLICKS.name, 1), TopicSpec("unknown-eu-sums-changelog", 1)])
        with Producer(cluster) as producer:
            for _ in range(3):
                producer.send(CLICKS, 1, key="ann", timestamp_ms=0)
        # Behind the records: a broker may tell of a topic before it takes offsets of it.
        admin.alter_offsets("unknown-eu", {AT: 0})
        assert counted(cluster, tmp_path, counting(), 3) == [("ann", 3)]

        with pytest.raises(UnknownStateError, match=f"starts empty while '{FIRST}' is left over") as caught:
            counted(cluster, tmp_path, counting(filtered=True), 3)
        assert caught.value.topics == (f"unknown-{FIRST}-changelog",)
        with pytest.raises(StatefulGroupError, match=f"unknown-{FIRST}-changelog"):
            admin.rewind("unknown", to=EARLIEST)

        with Producer(cluster) as producer:
            producer.send(CLICKS, 1, key="ann", timestamp_ms=0)
        assert counted(cluster, tmp_path, counting(filtered=True, store=FIRST), 4) == [("ann", 4)]
