"""The lock of a folder: two replays, or a replay and an archive, do not write in one at the same time."""

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topic
from streams.replay import FolderLockedError, Plan, ReplayError, replay
from streams.replay.storage.places import LOCK, Place

numbers = Topic("numbers", key=str, value=int)
out = Topic("out", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).to(out)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    file = tmp_path / "numbers.records.jsonl"
    file.write_text("".join(f'{{"key": "k", "value": {number}, "timestamp": {number}}}\n' for number in range(9)))
    return file


def replayed(history: Path, folder: Path, **fields: Any) -> Any:
    plan = Plan(executor="local", processes=1, directory=folder, resume=True, **fields)
    return replay(topology, {numbers: history}, plan, application_id="app")


def _refused(folder: Path) -> str:
    try:
        with Place(str(folder)).locked():
            return "not refused"
    except FolderLockedError as error:
        return str(error)


def _is_held(folder: Path) -> bool:
    """What another process would find."""
    with (folder / LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_second_replay_is_refused_at_the_start_and_the_first_goes_on(history: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    messages = []

    def on_progress(_: Any) -> None:
        with pytest.raises(ReplayError) as refused:
            replayed(history, folder)
        messages.append(str(refused.value))

    with replayed(history, folder, progress=on_progress) as result:
        assert result.records["out"] == 9
        assert _is_held(folder)  # Its outputs are still to be written.
    assert not _is_held(folder)
    assert messages[0].startswith(f"{folder}: this process has been writing here since 20")


def test_a_result_that_is_open_does_not_refuse_the_next_replay_of_its_process(history: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    first = replayed(history, folder)
    with replayed(history, folder) as second:
        first.close()
        assert _is_held(folder)
        assert second.slices_skipped == 1
    assert not _is_held(folder)


def test_a_locked_folder_is_no_mistake(tmp_path: Path) -> None:
    """A scheduler may try again, so the exit status is 1, as if another process uses the state directory of a run."""
    folder = Place(str(tmp_path))
    with folder.locked(), pytest.raises(FolderLockedError) as refused, folder.locked():
        pass
    assert not refused.value.is_mistake


@pytest.mark.parametrize(
    ("host", "advice"),
    [
        (socket.gethostname(), "wait until it ends, or end it: the lock ends with it"),
        ("elsewhere", "wait until it ends, or if that machine is gone, delete {lock}"),
    ],
)
def test_the_message_says_who_holds_the_lock_and_what_to_do(tmp_path: Path, host: str, advice: str) -> None:
    """Another machine is that of a file system of the network."""
    lock = tmp_path / LOCK
    with Place(str(tmp_path)).locked():
        lock.write_text(json.dumps({"pid": os.getpid() + 1, "host": host, "since": "2026-03-01T00:00:00Z"}))
        message = _refused(tmp_path)

    who = f"process {os.getpid() + 1} on {host} has been writing here since 2026-03-01T00:00:00Z"
    assert message == f"{tmp_path}: {who}; {advice.format(lock=lock)}"


def test_a_snapshot_is_written_again_under_the_lock_of_its_folder(history: Path, tmp_path: Path) -> None:
    """What the earlier replay has left in the folder is deleted, but not the lock."""
    plan = Plan(executor="local", processes=1, snapshot=tmp_path / "snapshot")
    lock = tmp_path / "snapshot" / "work" / LOCK
    locks = set()
    for _ in range(2):
        with replay(topology, {numbers: history}, plan, application_id="app") as result:
            assert result.slices_skipped == 0
            locks.add(lock.stat().st_ino)
    assert len(locks) == 1
