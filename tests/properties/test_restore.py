"""What a changelog holds is the store."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Block
from streams.state import open_store
from tests.properties.profile import examples
from tests.properties.runs import contents, drive, run, stores_on_disk
from tests.properties.strategies import Demand, plans, rows

pytestmark = pytest.mark.world


@examples(150)
@given(st.data(), st.sampled_from([0, 0, 7, 40]))
def test_store_restored_from_its_changelog_holds_the_same(data: st.DataObject, pause_ms: int) -> None:
    """The whole changelog of each store, put into a fresh one; pauses make inputs idle."""
    plan = data.draw(plans(), label="topology")
    driven = drive(plan, data.draw(rows(plan), label="input"), pause_ms=pause_ms)

    for name, changelog in driven.changelogs.items():
        restored = open_store(driven.topology.stores[name])
        if changelog:
            keys, values, times = zip(*changelog, strict=True)
            restored.restore(Block(keys, values, times, None, range(len(keys))))

        assert contents(restored) == driven.stores[name, 0], name


@examples(40)
@given(st.data(), st.sampled_from([1, 3]))
def test_run_that_lost_its_stores_restores_them(data: st.DataObject, partitions: int) -> None:
    """The state directory is emptied; a run without new input fills it from the changelogs."""
    plan = data.draw(plans(), label="topology")
    given_rows = data.draw(rows(plan), label="input")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run(plan, given_rows, partitions=partitions, state_dir=home)
        kept = stores_on_disk(plan, home)
        shutil.rmtree(home / "state")
        run(plan, given_rows, partitions=partitions, state_dir=home)

        assert stores_on_disk(plan, home) == kept


@examples(40)
@given(st.data(), st.sampled_from([1, 3]))
def test_run_goes_on_after_a_restore_as_if_nothing_had_been_lost(data: st.DataObject, partitions: int) -> None:
    """Stores kept, stores lost, and stores in memory: what comes out of the rest of the input is the same."""
    plan = data.draw(plans(), label="topology")
    given_rows = data.draw(rows(plan), label="input")
    half = data.draw(st.integers(0, len(given_rows)), label="rows before the stop")
    results = []
    for is_lost, engine in ((False, "rocksdb"), (True, "rocksdb"), (False, "in_memory")):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            run(plan, given_rows[:half], partitions=partitions, state_dir=home, default_store=engine)
            if is_lost:
                shutil.rmtree(home / "state")
            again = run(plan, given_rows, partitions=partitions, state_dir=home, default_store=engine)
            results.append(again.outputs(plan))

    assert results[1] == results[0], "lost"
    assert results[2] == results[0], "in memory"


@examples(40)
@given(st.data(), st.sampled_from([1, 3]))
def test_run_that_was_stopped_gives_what_one_without_a_stop_gives(data: st.DataObject, partitions: int) -> None:
    """Stopped anywhere, restored, and gone on with: the same records at the same offsets.

    The input is in the order of time, so that all before the stop comes first without it too; and
    nothing is sent with an older time than what sets it off, which is what ``by_partition`` demands:
    a task would take it before records that it has already taken when it stopped.
    """
    demand = Demand(by_partition=True, has_global=False, null_keys=False)
    plan = data.draw(plans(demand), label="topology")
    given_rows = data.draw(rows(plan, in_order=True, null_keys=False), label="input")
    half = data.draw(st.integers(0, len(given_rows)), label="rows before the stop")
    settings: dict[str, Any] = {"partitions": partitions, "default_store": "in_memory"}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run(plan, given_rows[:half], state_dir=home, **settings)
        stopped = run(plan, given_rows, state_dir=home, **settings)

    whole = run(plan, given_rows, **settings)

    assert stopped.outputs(plan) == whole.outputs(plan)
