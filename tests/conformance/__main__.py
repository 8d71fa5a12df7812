"""Runs conformance cases: ``python -m tests.conformance [options] FILE...``.

One line per case on standard output, then the totals; exit status 0 if all pass, 1 if one
fails, 2 if a file cannot be read.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.cases import Case, UnreadableError, read_cases
from tests.conformance.pool import judge_all


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Run conformance cases.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=".jsonl or .jsonl.gz file of cases")
    parser.add_argument("--only", default="", metavar="PREFIX", help="only cases whose name begins so")
    parser.add_argument("--feature", metavar="FEATURE", help="only cases with this feature")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: all)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of all files and return the exit status."""
    options = _options(arguments)
    cases: list[Case] = []
    are_all_read = True
    for path in options.files:
        try:
            cases += [case for case in read_cases(path) if case.is_wanted(options.only, options.feature)]
        except UnreadableError as error:
            are_all_read = False
            print(error, file=sys.stderr)
    failed = 0
    for case, why in judge_all(cases, options.jobs):
        failed += why is not None
        print(f"ok {case.name}" if why is None else f"FAIL {case.name}: {why}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 2 if not are_all_read else 1 if failed else 0


if __name__ == "__main__":
    # Lone surrogates of a failure's message must not end the run.
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main())
