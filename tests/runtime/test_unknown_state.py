"""State that an application has and its topology does not know: named at the start, refused where a name has moved."""

import logging
from typing import Any

import pytest

from streams import Admin, EmbeddedBroker, Streams, StreamsBuilder, StreamsError, TopicPartition, UnknownStateError
from tests.comparison.takeover_cases import FAST, Life, clicks, views
from tests.runtime.bounded_runs import NUMBERS, run

FIRST, SECOND = "KSTREAM-AGGREGATE-STATE-STORE-0000000001", "KSTREAM-AGGREGATE-STATE-STORE-0000000002"


@pytest.fixture
def life(tmp_path):
    with EmbeddedBroker() as broker:
        yield Life(broker, tmp_path / "state")


def counting(name: str | None = None, *, filtered: bool = False, source: Any = clicks, **options: Any):
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(source)
        if filtered:
            stream = stream.filter(lambda key, value: value > 0)
        stream.group_by_key().count(name, **options)

    return topology


def passing(builder: StreamsBuilder) -> None:
    builder.stream(clicks).filter(lambda key, value: value > 100)


def said(caplog) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


def test_a_generated_name_that_has_moved_is_refused_with_the_way_back(life, caplog):
    assert life.run(counting(), (clicks, "ann", 1, 0)) == {FIRST: {"ann": 1}}

    for _ in range(2):
        with pytest.raises(UnknownStateError) as caught:
            life.run(counting(filtered=True), (clicks, "ann", 1, 1))
    assert caught.value.stores == (FIRST,)
    assert caught.value.topics == (f"app-{FIRST}-changelog",)
    for part in (f"changelog app-{FIRST}-changelog", f"folder 0_0/{FIRST}", f'store="{FIRST}"', "streams diff"):
        assert part in str(caught.value)
    assert f"app-{SECOND}-changelog" not in life.broker.topics()

    taken_up = life.run(counting(filtered=True, store=FIRST))
    assert taken_up == {FIRST: {"ann": 3}}, "the two refused runs have brought a record each"


def test_it_begins_empty_where_that_is_meant(life, caplog):
    life.run(counting(), (clicks, "ann", 1, 0))

    found = life.run(counting(filtered=True), (clicks, "ann", 1, 1), unknown_state="ignore")
    assert found == {SECOND: {"ann": 1}}
    assert "does not know" not in said(caplog)
    # From now on it has state of its own, and the old one is only left over.
    assert life.run(counting(filtered=True), (clicks, "ann", 1, 2)) == {SECOND: {"ann": 2}}
    assert f"has state that its topology does not know: store '{FIRST}'" in said(caplog)


def test_an_unnamed_store_that_gets_a_name_would_begin_empty_too(life):
    life.run(counting(), (clicks, "ann", 1, 0))

    with pytest.raises(UnknownStateError, match=f"store 'sums' starts empty while '{FIRST}' is left over"):
        life.run(counting("sums"))


def test_orphaned_store_is_logged_and_the_application_runs(life, caplog):
    life.run(counting("sums", filtered=True), (clicks, "ann", 1, 0))

    assert life.run(passing, (clicks, "ann", 1, 1)) == {}
    assert "store 'sums' (changelog app-sums-changelog, folder 0_0/sums)" in said(caplog)
    with pytest.raises(UnknownStateError):
        life.run(passing, unknown_state="fail")


def test_a_store_that_was_given_another_name_by_hand_is_named(life, caplog):
    life.run(counting("sums"), (clicks, "ann", 1, 0))

    assert life.run(counting("totals"), (clicks, "ann", 1, 1)) == {"totals": {"ann": 1}}
    assert "store 'sums'" in said(caplog)


def test_known_stores_are_not_logged(life, caplog):
    for minute in range(2):
        life.run(counting("sums"), (clicks, "ann", 1, minute), unknown_state="fail")

    assert said(caplog) == ""


def test_an_empty_store_is_left_behind_without_a_refusal(life, caplog):
    life.run(counting())
    life.forget_all_folders()

    assert life.run(counting(filtered=True), (clicks, "ann", 1, 1)) == {SECOND: {"ann": 1}}


def test_topics_of_an_application_whose_id_is_longer_are_not_mistaken(life, caplog):
    life.broker.create_topic("app-eu-sums-changelog")
    life.broker.create_topic("app-eu-sums-repartition")
    with Admin(life.broker) as admin:
        admin.alter_offsets("app-eu", {TopicPartition(clicks.name, 0): 0})

    life.run(counting("sums"), (clicks, "ann", 1, 0), unknown_state="fail")
    assert said(caplog) == ""
    with Admin(life.broker) as admin:
        admin.delete_group("app-eu", force=True)
    with pytest.raises(UnknownStateError, match=r"store 'eu-sums'.*topic app-eu-sums-repartition"):
        life.run(counting("sums"), unknown_state="fail")


def test_repartition_topics_are_named(life, caplog):
    def regrouped(builder: StreamsBuilder) -> None:
        builder.stream(clicks).select_key(lambda key, value: key).group_by_key().count("sums")

    life.run(regrouped, (clicks, "ann", 1, 0))
    life.run(counting("sums"))

    assert "does not know: topic app-sums-repartition" in said(caplog)


def test_a_store_without_changelog_that_its_tasks_do_not_find_any_more_is_named(life):
    def second(builder: StreamsBuilder) -> None:
        builder.stream(views).filter(lambda key, value: True)
        counting("sums", logging=False)(builder)

    life.run(counting("sums", logging=False), (clicks, "ann", 1, 0))
    with pytest.raises(UnknownStateError, match="folder 0_0/sums"):
        life.run(second)


def test_while_another_instance_runs_it_is_only_a_warning(life, caplog):
    """A rolling upgrade: the older instances still use what the newer ones do not know."""
    life.run(counting(), (clicks, "ann", 1, 0))
    with Streams(counting(), application_id="app", broker=life.broker, **FAST) as older:
        older.wait(0)
        while not older.instance._provisioner.has_members():
            older.wait(20)
        with Streams(counting(filtered=True), application_id="app", broker=life.broker, **FAST):
            pass

    assert f"'{FIRST}' is left over" in said(caplog)


def test_a_bounded_run_is_refused_too(tmp_path):
    rows = [("ann", 1, 0), ("ann", 2, 1)]

    run(counting(source=NUMBERS), {"numbers": rows}, state_dir=tmp_path)
    with pytest.raises(StreamsError, match=f"'{FIRST}' is left over"):
        run(counting(source=NUMBERS, filtered=True), {"numbers": rows}, state_dir=tmp_path)


def test_the_progress_topic_is_never_left_over(life, caplog):
    """It has no state, whether the topology still writes to it or not."""
    life.broker.create_topic("app-progress", 1)
    life.run(counting("totals"), (clicks, "ann", 1, 0), unknown_state="fail")
    assert "does not know" not in said(caplog)
