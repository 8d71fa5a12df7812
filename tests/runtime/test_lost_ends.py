"""A run over files that was killed, exactly once, and whose logs have lost more than their last batch since.

The next run either ends with the totals of an undisturbed run, or refuses to start.  It never ends with others.
"""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams import LostRecordsError
from streams.broker.logs.checkpoint import read_checkpoint, write_checkpoint
from streams.broker.logs.files import OpenFiles
from streams.broker.logs.segment import Segment
from streams.broker.repair import repair
from streams.core.errors import DamagedLogError
from tests import programs
from tests.runtime.killed_run import COMPLETE, totals


def few(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


def run_and_kill(folder: Path, fsync: str, interval_ms: int) -> Path:
    status = programs.run(["-m", "tests.runtime.killed_run", str(folder), fsync, str(interval_ms)]).returncode
    assert status == -9
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """The state directory of a run that was killed in the middle."""
    return run_and_kill(tmp_path_factory.mktemp("killed") / "state", "never", 1)


@pytest.fixture(scope="module")
def synced(tmp_path_factory) -> Path:
    """The same of a run that syncs at its commits, within a transaction with some outputs."""
    return run_and_kill(tmp_path_factory.mktemp("synced") / "state", "commit", 60)


def logs(folder: Path) -> list[Path]:
    """Return the folders of the logs that have records, each with its last segment."""
    found = sorted((folder / "broker" / "logs").iterdir())
    return [log for log in found if last_segment(log).stat().st_size]


def last_segment(log: Path) -> Path:
    return max(log.glob("*.log"))


def batches(path: Path) -> list[tuple[int, int]]:
    """Return the position and the offset of each batch of a segment."""
    segment, damage = Segment.open(path, OpenFiles())
    assert damage is None
    position, found = 0, []
    for header, _ in segment._scan(0, segment.size):
        found.append((position, header.base_offset))
        position += header.size
    return found


@pytest.fixture
def copied(killed, tmp_path_factory):
    """A function that copies the state directory of a killed run."""

    def copy(state: Path = killed) -> Path:
        folder = tmp_path_factory.mktemp("copy") / "state"
        shutil.copytree(state, folder)
        return folder

    return copy


def outcome(folder: Path) -> str:
    """Run again over all rows; what comes out must be right, or nothing comes out."""
    try:
        result = totals(folder)
    except (DamagedLogError, LostRecordsError) as error:
        return str(error)
    finally:
        shutil.rmtree(folder)
    assert result == COMPLETE
    return ""


def test_a_killed_run_goes_on(copied):
    assert outcome(copied()) == ""


@few(20)
@given(st.data())
def test_a_log_that_was_cut_at_any_byte_is_refused(copied, data):
    folder = copied()
    log = data.draw(st.sampled_from(logs(folder)), label="log")
    segment = last_segment(log)
    os.truncate(segment, data.draw(st.integers(0, segment.stat().st_size - 1), label="size"))

    assert f"the log of {log.name} is damaged" in outcome(folder)


@few(12)
@given(st.data())
def test_state_or_offsets_of_an_older_copy_give_no_wrong_totals(copied, data):
    """The recovery point is that of the older copy, too."""
    folder = copied()
    log = data.draw(st.sampled_from([log for log in logs(folder) if "lanes" not in log.name]), label="log")
    segment = last_segment(log)
    position, offset = data.draw(st.sampled_from(batches(segment)[8:]), label="cut")
    os.truncate(segment, position)
    write_checkpoint(log / "recovery-point", offset, is_durable=False)

    outcome(folder)


@few(6)
@given(st.data())
def test_what_a_power_failure_may_take_from_a_run_that_syncs_is_made_again(copied, synced, data):
    """Each log may have lost what was written after its own last sync, which its recovery point says."""
    folder = copied(synced)
    for log in logs(folder):
        noted, segment = read_checkpoint(log / "recovery-point") or 0, last_segment(log)
        first = next((place for place, offset in batches(segment) if offset >= noted), segment.stat().st_size)
        os.truncate(segment, data.draw(st.integers(first, segment.stat().st_size), label=log.name))

    assert outcome(folder) == ""


def older_offsets(folder: Path) -> Path:
    """Put the log of committed offsets back to the end of an earlier transaction."""
    log = folder / "broker" / "logs" / "__consumer_offsets-0"
    segment = last_segment(log)
    # Each transaction is a batch of offsets and a marker; the first batches are those of the group.
    ended = [place for place in batches(segment)[20:-20] if _ends_transaction(segment, place[0])]
    position, offset = ended[len(ended) // 2]
    os.truncate(segment, position)
    write_checkpoint(log / "recovery-point", offset, is_durable=False)
    return folder


def _ends_transaction(path: Path, position: int) -> bool:
    """Whether the batch before a position is a transaction marker."""
    segment, _ = Segment.open(path, OpenFiles())
    before = None
    at = 0
    for header, _ in segment._scan(0, segment.size):
        if at == position:
            return before is not None and before.is_control
        before = header
        at += header.size
    return False


def test_changelogs_that_are_ahead_of_the_committed_offsets_are_refused(copied):
    """The transactions that the offsets have lost are whole in all other logs."""
    error = outcome(older_offsets(copied()))

    assert "of store 'sums'" in error
    assert "the committed offsets, which are of the same transaction, end before them" in error


def test_changelogs_without_any_committed_offset_are_refused(copied):
    """As after a repair that could save none of the commits."""
    folder = copied()
    log = folder / "broker" / "logs" / "__consumer_offsets-0"
    os.truncate(last_segment(log), 0)
    repair(log, is_trial=False)

    assert "the committed offsets, which are of the same transaction, end before them" in outcome(folder)


def test_lost_commits_can_be_accepted(copied, caplog):
    result = totals(older_offsets(copied()), lost_records="accept")

    assert "accepted: their inputs are processed a second time" in caplog.text
    assert result != COMPLETE
