"""An application goes on over stores that an earlier version of its topology has left.

Where only their layout on disk has changed they are rebuilt from their changelogs; where their bytes
mean something else the application says so and starts no task.  Each version runs live over the same
broker and state directory.
"""

import logging
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from streams import (
    Admin,
    EmbeddedBroker,
    ForeignFormatError,
    LostRecordsError,
    SessionWindows,
    StoreError,
    StreamsBuilder,
    TimeWindows,
    Topic,
    session_windowed,
    time_windowed,
)
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.tasks.offset_metadata import OffsetMetadata
from streams.state.engine.engines import EngineBatch
from streams.state.engine.rocksdb import RocksEngine
from streams.state.lifecycle import FORMAT
from tests.comparison.takeover_cases import Life, clicks, minutes


def windows_of(size: float) -> Topic[Any, int]:
    """Return the output topic, for windows of so many minutes."""
    return Topic("windows-out", key=time_windowed(str, minutes(size)), value=int)


windows_out = windows_of(10)
sessions_out = Topic("sessions-out", key=session_windowed(str), value=int)
MEMORY = {"default_store": "in_memory"}


@pytest.fixture
def life(tmp_path):
    with EmbeddedBroker() as broker:
        yield Life(broker, tmp_path / "state")


def counting(builder: StreamsBuilder) -> None:
    builder.stream(clicks).group_by_key().count("sums")


def adding(initial: Any = 0, value: Any = int, **options: Any):
    def topology(builder: StreamsBuilder) -> None:
        declared = {} if value is None else {"value": value}
        grouped = builder.stream(clicks).filter(lambda key, value: value > 0).group_by_key()
        grouped.aggregate(
            lambda: initial, lambda key, value, total: type(initial)(total + value), name="sums", **declared, **options
        )

    return topology


def windowed(grace: float, size: float = 10, name: str = "sums", **options: Any):
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(minutes(size), grace=minutes(grace))
        builder.stream(clicks).group_by_key().windowed_by(windows).count(name, **options).to_stream().to(
            windows_of(size)
        )

    return topology


def in_sessions(grace: float):
    def topology(builder: StreamsBuilder) -> None:
        windows = SessionWindows.of(minutes(2), grace=minutes(grace))
        builder.stream(clicks).group_by_key().windowed_by(windows).count("sums").to_stream().to(sessions_out)

    return topology


def said(caplog) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


# --- another layout -------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(5, 60), (60, 5)])
def test_windows_are_counted_on_with_another_grace(life, caplog, old, new):
    """Their segments are longer or shorter, so that none would be found: each would be counted from 1 again."""
    life.run(windowed(old), *[(clicks, "ann", 1, minute) for minute in range(13)])
    found = life.run(windowed(new), (clicks, "ann", 1, 13))["sums"]

    assert found[("ann", 10)] == 4
    assert life.written(windows_out)[-1][1] == 4
    assert "store 'sums' of task 0_0 is rebuilt from its changelog: its retention has changed" in said(caplog)


def test_sessions_are_counted_on_with_another_grace(life, caplog):
    life.run(in_sessions(5), (clicks, "ann", 1, 60), (clicks, "ann", 1, 61))
    life.run(in_sessions(600), (clicks, "ann", 1, 62))

    assert [count for _, count in life.written(sessions_out) if count is not None] == [1, 2, 3]
    assert "rebuilt from" in said(caplog)


def test_versions_are_kept_with_another_history_and_when_there_is_none_any_more(life, caplog):
    histories = (None, timedelta(hours=1), timedelta(hours=50), None)
    for number, history in enumerate(histories):
        options = {} if history is None else {"history": history}
        found = life.run(adding(**options), (clicks, "ann", 1, number))

    assert found == {"sums": {"ann": 4}}
    assert said(caplog).count("is rebuilt") == 3


def test_a_store_is_made_anew_once(life, caplog):
    for minute, grace in enumerate((5, 60, 60)):
        life.run(windowed(grace), (clicks, "ann", 1, minute))

    assert said(caplog).count("is rebuilt") == 1
    assert life.written(windows_out)[-1][1] == 3


def test_the_earlier_version_can_come_back(life):
    for minute, grace in enumerate((5, 60, 5)):
        found = life.run(windowed(grace), (clicks, "ann", 1, minute))

    assert found["sums"] == {("ann", 0): 3}


def test_without_a_changelog_the_application_says_what_to_do(life):
    life.run(windowed(5, logging=False), (clicks, "ann", 1, 0))

    with pytest.raises(
        StoreError, match="no changelog has its content; restore the previous declaration, or delete the folder"
    ):
        life.run(windowed(60, logging=False))
    assert life.run(windowed(5, logging=False), (clicks, "ann", 1, 1))["sums"] == {("ann", 0): 2}


def test_changelog_that_was_enabled_later_lacks_the_earlier_content(life):
    life.run(windowed(5, logging=False), (clicks, "ann", 1, 0))
    life.run(windowed(5), (clicks, "bob", 1, 1))

    with pytest.raises(StoreError, match="no changelog has its content"):
        life.run(windowed(60))


def test_store_that_was_left_empty_is_nobodys(life, caplog):
    life.run(adding(logging=False), (clicks, "ann", 0, 0))

    assert life.run(windowed(60, logging=False), (clicks, "ann", 1, 1))["sums"] == {("ann", 0): 1}
    assert "another version of the topology left it empty" in said(caplog)


