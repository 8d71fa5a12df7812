"""The state directory: one instance at a time, one owner per task, nothing deleted unasked."""

import os
from pathlib import Path

import pytest

from streams.core.errors import StateLockedError
from streams.core.records import TaskId
from streams.state import StateDirectory


def test_second_instance_is_refused_with_path_and_process(tmp_path: Path) -> None:
    first, second = StateDirectory.of(tmp_path, "app"), StateDirectory.of(tmp_path, "app")
    first.lock()
    first.lock()

    with pytest.raises(StateLockedError, match=f"{tmp_path / 'app'} is in use by process {os.getpid()}"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_instances_of_other_applications_do_not_meet(tmp_path: Path) -> None:
    first, second = StateDirectory.of(tmp_path, "app"), StateDirectory.of(tmp_path, "other")
    first.lock()
    second.lock()
    first.unlock()
    second.unlock()


def test_task_has_one_owner_at_a_time(tmp_path: Path) -> None:
    state, task = StateDirectory.of(tmp_path, "app"), TaskId(0, 1)
    state.lock_task(task, "thread-1")
    state.lock_task(task, "thread-1")
    with pytest.raises(StateLockedError, match="0_1"):
        state.lock_task(task, "thread-2")
    with pytest.raises(StateLockedError, match="in use"):
        state.delete_task(task)
    state.unlock_task(task, "thread-2")
    assert state.is_task_locked(task)
    state.unlock_task(task, "thread-1")
    state.lock_task(task, "thread-2")


def test_directories_are_made_on_demand_and_deleted_on_request(tmp_path: Path) -> None:
    state = StateDirectory.of(tmp_path, "app")
    assert list(state.tasks()) == []
    for task in (TaskId(1, 0), TaskId(0, 2)):
        path = state.store_path(task, "counts")
        path.mkdir()
    (state.path / "not-a-task").mkdir()

    assert path == tmp_path / "app" / "0_2" / "counts"
    assert list(state.tasks()) == [TaskId(0, 2), TaskId(1, 0)]
    state.delete_store(TaskId(0, 2), "counts")
    assert not path.exists()
    state.delete_task(TaskId(1, 0))
    assert list(state.tasks()) == [TaskId(0, 2)]


def test_store_whose_deletion_was_cut_short_is_not_found_any_more(tmp_path: Path) -> None:
    """It is moved away first; what is left of it goes with the next deletion."""
    state, task = StateDirectory.of(tmp_path, "app"), TaskId(0, 0)
    path = state.store_path(task, "counts")
    left = path.with_name(".counts.deleted")
    for folder in (path, left):
        folder.mkdir()
        (folder / "data").touch()
    state.delete_store(task, "counts")

    assert list(state.task_path(task).iterdir()) == []
    state.delete_store(task, "counts")
