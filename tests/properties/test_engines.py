"""Stores in memory and on disk are the same to a topology."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.profile import examples
from tests.properties.runs import compacted, run
from tests.properties.strategies import plans, rows


@pytest.mark.world
@examples(40)
@given(st.data(), st.sampled_from([1, 3]), st.sampled_from([0, 30_000]))
def test_stores_in_memory_and_on_disk_agree(data: st.DataObject, partitions: int, commit_interval_ms: int) -> None:
    """Outputs by offset, changelogs once compacted; with a commit each turn most reads go to the disk."""
    plan = data.draw(plans(), label="topology")
    given_rows = data.draw(rows(plan), label="input")
    settings: dict[str, Any] = {
        "partitions": partitions,
        "commit_interval_ms": commit_interval_ms,
        "max_poll_records": 5,
    }

    memory = run(plan, given_rows, **settings, default_store="in_memory")
    with tempfile.TemporaryDirectory() as folder:
        disk = run(plan, given_rows, **settings, default_store="rocksdb", state_dir=Path(folder))

    assert disk.outputs(plan) == memory.outputs(plan)
    for topic in memory.topics:
        if topic.endswith("-changelog"):
            assert compacted(disk.joined(topic)) == compacted(memory.joined(topic)), topic
