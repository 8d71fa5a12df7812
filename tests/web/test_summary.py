"""The sentence about health, which the page and ``streams top`` show."""

from typing import Any

import pytest

from streams.web.summary import summary

FINE = {
    "state": "RUNNING",
    "is_paused": False,
    "restoring": [],
    "totals": {"lost": 0, "dead_letters": 0},
    "instances": [{"error": None}],
    "tasks": {"columns": ["task", "lag"], "rows": [["0_0", 0], ["0_1", 0]]},
    "events": [[0, "one", "CREATED"], [60_000, "one", "RUNNING"]],
    "now_ms": 7_320_000,
}


def said(**changes: Any) -> str:
    return " · ".join(words for _, words, _ in summary(FINE | changes)["health"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "for 2 h 1 min · 1 instance, 2 tasks · up to date"),
        ({"events": []}, "1 instance, 2 tasks · up to date"),
        (
            {"tasks": {"columns": ["lag"], "rows": [[1_200]]}},
            "for 2 h 1 min · 1 instance, 1 task · 1,200 records behind",
        ),
        (
            {"totals": {"lost": 1, "dead_letters": 2}},
            "for 2 h 1 min · 1 instance, 2 tasks · up to date · 1 record lost · 2 dead letters",
        ),
        (
            {"instances": [{"error": None}, {"error": "no answer"}]},
            "for 2 h 1 min · 2 instances, 2 tasks · 1 of 2 instances are left out of all numbers · up to date",
        ),
    ],
    ids=["fine", "no event", "behind", "lost", "away"],
)
def test_sentence_says_since_when_whether_it_is_behind_and_what_was_lost(changes, sentence: str):
    assert said(**changes) == sentence


def test_lag_of_an_application_that_does_not_run_is_unknown():
    """Zero is no lag of one that has ended."""
    assert said(state="ERROR").endswith("how far behind is unknown")


def test_state_of_a_restore_is_what_one_waits_for():
    told = summary(FINE | {"state": "REBALANCING", "restoring": [{"remaining": 5}], "is_paused": True})

    assert told["state_text"] == "RESTORING, paused"
    assert ("warn", "5 records to restore", "") in told["health"]
