"""What the frame makes of outcomes: nothing that a suite says is lost, and what is expected is held to."""

import argparse
import json
import selectors
import sys

import pytest
from attrs import evolve

from tests.outside import __main__ as command
from tests.outside.listed import FOLDER, Listed, listed, verdict
from tests.outside.suite import Outcome, Room, Suite, UnavailableError
from tests.outside.suites import suites


def suite(run=lambda room: iter(()), **options):
    return Suite(name="x", title="X", version="1", origin="", run=run, **options)


@pytest.mark.parametrize(
    ("result", "table", "part"),
    [
        ("passed", None, "passed"),
        ("failed", None, "failed"),
        ("failed", "failed", "expected"),
        ("passed", "failed", "surprising"),
        ("failed", "unsteady", "expected"),
        ("passed", "unsteady", "passed"),
        ("left out", "left_out", "left_out"),
        ("left out", None, "left_out"),
    ],
)
def test_every_outcome_is_in_one_part_of_the_verdict(result, table, part):
    expected = Listed(**{table: {"Test[a]/*": "why"}}) if table else Listed()

    judged = verdict([Outcome("Test[a]/b", result, "said")], expected, is_whole=True)

    parts = {name: list(getattr(judged, name)) for name in ("passed", "failed", "expected", "left_out", "surprising")}
    assert {name for name, tests in parts.items() if tests} == {part}
    # If all is left out, nothing was run.
    assert judged.is_as_expected == (part in ("passed", "expected"))


@pytest.mark.parametrize(
    ("note", "part"), [("read: connection reset by peer", "expected"), ("a record twice", "failed")]
)
def test_an_unsteady_test_may_fail_only_with_what_is_listed(note, part):
    expected = Listed(unsteady={"Test*: *connection reset*": "why"})

    judged = verdict([Outcome("Test[a]", "failed", note)], expected, is_whole=True)

    assert list(getattr(judged, part)) == ["Test[a]"]


def test_a_test_that_is_listed_and_does_not_exist_is_reported_by_a_whole_run():
    outcomes, expected = [Outcome("a", "passed")], Listed(failed={"gone": "why"}, left_out={"b*": "why"})

    assert verdict(outcomes, expected, is_whole=True).unseen == ["gone", "b*"]
    assert verdict(outcomes, expected, is_whole=False).unseen == []


def test_a_suite_that_ran_nothing_is_not_as_expected():
    assert not verdict([], Listed(), is_whole=True).is_as_expected


def test_a_program_that_says_nothing_is_ended_with_its_children_and_said_so(tmp_path):
    room = Room(suite(), tmp_path, Listed())

    with room.program("sh", "-c", "echo begun; sleep 1000; echo over") as program:
        lines = iter(program)
        first = next(lines)
        program.quiet_s = 0.1
        rest = list(lines)

    assert (first, rest, program.status, program.ended_by) == ("begun", [], None, "no word in 0 s")
    assert (tmp_path / "logs" / "output.log").read_text() == "begun\n"


def test_what_a_program_leaves_behind_is_ended(tmp_path):
    room = Room(suite(), tmp_path, Listed())

    with room.program("sh", "-c", "sleep 1000 & echo begun") as program:
        next(iter(program))
        program.process.wait()
        with selectors.DefaultSelector() as selector:
            selector.register(program.process.stdout, selectors.EVENT_READ)
            assert not selector.select(0)
            program.end()
            assert selector.select(60), "nobody may have the other end of its output"


def test_a_program_ends_when_the_time_of_its_suite_is_over(tmp_path):
    room = Room(suite(limit_s=1.0), tmp_path, Listed())

    with room.program("sleep", "1000") as program:
        assert list(program) == []

    assert program.ended_by == "the suite's time was over"


def test_what_cannot_be_fetched_leaves_the_suite_out_with_the_reason(tmp_path, monkeypatch, capsys):
    def run(room):
        room.fetch(sys.executable, "-c", "print('no such module'); raise SystemExit(1)")
        yield Outcome("a", "passed")

    def refused(room):
        raise UnavailableError("no way to the registry")
        yield

    monkeypatch.setattr(command, "CACHE", tmp_path)
    options = argparse.Namespace(only="", limit=0.0, verbose=False)

    assert "no such module" in command.judged(suite(run), options)
    assert command.judged(suite(refused), options) == "no way to the registry"
    assert command.judged(suite(needs=["no-such-program"]), options) == "no-such-program not on the PATH"


def test_results_of_a_run_replace_those_of_its_suite_only(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command.subprocess, "run", lambda *_, **__: None)
    first, second = suite(), Suite(name="y", title="Y", version="2", origin="", run=lambda _: iter(()))

    command.record(first, verdict([Outcome("a", "passed"), Outcome("b", "failed", "no")], Listed(), is_whole=True), 1)
    command.record(second, "no way to the registry", 1)

    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["x"]["passed"], results["x"]["failed"]) == (1, {"b": "no"})
    assert results["y"]["unavailable"] == "no way to the registry"


def test_results_of_some_tests_replace_theirs_only(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command.subprocess, "run", lambda *_, **__: None)
    expected = Listed(failed={"A.fails": "why"}, left_out={"New": "not run yet"}, unsteady={"A.b: *": "so"})
    first = {"A.a": "passed", "A.b": "passed", "A.fails": "failed", "A.skips": "left out", "New": "left out"}
    part = {"A.a": "passed", "A.b": "failed", "A.skips": "passed", "New.c": "passed", "New.d": "left out"}

    def results():
        return json.loads(command.RESULTS.read_text())["x"]

    def judged(outcomes):
        return verdict([Outcome(test, result, "no") for test, result in outcomes.items()], expected, is_whole=False)

    command.record(suite(), judged(first), 10)
    command.record(suite(), judged(part), 5, is_whole=False)

    assert (results()["passed"], results()["seconds"], results()["failed"]) == (3, 15, {})
    assert (results()["expected"], results()["left_out"]) == ({"A.fails": "why", "A.b": "so"}, {"New.d": "no"})

    # The same again changes nothing.
    before = results()
    command.record(suite(), judged(part), 5, is_whole=False)
    assert results() == before

    with pytest.raises(UnavailableError, match="list those that fail"):
        command.record(suite(), judged({"A.a": "failed"}), 5, is_whole=False)
    with pytest.raises(UnavailableError, match="the record has no whole run of 2"):
        command.record(evolve(suite(), version="2"), judged(part), 5, is_whole=False)
    assert results() == before


def test_every_list_belongs_to_a_suite_and_gives_reasons():
    names = {path.stem for path in FOLDER.glob("*.toml")}

    assert names <= suites().keys()
    for name in names:
        expected = listed(name)
        tables = (expected.failed, expected.left_out, expected.unsteady)
        assert [test for table in tables for test, reason in table.items() if not reason] == []
        # A pattern without the note of a failure would be one of no failure.
        assert [like for like in expected.unsteady if ": " not in like] == []
