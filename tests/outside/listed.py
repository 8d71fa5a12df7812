"""Tests of others that fail, or are not run, each with its reason: ``expected/NAME.toml``.

Three tables, each from a test, or a pattern of tests (``*``), to the reason: ``failed`` are run and fail, ``left_out``
are not run, ``unsteady`` are run, and may fail with what the pattern says behind the name: ``TEST: NOTE``.  By that it
is seen that the cause is not the broker.
"""

import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

FOLDER = Path(__file__).with_name("expected")


def _reason(test: str, table: Mapping[str, str]) -> str | None:
    # Brackets stand for themselves: pytest's names have them.
    return next((why for like, why in table.items() if fnmatchcase(test, like.replace("[", "[[]"))), None)


@frozen
class Listed:
    """What is expected of the tests of a suite, by patterns of their names."""

    failed: Mapping[str, str] = field(factory=dict)
    left_out: Mapping[str, str] = field(factory=dict)
    unsteady: Mapping[str, str] = field(factory=dict)

    def reason_to_leave_out(self, test: str) -> str | None:
        """Return why a test is not to be run, or None."""
        return _reason(test, self.left_out)


def listed(name: str) -> Listed:
    """Return what is expected of a suite; of one without a file, that everything passes."""
    path = FOLDER / f"{name}.toml"
    return Listed(**tomllib.loads(path.read_text(encoding="utf-8"))) if path.exists() else Listed()


@define
class Verdict:
    """What a run of a suite means, beside what was expected of it."""

    passed: list[str] = field(factory=list)
    #: With what they said.
    failed: dict[str, str] = field(factory=dict)
    #: With the reasons.
    expected: dict[str, str] = field(factory=dict)
    left_out: dict[str, str] = field(factory=dict)
    #: Tests that are listed as failing, and pass.
    surprising: list[str] = field(factory=list)
    #: Names and patterns that are listed, and no test has them any more.
    unseen: list[str] = field(factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it as it is recorded: passed tests as their number."""
        return {
            "passed": len(self.passed) + len(self.surprising),
            "failed": self.failed,
            "expected": self.expected,
            "left_out": self.left_out,
        }

    @property
    def is_as_expected(self) -> bool:
        """Whether nothing failed that was to pass, nothing passed that was to fail, and something was run."""
        return not self.failed and not self.surprising and bool(self.passed or self.expected)


def verdict(outcomes: "Iterable[Any]", expected: Listed, *, is_whole: bool) -> Verdict:
    """Compare outcomes with what is listed; whether all of the list was seen is asked of a whole run only."""
    result = Verdict()
    seen: list[str] = []
    for outcome in outcomes:
        test = outcome.test
        seen.append(test)
        failing = _reason(test, expected.failed)
        unsteady = _reason(f"{test}: {outcome.note}", expected.unsteady)
        if outcome.result == "left out":
            result.left_out[test] = _reason(test, expected.left_out) or outcome.note
        elif outcome.result == "failed":
            if (why := failing or unsteady) is not None:
                result.expected[test] = why
            else:
                result.failed[test] = outcome.note
        elif failing is not None:
            result.surprising.append(test)
        else:
            result.passed.append(test)
    if is_whole:
        tables = (expected.failed, expected.left_out)
        result.unseen = [
            like for table in tables for like in table if not any(_reason(t, {like: ""}) == "" for t in seen)
        ]
    return result
