"""Runs suites of others: ``python -m tests.outside [--record] [SUITE ...]``.

One line a test that is not as expected, and one a suite; with ``--record`` the results are written to
``docs/conformance.json``, and the page ``docs/conformance.md`` from them; with ``--only``, too, those of the tests
that ran are put among those of the last whole run.  The exit status is 1 if a test fails that is
not listed, or passes that is listed as failing, or a suite has run nothing; one that lacks a program is left out.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from tests.outside.listed import Verdict, listed, verdict
from tests.outside.suite import ROOT, Outcome, Room, Suite, UnavailableError
from tests.outside.suites import suites

#: The parts of a suite's results that name their tests.
NAMED = ("failed", "expected", "left_out")
RESULTS = ROOT / "docs" / "conformance.json"
CACHE = ROOT / ".outside"


def _outcomes(room: Room, is_verbose: bool) -> Iterator[Outcome]:
    for outcome in room.suite.run(room):
        if is_verbose:
            print(f"{outcome.result:9}{outcome.test} {outcome.note}", flush=True)
        yield outcome


def judged(suite: Suite, options: argparse.Namespace) -> "Verdict | str":
    """Run a suite; return what came of it, or why it could not be run."""
    if missing := [program for program in suite.needs if shutil.which(program) is None]:
        return f"{' and '.join(missing)} not on the PATH"
    expected = listed(suite.name)
    room = Room(suite, CACHE / suite.name, expected, options.only, options.limit)
    try:
        return verdict(_outcomes(room, options.verbose), expected, is_whole=not options.only)
    except UnavailableError as error:
        return str(error)


def _said(suite: Suite, result: Verdict, seconds: float) -> None:
    for test, note in result.failed.items():
        print(f"failed: {suite.name}: {test}: {note}")
    for test in result.surprising:
        print(f"passes, and is listed as failing in expected/{suite.name}.toml: {test}")
    for like in result.unseen:
        print(f"listed in expected/{suite.name}.toml, but there is no such test: {like}")
    counts = f"{len(result.passed) + len(result.surprising)} passed, {len(result.failed)} failed"
    more = f"{len(result.expected)} failed as listed, {len(result.left_out)} left out"
    print(f"{suite.name} {suite.version}: {counts}, {more} in {seconds:.0f} s", flush=True)


def merged(last: dict[str, Any], result: Verdict, seconds: float) -> dict[str, Any]:
    """Return a suite's recorded results with those of a run of some of its tests in place of theirs.

    Passed tests are recorded as their number: a test that ran, and has no name in the record, had passed before.  A
    class that was not run has its own name there, and gives way to its tests.
    """
    ran = {test: {test, test.split(".")[0]} for test in (*result.passed, *result.expected, *result.left_out)}
    named = {name for part in NAMED for name in last[part]}
    replaced = named & set().union(*ran.values())
    had_passed = sum(not names & named for names in ran.values())
    new = result.as_json()
    parts = {part: {k: v for k, v in last[part].items() if k not in replaced} | new[part] for part in NAMED}
    # The time of a class that had not run is added; that of others is in the sum.
    seconds = last["seconds"] + (round(seconds) if replaced - ran.keys() else 0)
    return parts | {"passed": last["passed"] - had_passed + new["passed"], "seconds": seconds}


def record(suite: Suite, result: "Verdict | str", seconds: float, *, is_whole: bool = True) -> None:
    """Write a suite's results among those of the others, and the page.

    Raises:
        UnavailableError: Some of its tests ran, and not as expected, or the record has no whole run of this version.
    """
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    entry: dict[str, Any] = {"title": suite.title, "version": suite.version, "origin": suite.origin}
    entry |= {"needs": list(suite.needs), "date": datetime.now().date().isoformat(), "seconds": round(seconds)}
    if is_whole:
        results[suite.name] = entry | ({"unavailable": result} if isinstance(result, str) else result.as_json())
    else:
        last = results.get(suite.name, {})
        if "passed" not in last or last["version"] != suite.version:
            raise UnavailableError(f"the record has no whole run of {suite.version}: run it without --only")
        if isinstance(result, str) or not result.is_as_expected:
            raise UnavailableError("with --only, tests are recorded if all end as expected: list those that fail")
        results[suite.name] = entry | merged(last, result, seconds)
    text = json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "docs" / "conformance.py")], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites that are named, or all, and return the exit status."""
    every = suites()
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description="Run suites of tests of others.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(every)} (default: all)")
    parser.add_argument("--record", action="store_true", help="write the results and the page")
    parser.add_argument("--only", default="", metavar="PART", help="only tests whose name has this")
    parser.add_argument(
        "--limit", type=float, default=0.0, metavar="S", help="seconds for each suite (default: its own)"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for each test")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.suites if name not in every]:
        parser.error(f"no suite {unknown[0]!r}; there are: {', '.join(every)}")
    is_good = True
    for name in options.suites or every:
        began = time.monotonic()
        result = judged(every[name], options)
        seconds = time.monotonic() - began
        if isinstance(result, str):
            print(f"{name} was left out: {result}", flush=True)
        else:
            _said(every[name], result, seconds)
            is_good = is_good and result.is_as_expected
        if options.record:
            try:
                record(every[name], result, seconds, is_whole=not options.only)
            except UnavailableError as error:
                print(f"{name} was not recorded: {error}", flush=True)
                is_good = False
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