def test_changelog_that_keeps_less_than_is_needed_now_is_told(life, caplog):
    """There is no request yet to change its settings."""
    life.run(windowed(5), (clicks, "ann", 1, 0))
    life.run(windowed(60), (clicks, "ann", 1, 1))

    needed = 86_400_000 + 70 * 60_000
    assert f"set retention.ms={needed} on it" in said(caplog)
    assert "'app-sums-changelog' has retention.ms=" in said(caplog)


# --- another meaning ------------------------------------------------------------------------

MEANINGS = [
    (adding(), adding(0.5, float), "values written as long, but the topology reads double"),
    (adding(), windowed(5), "entries by key, but the topology keeps windows"),
    (windowed(5), in_sessions(5), "windows, but the topology keeps sessions"),
    (windowed(5), windowed(5, size=20), "windows of 600000 ms, but those of the topology have 1200000 ms"),
]


@pytest.mark.case(4)
@pytest.mark.parametrize(("old", "new", "says"), MEANINGS)
@pytest.mark.parametrize("place", ["folder", "changelog", "memory"])
def test_entries_of_another_meaning_are_refused(life, old, new, says, place):
    """The folder says what it holds; of the changelog the committed offsets do."""
    settings = MEMORY if place == "memory" else {}
    life.run(old, (clicks, "ann", 1, 0), **settings)
    if place == "changelog":
        life.forget_all_folders()
    which = "store 'sums'" if place == "folder" else "changelog app-sums-changelog-0 of store 'sums'"

    with pytest.raises(StoreError, match=f"{which} of task 0_0 holds {says}; give the store another name"):
        life.run(new, (clicks, "ann", 1, 1), **settings)


@pytest.mark.parametrize("settings", [{}, MEMORY], ids=["folder", "memory"])
@pytest.mark.parametrize("copies", [0, 1])
def test_a_refused_version_changes_nothing(life, settings, copies):
    life.run(adding(), (clicks, "ann", 1, 0), **settings)
    with pytest.raises(StoreError):
        life.run(adding(0.5, float), (clicks, "ann", 1, 1), num_standby_replicas=copies, **settings)

    assert life.run(adding(), (clicks, "ann", 1, 2), **settings) == {"sums": {"ann": 3}}


def test_a_store_of_another_name_starts_empty_beside_it(life):
    life.run(windowed(5), (clicks, "ann", 1, 0))

    assert life.run(windowed(5, 20, "others"), (clicks, "ann", 1, 1))["others"] == {("ann", 0): 1}


def test_a_changelog_that_was_deleted_holds_nothing_to_be_misread(life):
    life.run(adding(), (clicks, "ann", 1, 0))
    life.forget_all_folders()
    with Admin(life.broker) as admin:
        admin.delete_topics(["app-sums-changelog"])

    with pytest.raises(LostRecordsError, match="app-sums-changelog-0 of store 'sums' of task 0_0 ends at offset 0"):
        life.run(adding(0.5, float))
    given = {"lost_records": "accept"}
    assert life.run(adding(0.5, float), (clicks, "ann", 1, 1), **given) == {"sums": {"ann": 1.5}}
    assert life.run(adding(0.5, float), (clicks, "ann", 1, 2)) == {"sums": {"ann": 2.5}}


def test_type_that_is_declared_later_fits_the_type_that_lambdas_returned(life):
    life.run(adding(value=None), (clicks, "ann", 1, 0))
    assert life.run(adding(value=int), (clicks, "ann", 1, 1)) == {"sums": {"ann": 2}}

    with pytest.raises(StoreError, match="written as long"):
        life.run(adding(0.5, float))


# --- state of Kafka Streams, which writes no notes --------------------------------------------


def unnoted(life: Life) -> None:
    """Make offsets what Kafka Streams has left; folders are gone."""
    life.forget_all_folders()
    with Admin(life.broker) as admin:
        committed = admin.committed_offsets("app")
        plain = {}
        for at, found in committed.items():
            note = OffsetMetadata.decode(found.metadata)
            assert note is not None
            plain[at] = OffsetAndMetadata(found.offset, evolve(note, own=None).encode())
        admin.alter_offsets("app", plain)


def test_state_without_recorded_types_is_accepted_and_its_types_are_recorded(life):
    life.run(adding(), (clicks, "ann", 1, 0))
    unnoted(life)
    assert life.run(adding(), (clicks, "ann", 1, 1)) == {"sums": {"ann": 2}}

    with pytest.raises(StoreError, match="written as long"):
        life.run(adding(0.5, float))


def test_records_that_cannot_be_those_of_a_store_are_named(life):
    """Without a note only the bytes can tell."""
    life.run(counting, (clicks, "a", 1, 0))
    unnoted(life)

    cause = r"'sums' of task 0_0 cannot be restored from app-sums-changelog-0, offset 0: .*no key of a window store"
    with pytest.raises(ForeignFormatError, match=cause):
        life.run(windowed(5), (clicks, "a", 1, 1))


@pytest.mark.parametrize("note", [b'{"format":2}', b"{}"])
def test_a_store_folder_of_another_release_is_refused(life, note):
    life.run(counting, (clicks, "ann", 1, 0))
    (folder,) = life.state_dir.glob("app/*/sums")
    engine = RocksEngine.open(folder)
    engine.apply(EngineBatch([], {}, {FORMAT: note}))
    engine.close()

    with pytest.raises(
        StoreError, match=r"store 'sums' of task 0_0 has entries, but no format recorded by this release.*delete"
    ):
        life.run(counting)

    life.forget_folders("sums")
    assert life.run(counting, (clicks, "ann", 1, 1)) == {"sums": {"ann": 2}}
