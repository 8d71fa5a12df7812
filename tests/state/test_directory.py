"""The state directory: one instance at a time, one owner per task, nothing deleted unasked."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streams.core.blocks.records import TaskId
from streams.core.errors import ConfigError, ForeignFormatError, StateLockedError
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


@pytest.mark.parametrize("use", [StateDirectory.lock, StateDirectory.process_id])
def test_folder_below_a_file_is_refused_with_what_to_do(use, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"state directory .*/file/app cannot be used: Not a directory .* choose a "):
        use(StateDirectory.of(tmp_path / "file", "app"))


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


def test_a_directory_of_kafka_streams_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """Kafka Streams keeps ``<state.dir>/<application.id>/<task>/rocksdb/<store>`` and a file of its process id."""
    (tmp_path / "app" / "0_0" / "rocksdb" / "sums").mkdir(parents=True)
    (tmp_path / "app" / "kafka-streams-process-metadata").write_text('{"processId":"2c0c1a0e"}')

    with pytest.raises(ForeignFormatError, match=r"one of Kafka Streams'.*give the application another state_dir"):
        StateDirectory.of(tmp_path, "app").lock()
    assert (tmp_path / "app" / "0_0" / "rocksdb" / "sums").is_dir()


@pytest.mark.parametrize(("content", "says"), [(None, "an earlier release"), ("streams state 2\n", "streams state 2")])
def test_a_directory_of_another_release_is_refused(tmp_path: Path, content: str | None, says: str) -> None:
    (tmp_path / "app" / "0_0" / "sums").mkdir(parents=True)
    if content is not None:
        (tmp_path / "app" / ".format").write_text(content)
    state = StateDirectory.of(tmp_path, "app")

    for _ in range(2):
        with pytest.raises(ForeignFormatError, match=says):
            state.lock()


def test_a_directory_that_was_made_here_is_taken_up_again(tmp_path: Path) -> None:
    state = StateDirectory.of(tmp_path, "app")
    for _ in range(2):
        state.lock()
        state.task_path(TaskId(0, 0))
        state.unlock()


@pytest.mark.parametrize("left", [b"", b"0a1b", b"\xf5\xb1\n"])
def test_damaged_process_id_is_replaced(tmp_path, left):
    """It only names the process in the group: no state depends on it."""
    (tmp_path / ".process").write_bytes(left)

    found = StateDirectory(tmp_path).process_id()

    assert len(found) == 32
    assert StateDirectory(tmp_path).process_id() == found


def test_process_id_is_known_before_the_directory_is_locked_and_is_one_for_all(tmp_path):
    """A server asks before the application starts."""
    path = tmp_path / "shop"

    with ThreadPoolExecutor(4) as pool:
        found = {*pool.map(lambda _: StateDirectory(path).process_id(), range(20))}
    directory = StateDirectory(path)
    directory.lock()

    assert found == {directory.process_id()}
    assert [file.name for file in path.iterdir() if file.name.startswith(".process")] == [".process"]
    directory.unlock()
