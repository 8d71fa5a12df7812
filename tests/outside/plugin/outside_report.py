"""A plugin of pytest, of any version: a line of JSON for the outcome of each test, among all that is said."""

import json
import sys
from typing import Any


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say that a test begins."""
    _say(nodeid, "begun", "")


def pytest_runtest_logreport(report: Any) -> None:
    """Say what became of a test, or of what is around it."""
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        _say(report.nodeid, "left out", str(reason).removeprefix("Skipped: "))
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _say(report.nodeid, "failed", str(getattr(crash, "message", report.longrepr))[:500])
    elif report.when == "call":
        _say(report.nodeid, "passed", "")


def pytest_collectreport(report: Any) -> None:
    """Say which modules cannot be read."""
    if report.failed:
        _say(report.nodeid, "failed", str(report.longrepr)[-500:])


def _say(test: str, result: str, note: str) -> None:
    sys.stdout.write("\n@outside " + json.dumps([test, result, note]) + "\n")
    sys.stdout.flush()
